-- Version 3: what records got with classes of operations, segments and the provider's speed.

ALTER TABLE series ADD COLUMN operation_class INTEGER;

ALTER TABLE calls ADD COLUMN method INTEGER;
ALTER TABLE calls ADD COLUMN path INTEGER;
ALTER TABLE calls ADD COLUMN hop INTEGER;
ALTER TABLE calls ADD COLUMN response_id TEXT;
ALTER TABLE calls ADD COLUMN service_tier INTEGER;
ALTER TABLE calls ADD COLUMN agent_blocked_us INTEGER;
ALTER TABLE calls ADD COLUMN tps_reported_milli INTEGER;
ALTER TABLE calls ADD COLUMN tps_prefill_milli INTEGER;
ALTER TABLE calls ADD COLUMN tps_total_unavailable INTEGER;
-- Pairs of tokens and seconds, as JSON; NULL where there are none.
ALTER TABLE calls ADD COLUMN segments TEXT;

-- Version 3: what records got with classes of operations, segments and the provider's speed;
-- tokens by the second in which they came; concurrency by time instead of by samples.

-- Tokens of streams, and of whole answers spread over the time in which they were generated, by
-- seconds, minutes and hours. A model or a workload that nobody named is 0.
CREATE TABLE throughput (
  level INTEGER NOT NULL,
  start INTEGER NOT NULL,
  route INTEGER NOT NULL,
  upstream INTEGER NOT NULL,
  model INTEGER NOT NULL,
  workload INTEGER NOT NULL,
  streamed INTEGER NOT NULL,
  spread INTEGER NOT NULL,
  PRIMARY KEY (level, start, route, upstream, model, workload)
) STRICT, WITHOUT ROWID;

-- Time with this many streams in flight. Earlier versions counted tails and bursts as such time.
DELETE FROM capacity;
ALTER TABLE capacity RENAME COLUMN seconds TO busy_ms;

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

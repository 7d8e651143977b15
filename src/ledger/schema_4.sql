-- Version 4: facts of upstreams; how long calls with a first token waited for it, of how long
-- they took.

ALTER TABLE series ADD COLUMN upstream_facts INTEGER;

ALTER TABLE rollups ADD COLUMN ttft_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE rollups ADD COLUMN waited_us INTEGER NOT NULL DEFAULT 0;

-- Version 4: facts of upstreams; how long calls with a first token waited for it, of how long
-- they took; decode speed in the tokens that providers report;
-- what sessions are guessed by.

ALTER TABLE series ADD COLUMN upstream_facts INTEGER;
ALTER TABLE calls ADD COLUMN session_guess INTEGER;

ALTER TABLE rollups ADD COLUMN ttft_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE rollups ADD COLUMN waited_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE rollups ADD COLUMN reported_millitokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE rollups ADD COLUMN reported_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE rollups ADD COLUMN tps_reported BLOB;

-- Version 8: who pays for a call, and the digest of the key that it carried; NULL for calls of before.

ALTER TABLE series ADD COLUMN team INTEGER;
ALTER TABLE series ADD COLUMN cost_center INTEGER;
ALTER TABLE series ADD COLUMN tenant INTEGER;
ALTER TABLE calls ADD COLUMN key_hash INTEGER;
CREATE INDEX calls_by_key_hash ON calls (key_hash) WHERE key_hash IS NOT NULL;

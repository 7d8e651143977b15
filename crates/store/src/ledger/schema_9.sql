-- Version 9: the tools that an answer calls; NULL for calls of before, and where it calls none.

ALTER TABLE calls ADD COLUMN tools INTEGER;
CREATE INDEX calls_by_tools ON calls (tools) WHERE tools IS NOT NULL;

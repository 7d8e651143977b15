-- Version 15: scores.

-- Scores that programs outside the proxy gave. target: call, session, trace. target_id: for a call the proxy's id or the
-- provider's id of the response. A later score of the same name and target replaces the row, which gets a new id.
CREATE TABLE scores (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at_us INTEGER NOT NULL,
  target TEXT NOT NULL,
  target_id TEXT NOT NULL,
  name TEXT NOT NULL,
  value REAL NOT NULL,
  data_type TEXT NOT NULL,
  source TEXT,
  UNIQUE (target, target_id, name)
) STRICT;
CREATE INDEX scores_by_time ON scores (at_us);

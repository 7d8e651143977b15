-- Version 6: sinks.

-- Calls in the order in which they were written, until every sink has them; empty without sinks. A call's key says
-- when it began, which is no order to resume by.
CREATE TABLE undelivered (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  key INTEGER NOT NULL
) STRICT;

-- What each sink has: everything up to `delivered`. What is after it, up to `pending`, is the batch under way, which
-- is sent again with the same calls after a crash. lost: calls that retention deleted first; refused: those that the
-- store would not take.
CREATE TABLE sinks (
  name TEXT PRIMARY KEY,
  delivered INTEGER NOT NULL,
  pending INTEGER,
  lost INTEGER NOT NULL DEFAULT 0,
  refused INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- Version 6: marks and sinks.

-- What happened at an instant (microseconds since 1970). kind: note, reload, prices, restart, warm_up, drift, alert.
-- tags: a JSON array of texts. model, upstream, route and workload: what it is about, NULL for all.
CREATE TABLE marks (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at_us INTEGER NOT NULL,
  kind TEXT NOT NULL,
  text TEXT NOT NULL,
  tags TEXT NOT NULL,
  model TEXT,
  upstream TEXT,
  route TEXT,
  workload TEXT
) STRICT;
CREATE INDEX marks_by_time ON marks (at_us);

-- Calls in the order in which they were written, until every sink has them; empty without sinks. A call's key says
-- when it began, so a sink cannot resume by it.
CREATE TABLE undelivered (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  key INTEGER NOT NULL
) STRICT;

-- Each sink has all calls up to `delivered`. The calls after it, up to `pending`, are the batch in flight, which is sent
-- again with the same calls after a crash. lost: calls that retention deleted first. refused: calls that the store
-- refused.
CREATE TABLE sinks (
  name TEXT PRIMARY KEY,
  delivered INTEGER NOT NULL,
  pending INTEGER,
  lost INTEGER NOT NULL DEFAULT 0,
  refused INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

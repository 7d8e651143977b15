-- Version 6: marks.

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

-- Version 1. Names have ids; instants are milliseconds (ms) or microseconds (us) since
-- 1970 in UTC, durations microseconds, costs billionths of a US dollar, speeds
-- thousandths of a token per second. NULL is unknown. docs/ledger.md says more.

CREATE TABLE names (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  UNIQUE (kind, name)
) STRICT;

-- Values that calls have in common: one row per combination that occurred.
CREATE TABLE series (
  id INTEGER PRIMARY KEY,
  route INTEGER NOT NULL,
  upstream INTEGER NOT NULL,
  model INTEGER,
  workload INTEGER,
  agent INTEGER,
  experiment INTEGER,
  variant INTEGER,
  outcome INTEGER NOT NULL
) STRICT;

-- The key holds the milliseconds since 2020 from bit 22 on, and below them 22 bits of
-- the call's id: calls lie in the file in the order of their starts.
CREATE TABLE calls (
  key INTEGER PRIMARY KEY,
  started_ms INTEGER GENERATED ALWAYS AS ((key >> 22) + 1577836800000) VIRTUAL,
  id BLOB NOT NULL,
  series INTEGER NOT NULL,
  session INTEGER,
  user INTEGER,
  parent_agent INTEGER,
  endpoint INTEGER,
  dialect INTEGER,
  operation INTEGER,
  model_requested INTEGER,
  answered INTEGER,
  streamed INTEGER,
  status INTEGER,
  error_type INTEGER,
  finish_reasons INTEGER,
  trace_id BLOB,
  warm_up INTEGER,
  normalised_answer INTEGER,
  normalised_reasoning INTEGER,
  normalised_tool_call INTEGER,
  normalised_output INTEGER,
  normalised_input INTEGER,
  reported_input INTEGER,
  reported_cached_input INTEGER,
  reported_cache_write INTEGER,
  reported_output INTEGER,
  reported_reasoning INTEGER,
  token_source INTEGER,
  ttft_us INTEGER,
  ttft_upstream_us INTEGER,
  first_answer_us INTEGER,
  connect_us INTEGER,
  upload_us INTEGER,
  last_token_us INTEGER,
  longest_gap_us INTEGER,
  duration_us INTEGER,
  tps_output_milli INTEGER,
  tps_answer_milli INTEGER,
  tps_total_milli INTEGER,
  tps_unavailable INTEGER,
  frames INTEGER,
  stalls INTEGER,
  first_token_event INTEGER,
  request_bytes INTEGER,
  response_bytes INTEGER,
  cost_nano_usd INTEGER,
  cost_source INTEGER,
  concurrency INTEGER,
  engine_prompt_tokens INTEGER,
  engine_prompt_us INTEGER,
  engine_output_tokens INTEGER,
  engine_output_us INTEGER,
  engine_load_us INTEGER,
  engine_total_us INTEGER
) STRICT;
CREATE INDEX calls_by_series ON calls (series);
CREATE INDEX calls_by_session ON calls (session) WHERE session IS NOT NULL;
CREATE INDEX calls_by_user ON calls (user) WHERE user IS NOT NULL;

CREATE TABLE sessions (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  started_us INTEGER NOT NULL,
  last_us INTEGER NOT NULL,
  workload INTEGER,
  user INTEGER,
  experiment INTEGER,
  variant INTEGER,
  calls INTEGER NOT NULL,
  errors INTEGER NOT NULL,
  input_tokens INTEGER,
  cached_input_tokens INTEGER,
  output_tokens INTEGER,
  reasoning_tokens INTEGER,
  cost_nano_usd INTEGER,
  unpriced_calls INTEGER NOT NULL,
  decode_tokens INTEGER NOT NULL,
  decode_us INTEGER NOT NULL,
  model_us INTEGER NOT NULL,
  ttft_p50_us INTEGER,
  ttft BLOB,
  busy BLOB NOT NULL
) STRICT;
CREATE INDEX sessions_by_last ON sessions (last_us);

-- Everything with a name that a session's calls had; at most 16 of a kind.
CREATE TABLE session_names (
  session INTEGER NOT NULL,
  name INTEGER NOT NULL,
  PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_names_by_name ON session_names (name);

-- Sums of the calls of one series that began within `level` seconds from `start` (seconds
-- since 1970). tps and ttft are sketches, in tokens per second and seconds.
CREATE TABLE rollups (
  level INTEGER NOT NULL,
  start INTEGER NOT NULL,
  series INTEGER NOT NULL,
  calls INTEGER NOT NULL,
  input_tokens INTEGER,
  cached_input_tokens INTEGER,
  output_tokens INTEGER,
  reasoning_tokens INTEGER,
  cost_nano_usd INTEGER,
  unpriced_calls INTEGER NOT NULL,
  priced_output_tokens INTEGER NOT NULL,
  decode_tokens INTEGER NOT NULL,
  decode_us INTEGER NOT NULL,
  tps_below_5 INTEGER NOT NULL,
  tps_below_15 INTEGER NOT NULL,
  tps_below_30 INTEGER NOT NULL,
  tps_below_60 INTEGER NOT NULL,
  tps_from_60 INTEGER NOT NULL,
  tps BLOB,
  ttft BLOB,
  PRIMARY KEY (level, start, series)
) STRICT, WITHOUT ROWID;

-- Seconds in which an upstream had this many calls in flight, and the tokens that arrived in them.
-- decode_tokens leaves out the first token of each stream. decode_us is the time that decode_tokens took.
CREATE TABLE capacity (
  hour INTEGER NOT NULL,
  upstream INTEGER NOT NULL,
  concurrency INTEGER NOT NULL,
  seconds INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  decode_tokens INTEGER NOT NULL,
  decode_us INTEGER NOT NULL,
  PRIMARY KEY (hour, upstream, concurrency)
) STRICT, WITHOUT ROWID;

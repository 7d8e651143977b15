-- Version 1. Names have ids; instants are milliseconds (ms) or microseconds (us) since
-- 1970 in UTC, durations microseconds, costs billionths of a US dollar, speeds
-- thousandths of a token per second. NULL is unknown. docs/ledger.md says more.

CREATE TABLE names (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  UNIQUE (kind, name)
) STRICT;

-- What calls have in common: one row per combination that came.
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

-- Seconds that an upstream had so many calls under way, and the tokens that came in them;
-- decode_tokens leaves out the first of each stream, decode_us is the time they took.
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

CREATE VIEW calls_readable AS
SELECT
  lower(substr(hex(c.id), 1, 8) || '-' || substr(hex(c.id), 9, 4) || '-' || substr(hex(c.id), 13, 4)
    || '-' || substr(hex(c.id), 17, 4) || '-' || substr(hex(c.id), 21)) AS id,
  strftime('%Y-%m-%dT%H:%M:%S', c.started_ms / 1000, 'unixepoch')
    || printf('.%03dZ', c.started_ms % 1000) AS started_at,
  route.name AS route,
  upstream.name AS upstream,
  endpoint.name AS endpoint,
  dialect.name AS dialect,
  operation.name AS operation,
  requested.name AS model_requested,
  iif(c.answered, model.name, NULL) AS model,
  c.streamed AS streamed,
  c.status AS status,
  outcome.name AS outcome,
  error_type.name AS error_type,
  finish.name AS finish_reasons,
  session.name AS session,
  agent.name AS agent,
  parent.name AS parent_agent,
  user.name AS user,
  workload.name AS workload,
  experiment.name AS experiment,
  variant.name AS variant,
  nullif(lower(hex(c.trace_id)), '') AS trace_id,
  c.warm_up AS warm_up,
  c.normalised_answer AS normalised_answer_tokens,
  c.normalised_reasoning AS normalised_reasoning_tokens,
  c.normalised_tool_call AS normalised_tool_call_tokens,
  c.normalised_output AS normalised_output_tokens,
  c.normalised_input AS normalised_input_tokens,
  c.reported_input AS reported_input_tokens,
  c.reported_cached_input AS reported_cached_input_tokens,
  c.reported_cache_write AS reported_cache_write_tokens,
  c.reported_output AS reported_output_tokens,
  c.reported_reasoning AS reported_reasoning_tokens,
  source.name AS token_source,
  c.ttft_us / 1e6 AS ttft_seconds,
  c.ttft_upstream_us / 1e6 AS ttft_upstream_seconds,
  c.first_answer_us / 1e6 AS first_answer_seconds,
  c.connect_us / 1e6 AS connect_seconds,
  c.upload_us / 1e6 AS upload_seconds,
  c.last_token_us / 1e6 AS last_token_seconds,
  c.longest_gap_us / 1e6 AS longest_gap_seconds,
  c.duration_us / 1e6 AS duration_seconds,
  c.tps_output_milli / 1e3 AS output_tokens_per_second,
  c.tps_answer_milli / 1e3 AS answer_tokens_per_second,
  c.tps_total_milli / 1e3 AS total_tokens_per_second,
  unavailable.name AS tps_unavailable,
  c.frames AS frames,
  c.stalls AS stalls,
  c.first_token_event AS first_token_event,
  c.request_bytes AS request_bytes,
  c.response_bytes AS response_bytes,
  c.cost_nano_usd / 1e9 AS cost_usd,
  cost_source.name AS cost_source,
  c.concurrency AS concurrency,
  c.engine_prompt_tokens AS engine_prompt_tokens,
  c.engine_prompt_us / 1e6 AS engine_prompt_seconds,
  c.engine_output_tokens AS engine_output_tokens,
  c.engine_output_us / 1e6 AS engine_output_seconds,
  c.engine_load_us / 1e6 AS engine_load_seconds,
  c.engine_total_us / 1e6 AS engine_total_seconds,
  c.key AS key
FROM calls c
LEFT JOIN series s ON s.id = c.series
LEFT JOIN names route ON route.id = s.route
LEFT JOIN names upstream ON upstream.id = s.upstream
LEFT JOIN names model ON model.id = s.model
LEFT JOIN names workload ON workload.id = s.workload
LEFT JOIN names agent ON agent.id = s.agent
LEFT JOIN names experiment ON experiment.id = s.experiment
LEFT JOIN names variant ON variant.id = s.variant
LEFT JOIN names outcome ON outcome.id = s.outcome
LEFT JOIN sessions session ON session.id = c.session
LEFT JOIN names user ON user.id = c.user
LEFT JOIN names parent ON parent.id = c.parent_agent
LEFT JOIN names endpoint ON endpoint.id = c.endpoint
LEFT JOIN names dialect ON dialect.id = c.dialect
LEFT JOIN names operation ON operation.id = c.operation
LEFT JOIN names requested ON requested.id = c.model_requested
LEFT JOIN names error_type ON error_type.id = c.error_type
LEFT JOIN names finish ON finish.id = c.finish_reasons
LEFT JOIN names source ON source.id = c.token_source
LEFT JOIN names unavailable ON unavailable.id = c.tps_unavailable
LEFT JOIN names cost_source ON cost_source.id = c.cost_source;

CREATE VIEW sessions_readable AS
SELECT
  s.name AS id,
  strftime('%Y-%m-%dT%H:%M:%SZ', s.started_us / 1000000, 'unixepoch') AS started_at,
  strftime('%Y-%m-%dT%H:%M:%SZ', s.last_us / 1000000, 'unixepoch') AS last_at,
  s.calls AS calls,
  s.errors AS errors,
  workload.name AS workload,
  user.name AS user,
  experiment.name AS experiment,
  variant.name AS variant,
  s.input_tokens AS input_tokens,
  s.cached_input_tokens AS cached_input_tokens,
  s.output_tokens AS output_tokens,
  s.reasoning_tokens AS reasoning_tokens,
  s.cost_nano_usd / 1e9 AS cost_usd,
  s.unpriced_calls AS unpriced_calls,
  (s.last_us - s.started_us) / 1e6 AS wall_seconds,
  s.model_us / 1e6 AS model_seconds,
  s.ttft_p50_us / 1e6 AS ttft_p50_seconds,
  iif(s.decode_us > 0, s.decode_tokens * 1e6 / s.decode_us, NULL) AS output_tokens_per_second
FROM sessions s
LEFT JOIN names workload ON workload.id = s.workload
LEFT JOIN names user ON user.id = s.user
LEFT JOIN names experiment ON experiment.id = s.experiment
LEFT JOIN names variant ON variant.id = s.variant;

-- Version 5: experiments by unit, and distributions by hour.

-- What each session, agent and user of a variant adds to an experiment. A unit is a combination of them as
-- calls have it: sums by session, by agent or by user are sums over rows. An absent name is 0.
-- -1 in variant, session, agent and user is the row of the units beyond the bound.
-- first_prompt is the class of the first call's prompt: 0 is under 1k tokens, 4 over 128k.
-- ttft and tps are sketches, in seconds and tokens per second.
CREATE TABLE experiment_units (
  id INTEGER PRIMARY KEY,
  experiment INTEGER NOT NULL,
  variant INTEGER NOT NULL,
  session INTEGER NOT NULL,
  agent INTEGER NOT NULL,
  user INTEGER NOT NULL,
  first_us INTEGER NOT NULL,
  last_us INTEGER NOT NULL,
  first_prompt INTEGER,
  calls INTEGER NOT NULL,
  errors INTEGER NOT NULL,
  warm_up_calls INTEGER NOT NULL,
  input_tokens INTEGER NOT NULL,
  cached_input_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  cost_nano_usd INTEGER NOT NULL,
  priced_calls INTEGER NOT NULL,
  decode_tokens INTEGER NOT NULL,
  decode_us INTEGER NOT NULL,
  tps_unavailable INTEGER NOT NULL,
  ttft_us INTEGER NOT NULL,
  duration_us INTEGER NOT NULL,
  truncated INTEGER NOT NULL,
  refused INTEGER NOT NULL,
  empty INTEGER NOT NULL,
  cut_off INTEGER NOT NULL,
  invalid_tool_calls INTEGER NOT NULL,
  ttft BLOB,
  tps BLOB,
  UNIQUE (experiment, variant, session, agent, user)
) STRICT;
CREATE INDEX experiment_units_by_last ON experiment_units (last_us);

-- Models, routes and workloads that calls had in common; 0 for what nobody named.
CREATE TABLE distribution_series (
  id INTEGER PRIMARY KEY,
  model INTEGER NOT NULL,
  route INTEGER NOT NULL,
  workload INTEGER NOT NULL,
  UNIQUE (model, route, workload)
) STRICT;

-- Distributions of the calls of a series that began within the hour from `hour` (seconds since 1970).
-- signal: 0 input tokens, 1 output tokens, 2 cached input tokens, 3 time to first token, 4 decode speed,
-- 5 reported / normalised tokens, 6 outcome, 7 finish reason. bucket: for 3 the class of the prompt's length,
-- for 4 the class of concurrency, for 6 and 7 the outcome or reason; 15 is unknown. total: the sum of tokens,
-- microseconds, thousandths of a token per second, millionths.
CREATE TABLE distributions (
  series INTEGER NOT NULL,
  hour INTEGER NOT NULL,
  signal INTEGER NOT NULL,
  bucket INTEGER NOT NULL,
  calls INTEGER NOT NULL,
  total INTEGER NOT NULL,
  sketch BLOB,
  PRIMARY KEY (series, hour, signal, bucket)
) STRICT, WITHOUT ROWID;

-- Calls with a smaller key are not in the two tables yet, because they are older than the tables. The
-- newest are added first.
CREATE TABLE unsummed (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  below_key INTEGER NOT NULL
) STRICT;
INSERT INTO unsummed SELECT 1, coalesce(max(key) + 1, 0) FROM calls;

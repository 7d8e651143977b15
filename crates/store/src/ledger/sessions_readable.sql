-- The sessions as people and other programs read them. An upgrade of the file creates the views again.

DROP VIEW IF EXISTS sessions_readable;

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

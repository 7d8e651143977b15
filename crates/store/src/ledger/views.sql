-- What people and other programs read. Made anew whenever a file is brought to a newer version.

DROP VIEW IF EXISTS calls_readable;
DROP VIEW IF EXISTS sessions_readable;

CREATE VIEW calls_readable AS
SELECT
  lower(substr(hex(c.id), 1, 8) || '-' || substr(hex(c.id), 9, 4) || '-' || substr(hex(c.id), 13, 4)
    || '-' || substr(hex(c.id), 17, 4) || '-' || substr(hex(c.id), 21)) AS id,
  strftime('%Y-%m-%dT%H:%M:%S', c.started_ms / 1000, 'unixepoch')
    || printf('.%03dZ', c.started_ms % 1000) AS started_at,
  route.name AS route,
  upstream.name AS upstream,
  facts.name AS upstream_facts,
  endpoint.name AS endpoint,
  dialect.name AS dialect,
  operation.name AS operation,
  class.name AS operation_class,
  method.name AS method,
  path.name AS path,
  requested.name AS model_requested,
  iif(c.answered, model.name, NULL) AS model,
  c.streamed AS streamed,
  c.status AS status,
  outcome.name AS outcome,
  error_type.name AS error_type,
  finish.name AS finish_reasons,
  tools.name AS tools,
  session.name AS session,
  guess.name AS session_guess,
  agent.name AS agent,
  parent.name AS parent_agent,
  user.name AS user,
  team.name AS team,
  cost_center.name AS cost_center,
  tenant.name AS tenant,
  key_hash.name AS key_hash,
  workload.name AS workload,
  experiment.name AS experiment,
  variant.name AS variant,
  nullif(lower(hex(c.trace_id)), '') AS trace_id,
  c.hop AS hop,
  c.response_id AS response_id,
  tier.name AS service_tier,
  served_by.name AS served_by,
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
  c.agent_blocked_us / 1e6 AS agent_blocked_seconds,
  c.server_tools_us / 1e6 AS server_tools_seconds,
  c.tps_output_milli / 1e3 AS output_tokens_per_second,
  c.tps_answer_milli / 1e3 AS answer_tokens_per_second,
  c.tps_total_milli / 1e3 AS total_tokens_per_second,
  c.tps_reported_milli / 1e3 AS reported_tokens_per_second,
  c.tps_prefill_milli / 1e3 AS prefill_tokens_per_second,
  unavailable.name AS tps_unavailable,
  total_unavailable.name AS tps_total_unavailable,
  c.frames AS frames,
  c.stalls AS stalls,
  c.segments AS segments,
  c.first_token_event AS first_token_event,
  c.skipped_events AS skipped_events,
  c.request_bytes AS request_bytes,
  c.response_bytes AS response_bytes,
  c.cost_nano_usd / 1e9 AS cost_usd,
  cost_source.name AS cost_source,
  cost_unavailable.name AS cost_unavailable,
  c.concurrency AS concurrency,
  c.engine_prompt_tokens AS engine_prompt_tokens,
  c.engine_prompt_us / 1e6 AS engine_prompt_seconds,
  c.engine_output_tokens AS engine_output_tokens,
  c.engine_output_us / 1e6 AS engine_output_seconds,
  c.engine_load_us / 1e6 AS engine_load_seconds,
  c.engine_total_us / 1e6 AS engine_total_seconds,
  cluster.name AS cluster,
  namespace.name AS namespace,
  pod.name AS pod,
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
LEFT JOIN names class ON class.id = s.operation_class
LEFT JOIN names facts ON facts.id = s.upstream_facts
LEFT JOIN names cluster ON cluster.id = s.cluster
LEFT JOIN names namespace ON namespace.id = s.namespace
LEFT JOIN names pod ON pod.id = s.pod
LEFT JOIN names team ON team.id = s.team
LEFT JOIN names cost_center ON cost_center.id = s.cost_center
LEFT JOIN names tenant ON tenant.id = s.tenant
LEFT JOIN names key_hash ON key_hash.id = c.key_hash
LEFT JOIN names tools ON tools.id = c.tools
LEFT JOIN names guess ON guess.id = c.session_guess
LEFT JOIN names method ON method.id = c.method
LEFT JOIN names path ON path.id = c.path
LEFT JOIN names tier ON tier.id = c.service_tier
LEFT JOIN names requested ON requested.id = c.model_requested
LEFT JOIN names error_type ON error_type.id = c.error_type
LEFT JOIN names finish ON finish.id = c.finish_reasons
LEFT JOIN names source ON source.id = c.token_source
LEFT JOIN names unavailable ON unavailable.id = c.tps_unavailable
LEFT JOIN names total_unavailable ON total_unavailable.id = c.tps_total_unavailable
LEFT JOIN names served_by ON served_by.id = c.served_by
LEFT JOIN names cost_unavailable ON cost_unavailable.id = c.cost_unavailable
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

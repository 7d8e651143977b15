-- Version 14: what the analysis of a prompt and of its answer found. Calls without an analysis have
-- no row, so they take no space. `prompt` of rollups has the sums of the parts of prompts.

CREATE TABLE analyses (
  key INTEGER PRIMARY KEY,
  prompt_system INTEGER,
  prompt_tool_schemas INTEGER,
  prompt_user INTEGER,
  prompt_assistant INTEGER,
  prompt_reasoning INTEGER,
  prompt_tool_calls INTEGER,
  prompt_tool_results INTEGER,
  prompt_other INTEGER,
  prompt_media INTEGER,
  prompt_media_bytes INTEGER,
  prompt_tools TEXT,
  wait_kind TEXT,
  wait_seconds REAL,
  wait_tools TEXT,
  cache_break_cause TEXT,
  cache_break_section TEXT,
  cache_break_tokens INTEGER,
  cache_break_cost_usd REAL,
  cache_break_block INTEGER,
  cache_break_change TEXT,
  retry_of TEXT,
  repetition_start INTEGER,
  repetition_period INTEGER,
  repetition_tokens INTEGER,
  repetition_share REAL,
  prompt_blocks TEXT
) STRICT;

ALTER TABLE rollups ADD COLUMN prompt BLOB;

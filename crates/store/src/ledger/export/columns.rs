//! The columns of an export: those of the view `calls_readable`, with what each holds.

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Text,
    /// Milliseconds since 1970.
    Instant,
    Flag,
    Count,
    Number,
}

/// All of them, in the order of the view.
pub(super) const COLUMNS: &[(&str, Cell)] = &[
    ("id", Cell::Text),
    ("started_at", Cell::Instant),
    ("route", Cell::Text),
    ("upstream", Cell::Text),
    ("upstream_facts", Cell::Text),
    ("endpoint", Cell::Text),
    ("dialect", Cell::Text),
    ("operation", Cell::Text),
    ("operation_class", Cell::Text),
    ("method", Cell::Text),
    ("path", Cell::Text),
    ("model_requested", Cell::Text),
    ("model", Cell::Text),
    ("streamed", Cell::Flag),
    ("status", Cell::Count),
    ("outcome", Cell::Text),
    ("error_type", Cell::Text),
    ("finish_reasons", Cell::Text),
    ("session", Cell::Text),
    ("session_guess", Cell::Text),
    ("agent", Cell::Text),
    ("parent_agent", Cell::Text),
    ("user", Cell::Text),
    ("workload", Cell::Text),
    ("experiment", Cell::Text),
    ("variant", Cell::Text),
    ("trace_id", Cell::Text),
    ("hop", Cell::Count),
    ("response_id", Cell::Text),
    ("service_tier", Cell::Text),
    ("warm_up", Cell::Flag),
    ("normalised_answer_tokens", Cell::Count),
    ("normalised_reasoning_tokens", Cell::Count),
    ("normalised_tool_call_tokens", Cell::Count),
    ("normalised_output_tokens", Cell::Count),
    ("normalised_input_tokens", Cell::Count),
    ("reported_input_tokens", Cell::Count),
    ("reported_cached_input_tokens", Cell::Count),
    ("reported_cache_write_tokens", Cell::Count),
    ("reported_output_tokens", Cell::Count),
    ("reported_reasoning_tokens", Cell::Count),
    ("token_source", Cell::Text),
    ("ttft_seconds", Cell::Number),
    ("ttft_upstream_seconds", Cell::Number),
    ("first_answer_seconds", Cell::Number),
    ("connect_seconds", Cell::Number),
    ("upload_seconds", Cell::Number),
    ("last_token_seconds", Cell::Number),
    ("longest_gap_seconds", Cell::Number),
    ("duration_seconds", Cell::Number),
    ("agent_blocked_seconds", Cell::Number),
    ("output_tokens_per_second", Cell::Number),
    ("answer_tokens_per_second", Cell::Number),
    ("total_tokens_per_second", Cell::Number),
    ("reported_tokens_per_second", Cell::Number),
    ("prefill_tokens_per_second", Cell::Number),
    ("tps_unavailable", Cell::Text),
    ("tps_total_unavailable", Cell::Text),
    ("frames", Cell::Count),
    ("stalls", Cell::Count),
    ("segments", Cell::Text),
    ("first_token_event", Cell::Count),
    ("request_bytes", Cell::Count),
    ("response_bytes", Cell::Count),
    ("cost_usd", Cell::Number),
    ("cost_source", Cell::Text),
    ("concurrency", Cell::Count),
    ("engine_prompt_tokens", Cell::Count),
    ("engine_prompt_seconds", Cell::Number),
    ("engine_output_tokens", Cell::Count),
    ("engine_output_seconds", Cell::Number),
    ("engine_load_seconds", Cell::Number),
    ("engine_total_seconds", Cell::Number),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Store;

    #[test]
    fn the_columns_are_those_of_the_view() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(&folder.path().join("ledger.sqlite")).expect("opens");
        let statement = store.connection().prepare("SELECT * FROM calls_readable");
        let statement = statement.expect("a view");
        let mut names: Vec<_> = statement.column_names().collect();
        assert_eq!(names.pop(), Some("key"));
        let ours: Vec<_> = COLUMNS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ours);
    }
}

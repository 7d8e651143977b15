//! The values of labels, and the bound on the number of models.

use tokengauge_core::call::CallRecord;
pub use tokengauge_core::concurrency::concurrency;
use tokengauge_core::lengths::prompt_length;
pub use tokengauge_core::throughput::{ModelLabels, UNKNOWN};

pub fn context(record: &CallRecord) -> &'static str {
    let tokens = &record.tokens;
    let input = tokens.reported.input.or(tokens.normalised.input);
    input.map_or(UNKNOWN, prompt_length)
}

pub fn status_class(status: Option<u16>) -> &'static str {
    match status {
        Some(100..=199) => "1xx",
        Some(200..=299) => "2xx",
        Some(300..=399) => "3xx",
        Some(400..=499) => "4xx",
        Some(500..=599) => "5xx",
        _ => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_a_class_and_so_has_none() {
        assert_eq!(
            (status_class(Some(204)), status_class(None)),
            ("2xx", "none")
        );
    }
}

//! The words that labels are made of, and the bound on models.

use tokengauge_core::call::CallRecord;
use tokengauge_core::lengths::prompt_length;
pub use tokengauge_core::throughput::{ModelLabels, UNKNOWN};

/// The class of prompt length that a call belongs to.
pub fn context(record: &CallRecord) -> &'static str {
    let tokens = &record.tokens;
    let input = tokens.reported.input.or(tokens.normalised.input);
    input.map_or(UNKNOWN, prompt_length)
}

/// The class of concurrency.
pub fn concurrency(streams: u32) -> &'static str {
    match streams {
        0..=1 => "1",
        2..=4 => "2-4",
        5..=8 => "5-8",
        9..=16 => "9-16",
        17..=32 => "17-32",
        33..=64 => "33-64",
        65..=128 => "65-128",
        _ => "129+",
    }
}

/// The class of a status.
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
    fn classes_have_the_bounds_of_the_design() {
        let all = [1, 2, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129];
        let classes: Vec<_> = all.iter().map(|streams| concurrency(*streams)).collect();
        let expected = [
            "1", "2-4", "2-4", "5-8", "5-8", "9-16", "9-16", "17-32", "17-32", "33-64", "33-64",
            "65-128", "65-128", "129+",
        ];
        assert_eq!(classes, expected);
        assert_eq!(
            (status_class(Some(204)), status_class(None)),
            ("2xx", "none")
        );
    }
}

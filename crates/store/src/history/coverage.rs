use super::matching::matches;
use super::timed_call::TimedCall;
use crate::query::{Coverage, Filter};

pub fn coverage<'a>(calls: impl Iterator<Item = TimedCall<'a>>, filter: &Filter) -> Coverage {
    let mut coverage = Coverage::default();
    if let Some(filter) = filter.of_counted_classes() {
        let selected = calls.filter(|past| matches(&filter, past));
        selected.for_each(|past| coverage.add(past.record));
    }
    coverage
}

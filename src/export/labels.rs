//! The words that labels are made of, and the bound on models.

use crate::call::CallRecord;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The model of calls whose model is unknown.
pub(crate) const UNKNOWN: &str = "unknown";
/// The model of calls beyond the bound.
const OTHER: &str = "other";

/// Model names that are labels. They come off the wire, so there is a bound.
#[derive(Debug)]
pub(crate) struct Models {
    known: RwLock<HashSet<Arc<str>>>,
    max: usize,
    unknown: Arc<str>,
    other: Arc<str>,
    collapsed: AtomicU64,
}

impl Models {
    pub(crate) fn new(max: usize) -> Models {
        Models {
            known: RwLock::default(),
            max,
            unknown: UNKNOWN.into(),
            other: OTHER.into(),
            collapsed: AtomicU64::new(0),
        }
    }

    /// The label for `model`. Only a model that the upstream accepted can become a new
    /// one; beyond the bound it is `other`.
    pub(crate) fn label(&self, model: Option<&str>, accepted: bool) -> Arc<str> {
        let Some(model) = model else {
            return Arc::clone(&self.unknown);
        };
        if let Some(known) = self
            .known
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(model)
        {
            return Arc::clone(known);
        }
        if !accepted {
            return Arc::clone(&self.unknown);
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= self.max && !known.contains(model) {
            return Arc::clone(&self.other);
        }
        let label: Arc<str> = model.into();
        known.insert(Arc::clone(&label));
        label
    }

    /// As [`Models::label`], for a call that is over: counts it where it is `other`.
    pub(crate) fn label_finished(&self, model: Option<&str>, accepted: bool) -> Arc<str> {
        let label = self.label(model, accepted);
        if Arc::ptr_eq(&label, &self.other) {
            self.collapsed.fetch_add(1, Ordering::Relaxed);
        }
        label
    }

    /// Calls that were labelled `other`.
    pub(crate) fn collapsed(&self) -> u64 {
        self.collapsed.load(Ordering::Relaxed)
    }
}

/// The class of prompt length that a call belongs to.
pub(crate) fn context(record: &CallRecord) -> &'static str {
    let tokens = &record.tokens;
    match tokens.reported.input.or(tokens.normalised.input) {
        None => UNKNOWN,
        Some(..1_000) => "under_1k",
        Some(..8_000) => "1k_8k",
        Some(..32_000) => "8k_32k",
        Some(..128_000) => "32k_128k",
        Some(_) => "over_128k",
    }
}

/// The class of concurrency.
pub(crate) fn concurrency(streams: u32) -> &'static str {
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
pub(crate) fn status_class(status: Option<u16>) -> &'static str {
    match status {
        Some(100..=199) => "1xx",
        Some(200..=299) => "2xx",
        Some(300..=399) => "3xx",
        Some(400..=499) => "4xx",
        Some(500..=599) => "5xx",
        _ => "none",
    }
}

/// Whether the answer was streamed.
pub(crate) fn streamed(streamed: Option<bool>) -> &'static str {
    if streamed == Some(true) {
        "true"
    } else {
        "false"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_bounded_and_the_rest_is_other_and_counted() {
        let models = Models::new(2);
        for model in ["a", "b", "c", "a", "d"] {
            models.label_finished(Some(model), true);
        }
        assert_eq!(&*models.label(Some("a"), true), "a");
        assert_eq!(&*models.label(Some("c"), true), "other");
        assert_eq!(models.collapsed(), 2);
    }

    #[test]
    fn a_refused_call_makes_no_label() {
        let models = Models::new(10);
        assert_eq!(&*models.label(Some("made-up"), false), "unknown");
        assert_eq!(&*models.label(None, true), "unknown");
        models.label(Some("real"), true);
        assert_eq!(&*models.label(Some("real"), false), "real");
    }

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

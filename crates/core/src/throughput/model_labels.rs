//! Limits the number of model names that are used as labels.

use crate::hash::FastSet;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The label of calls whose model is unknown.
pub const UNKNOWN: &str = "unknown";
const OTHER: &str = "other";

/// The model names that are used as labels. The names come from traffic, so their number is
/// limited.
#[derive(Debug)]
pub struct ModelLabels {
    known: RwLock<FastSet<Arc<str>>>,
    max: usize,
    unknown: Arc<str>,
    other: Arc<str>,
    collapsed: AtomicU64,
}

impl ModelLabels {
    /// At most `max` names. Calls of further models get the label `other`.
    pub fn new(max: usize) -> ModelLabels {
        ModelLabels {
            known: RwLock::default(),
            max,
            unknown: UNKNOWN.into(),
            other: OTHER.into(),
            collapsed: AtomicU64::new(0),
        }
    }

    /// The label for `model`. Only a model that the upstream `accepted` can become a new label.
    /// Beyond the limit, the label is `other`.
    pub fn label(&self, model: Option<&str>, accepted: bool) -> Arc<str> {
        let Some(model) = model else {
            return Arc::clone(&self.unknown);
        };
        if let Some(known) = self.known.read().get(model) {
            return Arc::clone(known);
        }
        if !accepted {
            return Arc::clone(&self.unknown);
        }
        let mut known = self.known.write();
        if known.len() >= self.max && !known.contains(model) {
            return Arc::clone(&self.other);
        }
        let label: Arc<str> = model.into();
        known.insert(Arc::clone(&label));
        label
    }

    /// The label for the model of a finished call, as [`ModelLabels::label`]. Counts the call if
    /// its label is `other`.
    pub fn label_finished(&self, model: Option<&str>, accepted: bool) -> Arc<str> {
        let label = self.label(model, accepted);
        if Arc::ptr_eq(&label, &self.other) {
            self.collapsed.fetch_add(1, Ordering::Relaxed);
        }
        label
    }

    /// The number of finished calls with the label `other`.
    pub fn collapsed(&self) -> u64 {
        self.collapsed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_bounded_and_the_rest_is_other_and_counted() {
        let models = ModelLabels::new(2);
        for model in ["a", "b", "c", "a", "d"] {
            models.label_finished(Some(model), true);
        }
        assert_eq!(&*models.label(Some("a"), true), "a");
        assert_eq!(&*models.label(Some("c"), true), "other");
        assert_eq!(models.collapsed(), 2);
    }

    #[test]
    fn a_refused_call_makes_no_label() {
        let models = ModelLabels::new(10);
        assert_eq!(&*models.label(Some("made-up"), false), "unknown");
        assert_eq!(&*models.label(None, true), "unknown");
        models.label(Some("real"), true);
        assert_eq!(&*models.label(Some("real"), false), "real");
    }
}

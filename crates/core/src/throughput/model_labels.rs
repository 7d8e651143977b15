//! The bound on model names that become labels.

use crate::hash::FastSet;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The model of calls whose model is unknown.
pub const UNKNOWN: &str = "unknown";
/// The model of calls beyond the bound.
const OTHER: &str = "other";

/// The model names that are labels. They come off the wire, so their number is bounded.
#[derive(Debug)]
pub struct ModelLabels {
    known: RwLock<FastSet<Arc<str>>>,
    max: usize,
    unknown: Arc<str>,
    other: Arc<str>,
    collapsed: AtomicU64,
}

impl ModelLabels {
    /// At most `max` names; further ones become `other`.
    pub fn new(max: usize) -> ModelLabels {
        ModelLabels {
            known: RwLock::default(),
            max,
            unknown: UNKNOWN.into(),
            other: OTHER.into(),
            collapsed: AtomicU64::new(0),
        }
    }

    /// The label for `model`. Only a model that the upstream accepted can become a new
    /// one; beyond the bound it is `other`.
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

    /// As [`ModelLabels::label`], for a finished call: counts it if its label is `other`.
    pub fn label_finished(&self, model: Option<&str>, accepted: bool) -> Arc<str> {
        let label = self.label(model, accepted);
        if Arc::ptr_eq(&label, &self.other) {
            self.collapsed.fetch_add(1, Ordering::Relaxed);
        }
        label
    }

    /// Calls that were labelled `other`.
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

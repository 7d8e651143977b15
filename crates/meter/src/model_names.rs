//! Remembers which upstreams name one model at the start of a response and another at the end.
//! Tokens are counted during the stream, and a counter cannot move to another label.

use parking_lot::Mutex;
use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;
use std::sync::{Arc, LazyLock};
use tokengauge_core::hash::{FastMap, RandomState};

/// The limit for known names. Beyond it all names are forgotten.
const MAX_KNOWN: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    Same,
    /// A different name, in at least one response.
    Another,
}

/// A hash of a model name. A running call needs no more than that. The default is the hash of no
/// name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NameHash(Option<NonZeroU64>);

impl NameHash {
    pub(crate) fn of(name: &str) -> NameHash {
        NameHash::hashed(Some(name))
    }

    /// The hash for a response that names no model, to a request for the `requested` model.
    pub(crate) fn nameless(requested: Option<&str>) -> NameHash {
        NameHash::hashed((None::<&str>, requested))
    }

    fn hashed(name: impl Hash) -> NameHash {
        static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::default);
        NameHash(NonZeroU64::new(SEED.hash_one(name) | 1))
    }
}

#[derive(Debug, Default)]
pub(crate) struct ModelNames {
    known: Mutex<FastMap<Arc<str>, FastMap<NameHash, Naming>>>,
}

impl ModelNames {
    pub(crate) fn naming(&self, upstream: &str, first: NameHash) -> Option<Naming> {
        let known = self.known.lock();
        known.get(upstream)?.get(&first).copied()
    }

    pub(crate) fn learn(&self, upstream: &Arc<str>, first: NameHash, naming: Naming) {
        let mut known = self.known.lock();
        if known.values().map(|names| names.len()).sum::<usize>() >= MAX_KNOWN {
            known.clear();
        }
        let names = known.entry(Arc::clone(upstream)).or_default();
        let now = names.entry(first).or_insert(naming);
        if naming == Naming::Another {
            *now = naming;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_changed_once_is_not_trusted_again_and_names_are_bounded() {
        let names = ModelNames::default();
        let upstream: Arc<str> = "u".into();
        let alias = NameHash::of("alias");
        assert_eq!(names.naming("u", alias), None);
        for naming in [Naming::Same, Naming::Another, Naming::Same] {
            names.learn(&upstream, alias, naming);
        }
        assert_eq!(names.naming("u", alias), Some(Naming::Another));
        for other in [Some("alias"), None] {
            assert_eq!(names.naming("u", NameHash::nameless(other)), None);
        }
        for name in 0..2 * MAX_KNOWN {
            names.learn(&upstream, NameHash::of(&name.to_string()), Naming::Same);
        }
        assert!(names.known.lock()["u"].len() <= MAX_KNOWN);
    }
}

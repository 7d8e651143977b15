//! Which upstreams name another model at the end of an answer than at its beginning. Tokens are
//! counted while they stream, and a counter cannot move to another label.

use parking_lot::Mutex;
use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;
use std::sync::{Arc, LazyLock};
use tokengauge_core::hash::{FastMap, RandomState};

/// The most names that are known; beyond it all are forgotten.
const MAX_KNOWN: usize = 1024;

/// What calls of an upstream that began with a name ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    Same,
    /// Another name, at least once.
    Another,
}

/// A hash of a model's name: a running call needs no more of it. The default stands for no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NameHash(Option<NonZeroU64>);

impl NameHash {
    pub(crate) fn of(name: &str) -> NameHash {
        NameHash::hashed(Some(name))
    }

    /// That of an answer that names no model, to a request for this one.
    pub(crate) fn nameless(requested: Option<&str>) -> NameHash {
        NameHash::hashed((None::<&str>, requested))
    }

    fn hashed(name: impl Hash) -> NameHash {
        static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::default);
        NameHash(NonZeroU64::new(SEED.hash_one(name) | 1))
    }
}

/// The names that answers begin with, by upstream.
#[derive(Debug, Default)]
pub(crate) struct ModelNames {
    known: Mutex<FastMap<Arc<str>, FastMap<NameHash, Naming>>>,
}

impl ModelNames {
    /// What is known of answers that begin with `first`.
    pub(crate) fn naming(&self, upstream: &str, first: NameHash) -> Option<Naming> {
        let known = self.known.lock();
        known.get(upstream)?.get(&first).copied()
    }

    /// An answer began with `first`, and its record has another name or not.
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

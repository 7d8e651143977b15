//! Hashes within the process. Their seeds are random, so nobody can choose texts with equal hashes.

use std::hash::{BuildHasher, Hash};
use tokengauge_core::hash::RandomState;

/// Two independent seeds. With both, a hash of 128 bits tells messages apart.
#[derive(Default)]
pub(crate) struct Seeds([RandomState; 2]);

impl Seeds {
    pub(crate) fn short(&self, value: impl Hash) -> u64 {
        self.0[0].hash_one(value)
    }

    pub(crate) fn long(&self, value: impl Hash) -> u128 {
        let [one, other] = &self.0;
        u128::from(one.hash_one(&value)) << 64 | u128::from(other.hash_one(&value))
    }

    pub(crate) fn hasher(&self) -> <RandomState as BuildHasher>::Hasher {
        self.0[0].build_hasher()
    }
}

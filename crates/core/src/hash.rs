//! Hash maps for lookups in every call. Hashing takes a fifth of the time of the standard library.
//! Each map has a random seed, but the hash is not cryptographic. Requests name models, so every
//! map with names from requests must be bounded.

pub use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};

/// A map for lookups in every call.
pub type FastMap<K, V> = HashMap<K, V, RandomState>;

/// A set for lookups in every call.
pub type FastSet<T> = HashSet<T, RandomState>;

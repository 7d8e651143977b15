//! A map that forgets its least recently used entries.

use std::collections::VecDeque;
use std::hash::Hash;
use tokengauge_core::hash::FastMap;

/// Bytes of an entry for its slots in the map and in the order.
const OVERHEAD: usize = 64;

pub(crate) struct Lru<K, V> {
    map: FastMap<K, Entry<V>>,
    /// Uses, oldest first. Only the last use of a key counts.
    order: VecDeque<(K, u64)>,
    uses: u64,
    bytes: usize,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    last_use: u64,
}

impl<K, V> Default for Lru<K, V> {
    fn default() -> Lru<K, V> {
        Lru {
            map: FastMap::default(),
            order: VecDeque::new(),
            uses: 0,
            bytes: 0,
        }
    }
}

impl<K: Copy + Eq + Hash, V> Lru<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// The approximate number of bytes that the entries take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reads a value without using it.
    pub(crate) fn peek(&self, key: &K) -> Option<&V> {
        self.map.get(key).map(|entry| &entry.value)
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<&mut V> {
        let entry = self.map.get_mut(key)?;
        self.uses += 1;
        entry.last_use = self.uses;
        self.order.push_back((*key, self.uses));
        self.tidy();
        self.map.get_mut(key).map(|entry| &mut entry.value)
    }

    /// Adds or replaces a value that holds `bytes` bytes outside of itself.
    pub(crate) fn insert(&mut self, key: K, value: V, bytes: usize) {
        self.remove(&key);
        let bytes = bytes + 2 * size_of::<(K, Entry<V>)>() + OVERHEAD;
        self.uses += 1;
        let last_use = self.uses;
        self.bytes += bytes;
        self.order.push_back((key, last_use));
        let entry = Entry {
            value,
            bytes,
            last_use,
        };
        self.map.insert(key, entry);
        self.tidy();
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.map.remove(key)?;
        self.bytes -= entry.bytes;
        Some(entry.value)
    }

    pub(crate) fn pop_oldest(&mut self) -> Option<(K, V)> {
        while let Some((key, used)) = self.order.pop_front() {
            if self.is_last_use(&key, used) {
                return self.remove(&key).map(|value| (key, value));
            }
        }
        None
    }

    fn is_last_use(&self, key: &K, used: u64) -> bool {
        self.map
            .get(key)
            .is_some_and(|entry| entry.last_use == used)
    }

    /// Drops uses that no longer count, once they are the majority.
    fn tidy(&mut self) {
        if self.order.len() > 2 * self.map.len() + 64 {
            let map = &self.map;
            let counts =
                |(key, used): &(K, u64)| map.get(key).is_some_and(|entry| entry.last_use == *used);
            self.order.retain(counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_that_was_not_used_for_longest_goes_first() {
        let mut lru = Lru::default();
        (0..10).for_each(|key| lru.insert(key, key * 2, 100));
        let all = lru.bytes();
        assert_eq!(lru.get(&0), Some(&mut 0));
        lru.insert(1, 3, 100);
        assert_eq!((lru.bytes(), lru.peek(&1)), (all, Some(&3)));
        let order: Vec<i32> = std::iter::from_fn(|| lru.pop_oldest())
            .map(|(key, _)| key)
            .collect();
        assert_eq!(order, [2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
        assert_eq!((lru.len(), lru.bytes()), (0, 0));
    }

    #[test]
    fn many_uses_take_no_memory() {
        let mut lru = Lru::default();
        lru.insert("a", (), 0);
        for _ in 0..10_000 {
            lru.get(&"a");
        }
        assert!(lru.order.len() <= 2 + 64 + 1);
    }
}

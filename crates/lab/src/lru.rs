//! A map in order of use, and the quick hash that maps of numbers here use.
//!
//! Invariants: every key of the map is in the list once; the list runs from least to most recently
//! used. All operations take constant time. Threads: one user.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::cpu_prefetch;
use crate::linked::{Link, Linked, List, NONE};
use crate::number_index::NumberIndex;

/// Mixes numbers; not for keys an adversary chooses.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = mix(self.0 ^ n);
    }
}

/// Spreads a number over 64 bits (the finisher of splitmix64).
pub(crate) fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// A hash map keyed by numbers.
pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

#[derive(Debug, Clone)]
struct Node<V> {
    key: u64,
    value: Option<V>,
    link: Link,
}

impl<V> Linked for Vec<Node<V>> {
    fn link(&self, at: u32) -> Link {
        self[at as usize].link
    }

    fn link_mut(&mut self, at: u32) -> &mut Link {
        &mut self[at as usize].link
    }
}

/// Keys and values in order of use.
#[derive(Debug, Clone)]
pub(crate) struct Lru<V> {
    map: NumberIndex,
    nodes: Vec<Node<V>>,
    free: Vec<u32>,
    order: List,
}

impl<V> Lru<V> {
    pub(crate) fn new() -> Lru<V> {
        Lru { map: NumberIndex::default(), nodes: Vec::new(), free: Vec::new(), order: List::EMPTY }
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn contains(&self, key: u64) -> bool {
        self.map.get(key).is_some()
    }

    pub(crate) fn peek(&self, key: u64) -> Option<&V> {
        let index = self.map.get(key)?;
        self.nodes[index as usize].value.as_ref()
    }

    /// Looks without counting as a use.
    pub(crate) fn peek_mut(&mut self, key: u64) -> Option<&mut V> {
        let index = self.map.get(key)?;
        self.nodes[index as usize].value.as_mut()
    }

    /// Looks and makes it the most recently used.
    pub(crate) fn touch(&mut self, key: u64) -> Option<&mut V> {
        let newest = self.order.newest();
        // Blocks of one file's directory or inode are often used again at once: no lookup then.
        if newest != NONE && self.nodes[newest as usize].key == key {
            return self.nodes[newest as usize].value.as_mut();
        }
        let index = self.map.get(key)?;
        self.order.remove(&mut self.nodes, index);
        self.order.push(&mut self.nodes, index);
        self.nodes[index as usize].value.as_mut()
    }

    /// Puts a new key in as the most recently used; one that is there must be removed first.
    pub(crate) fn insert(&mut self, key: u64, value: V) {
        let node = Node { key, value: Some(value), link: Link::NOWHERE };
        let index = match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        let before = self.map.insert(key, index);
        assert!(before.is_none(), "key {key} is in the map once");
        self.order.push(&mut self.nodes, index);
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<V> {
        let index = self.map.remove(key)?;
        self.order.remove(&mut self.nodes, index);
        self.free.push(index);
        self.nodes[index as usize].value.take()
    }

    /// The least recently used.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.key_at(self.order.oldest())
    }

    /// The most recently used.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.key_at(self.order.newest())
    }

    pub(crate) fn pop_oldest(&mut self) -> Option<(u64, V)> {
        let key = self.oldest()?;
        let value = self.remove(key)?;
        self.fetch_oldest();
        Some((key, value))
    }

    /// Begins to fetch what the next removal of the oldest will need.
    #[inline]
    fn fetch_oldest(&self) {
        let Some(node) = self.nodes.get(self.order.oldest() as usize) else { return };
        self.map.fetch(node.key);
        cpu_prefetch::fetch(&self.nodes, node.link.newer as usize);
    }

    /// From the least recently used on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        let mut at = self.order.oldest();
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            at = node.link.newer;
            node.value.as_ref().map(|value| (node.key, value))
        })
    }

    /// As they lie in memory, which is several times as fast as in order of use.
    pub(crate) fn iter_any_order_mut(&mut self) -> impl Iterator<Item = (u64, &mut V)> {
        self.nodes.iter_mut().filter_map(|node| Some((node.key, node.value.as_mut()?)))
    }

    fn key_at(&self, index: u32) -> Option<u64> {
        (index != NONE).then(|| self.nodes[index as usize].key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vector in order of use is the model.
    #[test]
    fn behaves_like_a_vector_in_order_of_use() {
        let mut rng = fastrand::Rng::with_seed(5);
        let (mut lru, mut model) = (Lru::new(), Vec::<(u64, u32)>::new());
        for step in 0..20_000 {
            let key = rng.u64(0..40);
            let at = model.iter().position(|(k, _)| *k == key);
            match rng.u8(0..4) {
                0 if at.is_none() => {
                    lru.insert(key, step);
                    model.push((key, step));
                }
                1 => assert_eq!(lru.remove(key), at.map(|i| model.remove(i).1)),
                2 if rng.u8(0..8) == 0 => {
                    let oldest = (!model.is_empty()).then(|| model.remove(0));
                    assert_eq!(lru.pop_oldest(), oldest);
                }
                _ => {
                    let expected = at.map(|i| {
                        let entry = model.remove(i);
                        model.push(entry);
                        entry.1
                    });
                    assert_eq!(lru.touch(key).copied(), expected);
                }
            }
            assert_eq!(lru.len(), model.len());
            assert_eq!(lru.newest(), model.last().map(|(k, _)| *k));
        }
        assert!(lru.iter().map(|(k, v)| (k, *v)).eq(model.iter().copied()));
        let mut all: Vec<(u64, u32)> = lru.iter_any_order_mut().map(|(k, v)| (k, *v)).collect();
        all.sort_unstable();
        model.sort_unstable();
        assert_eq!(all, model);
    }
}

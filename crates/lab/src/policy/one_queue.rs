//! Caches whose objects wait in one queue: FIFO and LRU here, CLOCK, SIEVE and FBC in files of
//! their own.
//!
//! What is the same for all of them lies in [`OneQueue`]: an object larger than the cache passes
//! by, room is made before a new one goes in. A [`Rule`] has the rest. Invariants: an object that
//! is in the cache is in the queue, and the queue holds at most the capacity.

use super::lists::{Nodes, Place};
use super::rings::Ring;
use super::{Policy, Step};

/// A queue of objects: linked, or a log.
pub(crate) trait ObjectQueue: Send {
    /// What nodes have for it.
    type Place: Place + Send;

    fn new(id: u8) -> Self;
    fn bytes(&self) -> u64;
    fn len(&self) -> u64;
    fn push(&mut self, nodes: &mut Nodes<Self::Place>, key: u32);
    fn pop(&mut self, nodes: &mut Nodes<Self::Place>) -> Option<u32>;
    fn remove(&mut self, nodes: &mut Nodes<Self::Place>, key: u32);
    fn renew(&mut self, nodes: &mut Nodes<Self::Place>, key: u32);
}

/// The objects and their queue.
#[derive(Debug)]
pub(crate) struct Objects<Q: ObjectQueue> {
    pub(crate) nodes: Nodes<Q::Place>,
    pub(crate) queue: Q,
}

impl<Q: ObjectQueue> Objects<Q> {
    /// The object that waits longest leaves.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        self.queue.pop(&mut self.nodes)
    }

    /// An object arrives at the head.
    #[inline]
    pub(crate) fn push(&mut self, key: u32) {
        self.queue.push(&mut self.nodes, key);
    }

    /// An object leaves from wherever it is.
    #[inline]
    pub(crate) fn remove(&mut self, key: u32) {
        self.queue.remove(&mut self.nodes, key);
    }
}

/// What a policy makes of one queue.
pub(crate) trait Rule: Send {
    /// A log unless it needs neighbours in the queue.
    type Queue: ObjectQueue;

    /// An object of the queue was asked for.
    fn hit(&mut self, objects: &mut Objects<Self::Queue>, key: u32);

    /// One object is to leave. The queue is not empty.
    fn evict(&mut self, objects: &mut Objects<Self::Queue>);

    /// A new object goes in, its count being 0; `evicted`: others had to leave for it.
    #[inline]
    fn arrive(&mut self, objects: &mut Objects<Self::Queue>, key: u32, evicted: bool) {
        let _ = evicted;
        objects.push(key);
    }

    /// An object of the queue is deleted.
    #[inline]
    fn delete(&mut self, objects: &mut Objects<Self::Queue>, key: u32) {
        objects.remove(key);
    }
}

/// A cache of one queue.
pub(crate) struct OneQueue<R: Rule> {
    objects: Objects<R::Queue>,
    rule: R,
    capacity_bytes: u64,
}

impl<R: Rule> OneQueue<R> {
    pub(crate) fn new(capacity_bytes: u64, rule: R) -> OneQueue<R> {
        let objects = Objects { nodes: Nodes::default(), queue: R::Queue::new(1) };
        OneQueue { objects, rule, capacity_bytes }
    }
}

impl<R: Rule> Policy for OneQueue<R> {
    #[inline]
    fn get(&mut self, step: &Step) -> bool {
        let key = step.key;
        if self.objects.nodes.queue(key) != 0 {
            self.rule.hit(&mut self.objects, key);
            return true;
        }
        if step.size_bytes > self.capacity_bytes {
            return false;
        }
        let mut evicted = false;
        while self.objects.queue.bytes() > self.capacity_bytes - step.size_bytes {
            self.rule.evict(&mut self.objects);
            evicted = true;
        }
        let nodes = &mut self.objects.nodes;
        nodes.reach(key);
        nodes.set_size(key, step.size_bytes);
        nodes.set_count(key, 0);
        self.rule.arrive(&mut self.objects, key, evicted);
        false
    }

    fn delete(&mut self, key: u32) {
        if self.objects.nodes.queue(key) != 0 {
            self.rule.delete(&mut self.objects, key);
        }
    }

    fn used_bytes(&self) -> u64 {
        self.objects.queue.bytes()
    }

    fn objects(&self) -> u64 {
        self.objects.queue.len()
    }

    #[inline]
    fn fetch(&self, key: u32) {
        self.objects.nodes.fetch(key);
    }
}

/// First in, first out: a hit changes nothing.
pub(crate) struct Fifo;

impl Rule for Fifo {
    type Queue = Ring;

    #[inline]
    fn hit(&mut self, _: &mut Objects<Self::Queue>, _: u32) {}

    #[inline]
    fn evict(&mut self, objects: &mut Objects<Self::Queue>) {
        objects.pop();
    }
}

/// Least recently used: a hit moves the object to the head.
pub(crate) struct Lru;

impl Rule for Lru {
    type Queue = Ring;

    #[inline]
    fn hit(&mut self, objects: &mut Objects<Self::Queue>, key: u32) {
        objects.queue.renew(&mut objects.nodes, key);
    }

    #[inline]
    fn evict(&mut self, objects: &mut Objects<Self::Queue>) {
        objects.pop();
    }
}

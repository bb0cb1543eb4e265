//! Objects of a policy-only cache and the queues they wait in: one array of nodes by dense key, so
//! a cache of millions of objects needs no allocation for each and its state lies in one cache
//! line. Here queues are linked by keys, 16 bytes an object; `rings.rs` has those that nobody
//! enters but at the head, `arrivals.rs` those in which nobody moves. An object waits in at most
//! one queue at a time. One thread at a time.

use super::one_queue::ObjectQueue;
use super::sizes::LargeSizes;
use crate::cpu_prefetch;
pub(crate) use crate::linked::NONE;
use crate::linked::{Link, Linked, List};

/// `P`: what says where in its queue an object is. A link has newer: towards the head, where
/// objects arrive, and older: towards the tail, where they leave.
#[derive(Debug, Clone, Copy)]
struct Node<P> {
    place: P,
    size: u32,
    /// Which queue (0: none), and a count that the policy gives a meaning.
    queue: u8,
    count: [u8; 3],
}

const _: () = assert!(size_of::<Node<Link>>() == 16 && size_of::<Node<u32>>() == 12);
const _: () = assert!(size_of::<Node<super::ascending::Standing>>() == 20);
const _: () = assert!(size_of::<Node<()>>() == 8);

/// The place of an object that is in no queue.
pub(crate) trait Place: Copy {
    const NOWHERE: Self;
}

impl Place for Link {
    const NOWHERE: Link = Link::NOWHERE;
}

impl Place for u32 {
    const NOWHERE: u32 = 0;
}

/// Where it is, nobody has to know.
impl Place for () {
    const NOWHERE: () = ();
}

/// Objects at the tail of a queue whose state is on its way from memory before they leave.
const LEAVE_AHEAD: usize = 3;

/// Greatest count; counts stop there.
pub(crate) const COUNT_MAX: u32 = 0x00ff_ffff;

/// All objects that a policy has ever seen.
#[derive(Debug)]
pub(crate) struct Nodes<P = Link> {
    nodes: Vec<Node<P>>,
    large: LargeSizes,
}

impl<P> Default for Nodes<P> {
    fn default() -> Nodes<P> {
        Nodes { nodes: Vec::new(), large: LargeSizes::default() }
    }
}

#[cfg(test)]
impl<P: Place> Nodes<P> {
    /// Keys of which each is a byte larger than the one before, beginning with one: to test queues
    /// with.
    pub(crate) fn of_rising_sizes(keys: u32) -> Nodes<P> {
        let mut nodes = Nodes::default();
        for key in 0..keys {
            nodes.reach(key);
            nodes.set_size(key, u64::from(key) + 1);
        }
        nodes
    }
}

impl<P: Place> Nodes<P> {
    /// Makes room for a key.
    #[inline]
    pub(crate) fn reach(&mut self, key: u32) {
        let len = key as usize + 1;
        if len > self.nodes.len() {
            let absent = Node { place: P::NOWHERE, size: 0, queue: 0, count: [0; 3] };
            self.nodes.resize(len, absent);
        }
    }

    /// Queue of an object; 0 if it is in none or was never seen.
    #[inline]
    pub(crate) fn queue(&self, key: u32) -> u8 {
        self.nodes.get(key as usize).map_or(0, |node| node.queue)
    }

    /// Size that an object had when it came.
    #[inline]
    pub(crate) fn size(&self, key: u32) -> u64 {
        self.large.unpacked(key, self.nodes[key as usize].size)
    }

    #[inline]
    pub(crate) fn set_size(&mut self, key: u32, size: u64) {
        self.nodes[key as usize].size = self.large.packed(key, size);
    }

    #[inline]
    pub(crate) fn count(&self, key: u32) -> u32 {
        let [a, b, c] = self.nodes[key as usize].count;
        u32::from_le_bytes([a, b, c, 0])
    }

    #[inline]
    pub(crate) fn set_count(&mut self, key: u32, count: u32) {
        let [a, b, c, _] = count.min(COUNT_MAX).to_le_bytes();
        self.nodes[key as usize].count = [a, b, c];
    }

    /// Makes the counts of all objects half of what they were.
    pub(crate) fn halve_counts(&mut self) {
        (0..self.nodes.len() as u32).for_each(|key| self.set_count(key, self.count(key) / 2));
    }

    /// Notes where an object is for a policy that keeps it in no [`Queue`].
    #[inline]
    pub(crate) fn set_queue(&mut self, key: u32, queue: u8) {
        self.nodes[key as usize].queue = queue;
    }

    /// Where in its queue an object is; of no meaning for one that is in none.
    #[inline]
    pub(crate) fn place(&self, key: u32) -> P {
        self.nodes[key as usize].place
    }

    #[inline]
    pub(crate) fn set_place(&mut self, key: u32, place: P) {
        self.nodes[key as usize].place = place;
    }

    /// Begins to fetch a node.
    #[inline]
    pub(crate) fn fetch(&self, key: u32) {
        cpu_prefetch::fetch(&self.nodes, key as usize);
    }
}

impl Nodes {
    /// The neighbour that arrived after this one.
    #[inline]
    pub(crate) fn newer(&self, key: u32) -> u32 {
        self.nodes[key as usize].place.newer
    }

    /// Begins to fetch the neighbours of a node, which should be near already.
    #[inline]
    pub(crate) fn fetch_neighbours(&self, key: u32) {
        if let Some(node) = self.nodes.get(key as usize) {
            self.fetch(node.place.newer);
            self.fetch(node.place.older);
        }
    }

    /// Begins to fetch the one that leaves some places behind the tail. Those before it were
    /// fetched by the last calls, so that nobody waits for them here.
    #[inline]
    fn fetch_from(&self, tail: u32) {
        let mut at = tail;
        for _ in 0..LEAVE_AHEAD {
            let Some(node) = self.nodes.get(at as usize) else { return };
            at = node.place.newer;
        }
        cpu_prefetch::fetch(&self.nodes, at as usize);
    }
}

impl Linked for Nodes {
    #[inline]
    fn link(&self, at: u32) -> Link {
        self.nodes[at as usize].place
    }

    #[inline]
    fn link_mut(&mut self, at: u32) -> &mut Link {
        &mut self.nodes[at as usize].place
    }
}

/// A queue: objects arrive at the head and leave at the tail, or from anywhere.
#[derive(Debug)]
pub(crate) struct Queue {
    id: u8,
    list: List,
    bytes: u64,
    len: u64,
}

impl Queue {
    /// An empty queue; ids are 1 and up, and differ within one `Nodes`.
    pub(crate) fn new(id: u8) -> Queue {
        assert!(id > 0, "0 means no queue");
        Queue { id, list: List::EMPTY, bytes: 0, len: 0 }
    }

    /// Sum of the sizes of its objects.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The object that came first, `NONE` if there is none.
    #[inline]
    pub(crate) fn tail(&self) -> u32 {
        self.list.oldest()
    }

    /// An object of no queue arrives.
    #[inline]
    pub(crate) fn push(&mut self, nodes: &mut Nodes, key: u32) {
        debug_assert_eq!(nodes.queue(key), 0);
        self.enter(nodes, key);
        self.list.push(nodes, key);
    }

    /// An object of no queue arrives ahead of another one of this queue, and will leave before it.
    pub(crate) fn push_ahead(&mut self, nodes: &mut Nodes, key: u32, other: u32) {
        debug_assert_eq!(nodes.queue(other), self.id);
        self.enter(nodes, key);
        self.list.push_before(nodes, key, other);
    }

    #[inline]
    fn enter(&mut self, nodes: &mut Nodes, key: u32) {
        self.bytes += nodes.size(key);
        self.len += 1;
        nodes.set_queue(key, self.id);
    }

    /// An object of this queue leaves it.
    #[inline]
    pub(crate) fn remove(&mut self, nodes: &mut Nodes, key: u32) {
        debug_assert_eq!(nodes.queue(key), self.id);
        self.bytes -= nodes.size(key);
        self.len -= 1;
        nodes.set_queue(key, 0);
        self.list.remove(nodes, key);
    }

    /// An object of this queue moves to the head.
    #[inline]
    pub(crate) fn renew(&mut self, nodes: &mut Nodes, key: u32) {
        if self.list.newest() != key {
            self.list.remove(nodes, key);
            self.list.push(nodes, key);
        }
    }

    /// The tail leaves; `None` if there is none.
    #[inline]
    pub(crate) fn pop(&mut self, nodes: &mut Nodes) -> Option<u32> {
        let tail = self.tail();
        if tail == NONE {
            return None;
        }
        self.remove(nodes, tail);
        nodes.fetch_from(self.tail());
        Some(tail)
    }
}

impl ObjectQueue for Queue {
    type Place = Link;

    fn new(id: u8) -> Queue {
        Queue::new(id)
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    fn push(&mut self, nodes: &mut Nodes, key: u32) {
        Queue::push(self, nodes, key);
    }

    #[inline]
    fn pop(&mut self, nodes: &mut Nodes) -> Option<u32> {
        Queue::pop(self, nodes)
    }

    #[inline]
    fn remove(&mut self, nodes: &mut Nodes, key: u32) {
        Queue::remove(self, nodes, key);
    }

    #[inline]
    fn renew(&mut self, nodes: &mut Nodes, key: u32) {
        Queue::renew(self, nodes, key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(queue: &Queue, nodes: &Nodes) -> Vec<u32> {
        let mut keys = Vec::new();
        let mut at = queue.tail();
        while at != NONE {
            keys.push(at);
            at = nodes.newer(at);
        }
        keys
    }

    #[test]
    fn objects_leave_in_order_or_from_anywhere() {
        let (mut nodes, mut queue) = (Nodes::default(), Queue::new(1));
        for (key, size) in [(4, 10), (2, 1 << 33), (7, u64::from(u32::MAX))] {
            nodes.reach(key);
            nodes.set_size(key, size);
            queue.push(&mut nodes, key);
        }
        assert_eq!(queue.bytes(), 10 + (1 << 33) + u64::from(u32::MAX));
        assert_eq!(keys(&queue, &nodes), [4, 2, 7]);
        queue.renew(&mut nodes, 4);
        assert_eq!(keys(&queue, &nodes), [2, 7, 4]);
        queue.remove(&mut nodes, 7);
        queue.push_ahead(&mut nodes, 7, 4);
        assert_eq!(keys(&queue, &nodes), [2, 7, 4]);
        assert_eq!(queue.pop(&mut nodes), Some(2));
        assert_eq!((queue.len(), nodes.queue(2), nodes.queue(7)), (2, 0, 1));
        queue.remove(&mut nodes, 7);
        queue.push_ahead(&mut nodes, 7, 4);
        assert_eq!(keys(&queue, &nodes), [7, 4]);
        assert_eq!(queue.bytes(), 10 + u64::from(u32::MAX));
    }

    #[test]
    fn counts_stop_at_their_greatest() {
        let mut nodes: Nodes = Nodes::default();
        nodes.reach(0);
        nodes.set_count(0, u32::MAX);
        assert_eq!(nodes.count(0), COUNT_MAX);
    }
}

//! Tests of the copies against a list of all purges: random purges, crashes before any call of the
//! store, calls that fail, objects that are lost. What an acknowledged purge covered never comes
//! back, and a crash alone costs nothing.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::super::PurgeKind;
use super::super::marks::{Scope, Standing, Subject};
use super::super::stamp::{Moment, Stamp, TagId};
use super::*;

type Objects = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug, Clone)]
enum Call {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
}

impl Call {
    fn apply(self, objects: &mut Objects) {
        match self {
            Call::Put(key, bytes) => drop(objects.insert(key, bytes)),
            Call::Remove(key) => drop(objects.remove(&key)),
        }
    }
}

/// What a store promises, and no more: until a sync, a crash leaves of each call all or nothing,
/// and of one that replaces an object perhaps neither the old nor the new one.
#[derive(Debug)]
struct State {
    durable: Objects,
    since_sync: Vec<Call>,
    random: fastrand::Rng,
    /// Calls until the process dies.
    calls_left: u32,
    /// One of this many calls fails; 0: none.
    fails_one_of: u32,
    segments_reused: u64,
    index_evictions: u64,
    puts: [usize; 2],
}

#[derive(Clone)]
struct Model(Rc<RefCell<State>>);

impl Model {
    fn new(seed: u64) -> Model {
        Model(Rc::new(RefCell::new(State {
            durable: Objects::new(),
            since_sync: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            calls_left: u32::MAX,
            fails_one_of: 0,
            segments_reused: 0,
            index_evictions: 0,
            puts: [0; 2],
        })))
    }

    fn state(&self) -> RefMut<'_, State> {
        self.0.borrow_mut()
    }

    fn objects(&self) -> Objects {
        let state = self.state();
        let mut objects = state.durable.clone();
        state.since_sync.iter().cloned().for_each(|call| call.apply(&mut objects));
        objects
    }

    /// Whether this call takes place, and whether it succeeds.
    fn call(&self) -> Result<bool, CopyError> {
        let mut state = self.state();
        if state.calls_left == 0 {
            return Err(CopyError::Create(CreateError::Closed));
        }
        state.calls_left -= 1;
        let odds = state.fails_one_of;
        Ok(odds == 0 || state.random.u32(..odds) > 0)
    }

    fn done(&self, call: Call) -> Result<(), CopyError> {
        let succeeds = self.call()?;
        let mut state = self.state();
        // A create that is refused removes the older version, a remove that fails may be in effect.
        let call = match call {
            Call::Put(key, _) if !succeeds => Call::Remove(key),
            other => other,
        };
        if succeeds || state.random.bool() {
            state.since_sync.push(call);
        }
        if succeeds { Ok(()) } else { Err(CopyError::Create(CreateError::MemoryFull)) }
    }

    /// The process, or the machine, dies.
    fn crash(&self) {
        let mut state = self.state();
        for call in std::mem::take(&mut state.since_sync) {
            let call = match (state.random.u8(..3), call) {
                (0, _) => continue,
                (1, Call::Put(key, _)) => Call::Remove(key),
                (_, call) => call,
            };
            call.apply(&mut state.durable);
        }
        state.calls_left = u32::MAX;
    }

    /// An object is lost; false if there is none.
    fn lose_one(&self) -> bool {
        let objects = self.objects();
        let mut state = self.state();
        let nth = state.random.usize(..objects.len().max(1));
        let Some(key) = objects.keys().nth(nth) else { return false };
        state.durable.remove(key);
        state.since_sync.retain(|call| !matches!(call, Call::Put(put, _) if put == key));
        true
    }
}

impl Shelf for Model {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.objects().remove(key)
    }

    fn put(&self, key: &[u8], bytes: &[u8]) -> Result<(), CopyError> {
        let is_delta = key.starts_with(DELTA_KEY);
        self.state().puts[usize::from(is_delta)] += 1;
        self.done(Call::Put(key.to_vec(), bytes.to_vec()))
    }

    fn remove(&self, key: &[u8]) -> Result<(), CopyError> {
        self.done(Call::Remove(key.to_vec()))
    }

    fn sync(&self) -> Result<(), CopyError> {
        let succeeds = self.call()?;
        if !succeeds {
            return Err(CopyError::Create(CreateError::Closed));
        }
        let mut state = self.state();
        for call in std::mem::take(&mut state.since_sync) {
            call.apply(&mut state.durable);
        }
        Ok(())
    }

    fn may_have(&self, key: &[u8]) -> bool {
        self.objects().contains_key(key)
    }

    fn turns(&self) -> Turns {
        let State { segments_reused, index_evictions, .. } = *self.state();
        Turns { segments_reused, segments: 64, index_evictions, index_slots: 64 }
    }

    fn least_bytes(&self) -> usize {
        200
    }
}

/// A response of the model, stored at a time.
struct Stored {
    stamp: Stamp,
    url: Vec<u8>,
    at: u64,
}

/// A purge of the model.
struct Purge {
    scope: Scope,
    at: u64,
    is_acknowledged: bool,
    /// The process that made it.
    life: u32,
}

fn url(random: &mut fastrand::Rng) -> Vec<u8> {
    format!("http://h{}/{}", random.u8(..3), random.u8(..6)).into_bytes()
}

fn hash(url: &[u8]) -> u64 {
    GroupId::of(url).get()
}

fn scope(random: &mut fastrand::Rng) -> Scope {
    match random.u8(..30) {
        0 => Scope::All,
        1..=12 => Scope::Url(hash(&url(random))),
        13..=24 => Scope::Tag(TagId(random.u64(..8))),
        _ => Scope::Prefix(format!("http://h{}/", random.u8(..3)).into_bytes()),
    }
}

fn is_covered(stored: &Stored, scope: &Scope) -> bool {
    match scope {
        Scope::All => true,
        Scope::Url(url) => hash(&stored.url) == *url,
        Scope::Tag(tag) => stored.stamp.tags.contains(tag),
        Scope::Group(_) => false,
        Scope::Prefix(prefix) => stored.url.starts_with(prefix),
    }
}

/// What a run may do, and what it has seen.
struct Run {
    seed: u64,
    model: Model,
    random: fastrand::Rng,
    time: u64,
    life: u32,
    stored: Vec<Stored>,
    purges: Vec<Purge>,
    ledger: Option<u64>,
    lost: bool,
    ledgers_lost: u32,
}

impl Run {
    fn new(seed: u64) -> Run {
        Run {
            seed,
            model: Model::new(seed),
            random: fastrand::Rng::with_seed(!seed),
            time: 0,
            life: 0,
            stored: Vec::new(),
            purges: Vec::new(),
            ledger: None,
            lost: false,
            ledgers_lost: 0,
        }
    }

    /// One process, from its start to its end.
    fn live(&mut self, loses: bool) {
        self.life += 1;
        let copies = Copies::new(self.model.clone());
        let found = copies.find();
        let found_ledger = found.as_ref().map(|(marks, _)| marks.now().ledger);
        if self.ledger.is_some() && self.ledger != found_ledger {
            assert!(self.lost, "seed {}: a crash has cost the ledger", self.seed);
            assert_eq!(found_ledger, None, "seed {}: an older ledger", self.seed);
            self.ledgers_lost += 1;
        }
        self.ledger = found_ledger;
        let number = self.random.u64(1..);
        let (marks, mut written) = found.unwrap_or((Marks::new(number), Written::default()));
        self.lost = false;
        let known = RwLock::new(Known::new(marks.after_restart()));
        self.judge_all(&known);
        let calls = self.random.u32(..120);
        self.model.state().calls_left = calls;
        let mut loaded = false;
        for _ in 0..self.random.u32(..60) {
            if !loaded {
                loaded = copies.write(&known, &mut written).is_ok();
                if loaded {
                    self.ledger = Some(locks::read(&known).marks.now().ledger);
                }
            }
            self.step(&copies, &known, &mut written, loaded);
            if loses && self.random.u8(..30) == 0 {
                self.lost |= self.model.lose_one();
                self.judge_all(&known);
            }
            if self.model.state().since_sync.is_empty() && copies.find().is_some() {
                // What was lost has been written anew, durably.
                self.lost = false;
            }
        }
        self.judge_all(&known);
        self.model.crash();
        if loses && self.random.u8(..4) == 0 {
            self.lost |= self.model.lose_one();
        }
    }

    fn step(
        &mut self,
        copies: &Copies<Model>,
        known: &RwLock<Known>,
        written: &mut Written,
        loaded: bool,
    ) {
        self.time += 1;
        match self.random.u8(..10) {
            0..=3 if loaded => {
                let tags = vec![TagId(self.random.u64(..8))];
                let moment: Moment = locks::read(known).marks.now();
                let url = url(&mut self.random);
                let stamp = Stamp { moment, tags };
                self.stored.push(Stored { stamp, url, at: self.time });
            }
            4 => self.model.state().segments_reused += 3,
            5 => self.judge_all(known),
            _ => {
                let first = self.purges.len();
                for _ in 0..self.random.u8(1..4) {
                    let (scope, at, life) = (scope(&mut self.random), self.time, self.life);
                    locks::write(known).set(scope.clone(), PurgeKind::Hard, 0);
                    self.purges.push(Purge { scope, at, life, is_acknowledged: false });
                }
                // Some wait for the next write.
                if self.random.u8(..4) > 0 && copies.write(known, written).is_ok() {
                    let generation = locks::read(known).marks.now().generation;
                    assert_eq!(written.generation, generation);
                    let of_life = self.purges.iter_mut().filter(|purge| purge.life == self.life);
                    of_life.for_each(|purge| purge.is_acknowledged = true);
                    assert!(self.purges.len() > first);
                }
            }
        }
    }

    fn judge_all(&self, known: &RwLock<Known>) {
        let known = locks::read(known);
        for one in &self.stored {
            let (stamp, url) = (&one.stamp, &one.url[..]);
            let subject = Subject { stamp, url, url_hash: hash(url), group: 1 };
            let is_gone = known.marks.judge(&subject) == Standing::Gone;
            let mut covering =
                self.purges.iter().filter(|p| p.at > one.at && is_covered(one, &p.scope));
            let may_be = covering.clone().next().is_some();
            let must_be = covering.any(|p| p.is_acknowledged || p.life == self.life);
            assert!(is_gone || !must_be, "seed {}: {:?} is back", self.seed, one.stamp);
            let of_now = stamp.moment.ledger == known.marks.now().ledger;
            assert!(!is_gone || may_be || !of_now, "seed {}: gone for nothing", self.seed);
        }
    }
}

fn run(seeds: u64, fails_one_of: u32, loses: bool) -> (u32, [usize; 2]) {
    let (mut ledgers_lost, mut puts) = (0, [0; 2]);
    for seed in 0..seeds {
        let mut run = Run::new(seed);
        run.model.state().fails_one_of = fails_one_of;
        (0..8).for_each(|_| run.live(loses));
        ledgers_lost += run.ledgers_lost;
        let of_run = run.model.state().puts;
        puts = [puts[0] + of_run[0], puts[1] + of_run[1]];
    }
    (ledgers_lost, puts)
}

#[test]
fn a_crash_at_any_call_brings_nothing_back_and_costs_nothing() {
    let (_, [snapshots, deltas]) = run(600, 0, false);
    // With each snapshot comes an empty delta.
    assert!(deltas > 2 * snapshots, "{deltas} deltas for {snapshots} snapshots: too few");
}

#[test]
fn calls_that_fail_bring_nothing_back_and_cost_nothing() {
    run(600, 6, false);
}

#[test]
fn lost_objects_bring_nothing_back() {
    let (ledgers_lost, _) = run(600, 0, true);
    let (with_failures, _) = run(600, 6, true);
    assert!(ledgers_lost > 50 && with_failures > 50, "nothing was lost: the test tests nothing");
}

/// A process that goes on until nothing can be purged.
struct Alone {
    copies: Copies<Model>,
    known: RwLock<Known>,
    written: Written,
}

impl Alone {
    fn start(model: &Model) -> Alone {
        let copies = Copies::new(model.clone());
        let (marks, written) = copies.find().unwrap_or((Marks::new(3), Written::default()));
        let known = RwLock::new(Known::new(marks.after_restart()));
        let mut alone = Alone { copies, known, written };
        alone.write();
        alone
    }

    fn write(&mut self) {
        self.copies.write(&self.known, &mut self.written).unwrap();
    }

    fn purge(&mut self, n: u64) {
        locks::write(&self.known).set(Scope::Tag(TagId(n)), PurgeKind::Hard, 0);
        self.write();
    }
}

#[test]
fn marks_of_a_version_without_deltas_are_read() {
    for slot in [0, 1] {
        let model = Model::new(1);
        let mut marks = Marks::new(77);
        marks.set(Scope::Tag(TagId(1)), PurgeKind::Hard, 0);
        let wanted = marks.now();
        let bytes = marks.encode_as_before();
        Call::Put(key(SNAPSHOT_KEY, slot), bytes).apply(&mut model.state().durable);
        let mut alone = Alone::start(&model);
        assert_eq!(locks::read(&alone.known).marks.now().ledger, 77);
        assert!(locks::read(&alone.known).marks.now().generation > wanted.generation);
        alone.purge(2);
        assert_eq!(model.objects().len(), 2, "the old object is gone");
    }
}

#[test]
fn a_pair_of_which_one_was_lost_is_written_anew() {
    for prefix in [SNAPSHOT_KEY, DELTA_KEY] {
        let model = Model::new(1);
        let mut alone = Alone::start(&model);
        (0..3).for_each(|n| alone.purge(n));
        assert!(!alone.copies.is_in_danger(&alone.written));
        for slot in [0, 1] {
            Call::Remove(key(prefix, slot)).apply(&mut model.state().durable);
        }
        assert!(alone.copies.is_in_danger(&alone.written));
        assert!(alone.copies.find().is_none());
        alone.write();
        assert!(!alone.copies.is_in_danger(&alone.written));
        let (marks, _) = alone.copies.find().unwrap();
        assert!(marks == locks::read(&alone.known).marks);
    }
}

/// As while a store refuses writes for long.
#[test]
fn purges_that_are_too_many_for_a_delta_go_into_a_snapshot() {
    let model = Model::new(1);
    let mut alone = Alone::start(&model);
    let snapshots = model.state().puts[0];
    let since = locks::read(&alone.known).changes.since();
    let mut random = fastrand::Rng::with_seed(1);
    // Until no more is noted; what comes after it would have room in a delta.
    while locks::read(&alone.known).changes.since() == since {
        let prefix = format!("http://h/{}{}", random.u64(..), "x".repeat(4000)).into_bytes();
        locks::write(&alone.known).set(Scope::Prefix(prefix), PurgeKind::Hard, 0);
    }
    alone.purge(1);
    assert_eq!(model.state().puts[0], snapshots + 1);
    let (marks, _) = alone.copies.find().unwrap();
    assert!(marks == locks::read(&alone.known).marks);
    alone.purge(2);
    assert_eq!(model.state().puts[0], snapshots + 1);
}

#[test]
fn a_snapshot_is_written_again_before_the_log_or_a_full_index_comes_round_to_it() {
    for by_index in [false, true] {
        let model = Model::new(1);
        let mut alone = Alone::start(&model);
        let before = model.state().puts[0];
        for gone in 1..=160 {
            match by_index {
                true => model.state().index_evictions = gone,
                false => model.state().segments_reused = gone,
            }
            alone.purge(1);
            let turns = alone.written.base.unwrap().turns;
            let then = if by_index { turns.index_evictions } else { turns.segments_reused };
            assert!(gone - then <= 64 / REWRITE_DIVISOR, "by index: {by_index}");
        }
        // One for each 17 that are gone; deltas that have grown ask for a few more.
        let snapshots = model.state().puts[0] - before;
        assert!((9..40).contains(&snapshots), "{snapshots}");
    }
}

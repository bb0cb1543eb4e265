//! Policies of a configuration and of an embedder's own, in a store without threads of its own.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod in_memory;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use damelo::policy::{
    AdmissionPolicy, Arrival, Candidate, DiskPolicy, Fate, Leaving, Newcomer, Queue,
    ReinsertionPolicy, ResidencyPolicy, Survivor, Usage,
};
use damelo::{
    Admission, ByteSize, Config, CreateError, CreateOptions, GroupId, Hint, OpenError, Reinsertion,
    Stats, Store, WriterOptions,
};
use in_memory::{Memory, State, Stopped};

const GROUP: GroupId = GroupId::new(7);

fn small() -> Config {
    let mut config = Config::new("policies", ByteSize::new(16 << 20));
    config.memory = ByteSize::new(4 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(512 << 10));
    config.background = false;
    config.seed = Some(1);
    config
}

fn open(config: Config) -> Store {
    let state = State::new(16 << 20, false);
    Store::open_on(config, vec![Memory::device(&state)], Arc::new(Stopped)).unwrap()
}

/// The ring comes round several times; some objects are read from disk again and again, some once.
fn wrap(config: Config) -> Stats {
    let store = open(config);
    let value = vec![1; 4000];
    for key in 0..12_000_u64 {
        store.create(&key.to_le_bytes(), GROUP, &value).wait().unwrap();
        for used in [key % 40, key / 100 * 100] {
            let _ = store.read(&used.to_le_bytes()).wait().unwrap();
        }
        if key % 100 == 0 {
            store.drop_memory();
        }
    }
    store.stats()
}

/// Key, group and length of an object.
type Asked = (Vec<u8>, u64, Option<u64>);

#[derive(Default)]
struct Told {
    asked: Mutex<Vec<Asked>>,
    beside: AtomicU64,
    refuses: AtomicBool,
}

impl AdmissionPolicy for Told {
    fn admit(&self, new: &Newcomer<'_>) -> Result<(), &'static str> {
        self.asked.lock().unwrap().push((new.key.to_vec(), new.group.get(), new.bytes));
        if self.refuses.load(Ordering::Relaxed) { Err("not today") } else { Ok(()) }
    }

    fn written_beside(&self, bytes: u64, _now: Duration) {
        self.beside.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[test]
fn admission_is_asked_once_for_each_object_and_told_of_the_rest() {
    let told = Arc::new(Told::default());
    let mut config = small();
    config.own_policies.admission = Some(told.clone());
    let store = open(config);
    // One record, and one that a writer has to cut into parts.
    for (key, length) in [(b"a", 1000_u64), (b"b", 2 << 20)] {
        store.create(key, GROUP, &vec![1; length as usize]).wait().unwrap();
    }
    assert_eq!(told.beside.load(Ordering::Relaxed), 0);
    for (key, length) in [(b"c", None), (b"d", Some(400))] {
        let options = WriterOptions { length, ..WriterOptions::default() };
        let mut writer = store.writer(key, GROUP, options).unwrap();
        writer.write(&[1; 500]).wait().unwrap();
        writer.commit().wait().unwrap();
    }
    let asked = |key: &[u8], bytes| (key.to_vec(), GROUP.get(), bytes);
    let all = [asked(b"a", Some(1000)), asked(b"b", Some(2 << 20)), asked(b"c", None)];
    let all = [all.as_slice(), &[asked(b"d", Some(400))]].concat();
    assert_eq!(*told.asked.lock().unwrap(), all);
    assert_eq!(told.beside.load(Ordering::Relaxed), 500 + 100);
    // Each is timed once, too.
    let stats = store.stats();
    let timed: u64 = stats.create_latency.iter().map(|(_, count)| count).sum();
    assert_eq!((timed, stats.creates), (4, 4));
}

#[test]
fn a_store_of_many_objects_remembers_many_keys_that_were_offered_once() {
    const KEYS: u64 = 100_000;
    let mut config = small();
    config.volumes[0].size = Some(ByteSize::new(192 << 20));
    config.memory = ByteSize::new(32 << 20);
    config.objects_max = Some(3 << 19);
    config.admission = Admission::SecondHit;
    let state = State::new(192 << 20, false);
    let store = Store::open_on(config, vec![Memory::device(&state)], Arc::new(Stopped)).unwrap();
    let offer = |key: u64| store.create(&key.to_le_bytes(), GROUP, b"value").wait().is_ok();
    let admitted = |keys: std::ops::Range<u64>| keys.filter(|key| offer(*key)).count() as u64;
    assert!(admitted(0..KEYS) < KEYS / 100);
    let again = admitted(0..KEYS);
    assert!(again > KEYS * 4 / 10, "{again} of {KEYS} were offered before");
}

/// What is written of a stream whose length nobody knew is written, whatever becomes of it.
#[test]
fn admission_is_told_of_the_parts_of_a_stream_that_is_given_up() {
    let told = Arc::new(Told::default());
    let mut config = small();
    config.own_policies.admission = Some(told.clone());
    let store = open(config);
    let mut writer = store.writer(b"a", GROUP, WriterOptions::default()).unwrap();
    for _ in 0..20 {
        writer.write(&[1; 100_000]).wait().unwrap();
    }
    drop(writer);
    store.sync().unwrap();
    let (beside, written) = (told.beside.load(Ordering::Relaxed), store.stats().written_bytes);
    assert!((1_500_000..=2_000_000).contains(&beside), "{beside} bytes of {written}");
}

#[test]
fn what_is_refused_is_counted_and_what_was_there_is_gone_but_keeps_its_metadata_new() {
    let told = Arc::new(Told::default());
    let mut config = small();
    config.own_policies.admission = Some(told.clone());
    let store = open(config);
    for key in [b"a", b"b"] {
        store.create(key, GROUP, b"old").wait().unwrap();
    }
    told.refuses.store(true, Ordering::Relaxed);
    let refused = Err(CreateError::NotAdmitted { rule: "not today" });
    assert_eq!(store.create(b"a", GROUP, b"new").wait(), refused);
    let writer = store.writer(b"c", GROUP, WriterOptions::default());
    assert_eq!(writer.map(drop), refused);
    assert!(store.read(b"a").wait().unwrap().is_none());
    assert!(store.set_metadata(b"b", b"new").wait().unwrap(), "it is stored already");
    let stats = store.stats();
    assert_eq!((stats.drops_not_admitted, stats.drops_abandoned), (2, 0));
}

/// The clock stands still: there are ten seconds' worth, of which an object that a writer cuts into
/// parts takes its bytes once.
#[test]
fn a_write_budget_takes_the_bytes_of_an_object_once() {
    let mut config = small();
    config.admission = Admission::write_rate(200_000);
    let store = open(config);
    let create = |key: &[u8], length: usize| store.create(key, GROUP, &vec![1; length]).wait();
    create(b"large", 1_500_000).unwrap();
    create(b"rest", 500_000).unwrap();
    let refused = Err(CreateError::NotAdmitted { rule: "write_budget: spent for now" });
    assert_eq!(create(b"more", 1), refused);
}

/// Where objects are small, what records have beside values is most of what is written.
#[test]
fn a_write_budget_counts_whole_records() {
    let budget = 2_000_000;
    let metadata = vec![1; 2000];
    for by_writer in [false, true] {
        let mut config = small();
        config.admission = Admission::write_rate(budget / 10);
        let store = open(config);
        let create = |n: u32| {
            if by_writer {
                let options = WriterOptions { metadata: metadata.clone(), ..Default::default() };
                return store.writer(&n.to_le_bytes(), GROUP, options)?.commit().wait();
            }
            let options = CreateOptions { metadata: &metadata, ..CreateOptions::default() };
            store.create_with(&n.to_le_bytes(), GROUP, b"", options).wait()
        };
        assert!((0..4000).take_while(|n| create(*n).is_ok()).count() > 0);
        store.sync().unwrap();
        let written = store.stats().written_bytes;
        assert!(written < budget * 3 / 2, "{written} written, {budget} allowed");
    }
}

#[test]
fn reinsertion_is_what_the_configuration_says() {
    let kept = |reinsertion| {
        let mut config = small();
        config.reinsertion = reinsertion;
        let stats = wrap(config);
        assert!(stats.segments_reused > 50, "{stats:?}");
        stats.reinserted_objects
    };
    let worthy = kept(Reinsertion::Worthy);
    let often = kept(Reinsertion::Used { hits_min: 3 });
    assert!(worthy > often, "{worthy} worth it, {often} used three times");
    assert_eq!(kept(Reinsertion::Never), 0);
}

/// Keeps one object of a segment, and asks the others too.
#[derive(Default)]
struct One {
    segments: AtomicU64,
    asked: AtomicU64,
    taken: AtomicBool,
}

impl ReinsertionPolicy for One {
    fn budget(&self, segment_bytes: u64, _now: Duration) -> u64 {
        self.segments.fetch_add(1, Ordering::Relaxed);
        self.taken.store(false, Ordering::Relaxed);
        segment_bytes
    }

    fn keeps(&self, survivor: &Survivor) -> bool {
        assert!(survivor.worth == 9 && survivor.group == GROUP && survivor.bytes > 4000);
        self.asked.fetch_add(1, Ordering::Relaxed);
        !self.taken.swap(true, Ordering::Relaxed)
    }
}

struct All;

impl DiskPolicy for All {
    fn worth(&self, _candidate: Candidate, _mean_percent: u32) -> Option<u8> {
        Some(9)
    }

    fn next_freq(&self, _freq: u8, _mean_percent: u32) -> u8 {
        0
    }
}

/// First in, first out.
#[derive(Default)]
struct Fifo(AtomicU64);

impl ResidencyPolicy for Fifo {
    fn victim(&self, usage: &Usage, _requester: Hint) -> Option<Queue> {
        let queues = [Queue::Hated, Queue::Probation, Queue::Protected, Queue::Loved];
        queues.into_iter().find(|queue| usage.frames[*queue as usize] > 0)
    }

    fn fate(&self, _queue: Queue, _object: &Leaving) -> Fate {
        self.0.fetch_add(1, Ordering::Relaxed);
        Fate::Drop
    }
}

#[test]
fn an_embedder_may_give_every_policy() {
    let (reinsertion, residency) = (Arc::new(One::default()), Arc::new(Fifo::default()));
    let told = Arc::new(Told::default());
    let mut config = small();
    config.own_policies.disk = Some(Arc::new(All));
    config.own_policies.reinsertion = Some(reinsertion.clone());
    config.own_policies.residency = Some(residency.clone());
    config.own_policies.admission = Some(told.clone());
    assert_eq!(config, config.clone());
    assert_ne!(config, small());
    let stats = wrap(config);
    let segments = reinsertion.segments.load(Ordering::Relaxed);
    assert!(segments > 50 && segments >= stats.segments_reused, "{stats:?}");
    assert!(stats.reinserted_objects > 0 && stats.reinserted_objects <= segments, "{stats:?}");
    assert!(reinsertion.asked.load(Ordering::Relaxed) > 10 * segments);
    assert!(residency.0.load(Ordering::Relaxed) > 0);
    assert_eq!(told.asked.lock().unwrap().len(), 12_000);
    assert!(told.beside.load(Ordering::Relaxed) >= stats.reinserted_bytes);
}

/// As `Fifo`, but panics when something that was read comes into memory, once.
struct PanicsOnce(AtomicBool);

impl ResidencyPolicy for PanicsOnce {
    fn arrive(&self, _hint: Hint, arrival: Arrival) -> Queue {
        let panics = arrival != Arrival::Written && self.0.swap(false, Ordering::Relaxed);
        assert!(!panics, "a policy of the test's own");
        Queue::Probation
    }

    fn victim(&self, usage: &Usage, requester: Hint) -> Option<Queue> {
        Fifo::default().victim(usage, requester)
    }

    fn fate(&self, _queue: Queue, _object: &Leaving) -> Fate {
        Fate::Drop
    }
}

/// As part of its page, or alone.
#[test]
fn a_read_that_panicked_is_not_waited_for() {
    for bytes in [3_000, 100_000] {
        let policy = Arc::new(PanicsOnce(AtomicBool::new(false)));
        let mut config = small();
        config.own_policies.residency = Some(policy.clone());
        let store = open(config);
        store.create(b"key", GROUP, &vec![1; bytes]).wait().unwrap();
        store.sync().unwrap();
        store.drop_memory();
        policy.0.store(true, Ordering::Relaxed);
        let read = || store.read(b"key").wait().unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| read().is_some()));
        assert!(panicked.is_err(), "{bytes}: {panicked:?}");
        assert!(read().is_some(), "{bytes}");
        assert_eq!(store.stats().shared_reads, 0, "{bytes}");
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let mut no_hits = small();
    no_hits.reinsertion = Reinsertion::Used { hits_min: 0 };
    let mut over = small();
    over.admission = Admission::Probability { percent: 101 };
    let mut no_time = small();
    no_time.admission = Admission::WriteBudget { bytes: 1, window: Duration::ZERO };
    let refused = [
        (no_hits, "reinsertion.hits_min"),
        (over, "admission.percent"),
        (no_time, "admission.window"),
    ];
    for (config, name) in refused {
        let state = State::new(16 << 20, false);
        let opened = Store::open_on(config, vec![Memory::device(&state)], Arc::new(Stopped));
        let error = opened.map(drop).unwrap_err();
        assert!(matches!(error, OpenError::Setting { setting, .. } if setting == name), "{error}");
    }
}

/// Which threads look for objects in memory whose group has another hint.
#[derive(Default)]
struct Hinted(Mutex<Vec<ThreadId>>);

impl ResidencyPolicy for Hinted {
    fn arrive(&self, _hint: Hint, arrival: Arrival) -> Queue {
        if matches!(arrival, Arrival::Hinted) {
            self.0.lock().unwrap().push(std::thread::current().id());
        }
        Queue::Probation
    }

    fn victim(&self, usage: &Usage, _requester: Hint) -> Option<Queue> {
        (usage.frames[Queue::Probation as usize] > 0).then_some(Queue::Probation)
    }

    fn fate(&self, _queue: Queue, _object: &Leaving) -> Fate {
        Fate::Drop
    }
}

/// Not who gives the hint, unless there is nobody else.
#[test]
fn the_stores_own_threads_apply_hints_to_what_is_in_memory() {
    for background in [true, false] {
        let policy = Arc::new(Hinted::default());
        let mut config = small();
        config.background = background;
        config.own_policies.residency = Some(policy.clone());
        let store = open(config);
        store.create(b"key", GROUP, b"value").wait().unwrap();
        store.sync().unwrap();
        let me = std::thread::current().id();
        let mut applied = 0;
        for hint in [Store::love, Store::hate, Store::neutral] {
            hint(&store, GROUP);
            while policy.0.lock().unwrap().len() == applied {
                assert!(background, "at once");
                std::thread::sleep(Duration::from_millis(1));
            }
            applied = policy.0.lock().unwrap().len();
        }
        assert_eq!(applied, 3);
        assert!(policy.0.lock().unwrap().iter().all(|thread| (*thread == me) != background));
    }
}

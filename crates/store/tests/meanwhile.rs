//! New metadata beside what others do with the same key: whatever they had acknowledged stands, in
//! memory and after a crash.
//!
//! Owns a device that does something else in the midst of a read of the store's: between the look
//! at an object and the storing of its new record. Threads: a store's own, and those that race.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use damelo::device::{Device, Io, IoOp};
use damelo::{ByteSize, Config, CreateError, CreateOptions, GroupId, MetadataError, Store};

mod in_memory;
mod tapped;
use in_memory::{Memory, State, Stopped};
use tapped::{Tap, Tapped};

const DEVICE_BYTES: usize = 6 << 20;
const GROUP: u64 = 1;
const KEY: &[u8] = b"site/key";

type Act = Box<dyn FnOnce() + Send>;

/// What is done before a read, and before how many other reads.
#[derive(Default)]
struct Between(Mutex<Option<(usize, Act)>>);

impl Between {
    fn arm(&self, reads: usize, act: Act) {
        *self.0.lock().unwrap() = Some((reads, act));
    }

    /// True if it was not done.
    fn disarm(&self) -> bool {
        self.0.lock().unwrap().take().is_some()
    }

    fn read_begins(&self) {
        let mut armed = self.0.lock().unwrap();
        let act = match armed.take() {
            Some((0, act)) => Some(act),
            Some((left, act)) => {
                *armed = Some((left - 1, act));
                None
            }
            None => None,
        };
        drop(armed);
        if let Some(act) = act {
            act();
        }
    }
}

impl Tap for Arc<Between> {
    fn submit(&self, disk: &dyn Device, io: Io) {
        if io.op == IoOp::Read {
            self.read_begins();
        }
        disk.submit(io);
    }

    fn before_read(&self) {
        self.read_begins();
    }
}

fn open(state: &Arc<Mutex<State>>, between: &Arc<Between>) -> Store {
    open_with(state, between, 4096)
}

fn open_with(state: &Arc<Mutex<State>>, between: &Arc<Between>, objects_max: u64) -> Store {
    let mut config = Config::new("memory", ByteSize::new(DEVICE_BYTES as u64));
    config.memory = ByteSize::new(4 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(256 << 10));
    config.objects_max = Some(objects_max);
    config.seed = Some(1);
    config.tags_alone = true;
    let device = Arc::new(Tapped { disk: Memory::device(state), tap: Arc::clone(between) });
    let store = Store::open_on(config, vec![device], Arc::new(Stopped)).unwrap();
    store.wait_recovered();
    store
}

/// Eight bytes over and over, so that it tells its version.
fn value(version: u64, bytes: usize) -> Vec<u8> {
    version.to_le_bytes().repeat(bytes / 8)
}

fn create(store: &Store, key: &[u8], group: u64, version: u64, bytes: usize) {
    let metadata = format!("of {version}");
    let options = CreateOptions { metadata: metadata.as_bytes(), ..Default::default() };
    let created =
        store.create_with(key, GroupId::new(group), &value(version, bytes), options).wait();
    // Of a large one in so small a ring the others may have overwritten the start.
    assert!(matches!(created, Ok(()) | Err(CreateError::Overwritten { .. })), "{created:?}");
}

/// Version of the value, and metadata.
fn read(store: &Store, key: &[u8]) -> Option<(u64, String)> {
    let mut reader = store.reader(key).wait().unwrap()?;
    let metadata = String::from_utf8(reader.info().metadata.to_vec()).unwrap();
    let mut all = Vec::new();
    while let Some(piece) = reader.next().wait().ok()? {
        all.extend_from_slice(&piece);
    }
    let (words, rest) = all.as_chunks::<8>();
    assert!(rest.is_empty() && words.iter().all(|word| *word == words[0]), "one version's bytes");
    Some((u64::from_le_bytes(words[0]), metadata))
}

type Outcome = (Result<bool, MetadataError>, Option<(u64, String)>);

/// What another does meanwhile.
#[derive(Debug, Clone, Copy)]
enum Meanwhile {
    Create,
    CreateSynced,
    SameValue,
    Remove,
    PurgeGroup,
    PurgePrefix,
    PurgeAll,
    PurgeAndCreate,
    RemoveAndCreateSynced,
    DropMemory,
}

use Meanwhile::*;
const ALL: [Meanwhile; 10] = [
    Create,
    CreateSynced,
    SameValue,
    Remove,
    PurgeGroup,
    PurgePrefix,
    PurgeAll,
    PurgeAndCreate,
    RemoveAndCreateSynced,
    DropMemory,
];

impl Meanwhile {
    fn act(self, store: &Store, bytes: usize) {
        let flush = || {
            store.sync().unwrap();
            store.drop_memory();
        };
        match self {
            Create => create(store, KEY, GROUP, 2, bytes),
            CreateSynced => {
                create(store, KEY, GROUP, 2, bytes);
                flush();
            }
            SameValue => create(store, KEY, GROUP, 1, bytes),
            Remove => assert!(store.remove(KEY).unwrap()),
            PurgeGroup => store.purge_group(GroupId::new(GROUP)).unwrap(),
            PurgePrefix => store.purge_prefix(b"site/").unwrap(),
            PurgeAll => store.purge_all().unwrap(),
            PurgeAndCreate => {
                store.purge_group(GroupId::new(GROUP)).unwrap();
                create(store, KEY, GROUP, 2, bytes);
            }
            RemoveAndCreateSynced => {
                assert!(store.remove(KEY).unwrap());
                create(store, KEY, GROUP, 2, bytes);
                flush();
            }
            DropMemory => store.drop_memory(),
        }
    }

    /// The answers that may be, each with what is there then.
    fn outcomes(self, bytes: usize) -> Vec<Outcome> {
        let there = |version, metadata: &str| Some((version, metadata.to_owned()));
        let superseded =
            |version| (Err(MetadataError::Superseded), there(version, &format!("of {version}")));
        match self {
            // What comes before the object was found is what is found.
            Create | CreateSynced => vec![superseded(2), (Ok(true), there(2, "new"))],
            PurgeAndCreate | RemoveAndCreateSynced => {
                let nothing_found = (Ok(false), there(2, "of 2"));
                vec![superseded(2), (Ok(true), there(2, "new")), nothing_found]
            }
            Remove | PurgeGroup | PurgePrefix | PurgeAll => vec![(Ok(false), None)],
            // Of a large object nobody knows that the other value is the same one.
            SameValue if bytes > 8 << 10 => vec![(Ok(true), there(1, "new")), superseded(1)],
            SameValue | DropMemory => vec![(Ok(true), there(1, "new"))],
        }
    }
}

/// A store with the object on disk.
fn filled(state: &Arc<Mutex<State>>, between: &Arc<Between>, bytes: usize, patched: bool) -> Store {
    let store = open(state, between);
    create(&store, KEY, GROUP, 1, bytes);
    store.sync().unwrap();
    if patched {
        assert_eq!(store.set_metadata(KEY, b"before").wait(), Ok(true));
        store.sync().unwrap();
    }
    store.drop_memory();
    store
}

/// One interleaving, and what it was answered. `None` if there were not so many reads.
fn interleave(
    bytes: usize,
    patched: bool,
    meanwhile: Meanwhile,
    reads: usize,
) -> Option<Result<bool, MetadataError>> {
    let case = format!("{bytes} bytes, patched: {patched}, {meanwhile:?} before read {reads}");
    let (state, between) = (State::new(DEVICE_BYTES, false), Arc::default());
    let store = filled(&state, &between, bytes, patched);
    let theirs = store.clone();
    between.arm(reads, Box::new(move || meanwhile.act(&theirs, bytes)));
    let answer = store.set_metadata(KEY, b"new").wait();
    if between.disarm() {
        assert_eq!(answer, Ok(true), "{case}: nothing came between");
        store.close().unwrap();
        return None;
    }
    let there = read(&store, KEY);
    let outcome = (answer.clone(), there.clone());
    assert!(meanwhile.outcomes(bytes).contains(&outcome), "{case}: {outcome:?}");
    // A crash may lose what was not written yet, and brings nothing else back.
    let crashed = open(&state.lock().unwrap().copied(), &Arc::default());
    let after = read(&crashed, KEY);
    assert!(after.is_none() || after == there, "{case}: {after:?} after a crash");
    crashed.close().unwrap();
    store.sync().unwrap();
    store.drop_memory();
    assert_eq!(read(&store, KEY), there, "{case}: from disk");
    store.close().unwrap();
    Some(answer)
}

#[test]
fn what_is_acknowledged_while_metadata_is_replaced_stands() {
    // In a page, in an extent, in parts.
    for bytes in [800, 60_000, 300_000] {
        for patched in [false, true] {
            for meanwhile in ALL {
                let interleaved =
                    (0..12).map_while(|reads| interleave(bytes, patched, meanwhile, reads));
                let last = interleaved.last().expect("it is read");
                // By then a large one's own value is known, and the other is not for this metadata.
                // One that came into memory in one piece is not looked at on disk again after that.
                let is_known = patched || bytes > 60_000 || !matches!(meanwhile, PurgeAndCreate);
                let is_replaced = matches!(meanwhile, Create | CreateSynced | PurgeAndCreate);
                if bytes > 8 << 10 && is_replaced && is_known {
                    assert_eq!(last, Err(MetadataError::Superseded), "{bytes}, {meanwhile:?}");
                }
            }
        }
    }
}

/// A purge that is acknowledged while the object comes from disk holds for the next reader, from
/// memory too.
#[test]
fn what_is_purged_while_it_is_read_is_gone() {
    for bytes in [800, 60_000, 300_000] {
        for patched in [false, true] {
            for (meanwhile, reads) in [PurgeGroup, PurgePrefix, PurgeAll, Remove]
                .into_iter()
                .flat_map(|meanwhile| (0..12).map(move |reads| (meanwhile, reads)))
            {
                let (state, between) = (State::new(DEVICE_BYTES, false), Arc::default());
                let store = filled(&state, &between, bytes, patched);
                let theirs = store.clone();
                between.arm(reads, Box::new(move || meanwhile.act(&theirs, bytes)));
                let found = store.read(KEY).wait().unwrap();
                if between.disarm() {
                    assert!(found.is_some() && reads > 0);
                    continue;
                }
                let found = store.read(KEY).wait().unwrap();
                assert!(found.is_none(), "{bytes} bytes, {meanwhile:?} before read {reads}");
                store.close().unwrap();
            }
        }
    }
}

/// Each key has a thread that creates, removes and purges it, and looks whether that stands, while
/// others replace its metadata all the time.
#[test]
fn threads_that_replace_metadata_bring_nothing_back() {
    const KEYS: u64 = 6;
    let between = Arc::default();
    let store = open(&State::new(DEVICE_BYTES, false), &between);
    let (stop, replaced) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (store, stop, replaced) = (&store, &stop, &replaced);
        let owners: Vec<_> =
            (0..2_u64).map(|owner| scope.spawn(move || own(store, owner, KEYS))).collect();
        for setter in 0..2_u64 {
            scope.spawn(move || {
                let rng = &mut fastrand::Rng::with_seed(setter);
                while !stop.load(Ordering::Relaxed) {
                    let key = format!("{}/{}", rng.u64(0..2), rng.u64(0..KEYS));
                    match store.set_metadata(key.as_bytes(), b"new").wait() {
                        Ok(done) => drop(replaced.fetch_add(done.into(), Ordering::Relaxed)),
                        Err(
                            MetadataError::Superseded
                            | MetadataError::Create(CreateError::Overwritten { .. }),
                        ) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        let owners = owners.into_iter().map(|owner| owner.join());
        let all_well = owners.fold(true, |well, owner| well & owner.is_ok());
        stop.store(true, Ordering::Relaxed);
        assert!(all_well);
    });
    let replaced = replaced.into_inner();
    assert!(replaced > 100, "{replaced} replaced");
    store.close().unwrap();
}

fn own(store: &Store, owner: u64, keys: u64) {
    let rng = &mut fastrand::Rng::with_seed(owner + 10);
    let key = |n: u64| format!("{owner}/{n}").into_bytes();
    let mut current = vec![None; keys as usize];
    for version in 1..4_000_u64 {
        let n = rng.u64(0..keys);
        match rng.u8(0..20) {
            0..8 => {
                let bytes = [800, 800, 3_000, 60_000][rng.usize(0..4)];
                create(store, &key(n), owner, version, bytes);
                current[n as usize] = Some(version);
            }
            8..12 => {
                store.remove(&key(n)).unwrap();
                current[n as usize] = None;
            }
            12 => {
                store.purge_group(GroupId::new(owner)).unwrap();
                current.fill(None);
            }
            13 => {
                store.purge_prefix(&key(n)).unwrap();
                current[n as usize] = None;
            }
            14 if rng.u8(0..4) == 0 => store.sync().unwrap(),
            15 if rng.u8(0..4) == 0 => store.drop_memory(),
            _ => {}
        }
        for n in [n, rng.u64(0..keys)] {
            let there = read(store, &key(n)).map(|(version, _)| version);
            let expected = current[n as usize];
            assert!(there.is_none() || there == expected, "{there:?}, not {expected:?}");
        }
    }
}

/// Another key's record that the index cannot tell from the key's, and that is newer, is not taken
/// for a version of it. Both come into the index only if they waited together: who comes later
/// forgets who is there.
#[test]
fn an_equal_tag_is_no_newer_version() {
    let (state, between) = (State::new(DEVICE_BYTES, false), Arc::default());
    let store = open_with(&state, &between, 64);
    create(&store, KEY, GROUP, 1, 60_000);
    let flush = |store: &Store| {
        store.sync().unwrap();
        store.drop_memory();
    };
    flush(&store);
    let other = (0_u64..).map(u64::to_le_bytes).find(|key| store.may_contain(key)).unwrap();
    assert!(store.remove(KEY).unwrap());
    create(&store, KEY, GROUP, 1, 60_000);
    create(&store, &other, GROUP, 2, 60_000);
    flush(&store);
    assert_eq!(read(&store, &other), Some((2, "of 2".to_owned())));
    store.drop_memory();
    assert_eq!(store.set_metadata(KEY, b"new").wait(), Ok(true));
    flush(&store);
    assert_eq!(read(&store, KEY), Some((1, "new".to_owned())));
    // The patch came later.
    assert_eq!(read(&store, &other), None);
    store.close().unwrap();
}

//! Many threads on one store: own keys, shared keys, and guards that are held for long.
//!
//! The tests of this file take turns, because one of them measures the process's memory.
//! Interleavings are up to the machine; a failure prints its seed, which fixes only the operations.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use damelo::{
    ByteSize, Config, CreateError, GroupId, MetadataError, Object, ReadError, Store, WhenMemoryFull,
};
use damelo_store_sim::content;
use damelo_store_sim::harness::{fail, guarded, replay, resident_bytes, seeds};
use damelo_store_sim::scenario::tiny_config;

static TURN: Mutex<()> = Mutex::new(());

fn my_turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Rig {
    store: Store,
    _directory: tempfile::TempDir,
}

fn rig(change: impl FnOnce(&mut Config)) -> Result<Rig, String> {
    let directory = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut config = tiny_config(1);
    config.volumes[0].path = directory.path().join("volume");
    config.volumes[0].size = Some(ByteSize::new(12 << 20));
    change(&mut config);
    let store = Store::open(config).map_err(|e| e.to_string())?;
    Ok(Rig { store, _directory: directory })
}

fn watched(name: &str, f: fn(u64) -> Result<(), String>) {
    let _turn = my_turn();
    for seed in seeds(2) {
        if let Err(error) = guarded(Duration::from_secs(100), move || f(seed)) {
            fail(&format!("seed {seed}: {error}\nreplay: {}", replay("concurrency", name, seed)));
        }
    }
}

/// Runs `f` on `count` threads and returns the first error.
fn on_threads(
    count: u64,
    f: impl Fn(u64) -> Result<(), String> + Send + Sync,
) -> Result<(), String> {
    std::thread::scope(|scope| {
        let f = &f;
        let threads: Vec<_> = (0..count).map(|t| scope.spawn(move || f(t))).collect();
        threads.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread panicked")?)
    })
}

fn any_length(rng: &mut fastrand::Rng) -> u64 {
    [20, 300, 4_000, 9_000, 60_000, 300_000][rng.choice([0, 1, 1, 2, 2, 2, 3, 4, 5]).unwrap_or(0)]
}

/// False if others filled the ring before the last part of the object was written, as happens to a
/// thread that the system lets wait.
fn created(result: Result<(), CreateError>) -> Result<bool, String> {
    match result {
        Ok(()) => Ok(true),
        Err(CreateError::Overwritten { .. }) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

/// Each thread knows exactly what its own keys hold.
fn own_keys(seed: u64) -> Result<(), String> {
    let rig = rig(|_| ())?;
    on_threads(4, |thread| {
        let rng = &mut fastrand::Rng::with_seed(seed * 100 + thread);
        let group = GroupId::new(thread);
        let mut current = [0_u64; 50];
        for version in 1..1500 {
            let index = rng.usize(0..current.len());
            let key = format!("t{thread}/{index}").into_bytes();
            match rng.u8(0..20) {
                0..10 => {
                    let value = content::value(&key, version, any_length(rng));
                    current[index] = version;
                    if !created(rig.store.create(&key, group, &value).wait())? {
                        rig.store.remove(&key).map_err(|e| e.to_string())?;
                        current[index] = 0;
                    }
                }
                10 => {
                    rig.store.remove(&key).map_err(|e| e.to_string())?;
                    current[index] = 0;
                }
                11 if rng.u8(0..20) == 0 => {
                    rig.store.purge_group(group).map_err(|e| e.to_string())?;
                    current = [0; 50];
                }
                12 if rng.u8(0..10) == 0 => rig.store.sync().map_err(|e| e.to_string())?,
                13 if rng.u8(0..10) == 0 => rig.store.drop_memory(),
                _ => {
                    let object = rig.store.read(&key).wait().map_err(|e| e.to_string())?;
                    let Some(object) = object else { continue };
                    let seen = content::identify(&key, &object);
                    if seen != Some(current[index]) {
                        let key = String::from_utf8_lossy(&key).into_owned();
                        return Err(format!("{key}: saw {seen:?}, not {}", current[index]));
                    }
                }
            }
        }
        Ok(())
    })?;
    rig.store.clone().close().map_err(|e| e.to_string())
}

#[test]
fn threads_on_their_own_keys_see_what_they_wrote() {
    watched("threads_on_their_own_keys_see_what_they_wrote", own_keys);
}

const SHARED_KEYS: usize = 12;

/// Writers of a key take turns; readers do not. A reader never sees less than what was
/// acknowledged before it began. Bit 0 of a floor tells that this version is a removal.
struct Shared {
    floors: Vec<(Mutex<()>, AtomicU64)>,
    versions: AtomicU64,
}

impl Shared {
    fn write(&self, store: &Store, rng: &mut fastrand::Rng) -> Result<(), String> {
        let index = rng.usize(0..SHARED_KEYS);
        let key = format!("shared/{index}").into_bytes();
        let (turn, floor) = &self.floors[index];
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.versions.fetch_add(2, Ordering::SeqCst);
        if rng.u8(0..5) == 0 {
            store.remove(&key).map_err(|e| e.to_string())?;
            floor.store(version | 1, Ordering::SeqCst);
        } else {
            let value = content::value(&key, version, any_length(rng));
            let group = GroupId::new(rng.u64(0..3));
            if created(store.create(&key, group, &value).wait())? {
                floor.store(version, Ordering::SeqCst);
            }
        }
        Ok(())
    }

    /// Without a turn: what the writers do meanwhile stands.
    fn set_metadata(store: &Store, rng: &mut fastrand::Rng) -> Result<(), String> {
        let key = format!("shared/{}", rng.usize(0..SHARED_KEYS)).into_bytes();
        match store.set_metadata(&key, b"new").wait() {
            Ok(_) | Err(MetadataError::Superseded | MetadataError::StillWriting { .. }) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn read(&self, store: &Store, rng: &mut fastrand::Rng) -> Result<(), String> {
        let index = rng.usize(0..SHARED_KEYS);
        let key = format!("shared/{index}").into_bytes();
        let floor = self.floors[index].1.load(Ordering::SeqCst);
        let Some(object) = store.read(&key).wait().map_err(|e| e.to_string())? else {
            return Ok(());
        };
        match content::identify(&key, &object) {
            Some(version) if version >= floor => Ok(()),
            seen => Err(format!("shared/{index}: saw {seen:?} after {floor} was acknowledged")),
        }
    }
}

fn shared_keys(seed: u64) -> Result<(), String> {
    let rig = rig(|_| ())?;
    let floors = (0..SHARED_KEYS).map(|_| (Mutex::new(()), AtomicU64::new(0))).collect();
    let shared = Shared { floors, versions: AtomicU64::new(2) };
    on_threads(4, |thread| {
        let rng = &mut fastrand::Rng::with_seed(seed * 100 + thread);
        for _ in 0..2500 {
            match rng.u8(0..100) {
                0 => rig.store.drop_memory(),
                1 => rig.store.sync().map_err(|e| e.to_string())?,
                2..35 => shared.write(&rig.store, rng)?,
                35..50 => Shared::set_metadata(&rig.store, rng)?,
                _ => shared.read(&rig.store, rng)?,
            }
        }
        Ok(())
    })
}

#[test]
fn readers_of_shared_keys_never_go_back_in_time() {
    watched("readers_of_shared_keys_never_go_back_in_time", shared_keys);
}

/// What may happen while slow readers hold most of the memory.
fn full(error: &str) -> bool {
    error == CreateError::MemoryFull.to_string() || error == ReadError::MemoryFull.to_string()
}

const MEMORY_BYTES: u64 = 16 << 20;
/// Beyond budget and index: stacks of threads, rings, buffers of this test, allocator slack.
const OVERHEAD_BYTES: u64 = 12 << 20;

fn holder(store: &Store, stop: &AtomicBool, seed: u64) -> Result<(), String> {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let mut held: Vec<(Vec<u8>, Object)> = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let key = format!("k{}", rng.u32(0..600)).into_bytes();
        match store.read(&key).wait() {
            Ok(Some(object)) => held.push((key, object)),
            Ok(None) => {}
            Err(error) if full(&error.to_string()) => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(error.to_string()),
        }
        if held.len() > 900 || rng.u8(0..200) == 0 {
            for (key, object) in held.drain(..) {
                content::identify(&key, &object).ok_or("a held guard changed")?;
            }
        }
    }
    Ok(())
}

fn creator(store: &Store, end: Instant, seed: u64) -> Result<u64, String> {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let (mut version, mut refused) = (1, 0);
    while Instant::now() < end {
        let key = format!("k{}", rng.u32(0..600)).into_bytes();
        let value = content::value(&key, version, rng.u64(8..40_000));
        match store.create(&key, GroupId::new(rng.u64(0..20)), &value).wait() {
            Ok(()) => version += 1,
            Err(error) if full(&error.to_string()) => refused += 1,
            Err(error) => return Err(error.to_string()),
        }
    }
    if version == 1 { Err("not one create succeeded".into()) } else { Ok(refused) }
}

fn slow_guards(seed: u64, when_full: WhenMemoryFull) -> Result<(), String> {
    let before = resident_bytes();
    let rig = rig(|config| {
        config.memory = ByteSize::new(MEMORY_BYTES);
        config.volumes[0].size = Some(ByteSize::new(40 << 20));
        config.when_memory_full = when_full;
        config.memory_wait = Duration::from_millis(100);
    })?;
    let (stop, end) = (AtomicBool::new(false), Instant::now() + Duration::from_secs(3));
    let peak = AtomicU64::new(0);
    on_threads(4, |thread| {
        if thread < 2 {
            return holder(&rig.store, &stop, seed * 10 + thread);
        }
        let result = creator(&rig.store, end, seed * 10 + thread);
        peak.fetch_max(resident_bytes().unwrap_or(0), Ordering::SeqCst);
        stop.store(true, Ordering::SeqCst);
        result.map(|_| ())
    })?;
    // All guards are gone: everything works again.
    rig.store.create(b"after", GroupId::new(1), &[7; 50_000]).wait().map_err(|e| e.to_string())?;
    let bound = MEMORY_BYTES * 105 / 100 + rig.store.info().index_bytes + OVERHEAD_BYTES;
    let grown = peak.load(Ordering::SeqCst).saturating_sub(before.unwrap_or(u64::MAX));
    if grown > bound {
        return Err(format!("memory grew by {grown} bytes, at most {bound} were declared"));
    }
    Ok(())
}

#[test]
fn guards_that_hold_memory_make_creates_wait_but_never_lock_up() {
    watched("guards_that_hold_memory_make_creates_wait_but_never_lock_up", |seed| {
        slow_guards(seed, WhenMemoryFull::Wait)
    });
}

#[test]
fn guards_that_hold_memory_make_creates_fail_but_never_lock_up() {
    watched("guards_that_hold_memory_make_creates_fail_but_never_lock_up", |seed| {
        slow_guards(seed, WhenMemoryFull::Refuse)
    });
}

/// All memory is held, and then one guard after the other is let go by another thread.
fn all_held(_: u64) -> Result<(), String> {
    let rig = rig(|config| config.memory_wait = Duration::from_secs(20))?;
    let mut held = Vec::new();
    for i in 0..400_u64 {
        let key = format!("k{i}").into_bytes();
        let made = rig.store.create(&key, GroupId::new(1), &content::value(&key, i, 9_000));
        made.wait().map_err(|e| e.to_string())?;
        // Each takes a frame of 16 KiB; half of the budget is left for the store to work with.
        if held.len() < 128 {
            held.extend(rig.store.read(&key).wait().map_err(|e| e.to_string())?.map(|o| (i, o)));
        }
    }
    let held = Arc::new(Mutex::new(held));
    on_threads(3, |thread| {
        if thread > 0 {
            for i in 0..200_u64 {
                let key = format!("t{thread}-{i}").into_bytes();
                let made = rig.store.create(&key, GroupId::new(2), &[1; 20_000]);
                made.wait().map_err(|e| e.to_string())?;
            }
            return Ok(());
        }
        loop {
            std::thread::sleep(Duration::from_millis(2));
            let guard = held.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some((version, object)) = guard else { return Ok(()) };
            let key = format!("k{version}").into_bytes();
            if content::identify(&key, &object) != Some(version) {
                return Err(format!("the held guard of k{version} changed"));
            }
        }
    })
}

#[test]
fn creates_wait_for_guards_and_then_go_on() {
    watched("creates_wait_for_guards_and_then_go_on", all_held);
}

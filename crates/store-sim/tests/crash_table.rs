//! The crash points of `CRASH_POINTS.md`, each executed: steps, a crash at every disk event of the
//! last step and right after it, by kill and by loss of power, and what may then be answered.
//!
//! The expectations here are written by hand and do not use the model, so that table and model
//! check each other. `DAMELO_SIM_POINT=R2` runs one row.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use damelo::{
    ByteSize, Config, CreateOptions, Durability, GroupId, ReadError, Store, Writer, WriterOptions,
};
use damelo_store_sim::harness::guarded;
use damelo_store_sim::scenario::tiny_config;
use damelo_store_sim::{CrashKind, SimClock, SimDisk, SimOptions, SimWorld, content};

/// One row: what may be answered when the crash comes [during, after] the last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CrashPoint {
    id: &'static str,
    durability: &'static str,
    steps: &'static str,
    kill: [&'static str; 2],
    power: [&'static str; 2],
}

#[rustfmt::skip]
const CRASH_POINTS: &[CrashPoint] = &[
    CrashPoint { id: "C1",  durability: "flushed", steps: "create a 1",                                                        kill: ["1 or miss",       "1 or miss"      ], power: ["1 or miss",       "1 or miss"      ] },
    CrashPoint { id: "C2",  durability: "flushed", steps: "create a 1, sync",                                                  kill: ["1 or miss",       "1"              ], power: ["1 or miss",       "1"              ] },
    CrashPoint { id: "C3",  durability: "none",    steps: "create a 1, sync, create a 2",                                      kill: ["1, 2 or miss",    "1, 2 or miss"   ], power: ["1, 2 or miss",    "1, 2 or miss"   ] },
    CrashPoint { id: "C4",  durability: "flushed", steps: "create a 1, sync, create a 2",                                      kill: ["1, 2 or miss",    "2 or miss"      ], power: ["1, 2 or miss",    "1, 2 or miss"   ] },
    CrashPoint { id: "C5",  durability: "synced",  steps: "create a 1, sync, create a 2",                                      kill: ["1, 2 or miss",    "2 or miss"      ], power: ["1, 2 or miss",    "2 or miss"      ] },
    CrashPoint { id: "C6",  durability: "none",    steps: "create a 1, sync, create a 2, sync",                                kill: ["1, 2 or miss",    "2"              ], power: ["1, 2 or miss",    "2"              ] },
    CrashPoint { id: "C7",  durability: "flushed", steps: "create a 1, sync, create a 2, sync",                                kill: ["2 or miss",       "2"              ], power: ["1, 2 or miss",    "2"              ] },
    CrashPoint { id: "C8",  durability: "synced",  steps: "create a 1, sync, create a 2, sync",                                kill: ["2 or miss",       "2"              ], power: ["2 or miss",       "2"              ] },
    CrashPoint { id: "C9",  durability: "flushed", steps: "create a 1, sync, create a 2, create a 3",                                 kill: ["2, 3 or miss",    "3 or miss"      ], power: ["1, 2, 3 or miss", "1, 2, 3 or miss"] },
    CrashPoint { id: "C10", durability: "synced",  steps: "create a 1, sync, create a 2, create a 3",                                 kill: ["2, 3 or miss",    "3 or miss"      ], power: ["2, 3 or miss",    "3 or miss"      ] },
    CrashPoint { id: "C11", durability: "flushed", steps: "create a 1, sync, create a 2, create a 3, sync",                           kill: ["3 or miss",       "3"              ], power: ["1, 2, 3 or miss", "3"              ] },
    CrashPoint { id: "C12", durability: "synced",  steps: "create a 1, sync, create a 2, sync, create a 3",                           kill: ["2, 3 or miss",    "3 or miss"      ], power: ["2, 3 or miss",    "3 or miss"      ] },
    CrashPoint { id: "C13", durability: "flushed", steps: "create a 1, sync, create a 2, refresh a 3, create a 4",                    kill: ["2, 2m3, 4 or miss","4 or miss"      ], power: ["1, 2, 2m3, 4 or miss","1, 2, 2m3, 4 or miss"] },
    CrashPoint { id: "C14", durability: "flushed", steps: "create a 1, sync, create a 2, remove a, create a 3",                       kill: ["3 or miss",       "3 or miss"      ], power: ["1, 2, 3 or miss", "1, 2, 3 or miss"] },
    CrashPoint { id: "C15", durability: "flushed", steps: "create a 1, sync, create a 2, checkpoint, create a 3, sync",               kill: ["3 or miss",       "3"              ], power: ["2, 3 or miss",    "3"              ] },
    CrashPoint { id: "C16", durability: "flushed", steps: "create a 1, sync, create a 2, create a 3, checkpoint",                     kill: ["3 or miss",       "3"              ], power: ["1, 2, 3 or miss", "3"              ] },
    CrashPoint { id: "R1",  durability: "none",    steps: "create a 1, sync, remove a",                                        kill: ["1 or miss",       "1 or miss"      ], power: ["1 or miss",       "1 or miss"      ] },
    CrashPoint { id: "R2",  durability: "flushed", steps: "create a 1, sync, remove a",                                        kill: ["1 or miss",       "miss"           ], power: ["1 or miss",       "1 or miss"      ] },
    CrashPoint { id: "R3",  durability: "synced",  steps: "create a 1, sync, remove a",                                        kill: ["1 or miss",       "miss"           ], power: ["1 or miss",       "miss"           ] },
    CrashPoint { id: "R4",  durability: "flushed", steps: "create a 1, sync, remove a, sync",                                  kill: ["miss",            "miss"           ], power: ["1 or miss",       "miss"           ] },
    CrashPoint { id: "R5",  durability: "flushed", steps: "create a 1, sync, remove a, create a 2",                            kill: ["2 or miss",       "2 or miss"      ], power: ["1, 2 or miss",    "1, 2 or miss"   ] },
    CrashPoint { id: "R6",  durability: "synced",  steps: "create a 1, sync, remove a, create a 2, sync",                      kill: ["2 or miss",       "2"              ], power: ["2 or miss",       "2"              ] },
    CrashPoint { id: "R7",  durability: "synced",  steps: "create a 1, remove a, sync",                                        kill: ["miss",            "miss"           ], power: ["miss",            "miss"           ] },
    CrashPoint { id: "R8",  durability: "flushed", steps: "create a 1, sync, remove a, sync removes",                                    kill: ["miss",            "miss"           ], power: ["1 or miss",       "miss"           ] },
    CrashPoint { id: "P1",  durability: "flushed", steps: "create a 1, sync, purge group",                                     kill: ["1 or miss",       "miss"           ], power: ["1 or miss",       "1 or miss"      ] },
    CrashPoint { id: "P2",  durability: "synced",  steps: "create a 1, sync, purge group",                                     kill: ["1 or miss",       "miss"           ], power: ["1 or miss",       "miss"           ] },
    CrashPoint { id: "P3",  durability: "flushed", steps: "create a 1, sync, purge prefix",                                    kill: ["1 or miss",       "miss"           ], power: ["1 or miss",       "1 or miss"      ] },
    CrashPoint { id: "P4",  durability: "synced",  steps: "create a 1, sync, purge prefix",                                    kill: ["1 or miss",       "miss"           ], power: ["1 or miss",       "miss"           ] },
    CrashPoint { id: "P5",  durability: "flushed", steps: "create a 1, sync, purge all",                                       kill: ["1 or miss",       "miss"           ], power: ["1 or miss",       "1 or miss"      ] },
    CrashPoint { id: "P6",  durability: "synced",  steps: "create a 1, sync, purge all",                                       kill: ["1 or miss",       "miss"           ], power: ["1 or miss",       "miss"           ] },
    CrashPoint { id: "P7",  durability: "synced",  steps: "create a 1, sync, purge all, create a 2, sync",                     kill: ["2 or miss",       "2"              ], power: ["2 or miss",       "2"              ] },
    CrashPoint { id: "P8",  durability: "synced",  steps: "create a 1, sync, purge group, create b 1, sync",                   kill: ["miss",            "miss"           ], power: ["miss",            "miss"           ] },
    CrashPoint { id: "M1",  durability: "flushed", steps: "create a 1, sync, metadata a 2",                                    kill: ["1, 1m2 or miss",  "1, 1m2 or miss" ], power: ["1, 1m2 or miss",  "1, 1m2 or miss" ] },
    CrashPoint { id: "M2",  durability: "flushed", steps: "create a 1, sync, metadata a 2, sync",                              kill: ["1, 1m2 or miss",  "1m2"            ], power: ["1, 1m2 or miss",  "1m2"            ] },
    CrashPoint { id: "M3",  durability: "synced",  steps: "create a 1, sync, metadata a 2, sync, remove a",                    kill: ["1m2 or miss",     "miss"           ], power: ["1m2 or miss",     "miss"           ] },
    CrashPoint { id: "M4",  durability: "flushed", steps: "create a 1, sync, refresh a 2",                              kill: ["1 or 1m2",        "1 or 1m2"       ], power: ["1 or 1m2",        "1 or 1m2"       ] },
    CrashPoint { id: "M5",  durability: "flushed", steps: "create a 1, sync, refresh a 2, sync",                        kill: ["1 or 1m2",        "1m2"            ], power: ["1 or 1m2",        "1m2"            ] },
    CrashPoint { id: "M6",  durability: "flushed", steps: "create a 1, sync, refresh a 2, create a 2",                  kill: ["1, 2 or miss",    "2 or miss"      ], power: ["1, 2 or miss",    "1, 2 or miss"   ] },
    CrashPoint { id: "M7",  durability: "synced",  steps: "create a 1, sync, refresh a 2, remove a",                    kill: ["1 or miss",       "miss"           ], power: ["1 or miss",       "miss"           ] },
    CrashPoint { id: "M8",  durability: "synced",  steps: "create a 1, sync, refresh a 2, sync, refresh a 1, remove a", kill: ["1m2 or miss",     "miss"           ], power: ["1m2 or miss",     "miss"           ] },
    CrashPoint { id: "M9",  durability: "flushed", steps: "create a 1, sync, refresh a 2, kill",                        kill: ["1",               "1"              ], power: ["1",               "1"              ] },
    CrashPoint { id: "W1",  durability: "flushed", steps: "hold a 1",                                                          kill: ["miss",            "miss"           ], power: ["miss",            "miss"           ] },
    CrashPoint { id: "W2",  durability: "flushed", steps: "create a 1, sync, hold a 2",                                        kill: ["1",               "1"              ], power: ["1",               "1"              ] },
    CrashPoint { id: "W3",  durability: "flushed", steps: "create a 1, sync, hold a 2, commit",                                kill: ["1, 2 or miss",    "2 or miss"      ], power: ["1, 2 or miss",    "1, 2 or miss"   ] },
    CrashPoint { id: "W4",  durability: "flushed", steps: "hold a 1, commit, sync",                                            kill: ["1 or miss",       "1"              ], power: ["1 or miss",       "1"              ] },
    CrashPoint { id: "B1",  durability: "flushed", steps: "create big 1",                                                      kill: ["1 or miss",       "1 or miss"      ], power: ["1 or miss",       "1 or miss"      ] },
    CrashPoint { id: "B2",  durability: "flushed", steps: "create big 1, sync",                                                kill: ["1 or miss",       "1"              ], power: ["1 or miss",       "1"              ] },
    CrashPoint { id: "B3",  durability: "flushed", steps: "create big 1, sync, create big 2",                                  kill: ["1, 2 or miss",    "2 or miss"      ], power: ["1, 2 or miss",    "1, 2 or miss"   ] },
    CrashPoint { id: "B4",  durability: "synced",  steps: "create big 1, sync, remove big",                                    kill: ["1 or miss",       "miss"           ], power: ["1 or miss",       "miss"           ] },
    CrashPoint { id: "B5",  durability: "flushed", steps: "create big 1, sync, metadata big 2, sync",                          kill: ["1, 1m2 or miss",  "1m2"            ], power: ["1, 1m2 or miss",  "1m2"            ] },
    CrashPoint { id: "B6",  durability: "flushed", steps: "create big 1, sync, refresh big 2",                          kill: ["1 or 1m2",        "1 or 1m2"       ], power: ["1 or 1m2",        "1 or 1m2"       ] },
    CrashPoint { id: "B7",  durability: "flushed", steps: "create big 1, sync, refresh big 2, sync",                    kill: ["1 or 1m2",        "1m2"            ], power: ["1 or 1m2",        "1m2"            ] },
    CrashPoint { id: "K1",  durability: "flushed", steps: "create a 1, sync, checkpoint",                                      kill: ["1",               "1"              ], power: ["1",               "1"              ] },
    CrashPoint { id: "K2",  durability: "synced",  steps: "create a 1, sync, remove a, checkpoint",                            kill: ["miss",            "miss"           ], power: ["miss",            "miss"           ] },
    CrashPoint { id: "K3",  durability: "flushed", steps: "create a 1, sync, checkpoint, create a 2, sync, checkpoint",        kill: ["2",               "2"              ], power: ["2",               "2"              ] },
    CrashPoint { id: "K4",  durability: "synced",  steps: "create a 1, sync, checkpoint, remove a, create b 1, checkpoint",    kill: ["miss",            "miss"           ], power: ["miss",            "miss"           ] },
    CrashPoint { id: "K5",  durability: "flushed", steps: "create a 1, sync, refresh a 2, checkpoint",                  kill: ["1 or 1m2",        "1m2"            ], power: ["1 or 1m2",        "1m2"            ] },
    CrashPoint { id: "F1",  durability: "flushed", steps: "create a 1, sync, fill",                                            kill: ["1 or miss",       "1 or miss"      ], power: ["1 or miss",       "1 or miss"      ] },
    CrashPoint { id: "F2",  durability: "synced",  steps: "create a 1, sync, remove a, fill",                                  kill: ["miss",            "miss"           ], power: ["miss",            "miss"           ] },
    CrashPoint { id: "F3",  durability: "synced",  steps: "create a 1, sync, create a 2, fill",                                kill: ["2 or miss",       "2 or miss"      ], power: ["2 or miss",       "2 or miss"      ] },
    CrashPoint { id: "F4",  durability: "flushed", steps: "create big 1, sync, fill",                                          kill: ["1 or miss",       "1 or miss"      ], power: ["1 or miss",       "1 or miss"      ] },
    CrashPoint { id: "F5",  durability: "flushed", steps: "create a 1, sync, refresh a 2, fill",                        kill: ["1, 1m2 or miss",  "1, 1m2 or miss" ], power: ["1, 1m2 or miss",  "1, 1m2 or miss" ] },
    CrashPoint { id: "X1",  durability: "flushed", steps: "create a 1, close",                                                 kill: ["1 or miss",       "1"              ], power: ["1 or miss",       "1"              ] },
    CrashPoint { id: "X2",  durability: "flushed", steps: "create a 1, sync, close",                                           kill: ["1",               "1"              ], power: ["1",               "1"              ] },
    CrashPoint { id: "X3",  durability: "flushed", steps: "create a 1, sync, remove a, close",                                 kill: ["miss",            "miss"           ], power: ["1 or miss",       "miss"           ] },
    CrashPoint { id: "X4",  durability: "flushed", steps: "create a 1, sync, refresh a 2, close",                       kill: ["1 or 1m2",        "1m2"            ], power: ["1 or 1m2",        "1m2"            ] },
    CrashPoint { id: "T1",  durability: "flushed", steps: "create a 1, sync, kill",                                            kill: ["1",               "1"              ], power: ["1",               "1"              ] },
    CrashPoint { id: "T2",  durability: "flushed", steps: "create a 1, sync, remove a, kill",                                  kill: ["miss",            "miss"           ], power: ["1 or miss",       "1 or miss"      ] },
    CrashPoint { id: "T3",  durability: "synced",  steps: "create a 1, sync, remove a, kill, create b 1, kill",                kill: ["miss",            "miss"           ], power: ["miss",            "miss"           ] },
    CrashPoint { id: "T4",  durability: "flushed", steps: "create a 1, sync, close, kill, create a 2, sync, kill",             kill: ["2",               "2"              ], power: ["2",               "2"              ] },
    CrashPoint { id: "T5",  durability: "synced",  steps: "create a 1, sync, purge all, kill, checkpoint, kill",               kill: ["miss",            "miss"           ], power: ["miss",            "miss"           ] },
    CrashPoint { id: "T6",  durability: "flushed", steps: "create a 1, sync, close, kill, create b 1, sync",                   kill: ["1",               "1"              ], power: ["1",               "1"              ] },
    CrashPoint { id: "T7",  durability: "synced",  steps: "create a 1, sync, close, kill, remove a",                           kill: ["1 or miss",       "miss"           ], power: ["1 or miss",       "miss"           ] },
    CrashPoint { id: "T8",  durability: "synced",  steps: "create a 1, sync, close, kill, remove a, kill, create b 1, sync",   kill: ["miss",            "miss"           ], power: ["miss",            "miss"           ] },
    CrashPoint { id: "T9",  durability: "synced",  steps: "create a 1, sync, close, kill, create a 2, sync",                   kill: ["2 or miss",       "2"              ], power: ["2 or miss",       "2"              ] },
    CrashPoint { id: "T10", durability: "synced",  steps: "create a 1, sync, close, kill, remove a, close",                    kill: ["miss",            "miss"           ], power: ["miss",            "miss"           ] },
    CrashPoint { id: "T11", durability: "flushed", steps: "create a 1, sync, close, kill, close, kill, fill",                  kill: ["1 or miss",       "1 or miss"      ], power: ["1 or miss",       "1 or miss"      ] },
];

const VOLUME_BYTES: u64 = 6 << 20;
/// Objects that `fill` writes: about one and a half times the ring.
const FILL_OBJECTS: u64 = 300;
const FILL_BYTES: u64 = 20_000;
/// Crash images per event, since a loss of power has many outcomes.
const IMAGES_PER_EVENT: u64 = 4;
/// Events tried of a step that has more.
const EVENTS_MAX: u64 = 24;

/// A machine with an open store on it, between two steps.
struct Bench {
    config: Config,
    world: SimWorld,
    store: Option<Store>,
    writer: Option<Writer>,
}

type Checked<T> = Result<T, String>;

fn text<E: std::error::Error>(error: E) -> String {
    damelo_store_sim::driver::chain(&error)
}

fn config(durability: &str) -> Config {
    let mut config = tiny_config(5);
    config.volumes[0].size = Some(ByteSize::new(VOLUME_BYTES));
    config.flush_period = Duration::ZERO;
    config.checkpoint_period = Duration::ZERO;
    config.durability = match durability {
        "none" => Durability::None,
        "flushed" => Durability::Flushed,
        "synced" => Durability::Synced,
        other => panic!("durability {other}"),
    };
    config
}

fn open(config: &Config, world: &SimWorld) -> Checked<Store> {
    let store = Store::open_on(config.clone(), world.devices(), world.clock()).map_err(text)?;
    store.wait_recovered();
    Ok(store)
}

fn world(disks: &[SimDisk]) -> SimWorld {
    SimWorld::start(disks, &SimOptions::new(11), Arc::new(SimClock::new()))
}

fn length(key: &str) -> u64 {
    if key == "big" { 350_000 } else { 3_000 }
}

impl Bench {
    fn new(durability: &str) -> Checked<Bench> {
        let (config, world) = (config(durability), world(&[SimDisk::blank(VOLUME_BYTES)]));
        let store = Some(open(&config, &world)?);
        Ok(Bench { config, world, store, writer: None })
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("no step after close but kill")
    }

    fn create(&self, key: &str, version: u64, length: u64) -> Checked<()> {
        let key = key.as_bytes();
        let value = content::value(key, version, length);
        let metadata = content::metadata(key, version, 20);
        let options = CreateOptions { metadata: &metadata, expires_unix_s: None };
        self.store().create_with(key, GroupId::of("g"), &value, options).wait().map_err(text)
    }

    fn hold(&mut self, key: &str, version: u64) -> Checked<()> {
        let (name, length) = (key.as_bytes(), length(key));
        let options = WriterOptions {
            metadata: content::metadata(name, version, 20),
            expires_unix_s: None,
            length: None,
        };
        let mut writer = self.store().writer(name, GroupId::of("g"), options).map_err(text)?;
        writer.write(&content::value(name, version, length)).wait().map_err(text)?;
        self.writer = Some(writer);
        Ok(())
    }

    fn kill(&mut self) -> Checked<()> {
        let disks = self.world.crash(CrashKind::Kill, 1);
        self.writer = None;
        self.store = None;
        self.world = world(&disks);
        self.store = Some(open(&self.config, &self.world)?);
        Ok(())
    }

    fn step(&mut self, step: &str) -> Checked<()> {
        let words: Vec<&str> = step.split(' ').collect();
        match words[..] {
            ["create", key, version] => self.create(key, number(version), length(key)),
            ["hold", key, version] => self.hold(key, number(version)),
            ["commit"] => self.writer.take().expect("held").commit().wait().map_err(text),
            ["remove", key] => self.store().remove(key.as_bytes()).map_err(text).map(|_| ()),
            [how @ ("metadata" | "refresh"), key, version] => {
                let metadata = content::metadata(key.as_bytes(), number(version), 20);
                let set = match how {
                    "refresh" => self.store().refresh_metadata(key.as_bytes(), &metadata),
                    _ => self.store().set_metadata(key.as_bytes(), &metadata),
                };
                match set.wait() {
                    Ok(true) => Ok(()),
                    other => Err(format!("{how}: {other:?}")),
                }
            }
            ["purge", "group"] => self.store().purge_group(GroupId::of("g")).map_err(text),
            ["purge", "prefix"] => self.store().purge_prefix(b"a").map_err(text),
            ["purge", "all"] => self.store().purge_all().map_err(text),
            ["sync"] => self.store().sync().map_err(text),
            ["sync", "removes"] => self.store().sync_removes().map_err(text),
            ["checkpoint"] => self.store().checkpoint().map_err(text),
            ["close"] => self.store.take().expect("open").close().map_err(text),
            ["fill"] => {
                (0..FILL_OBJECTS).try_for_each(|i| self.create(&format!("f{i}"), 1, FILL_BYTES))
            }
            ["kill"] => self.kill(),
            _ => Err("unknown step".into()),
        }
        .map_err(|e| format!("step `{step}`: {e}"))
    }
}

fn number(word: &str) -> u64 {
    word.parse().expect("a version")
}

/// The answers of a cell such as `1, 2 or miss`.
fn answers(cell: &str) -> BTreeSet<String> {
    cell.replace(" or ", ", ").split(", ").map(str::to_owned).collect()
}

/// Value and metadata of a key, streamed, since `big` is more than one piece of memory.
fn read(store: &Store, key: &[u8]) -> Checked<Option<(Vec<u8>, Vec<u8>)>> {
    let Some(mut reader) = store.reader(key).wait().map_err(text)? else { return Ok(None) };
    let metadata = reader.info().metadata.to_vec();
    let mut value = Vec::new();
    loop {
        match reader.next().wait() {
            Ok(Some(chunk)) => value.extend_from_slice(&chunk),
            Ok(None) => return Ok(Some((value, metadata))),
            // A part was damaged by the crash: as good as a miss.
            Err(ReadError::Gone) => return Ok(None),
            Err(error) => return Err(text(error)),
        }
    }
}

/// Where a value is that of which version.
fn wrong_bytes(key: &[u8], value: &[u8]) -> String {
    let step = 4096;
    let length = value.len() as u64;
    let blocks = || (0..length.div_ceil(step as u64)).map(|i| i * step as u64);
    let pieces = value.chunks(step).enumerate().map(|(i, piece)| {
        let is = |v, at| content::value_matches(key, v, length, at, piece);
        match [1, 2].into_iter().find(|&v| is(v, (i * step) as u64)) {
            Some(version) => version.to_string(),
            // From another place of a version, or from nowhere.
            None => [1, 2]
                .into_iter()
                .find_map(|v| Some(format!("[{v}@{}]", blocks().find(|&at| is(v, at))?)))
                .unwrap_or_else(|| "?".to_owned()),
        }
    });
    format!("wrong bytes, by block of {step}: {}", pieces.collect::<String>())
}

/// Names what the store answers for `key` as the table does.
fn answer(store: &Store, key: &str) -> Checked<String> {
    let name = key.as_bytes();
    let Some((value, metadata)) = read(store, name)? else { return Ok("miss".into()) };
    if value.len() as u64 != length(key) {
        return Err(format!("{} bytes instead of {}", value.len(), length(key)));
    }
    let version = content::identify(name, &value).ok_or_else(|| wrong_bytes(name, &value))?;
    let known = [version, 1, 2, 3]
        .into_iter()
        .find(|&v| metadata == content::metadata(name, v, 20))
        .ok_or("wrong metadata")?;
    let suffix = if known == version { String::new() } else { format!("m{known}") };
    Ok(format!("{version}{suffix}"))
}

fn check(bench: &Bench, at: u64, kind: CrashKind, key: &str, cell: &str) -> Checked<()> {
    let allowed = answers(cell);
    for image in 0..IMAGES_PER_EVENT {
        let world = world(&bench.world.crash_at(at, kind, image * 1000 + at));
        let seen = open(&bench.config, &world).and_then(|store| {
            let first = answer(&store, key)?;
            store.drop_memory();
            let second = answer(&store, key)?;
            if first != second && second != "miss" {
                return Err(format!("first {first}, then {second}"));
            }
            // Where the object is promised, it is promised from disk too.
            Ok([first, second])
        });
        let seen = seen.map_err(|e| format!("{kind:?} before tick {at}, image {image}: {e}"))?;
        if let Some(wrong) = seen.iter().find(|&s| !allowed.contains(s)) {
            return Err(format!("{kind:?} before tick {at}, image {image}: `{wrong}`, not {cell}"));
        }
    }
    Ok(())
}

fn run(point: CrashPoint) -> Checked<()> {
    let mut bench = Bench::new(point.durability)?;
    let steps: Vec<&str> = point.steps.split(", ").collect();
    let (last, first) = steps.split_last().expect("at least one step");
    first.iter().try_for_each(|step| bench.step(step))?;
    // A step that is a crash starts a new world, whose events start from nothing.
    let begin = if *last == "kill" { 0 } else { bench.world.now() };
    bench.step(last)?;
    let end = bench.world.now();
    let key = steps[0].split(' ').nth(1).expect("the first step names the key");
    let stride = (end - begin).div_ceil(EVENTS_MAX).max(1);
    for (kind, [during, after]) in [(CrashKind::Kill, point.kill), (CrashKind::Power, point.power)]
    {
        for at in (begin..end).step_by(stride as usize) {
            check(&bench, at, kind, key, during).map_err(|e| format!("during `{last}`: {e}"))?;
        }
        check(&bench, end, kind, key, after).map_err(|e| format!("after `{last}`: {e}"))?;
    }
    Ok(())
}

#[test]
fn every_row_holds() {
    let only = std::env::var("DAMELO_SIM_POINT").ok();
    let mut failures = Vec::new();
    for &point in CRASH_POINTS.iter().filter(|p| only.as_ref().is_none_or(|id| id == p.id)) {
        if let Err(error) = guarded(Duration::from_secs(60), move || run(point)) {
            failures.push(format!(
                "{} ({}, {}): {error}\n  replay: DAMELO_SIM_POINT={} cargo test -p damelo-store-sim \
                 --test crash_table",
                point.id, point.steps, point.durability, point.id
            ));
        }
    }
    assert!(failures.is_empty(), "{} rows fail:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn the_document_shows_this_table() {
    let document = include_str!("../CRASH_POINTS.md");
    let table = document.split("\n## ").next().expect("the part before the first heading");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .map(|line| line.trim_matches(['|', ' ']).split(" | ").map(str::trim).collect())
        .collect();
    let expected: Vec<Vec<&str>> = CRASH_POINTS
        .iter()
        .map(|p| vec![p.id, p.durability, p.steps, p.kill[0], p.kill[1], p.power[0], p.power[1]])
        .collect();
    for (row, expected) in rows.iter().zip(&expected) {
        assert_eq!(row, expected);
    }
    assert_eq!(rows.len(), expected.len());
}

//! What a program can ask an open store about itself: its sizes, its volumes, its warnings.
//!
//! A copy of the moment at which it was asked. Threads: any.

use std::path::PathBuf;
use std::time::Duration;

use crate::engine::Engine;
use crate::format::UNIT_BYTES;
use crate::space::Volume;
use crate::types::ByteSize;

/// An index of which this share of the slots is in use pushes out objects.
const FULL_PERCENT: u64 = 97;
/// It is too small if what it knows takes no more of the disk than this: full rings hold dead
/// objects, too.
const SPARE_PERCENT: u64 = 60;

/// Facts about an open store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreInfo {
    /// Made when the store was formatted.
    pub store_id: [u8; 16],
    /// Bytes that move as one.
    pub page_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Segments of all volumes.
    pub segments: u64,
    /// Objects the index has room for.
    pub objects_max: u64,
    /// Largest object: `object_bytes_max`, or less on small volumes or segments. No object takes
    /// more than half of the segments, since all of it must be there when its end is written, and
    /// others with it. Less where key or metadata are large.
    pub object_bytes_max: u64,
    /// Memory of the index and all tables beside it, in bytes.
    pub index_bytes: u64,
    /// Memory for data, in bytes.
    pub memory_bytes: u64,
    /// Its volumes, in order.
    pub volumes: Vec<VolumeInfo>,
    /// What should be known by whoever runs it: what was found at open, and, as of now, why a
    /// volume is out of service, one that does not answer, and an index that is too small.
    pub warnings: Vec<String>,
    /// True if it was made by this open.
    pub created: bool,
}

/// Facts about a volume of an open store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct VolumeInfo {
    /// File or device.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// What performs its I/O.
    pub io_engine: &'static str,
    /// True if the page cache is bypassed.
    pub direct: bool,
    /// True for a disk with seeks.
    pub seeks: bool,
    /// False once it is out of service, after repeated errors mostly.
    pub in_service: bool,
    /// Why it is out of service; `None` while it is not.
    pub out_because: Option<String>,
    /// For how long it has answered no read; `None` unless it is not asked for that
    /// ([`Config::answer_wait`](crate::Config::answer_wait)).
    pub unanswering_for: Option<Duration>,
}

impl StoreInfo {
    pub(super) fn of(engine: &Engine) -> StoreInfo {
        let first = &engine.space.volumes[0].superblock;
        let tables = engine.ring.memory_bytes() + engine.page_groups.memory_bytes();
        StoreInfo {
            store_id: first.store_id,
            page_bytes: engine.space.page_bytes,
            segment_bytes: engine.space.segment_bytes,
            segments: u64::from(engine.space.segments),
            objects_max: engine.index.slots(),
            object_bytes_max: engine.length_max(),
            index_bytes: engine.index.memory_bytes() + tables as u64,
            memory_bytes: engine.config.memory.bytes(),
            volumes: engine.space.volumes.iter().map(|v| VolumeInfo::of(engine, v)).collect(),
            warnings: engine
                .warnings
                .iter()
                .cloned()
                .chain(engine.space.volumes_out())
                .chain(engine.space.volumes.iter().filter_map(|v| not_answering(engine, v)))
                .chain(full_index(engine))
                .collect(),
            created: engine.created,
        }
    }
}

/// Says so where the index is full long before the disk is.
fn full_index(engine: &Engine) -> Option<String> {
    let (objects, slots) = (engine.index.len(), engine.index.slots());
    let disk = u64::from(engine.space.segments) * engine.space.segment_bytes;
    let units = (0..engine.space.segments).map(|segment| engine.index.units_in(segment));
    let held = units.sum::<u64>() * UNIT_BYTES;
    if objects * 100 < slots * FULL_PERCENT || held * 100 > disk * SPARE_PERCENT {
        return None;
    }
    let wanted = (u128::from(objects) * u128::from(disk) / u128::from(held.max(1))) as u64;
    Some(format!(
        "the index is full: its {objects} objects take {}% of the disk, and a new one pushes out another; \
         made anew for {wanted} objects (objects_max, --objects) it would use all of it, for {} of memory",
        held * 100 / disk,
        ByteSize::new(wanted * 8),
    ))
}

/// Says so of a volume that does not answer.
fn not_answering(engine: &Engine, volume: &Volume) -> Option<String> {
    let silent = engine.space.silent_for(volume)?;
    let (path, seconds) = (volume.path.display(), silent.as_secs());
    Some(format!("{path} has answered no read for {seconds} s, and is not asked until it does"))
}

impl VolumeInfo {
    fn of(engine: &Engine, volume: &Volume) -> VolumeInfo {
        let info = volume.device.info();
        let out_because = volume.out_because().map(str::to_owned);
        VolumeInfo {
            path: volume.path.clone(),
            size_bytes: volume.superblock.volume_bytes,
            io_engine: info.io_engine,
            direct: info.direct,
            seeks: info.seeks,
            in_service: out_because.is_none(),
            out_because,
            unanswering_for: engine.space.silent_for(volume),
        }
    }
}

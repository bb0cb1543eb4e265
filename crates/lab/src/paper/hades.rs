//! Hades against the cache of an OpenAFS client (Konsta and Anastasiadis 2009, figures 4 to 6).
//!
//! Files of four sizes are read at the proxy: in parallel with a cold and a warm disk cache, and one
//! after the other warm. A source tree is built by one client and by four. Threads: one user.

use super::beside;
use super::{Exhibit, PaperError, PaperOptions, Published, in_what};
use crate::design::{AFS_MAP_US, Context, DesignOptions, HADES_MAP_US, find};
use crate::disk::{Drive, Scheduler};
use crate::fs::FfsParams;
use crate::machine::{Machine, MachineConfig, Report, RunOptions, run as play};
use crate::request::{Catalogue, Op, Request};

/// A file size of §4.2: bytes, files of each user, users, files of the sequential mode.
const SIZES: [(&str, u64, u64, u32, u64); 4] = [
    ("100 KB", 100 << 10, 1_000, 2, 1_000),
    ("1 MB", 1 << 20, 500, 2, 500),
    ("100 MB", 100 << 20, 1, 5, 1),
    ("1 GB", 1 << 30, 1, 5, 1),
];

const CACHE_BYTES: u64 = 16 << 30;

fn config(scale: u32) -> MachineConfig {
    let drive = Drive::named("sata-7200-2009").expect("a drive of the registry");
    MachineConfig {
        scheduler: Scheduler::OneWayElevator,
        // Linux 2.6.18: reads ahead 128 KB; half of the 2 GB are buffers.
        files: FfsParams {
            cluster_bytes: 128 << 10,
            ..FfsParams::ext2(4 << 10, (1 << 30) / u64::from(scale))
        },
        ..MachineConfig::new(drive)
    }
}

fn requests(files: u64, users: u32, bytes: u64, first: u64) -> Vec<Request> {
    let request = |i: u64| Request {
        time_us: 0,
        client: (i % u64::from(users)) as u32,
        key: first + i,
        size_bytes: bytes,
        host: 0,
        op: Op::Read,
    };
    (0..files * u64::from(users)).map(request).collect()
}

/// The three modes of §4.2 for one design and size.
struct Modes {
    parallel_cold: Report,
    parallel_warm: Report,
    sequential_warm: Report,
}

fn measure(
    name: &str,
    bytes: u64,
    files: u64,
    users: u32,
    sequential: u64,
    scale: u32,
) -> Result<Modes, PaperError> {
    // Users share the gigabit to the server.
    let fetch_us = DesignOptions::default().fetch_us * users;
    let options = DesignOptions {
        cache_bytes: CACHE_BYTES,
        memory_bytes: STORE_MEMORY_BYTES / u64::from(scale),
        fetch_us,
        ..DesignOptions::default()
    };
    let config = config(scale);
    let context = Context { options: &options, requests: &[], drive: &config.drive };
    let mut design = (find(name).expect("a design of the registry").make)(&context);
    let mut machine = Machine::new(&config);
    let names = Catalogue::new();
    let cold = RunOptions { clients: users, cold_start: true, ..RunOptions::default() };
    let mut mode = |requests: &[Request], options| {
        play(&mut *design, &mut machine, requests, &names, options).map_err(in_what("hades"))
    };
    let parallel = requests(files, users, bytes, 0);
    let parallel_cold = mode(&parallel, cold)?;
    let parallel_warm = mode(&parallel, cold)?;
    let one: Vec<Request> =
        parallel.iter().filter(|r| r.client == 0).take(sequential as usize).copied().collect();
    let sequential_warm = mode(&one, RunOptions { clients: 1, ..cold })?;
    Ok(Modes { parallel_cold, parallel_warm, sequential_warm })
}

fn rate(report: &Report) -> f64 {
    report.read_bytes as f64 / 1e6 / (report.elapsed_ns.max(1) as f64 / 1e9)
}

/// What a user waits for a block of 4 KB.
fn block_ms(report: &Report, users: u32) -> f64 {
    let blocks = (report.read_bytes / 4_096).max(1) as f64;
    report.elapsed_ns as f64 / 1e6 * f64::from(users) / blocks
}

/// What a user waits of that for the tables and for the origin: both are assumptions of the lab, for each chunk.
fn assumed_ms(bytes: u64, users: u32, map_us: u32) -> f64 {
    let options = DesignOptions::default();
    let chunks = bytes.div_ceil(options.hades.chunk_bytes) as f64;
    let blocks = (bytes as f64 / 4_096.0).max(1.0);
    chunks * f64::from(options.fetch_us * users + map_us) / 1e3 / blocks
}

const WHY_LATENCY: &str = "Of a cold read the paper shows mapping, fetching and copying. The lab assumes the first two, for each chunk, \
so that only what is left is measured: the share of the proxy's disk, nearly nothing while files fit in memory and most of it at \
5 GB. A warm read waits for nothing but the disk, as in the paper. That parallel readers wait as many times as long as one, the paper's two or five, is so \
where the disk's time is shared alike. In the lab small files cost a seek each whoever reads, so that two users wait as long as one, and of large files one reader needs hardly any seek \
and five need many; the paper's single reader is bound by the client's code instead.";

const WHY: &str = "Cold reads are bounded by the link to the server, which is shared. The lab reads with the disk's speed; the paper's blocks go through kernel and user space of an \
OpenAFS client, which limits both systems to a quarter of what the disk could give, so rates are higher here \
and small differences in layout show less or more. What comes out is the order and its reason: chunks \
in files of their own cost an inode, a directory lookup and a seek each, chunks in a proxy file cost none. \
Where the modelled ext2 happens to lay cache files down one behind the other, a single reader of a large \
file gains little.";

/// Measures figures 4, 5 and 6.
pub(super) fn run(options: &PaperOptions<'_>) -> Result<Vec<Exhibit>, PaperError> {
    let mut throughput = Exhibit::new("figure 4", "Block read rate at the proxy", WHY);
    let mut latency = Exhibit::new("figure 5", "Block read latency at the proxy", WHY_LATENCY);
    let (mut best_gain, mut best_cut) = (0.0_f64, 0.0_f64);
    let mut tables = Vec::new();
    let scale = options.scale_down;
    for (label, bytes, files, users, sequential) in SIZES {
        let bytes = if bytes > 1 << 20 { bytes / u64::from(scale) } else { bytes };
        let files = (files / u64::from(scale)).max(1);
        let afs = measure("afs", bytes, files, users, sequential, scale)?;
        let hades = measure("hades", bytes, files, users, sequential, scale)?;
        let modes = [
            ("Par/Cd", &afs.parallel_cold, &hades.parallel_cold, users),
            ("Par/Wm", &afs.parallel_warm, &hades.parallel_warm, users),
            ("Seq/Wm", &afs.sequential_warm, &hades.sequential_warm, 1),
        ];
        for (mode, afs, hades, users) in modes {
            let (published_afs, published_hades) = published(label, mode);
            throughput.row(format!("{label} {mode}, OpenAFS"), "MB/s", published_afs, rate(afs));
            throughput.row(format!("{label} {mode}, Hades"), "MB/s", published_hades, rate(hades));
            best_gain = best_gain.max(100.0 * (rate(hades) / rate(afs) - 1.0));
            let (theirs, ours) = (block_ms(afs, users), block_ms(hades, users));
            latency.row(format!("{label} {mode}, OpenAFS"), "ms", Published::Picture, theirs);
            latency.row(format!("{label} {mode}, Hades"), "ms", Published::Picture, ours);
            best_cut = best_cut.max(100.0 * (1.0 - ours / theirs));
        }
        for (system, modes, map_us) in
            [("OpenAFS", &afs, AFS_MAP_US), ("Hades", &hades, HADES_MAP_US)]
        {
            let share =
                1.0 - assumed_ms(bytes, users, map_us) / block_ms(&modes.parallel_cold, users);
            let what = format!("{label} Par/Cd, {system}: of it the disk");
            latency.row(what, "%", Published::Picture, 100.0 * share);
            let (many, one) =
                (block_ms(&modes.parallel_warm, users), block_ms(&modes.sequential_warm, 1));
            let what = format!("{label}, {system}: Par/Wm over Seq/Wm");
            latency.row(what, "times", Published::Value(f64::from(users)), many / one);
        }
        if bytes <= STORE_BYTES_MAX {
            let store = measure("store", bytes, files, users, sequential, scale)?;
            let rows = [
                ("OpenAFS".to_owned(), &afs.parallel_warm),
                ("Hades".to_owned(), &hades.parallel_warm),
                ("store".to_owned(), &store.parallel_warm),
            ];
            let workload = format!("{label} Par/Wm");
            tables.push(beside::exhibit(&workload, &rows, WHY_STORE));
        }
    }
    throughput.row("largest gain of Hades", "%", Published::Value(80.0), best_gain);
    latency.row("largest cut by Hades", "%", Published::Value(59.0), best_cut);
    tables.splice(0..0, [throughput, latency, network(options)?, build(options)?]);
    Ok(tables)
}

/// Larger files come to a store in chunks; the lab's requests are whole files.
const STORE_BYTES_MAX: u64 = 1 << 20;
/// A store has its own memory, which a cold start does not empty: it is given little.
const STORE_MEMORY_BYTES: u64 = 16 << 20;

const WHY_STORE: &str = "Ours alone. OpenAFS and Hades read through a file system with its caches emptied before; the \
store has 16 MB of memory of its own, less than a tenth of the files, so that nearly all is read from the disk.";

fn published(size: &str, mode: &str) -> (Published, Published) {
    match (size, mode) {
        ("100 KB", "Par/Cd") => (Published::Value(9.56), Published::Value(11.74)),
        ("100 KB", "Seq/Wm") => (Published::Value(17.42), Published::Picture),
        ("1 GB", "Seq/Wm") => (Published::Picture, Published::Value(25.15)),
        _ => (Published::Picture, Published::Picture),
    }
}

/// What a build reads: small files, some to a directory.
fn tree(options: &PaperOptions<'_>) -> Vec<Request> {
    let files = TREE_FILES / u64::from(options.scale_down);
    let mut rng = fastrand::Rng::with_seed(options.seed);
    (0..files)
        .map(|key| {
            let size_bytes = ((-(1.0 - rng.f64()).ln() * 11_000.0) as u64).max(200);
            let host = (key / 17) as u32;
            Request { time_us: 0, client: 0, key, size_bytes, host, op: Op::Read }
        })
        .collect()
}

/// The kernel 2.6.18 has about as many.
const TREE_FILES: u64 = 19_000;
/// Clients of the larger builds (§4.3).
const CLIENTS: u32 = 4;
/// Round trip to the distant origin (§4.3).
const DISTANCE_US: u32 = 50_000;

/// Clients that read the same tree at the same time through a proxy whose cache is empty.
fn build_once(
    name: &str,
    tree: &[Request],
    scale: u32,
    clients: u32,
    fetch_us: u32,
    compute_us: u32,
) -> Result<Report, PaperError> {
    let config = config(scale);
    let options = DesignOptions { cache_bytes: CACHE_BYTES, fetch_us, ..DesignOptions::default() };
    let context = Context { options: &options, requests: &[], drive: &config.drive };
    let mut design = (find(name).expect("a design of the registry").make)(&context);
    let mut machine = Machine::new(&config);
    let each =
        |r: &Request| (0..clients).map(|client| Request { client, ..*r }).collect::<Vec<_>>();
    let requests: Vec<Request> = tree.iter().flat_map(each).collect();
    let options = RunOptions { clients, compute_us, ..RunOptions::default() };
    play(&mut *design, &mut machine, &requests, &Catalogue::new(), options)
        .map_err(in_what("hades's build"))
}

/// Figure 6 (a): what a build sends over the network.
fn network(options: &PaperOptions<'_>) -> Result<Exhibit, PaperError> {
    let (tree, scale) = (tree(options), options.scale_down);
    let fetch_us = DesignOptions::default().fetch_us;
    let mb = |bytes: u64| bytes as f64 * f64::from(scale) / 1e6;
    // What the origin sends is what the proxy has not; what the proxy sends is what is asked of it.
    let sent = |name: &str, clients| {
        let report = build_once(name, &tree, scale, clients, fetch_us, 0)?;
        Ok::<_, PaperError>((mb(report.read_bytes - report.hit_bytes), mb(report.read_bytes)))
    };
    let mut table = Exhibit::new("figure 6 (a)", "Bytes of files sent for a build", WHY_NETWORK);
    // Without a proxy each client has an OpenAFS cache of its own, and fills it: four are four times one
    // by that alone, which is nothing that could be measured.
    let (one, _) = sent("afs", 1)?;
    table.row("OO 1, origin", "MB", Published::Picture, one);
    for (system, name) in [("OON", "afs"), ("OHN", "hades")] {
        let (origin_one, proxy_one) = sent(name, 1)?;
        let (origin_four, proxy_four) = sent(name, CLIENTS)?;
        table.row(format!("{system} 1, origin"), "MB", Published::Picture, origin_one);
        table.row(format!("{system} 1, proxy"), "MB", Published::Picture, proxy_one);
        table.row(format!("{system} 4, origin"), "MB", Published::Picture, origin_four);
        table.row(format!("{system} 4, proxy"), "MB", Published::Picture, proxy_four);
        let label = format!("{system}, origin, four clients over one");
        table.row(label, "times", Published::Value(1.0), origin_four / origin_one);
    }
    Ok(table)
}

const WHY_NETWORK: &str = "Contents of files only, each client asking for each file once. What NFS and AFS say besides \
(names, attributes, callbacks) is not modelled, nor are four clients without a proxy (OO 4), whose four caches are filled from \
the origin each, so the paper's other result, that NFS sends more than four times what OpenAFS does \
for one client, is not there: contents alone are the same on both sides of the proxy. The paper's 4D, four clients 50 ms from the origin, is \
as 4: distance takes time and no bytes.";

/// Figure 6 (b): a build reads a source tree through a cold proxy. Computing takes so much that the
/// build over OpenAFS takes the paper's time.
fn build(options: &PaperOptions<'_>) -> Result<Exhibit, PaperError> {
    let (tree, scale) = (tree(options), options.scale_down);
    let near_us = DesignOptions::default().fetch_us;
    let run = |name: &str, clients, fetch_us, compute_us| {
        let report = build_once(name, &tree, scale, clients, fetch_us, compute_us)?;
        Ok::<_, PaperError>(report.elapsed_ns as f64 / 1e9 * f64::from(scale))
    };
    let free_s = run("afs", 1, near_us, 0)?;
    let per_file_us = (2_315.0 - free_s).max(0.0) * 1e6 / tree.len() as f64 / f64::from(scale);
    let compute_us = per_file_us as u32;
    let mut table =
        Exhibit::new("figure 6 (b)", "Building a source tree through a cold proxy", WHY_BUILD);
    let [afs, hades] = ["afs", "hades"].map(|name| run(name, 1, near_us, compute_us));
    let (afs, hades) = (afs?, hades?);
    table.row("OpenAFS (fitted)", "s", Published::Value(2_315.0), afs);
    table.row("Hades", "s", Published::Value(2_119.0), hades);
    table.row("Hades saves", "%", Published::Value(8.5), 100.0 * (1.0 - hades / afs));
    for (label, fetch_us) in [("4", near_us), ("4D", near_us + DISTANCE_US)] {
        for (system, name) in [("OpenAFS", "afs"), ("Hades", "hades")] {
            let seconds = run(name, CLIENTS, fetch_us, compute_us)?;
            table.row(format!("{system}, {label}"), "s", Published::Picture, seconds);
        }
    }
    Ok(table)
}

const WHY_BUILD: &str = "Synthetic tree of 19,000 small files. Fitted so that OpenAFS takes the paper's time with one client: the tree's files, the \
compiler and NFS are not modelled, nor is the build without a proxy (OO), which is the compiler alone. Of four clients (4; 4D: 50 ms from the origin) \
one waits for each file and the others find it there, so that they share what fetching takes. The gain is smaller than the paper's since the lab charges little for \
OpenAFS's tables, whose cost the paper does not state.";

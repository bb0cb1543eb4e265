//! `rivals fio`: random single-object reads through the asynchronous API with 32 at once, against
//! fio with the same file size, read size and depth.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;

use crate::child::fresh_directory;
use crate::contestant::Outcome;
use crate::counters::Counters;
use crate::damelo_store::Damelo;
use crate::drive;
use crate::machine::{Machine, output_of};
use crate::report::{self, median};
use crate::settings::size;
use crate::workload::{Ordering, Workload};

/// Part of the disk that is filled, in percent: the rest is the ring's free space.
const FILL_PERCENT: u64 = 80;
/// fio's read sizes are multiples of this.
const BLOCK_BYTES: u64 = 4096;

/// Options of `rivals fio`.
#[derive(Debug, Clone, Args, Serialize)]
pub struct FioOptions {
    /// Bytes in every object.
    #[arg(long, default_value = "8000", value_parser = size)]
    pub object: u64,
    /// Size of the store, and of fio's file.
    #[arg(long, default_value = "1GiB", value_parser = size)]
    pub disk: u64,
    /// Memory of the store: small, so that reads come from disk.
    #[arg(long, default_value = "16MiB", value_parser = size)]
    pub memory: u64,
    /// Reads at once.
    #[arg(long, default_value_t = 32)]
    pub depth: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
    /// Rounds, store and fio in turn; figures are medians.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Where to put the store and fio's file.
    #[arg(long, default_value = "/var/tmp/damelo-rivals")]
    pub dir: std::path::PathBuf,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    /// Also keep the run in a new directory DATE-HOST below this one.
    #[arg(long)]
    pub out: Option<std::path::PathBuf>,
}

/// One round.
#[derive(Debug, Clone, Serialize)]
struct Round {
    /// Object reads a second.
    objects_per_s: f64,
    /// Objects a second that did not come from memory. Not the device's counter: others use the
    /// device too, and their reads must not count as ours.
    disk_objects_per_s: f64,
    /// Bytes this process had fetched for each of those.
    bytes_per_read: f64,
    /// Share of the objects that came from memory.
    from_memory: f64,
    /// fio's reads a second of one object's size.
    fio_reads_per_s: f64,
    /// The object's size in whole blocks.
    fio_block_bytes: u64,
    /// Objects from disk a second divided by fio's reads of an object's size: the figure that
    /// counts. Reading more than the object counts against the store.
    ratio: f64,
    /// The same against fio with reads as large as the store's were: what is lost in software.
    ratio_same_bytes: f64,
    /// Reads that found nothing, wrong contents or an error.
    bad: u64,
}

/// Everything a run found.
#[derive(Debug, Serialize)]
struct Results<'a> {
    machine: &'a Machine,
    fio_version: String,
    options: &'a FioOptions,
    ratio: f64,
    rounds: Vec<Round>,
}

/// Runs `rivals fio`.
///
/// # Errors
/// If fio is not installed, or the store cannot be opened or filled.
pub fn compare(options: &FioOptions) -> Result<(), Box<dyn Error>> {
    let fio_version = output_of("fio", &["--version"]);
    if fio_version == "unknown" {
        return Err("fio is not installed (Debian: apt-get install fio)".into());
    }
    fresh_directory(&options.dir)?;
    let machine = Machine::look(&options.dir);
    let workload = Workload {
        objects: options.disk * FILL_PERCENT / 100 / options.object,
        groups: 16,
        ordering: Ordering::Random,
        seed: 1,
        fixed_bytes: Some(options.object as usize),
        cache: None,
    };
    let path = options.dir.join("fio-store");
    let store = Damelo::open_unloved(&path, options.memory, options.disk, workload)?;
    fill(&store, workload)?;
    let rounds = (0..options.rounds)
        .map(|round| one_round(options, &store, workload, round as u64))
        .collect::<Result<Vec<_>, _>>()?;
    let ratio = median(rounds.iter().map(|r| r.ratio).collect()).unwrap_or(0.0);
    let results = Results { machine: &machine, fio_version, options, ratio, rounds };
    print(&results)?;
    drop(store);
    Ok(fresh_directory(&options.dir)?)
}

fn fill(store: &Damelo, workload: Workload) -> Result<(), Box<dyn Error>> {
    use crate::contestant::Contestant;
    let mut buffer = vec![0x5a; workload.length(0)];
    for object in 0..workload.objects {
        let group = damelo::GroupId::new(workload.group(object));
        let value = workload.fill(object, &mut buffer);
        store.store().create(&object.to_be_bytes(), group, value).wait()?;
    }
    store.settle();
    Ok(())
}

fn one_round(
    options: &FioOptions,
    store: &Damelo,
    workload: Workload,
    seed: u64,
) -> Result<Round, Box<dyn Error>> {
    store.store().drop_memory();
    drive::drop_kernel_caches();
    let before = Counters::now(None);
    let start = Instant::now();
    let until = start + Duration::from_secs(options.seconds);
    let reads = futures_executor::block_on(read_until(store, workload, options.depth, seed, until));
    let seconds = start.elapsed().as_secs_f64();
    let counted = Counters::now(None).since(before);
    let disk_reads = (reads.done - reads.from_memory) as f64;
    let bytes_per_read = counted.process_read_bytes as f64 / disk_reads.max(1.0);
    let blocks = |bytes: u64| bytes.max(1).next_multiple_of(BLOCK_BYTES);
    let fio_reads_per_s = run_fio(options, blocks(options.object))?;
    let fio_same_bytes = run_fio(options, blocks(bytes_per_read as u64))?;
    Ok(Round {
        objects_per_s: reads.done as f64 / seconds,
        disk_objects_per_s: disk_reads / seconds,
        bytes_per_read,
        from_memory: reads.from_memory as f64 / reads.done.max(1) as f64,
        fio_reads_per_s,
        fio_block_bytes: blocks(options.object),
        ratio: disk_reads / seconds / fio_reads_per_s,
        ratio_same_bytes: disk_reads / seconds / fio_same_bytes,
        bad: reads.bad,
    })
}

#[derive(Default)]
struct Reads {
    done: u64,
    from_memory: u64,
    bad: u64,
}

/// Keeps `depth` reads under way on this one thread until it is time.
async fn read_until(
    store: &Damelo,
    workload: Workload,
    depth: usize,
    seed: u64,
    until: Instant,
) -> Reads {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut under_way = FuturesUnordered::new();
    let mut reads = Reads::default();
    for _ in 0..depth {
        under_way.push(store.read_async(rng.u64(0..workload.objects)));
    }
    while let Some((outcome, from_memory)) = under_way.next().await {
        reads.done += 1;
        reads.from_memory += u64::from(from_memory);
        reads.bad += u64::from(outcome != Outcome::Done);
        if Instant::now() < until {
            under_way.push(store.read_async(rng.u64(0..workload.objects)));
        }
    }
    reads
}

/// fio's random reads a second on a written file of the store's size.
fn run_fio(options: &FioOptions, block: u64) -> Result<f64, Box<dyn Error>> {
    let file = options.dir.join("fio-file");
    lay_out(&file, options.disk)?;
    let output = Command::new("fio")
        .args(["--name=rivals", "--rw=randread", "--direct=1", "--ioengine=io_uring"])
        .args(["--time_based", "--norandommap", "--output-format=json", "--readonly"])
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--size={}", options.disk))
        .arg(format!("--bs={block}"))
        .arg(format!("--iodepth={}", options.depth))
        .arg(format!("--runtime={}", options.seconds))
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').map_or("", |at| &text[at..]);
    let found: serde_json::Value = serde_json::from_str(json)
        .map_err(|_| format!("fio failed: {}", String::from_utf8_lossy(&output.stderr)))?;
    found["jobs"][0]["read"]["iops"].as_f64().ok_or_else(|| "fio printed no figure".into())
}

/// Writes fio's file once, whole: reads of blocks never written would not reach the disk.
fn lay_out(file: &Path, bytes: u64) -> std::io::Result<()> {
    if std::fs::metadata(file).is_ok_and(|m| m.len() == bytes) {
        return Ok(());
    }
    let mut from = std::io::Read::take(std::io::repeat(0x5a), bytes);
    let mut to = std::io::BufWriter::with_capacity(1 << 20, std::fs::File::create(file)?);
    std::io::copy(&mut from, &mut to)?;
    to.into_inner()?.sync_all()?;
    drive::drop_kernel_caches();
    Ok(())
}

fn print(results: &Results<'_>) -> Result<(), Box<dyn Error>> {
    let head = [
        "objects/s",
        "from disk/s",
        "B/read",
        "memory hits",
        "fio reads/s",
        "fio B",
        "ratio",
        "ratio, same bytes",
        "bad",
    ];
    let body: Vec<Vec<String>> = results
        .rounds
        .iter()
        .map(|r| {
            vec![
                format!("{:.0}", r.objects_per_s),
                format!("{:.0}", r.disk_objects_per_s),
                format!("{:.0}", r.bytes_per_read),
                format!("{:.1}%", r.from_memory * 100.0),
                format!("{:.0}", r.fio_reads_per_s),
                r.fio_block_bytes.to_string(),
                format!("{:.2}", r.ratio),
                format!("{:.2}", r.ratio_same_bytes),
                r.bad.to_string(),
            ]
        })
        .collect();
    let mut text = report::table(&head.map(str::to_owned), &body);
    text.push_str(&format!(
        "\nMedian: {:.2} of {} at depth {}.\n",
        results.ratio, results.fio_version, results.options.depth
    ));
    match results.options.json {
        true => println!("{}", serde_json::to_string_pretty(results)?),
        false => print!("{text}"),
    }
    if let Some(base) = &results.options.out {
        let kept = report::keep(base, results.machine, results, &text)?;
        eprintln!("kept in {}", kept.display());
    }
    Ok(())
}

//! Runs every design over a trace and prints what the disks did and how fast the lab was:
//! `cargo run --release -p damelo-lab --example designs -- TRACE.csv.zst [DRIVE] [DESIGN]`

mod support;

use std::time::Instant;

use damelo_lab::design::{Context, DesignOptions, REGISTRY};
use damelo_lab::disk::{Direction, Drive};
use damelo_lab::machine::{Machine, MachineConfig, RunOptions, run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let trace = args.next().ok_or("a trace is needed")?;
    let drive = args.next().unwrap_or_else(|| "atlas-10k-tripled".to_owned());
    let only = args.next();
    let drive = Drive::named(&drive).ok_or("no such drive")?;
    let (requests, names) = support::read_trace(&trace)?;
    let config = MachineConfig::new(drive);
    let options = DesignOptions { cache_bytes: 4 << 30, ..DesignOptions::default() };
    let disk_bytes = config.drive.size_bytes();
    println!(
        "{:14} {:>7} {:>9} {:>9} {:>10} {:>10}",
        "design", "hit %", "reads", "writes", "virtual s", "req/s"
    );
    for entry in &REGISTRY {
        if only.as_ref().is_some_and(|name| name != entry.name) {
            continue;
        }
        let context = Context { options: &options, requests: &requests, disk_bytes };
        let mut design = (entry.make)(&context);
        let mut machine = Machine::new(&config);
        let begun = Instant::now();
        let report = run(&mut *design, &mut machine, &requests, &names, RunOptions::default())?;
        let rate = requests.len() as f64 / begun.elapsed().as_secs_f64();
        println!(
            "{:14} {:7.2} {:9} {:9} {:10.1} {:10.0}",
            entry.name,
            report.hit_percent(),
            report.io.requests_of(Direction::Read),
            report.io.requests_of(Direction::Write),
            report.elapsed_ns as f64 / 1e9,
            rate
        );
    }
    Ok(())
}

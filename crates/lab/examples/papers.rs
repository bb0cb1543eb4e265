//! Prints the tables of the papers: `cargo run --release -p damelo-lab --example papers -- all|PAPER
//! [TRACE.csv.zst|-] [DIVISOR] [DIRECTORY|DEVICE]`: the divisor makes the papers' workloads smaller; the
//! directory is where their designs run on real disks as well.

mod support;

use std::time::Instant;

use damelo_lab::paper::{PAPERS, PaperOptions, Trace, run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let only = args.first().map_or("all", String::as_str);
    let trace = args
        .get(1)
        .filter(|path| *path != "-")
        .map(|path| support::read_trace(path))
        .transpose()?;
    let scale_down = args.get(2).map_or(Ok(1), |n| n.parse())?;
    let trace = trace.as_ref().map(|(requests, names)| Trace { name: "given", requests, names });
    let real = args.get(3).map(std::path::Path::new);
    let options = PaperOptions { seed: 1, trace, scale_down, real };
    for (name, paper) in PAPERS {
        if only != "all" && only != name {
            continue;
        }
        let begun = Instant::now();
        for table in run(paper, &options)? {
            println!("{table}");
        }
        eprintln!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
    }
    Ok(())
}

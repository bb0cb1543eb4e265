//! `damelo bench` without a network: small runs of each benchmark, what they print and leave
//! behind.

use super::*;

#[test]
fn bench_micro_prints_fifteen_objects() {
    let bed = Bed::empty();
    let text = bed.ok_text(&[
        "bench",
        "micro",
        "--objects",
        "800",
        "--size",
        "4KiB",
        "--groups",
        "8",
        "--threads",
        "2",
        "--memory",
        "4MiB",
        "--disk",
        "64MiB",
        "--verify",
        "--against",
        ".",
        "--json",
    ]);
    let benchmarks: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(benchmarks.len(), 15);
    for benchmark in &benchmarks {
        for side in ["store", "files"] {
            let side = &benchmark[side];
            assert_eq!(side["operations"], 800, "{benchmark}");
            assert!(side["operations_per_second"].as_f64().unwrap() > 0.0);
            for none in ["wrong", "missing", "failed"] {
                assert_eq!(side[none], 0, "{benchmark}");
            }
        }
        // Of every stage, creates too; and what only reads have.
        let store = &benchmark["store"];
        let number = |name: &str| store[name].as_f64().unwrap_or_else(|| panic!("{name} {store}"));
        assert!(number("p50_us") > 0.0 && number("p50_us") <= number("p99_us"), "{store}");
        assert!(number("mean_us") > 0.0 && number("p99_us") <= number("max_us"), "{store}");
        for counted in ["reads", "read_bytes", "writes", "write_bytes"] {
            number(counted);
        }
        match benchmark["stage"].as_str() {
            Some("create") => assert_eq!(store["lost"], 0, "{benchmark}"),
            Some("read") => {
                assert!(number("hit_rate") > 0.0 && number("disk_reads_per_object") > 0.0);
            }
            _ => assert!(store["hit_rate"].is_null(), "{store}"),
        }
        assert!(benchmark["ratio"]["operations_per_second"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(std::fs::read_dir(bed.dir.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn bench_micro_refuses_to_overwrite() {
    let bed = Bed::new();
    bed.put("k", b"v", &[]);
    bed.fails(3, &["bench", "micro", "--path", &bed.store()]);
    assert_eq!(bed.keys(&[]), ["k"]);
}

/// Not filled beside what is there, into an index of another size.
#[test]
fn what_force_gives_up_is_emptied() {
    let bed = Bed::new();
    bed.put("k", b"v", &[]);
    let (path, sizes) = (bed.store(), ["--objects", "100000", "--memory", "8MiB"]);
    for benchmark in ["index", "open"] {
        let args = ["bench", benchmark, "--path", &path, "--force", "--json"];
        let text = bed.ok_text(&[&args[..], &sizes].concat());
        for line in text.lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            let lost = [&value["lost"], &value["lost_before"]].into_iter().find(|one| one.is_u64());
            assert_eq!(lost, Some(&0.into()), "{value}");
        }
        bed.ok(&["format", &path, "--size", "64MiB"]);
    }
}

#[test]
fn bench_micro_says_that_the_disk_is_too_small_by_the_options_it_has() {
    let bed = Bed::empty();
    let said = bed.fails(2, &["bench", "micro", "--disk", "1KiB", "--objects", "800"]);
    assert!(said.contains("--disk 1KiB is too small for 800 objects"), "{said}");
}

#[test]
fn bench_wrap_refuses_what_measures_nothing() {
    let bed = Bed::empty();
    for (option, value, words) in [
        ("--turns", "0", "0 is not in 1..=1000000"),
        ("--turns", "18446744073709551615", "is not in 1..=1000000"),
        ("--zipf", "nan", "--zipf must be from 0 to 10"),
        ("--zipf", "inf", "--zipf must be from 0 to 10"),
    ] {
        let said = bed.fails(2, &["bench", "wrap", "--disk", "16MiB", option, value]);
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn the_other_benchmarks_end() {
    let bed = Bed::empty();
    let hits = bed.ok_text(&[
        "bench",
        "hits",
        "--objects",
        "64",
        "--seconds",
        "1",
        "--threads",
        "1",
        "--json",
    ]);
    let hits: Value = serde_json::from_str(hits.trim()).unwrap();
    assert!(hits["hits_per_second"].as_f64().unwrap() > 0.0 && hits["not_from_memory"] == 0);
    let random = bed.json(&[
        "bench",
        "randread",
        "--objects",
        "4096",
        "--seconds",
        "1",
        "--memory",
        "4MiB",
        "--json",
    ]);
    assert!(random["ratio"].as_f64().unwrap() > 0.0 && random["missing"] == 0, "{random}");
    let index = bed.json(&["bench", "index", "--objects", "5000", "--memory", "4MiB", "--json"]);
    assert_eq!(index["lost"], 0);
    let opened = bed.ok_text(&["bench", "open", "--objects", "5000", "--json"]);
    for line in opened.lines() {
        let opened: Value = serde_json::from_str(line).unwrap();
        assert!(opened["first_hit_seconds"].is_number() && opened["missing"] == 0, "{opened}");
    }
    assert_eq!(opened.lines().count(), 2);
    let wrap = bed.json(&["bench", "wrap", "--disk", "64MiB", "--memory", "4MiB", "--json"]);
    assert!(wrap["write_amplification"].as_f64().unwrap() > 0.0 && wrap["wrong"] == 0, "{wrap}");
}

/// The address space is bounded, so that no machine has room for the table.
#[cfg(target_os = "linux")]
#[test]
fn bench_wrap_refuses_more_objects_than_there_is_memory_for() {
    let bed = Bed::empty();
    let run = "ulimit -v 16000000 && exec \"$0\" bench wrap --disk 16MiB --objects 4294967295 --path \"$1\"";
    let output = std::process::Command::new("sh")
        .args(["-c", run, env!("CARGO_BIN_EXE_damelo"), &bed.store()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--objects 4294967295: there is no memory for a table"), "{said}");
}

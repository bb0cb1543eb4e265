//! The papers at a tenth or less of their size: tables are complete, replay, and agree with the
//! papers where they are expected to.

use super::*;
use crate::request::{Op, Request};

fn tables(paper: Paper, scale_down: u32) -> Vec<Exhibit> {
    run(paper, &PaperOptions { scale_down, ..PaperOptions::default() }).expect("runs")
}

fn measured(tables: &[Exhibit], what: &str, label: &str) -> f64 {
    let table = tables.iter().find(|t| t.what == what).expect("the table is there");
    table.rows.iter().find(|r| r.label == label).expect("the row is there").measured
}

fn assert_has(tables: &[Exhibit], expected: &[&str]) {
    for what in expected {
        assert!(tables.iter().any(|t| t.what == *what), "{what} is measured");
    }
    for table in tables {
        assert!(!table.why.is_empty() && !table.rows.is_empty(), "{} is complete", table.what);
        for row in &table.rows {
            assert!(row.measured.is_finite(), "{}: {}", table.what, row.label);
        }
    }
}

#[test]
fn cfs_beats_ext2_in_every_table() {
    let tables = tables(Paper::Cfs, 10);
    assert_has(&tables, &["table 2", "table 3", "table 4", "table 5", "table 6"]);
    assert_eq!(measured(&tables, "table 2", "disk requests of CFS"), 0.0);
    for (table, what) in tables.iter().zip(["Deletes", "Creates", "Reads"]) {
        assert_eq!(table.title, format!("{what} of 5000 files of 1 KB"), "not the paper's 50,000");
    }
    for (layout, of_trace, reads) in [
        ("4,096 directories", "4,096 directories by number", 50.0),
        ("one directory", "a directory for a host", 10.0),
    ] {
        let faster = |table: &str, layout: &str| {
            measured(&tables, table, &format!("CFS faster than ext2 by, {layout}"))
        };
        assert_eq!(faster("table 2", layout), 100.0);
        assert!(faster("table 3", layout) > 50.0, "{layout}");
        assert!(faster("table 4", layout) > reads, "{layout}");
        assert!(faster("table 6", of_trace) > 30.0, "{layout}");
    }
    // A raw write waits for a revolution of 6 ms, as the paper's did.
    let raw_s = measured(&tables, "table 3", "1,000 raw files of 512 bytes (§5.3.1)");
    assert!((5.9..6.1).contains(&raw_s), "{raw_s}");
}

/// What the tables state of slow bursts is so in the model: they are there where access times are
/// written to many places, and neither without access times nor in one directory.
#[test]
fn bursts_of_ext2_depend_on_access_times_and_on_the_layout() {
    let tables = tables(Paper::Cfs, 10);
    let of = |what: &str, layout: &str, times: &str| {
        measured(&tables, "table 5", &format!("{what} of ext2, {layout}{times}"))
    };
    for layout in ["4,096 directories", "one directory"] {
        let without = ", no access times";
        assert_eq!(of("inodes read", layout, ""), of("inodes read", layout, without), "{layout}");
        assert_eq!(of("inodes written", layout, without), 0.0, "{layout}");
        assert!(of("inodes written", layout, "") > 0.0, "{layout}");
        let times = of("slowest read", layout, "") / of("slowest read", layout, without);
        assert_eq!(times > 3.0, layout == "4,096 directories", "{layout}: {times}");
    }
}

#[test]
fn damelo_has_all_figures_and_the_thesis_ratios() {
    let tables = tables(Paper::Damelo, 16);
    let figures: Vec<String> = (4..=25).map(|n| format!("figure {n}")).collect();
    assert_has(&tables, &figures.iter().map(String::as_str).collect::<Vec<_>>());
    let random = measured(&tables, "figure 4", "random, best page faster");
    assert!((1.5..3.5).contains(&random), "twice as fast: {random}");
    let zipf = measured(&tables, "figure 4", "zipf 1:8, best page faster");
    assert!(zipf > random, "grouping helps: {zipf}");
    // Objects of 8 KB on average: at most two of a page of 16 KB are there, one of them asked for.
    assert!(measured(&tables, "figure 6", "random, pages of 16 KB") >= 50.0);
    // The lab's own time is fitted so that ext2 serves what it did: 363 a second.
    let fitted = measured(&tables, "figure 7", "mt-ext2 (fitted)");
    assert!((350.0..376.0).contains(&fitted), "{fitted}");
    let figure = tables.iter().find(|t| t.what == "figure 7").expect("the table is there");
    let published: Vec<Published> = figure.rows.iter().take(3).map(|row| row.published).collect();
    assert_eq!(published, [363.0, 545.0, 617.0].map(Published::Value), "each row of the thesis");
}

/// A curve is of what its row is of: the time of the run shared out to operations, whatever the
/// number of threads.
#[test]
fn curves_of_the_thesis_have_the_mean_of_their_rows() {
    let tables = tables(Paper::Damelo, 16);
    let mean = |series: &Series| {
        series.points.iter().map(|point| point.1).sum::<f64>() / series.points.len() as f64
    };
    let mut curves = 0;
    for table in &tables {
        for row in table.rows.iter().filter(|row| row.label.starts_with("time per operation")) {
            let name = format!("{}, ms", row.label);
            let Some(series) = table.series.iter().find(|series| series.name == name) else {
                continue;
            };
            let (curve, row) = (mean(series), row.measured);
            assert!((curve - row).abs() <= 1e-9 * row, "{}, {name}: {curve} {row}", table.what);
            curves += 1;
        }
    }
    assert_eq!(curves, 9 + 9 * 5, "figures 8 to 25, of ext2 and of five page sizes");
    let figure = tables.iter().find(|table| table.what == "figure 5").expect("the table is there");
    let [ext2, damelo] = [0, 1].map(|index| mean(&figure.series[index]));
    let ratio = measured(&tables, "figure 5", "ext2 slower than 32 KB pages");
    assert!((ext2 / damelo - ratio).abs() < 1e-6, "{ext2} {damelo} {ratio}");
}

#[test]
fn squids_variants_save_in_the_papers_order() {
    let tables = tables(Paper::Squid, 16);
    assert_has(&tables, &["figure 1", "figure 2", "figure 4", "figure 5", "figure 6", "figure 7"]);
    let saves = |name: &str| measured(&tables, "figure 5", &format!("{name} saves of Squid's I/O"));
    // Of the paper's half nothing is left to SquidL where Squid's directories fit in memory, as the
    // paper's did.
    assert!(saves("squidl").abs() < 10.0);
    assert!(saves("squidm") > 30.0);
    assert!(saves("squidml") > saves("squidm"));
    assert!(measured(&tables, "figure 7", "FBC saves of LRU's I/O") > 0.0);
    assert!(measured(&tables, "figure 7", "FBC's hit rate less LRU's") > -1.0);
    let hits = |name: &str| measured(&tables, "figure 7", &format!("{name}, hit rate"));
    assert!(hits("future") > hits("LRU"), "looking ahead is a bound");
    // §5: what is saved of all, divided by one share of small objects for both variants.
    let small = |name: &str| {
        let label = format!("{name} saves of the I/O of small objects (§5)");
        measured(&tables, "figure 5", &label)
    };
    let share = saves("squidm") / small("SquidM");
    assert!((0.7..0.8).contains(&share), "the generator's objects of up to 8 KB: {share}");
    let of_squidl = 100.0 * (1.0 - (100.0 - saves("squidml")) / (100.0 - saves("squidl")));
    assert!((of_squidl / small("SquidML") - share).abs() < 1e-9, "the same share");
}

fn small_days(sizes: &[(u64, u64)], warmup: usize) -> squid::Days {
    let request = |&(key, size_bytes)| {
        let op = Op::Read;
        Request { time_us: 0, client: 0, key, size_bytes, host: 0, op }
    };
    let requests = sizes.iter().map(request).collect();
    squid::Days { requests, warmup, footprint_bytes: 0 }
}

/// The second half begins with the request behind the warm-up, not with the one after that.
#[test]
fn every_request_of_the_second_half_counts() {
    let table = squid::figure_2(&small_days(&[(1, 100), (2, 100)], 1));
    assert_eq!(table.rows[0].measured, 100.0, "the only one, whose host was just asked for");
}

/// Segments one behind the other: 8 KB at 0, 4 KB at 8,192, 8 KB at 12,288, half a KB at 20,480. Of
/// the third 5,000 bytes go from 12,288 to 17,288, over the end of a page at 16,384; the segment of
/// the first ends with its page. One hit of three is of the third.
#[test]
fn objects_across_pages_are_counted_by_their_own_bytes() {
    let sizes = [(1, 5_000), (2, 3_000), (3, 5_000), (4, 200), (1, 5_000), (3, 5_000), (4, 200)];
    let tables = [squid_mapped::of_the_text(&small_days(&sizes, 4))];
    let of = |what: &str| measured(&tables, "§2, §5", &format!("{what} across pages (§5)"));
    assert_eq!(of("cached objects"), 25.0);
    assert!((of("hits of objects") - 100.0 / 3.0).abs() < 1e-9);
}

#[test]
fn ucfs_leads_and_has_all_tables() {
    let tables = tables(Paper::Ucfs, 16);
    assert_has(&tables, &["table 2", "table 3", "table 4", "table 5"]);
    let figures: Vec<String> = (6..=12).map(|n| format!("figure {n}")).collect();
    assert_has(&tables, &figures.iter().map(String::as_str).collect::<Vec<_>>());
    for name in ["SQUID/FFS", "SQUID/FFS-async"] {
        assert!(measured(&tables, "figure 6", &format!("UCFS faster than {name}")) > 2.0, "{name}");
    }
    // "Around" and "about" are the text's words of these (§5.1.2, §5.1.3), and of no others.
    let rows = tables.iter().flat_map(|t| t.rows.iter().map(|row| (t.what.as_str(), row)));
    let rounded = rows.filter(|(_, row)| row.published.kind() == Some("about"));
    let rounded: Vec<(&str, &str)> = rounded.map(|(what, row)| (what, &*row.label)).collect();
    let expected = [
        ("figure 7", "SQUID/FFS"),
        ("figure 8", "UCFS, 6 ms and more"),
        ("figure 8", "SQUID/FFS, 6 to 9 ms"),
        ("figure 8", "SQUID/FFS, 28 ms and more"),
        ("figure 8", "SQUID/FFS-async, 23 ms and more"),
        ("figure 8", "SQUIDML/FFS, under 1 ms"),
        ("figure 9", "SQUIDML/FFS's reads faster than SQUID/FFS's"),
    ];
    assert_eq!(rounded, expected);
}

#[test]
fn hades_reads_faster_from_a_warm_cache() {
    let tables = tables(Paper::Hades, 32);
    assert_has(&tables, &["figure 4", "figure 5", "figure 6 (a)", "figure 6 (b)"]);
    let rate = |label: &str| measured(&tables, "figure 4", label);
    assert!(rate("100 KB Par/Wm, Hades") > rate("100 KB Par/Wm, OpenAFS"));
    assert!(rate("100 MB Par/Wm, Hades") > rate("100 MB Par/Wm, OpenAFS"));
    let latency = |label: &str| measured(&tables, "figure 5", label);
    for (size, users) in [("100 KB", 2.0), ("1 MB", 2.0), ("100 MB", 5.0), ("1 GB", 5.0)] {
        for system in ["OpenAFS", "Hades"] {
            // What is left when the lab's own assumptions are taken off is neither less than
            // nothing nor all.
            let disk = latency(&format!("{size} Par/Cd, {system}: of it the disk"));
            assert!((0.0..100.0).contains(&disk), "{size}, {system}: {disk}%");
            let parts =
                ["Par/Wm", "Seq/Wm"].map(|mode| latency(&format!("{size} {mode}, {system}")));
            let label = format!("{size}, {system}: Par/Wm over Seq/Wm");
            assert!((latency(&label) - parts[0] / parts[1]).abs() < 1e-9);
            let figure = tables.iter().find(|t| t.what == "figure 5").expect("the table is there");
            let row = figure.rows.iter().find(|row| row.label == label).expect("the row");
            assert_eq!(row.published, Published::About(users), "the paper's text");
        }
    }
    let sent = |label: &str| measured(&tables, "figure 6 (a)", label);
    // What is four times another row by the way it is made is no result.
    let figure = tables.iter().find(|t| t.what == "figure 6 (a)").expect("the table is there");
    assert!(figure.rows.iter().all(|row| !row.label.starts_with("OO,")));
    for system in ["OON", "OHN"] {
        let origin = sent(&format!("{system}, origin, four clients over one"));
        assert_eq!(origin, 1.0, "{system}: the proxy fetches each file once");
        // It receives all once, and transmits all to each client: 1 + 1 and 1 + 4.
        for (clients, wanted) in [(1, 2.0), (4, 5.0)] {
            let of = |whose: &str| sent(&format!("{system} {clients}, {whose}"));
            let times = of("proxy") / of("origin");
            assert!((times - wanted).abs() < 1e-9, "{system} {clients}: {times}");
        }
    }
}

#[test]
fn papers_replay() {
    for (name, paper) in [("cfs", Paper::Cfs), ("squid", Paper::Squid)] {
        assert_eq!(tables(paper, 32), tables(paper, 32), "{name}");
        assert_eq!(Paper::named(name), Some(paper));
    }
}

#[test]
fn a_trace_of_nothing_is_an_error() {
    let names = Catalogue::new();
    let one = Request { time_us: 0, client: 0, key: 1, size_bytes: 1, host: 0, op: Op::Read };
    for requests in [&[][..], &[one]] {
        let trace = Some(Trace { name: "short", requests, names: &names });
        let options = PaperOptions { trace, ..PaperOptions::default() };
        for paper in [Paper::Cfs, Paper::Squid, Paper::Ucfs] {
            let error = run(paper, &options).expect_err("too short");
            assert!(error.to_string().contains("use a longer one"), "{error}");
        }
    }
}

/// As far as they can be, papers are scaled down; one more is refused in words, not with a panic or
/// with ratios of nothing.
#[test]
fn what_is_scaled_down_too_far_is_an_error() {
    for paper in [Paper::Squid, Paper::Damelo, Paper::Ucfs, Paper::Hades] {
        let max = paper.scale_down_max(false).expect("a limit");
        let with = |scale_down| run(paper, &PaperOptions { scale_down, ..PaperOptions::default() });
        for given in [max + 1, u32::MAX] {
            let error = with(given).expect_err("too far").to_string();
            assert!(error.contains(&format!("at most {max} for this paper")), "{error}");
        }
        let tables = with(max).expect("as far as it goes");
        let mut rows = tables.iter().flat_map(|table| &table.rows);
        assert!(rows.all(|row| row.measured.is_finite()), "{paper:?}");
    }
    assert!(!tables(Paper::Cfs, u32::MAX).is_empty());
}

/// A row prints both numbers and their ratio.
#[test]
fn tables_print_published_and_measured() {
    let mut table = Exhibit::new("table 9", "An example", "Because.");
    table.row("speed", "MB/s", Published::Range(20.0, 40.0), 15.0);
    let text = table.to_string();
    assert!(text.contains("speed [MB/s]") && text.contains("20 to 40"), "{text}");
    assert!(text.contains("0.50") && text.contains("Because."), "{text}");
}

/// What is left out is printed as that, with its number and the reason.
#[test]
fn tables_say_what_is_not_measured_and_why() {
    let mut table = Exhibit::new("table 9", "An example", "Because.");
    table.row("speed", "MB/s", Published::Value(20.0), 15.0);
    table.not_measured("taste", "1", Published::AtLeast(4.0), "no tongue");
    table.not_measured("smell", "1", Published::Picture, "no tongue");
    table.not_measured("sound", "dB", Published::Picture, "no ear");
    let text = table.to_string();
    let line = text.lines().find(|line| line.contains("taste [1]")).expect("a row");
    assert!(line.contains("over 4") && line.contains("not measured"), "{text}");
    let reasons = ["not measured: taste; smell: no tongue", "not measured: sound: no ear"];
    assert_eq!(table.reasons(), reasons);
    assert!(reasons.iter().all(|reason| text.contains(reason)), "{text}");
    let of = |paper, what: &str| {
        let tables = tables(paper, 32);
        let table = tables.iter().find(|table| table.what == what).expect("the table is there");
        table.not_measured.iter().map(|row| row.label.clone()).collect::<Vec<_>>().join(", ")
    };
    assert!(of(Paper::Hades, "figure 6 (a)").contains("OO 4"));
    assert!(of(Paper::Hades, "figure 6 (b)").contains("OHN 4"));
    assert!(of(Paper::Hades, "figure 5").contains("mapping"));
    assert!(of(Paper::Cfs, "table 2").contains("integer"));
}

/// Whoever counts along knows before how much there is to play, and counts all of it.
#[test]
fn a_rehearsal_counts_what_is_played() {
    for (name, paper) in PAPERS {
        let options = PaperOptions { scale_down: 32, ..PaperOptions::default() };
        let wanted = requests_to_play(paper, &options).expect("goes through");
        let count = PlayCount::default();
        let tables = run(paper, &PaperOptions { played: Some(&count), ..options }).expect("runs");
        assert_eq!(count.requests(), wanted, "{name}");
        assert!(wanted > 10_000 && tables.iter().all(|table| !table.rows.is_empty()), "{name}");
    }
}

/// The store is beside every design in creates, reads and deletes where the paper has them.
#[test]
fn the_store_is_beside_all_stages() {
    let titles = |paper| -> Vec<String> {
        let tables = tables(paper, 32).into_iter().filter(|table| table.what == "store");
        tables
            .map(|table| table.title.replace("Every design and the shipped store, ", ""))
            .collect()
    };
    assert_eq!(
        titles(Paper::Damelo),
        [
            "sequential create",
            "sequential read",
            "sequential delete",
            "random create",
            "random read",
            "random delete",
            "zipf 1:8 read",
            "zipf 1:4 read",
            "zipf 3:8 read",
            "a run like Web Polygraph's (figure 7)",
        ]
    );
    let cfs = titles(Paper::Cfs);
    assert!(cfs[1].starts_with("creates of") && cfs[3].starts_with("deletes of"), "{cfs:?}");
    // Scaled down, 1 GB fits into what is modelled, too.
    let hades = titles(Paper::Hades);
    assert!(hades[2].starts_with("100 MB") && hades[4].starts_with("a source tree"), "{hades:?}");
}

/// What the paper bounds or rounds is not printed as if it were exact, to people and to programs.
#[test]
fn bounds_and_rounded_numbers_are_printed_as_such() {
    let mut table = Exhibit::new("table 9", "An example", "Because.");
    for (published, printed, kind, ends, ratio) in [
        (Published::AtLeast(60.0), "over 60", "at least", (Some(60.0), None), 1.5),
        (Published::About(1.0), "about 1", "about", (Some(1.0), Some(1.0)), 90.0),
        (Published::Value(9.0), "9.00", "value", (Some(9.0), Some(9.0)), 10.0),
    ] {
        table.row("faster by", "%", published, 90.0);
        let row = table.rows.last().expect("the row");
        assert_eq!((row.published.kind(), row.published.ends()), (Some(kind), ends));
        assert_eq!(row.ratio(), Some(ratio), "{printed}");
        assert!(table.table().text().contains(printed), "{table}");
        assert!(table.table().csv().contains(printed), "{table}");
    }
    assert_eq!((Published::Ours.kind(), Published::Picture.ends()), (None, (None, None)));
}

/// The papers' own workloads, with what the paper says of them beside ours; nothing is left behind.
#[test]
fn papers_run_on_real_disks_too() {
    let home = tempfile::tempdir().expect("a directory");
    for (paper, scale_down, title, label, published) in [
        (Paper::Damelo, 64, "sequential", "reads, damelo faster than squid", Published::Value(5.0)),
        (
            Paper::Cfs,
            50,
            "1000 files",
            "deletes, cfs saves of the time of squid",
            Published::AtLeast(95.0),
        ),
        (
            Paper::Ucfs,
            400,
            "requests of a proxy",
            "requests, ucfs faster than squidml",
            Published::Range(3.0, 9.0),
        ),
        (
            Paper::Squid,
            400,
            "requests of a proxy",
            "requests, squidml saves of the time of squid",
            Published::Picture,
        ),
        (Paper::Hades, 64, "files of 100 KB", "Seq/Wm, afs", Published::Value(17.42)),
    ] {
        let options = PaperOptions { scale_down, ..PaperOptions::default() };
        let real = real::run(paper, &options, home.path()).expect("runs");
        let table = real.iter().find(|table| table.title.contains(title)).expect(title);
        assert_eq!(table.what, "real disks");
        let row = table.rows.iter().find(|row| row.label == label).expect(label);
        assert_eq!(row.published, published, "{label}");
        let times = table.rows.iter().filter(|row| row.label.ends_with(", time"));
        assert!(times.clone().count() >= 3 && times.into_iter().all(|row| row.measured > 0.0));
    }
    assert_eq!(std::fs::read_dir(home.path()).expect("readable").count(), 0, "nothing is left");
}

//! What every generator promises, and the figures that each one's paper gives.

use std::collections::{HashMap, HashSet};

use super::*;
use crate::trace::{Filter, trace_stat};

#[derive(Debug, Clone, PartialEq)]
struct Kept {
    time_us: u64,
    client: Vec<u8>,
    method: Vec<u8>,
    status: u16,
    size_bytes: u64,
    url: String,
}

fn all(name: &str) -> Vec<Kept> {
    let mut source = generator(name).expect(name);
    let mut all = Vec::new();
    while source.advance().expect("generators do not fail") {
        let record = source.record();
        let ObjectName::Text(url) = record.object else { panic!("generators name objects") };
        all.push(Kept {
            time_us: record.time_us,
            client: record.client.to_vec(),
            method: record.method.to_vec(),
            status: record.status,
            size_bytes: record.size_bytes,
            url: String::from_utf8(url.to_vec()).expect("ASCII"),
        });
    }
    all
}

const SMALL: [&str; 6] = [
    "thesis?objects=800",
    "web?requests=3000",
    "polygraph?requests=3000",
    "files?size=1MB",
    "build?sources=30&clients=2",
    "zipf?requests=3000",
];

#[test]
fn the_same_seed_gives_the_same_requests_in_order_of_time() {
    for name in SMALL {
        let first = all(name);
        assert!(!first.is_empty(), "{name}");
        assert_eq!(first, all(name), "{name}");
        assert_ne!(first, all(&format!("{name}&seed=2")), "{name}");
        assert!(first.windows(2).all(|pair| pair[0].time_us <= pair[1].time_us), "{name}");
        assert!(first.iter().all(|kept| kept.size_bytes > 0), "{name}");
    }
}

/// So that progress can say how much is left.
#[test]
fn as_many_requests_come_as_were_said_before() {
    for name in SMALL {
        let said = requests(name);
        assert!(said.is_none_or(|said| said == all(name).len() as u64), "{name}: {said:?}");
        assert_eq!(said.is_some(), name.contains("requests="), "{name}");
    }
    assert_eq!(requests("zipf"), Some(100_000));
}

#[test]
fn wrong_names_and_values_say_what_would_be_right() {
    for (name, reason) in [
        (
            "nothing",
            "there is none of that name; there are thesis, web, polygraph, files, build, zipf",
        ),
        ("zipf?x=1", "there is no `x`; by default seed=1&requests=100000"),
        ("zipf?alpha=9", "`alpha=9`: write a number from 0 to 4"),
        ("zipf?requests=many", "`requests=many`: write a whole number from 0 to"),
        ("zipf?alpha", "`alpha` is not of the form name=value"),
        ("zipf?requests=1&requests=5", "`requests` is given twice"),
        ("thesis?order=up", "`order=up`: write sequential, random, zipf-1-8"),
        ("files?size=2MB", "`size=2MB`: write 100KB, 1MB, 100MB or 1GB"),
    ] {
        let error = generator(name).map(|_| ()).expect_err(name).to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn thesis_orderings_create_read_and_delete_every_object() {
    for (order, popular_eighths) in
        [("sequential", None), ("random", None), ("zipf-1-8", Some(1)), ("zipf-3-8", Some(3))]
    {
        let all = all(&format!("thesis?objects=8000&order={order}"));
        assert_eq!(all.len(), 3 * 8000);
        let urls = |requests: &[Kept]| {
            requests.iter().map(|kept| kept.url.clone()).collect::<HashSet<_>>().len()
        };
        let (created, rest) = all.split_at(8000);
        let (read, deleted) = rest.split_at(8000);
        assert!(created.iter().all(|kept| kept.method == b"PUT") && urls(created) == 8000);
        assert!(deleted.iter().all(|kept| kept.method == b"DELETE") && urls(deleted) == 8000);
        assert!(read.iter().all(|kept| kept.method == b"GET"));
        assert_eq!(urls(read) == 8000, order == "sequential");
        let mean = created.iter().map(|kept| kept.size_bytes).sum::<u64>() / 8000;
        assert!((7900..8500).contains(&mean), "8 KiB on average: {mean}");
        if let Some(eighths) = popular_eighths {
            let object = |kept: &Kept| {
                kept.url.rsplit('/').next().expect("a path").parse::<u64>().expect("a number")
            };
            let popular = read.iter().filter(|kept| object(kept) < 1000 * eighths).count() as u64;
            let expected = 1000 * (8 - eighths);
            assert!(popular.abs_diff(expected) < 200, "{order}: {popular} of {expected}");
        }
    }
}

#[test]
fn polygraph_has_the_shares_of_the_thesis() {
    let all = all("polygraph?requests=40000");
    let mut seen: HashMap<&str, u64> = HashMap::new();
    let mut again = 0;
    for kept in &all {
        let size = seen.insert(&kept.url, kept.size_bytes);
        assert!(size.is_none_or(|size| size == kept.size_bytes), "an object keeps its size");
        again += u64::from(size.is_some());
    }
    let share = |part: f64| part / all.len() as f64;
    assert!((share(again as f64) - 0.55).abs() < 0.01);
    let cacheable = seen.keys().filter(|url| !url.contains('?')).count();
    assert!((cacheable as f64 / seen.len() as f64 - 0.8).abs() < 0.02);
    let mean = seen.values().sum::<u64>() as f64 / seen.len() as f64;
    assert!((mean / 13_312.0 - 1.0).abs() < 0.03, "{mean}");
    let mut source = generator("polygraph?requests=100").expect("polygraph");
    while source.advance().expect("made") {
        let record = source.record();
        let ObjectName::Text(url) = record.object else { panic!("a name") };
        assert_eq!(Filter::Ucfs.keeps(&record), !url.contains(&b'?'));
    }
}

#[test]
fn files_are_those_of_hades() {
    for (name, users, files, bytes) in [
        ("files?size=100KB", 2, 2000, 100 << 10),
        ("files?size=100KB&mode=sequential", 1, 1000, 100 << 10),
        ("files?size=1MB", 2, 1000, 1 << 20),
        ("files?size=100MB&mode=sequential", 1, 1, 100 << 20),
        ("files?size=1GB", 2, 5, 1u64 << 30),
    ] {
        let all = all(name);
        let file =
            |kept: &Kept| kept.url.rsplit_once('/').expect("chunks lie in files").0.to_owned();
        let mut of_file: HashMap<String, u64> = HashMap::new();
        all.iter().for_each(|kept| *of_file.entry(file(kept)).or_default() += kept.size_bytes);
        assert_eq!(of_file.len(), files, "{name}");
        assert!(of_file.values().all(|read| *read == bytes), "{name}: every file is read whole");
        assert_eq!(all.iter().map(|kept| &kept.client).collect::<HashSet<_>>().len(), users);
    }
    assert_eq!(all("files?passes=2").len(), 2 * all("files").len());
}

#[test]
fn a_build_reads_what_it_writes_and_headers_again_and_again() {
    let all = all("build?sources=50&headers=40&includes=10&clients=2");
    assert_eq!(all.len(), 2 * (50 * (1 + 10 + 1) + 50 + 1));
    let mut written: HashMap<&str, u64> = HashMap::new();
    for kept in &all {
        if kept.method == b"PUT" {
            written.insert(&kept.url, kept.size_bytes);
        } else if kept.url.ends_with(".o") {
            assert_eq!(written.get(kept.url.as_str()), Some(&kept.size_bytes), "{}", kept.url);
        }
    }
    assert_eq!(written.len(), 2 * 51);
}

#[test]
fn the_web_has_sessions_hosts_popularity_and_changes() {
    let mut source = generator("web?requests=60000").expect("web");
    let stat = trace_stat(source.as_mut(), |_| {}).expect("made");
    assert_eq!((stat.requests, stat.clients), (60_000, 200));
    assert!(stat.hosts > 300, "{} hosts", stat.hosts);
    let same_host = stat.same_host_ratio.expect("hosts");
    assert!((0.05..0.9).contains(&same_host), "sessions interleave: {same_host}");
    assert!((0.3..0.9).contains(&stat.hit_ratio_max), "{}", stat.hit_ratio_max);
    let slope = stat.popularity_slope.expect("a slope");
    assert!((0.4..1.1).contains(&slope), "{slope}");
    assert!(stat.changed_requests > 0);
    let still = |query: &str| {
        let mut source = generator(&format!("web?requests=60000&{query}")).expect("web");
        trace_stat(source.as_mut(), |_| {}).expect("made")
    };
    assert_eq!(still("change=0").changed_requests, 0);
    assert!(still("drift=1").objects > still("drift=0").objects, "drift brings new objects");
}

/// What goes stale is validated: a 304 has no bytes, comes after an answer, and never where an
/// object has changed since. Between two validations an object is what it was.
#[test]
fn what_is_stale_is_validated() {
    let plain = all("web?requests=20000");
    assert_eq!(plain, all("web?requests=20000&expire=0"), "old traces stay as they are");
    assert!(plain.iter().all(|kept| kept.status == 200));
    let mut counts = [0, 0];
    for query in ["change=0", "change=20"] {
        let stale = all(&format!("web?requests=20000&expire=50&{query}"));
        let mut last: HashMap<&str, u64> = HashMap::new();
        for kept in &stale {
            let before = last.get(kept.url.as_str()).copied();
            if kept.status == 304 {
                assert!(kept.size_bytes == 0 && before.is_some(), "{kept:?}");
                counts[0] += 1;
                continue;
            }
            assert_eq!(kept.status, 200);
            counts[1] += u32::from(before.is_some_and(|bytes| bytes != kept.size_bytes));
            last.insert(&kept.url, kept.size_bytes);
        }
        assert!(counts[0] > 0, "{query}: no 304");
        assert_eq!(counts[1] > 0, query != "change=0", "{query}: {} changes", counts[1]);
        // Who asks for what, and when, is the same.
        let asked = |all: &[Kept]| {
            all.iter().map(|kept| (kept.time_us, kept.url.clone())).collect::<Vec<_>>()
        };
        assert_eq!(asked(&stale), asked(&plain), "{query}");
    }
}

//! Runs over small traces, counted by hand.

use std::io::Write;

use super::SizeSpec;
use super::run::*;
use crate::policy::PolicySpec;
use crate::trace::{ReadOptions, TimeUnit, Trace};

/// One object a second, of five, in turn, of 10 bytes; a sixth of no bytes and a delete at the end.
fn trace(dir: &tempfile::TempDir, requests: u64) -> String {
    let path = dir.path().join("t.csv");
    let mut file = std::fs::File::create(&path).expect("a file");
    for n in 0..requests {
        writeln!(file, "{n},c,GET,200,10,http://h/{}", n % 5).expect("written");
    }
    writeln!(file, "{requests},c,GET,200,0,http://h/empty").expect("written");
    writeln!(file, "{requests},c,DELETE,200,0,http://h/0").expect("written");
    writeln!(file, "{requests},c,GET,200,10,http://h/0").expect("written");
    path.display().to_string()
}

fn options(policies: &str, sizes: &str) -> SimOptions {
    SimOptions {
        policies: PolicySpec::parse_list(policies).expect(policies),
        sizes: SizeSpec::parse_list(sizes).expect(sizes),
        ignores_sizes: false,
        warmup: Warmup::None,
        interval_s: None,
        threads: 1,
    }
}

fn run(path: &str, options: &SimOptions) -> SimReport {
    let read = ReadOptions { time_unit: Some(TimeUnit::Seconds), ..ReadOptions::default() };
    let open = || Trace::open(path, &read);
    simulate(&open, options, &mut |_, _, _| {}).expect("simulated")
}

#[test]
fn counts_are_exact_and_the_same_on_any_number_of_threads() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = trace(&dir, 100);
    let mut options = options("lru,fifo,belady", "50,40,0.8");
    let report = run(&path, &options);
    assert_eq!((report.requests, report.empty_requests, report.objects), (102, 1, 5));
    assert_eq!(report.working_set, Some(50));
    let misses: Vec<u64> = report.caches.iter().map(|cache| cache.tally.misses).collect();
    // With room for all: five first requests, and the one after the delete. LRU and FIFO with
    // room for four of five in turn never hit. Belady keeps three and misses, once the first
    // four are in, every fourth request: 4 + 96 / 4 = 28 in all, and after the delete once more.
    assert_eq!(misses, [6, 101, 101, 6, 101, 101, 6, 29, 29]);
    assert!(report.caches.iter().all(|cache| cache.tally.requests == 101));
    assert_eq!(report.delete_requests, 1, "the requests that the caches do not count");
    options.threads = 4;
    assert_eq!(run(&path, &options).caches, report.caches);
}

/// Room for two. The delete of a is no use of it: whoever keeps a for it misses b once more than
/// LRU does.
#[test]
fn belady_keeps_nothing_for_a_delete() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("t.csv").display().to_string();
    let lines = ["GET,200,1,a", "GET,200,1,b", "GET,200,1,c", "DELETE,200,0,a", "GET,200,1,b"];
    let text: String = lines.iter().map(|line| format!("1,u,{line}\n")).collect();
    std::fs::write(&path, text).expect("written");
    let report = run(&path, &options("lru,fifo,belady", "2"));
    let misses: Vec<u64> = report.caches.iter().map(|cache| cache.tally.misses).collect();
    assert_eq!(misses, [3, 3, 3]);
}

#[test]
fn warm_up_fills_but_does_not_count() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = trace(&dir, 100);
    for (warmup, counted, warm) in [
        (Warmup::Requests(5), 96, 5),
        (Warmup::Requests(101), 1, 101),
        (Warmup::Seconds(9), 91, 10),
        (Warmup::None, 101, 0),
    ] {
        let report = run(&path, &SimOptions { warmup, ..options("lru", "50") });
        assert_eq!(report.warmup_requests, warm);
        assert_eq!(report.caches[0].tally.requests, counted);
        assert_eq!(report.requests, warm + report.delete_requests + counted);
        let first = if warm == 0 { 5 } else { 0 };
        assert_eq!(report.caches[0].tally.misses, first + 1, "and the deleted one");
    }
}

/// To the microsecond, and none if there is to be none.
#[test]
fn warm_up_ends_when_its_seconds_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("t.csv").display().to_string();
    let times = ["0", "0.5", "1", "5", "10", "10.5", "11", "35"];
    let text: String = times.iter().map(|time| format!("{time},u,GET,200,1,a\n")).collect();
    std::fs::write(&path, text).expect("written");
    for (seconds, counted) in [(0, 8), (1, 5), (10, 3), (34, 1), (u64::MAX, 0)] {
        let warmup = Warmup::Seconds(seconds);
        let report = run(&path, &SimOptions { warmup, ..options("lru", "50") });
        let requests = (report.caches[0].tally.requests, report.warmup_requests);
        assert_eq!(requests, (counted, 8 - counted), "{seconds}");
    }
}

#[test]
fn intervals_add_up_to_the_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = trace(&dir, 100);
    let report = run(&path, &SimOptions { interval_s: Some(30), ..options("lru", "50") });
    let cache = &report.caches[0];
    let ends: Vec<u64> = cache.intervals.iter().map(|interval| interval.end_s).collect();
    assert_eq!(ends, [30, 60, 90, 120]);
    let requests: Vec<u64> =
        cache.intervals.iter().map(|interval| interval.tally.requests).collect();
    assert_eq!(requests, [30, 30, 30, 11]);
    assert_eq!(cache.intervals[0].tally.misses, 5);
}

/// a and b are deleted before they come, c is nobody's: what is asked for is the working set.
#[test]
fn the_working_set_is_what_is_asked_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("t.csv").display().to_string();
    let steps =
        "DELETE 0 a,PURGE 0 b,DELETE 9 c,GET 0 a,GET 10 a,DELETE 0 a,GET 30 a,GET 5 b,GET 7 d";
    let line = |step: &str| {
        let words: Vec<&str> = step.split(' ').collect();
        format!("1,u,{},200,{},{}\n", words[0], words[1], words[2])
    };
    std::fs::write(&path, steps.split(',').map(line).collect::<String>()).expect("written");
    let of =
        |ignores_sizes| run(&path, &SimOptions { ignores_sizes, ..options("lru,belady", "1.0") });
    assert_eq!(of(false).working_set, Some(22));
    assert_eq!(of(true).working_set, Some(3));
    let misses: Vec<u64> = of(true).caches.iter().map(|cache| cache.tally.misses).collect();
    assert_eq!(misses, [4, 4], "a comes twice");
    std::fs::write(&path, "1,u,DELETE,200,0,a\n").expect("written");
    let open = || Trace::open(&path, &ReadOptions::default());
    let error = simulate(&open, &options("lru", "auto"), &mut |_, _, _| {}).expect_err("deletes");
    assert!(error.to_string().ends_with("has no request with a size"), "{error}");
}

/// Sizes, and times, as great as there are.
#[test]
fn sums_that_do_not_fit_stop_at_the_greatest_number() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("t.csv").display().to_string();
    let (huge, end) = (1u64 << 63, "18446744073709.551615");
    let text = format!("0,u,GET,200,{huge},a\n1,u,GET,200,{huge},b\n{end},u,GET,200,100,c\n");
    std::fs::write(&path, text).expect("written");
    let policies = PolicySpec::parse_list(
        "lru,fifo,clock,lfu,lfu-aging,fbc,gdsf,s3-fifo,sieve,w-tinylfu,arc,2q,slru,lirs,belady,belady-size,store-disk-fbc,store-disk-lru:segments=2:reinsert=90,\
         store-memory-hit-density,store-memory-lru",
    );
    let interval_s = Some(10);
    let all = SimOptions {
        policies: policies.expect("known"),
        interval_s,
        ..options("lru", "8000000TiB,1.0")
    };
    let report = run(&path, &all);
    assert_eq!(report.working_set, Some(u64::MAX));
    for cache in &report.caches {
        assert_eq!((cache.tally.bytes, cache.tally.miss_bytes), (u64::MAX, u64::MAX));
    }
}

#[test]
fn sizes_can_be_ignored() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = trace(&dir, 100);
    let report = run(&path, &SimOptions { ignores_sizes: true, ..options("lru", "5,4,auto") });
    let misses: Vec<u64> = report.caches.iter().map(|cache| cache.tally.misses).collect();
    assert_eq!(misses, [6, 101], "auto finds no share of five objects worth a cache");
    assert_eq!(report.working_set, Some(5));
}

/// All of a Squid log that goes into one LRU.
fn run_log(log: &str) -> SimReport {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("access.log").display().to_string();
    std::fs::write(&path, log).expect("written");
    run(&path, &options("lru", "1.0"))
}

/// What Squid logs of a validation and of HEAD is the size of headers. Those are left out as what
/// has no bytes is: else the first of them would be an object of 250 bytes ever after.
#[test]
fn sizes_of_headers_are_none_of_objects() {
    let log = "1 9 u TCP_IMS_HIT/304 250 GET http://a/1 - NONE/- -\n\
               2 9 u TCP_MISS/200 260 HEAD http://a/2 - NONE/- -\n\
               3 9 u TCP_MISS/200 900 GET http://a/1 - NONE/- -\n\
               4 9 u TCP_HIT/200 900 GET http://a/1 - NONE/- -\n\
               5 9 u TCP_MISS/200 400 GET http://a/2 - NONE/- -\n";
    let report = run_log(log);
    assert_eq!((report.requests, report.empty_requests), (3, 2));
    assert_eq!(report.working_set, Some(1300));
    let tally = report.caches[0].tally;
    assert_eq!((tally.misses, tally.miss_bytes, tally.bytes), (2, 1300, 2200));
}

/// Half of an object that comes first is not its size, whoever broke it off.
#[test]
fn parts_of_objects_give_them_no_size() {
    let log = "1 9 u TCP_MISS/206 10 GET http://a/1 - NONE/- -\n\
               2 9 u TCP_MISS_ABORTED/200 20 GET http://a/1 - NONE/- -\n\
               3 9 u TCP_MISS/200 900 GET http://a/1 - NONE/- -\n\
               4 9 u TCP_HIT/206 10 GET http://a/1 - NONE/- -\n\
               5 9 u TCP_HIT/200 900 GET http://a/1 - NONE/- -\n";
    let report = run_log(log);
    assert_eq!((report.requests, report.empty_requests), (2, 3));
    assert_eq!(report.working_set, Some(900));
    let tally = report.caches[0].tally;
    assert_eq!((tally.misses, tally.miss_bytes, tally.bytes), (1, 900, 1800));
}

/// Five objects: no share of them holds a hundred. A size beside `auto` is simulated.
#[test]
fn a_trace_too_small_for_auto_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = trace(&dir, 100);
    let open = || Trace::open(&path, &ReadOptions::default());
    let error = simulate(&open, &options("lru", "auto"), &mut |_, _, _| {}).expect_err("small");
    assert!(error.to_string().contains("`auto`: the trace has 5 objects"), "{error}");
    assert_eq!(run(&path, &options("lru", "auto,50")).caches.len(), 1);
}

#[test]
fn nothing_to_simulate_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("t.csv");
    std::fs::write(&path, "1,c,GET,200,0,http://h/empty\n").expect("written");
    let path = path.display().to_string();
    let open = || Trace::open(&path, &ReadOptions::default());
    let error = simulate(&open, &options("lru", "5"), &mut |_, _, _| {}).expect_err("empty");
    assert!(error.to_string().ends_with("has no request with a size"), "{error}");
}

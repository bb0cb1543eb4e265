//! `damelo lab designs`: on modelled disks and real ones, swept, reported, run again.

use super::*;

#[test]
fn designs_play_a_trace_on_a_modelled_disk() {
    let bed = Bed::new();
    let args = ["designs", "gen:web?requests=2000", "squid,squidml,damelo", "--json"];
    let text = bed.ok(&args);
    let of = |name: &str| -> Value {
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.into_iter().find(|v| v["design"] == name).unwrap()
    };
    let writes = |name: &str| of(name)["disk_writes"].as_u64().unwrap();
    assert_eq!(of("squid")["requests"], 2000);
    assert!(writes("squid") > writes("squidml"), "the paper's point: {text}");
    assert!(writes("squidml") > writes("damelo"), "the thesis's point: {text}");
    assert_eq!(text, bed.ok(&args), "the same command, the same bytes");
    let unknown = bed.run(&["designs", "gen:web?requests=10", "zquid"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&unknown.stderr).contains("squidmla"),
        "it names those there are"
    );
}

/// A browser that asks whether its copy is still good (304) is no change of the object: what is
/// stored stays, and is hit.
#[test]
fn validations_and_head_leave_what_is_stored_alone() {
    let bed = Bed::new();
    let line = |s: u32, result: &str, size: u32, method: &str, url: &str| {
        format!("{s}.000 1 10.0.0.1 {result} {size} {method} http://a.example/{url} - NONE/- -\n")
    };
    bed.file(
        "access.log",
        &[
            line(1, "TCP_MISS/200", 20_000, "GET", "1"),
            line(2, "TCP_IMS_HIT/304", 250, "GET", "1"),
            line(3, "TCP_HIT/200", 20_000, "GET", "1"),
            line(4, "TCP_MISS/200", 260, "HEAD", "1"),
            line(5, "TCP_HIT/200", 20_000, "GET", "1"),
            line(6, "TCP_IMS_HIT/304", 250, "GET", "2"),
        ]
        .concat(),
    );
    let designs = "squid,ucfs,store,cfs";
    let csv = bed.ok(&["designs", "access.log", designs, "--csv"]);
    for design in designs.split(',') {
        let row = csv.lines().find(|row| row.split(',').nth(2) == Some(design)).unwrap();
        assert!(row.contains(",0,,5,1,0,80.0,"), "four of five hit, one is left out: {row}");
    }
    let text = bed.ok(&["designs", "access.log", "squid"]);
    assert!(text.lines().next().unwrap().trim_end().ends_with("no body"), "{text}");
    let without = bed.ok(&["designs", "gen:web?requests=50", "squid"]);
    assert!(!without.contains("no body"), "{without}");
}

/// Else nobody knows why designs that keep all they can differ in what they hit.
#[test]
fn what_a_design_does_not_keep_is_counted() {
    let bed = Bed::new();
    let lines = [(1, 90_000, "1"), (2, 90_000, "1"), (3, 700, "2"), (4, 700, "2")];
    let line = |(s, size, url)| format!("{s},u,GET,200,{size},http://a.example/{url}\n");
    bed.file("t.csv", &lines.map(line).concat());
    for (design, refused, hits) in [("squid", 0, 50.0), ("damelo", 2, 25.0), ("mmap-lru", 2, 25.0)]
    {
        let run = bed.json(&["designs", "t.csv", design, "--json"]);
        assert_eq!(
            (&run["refused_requests"], &run["hit_percent"]),
            (&refused.into(), &hits.into())
        );
        let text = bed.ok(&["designs", "t.csv", design]);
        let has_column = text.lines().next().unwrap().trim_end().ends_with("refused");
        assert_eq!(has_column, refused > 0, "{text}");
    }
    let real = ["designs", "t.csv", "damelo", "--real", ".", "--cache", "64MiB", "--json"];
    assert_eq!(bed.json(&real)["refused_requests"], 2);
}

/// A design that keeps everything does not fit where others do; their results are there all the
/// same.
#[test]
fn one_design_that_fails_leaves_the_others_their_results() {
    let bed = Bed::new();
    let lines = [(1, 20_000_000_000_u64), (2, 20_000_000_000), (3, 500), (4, 500)];
    let url = |s: u32| s.min(3);
    bed.file(
        "t.csv",
        &lines.map(|(s, size)| format!("{s},u,GET,200,{size},http://a/{}\n", url(s))).concat(),
    );
    let args = ["designs", "t.csv", "cern,mmap-lru"];
    let with = |more: &[&str]| {
        let output = bed.run(&[&args[..], more].concat());
        assert_eq!(output.status.code(), Some(4));
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    let (table, words) = with(&["--html", "r.html"]);
    assert!(table.lines().next().unwrap().ends_with("failed"), "{table}");
    let full = "the design cern cannot be run: the modelled file system is full";
    assert!(table.lines().nth(1).unwrap().starts_with("mmap-lru"), "{table}");
    assert!(table.lines().nth(2).unwrap().contains(full), "{table}");
    assert!(words.contains("try: leave it out") && words.contains("1 of 2 runs failed"), "{words}");
    assert!(std::fs::read_to_string(bed.path("r.html")).unwrap().contains(full));
    let (lines, _) = with(&["--json"]);
    let runs: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(runs[0]["error"].as_str().unwrap().starts_with(full), "{lines}");
    assert_eq!((&runs[1]["hit_percent"], &runs[1]["error"]), (&25.0.into(), &Value::Null));
    let (csv, _) = with(&["--csv"]);
    assert!(csv.lines().nth(1).unwrap().ends_with(",error"), "{csv}");
    assert!(csv.lines().nth(3).unwrap().contains(full), "{csv}");
    // Run again, it fails for the same reason, which is no difference.
    for (name, text) in [("r.json", &lines), ("r.csv", &csv)] {
        bed.file(name, text);
    }
    for name in ["r.html", "r.json", "r.csv"] {
        assert!(bed.ok(&["rerun", name]).contains("the same results"), "{name}");
    }
    bed.file("other.json", &lines.replace("\"hit_percent\":25.0", "\"hit_percent\":26.0"));
    let (code, words) = bed.fails(&["rerun", "other.json"]);
    assert!(code == 1 && words.contains(".hit_percent was `26.0`, is `25.0`"), "{words}");
    let (code, words) = bed.fails(&["designs", "t.csv", "cern"]);
    assert!(code == 4 && !words.contains("of 1 runs"), "{words}");
}

/// Numbers are of no host, so that nothing can be told of what lies together.
#[test]
fn a_trace_without_hosts_is_said_to_be_one() {
    let bed = Bed::new();
    bed.file("ids.csv", "time,obj_id,size\n1,1001,5000\n2,1002,5000\n3,1001,5000\n");
    let said = |designs: &str| {
        let output = bed.run(&["designs", "ids.csv", designs, "--cache", "64MiB"]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap().contains("the trace names no hosts")
    };
    assert_eq!(["cern", "squidl", "store", "cfs"].map(said), [true, true, true, false]);
    let (code, words) = bed.fails(&["designs", "ids.csv", "hades:remote-every=2"]);
    assert!(code == 2 && words.contains("remote-every tells hosts apart"), "{words}");
}

/// What hits does not depend on the disk, and nothing is left behind.
#[test]
fn designs_run_in_a_directory_as_on_a_modelled_disk() {
    let bed = Bed::new();
    std::fs::create_dir(bed.path("d")).unwrap();
    let args =
        ["designs", "gen:web?requests=500", "store,damelo,cfs", "--cache", "64MiB", "--json"];
    let hits = |text: &str| -> Vec<(String, String)> {
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|v| (v["design"].to_string(), v["hit_percent"].to_string())).collect()
    };
    let real = bed.ok(&[&args[..], &["--real", "d"]].concat());
    assert_eq!(hits(&real), hits(&bed.ok(&args)));
    assert!(real.contains("\"read_calls\"") && real.contains("\"real\":\"d\""), "{real}");
    bed.ok(&[&args[..], &["--real", "d", "--html", "real.html"]].concat());
    let page = std::fs::read_to_string(bed.path("real.html")).unwrap();
    for part in ["on a real disk", "Bytes to and from disks", "answered within", "--real"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(bed.fails(&["rerun", "real.html"]).1.contains("real disks"));
    assert_eq!(std::fs::read_dir(bed.path("d")).unwrap().count(), 0, "nothing is left");
    let (code, words) = bed.fails(&[&args[..], &["--real", "nowhere/at/all"]].concat());
    assert!(code == 4 && words.contains("nowhere/at/all"), "{words}");
    let huge = ["designs", "gen:web?requests=5", "store", "--cache", "900TiB", "--real", "d"];
    let (code, words) = bed.fails(&huge);
    assert!(code == 2 && words.contains("--cache is 900TiB, more than the"), "{words}");
    let (code, _) = bed.fails(&[&args[..], &["--real", "d", "--clients", "2"]].concat());
    assert_eq!(code, 2, "it would do nothing");
}

/// On a file run the designs that need no others, each of them from an empty cache.
#[test]
fn designs_run_on_a_file_one_after_the_other() {
    let bed = Bed::new();
    bed.file("device", "");
    let args = ["designs", "gen:web?requests=800", "store,store,cfs", "--cache", "64MiB", "--json"];
    let text = bed.ok(&[&args[..], &["--real", "device"]].concat());
    let runs: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(runs[0]["hit_percent"].as_f64().unwrap() < 100.0, "{text}");
    assert_eq!(runs[0]["hit_percent"], runs[1]["hit_percent"], "the second begins empty, too");
    assert_eq!(runs[0]["manifest"]["command"][1], "lab");
    let squid = ["designs", "gen:web?requests=9", "cfs,squid", "--real", "device"];
    let (code, words) = bed.fails(&squid);
    assert!(code == 4 && words.contains("squid needs a directory for its files"), "{words}");
    let (code, words) = bed.fails(&["paper", "cfs", "--real", "nowhere"]);
    assert!(code == 4 && words.contains("nowhere"), "{words}");
}

/// What the first line of a CSV file says of its run, to those who do not skip it as a comment.
fn manifest_of_csv(csv: &str) -> Value {
    let line = csv.lines().next().and_then(|line| line.strip_prefix("# manifest "));
    serde_json::from_str(line.expect("a manifest")).unwrap()
}

/// A table and a count say what they were made of and with, and can be made again from that alone.
#[test]
fn csv_and_counts_are_run_again_from_their_manifests() {
    let bed = Bed::new();
    bed.file("access.log", SQUID);
    let digest = |manifest: &Value| manifest["trace"]["digest"].as_str().unwrap().to_owned();
    let table = bed.ok(&["sim", "access.log", "lru,fifo", "1KiB,1MiB", "--csv"]);
    let manifest = manifest_of_csv(&table);
    assert!(digest(&manifest).starts_with("xxh3:"), "{manifest}");
    assert_eq!(manifest["command"][2], "sim");
    let stat = bed.ok(&["trace", "stat", "access.log", "--json"]);
    let counted: Value = serde_json::from_str(&stat).unwrap();
    assert_eq!(digest(&counted["manifest"]), digest(&manifest));
    let disks = bed.ok(&["designs", "access.log", "cfs", "--csv"]);
    std::fs::create_dir(bed.path("d")).unwrap();
    let real = bed.ok(&["designs", "access.log", "cfs", "--csv", "--real", "d"]);
    assert_eq!(digest(&manifest_of_csv(&real)), digest(&manifest));
    for (name, text) in [("t.csv", &table), ("s.json", &stat), ("d.csv", &disks)] {
        bed.file(name, text);
        assert!(bed.ok(&["rerun", name]).contains("the same results"), "{name}");
    }
    let changed = table.replacen("\naccess.log,false,fifo", "\naccess.log,false,life", 1);
    assert_ne!(changed, table);
    bed.file("changed.csv", &changed);
    let (code, said) = bed.fails(&["rerun", "changed.csv"]);
    assert!(code == 1 && said.contains("life"), "{said}");
    bed.file("real.csv", &real);
    assert!(bed.fails(&["rerun", "real.csv"]).1.contains("real disks"));
    let bench = "# manifest {\"command\":[\"damelo\",\"lab\",\"bench\"],\"version\":\"0\",\"trace\":{\"name\":\"\",\"format\":\"\",\"synthetic\":true,\"file_bytes\":0,\"digest\":\"\"},\"machine\":{\"processor\":\"\",\"processors\":1,\"memory_bytes\":0,\"system\":\"\"}}\na\n";
    bed.file("bench.csv", bench);
    assert!(bed.fails(&["rerun", "bench.csv"]).1.contains("never the same"));
}

#[test]
fn designs_are_swept_over_pages_and_reported() {
    let bed = Bed::new();
    let trace = "gen:web?requests=2000";
    let args = ["designs", trace, "damelo,squid", "--page", "16KiB,64KiB", "--group", "host,none"];
    let with = |more: &[&str]| bed.ok(&[&args[..], more].concat());
    let lines = with(&["--json", "--html", "r.html"]);
    let runs: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(runs.len(), 5, "four of damelo, one of squid, which has no pages");
    let writes = |page: u64, group: &str| {
        let run = runs.iter().find(|run| run["page"] == page && run["group"] == group).unwrap();
        run["io"]["write"]["data"]["requests"].as_u64().unwrap()
    };
    assert!(writes(16 << 10, "none") > writes(64 << 10, "none"), "small pages, more of them");
    let page = std::fs::read_to_string(bed.path("r.html")).unwrap();
    for part in ["Disk requests by kind", "Virtual time by page size", "Bytes written by place"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("Synthetic requests") && page.contains("damelo lab designs"));
    for outside in ["src=", "href=", "<script", "url(", "NaN"] {
        assert!(!page.contains(outside), "{outside}");
    }
    with(&["--html", "s.html"]);
    let of = |name: &str| std::fs::read_to_string(bed.path(name)).unwrap();
    assert_eq!(results(&of("r.html")), results(&of("s.html")));
    let csv = with(&["--csv"]);
    assert_eq!(manifest_of_csv(&csv)["trace"]["seed"], 1);
    // Nothing is rounded for programs.
    let head: Vec<&str> = csv.lines().nth(1).unwrap().split(',').collect();
    assert_eq!(csv.lines().count(), 2 + runs.len(), "{csv}");
    let row: Vec<&str> = csv.lines().nth(2).unwrap().split(',').collect();
    for name in ["memory", "page", "disk_writes", "write_bytes", "response_ms_mean", "disk_seconds"]
    {
        let at = head.iter().position(|column| *column == name).unwrap();
        assert_eq!(row[at], runs[0][name].to_string(), "{name}");
    }
    let (code, said) = bed.fails(&["designs", trace, "squid", "--html", "no/r.html"]);
    assert!(code == 4 && said.starts_with("damelo: cannot write `no/r.html`"), "{said}");
    let (code, said) = bed.fails(&["designs", trace, "squid", "--page", "16KiB"]);
    assert!(code == 2 && said.contains("change nothing"), "{said}");
    let (code, said) = bed.fails(&["designs", trace, "--page", "17KiB"]);
    assert!(code == 2 && said.contains("power of two"), "{said}");
}

/// The system under the designs: what is not written at once is written less often; less memory is
/// read more often.
#[test]
fn designs_run_on_the_system_that_is_asked_for() {
    let bed = Bed::new();
    let run = |designs: &str, more: &[&str]| -> Value {
        let args = ["designs", "gen:web?requests=4000", designs, "--cache=64MiB", "--json"];
        serde_json::from_str(&bed.ok(&[&args[..], more].concat())).unwrap()
    };
    let writes = |run: &Value| run["disk_writes"].as_u64().unwrap();
    let reads = |run: &Value| run["disk_reads"].as_u64().unwrap();
    let plain = run("squid", &[]);
    assert_eq!((&plain["files"], &plain["system_memory"]), (&"ufs-8k".into(), &Value::Null));
    let lazy = run("squid", &["--files", "ufs-8k:metadata=async"]);
    assert!(writes(&lazy) < writes(&plain), "{} {}", writes(&lazy), writes(&plain));
    let tight = run("squid", &["--system-memory", "1MiB"]);
    assert!(reads(&tight) > reads(&plain), "{} {}", reads(&tight), reads(&plain));
    assert_eq!(tight["hit_percent"], plain["hit_percent"]);
    let small = ["--system-memory", "256KiB", "--mapped"];
    let pages = |page: &str| run("mmap-lru", &[&small[..], &[page]].concat());
    let (of_4k, of_64k) = (pages("page=4KiB"), pages("page=64KiB"));
    let bytes = |run: &Value| run["write_bytes"].as_u64().unwrap();
    assert!(bytes(&of_4k) < bytes(&of_64k), "{} {}", bytes(&of_4k), bytes(&of_64k));
}

#[test]
fn designs_take_parameters_of_their_own() {
    let bed = Bed::new();
    let trace = "gen:web?requests=3000";
    let run = |designs: &str, more: &[&str]| -> Vec<Value> {
        let lines = bed.ok(&[&["designs", trace, designs, "--json"], more].concat());
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let runs = run("store,store:admission=second-hit,cfs:compact=yes", &[]);
    let named = |n: usize| runs[n]["design"].as_str().unwrap();
    assert_eq!(
        [named(0), named(1), named(2)],
        ["store", "store:admission=second-hit", "cfs:compact=yes"]
    );
    let hits = |n: usize| runs[n]["hit_percent"].as_f64().unwrap();
    assert!(hits(0) > hits(1), "what is asked for twice is not stored the first time");
    let paced = run("cfs", &["--at-trace-pace"])[0]["virtual_seconds"].as_f64().unwrap();
    let free = run("cfs", &[])[0]["virtual_seconds"].as_f64().unwrap();
    assert!(paced > free * 10.0, "{paced} s at the trace's pace, {free} s as fast as it goes");
    let seconds = |order: &str| {
        run("cfs:buffered=no", &["--scheduler", order, "--clients", "8"])[0]["virtual_seconds"]
            .as_f64()
    };
    assert_ne!(seconds("fcfs"), seconds("two-way"));
    let more =
        ["--clients", "8", "--scheduler", "fcfs", "--warmup-req", "1000", "--cache", "64MiB"];
    let how = &run("cfs", &more)[0];
    assert_eq!((&how["requests"], &how["warmup_requests"]), (&2000.into(), &1000.into()));
    assert_eq!((&how["clients"], &how["scheduler"]), (&8.into(), &"fcfs".into()));
    assert_eq!((&how["cache"], &how["pace"]), (&(64 << 20).into(), &"as fast as served".into()));
    assert_eq!(how["manifest"]["trace"]["seed"], 1);
    bed.ok(&[&["designs", trace, "cfs", "--at-trace-pace", "--html", "r.html"], &more[..]].concat());
    let page = std::fs::read_to_string(bed.path("r.html")).unwrap();
    let told =
        "(order fcfs) with 64MiB of cache, 8 clients asking when the trace says. The first 1,000";
    assert!(page.contains(told), "{page}");
    assert!(page.contains("Share of requests by response time, in four classes"), "a histogram");
    let (code, said) = bed.fails(&["designs", trace, "store:disk=arc"]);
    assert!(code == 2 && said.contains("write one of fbc, lfu-aging, lru, fifo"), "{said}");
    assert!(bed.ok(&["designs", "--help"]).contains("unused-hours=115"));
    for (args, reason) in [
        (
            &["damelo", "--cache", "1MiB"][..],
            "a group has at least two pages: 2MiB of cache, not 1MiB",
        ),
        (&["store", "--memory", "1MiB"], "it needs 4MiB of memory, not 1MiB"),
        (&["store", "--cache", "5GiB"], "a cache has 8MiB to 4GiB, not 5GiB"),
        (&["store", "--cache", "1TiB"], "--cache is 1TiB, more than the"),
        (&["squid", "--cache", "0"], "--cache is 0B: write at least 64KiB"),
        (&["cfs", "--warmup-req", "3000"], "nothing is left to measure"),
    ] {
        let (code, said) = bed.fails(&[&["designs", trace], args].concat());
        assert!(code == 2 && said.contains(reason), "{said}");
    }
    bed.file("none.csv", "time_s,client,method,status,size_bytes,url\n");
    let (code, said) = bed.fails(&["designs", "none.csv", "squid"]);
    assert!(code == 4 && said.contains("`none.csv` has no request"), "{said}");
    // Of several that only the last is refused is said before any runs.
    let (code, said) = bed.fails(&["designs", trace, "squid,ucfs,store", "--memory", "4MiB,1MiB"]);
    assert!(code == 2 && !said.contains("requests/s simulated"), "{said}");
    let output = bed.run(&["designs", trace, "squid,cern", "--cache", "64MiB"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("--cache changes nothing for cern: no limit"), "{said}");
    let (code, said) = bed.fails(&["sim", "-", "lru", "1MiB"]);
    assert!(code == 4 && said.contains("save it to a file first"), "{said}");
}

/// What would be a table of zeros.
#[test]
fn a_trace_without_bodies_is_an_error() {
    let bed = Bed::new();
    bed.file("none.csv", "time_s,client,method,status,size_bytes,url\n1,c,GET,304,0,http://a/x\n");
    for args in [&["designs", "none.csv", "store"][..], &["sim", "none.csv", "lru", "1MiB"]] {
        let (code, said) = bed.fails(args);
        assert!(code == 4 && said.contains("has no request with a size"), "{args:?}: {said}");
    }
}

/// At its own pace a trace is played in the order of its times, whatever the order of its lines:
/// of 5, 3, 9 and 7 s two come behind later ones. 3 to 9 s: 6 s of virtual time and what the last
/// request takes.
#[test]
fn a_trace_out_of_order_is_played_at_its_times() {
    let bed = Bed::new();
    let line =
        |s: u32| format!("{s}.000 9 u TCP_MISS/200 900 GET http://a.example/{s} - NONE/- -\n");
    bed.file("t.log", &[5, 3, 9, 7].map(line).concat());
    let told = "damelo: 2 requests stood behind later ones and are played at their times";
    let run = |more: &[&str]| {
        let output = bed.run(&[&["designs", "t.log", "cfs", "--json"], more].concat());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        assert!(output.status.success(), "{output:?}");
        (text(output.stdout), text(output.stderr))
    };
    let (out, said) = run(&["--at-trace-pace"]);
    assert!(said.contains(told), "{said}");
    let seconds = |out: &str| {
        let run: Value = serde_json::from_str(out).unwrap();
        run["virtual_seconds"].as_f64().unwrap()
    };
    assert!((6.0..6.5).contains(&seconds(&out)), "{out}");
    let (out, said) = run(&[]);
    assert!(!said.contains("stood behind") && seconds(&out) < 1.0, "{said}{out}");
}

/// Groups are ranked by the warm-up; what takes no hints runs as without them.
#[test]
fn designs_are_told_what_to_love() {
    let bed = Bed::new();
    let web = "gen:web?requests=20000";
    let run = |love: &[&str]| -> Vec<Value> {
        let args = ["designs", web, "store,squid", "--cache=64MiB", "--memory=4MiB", "--json"];
        let more = ["--warmup-req", "10000"];
        let lines = bed.ok(&[&args[..], &more, love].concat());
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (plain, told) = (run(&[]), run(&["--love", "top=10%"]));
    assert_eq!((&plain[0]["love_top"], &told[0]["love_top"]), (&Value::Null, &0.1.into()));
    let facts = &told[0]["facts"];
    let [loved, hated] = ["loved_groups", "hated_groups"].map(|name| facts[name].as_u64().unwrap());
    assert!(loved > 0 && loved == (loved + hated).div_ceil(10), "{facts}");
    assert_ne!(plain[0]["disk_reads"], told[0]["disk_reads"]);
    assert_eq!(plain[1]["disk_reads"], told[1]["disk_reads"]);
    assert_eq!(told[1]["facts"]["loved_groups"], Value::Null);
    for (args, expected) in [
        (&["store", "--love", "top=0.1"][..], "--warmup-req"),
        (&["squid", "--love", "top=0.1", "--warmup-req", "9"], "changes nothing"),
        (&["store", "--love", "0.1"], "such as top=0.1"),
        (&["store", "--love", "top=1.5"], "such as top=0.1"),
    ] {
        let (code, said) = bed.fails(&[&["designs", web], args].concat());
        assert!(code == 2 && said.contains(expected), "{said}");
    }
}

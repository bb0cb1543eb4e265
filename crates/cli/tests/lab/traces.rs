//! `damelo lab trace`: traces read, counted, converted and written, and what is said of damaged
//! ones.

use serde_json::json;

use super::*;

/// CSV has what JSON has, and points of curves; a page has a chart of each.
#[test]
fn stat_has_curves_for_programs_and_as_a_page() {
    let bed = Bed::new();
    bed.file("access.log", SQUID);
    let csv = bed.ok(&["trace", "stat", "access.log", "--csv", "--html", "r.html"]);
    let stat = &bed.json(&["trace", "stat", "access.log", "--json"])["stat"];
    let mut lines = csv.lines();
    assert!(lines.next().unwrap().starts_with("# manifest {"));
    assert_eq!(lines.next(), Some("what,at,value"));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    let value = |what: &str, at: &str| {
        let row = rows.iter().find(|row| row[..2] == [what, at]);
        row.unwrap_or_else(|| panic!("{what} {at} is not in {csv}"))[2].to_owned()
    };
    for name in ["requests", "objects", "bytes", "hit_ratio_max"] {
        assert_eq!(value(name, ""), stat[name].to_string(), "{name}");
    }
    assert_eq!(value("object_bytes", "max"), stat["object_bytes"]["max"].to_string());
    let last = |what: &str| rows.iter().rfind(|row| row[0] == what).unwrap()[2].to_owned();
    assert_eq!(last("object_percent_within"), "100");
    assert_eq!(rows.iter().find(|row| row[0] == "popularity").unwrap()[1], "1");
    let page = std::fs::read_to_string(bed.path("r.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 3);
    for part in ["Trace: access.log", "Requests of objects by rank", "Sizes of objects"] {
        assert!(page.contains(part), "{part}");
    }
    let (code, said) = bed.fails(&["trace", "stat", "access.log", "--html", "access.log"]);
    assert!(code == 2 && said.contains("trace that is read"), "{said}");
}

#[test]
fn stat_counts_a_squid_log() {
    let bed = Bed::new();
    bed.file("access.log", SQUID);
    let all = bed.json(&["trace", "stat", "access.log", "--json"]);
    assert_eq!((&all["format"], &all["synthetic"]), (&"squid".into(), &false.into()));
    let stat = &all["stat"];
    for (name, expected) in
        [("requests", 4), ("objects", 3), ("hosts", 2), ("clients", 2), ("bytes", 5500)]
    {
        assert_eq!(stat[name], expected, "{name}");
    }
    assert_eq!(stat["hit_ratio_max"], 0.25);
    assert!(bed.ok(&["trace", "stat", "access.log"]).contains("requests         4\n"));
}

#[test]
fn traces_are_converted_filtered_and_sampled() {
    let bed = Bed::new();
    bed.file("access.log", SQUID);
    let printed = bed.ok(&["trace", "print", "access.log", "-n", "1"]);
    let expected = "time_s,client,method,status,size_bytes,url\n\
                    982799997.1,10.0.0.1,GET,200,1000,http://a.example/1\n";
    assert_eq!(printed, expected);
    bed.ok(&["trace", "convert", "access.log", "t.oracleGeneral.zst"]);
    let stat = bed.json(&["trace", "stat", "t.oracleGeneral.zst", "--json"]);
    assert_eq!((&stat["stat"]["requests"], &stat["stat"]["objects"]), (&4.into(), &3.into()));
    bed.ok(&["trace", "filter", "access.log", "t.csv.gz", "--rule", "ucfs-2002"]);
    // As the help says: `csv` is another form, which has its name from --to only.
    assert_eq!(bed.json(&["trace", "stat", "t.csv.gz", "--json"])["format"], "damelo");
    assert!(bed.ok(&["trace", "convert", "--help"]).contains(".csv is damelo"));
    assert_eq!(bed.json(&["trace", "stat", "t.csv.gz", "--json"])["stat"]["requests"], 3);
    bed.ok(&["trace", "sample", "gen:zipf?requests=9000", "s.csv", "--share", "0.2"]);
    let kept =
        bed.json(&["trace", "stat", "s.csv", "--json"])["stat"]["requests"].as_u64().unwrap();
    assert!((500..4500).contains(&kept), "{kept}");
    let (code, words) = bed.fails(&["trace", "convert", "access.log", "t.what"]);
    assert!(code == 2 && words.contains("add --to FORMAT"), "{words}");
    let (code, words) = bed.fails(&["trace", "filter", "access.log", "x.csv", "--rule", "list"]);
    assert!(code == 2 && words.contains("squid-disk-io-1999: HTTP, status 200"), "{words}");
    let help = bed.ok(&["trace", "filter", "--help"]);
    assert!(help.contains("squid-disk-io-1999: HTTP, status 200"), "as `lab paper --help` says");
}

#[test]
fn standard_output_is_called_so() {
    let bed = Bed::new();
    bed.file("access.log", SQUID);
    let output = bed.run(&["trace", "convert", "access.log", "-", "--to", "txt"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("not in standard output: txt"), "{said}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_damelo"));
    command.args(["lab", "trace", "print", "gen:zipf"]).stderr(Stdio::piped());
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command.stdout(full).spawn().unwrap().wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let is_named = said.contains("cannot write to standard output\n");
    assert!(output.status.code() == Some(4) && is_named, "{said}");
}

#[test]
fn a_sample_by_what_a_trace_does_not_name_is_refused() {
    let bed = Bed::new();
    bed.file("t.csv", "1,-,GET,200,5,a\n2,-,GET,200,5,b\n");
    for (by, what) in [("client", "names a client"), ("host", "names a host")] {
        let args = ["trace", "sample", "t.csv", "s.csv", "--share", "0.5", "--by", by];
        let (code, words) = bed.fails(&args);
        assert!(code == 2 && words.contains(what) && words.contains("--by object"), "{words}");
        assert!(!bed.path("s.csv").exists());
    }
    bed.file("t.csv", "1,-,GET,200,5,a\n2,u,GET,200,5,b\n");
    let args = ["trace", "sample", "t.csv", "s.csv", "--share", "0.5", "--by", "client"];
    let words = String::from_utf8(bed.run(&args).stderr).unwrap();
    assert!(words.contains("t.csv: 1 of 2 requests name no client"), "{words}");
}

#[test]
fn malformed_lines_are_named_or_counted() {
    let bed = Bed::new();
    bed.file("access.log", &format!("{SQUID}982799999.1 broken\n"));
    let (code, words) = bed.fails(&["trace", "stat", "access.log"]);
    assert_eq!(code, 4);
    assert!(
        words.contains("access.log: line 5: 2 fields where 10 (9 in old logs) are expected"),
        "{words}"
    );
    assert!(words.contains("try: add --skip-bad"), "{words}");
    let output = bed.run(&["trace", "stat", "access.log", "--skip-bad", "--json"]);
    let stat: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&stat["stat"]["requests"], &stat["stat"]["skipped"]), (&4.into(), &1.into()));
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("1 malformed lines skipped") && words.contains("line 5: "), "{words}");

    std::fs::write(bed.path("t.oracleGeneral"), [7; 30]).unwrap();
    let (_, words) = bed.fails(&["trace", "stat", "t.oracleGeneral"]);
    assert!(words.contains("record 2: the trace ends after 6 of the record's 24 bytes"), "{words}");
    bed.file("t.bin", "\0\0\0");
    let (_, words) = bed.fails(&["trace", "stat", "t.bin"]);
    assert!(
        words.contains("neither oracleGeneral nor lcs, nor named as vscsi; name it with --format"),
        "{words}"
    );
}

/// A trace that was written has its manifest beside it, can be made again from that, and stays
/// synthetic if it was.
#[test]
fn a_trace_that_was_written_says_how_and_is_made_again() {
    let bed = Bed::new();
    bed.file("access.log", SQUID);
    bed.ok(&["trace", "convert", "access.log", "t.csv"]);
    let manifest = || std::fs::read_to_string(bed.path("t.csv.manifest.json")).unwrap();
    let beside: Value = serde_json::from_str(&manifest()).unwrap();
    let (how, what) = (&beside["manifest"], &beside["written"]);
    let command = ["damelo", "lab", "trace", "convert", "access.log", "t.csv"];
    assert_eq!(how["command"], json!(command));
    assert!(how["trace"]["digest"].as_str().unwrap().starts_with("xxh3:"), "{how}");
    assert_eq!((&what["requests"], &what["synthetic"]), (&4.into(), &false.into()), "{what}");
    for report in ["t.csv", "t.csv.manifest.json"] {
        let said = bed.ok(&["rerun", report]);
        assert!(said.starts_with("t.csv.manifest.json: the same results, value"), "{said}");
    }

    let web = "gen:web?requests=900&seed=5";
    bed.ok(&["trace", "sample", web, "s.oracleGeneral.zst", "--share=0.3", "--seed", "9"]);
    bed.ok(&["rerun", "s.oracleGeneral.zst"]);
    bed.ok(&["trace", "convert", "s.oracleGeneral.zst", "--to", "txt", "--", "s2.gz"]);
    bed.ok(&["rerun", "s2.gz"]);
    let output = bed.run(&["sim", "s2.gz", "lru", "10", "--csv"]);
    let (csv, said) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    assert!(csv.unwrap().contains("\ns2.gz,true,lru"), "it was made");
    assert!(said.unwrap().contains("s2.gz: synthetic, no one made these requests"));
    bed.ok(&["sim", "s2.gz", "lru", "10", "--html", "r.html"]);
    bed.ok(&["rerun", "r.html"]);

    bed.file("t.csv.manifest.json", &manifest().replace("\"requests\": 4", "\"requests\": 5"));
    let (code, said) = bed.fails(&["rerun", "t.csv"]);
    assert!(code == 1 && said.contains(".written.requests was `5`, is `4`"), "{said}");
    bed.ok(&["trace", "convert", "access.log", "t.csv"]);
    bed.file("t.csv", "another");
    let (code, said) = bed.fails(&["rerun", "t.csv"]);
    assert!(code == 1 && said.contains("its digest was xxh3:"), "{said}");
    assert_eq!(std::fs::read_to_string(bed.path("t.csv")).unwrap(), "another");
}

/// What the form cannot say: on standard error, and in the manifest.
#[test]
fn what_a_form_cannot_say_is_told() {
    let bed = Bed::new();
    bed.file("t.csv", "1,u,GET,200,5,a\n2,u,DELETE,200,0,a\n3,u,GET,304,0,a\n4,u,GET,200,5,a\n");
    let said = |args: &[&str]| {
        let output = bed.run(&[&["trace", "convert"], args].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let manifest = |name: &str| -> Value {
        let text = std::fs::read_to_string(bed.path(&format!("{name}.manifest.json"))).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["written"].clone()
    };
    let words = said(&["t.csv", "t.txt"]);
    assert!(words.contains("1 requests with DELETE or PURGE left out"), "{words}");
    assert!(words.contains("1 requests without a body left out"), "{words}");
    assert!(words.contains("2 of 4 requests written to t.txt"), "{words}");
    let written = manifest("t.txt");
    assert_eq!((&written["requests"], &written["requests_read"]), (&2.into(), &4.into()));
    assert_eq!(
        written["lost"],
        json!({
            "deletes": 1, "empty": 1, "results": 0, "times": 2, "sizes": 2, "fields": 2
        })
    );
    let words = said(&["t.csv", "all.csv"]);
    assert!(!words.contains("left out") && manifest("all.csv").get("lost").is_none(), "{words}");
    bed.file("one.csv", "1.25,u,GET,200,500,http://a/x\n2,-,GET,0,500,http://a/x\n");
    let none = |what: &str, output: &str, form: &str, count: u64| {
        format!(
            "damelo: one.csv: {what} are not in {output}: {form} has no place for them (requests that had them: {count})\n"
        )
    };
    let who = "clients, methods and statuses";
    let words = said(&["one.csv", "one.txt"]);
    for (what, count) in [("times", 2), ("sizes", 2), (who, 1)] {
        assert!(words.contains(&none(what, "one.txt", "txt", count)), "{words}");
    }
    let words = said(&["one.csv", "--to", "csv", "columns.csv"]);
    assert!(words.starts_with(&none(who, "columns.csv", "csv", 1)), "{words}");
    assert!(words.lines().count() == 2, "{words}");
    let words = said(&["one.csv", "one.oracleGeneral"]);
    for what in ["fractions of a second", who] {
        assert!(words.contains(&none(what, "one.oracleGeneral", "oracleGeneral", 1)), "{words}");
    }
    assert!(words.lines().count() == 3, "{words}");
    assert_eq!(manifest("one.oracleGeneral")["lost"]["times"], 1);
    let words = said(&["one.csv", "ours.csv"]);
    assert!(
        words.starts_with("damelo: 2 of 2 requests written to ours.csv; ours.csv.man"),
        "{words}"
    );
    bed.file("access.log", SQUID);
    let words = said(&["access.log", "s.csv"]);
    assert!(
        words.contains("Squid's results are not in s.csv: there the rule ucfs-2002"),
        "{words}"
    );
    assert_eq!(manifest("s.csv")["lost"]["results"], 4);
    let shown = bed.run(&["trace", "print", "access.log"]);
    assert!(!String::from_utf8(shown.stderr).unwrap().contains("Squid"), "asked for no more");
    bed.ok(&["rerun", "t.txt"]);
}

/// What cannot be written does not cost what was there, least of all the trace that is read.
#[test]
fn a_trace_is_not_lost_by_writing_one() {
    let bed = Bed::new();
    bed.file("access.csv", "time,obj_id,obj_size\n1,a,10\n2,b,x\n");
    bed.file("old.csv", "old");
    std::os::unix::fs::symlink("access.csv", bed.path("link.csv")).unwrap();
    let before = std::fs::read(bed.path("access.csv")).unwrap();
    for output in ["access.csv", "./access.csv", "link.csv"] {
        let args = ["trace", "sample", "access.csv", output, "--share", "0.5", "--skip-bad"];
        let (code, said) = bed.fails(&args);
        assert!(code == 2 && said.contains("is the trace that is read"), "{said}");
    }
    let (_, said) = bed.fails(&["trace", "convert", "access.csv", "old.csv"]);
    assert!(said.contains("line 3: size is `x`"), "{said}");
    assert_eq!(std::fs::read(bed.path("access.csv")).unwrap(), before);
    assert_eq!(std::fs::read_to_string(bed.path("old.csv")).unwrap(), "old");
    assert_eq!(std::fs::read_dir(bed.path("")).unwrap().count(), 3, "nothing half written");
}

/// All objects have one size, and half of the requests hit.
#[test]
fn a_sum_of_bytes_beyond_64_bits_is_no_ratio_and_is_told() {
    let bed = Bed::new();
    let sizes = |bytes: u64| -> String {
        (0..8).map(|n| format!("{n},c,GET,200,{bytes},http://a/{}\n", n / 2)).collect()
    };
    let said = |args: &[&str]| String::from_utf8(bed.run(args).stderr).unwrap();
    for (bytes, is_told) in [(1 << 60, false), (1 << 62, true)] {
        bed.file("t.csv", &sizes(bytes));
        for args in [&["sim", "t.csv", "lru", "7000000TiB"][..], &["trace", "stat", "t.csv"]] {
            let said = said(args);
            assert_eq!(said.contains("more than 2^64 bytes"), is_told, "{args:?}: {said}");
        }
    }
}

#[test]
fn a_share_may_be_written_in_percent() {
    let bed = Bed::new();
    for (share, output) in [("0.2", "one.csv"), ("20%", "two.csv")] {
        bed.ok(&["trace", "sample", "gen:zipf?requests=900", output, "--share", share]);
    }
    let bytes = |name| std::fs::read(bed.path(name)).unwrap();
    assert_eq!(bytes("one.csv"), bytes("two.csv"));
    let (code, said) = bed.fails(&["trace", "sample", "gen:zipf", "x.csv", "--share", "a tenth"]);
    assert!(code == 2 && said.contains("write a share such as 0.1 or 10%"), "{said}");
}

/// As `cat one.csv.gz two.csv.gz` makes it.
#[test]
fn our_own_traces_may_stand_one_behind_the_other() {
    let bed = Bed::new();
    bed.ok(&["trace", "convert", "gen:zipf?requests=100", "one.csv.gz"]);
    let one = std::fs::read(bed.path("one.csv.gz")).unwrap();
    std::fs::write(bed.path("two.csv.gz"), [&one[..], &one[..]].concat()).unwrap();
    let stat = bed.json(&["trace", "stat", "two.csv.gz", "--json"]);
    assert_eq!(stat["stat"]["requests"], 200);
}

#[test]
fn lines_of_json_are_told_as_that() {
    let bed = Bed::new();
    for text in ["{\"bytes\":9,\"target\":\"/a\"}\n", "[\n  {\n \"bytes\": 9}]\n", "{\n\"a\":1}"] {
        bed.file("access.log", text);
        let (_, said) = bed.fails(&["trace", "stat", "access.log"]);
        assert!(said.contains("looks like JSON") && !said.contains("--format"), "{said}");
        assert!(said.contains("jq -r") && said.contains("log.format = \"squid\""), "{said}");
    }
}

/// A delete, a refused one, a purge that finds nothing, a request: the same in each log.
#[test]
fn a_delete_that_was_refused_deletes_nothing() {
    let bed = Bed::new();
    let requests = [
        ("GET", 200),
        ("DELETE", 403),
        ("GET", 200),
        ("PURGE", 404),
        ("GET", 200),
        ("DELETE", 204),
    ];
    let log = |line: &dyn Fn(&str, u16) -> String| -> String {
        requests.iter().map(|(method, status)| line(method, *status)).collect()
    };
    let web = |method: &str, status| {
        format!("h - - [01/Aug/1995:00:00:01 +0000] \"{method} /a HTTP/1.1\" {status} 90")
    };
    bed.file("common", &log(&|method, status| web(method, status) + "\n"));
    bed.file("combined", &log(&|method, status| web(method, status) + " \"-\" \"x\"\n"));
    bed.file(
        "squid",
        &log(&|method, status| format!("1.0 1 c TCP_MISS/{status} 90 {method} /a - DIRECT/b -\n")),
    );
    for name in ["common", "combined", "squid"] {
        let sim = bed.json(&["sim", name, "lru", "1000", "--json"]);
        assert_eq!((&sim["empty_requests"], &sim["delete_requests"]), (&1.into(), &2.into()));
        assert_eq!(sim["caches"][0]["misses"], 2, "{name}");
        let text = bed.ok(&["sim", name, "lru", "1000"]);
        assert!(text.contains("1 requests without a body (304, HEAD, no bytes, refused"), "{text}");
        let designs = bed.json(&["designs", name, "ucfs", "--json"]);
        assert_eq!(designs["bodiless_requests"], 1, "{designs}");
        let stat = bed.json(&["trace", "stat", name, "--json"]);
        assert_eq!(stat["stat"]["hit_ratio_max"], 1.0 / 3.0, "{name}");
        bed.ok(&["trace", "convert", name, "t.oracleGeneral"]);
        let beside = std::fs::read_to_string(bed.path("t.oracleGeneral.manifest.json")).unwrap();
        let beside: Value = serde_json::from_str(&beside).unwrap();
        assert_eq!(beside["written"]["lost"]["deletes"], 3, "{name}");
    }
}

/// Words of libCacheSim's command that there are none of here are refused with what to write.
#[test]
fn words_of_cachesim_say_what_to_write_instead() {
    let bed = Bed::new();
    bed.file("access.log", SQUID);
    let sim = ["sim", "access.log", "lru", "1MiB"];
    for (given, instead) in [
        (&["-e", "ratio=0.1"][..], "as in fbc:cmax=5:amax=50"),
        (&["--eviction-params=ratio=0.1"], "as in fbc:cmax=5:amax=50"),
        (&["-o", "out.txt"], "--json or --csv"),
        (&["--sample-ratio", "0.1"], "lab trace sample TRACE OUT --share 0.1"),
    ] {
        let (code, said) = bed.fails(&[&sim[..], given].concat());
        assert!(code == 2 && said.contains(instead), "{given:?}: {said}");
    }
    assert!(!bed.ok(&["sim", "--help"]).contains("sample-ratio"));
}

/// Of a header with names that nobody knows: in words, and in what programs read.
#[test]
fn columns_of_sizes_that_are_not_known_are_told() {
    let bed = Bed::new();
    bed.file(
        "kv.csv",
        "time,key,key_size,value_size,op\n1,a,2,98,set\n2,a,2,98,get\n3,a,2,0,delete\n",
    );
    let report = bed.json(&["sim", "kv.csv", "lru", "1000", "--json"]);
    let cache = &report["caches"][0];
    assert_eq!((&cache["bytes"], &cache["misses"]), (&200.into(), &1.into()));
    assert_eq!(report["delete_requests"], 1);
    assert!(report["manifest"]["trace"].get("notes").is_none(), "{report}");
    bed.file("other.csv", "time,key,packet_size\n1,a,98\n");
    let output = bed.run(&["sim", "other.csv", "lru", "1000", "--json", "--html", "r.html"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let page = std::fs::read_to_string(bed.path("r.html")).unwrap();
    for (words, at) in [("every size is 1", 0), ("columns 3 (`packet_size`)", 1)] {
        let note = report["manifest"]["trace"]["notes"][at].as_str().unwrap();
        assert!(note.contains(words) && said.contains(note) && page.contains(words), "{said}");
    }
}

/// Tunnels, questions of neighbours, refusals, connections without a request, and comments.
#[test]
fn lines_that_are_no_requests_are_left_out_and_counted() {
    let bed = Bed::new();
    let others = "# a comment\n\
        982800000.0 9 u TCP_TUNNEL/200 9000 CONNECT c.example:443 - HIER_DIRECT/1.2.3.4 -\n\
        982800000.1 0 n UDP_MISS/000 60 ICP_QUERY http://a.example/9 - NONE/- -\n\
        982800000.2 0 u TCP_DENIED/403 700 GET http://a.example/8 - NONE/- text/html\n\
        982800000.3 0 u TCP_DENIED/407 700 GET http://a.example/8 - NONE/- text/html\n\
        982800000.4 0 u NONE/400 700 NONE error:invalid-request - NONE/- text/html\n";
    bed.file("access.log", &format!("{others}{SQUID}"));
    let left_out = json!({
        "comments": 1,
        "tunnels (CONNECT)": 1,
        "questions of neighbour caches (ICP, HTCP)": 1,
        "denied by the proxy": 2,
        "requests that the proxy did not understand (NONE, error:)": 1,
    });
    bed.file("only.log", SQUID);
    for args in [&["sim", "LOG", "lru", "1MiB"][..], &["trace", "stat", "LOG"]] {
        let of = |log: &str| -> Vec<String> {
            args.iter().map(|word| word.replace("LOG", log)).collect()
        };
        let json = |log: &str| {
            let args = [of(log), vec!["--json".to_owned()]].concat();
            bed.json(&args.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let mut with = json("access.log");
        assert_eq!(with["manifest"]["trace"]["left_out"], left_out, "{args:?}");
        let mut without = json("only.log");
        for report in [&mut with, &mut without] {
            report["manifest"] = Value::Null;
            report["trace"] = Value::Null;
        }
        assert_eq!(with, without, "{args:?}");
        let args = of("access.log");
        let output = bed.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
        for text in [output.stdout, output.stderr] {
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("2 lines left out: denied by the proxy\n"), "{text}");
        }
    }
    let designs = bed.json(&["designs", "access.log", "store", "--json"]);
    assert_eq!(designs["manifest"]["trace"]["left_out"], left_out);
    assert_eq!(designs["requests"], 4, "{designs}");
}

/// What web servers log of clients that say nothing, and what is written above columns.
#[test]
fn connections_without_a_request_and_comments_end_no_run() {
    let bed = Bed::new();
    let line = |request: &str, end: &str| {
        format!("h - - [01/Aug/1995:00:00:01 +0000] \"{request}\" {end} \"-\" \"-\"\n")
    };
    let log = [line("-", "408 0"), line("GET /a HTTP/1.1", "200 9"), line("", "400 0")].concat();
    bed.file("web.log", &log);
    let report = bed.json(&["trace", "stat", "web.log", "--json"]);
    let left_out = &report["manifest"]["trace"]["left_out"];
    assert_eq!(left_out, &json!({"connections on which nothing was asked": 2}));
    assert_eq!((&report["stat"]["requests"], &report["stat"]["skipped"]), (&1.into(), &0.into()));
    for (text, form, comments) in [
        ("# made by hand\ntime,obj_id,size\n1,a,9\n# the end\n", "csv", 2),
        ("# time,obj_id,size\n1,a,9\n#2,a,9\n", "csv", 1),
        ("#1\n1,u,GET,200,9,a\n", "damelo", 1),
        ("#1\n1,a,1,8,u,get,0\n", "twr", 1),
        ("obj_id,size\n#1,9\n# 2,9\n", "csv", 1),
    ] {
        bed.file("t", text);
        let report = bed.json(&["trace", "stat", "t", "--json"]);
        assert_eq!(report["format"], form, "{text}");
        assert_eq!(report["stat"]["requests"], 1, "{text}");
        assert_eq!(
            report["manifest"]["trace"]["left_out"],
            json!({"comments": comments}),
            "{text}"
        );
    }
}

/// What cannot be seconds is asked about, not taken for the year 55,000.
#[test]
fn times_may_count_something_else_than_seconds() {
    let bed = Bed::new();
    bed.file("t.csv", "1700000000000,u,GET,200,9,a\n1700000060000,u,GET,200,9,a\n");
    let (code, said) = bed.fails(&["trace", "stat", "t.csv"]);
    assert!(code == 4 && said.contains("`1700000000000`, too large for seconds"), "{said}");
    assert!(said.contains("try: add --time-unit ms") && !said.contains("--skip-bad"), "{said}");
    let args = ["trace", "stat", "t.csv", "--time-unit"];
    let text = bed.ok(&[&args[..], &["ms"]].concat());
    assert!(text.contains("1700000000.000000 to 1700000060.000000 s"), "{text}");
    let (code, said) = bed.fails(&[&args[..], &["h"]].concat());
    assert!(code == 2 && said.contains("write s, ms, us or ns"), "{said}");
    let (code, said) = bed.fails(&["trace", "stat", "gen:zipf", "--time-unit", "s"]);
    assert!(code == 2 && said.contains("--time-unit does nothing there"), "{said}");
    let (code, said) = bed.fails(&["paper", "squid", "--time-unit", "s"]);
    assert!(code == 2 && said.contains("--time-unit is about --trace"), "{said}");
    let intervals = ["--time-unit", "ms", "--report-interval", "30", "--json"];
    let report = bed.json(&[&["sim", "t.csv", "lru", "99"][..], &intervals].concat());
    assert_eq!(report["caches"][0]["intervals"][1]["end_s"], 90);
}

/// Of a form without them, of columns without one, and of records that all have the same.
#[test]
fn what_goes_by_times_is_refused_where_there_are_none() {
    let bed = Bed::new();
    bed.file("t.txt", "a\nb\na\n");
    bed.file("t.csv", "obj_id,size\na,9\nb,9\na,9\n");
    bed.file("same.csv", "time,obj_id,size\n7,a,9\n7,b,9\n7,a,9\n");
    for trace in ["t.txt", "t.csv", "same.csv"] {
        let sim = ["sim", trace, "lru", "99"];
        let none = "goes by the times of requests, and ".to_owned() + trace + " has none";
        for option in ["--report-interval", "--warmup-sec"] {
            let (code, said) = bed.fails(&[&sim[..], &[option, "5"]].concat());
            assert!(code == 2 && said.contains(&format!("{option} {none}")), "{said}");
        }
        bed.ok(&[&sim[..], &["--warmup-sec", "0"]].concat());
        let (code, said) = bed.fails(&["designs", trace, "store", "--at-trace-pace"]);
        assert!(code == 2 && said.contains(&format!("--at-trace-pace {none}")), "{said}");
    }
    bed.file("t.csv", "time,obj_id,size\n7,a,9\n8,b,9\n9,a,9\n");
    bed.ok(&["sim", "t.csv", "lru", "99", "--report-interval", "1", "--warmup-sec", "1"]);
    bed.ok(&["designs", "t.csv", "store", "--at-trace-pace"]);
}

/// Where the first line is malformed already, the form may be another: --skip-bad alone would leave
/// nothing.
#[test]
fn where_all_lines_are_malformed_the_form_is_told() {
    let bed = Bed::new();
    bed.file("t.csv", "a b c\nd e f\n");
    let (_, said) = bed.fails(&["trace", "stat", "t.csv", "--format", "squid"]);
    assert!(said.contains("try: it was read as squid: if it is of another form"), "{said}");
    let (code, said) = bed.fails(&["trace", "stat", "t.csv", "--format", "squid", "--skip-bad"]);
    assert!(
        code == 4 && said.contains("all 2 are malformed, the first, line 1: 3 fields"),
        "{said}"
    );
    assert!(said.contains("try: name another form with --format"), "{said}");
    bed.file("access.log", &format!("broken\n{SQUID}"));
    let (_, said) = bed.fails(&["trace", "stat", "access.log"]);
    assert!(said.contains("if only this line is broken, add --skip-bad"), "{said}");
    bed.ok(&["trace", "stat", "access.log", "--skip-bad"]);
}

#[test]
fn all_requests_may_be_asked_for_as_with_cachesim() {
    let bed = Bed::new();
    bed.file("access.log", SQUID);
    for args in [&["-n", "-1"][..], &["--num-req", "-1"], &["--num-req=-1"]] {
        let report = bed.json(&[&["trace", "stat", "access.log", "--json"], args].concat());
        assert_eq!(report["stat"]["requests"], 4, "{args:?}");
    }
    let (code, said) = bed.fails(&["trace", "stat", "access.log", "-n", "-2"]);
    assert!(code == 2 && said.contains("a number of requests, or -1 for all"), "{said}");
}

/// However often it was written anew since.
#[test]
fn a_sample_is_told_as_one() {
    let bed = Bed::new();
    let sample = ["trace", "sample", "gen:zipf?requests=9000", "s.csv", "--share", "0.25"];
    bed.ok(&sample);
    bed.ok(&["trace", "sample", "s.csv", "s2.csv", "--share", "0.5", "--seed", "7"]);
    bed.ok(&["trace", "convert", "s2.csv", "s3.oracleGeneral"]);
    bed.ok(&["trace", "sample", "s.csv", "r.csv", "--share", "0.5", "--by", "request"]);
    let quarter = json!({"of": "objects", "share": 0.25});
    let half = json!({"of": "objects", "share": 0.5});
    let halved = json!({"of": "requests", "share": 0.5});
    for (trace, samples, words) in [
        ("s.csv", json!([quarter]), "for the whole, caches are 4 times as large"),
        ("s2.csv", json!([quarter, half]), "0.25 of the objects, of these 0.5 of the objects;"),
        ("s3.oracleGeneral", json!([quarter, half]), "caches are 8 times as large"),
        ("r.csv", json!([quarter, halved]), "those of the sample, not scaled\n"),
    ] {
        for args in [&["sim", trace, "lru", "1MiB"][..], &["trace", "stat", trace]] {
            let report = bed.json(&[args, &["--json"]].concat());
            assert_eq!(report["manifest"]["trace"]["samples"], samples, "{args:?}");
            let text = bed.ok(args);
            assert!(
                text.contains("a sample, 0.25 of the objects") && text.contains(words),
                "{text}"
            );
        }
    }
    let whole = bed.json(&["sim", "gen:zipf?requests=900", "lru", "1MiB", "--json"]);
    assert!(whole["manifest"]["trace"].get("samples").is_none(), "{whole}");
    bed.ok(&["rerun", "s2.csv"]);
}

//! Objects in and out of a store: `put`, `get`, `ls`, `rm` and `purge`.

use super::*;

#[test]
fn what_was_put_comes_out_whole_and_in_ranges() {
    let bed = Bed::new();
    let value = pattern(3_000_000);
    std::fs::write(bed.path("in"), &value).unwrap();
    let store = bed.store();
    let put = bed.json(&["put", &store, "big", "in", "--group", "g", "--json"]);
    assert_eq!(put["length_bytes"], 3_000_000);
    assert!(bed.ok(&["get", &store, "big"]) == value);
    bed.ok(&["get", &store, "big", "-o", "out"]);
    assert!(std::fs::read(bed.path("out")).unwrap() == value);
    for (range, expected) in [
        ("0-0", 0..1),
        ("100-199", 100..200),
        ("2999990-", 2_999_990..3_000_000),
        ("-5", 2_999_995..3_000_000),
        ("70000-2000000", 70_000..2_000_001),
        ("4000000-5000000", 0..0),
    ] {
        assert!(bed.ok(&["get", &store, "big", "--range", range]) == value[expected], "{range}");
    }
    let known = bed.json(&["get", &store, "big", "--json"]);
    assert_eq!(known["length_bytes"], 3_000_000);
    assert_eq!(known["group"], put["group"]);
}

#[test]
fn get_takes_the_name_of_standard_output_for_that() {
    let bed = Bed::new();
    bed.put("k", b"value", &[]);
    let store = bed.store();
    assert_eq!(bed.ok(&["get", &store, "k", "-o", "-"]), b"value");
    for more in [&["--meta", "-"][..], &["--json", "-o", "-"]] {
        let said = bed.fails(2, &[&["get", &store, "k"], more].concat());
        assert!(said.contains("takes a file"), "{said}");
    }
    assert!(!bed.path("-").exists());
}

#[test]
fn get_does_not_write_over_the_store() {
    let bed = Bed::new();
    bed.put("k", b"value", &[]);
    let store = bed.store();
    std::os::unix::fs::symlink(&store, bed.path("link")).unwrap();
    for more in [["-o", &store], ["-o", "link"], ["--meta", "./s.damelo"]] {
        let said = bed.fails(2, &[&["get", &store, "k"][..], &more].concat());
        assert!(said.contains("is the store itself"), "{said}");
    }
    assert_eq!(bed.ok(&["get", &store, "k"]), b"value");
}

#[test]
fn metadata_and_empty_objects_survive() {
    let bed = Bed::new();
    std::fs::write(bed.path("meta"), "Content-Type: text/html").unwrap();
    bed.put("page", b"", &["--meta", "meta"]);
    let store = bed.store();
    assert!(bed.ok(&["get", &store, "page", "--meta", "meta.out"]).is_empty());
    assert_eq!(std::fs::read(bed.path("meta.out")).unwrap(), b"Content-Type: text/html");
}

/// A device never ends; what it sends must not fill the machine's memory.
#[test]
fn metadata_is_not_read_beyond_what_any_store_keeps() {
    let bed = Bed::new();
    let store = bed.store();
    std::fs::write(bed.path("long"), vec![0; (1 << 20) + 1]).unwrap();
    std::fs::write(bed.path("v"), "value").unwrap();
    for meta in ["long", "/dev/zero"] {
        let said = bed.fails(4, &["put", &store, "k", "v", "--meta", meta]);
        assert!(said.contains(meta) && said.contains("more than 1MiB"), "{said}");
    }
    assert!(bed.keys(&[]).is_empty());
}

#[test]
fn put_replaces_and_an_unreadable_input_changes_nothing() {
    let bed = Bed::new();
    bed.put("k", b"old", &[]);
    assert_eq!(bed.fails(4, &["put", &bed.store(), "k", "no such file"]).lines().count(), 2);
    assert_eq!(bed.fails(4, &["put", &bed.store(), "k", "."]).lines().count(), 2);
    assert_eq!(bed.ok(&["get", &bed.store(), "k"]), b"old");
    bed.put("k", b"new", &[]);
    assert_eq!(bed.ok(&["get", &bed.store(), "k"]), b"new");
    assert_eq!(bed.keys(&[]), ["k"]);
    bed.fails(4, &["put", &bed.store(), "", "/dev/null"]);
}

#[test]
fn ls_shows_what_is_asked_for() {
    let bed = Bed::new();
    for (key, group) in [("a/1", "g"), ("a/2", "h"), ("b/1", "g")] {
        bed.put(key, b"value", &["--group", group]);
    }
    assert_eq!(bed.keys(&[]), ["a/1", "a/2", "b/1"]);
    assert_eq!(bed.keys(&["--prefix", "a/"]), ["a/1", "a/2"]);
    assert_eq!(bed.keys(&["--group", "g"]), ["a/1", "b/1"]);
    assert_eq!(bed.keys(&["--group", "g", "--prefix", "b"]), ["b/1"]);
    let line = bed.ok_text(&["ls", &bed.store(), "--group", "h"]);
    let fields: Vec<&str> = line.split_whitespace().collect();
    assert_eq!((fields[0], fields[2]), ("5", "a/2"));
    assert_eq!(bed.keys(&["--group", fields[1]]), ["a/2"], "the printed group is taken back");
}

#[test]
fn rm_and_a_missing_key_end_with_one() {
    let bed = Bed::new();
    bed.put("a", b"1", &[]);
    bed.put("b", b"2", &[]);
    let store = bed.store();
    bed.ok(&["rm", &store, "a"]);
    assert_eq!(bed.keys(&[]), ["b"]);
    assert!(bed.fails(1, &["get", &store, "a"]).contains("`a` is not in the store"));
    let missing = bed.run(&["get", &store, "a", "--json"]);
    let said: Value = serde_json::from_slice(&missing.stdout).unwrap();
    assert_eq!((missing.status.code(), &said["found"]), (Some(1), &Value::Bool(false)));
    assert!(bed.fails(1, &["rm", &store, "a", "b"]).contains("1 of 2"));
    assert!(bed.keys(&[]).is_empty(), "the one that was there is gone nevertheless");
    bed.ok(&["rm", &store, "--force", "a"]);
}

#[test]
fn purge_drops_a_group_a_prefix_or_everything() {
    let bed = Bed::new();
    for (key, group) in [("a/1", "g"), ("a/2", "h"), ("b/1", "h"), ("c/1", "h")] {
        bed.put(key, b"value", &["--group", group]);
    }
    let store = bed.store();
    bed.ok(&["purge", &store, "--group", "g"]);
    assert_eq!(bed.keys(&[]), ["a/2", "b/1", "c/1"]);
    assert!(bed.fails(2, &["purge", &store, "--prefix", ""]).contains("--all"));
    bed.ok(&["purge", &store, "--prefix", "a/"]);
    assert_eq!(bed.keys(&[]), ["b/1", "c/1"]);
    let purged = bed.json(&["purge", &store, "--all", "--json"]);
    assert_eq!(purged["purged"], "everything");
    assert!(bed.keys(&[]).is_empty());
    bed.put("a/3", b"after", &["--group", "g"]);
    assert_eq!(bed.keys(&[]), ["a/3"], "what comes after a purge stays");
}

//! Stores as a whole: `format`, `stat` and `check`.

use super::*;

#[test]
fn format_refuses_what_exists_and_force_overrules() {
    let bed = Bed::new();
    bed.put("k", b"v", &[]);
    let error = bed.fails(3, &["format", &bed.store(), "--size", "64MiB"]);
    assert!(error.contains("exists") && error.contains("--force"), "{error}");
    assert_eq!(bed.keys(&[]), ["k"]);
    let made = bed.json(&["format", &bed.store(), "--size", "64MiB", "--force", "--json"]);
    assert!(made["objects_max"].as_u64().unwrap() > 0 && made["size_bytes"].as_u64().unwrap() > 0);
    assert!(bed.keys(&[]).is_empty());
}

#[test]
fn a_forced_format_has_the_size_that_was_asked_for() {
    let bed = Bed::empty();
    for junk in [6, 5000, 20 << 20] {
        std::fs::write(bed.path("s.damelo"), pattern(junk)).unwrap();
        bed.fails(3, &["format", &bed.store(), "--size", "16MiB"]);
        assert_eq!(std::fs::metadata(bed.path("s.damelo")).unwrap().len(), junk as u64);
        let made = bed.json(&["format", &bed.store(), "--size", "16MiB", "--force", "--json"]);
        assert_eq!(made["size_bytes"], 16 << 20, "after {junk} bytes of something else");
    }
}

/// A format that cannot be must not cost what was there.
#[test]
fn a_forced_format_that_cannot_be_leaves_what_was_there() {
    let bed = Bed::new();
    bed.put("k", b"v", &[]);
    let format = |size: &str| bed.fails(3, &["format", &bed.store(), "--size", size, "--force"]);
    assert!(format("100KiB").contains("100KiB is too small: 6MiB will do"));
    assert!(format("1000000TiB").contains("s.damelo"));
    assert_eq!(bed.keys(&[]), ["k"]);
}

#[test]
fn a_size_that_is_too_small_leaves_no_file_and_says_what_will_do() {
    let bed = Bed::empty();
    let error = bed.fails(3, &["format", &bed.store(), "--size", "100KiB"]);
    assert!(error.contains("100KiB is too small: 6MiB will do"), "{error}");
    assert!(!bed.path("s.damelo").exists());
    bed.ok(&["format", &bed.store(), "--size", "6MiB"]);
}

#[test]
fn an_index_of_impossible_size_is_refused_and_leaves_no_file() {
    let bed = Bed::empty();
    for objects in ["0", "999999999999", "18446744073709551615"] {
        let args = ["format", &bed.store(), "--size", "64MiB", "--objects", objects];
        let output = bed.run(&args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{objects}: {text}");
        assert!(text.contains(&format!("objects_max is {objects}")), "{text}");
        assert!(!bed.path("s.damelo").exists(), "{objects}");
    }
}

#[test]
fn stat_tells_what_the_store_is() {
    let bed = Bed::new();
    bed.put("a", b"1", &[]);
    let text = bed.ok_text(&["stat", &bed.store()]);
    assert!(text.contains("volume") && text.contains("damelo_"), "{text}");
    let stat = bed.json(&["stat", &bed.store(), "--json"]);
    assert!(stat["info"]["page_bytes"].as_u64().unwrap() >= 16 << 10);
    assert!(!stat["metrics"].as_array().unwrap().is_empty());
    let stat = bed.json(&["stat", &bed.store(), "--json"]);
    assert_eq!(stat["latencies"][1]["name"], "damelo_disk_write_seconds");
    let buckets = stat["latencies"][1]["buckets"].as_array().unwrap();
    let bounds = buckets.iter().map(|bucket| bucket["up_to_seconds"].as_f64());
    assert_eq!(bounds.skip(22).collect::<Vec<_>>(), [Some(4.194304), Some(8.388608), None]);
    assert!(bed.ok_text(&["stat", &bed.store()]).contains("damelo_disk_read_seconds_sum"));
}

/// JSON is text, and the name of a file need not be.
#[test]
fn a_store_whose_name_is_no_text_is_told_as_json() {
    let bed = Bed::empty();
    let name = std::ffi::OsStr::from_bytes(b"s\xff.damelo");
    let told = |args: &[&str]| -> Value {
        let output = bed.command(args).arg(name).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let made = told(&["format", "--size", "64MiB", "--json"]);
    assert_eq!(made["volumes"][0], "s\u{fffd}.damelo");
    let stat = told(&["stat", "--json"]);
    assert_eq!(stat["info"]["volumes"][0]["path"], "s\u{fffd}.damelo");
}

#[test]
fn check_passes_a_good_store_and_finds_a_flipped_bit() {
    let bed = Bed::new();
    let needle = b"there is exactly one of these in the store";
    bed.put("k", needle, &[]);
    let report = bed.json(&["check", &bed.store(), "--json"]);
    assert_eq!(report["damaged_total"], 0);
    assert!(!report["segments"].as_array().unwrap().is_empty());
    flip_a_bit(Path::new(&bed.store()), needle);
    let output = bed.run(&["check", &bed.store()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("1 damaged place found"));
    let read = bed.run(&["get", &bed.store(), "k"]);
    assert!(read.stdout.is_empty(), "damaged bytes are never served: {read:?}");
}

/// No command opens what was cut off, so that nothing in it reads as a miss either.
#[test]
fn check_refuses_what_can_never_be_opened_as_the_others_do() {
    let bed = Bed::new();
    let store = bed.store();
    let file = std::fs::File::options().write(true).open(&store).unwrap();
    let bytes = file.metadata().unwrap().len();
    file.set_len(bytes - 4096).unwrap();
    for command in ["check", "stat"] {
        let error = bed.fails(3, &[command, &store]);
        let said = format!("has {}KiB of the store's", bytes / 1024 - 4);
        assert!(error.contains(&said) && error.contains("--force"), "{command}: {error}");
    }
    std::fs::write(&store, pattern(100_000)).unwrap();
    for command in ["check", "stat"] {
        let error = bed.fails(3, &[command, &store]);
        assert!(error.contains("try: `damelo format"), "{command}: {error}");
    }
}

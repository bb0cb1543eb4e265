//! `damelo lab paper`: which requests a paper plays, and its numbers beside ours.

use serde_json::json;

use super::*;

/// Of 1,500 requests a fifth has a `?`: by the rule of §4 they are no part of it, as if they had
/// been filtered out before.
#[test]
fn a_paper_plays_what_its_own_rule_lets_through() {
    let bed = Bed::new();
    let line = |n: u32| match n % 5 {
        0 => format!("{n},c,GET,200,900,http://h{}/?{}\n", n % 7, n % 90),
        _ => format!("{n},c,GET,200,900,http://h{}/{}\n", n % 7, n % 90),
    };
    bed.file("t.csv", &(0..1500).map(line).collect::<String>());
    let squid = |trace: &str, more: &[&str]| {
        bed.ok(&[&["paper", "squid", "--trace", trace, "--json"], more].concat())
    };
    let tables = |text: &str| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (chosen, all) = (tables(&squid("t.csv", &[])), tables(&squid("t.csv", &["--unfiltered"])));
    for (chosen, all) in chosen.iter().zip(&all) {
        assert_eq!(chosen["rule"], "squid-disk-io-1999");
        assert_eq!(
            (&chosen["requests_left_out"], &all["requests_left_out"]),
            (&300.into(), &0.into())
        );
        assert_eq!(all["rule"], Value::Null);
    }
    bed.ok(&["trace", "filter", "t.csv", "f.csv", "--rule", "squid-disk-io-1999"]);
    let before = tables(&squid("f.csv", &["--unfiltered"]));
    let rows = |tables: &[Value]| tables.iter().map(|t| t["rows"].clone()).collect::<Vec<_>>();
    assert_eq!(rows(&chosen), rows(&before));
    assert_ne!(rows(&chosen), rows(&all));
    let words = "squid: 1,200 of 1,500 requests, those that the paper's own rule";
    assert!(bed.ok(&["paper", "squid", "--trace", "t.csv", "--html", "p.html"]).starts_with(words));
    assert!(std::fs::read_to_string(bed.path("p.html")).unwrap().contains(words));
    let csv = bed.ok(&["paper", "squid", "--trace", "t.csv", "--csv"]);
    assert!(csv.lines().nth(2).unwrap().ends_with(",squid-disk-io-1999,"), "{csv}");
}

#[test]
fn a_paper_has_the_published_number_beside_ours() {
    let bed = Bed::new();
    let text = bed.ok(&["paper", "cfs", "--scale-down", "20", "--json"]);
    let tables: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(tables.len() >= 5, "CFS has tables 2 to 6");
    let rows = tables.iter().flat_map(|table| table["rows"].as_array().unwrap());
    assert!(rows.clone().any(|row| !row["published"].is_null() && row["ratio"].is_number()));
    let mut bounded = rows.clone().filter(|row| row["published_as"] == "at least");
    assert!(bounded.any(|row| row["published"] == json!([95.0, null])), "over 95%");
    let left = tables.iter().flat_map(|table| table["not_measured"].as_array().unwrap());
    assert!(left.clone().any(|row| row["reason"].as_str().unwrap().contains("processor time")));
    let csv = bed.ok(&["paper", "cfs", "--scale-down", "50", "--csv"]);
    assert!(csv.lines().any(|line| line.contains("hash,s,,,picture only,,,,\"saves processor")));
    assert!(csv.lines().any(|line| line.contains(",95,,at least,")), "{csv}");
    assert!(tables.iter().all(|table| !table["why"].as_str().unwrap().is_empty()));
    assert!(tables.iter().all(|table| table["manifest"]["trace"]["seed"] == 1));
    let args = ["paper", "cfs", "--scale-down", "25", "--html", "p.html"];
    bed.ok(&args);
    let page = std::fs::read_to_string(bed.path("p.html")).unwrap();
    for part in [
        "cfs, table 2: Deletes of 2000 files",
        "<th>published</th>",
        "cfs, store",
        "mean milliseconds of a thousand",
        "<p>Synthetic workloads, and memory with them, are divided by 25",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("Synthetic requests") && page.contains("damelo lab paper cfs"));
    bed.ok(&["paper", "cfs", "--scale-down", "25", "--html", "q.html"]);
    let of = |name: &str| std::fs::read_to_string(bed.path(name)).unwrap();
    assert_eq!(results(&of("p.html")), results(&of("q.html")));
}

//! `docs/http-semantics.md` names a test for every requirement: each of them must exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Requirements of RFC 9111 below which the first table cannot be complete.
const REQUIREMENTS_MIN: usize = 80;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names of the tests in every file below `folder`, by the file's path from there.
fn collect(folder: &Path, prefix: &str, tests: &mut BTreeMap<String, BTreeSet<String>>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            collect(&path, &format!("{prefix}{name}/"), tests);
        } else if name.ends_with(".rs") {
            tests.entry(format!("{prefix}{name}")).or_default().extend(tests_in(&read(&path)));
        }
    }
}

/// Functions that follow a line `#[test]`, other attributes and comments between them or not.
fn tests_in(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut marked = false;
    for line in source.lines().map(str::trim) {
        if line == "#[test]" {
            marked = true;
        } else if let Some(rest) = line.strip_prefix("fn ") {
            if marked {
                found.push(rest.split(['(', '<']).next().unwrap_or_default().to_owned());
            }
            marked = false;
        }
    }
    found
}

/// `file: test` between backticks.
fn references(cell: &str) -> Vec<(String, String)> {
    let quoted = cell.split('`').skip(1).step_by(2);
    let pairs = quoted.map(|text| text.split_once(": ").expect("file: test"));
    pairs.map(|(file, test)| (file.to_owned(), test.to_owned())).collect()
}

#[test]
fn every_test_that_the_page_names_exists() {
    let mut tests = BTreeMap::new();
    for folder in ["http-rules/src", "http-rules/tests", "http-proxy/tests"] {
        collect(&root().join("crates").join(folder), "", &mut tests);
    }
    let page = read(&root().join("docs/http-semantics.md"));
    let (mut requirements, mut table) = (0, "");
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            table = title;
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        let is_row = line.starts_with("| ") && cells.len() >= 3 && !line.contains("| tests |");
        if !is_row {
            continue;
        }
        let named = references(cells[cells.len() - 1].trim());
        assert!(!named.is_empty(), "no test: {line}");
        for (file, test) in named {
            let there = tests.get(&file).is_some_and(|known| known.contains(&test));
            assert!(there, "{file} has no test `{test}`, named in: {line}");
        }
        requirements += usize::from(table.starts_with("RFC 9111"));
    }
    assert!(requirements >= REQUIREMENTS_MIN, "{requirements} requirements of RFC 9111");
}

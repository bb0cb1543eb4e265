//! Modules of the rules use each other one way only: no circle leads back to where it began.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

/// What each module names of the others, tests and comments aside.
fn uses() -> BTreeMap<String, BTreeSet<String>> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        assert!(path.is_file(), "{name} is a directory: let this test look into it");
        if name != "lib" && !name.ends_with("_tests") {
            sources.insert(name, fs::read_to_string(&path).expect("a source"));
        }
    }
    let names: BTreeSet<String> = sources.keys().cloned().collect();
    let used = |source: String| named(&source).intersection(&names).cloned().collect();
    sources.into_iter().map(|(name, source)| (name, used(source))).collect()
}

/// First names behind `crate::`, also those of a list in braces.
fn named(source: &str) -> BTreeSet<String> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n");
    let first = |text: &str| {
        let text = text.trim_start();
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        text[..end.unwrap_or(text.len())].to_owned()
    };
    let mut names = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(list) => {
                names.extend(list.split('}').next().unwrap_or_default().split(',').map(first))
            }
            None => drop(names.insert(first(rest))),
        }
    }
    names
}

#[test]
fn no_module_uses_one_that_uses_it() {
    let mut left = uses();
    assert!(left["surrogate"].contains("directive"), "the sources are read");
    // What uses nothing that is left is taken away, until nothing is left but circles.
    loop {
        let free: Vec<String> = {
            let is_free =
                |used: &BTreeSet<String>| used.iter().all(|name| !left.contains_key(name));
            left.iter().filter(|(_, used)| is_free(used)).map(|(name, _)| name.clone()).collect()
        };
        if free.is_empty() {
            break;
        }
        free.iter().for_each(|name| drop(left.remove(name)));
    }
    assert!(left.is_empty(), "these use each other in a circle: {left:?}");
}

#[test]
fn names_are_found_in_lists_too() {
    let source =
        "// crate::no\nuse crate::one::Two;\nuse crate::{three, four::Five};\ncrate::six();\n";
    let expected = ["four", "one", "six", "three"].map(str::to_owned);
    assert_eq!(named(source), BTreeSet::from(expected));
}

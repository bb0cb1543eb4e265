//! Modules use only those above them in the table of `ARCHITECTURE.md`, "Modules of the store".
//!
//! A row is a module of the root, or one of a folder (`write/create`), with all that lies below it.
//! What a module uses is what its source names by `crate::` and `super::`, comments and tests
//! aside. Methods of `Engine` are not seen: they belong to one type, wherever they are written.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Modules of the table in its order, the lowest first.
fn documented() -> Vec<String> {
    let text = fs::read_to_string(root().join("../../ARCHITECTURE.md")).expect("the document");
    let (_, section) = text.split_once("## Modules of the store\n").expect("the section");
    let section = section.split("\n## ").next().expect("its text");
    let cells = section.lines().filter(|line| line.starts_with("| `"));
    let cells = cells.filter_map(|line| line.split('|').nth(1));
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(|name| name.trim_end_matches('/').to_owned())
        .collect()
}

/// Every source file of the library but those of tests, and its module, from the root on.
fn sources(directory: &Path, module: &[String], found: &mut Vec<(PathBuf, Vec<String>)>) {
    for entry in fs::read_dir(directory).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if stem.ends_with("tests") || (module.is_empty() && stem == "lib") {
            continue;
        }
        let mut module = module.to_vec();
        if stem != "mod" {
            module.push(stem);
        }
        if path.is_dir() {
            sources(&path, &module, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push((path, module));
        }
    }
}

/// The code of a source: no comments, no tests.
fn code(source: &str) -> String {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The paths that begin at `rest`, behind `before`: `a::{b, c::d}` is `a::b` and `a::c::d`. Returns
/// what is left.
fn paths<'a>(mut rest: &'a str, before: &[String], found: &mut Vec<Vec<String>>) -> &'a str {
    let mut path = before.to_vec();
    loop {
        rest = rest.trim_start();
        if let Some(mut inside) = rest.strip_prefix('{') {
            while !inside.trim_start().starts_with('}') {
                inside = paths(inside, &path, found).trim_start();
                inside = inside.strip_prefix(',').unwrap_or(inside);
            }
            return &inside.trim_start()[1..];
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        path.push(rest[..end].to_owned());
        rest = &rest[end..];
        let Some(further) = rest.strip_prefix("::") else { break };
        rest = further;
    }
    found.push(path);
    // `as` and another name.
    &rest[rest.find([',', '}', ';', '\n']).unwrap_or(rest.len())..]
}

/// Every path that a source of `module` names, from the root on.
fn used(source: &str, module: &[String]) -> Vec<Vec<String>> {
    let code = code(source);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        paths(&code[at + "crate::".len()..], &[], &mut found);
    }
    for (at, _) in code.match_indices("super::") {
        let above = &module[..module.len() - 1];
        if !code[..at].ends_with("super::") {
            let mut from_here = Vec::new();
            paths(&code[at + "super::".len()..], above, &mut from_here);
            for mut path in from_here {
                while let Some(at) = path.iter().position(|name| name == "super") {
                    path.drain(at - 1..=at);
                }
                found.push(path);
            }
        }
    }
    found
}

/// Where the module of a path stands in the table. What a folder exports is of the last of its
/// modules.
fn place(table: &[String], path: &[String]) -> Option<usize> {
    let two = path.get(..2).map(|two| two.join("/"));
    let exactly = |name: &str| table.iter().position(|one| one == name);
    let first = path.first()?;
    let inside = || table.iter().rposition(|one| one.starts_with(&format!("{first}/")));
    two.and_then(|two| exactly(&two)).or_else(|| exactly(first)).or_else(inside)
}

#[test]
fn dependencies_point_one_way() {
    let (table, mut sources_found) = (documented(), Vec::new());
    sources(&root().join("src"), &[], &mut sources_found);
    assert!(table.len() > 50 && sources_found.len() > 80, "the table and the sources were found");
    let mut wrong = Vec::new();
    for (path, module) in &sources_found {
        let source = fs::read_to_string(path).expect("a source");
        let named = used(&source, module);
        let (name, shown) = (module.join("::"), path.display());
        // The root of a folder whose modules have rows of their own only lists and exports these.
        if module.len() == 1 && !table.contains(&module[0]) {
            if place(&table, module).is_none() {
                wrong.push(format!("`{name}` is not in the table"));
            } else if !named.is_empty() {
                wrong.push(format!("{shown} is above the modules of its folder, and uses others"));
            }
            continue;
        }
        let row = module.get(..2).map(|two| two.join("/")).filter(|two| table.contains(two));
        if row.is_none() && !table.contains(&module[0]) {
            wrong.push(format!("`{name}` is not in the table"));
            continue;
        }
        let own = place(&table, module).expect("it is in the table");
        for used in named {
            match place(&table, &used) {
                Some(other) if other > own => {
                    wrong.push(format!("{shown} uses `{}`, which comes later", used.join("::")));
                }
                None => wrong.push(format!("{shown} uses `{}`: no such module", used.join("::"))),
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every row is a module that is there, and the root lists it.
#[test]
fn the_table_has_what_is_there() {
    let lib = fs::read_to_string(root().join("src/lib.rs")).expect("the root");
    let mut wrong = Vec::new();
    for row in documented() {
        let path = root().join("src").join(&row);
        if !path.with_extension("rs").exists() && !path.join("mod.rs").exists() {
            wrong.push(format!("`{row}` is in the table, and there is no such module"));
        }
        let first = row.split('/').next().expect("a name");
        if !lib.lines().any(|line| line.ends_with(&format!("mod {first};"))) {
            wrong.push(format!("`{first}` is in the table and not in lib.rs"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn paths_are_read_as_the_compiler_reads_them() {
    let source = "use crate::a::{b, c::{d as e, f}};\nuse super::g::h;\nlet x = crate::i::j(super::super::k::L);\n// crate::no\n";
    let module = ["m".to_owned(), "n".to_owned(), "o".to_owned()];
    let mut all: Vec<String> = used(source, &module).iter().map(|path| path.join("::")).collect();
    all.sort();
    assert_eq!(all, ["a::b", "a::c::d", "a::c::f", "i::j", "m::k::L", "m::n::g::h"]);
}

//! Modules use only those above them in the table of `ARCHITECTURE.md`, "Modules of the proxy".

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Modules of the table in its order, the lowest first.
fn documented() -> Vec<String> {
    let text = fs::read_to_string(root().join("../../ARCHITECTURE.md")).expect("the document");
    let (_, section) = text.split_once("## Modules of the proxy\n").expect("the section");
    let section = section.split("\n## ").next().expect("its text");
    let names = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    names.map(|name| name.trim_end_matches('/').to_owned()).collect()
}

/// Every source file of the library, and the module of the root that it belongs to.
fn sources(directory: &Path, module: Option<&str>, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(directory).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let module = module.unwrap_or(&stem);
        if path.is_dir() {
            sources(&path, Some(module), found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push((path, module.to_owned()));
        }
    }
}

/// Modules of the root that a source names, tests and comments aside.
fn used(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n");
    let names = code.split("crate::").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        rest[..end.unwrap_or(rest.len())].to_owned()
    });
    names.collect()
}

#[test]
fn dependencies_point_one_way() {
    let (documented, mut sources_found) = (documented(), Vec::new());
    let place = |name: &str| documented.iter().position(|one| one == name);
    sources(&root().join("src"), None, &mut sources_found);
    let of_tests = |path: &Path| path.file_stem().is_some_and(|stem| stem == "documents");
    let mut wrong = Vec::new();
    for (path, module) in sources_found {
        if module == "lib" || of_tests(&path) || path.to_string_lossy().ends_with("_tests.rs") {
            continue;
        }
        let Some(own) = place(&module) else {
            wrong.push(format!("`{module}` is not in the table"));
            continue;
        };
        let source = fs::read_to_string(&path).expect("a source");
        for name in used(&source) {
            // `rules` is another crate; a name in capitals is exported by the root.
            match place(&name) {
                Some(other) if other > own => {
                    wrong.push(format!("{} uses `{name}`, which comes later", path.display()));
                }
                None if name != "rules" && !name.starts_with(char::is_uppercase) => {
                    wrong.push(format!("{} uses `{name}`: no such module", path.display()));
                }
                _ => {}
            }
        }
    }
    let lib = fs::read_to_string(root().join("src/lib.rs")).expect("the root");
    for name in &documented {
        if !lib.lines().any(|line| line == format!("mod {name};")) {
            wrong.push(format!("`{name}` is in the table and not in lib.rs"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

//! Holds the headers to the source: the same functions with the same signatures, the same structs,
//! the same numbers; every function guarded against panics and called by a test in C.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use damelo_c::status::Status;

const DAMELO_H: &str = include_str!("../include/damelo.h");
const STATUS_H: &str = include_str!("../include/status.h");

/// All files in a directory of this crate with one of these endings, one after the other.
fn sources(directory: &str, endings: &[&str]) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let mut text = String::new();
    for entry in std::fs::read_dir(directory).expect("directory") {
        let path = entry.expect("entry").path();
        if path.extension().is_some_and(|e| endings.iter().any(|ending| e == *ending)) {
            text.push_str(&std::fs::read_to_string(&path).expect("source"));
        }
    }
    text
}

fn without_comments(text: &str, open: &str, close: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((code, comment)) = rest.split_once(open) {
        out.push_str(code);
        rest = comment.split_once(close).map_or("", |(_, after)| after);
    }
    out + rest
}

/// The header without comments and lines for the preprocessor.
fn c_code() -> String {
    let code = without_comments(DAMELO_H, "/*", "*/");
    code.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n")
}

fn rust_code() -> String {
    without_comments(&sources("src", &["rs"]), "//", "\n")
}

/// One function: what it returns and takes, in C.
type Signature = (String, Vec<String>);

/// Declarations such as `int damelo_love(damelo_store *store, uint64_t group);`.
fn header_functions() -> BTreeMap<String, Signature> {
    let mut functions = BTreeMap::new();
    for statement in c_code().split([';', '{', '}']) {
        let Some((head, arguments)) = statement.split_once('(') else { continue };
        let split = head.rfind(|c: char| !c.is_alphanumeric() && c != '_').expect("a type");
        let (result, name) = head.split_at(split + 1);
        if !name.starts_with("damelo_") {
            continue;
        }
        let arguments = arguments.trim_end().trim_end_matches(')');
        let types = arguments.split(',').map(str::trim).filter(|a| *a != "void").map(c_type);
        functions.insert(name.to_owned(), (normal(result), types.collect()));
    }
    functions
}

/// The type of a parameter, without its name.
fn c_type(parameter: &str) -> String {
    let end = parameter.rfind(|c: char| !c.is_alphanumeric() && c != '_').expect("a type");
    normal(&parameter[..=end])
}

/// One spelling for one type: words and stars apart.
fn normal(text: &str) -> String {
    text.replace('*', " * ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Definitions such as `extern "C" fn damelo_love(store: *mut DameloStore, group: u64) -> c_int`,
/// in C, with the body that follows. `setters!` writes some in short.
fn source_functions() -> BTreeMap<String, (Signature, String)> {
    let code = rust_code();
    let mut functions = BTreeMap::new();
    for part in code.split("extern \"C\" fn ").skip(1) {
        let (name, rest) = part.split_once('(').expect("parameters");
        if !name.starts_with("damelo_") {
            continue;
        }
        let (arguments, rest) = rest.split_once(')').expect("end of parameters");
        let (result, body) = rest.split_once('{').expect("body");
        let result = result.trim().trim_start_matches("->").trim();
        let body = body.split("\n}").next().unwrap_or_default();
        functions.insert(name.to_owned(), ((rust_type(result), types(arguments)), body.to_owned()));
    }
    let (_, setters) = code.split_once("setters! {").expect("setters");
    for part in setters.split("damelo_options_set_").skip(1) {
        let (name, rest) = part.split_once('(').expect("parameters");
        let (arguments, _) = rest.split_once(')').expect("end of parameters");
        let mut all = vec!["damelo_options *".to_owned()];
        all.extend(types(arguments));
        let name = format!("damelo_options_set_{name}");
        functions.insert(name, (("int".to_owned(), all), "guard(".to_owned()));
    }
    functions
}

fn types(arguments: &str) -> Vec<String> {
    let typed = arguments.split(',').filter_map(|argument| argument.split_once(':'));
    typed.map(|(_, kind)| rust_type(kind.trim())).collect()
}

/// The C type for a Rust type.
fn rust_type(kind: &str) -> String {
    if let Some(target) = kind.strip_prefix("*mut ") {
        return format!("{} *", rust_type(target));
    }
    if let Some(target) = kind.strip_prefix("*const ") {
        return format!("const {} *", rust_type(target));
    }
    match kind {
        "" => "void".to_owned(),
        "c_int" => "int".to_owned(),
        "c_char" => "char".to_owned(),
        "c_void" => "void".to_owned(),
        "usize" => "size_t".to_owned(),
        "u64" => "uint64_t".to_owned(),
        "u32" => "uint32_t".to_owned(),
        "u8" => "uint8_t".to_owned(),
        _ => {
            assert!(kind.starts_with("Damelo"), "no C type for `{kind}`");
            let mut name = String::new();
            for c in kind.chars() {
                if c.is_uppercase() && !name.is_empty() {
                    name.push('_');
                }
                name.extend(c.to_lowercase());
            }
            name
        }
    }
}

#[test]
fn functions_are_the_same_in_header_and_source() {
    let header = header_functions();
    let source = source_functions();
    let names = |keys: Vec<&String>| keys.into_iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(header.keys().collect()), names(source.keys().collect()));
    assert!(header.len() > 80, "only {} functions were found", header.len());
    for (name, signature) in &header {
        assert_eq!(signature, &source[name].0, "{name}");
    }
}

#[test]
fn every_function_catches_panics() {
    for (name, (_, body)) in source_functions() {
        let guarded = ["guard(", "guard_or(", "field("].iter().any(|guard| body.contains(guard));
        assert!(guarded, "{name} is not guarded:\n{body}");
    }
}

#[test]
fn every_function_is_called_by_a_test_in_c() {
    let programs = sources("tests", &["c", "h", "cpp"]);
    for name in header_functions().keys() {
        assert!(programs.contains(&format!("{name}(")), "no test calls {name}");
    }
}

/// `NAME = number` in a header, in order.
fn numbers(header: &str) -> Vec<(String, i64)> {
    let code = without_comments(header, "/*", "*/");
    let assigned = code.split(['{', ',', '}']).filter_map(|part| part.split_once('='));
    let number = |text: &str| text.trim().parse().expect("a number");
    assigned.map(|(name, value)| (name.trim().to_owned(), number(value))).collect()
}

#[test]
fn results_have_the_same_numbers_in_header_and_source() {
    let source: Vec<(String, i64)> =
        Status::ALL.iter().map(|s| (s.c_name().to_owned(), *s as i64)).collect();
    assert_eq!(numbers(STATUS_H), source);
}

/// The ABI: these numbers are compiled into programs. New ones only at the end.
#[test]
fn numbers_never_change() {
    let all: Vec<String> = numbers(STATUS_H)
        .into_iter()
        .chain(numbers(DAMELO_H))
        .map(|(name, number)| format!("{number} {}", name.trim_start_matches("DAMELO_")))
        .collect();
    assert_eq!(
        all.join(", "),
        "0 OK, 1 EINVAL, 2 ENOTFOUND, 3 EPANIC, 4 ECLOSED, 5 EIO, 6 EMEMORY, 7 ETOOLARGE, 8 EKEY, \
         9 EMETADATA, 10 ENOTADMITTED, 11 EVOLUME, 12 EGROUP, 13 ENOTPINNED, 14 EBUFFER, 15 EOPEN, \
         16 EMISSING, 17 ELOCKED, 18 EFOREIGN, 19 EFORMAT, 20 EMISMATCH, 21 ENOSPACE, 22 EGONE, \
         23 EDROPPED, 24 EOTHER, 25 EWRITING, 26 ESUPERSEDED, 27 ETORN, \
         0 DURABILITY_NONE, 1 DURABILITY_FLUSHED, 2 DURABILITY_SYNCED, \
         0 IO_ENGINE_AUTO, 1 IO_ENGINE_IO_URING, 2 IO_ENGINE_THREADS, \
         0 MEMORY_FULL_WAIT, 1 MEMORY_FULL_REFUSE, \
         0 RESIDENCY_S3_FIFO, 1 RESIDENCY_LRU, 2 RESIDENCY_CLOCK, 3 RESIDENCY_HIT_DENSITY, \
         0 DISK_FBC, 1 DISK_LFU_AGING, 2 DISK_LRU, 3 DISK_FIFO, \
         0 ADMIT_ALWAYS, 1 ADMIT_SECOND_HIT, 2 ADMIT_WRITE_BUDGET, 3 ADMIT_SIZE_MAX, \
         4 ADMIT_PROBABILITY, 0 REINSERT_WORTHY, 1 REINSERT_USED, 2 REINSERT_USED_TWICE, \
         3 REINSERT_USED_THRICE, 4 REINSERT_NEVER, \
         0 HINT_NEUTRAL, 1 HINT_LOVED, 2 HINT_HATED, \
         0 SEEKS_AUTO, 1 SEEKS_NO, 2 SEEKS_YES"
    );
}

/// Fields of `typedef struct name { ... }` in the header.
fn header_structs() -> BTreeMap<String, Vec<String>> {
    let code = c_code();
    let mut structs = BTreeMap::new();
    for part in code.split("typedef struct ").skip(1) {
        let Some((name, rest)) = part.split_once('{') else { continue };
        if name.contains(';') {
            continue;
        }
        let (fields, _) = rest.split_once('}').expect("end of struct");
        let fields = fields.split(';').map(normal).filter(|field| !field.is_empty());
        structs.insert(name.trim().to_owned(), fields.collect());
    }
    structs
}

/// Fields of `#[repr(C)]` structs in the source, written as in C.
fn source_structs() -> BTreeMap<String, Vec<String>> {
    let code = rust_code();
    let mut structs = BTreeMap::new();
    for part in code.split("#[repr(C)]").skip(1) {
        let (_, rest) = part.split_once("pub struct ").expect("struct");
        let (name, rest) = rest.split_once('{').expect("fields");
        let (fields, _) = rest.split_once('}').expect("end of struct");
        let fields = fields.split(',').filter_map(|field| field.trim().split_once(": "));
        let fields = fields.map(|(field, kind)| {
            let field = field.trim_start_matches("pub ");
            match kind.strip_prefix('[').and_then(|array| array.split_once("; ")) {
                Some((kind, n)) => format!("{} {field}[{n}", rust_type(kind)),
                None => format!("{} {field}", rust_type(kind)),
            }
        });
        structs.insert(rust_type(name.trim()), fields.collect());
    }
    structs
}

#[test]
fn structs_are_the_same_in_header_and_source() {
    assert_eq!(header_structs(), source_structs());
    assert_eq!(header_structs().len(), 4);
}

#[test]
fn the_header_has_the_library_s_version() {
    let macros = [
        ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ];
    for (name, number) in macros {
        let line = format!("#define DAMELO_VERSION_{name} {number}\n");
        assert!(DAMELO_H.contains(&line), "no {line}");
    }
}

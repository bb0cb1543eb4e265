//! Test helpers that compare checked-in files with what the code generates. For tests only; no
//! threads.

/// Fails if the text in `docs/NAME` between the marks `part` differs from `wanted`. With
/// `DAMELO_BLESS` in the environment, writes `wanted` there instead.
pub(crate) fn hold(name: &str, part: &str, wanted: &str) {
    let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the document");
    let (start, end) = (format!("<!-- {part} -->\n"), format!("<!-- end of {part} -->\n"));
    let (before, rest) = text.split_once(&start).expect("the mark before");
    let (middle, after) = rest.split_once(&end).expect("the mark after");
    if std::env::var_os("DAMELO_BLESS").is_some() {
        std::fs::write(&path, format!("{before}{start}{wanted}{end}{after}")).expect("written");
        return;
    }
    assert!(middle == wanted, "docs/{name} is not what the code says");
}

/// Fails if a file of the repository differs from `wanted`. With `DAMELO_BLESS` in the environment,
/// writes the file instead.
pub(crate) fn hold_file(name: &str, wanted: &str) {
    let path = format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("DAMELO_BLESS").is_some() {
        std::fs::write(&path, wanted).expect("written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "{name} is not what the code says: see CONTRIBUTING.md");
}

/// Fails if the seed `NAME` of a fuzz target differs from `wanted`. With `DAMELO_BLESS` in the
/// environment, writes the seed instead.
pub(crate) fn hold_seed(target: &str, name: &str, wanted: &[u8]) {
    let path = format!("{}/../../fuzz/seeds/{target}/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("DAMELO_BLESS").is_some() {
        std::fs::write(&path, wanted).expect("written");
    }
    let found = std::fs::read(&path).unwrap_or_default();
    assert!(found == wanted, "{target}/{name} is not what the code says: see CONTRIBUTING.md");
}

/// The seeds of a fuzz target.
pub(crate) fn seeds(target: &str) -> Vec<Vec<u8>> {
    let path = format!("{}/../../fuzz/seeds/{target}", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(&path).expect("seeds").map(|file| file.expect("a seed").path());
    files.map(|file| std::fs::read(file).expect("a seed")).collect()
}

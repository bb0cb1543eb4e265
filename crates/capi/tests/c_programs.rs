//! Compiles the C and C++ programs beside this file against the library, as a user would, and runs
//! each with an empty directory. They fail by their exit status.
//!
//! Needs `cc` and `c++` (or what `CC` and `CXX` name); without them the tests say so and pass.

#![expect(clippy::disallowed_macros, reason = "a panic for want of a reader is right here")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use damelo::{ByteSize, Config, GroupId, Store};

/// What a Rust static library needs from the system.
const SYSTEM_LIBRARIES: &[&str] = if cfg!(target_os = "linux") {
    &["-lpthread", "-ldl", "-lm", "-lrt", "-lutil"]
} else {
    &["-lpthread", "-lm"]
};
const C_FLAGS: &[&str] = &["-std=c99", "-D_POSIX_C_SOURCE=200809L"];
const CXX_FLAGS: &[&str] = &["-std=c++98"];
const WARNINGS: &[&str] = &["-Wall", "-Wextra", "-Werror", "-pedantic"];
/// A program that takes longer hangs.
const RUN_LIMIT: Duration = Duration::from_secs(120);
const VOLUME_SIZE: &str = "64MiB";

fn crate_directory() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The compiler for C or C++, if there is one.
fn compiler(variable: &str, default: &str) -> Option<String> {
    let name = std::env::var(variable).unwrap_or_else(|_| default.to_owned());
    let found = Command::new(&name).arg("--version").stdout(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return Some(name);
    }
    eprintln!("SKIPPED: no compiler `{name}`; install one or set {variable}");
    None
}

/// The library made together with this test, or the newest of those lying about.
fn library(file_name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("path of this test");
    let deps = test.parent().expect("directory of this test");
    let profile = deps.parent().expect("directory of the profile");
    let find = || {
        [deps, profile]
            .iter()
            .map(|directory| directory.join(file_name))
            .filter(|path| path.is_file())
            .max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok())
    };
    find().unwrap_or_else(|| {
        build(profile);
        find().unwrap_or_else(|| panic!("no {file_name} in {}", profile.display()))
    })
}

/// Has cargo make the libraries where this test was made.
fn build(profile: &Path) {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| env!("CARGO").to_owned());
    let name = profile.file_name().and_then(|name| name.to_str()).expect("name of the profile");
    let status = Command::new(cargo)
        .args(["build", "--offline", "-p", "damelo-capi", "--profile"])
        .arg(if name == "debug" { "dev" } else { name })
        .arg("--target-dir")
        .arg(profile.parent().expect("target directory"))
        .current_dir(crate_directory())
        .status()
        .expect("cargo runs");
    assert!(status.success(), "cargo could not build the libraries");
}

fn static_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| library("libdamelo_c.a"))
}

/// One program: compiled into a directory of its own, and run in another.
struct Program {
    directory: tempfile::TempDir,
    binary: PathBuf,
}

impl Program {
    fn compile(compiler: &str, flags: &[&[&str]], source: &Path, libraries: &[&str]) -> Program {
        let directory = tempfile::tempdir().expect("temporary directory");
        let binary = directory.path().join("program");
        let include = crate_directory().join("include");
        let output = Command::new(compiler)
            .args(flags.concat())
            .arg("-I")
            .arg(include)
            .arg("-I")
            .arg(crate_directory().join("tests"))
            .arg(source)
            .arg("-o")
            .arg(&binary)
            .args(libraries)
            .args(SYSTEM_LIBRARIES)
            .output()
            .expect("compiler runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::create_dir(directory.path().join("data")).expect("data directory");
        Program { directory, binary }
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Runs it to its end and returns what it wrote to stderr.
    fn run(&self, environment: &[(&str, &Path)]) -> String {
        let mut child = Command::new(&self.binary)
            .arg(self.data())
            .env_remove("DAMELO_VOLUME")
            .env_remove("DAMELO_VOLUME_SIZE")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("program starts");
        let start = Instant::now();
        while child.try_wait().expect("program is waited for").is_none() {
            if start.elapsed() > RUN_LIMIT {
                child.kill().expect("program is ended");
                let output = child.wait_with_output().expect("output");
                panic!("hangs: {}", String::from_utf8_lossy(&output.stderr));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let Output { status, stderr, .. } = child.wait_with_output().expect("output");
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        assert!(status.success(), "{status}\n{stderr}");
        stderr
    }
}

/// Compiles and runs a program of this directory; `None` without a compiler.
fn run(name: &str, environment: &[(&str, &Path)]) -> Option<String> {
    let source = crate_directory().join("tests").join(name);
    let library = static_library().to_str().expect("a path in UTF-8");
    let program = if name.ends_with(".c") {
        let cc = compiler("CC", "cc")?;
        Program::compile(&cc, &[C_FLAGS, WARNINGS], &source, &[library])
    } else {
        let cxx = compiler("CXX", "c++")?;
        Program::compile(&cxx, &[CXX_FLAGS, WARNINGS], &source, &[library])
    };
    Some(program.run(environment))
}

#[test]
fn errors() {
    if let Some(stderr) = run("errors.c", &[]) {
        let expected = "prefix: invalid argument (the path is empty)\n\
                        other: no such object\nsuccess\nunknown status\n";
        assert_eq!(stderr, expected);
    }
}

#[test]
fn options() {
    run("options.c", &[]);
}

#[test]
fn store() {
    run("store.c", &[]);
}

#[test]
fn objects() {
    run("objects.c", &[]);
}

#[test]
fn groups() {
    run("groups.c", &[]);
}

#[test]
fn streams() {
    run("streams.c", &[]);
}

#[test]
fn restart() {
    run("restart.c", &[]);
}

#[test]
fn threads() {
    run("threads.c", &[]);
}

#[test]
fn thesis() {
    run("thesis.c", &[("DAMELO_VOLUME_SIZE", Path::new(VOLUME_SIZE))]);
}

#[test]
fn thesis_class() {
    if let Some(stderr) = run("thesis_class.cpp", &[("DAMELO_VOLUME_SIZE", Path::new(VOLUME_SIZE))])
    {
        let line = "thesis: group number out of range (group 17 is not between 1 and 16)\n";
        assert_eq!(stderr, line);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn the_shared_library_exports_the_same() {
    let Some(cc) = compiler("CC", "cc") else { return };
    let library = library("libdamelo_c.so");
    // Where the linker finds it by the name that is written in it, as it is installed.
    let installed = tempfile::tempdir().expect("directory");
    let name = installed.path().join("libdamelo_c.so.0");
    std::os::unix::fs::symlink(&library, name).expect("link");
    let rpath = format!("-Wl,-rpath,{}", installed.path().display());
    let source = crate_directory().join("tests/objects.c");
    let library = library.to_str().expect("a path in UTF-8");
    Program::compile(&cc, &[C_FLAGS, WARNINGS], &source, &[library, &rpath]).run(&[]);
}

/// As `install-capi.sh` puts it there, a program is built with what `damelo.pc` says.
#[test]
#[cfg(target_os = "linux")]
fn what_is_installed_can_be_built_with() {
    let Some(cc) = compiler("CC", "cc") else { return };
    let built = library("libdamelo_c.so");
    let built = built.parent().expect("directory of the library");
    let prefix = tempfile::tempdir().expect("directory");
    let script = crate_directory().join("../../packaging/install-capi.sh");
    let status =
        Command::new("sh").arg(script).arg(prefix.path()).env("DAMELO_BUILT", built).status();
    assert!(status.expect("the shell runs").success(), "it was not installed");
    let described = prefix.path().join("lib/pkgconfig/damelo.pc");
    let described = std::fs::read_to_string(described).expect("damelo.pc");
    assert!(described.contains(&format!("Version: {}\n", env!("CARGO_PKG_VERSION"))));
    let path = prefix.path().to_str().expect("a path in UTF-8");
    let flags = |name: &str| {
        let line = described.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.replace("${includedir}", &format!("{path}/include/damelo"))
            .replace("${libdir}", &format!("{path}/lib"))
    };
    let all = [flags("Cflags: "), flags("Libs: "), format!("-Wl,-rpath,{path}/lib")].join(" ");
    let flags: Vec<_> = all.split(' ').collect();
    let source = crate_directory().join("tests/objects.c");
    Program::compile(&cc, &[C_FLAGS, WARNINGS], &source, &flags).run(&[]);
}

/// Every header compiles on its own, in C and in C++, in the oldest and a newer language.
#[test]
fn headers_stand_alone() {
    let Some(cc) = compiler("CC", "cc") else { return };
    let Some(cxx) = compiler("CXX", "c++") else { return };
    let directory = tempfile::tempdir().expect("temporary directory");
    for (compiler, file, language, headers) in [
        (&cc, "a.c", "-std=c99", ["status.h", "damelo.h"].as_slice()),
        (&cc, "b.c", "-std=c11", &["damelo.h", "status.h"]),
        (&cxx, "c.cpp", "-std=c++98", &["damelo.hpp", "damelo.h"]),
        (&cxx, "d.cpp", "-std=c++17", &["damelo.h", "damelo.hpp"]),
    ] {
        let source = directory.path().join(file);
        let lines: String = headers.iter().map(|name| format!("#include \"{name}\"\n")).collect();
        std::fs::write(&source, lines + "int main(void) { return DAMELO_OK; }\n").expect("source");
        Program::compile(compiler, &[&[language], WARNINGS], &source, &[]).run(&[]);
    }
    // As <X11/Xlib.h> has it.
    let source = directory.path().join("e.cpp");
    let macros = "#define Status int\n#define DAMELO_NO_CLASS\n#include \"damelo.h\"\n";
    std::fs::write(&source, format!("{macros}int main(void) {{ return DAMELO_OK; }}\n"))
        .expect("source");
    Program::compile(&cxx, &[CXX_FLAGS, WARNINGS], &source, &[]).run(&[]);
}

/// Compiles the thesis's fragment, with `change` made to it, with the compiler's defaults.
fn fragment(change: impl FnOnce(String) -> String) -> Option<Program> {
    let cxx = compiler("CXX", "c++")?;
    let printed = include_str!("thesis_9_2.cpp").to_owned();
    let directory = tempfile::tempdir().expect("temporary directory");
    let source = directory.path().join("fragment.cpp");
    std::fs::write(&source, change(printed)).expect("source");
    let library = static_library().to_str().expect("a path in UTF-8");
    Some(Program::compile(&cxx, &[], &source, &[library]))
}

/// Runs the fragment against a file, and opens what it left there.
fn run_fragment(program: &Program) -> Store {
    let volume = program.data().join("raw4");
    let environment =
        [("DAMELO_VOLUME", volume.as_path()), ("DAMELO_VOLUME_SIZE", Path::new(VOLUME_SIZE))];
    assert_eq!(program.run(&environment), "");
    assert_eq!(volume.metadata().expect("the fragment's volume").len(), 64 << 20);
    let mut config = Config::existing(volume);
    config.memory = ByteSize::new(16 << 20);
    Store::open(config).expect("a store that the fragment closed")
}

/// Appendix 9.2 of the thesis, as printed.
#[test]
fn the_fragment_of_the_thesis_runs_unchanged() {
    let Some(program) = fragment(|printed| printed) else { return };
    let store = run_fragment(&program);
    assert!(store.lookup(b"somefile.gif").wait().expect("lookup").is_none(), "it removes the file");
    store.close().expect("close");
    // A second run finds the store of the first.
    run_fragment(&program).close().expect("close");
}

/// As in the issue: a header line in front does no harm.
#[test]
fn the_fragment_runs_with_a_header_line_added() {
    let added = |printed| format!("#include \"damelo.hpp\"\n{printed}");
    let Some(program) = fragment(added) else { return };
    run_fragment(&program).close().expect("close");
}

/// The fragment leaves nothing to be seen, unless it does not remove its file.
fn without_last_step(printed: String) -> String {
    let step = "status = damelo->remove (fileName, groupNumber);";
    assert!(printed.contains(step));
    printed.replace(step, "")
}

/// The fragment checks no result; without its last step, what it stored is there to be seen.
#[test]
fn what_the_fragment_creates_is_stored() {
    let Some(program) = fragment(without_last_step) else { return };
    let store = run_fragment(&program);
    let object = store.read(b"somefile.gif").wait().expect("read").expect("the object");
    assert_eq!(&object[..], [b'a'; 100]);
    assert_eq!(object.group(), GroupId::new(3));
}

/// Without a volume the fragment, which goes on regardless, ends without a crash.
#[test]
fn the_fragment_survives_a_failing_constructor() {
    let Some(program) = fragment(|printed| printed) else { return };
    program.run(&[("DAMELO_VOLUME", &program.data())]);
}

/// The same against a raw block device that may be overwritten and starts with zeros.
#[test]
fn the_fragment_runs_against_a_device() {
    let Some(device) = std::env::var_os("DAMELO_TEST_DEVICE") else {
        eprintln!("SKIPPED: set DAMELO_TEST_DEVICE to a block device to be overwritten");
        return;
    };
    let device = PathBuf::from(device);
    let Some(program) = fragment(without_last_step) else { return };
    assert_eq!(program.run(&[("DAMELO_VOLUME", &device)]), "");
    let store = Store::open(Config::existing(device)).expect("a store that the fragment closed");
    assert!(store.read(b"somefile.gif").wait().expect("read").is_some());
}

/// The example of the user's guide.
#[test]
fn the_example_of_the_guide_runs() {
    let Some(cc) = compiler("CC", "cc") else { return };
    let guide = include_str!("../../../docs/c-api.md");
    let (_, rest) = guide.split_once("```c\n").expect("an example in C");
    let (code, _) = rest.split_once("```").expect("its end");
    let directory = tempfile::tempdir().expect("temporary directory");
    let source = directory.path().join("example.c");
    std::fs::write(&source, code).expect("source");
    let library = static_library().to_str().expect("a path in UTF-8");
    let program = Program::compile(&cc, &[C_FLAGS, WARNINGS], &source, &[library]);
    let volume = program.data().join("cache.damelo");
    let output = Command::new(&program.binary).arg(volume).output().expect("example runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "5 bytes in group of example.org: hello\n");
}

//! What the command's process takes, by the system's account and with the command's allocator: what
//! was declared for a store, and its index.
//!
//! Owns processes that fill a store each (`damelo bench fill`). Threads: the test's.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// Has a process fill a store of this kind; resident bytes when that is done, and the index's.
fn filled(dir: &Path, memory_bytes: u64, objects_max: u64, objects: u64, size: u64) -> [u64; 2] {
    let job = json!({
        "path": dir.join("store"),
        "disk_bytes": 512 << 20,
        "memory_bytes": memory_bytes,
        "objects_max": objects_max,
        "objects": objects,
        "size": size,
        "anew": true,
        "to_be_killed": false,
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_damelo"));
    let output = command.args(["bench", "fill", "--job", &job.to_string()]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    ["resident_bytes", "index_bytes"].map(|name| answer[name].as_u64().unwrap())
}

/// What a full store has more than one of a single object, which is otherwise the same.
#[test]
fn a_store_of_small_objects_takes_what_was_declared_and_its_index() {
    for (memory_mib, size, objects) in
        [(32, 64, 300_000), (16, 1_000, 60_000), (64, 1_000, 200_000)]
    {
        let dir = tempfile::tempdir().unwrap();
        let (memory_bytes, objects_max) = (memory_mib << 20, objects * 10 / 9);
        let [hardly_any, _] = filled(dir.path(), memory_bytes, objects_max, 1, size);
        let [full, index_bytes] = filled(dir.path(), memory_bytes, objects_max, objects, size);
        let grown = full - hardly_any;
        let most = memory_bytes / 100 * 105 + index_bytes;
        assert!(grown > memory_bytes / 2, "it is not full: {grown} bytes");
        let what = format!("{memory_mib} MiB, objects of {size} bytes");
        assert!(grown <= most, "{what}: {grown} bytes more, {most} at most");
    }
}

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

/// What a full store has more than one of a single object, which is otherwise the same. It varies
/// with how far threads are ahead of each other: 2 to 6% with objects of 1,000 bytes, 2 to 20% with
/// such small ones as 64 bytes, where the nursery's lists come and go. Before short tables had few
/// lengths it was 11 to 14, and 31 to 38%.
#[test]
fn a_store_of_small_objects_takes_little_more_than_was_declared_and_its_index() {
    for (memory_mib, size, objects, percent) in
        [(32, 64, 300_000, 130), (16, 1_000, 60_000, 110), (64, 1_000, 200_000, 110)]
    {
        let dir = tempfile::tempdir().unwrap();
        let (memory_bytes, objects_max) = (memory_mib << 20, objects * 10 / 9);
        let [hardly_any, _] = filled(dir.path(), memory_bytes, objects_max, 1, size);
        let [full, index_bytes] = filled(dir.path(), memory_bytes, objects_max, objects, size);
        let grown = full - hardly_any;
        let most = memory_bytes / 100 * percent + index_bytes;
        assert!(grown > memory_bytes / 2, "it is not full: {grown} bytes");
        let what = format!("{memory_mib} MiB, objects of {size} bytes");
        assert!(grown <= most, "{what}: {grown} bytes more, {most} at most");
    }
}

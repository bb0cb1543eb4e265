//! What a process weighs, by the system's account. Tests that ask have a process to themselves.

/// Bytes of this process that are in memory.
#[expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]
pub(crate) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() * 1024
}

//! Writers of values whose lengths nobody knows, more at once than there is memory for: none of
//! them waits for memory that another holds while it waits itself.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::time::Duration;

use damelo::{ByteSize, Config, GroupId, Store, WhenMemoryFull, Writer, WriterOptions};

const WRITERS: u8 = 40;
const PIECE_BYTES: usize = 50_000;

fn open(dir: &tempfile::TempDir, when_memory_full: WhenMemoryFull) -> Store {
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(256 << 20));
    config.memory = ByteSize::new(8 << 20);
    config.when_memory_full = when_memory_full;
    config.memory_wait = Duration::from_secs(60);
    Store::open(config).unwrap()
}

/// All of them take turns, so that each holds what it has got while the others want more.
#[test]
fn writers_of_unknown_lengths_do_not_hold_each_other_up() {
    for (when_memory_full, pieces) in [
        (WhenMemoryFull::Wait, 5),
        (WhenMemoryFull::Wait, 40),
        (WhenMemoryFull::Refuse, 5),
        (WhenMemoryFull::Refuse, 40),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir, when_memory_full);
        let begin = |key| store.writer(&[key], GroupId::new(1), WriterOptions::default()).unwrap();
        let mut writers: Vec<Writer> = (1..=WRITERS).map(begin).collect();
        for piece in 0..pieces {
            for (key, writer) in (1..=WRITERS).zip(&mut writers) {
                let written = writer.write(&vec![key; PIECE_BYTES]).wait();
                assert_eq!(written, Ok(()), "{when_memory_full:?}, piece {piece} of {key}");
            }
        }
        for (key, writer) in (1..=WRITERS).zip(writers) {
            assert_eq!(writer.commit().wait(), Ok(()), "{when_memory_full:?}, {key}");
        }
        for key in 1..=WRITERS {
            let mut reader = store.reader(&[key]).wait().unwrap().unwrap();
            let mut bytes = 0;
            while let Some(chunk) = reader.next().wait().unwrap() {
                assert!(chunk.iter().all(|byte| *byte == key), "{key}");
                bytes += chunk.len();
            }
            assert_eq!(bytes, pieces * PIECE_BYTES, "{key}");
        }
    }
}

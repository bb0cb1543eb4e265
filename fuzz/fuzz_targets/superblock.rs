//! Fuzzes the superblock decoder; what it accepts encodes to the same bytes, and its areas lie
//! behind one another inside the volume. Threads: none.
#![no_main]

mod common;

use common::{raw_and_repaired, seal};
use damelo::format::{AREAS_OFFSET, Superblock};
use libfuzzer_sys::fuzz_target;

fn check(superblock: &Superblock) {
    assert_eq!(superblock.validate(), Ok(()));
    let layout = superblock.layout();
    let (last_half, half_bytes) = layout.journal_half(1, 1);
    let journal_end = last_half + half_bytes;
    assert!(layout.journal_offset >= AREAS_OFFSET && journal_end <= layout.checkpoint_slot(0));
    let checkpoints_end = layout.checkpoint_slot(1) + layout.checkpoint_bytes;
    let first = layout.segment_offset(0).expect("there is a segment");
    let last = layout.segment_offset(layout.segment_count - 1).expect("there is a last one");
    assert!(checkpoints_end <= first && last + layout.segment_bytes <= superblock.volume_bytes);
    assert_eq!(layout.segment_offset(layout.segment_count), None);
    assert!(superblock.is_volume(
        superblock.volume_index.into(),
        superblock.volume_count.into(),
        superblock
    ));
}

fuzz_target!(|data: &[u8]| {
    // Short inputs stand for the fields of the first copy, and what follows for those of the
    // second, so that the fuzzer need not find 4096 bytes.
    let mut bytes = vec![0; 8192];
    for (copy, fields) in bytes.chunks_mut(4096).zip(data.chunks(4092)) {
        copy[..fields.len()].copy_from_slice(fields);
    }
    let repair = |bytes: &mut [u8]| {
        seal(bytes, 0..4092, 4092);
        seal(bytes, 4096..8188, 8188);
    };
    raw_and_repaired(&bytes, repair, |bytes| {
        let copies = [Superblock::decode(bytes), Superblock::decode(&bytes[4096..])];
        for (copy, bytes) in copies.iter().zip(bytes.chunks(4096)) {
            if let Ok(superblock) = copy {
                check(superblock);
                assert_eq!(superblock.encode(), bytes);
            }
        }
        let [a, b] = copies;
        assert_eq!(Superblock::decode_either(bytes).ok(), a.or(b).ok());
    });
});

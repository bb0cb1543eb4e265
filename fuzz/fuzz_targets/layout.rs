//! Fuzzes the cut of a volume into areas: no size makes it overflow, and what is planned is a
//! superblock that is accepted. Threads: none.
#![no_main]

use damelo::format::{LayoutError, PlanRequest, Superblock, VolumeLayout};
use libfuzzer_sys::fuzz_target;

/// The next `N` bytes, or zeros where the input ends.
fn take<const N: usize>(data: &mut &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let (taken, rest) = data.split_at(data.len().min(N));
    bytes[..taken.len()].copy_from_slice(taken);
    *data = rest;
    bytes
}

fuzz_target!(|data: &[u8]| {
    let data = &mut { data };
    // Sizes that no page or segment can have are refused at once: half of the inputs name one that
    // may be.
    let [kind, page, volume_index] = take::<3>(data);
    let exact = kind & 1 != 0;
    let request = PlanRequest {
        volume_bytes: u64::from_le_bytes(take(data)),
        volume_index: u16::from(volume_index % 3),
        page_bytes: if exact { u32::from_le_bytes(take(data)) } else { 4096 << (page % 10) },
        segment_bytes: if exact {
            u64::from_le_bytes(take(data))
        } else {
            (u64::from(u16::from_le_bytes(take(data))) + 1) * (4096 << (page % 10))
        },
        index_slots: u64::from_le_bytes(take(data)),
        journal_bytes: u64::from_le_bytes(take(data)),
        total_segments: u32::from_le_bytes(take(data)),
    };
    let layout = match VolumeLayout::plan(&request) {
        Ok(layout) => layout,
        Err(LayoutError::TooSmall { minimum_bytes, volume_bytes }) => {
            assert!(volume_bytes < minimum_bytes, "{request:?}");
            let larger = PlanRequest { volume_bytes: minimum_bytes, ..request };
            assert!(VolumeLayout::plan(&larger).is_ok(), "{request:?}");
            return;
        }
        Err(_) => return,
    };
    let superblock = Superblock {
        page_bytes: request.page_bytes,
        segment_bytes: layout.segment_bytes,
        segment_count: layout.segment_count,
        volume_index: request.volume_index,
        volume_count: 256,
        first_segment: u32::from(request.volume_index != 0),
        store_id: [7; 16],
        volume_bytes: request.volume_bytes,
        index_slots: request.index_slots,
        hash_seed: 0,
        journal_offset: layout.journal_offset,
        journal_bytes: layout.journal_bytes,
        checkpoint_offset: layout.checkpoint_offset,
        checkpoint_bytes: layout.checkpoint_bytes,
        segments_offset: layout.segments_offset,
        object_bytes_max: 1,
        created_unix_s: 0,
    };
    assert_eq!(superblock.validate(), Ok(()), "{request:?}");
    assert_eq!(superblock.layout(), layout);
});

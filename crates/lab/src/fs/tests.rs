//! Exact requests of small histories, and the file system against a model of space.

use super::*;
use crate::disk::Direction::{Read, Write};
use crate::machine::Kind::{Allocation, Data, Directory as Dir, Inode};

fn small(sync_metadata: bool) -> Ffs {
    let params = FfsParams {
        group_bytes: 1 << 20,
        inodes_per_group: 128,
        buffer_cache_bytes: 1 << 20,
        sync_metadata,
        ..FfsParams::ufs_8k()
    };
    Ffs::new(params, 4 << 20, 0)
}

fn shape(plan: &mut Plan) -> Vec<(crate::disk::Direction, Kind, u32, bool)> {
    let steps = plan.steps.iter().map(|s| (s.direction, s.kind, s.sectors / 2, s.wait)).collect();
    plan.clear();
    steps
}

/// A group of 1 MB: block 0 the superblock's copy, 1 the map, 2 and 3 inodes, 4 to 127 data. The
/// first create in the root: the map and the inodes' block are read (the directory has no block
/// yet), the inode is written and waited for, then the new directory block. 10,000 bytes are 10
/// fragments: one block (written at once, not waited for) and 2 fragments (late). Half a minute
/// later the map, the inode (size), and the tail are written; the directory is clean.
#[test]
fn first_create_with_synchronous_metadata() {
    let mut ffs = small(true);
    let mut plan = Plan::default();
    ffs.create(&mut plan, 0, 0, 10_000).expect("space");
    assert_eq!(
        shape(&mut plan),
        [
            (Read, Allocation, 8, true),
            (Read, Inode, 8, true),
            (Write, Inode, 8, true),
            (Write, Dir, 8, true),
            (Write, Data, 8, false),
        ]
    );
    ffs.sync(&mut plan);
    assert_eq!(
        shape(&mut plan),
        [(Write, Allocation, 8, false), (Write, Inode, 8, false), (Write, Data, 2, false)]
    );
    // All of it is in memory still: reading costs nothing but the access time, later.
    ffs.read(&mut plan, 0, 0, 10_000);
    assert_eq!(shape(&mut plan), []);
    ffs.sync(&mut plan);
    assert_eq!(shape(&mut plan), [(Write, Inode, 8, false)]);
}

/// The same without waiting: two reads; five buffers are dirty or on their way.
#[test]
fn first_create_with_asynchronous_metadata() {
    let mut ffs = small(false);
    let mut plan = Plan::default();
    ffs.create(&mut plan, 0, 0, 10_000).expect("space");
    assert_eq!(
        shape(&mut plan),
        [(Read, Allocation, 8, true), (Read, Inode, 8, true), (Write, Data, 8, false)]
    );
    ffs.sync(&mut plan);
    // Map and inodes are adjacent but of different kinds; directory block 4, data 5 and 6.
    assert_eq!(
        shape(&mut plan),
        [
            (Write, Allocation, 8, false),
            (Write, Inode, 8, false),
            (Write, Dir, 8, false),
            (Write, Data, 2, false)
        ]
    );
}

/// After the caches are emptied a file two directories deep costs: the root's block and the first
/// directory's inode, that directory's block and the second's inode, its block (the file's inode is
/// in the same group as its directory's and so in the same block), then the data: one block and 2
/// fragments of the block after it, which are one request.
#[test]
fn cold_read_through_two_directories() {
    let mut ffs = small(true);
    let mut plan = Plan::default();
    ffs.make_dir(&mut plan, 1, 0).expect("space");
    ffs.make_dir(&mut plan, 2, 1).expect("space");
    ffs.create(&mut plan, 2, 0, 10_000).expect("space");
    ffs.drop_caches(&mut plan);
    plan.clear();
    ffs.read(&mut plan, 0, 0, 10_000);
    assert_eq!(
        shape(&mut plan),
        [
            (Read, Dir, 8, true),
            (Read, Inode, 8, true),
            (Read, Dir, 8, true),
            (Read, Inode, 8, true),
            (Read, Dir, 8, true),
            (Read, Data, 10, true),
        ]
    );
    assert_eq!(ffs.name_cache_counts().1, 3, "two directories and a file were not known");
}

/// Memory is full of what is dirty, which has to go: the file is one request all the same.
#[test]
fn a_file_is_read_at_once_where_dirty_buffers_must_go() {
    let params = FfsParams {
        group_bytes: 1 << 20,
        inodes_per_group: 128,
        ..FfsParams::ext2(1 << 10, 64 << 10)
    };
    let mut ffs = Ffs::new(params, 4 << 20, 0);
    let mut plan = Plan::default();
    ffs.create(&mut plan, 0, 0, 12_000).expect("space");
    ffs.drop_caches(&mut plan);
    ffs.create(&mut plan, 0, 1, 200_000).expect("space");
    plan.clear();
    ffs.read(&mut plan, 0, 0, 12_000);
    let reads = shape(&mut plan).into_iter().filter(|step| (step.0, step.1) == (Read, Data));
    assert_eq!(reads.collect::<Vec<_>>(), [(Read, Data, 12, true)]);
}

/// The same of what is written at once: five blocks of a new file, while the tails of others go.
#[test]
fn a_file_is_written_at_once_where_dirty_buffers_must_go() {
    let params = FfsParams {
        group_bytes: 1 << 20,
        inodes_per_group: 128,
        buffer_cache_bytes: 64 << 10,
        ..FfsParams::ufs_8k()
    };
    let mut ffs = Ffs::new(params, 4 << 20, 0);
    let mut plan = Plan::default();
    for file in 0..23 {
        ffs.create(&mut plan, 0, file, 1_000).expect("space");
    }
    plan.clear();
    ffs.create(&mut plan, 0, 23, 5 * 8_192).expect("space");
    let writes = shape(&mut plan).into_iter().filter(|step| (step.0, step.1) == (Write, Data));
    assert_eq!(writes.collect::<Vec<_>>(), [(Write, Data, 40, false), (Write, Data, 23, false)]);
}

/// Remove: directory block and inode, both waited for; dirty data is never written.
#[test]
fn remove_drops_dirty_data() {
    let mut ffs = small(true);
    let mut plan = Plan::default();
    let free_bytes = ffs.free_bytes();
    ffs.create(&mut plan, 0, 0, 3_000).expect("space");
    plan.clear();
    ffs.remove(&mut plan, 0);
    assert_eq!(shape(&mut plan), [(Write, Dir, 8, true), (Write, Inode, 8, true)]);
    ffs.sync(&mut plan);
    assert_eq!(shape(&mut plan), [(Write, Allocation, 8, false)]);
    // The directory keeps its block.
    assert_eq!(ffs.free_bytes(), free_bytes - 8_192);
}

/// Thirteen blocks need an indirect one, and no fragments.
#[test]
fn large_files_have_indirect_blocks_and_no_fragments() {
    let mut ffs = small(true);
    let mut plan = Plan::default();
    ffs.create(&mut plan, 0, 0, 100).expect("space");
    let free_bytes = ffs.free_bytes();
    ffs.create(&mut plan, 0, 1, 12 * 8_192 + 1).expect("space");
    assert_eq!(free_bytes - ffs.free_bytes(), 14 * 8_192);
}

/// 12 blocks, 2,048 more by one indirect block, and one by another. Cold, the first block needs
/// neither, and each of the last two its own; writing in place changes none of them.
#[test]
fn a_part_of_a_file_needs_the_indirect_blocks_that_point_to_it() {
    let params = FfsParams {
        group_bytes: 1 << 20,
        inodes_per_group: 128,
        buffer_cache_bytes: 1 << 20,
        ..FfsParams::ufs_8k()
    };
    let block = |number: u64| number * 8_192;
    for writes in [false, true] {
        let (mut ffs, mut plan) = (Ffs::new(params, 64 << 20, 0), Plan::default());
        ffs.create(&mut plan, 0, 0, block(12 + 2_048 + 1)).expect("space");
        ffs.drop_caches(&mut plan);
        plan.clear();
        let mut needed = |from: u64, blocks: u64| {
            match writes {
                false => ffs.read(&mut plan, 0, block(from), block(blocks)),
                true => ffs.write(&mut plan, 0, block(from), block(blocks)),
            }
            ffs.sync(&mut plan);
            let steps = shape(&mut plan).into_iter();
            steps.filter(|step| step.1 == Allocation).collect::<Vec<_>>()
        };
        assert_eq!(needed(0, 12), []);
        assert_eq!(needed(12 + 2_048, 1), [(Read, Allocation, 8, true)]);
        assert_eq!(needed(11, 2), [(Read, Allocation, 8, true)]);
        assert_eq!(needed(12 + 2_047, 2), [], "both are in memory");
    }
}

#[test]
fn space_is_conserved_and_no_fragment_has_two_files() {
    let mut rng = fastrand::Rng::with_seed(9);
    let mut ffs = small(false);
    let mut plan = Plan::default();
    ffs.make_dir(&mut plan, 1, 0).expect("space");
    let free_at_start = ffs.free_bytes();
    let mut alive: Vec<(FileId, u64)> = Vec::new();
    let mut full = 0;
    for file in 0..4_000 {
        let bytes = rng.u64(1..60_000);
        match ffs.create(&mut plan, 1, file, bytes) {
            Ok(()) => alive.push((file, bytes)),
            Err(e) => {
                full += 1;
                assert!(
                    matches!(e, FsFull::Space { wanted_bytes, .. } if wanted_bytes == bytes),
                    "{e}"
                );
            }
        }
        while alive.len() > 60 {
            let (old, bytes) = alive.swap_remove(rng.usize(0..alive.len()));
            ffs.read(&mut plan, old, 0, bytes);
            ffs.remove(&mut plan, old);
        }
        let mut owned = std::collections::HashSet::new();
        for (file, _) in &alive {
            for run in &ffs.files[*file as usize].runs {
                for i in 0..u64::from(run.fragments) {
                    assert!(owned.insert(run.fragment + i), "one owner");
                }
            }
        }
        let held: u64 = owned.len() as u64 * 1_024;
        let blocks = ffs.directories[1].blocks.len() as u64;
        assert_eq!(free_at_start - ffs.free_bytes(), held + blocks * 8_192, "space adds up");
        plan.clear();
    }
    assert!(full < 4_000, "some fit");
}

/// Four groups of 128 inodes, of which the root has one: 511 directories, with nearly all space
/// free.
#[test]
fn no_inode_and_no_space_are_told_apart() {
    let (mut ffs, mut plan) = (small(false), Plan::default());
    for dir in 1..512 {
        ffs.make_dir(&mut plan, dir, 0).expect("an inode");
    }
    let free_bytes = ffs.free_bytes();
    let none = FsFull::Inodes { inodes: 512, free_bytes };
    assert_eq!(ffs.make_dir(&mut plan, 512, 0), Err(none));
    assert_eq!(ffs.create(&mut plan, 0, 0, 1_000), Err(none));
    assert!(none.to_string().contains("all 512 inodes are taken"), "{none}");
    let space = FsFull::Space { wanted_bytes: 8 << 20, free_bytes };
    assert_eq!(ffs.create(&mut plan, 0, 0, 8 << 20), Err(space));
}

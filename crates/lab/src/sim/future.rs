//! When each request's object is asked for again, for policies that know the future.
//!
//! Owns four bytes for each request, in a file without a name in the system's directory for such
//! files: a trace has many requests for each object, and in memory they would be most of what a
//! simulation takes. Written while the trace is read for the first time, turned from keys into next
//! uses from the end to the start, read beside the trace the second time; all in blocks. What is
//! shorter than a block makes no file. It goes with its owner, also if the process is killed. One
//! thread.
//!
//! Invariant: a request after which its object is deleted, before it is asked for again, has no
//! next use: the copy that a cache might keep is never hit.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::error::TraceError;
use crate::policy::{NEVER, Step};

/// Numbers written or turned around at once.
const BLOCK: usize = 1 << 12;
const NUMBER_BYTES: usize = size_of::<u32>();
/// Marks the key of a request that deletes. So many keys, then, are too many.
const DELETES: u32 = 1 << 31;

/// A number for each request: its object's key at first, then the number of the next request for
/// it.
#[derive(Debug)]
pub(crate) struct Future {
    dir: PathBuf,
    /// Whole blocks, made with the first of them.
    file: Option<File>,
    in_file: u64,
    /// What comes after those, less than a block while numbers are pushed.
    kept: Vec<u32>,
    /// Bytes on their way from or to the file.
    bytes: Vec<u8>,
}

impl Future {
    /// Nothing yet.
    pub(crate) fn new() -> Future {
        Future::in_dir(std::env::temp_dir())
    }

    fn in_dir(dir: PathBuf) -> Future {
        Future { dir, file: None, in_file: 0, kept: Vec::with_capacity(BLOCK), bytes: Vec::new() }
    }

    /// Numbers so far.
    pub(crate) fn len(&self) -> u64 {
        self.in_file + self.kept.len() as u64
    }

    fn failed(&self, source: io::Error) -> TraceError {
        TraceError::Spill { dir: self.dir.display().to_string(), source }
    }

    /// Adds the key of the next request, and whether that deletes its object.
    pub(crate) fn push(&mut self, key: u32, deletes: bool) -> Result<(), TraceError> {
        if key >= DELETES {
            return Err(TraceError::TooMany { what: "objects", max: u64::from(DELETES) });
        }
        self.kept.push(if deletes { key | DELETES } else { key });
        if self.kept.len() == BLOCK {
            self.spill().map_err(|source| self.failed(source))?;
        }
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(tempfile::tempfile_in(&self.dir)?);
        }
        let numbers = std::mem::take(&mut self.kept);
        self.write(self.in_file, &numbers)?;
        self.in_file += numbers.len() as u64;
        self.kept = numbers;
        self.kept.clear();
        Ok(())
    }

    fn write(&mut self, first: u64, numbers: &[u32]) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        self.bytes.clear();
        self.bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        file.write_all_at(&self.bytes, first * NUMBER_BYTES as u64)
    }

    /// Reads so many numbers of the file into memory, as bytes.
    fn read(&mut self, first: u64, count: usize) -> io::Result<()> {
        self.bytes.resize(count * NUMBER_BYTES, 0);
        match &self.file {
            Some(file) => file.read_exact_at(&mut self.bytes, first * NUMBER_BYTES as u64),
            None => Ok(()),
        }
    }

    fn numbers(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
        bytes.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number))
    }

    /// Makes of each key, of so many, the number of the next request for it, [`NEVER`] where there
    /// is none, or a delete comes before it.
    pub(crate) fn turn_around(&mut self, objects: usize) -> Result<(), TraceError> {
        let mut next = vec![NEVER; objects];
        keys_to_next_uses(&mut self.kept, self.in_file, &mut next);
        let mut block = vec![0; BLOCK];
        for at in (0..self.in_file / BLOCK as u64).rev() {
            let first = at * BLOCK as u64;
            self.read(first, BLOCK).map_err(|source| self.failed(source))?;
            block.iter_mut().zip(Future::numbers(&self.bytes)).for_each(|(to, key)| *to = key);
            keys_to_next_uses(&mut block, first, &mut next);
            self.write(first, &block).map_err(|source| self.failed(source))?;
        }
        Ok(())
    }

    /// Tells steps, the first of which has this number, when their objects are asked for again.
    pub(crate) fn set_next_uses(
        &mut self,
        steps: &mut [Step],
        first: u64,
    ) -> Result<(), TraceError> {
        let in_file = self.in_file.saturating_sub(first).min(steps.len() as u64) as usize;
        let (of_file, of_kept) = steps.split_at_mut(in_file);
        if !of_file.is_empty() {
            self.read(first, in_file).map_err(|source| self.failed(source))?;
            let next_uses = Future::numbers(&self.bytes);
            of_file.iter_mut().zip(next_uses).for_each(|(step, next)| step.set_next_use(next));
        }
        let at = (first + in_file as u64).saturating_sub(self.in_file) as usize;
        let next_uses = self.kept.get(at..).unwrap_or_default();
        of_kept.iter_mut().zip(next_uses).for_each(|(step, next)| step.set_next_use(*next));
        Ok(())
    }
}

/// Replaces each key by the place of its next occurrence; the keys begin at place `first`, and
/// `next` has what comes after them. A delete is no use, and hides what comes after it.
fn keys_to_next_uses(keys: &mut [u32], first: u64, next: &mut [u32]) {
    for (at, key) in keys.iter_mut().enumerate().rev() {
        let place = if *key & DELETES == 0 { (first + at as u64) as u32 } else { NEVER };
        *key = std::mem::replace(&mut next[(*key & !DELETES) as usize], place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next_uses(future: &mut Future, batches: impl Iterator<Item = usize>) -> Vec<u32> {
        let (len, mut all) = (future.len() as usize, Vec::new());
        for batch in batches {
            let count = batch.min(len - all.len());
            let mut steps = vec![Step::get(7, 7, 7); count];
            future.set_next_uses(&mut steps, all.len() as u64).expect("read");
            all.extend(steps.iter().map(Step::next_use));
            if all.len() == len {
                return all;
            }
        }
        all
    }

    #[test]
    fn next_uses_are_places_of_the_next_request() {
        let mut future = Future::new();
        for key in [0, 1, 0, 2, 1, 0] {
            future.push(key, false).expect("no file");
        }
        future.turn_around(3).expect("no file");
        assert!(future.file.is_none(), "so few need none");
        let expected = [2, 4, 5, NEVER, NEVER, NEVER];
        assert_eq!(next_uses(&mut future, std::iter::repeat(4)), expected);
    }

    /// 0 is deleted and comes back, 1 only goes, 2 is deleted before it ever came.
    #[test]
    fn a_delete_is_no_use() {
        let mut future = Future::new();
        let steps = [(0, false), (2, true), (1, false), (0, true), (0, false), (2, false)];
        for (key, deletes) in steps.into_iter().chain([(1, true), (0, false)]) {
            future.push(key, deletes).expect("no file");
        }
        future.turn_around(3).expect("no file");
        // What stands for a delete itself nobody asks for.
        let expected = [NEVER, 5, NEVER, 4, 7, NEVER, NEVER, NEVER];
        assert_eq!(next_uses(&mut future, std::iter::repeat(8)), expected);
        assert!(future.push(DELETES, false).is_err(), "a key that would be taken for a delete");
    }

    /// The array that was kept in memory before is the model; lengths around whole blocks, and
    /// batches that begin and end anywhere.
    #[test]
    fn blocks_in_a_file_are_the_same_as_an_array() {
        const KEYS: u32 = 500;
        let mut rng = fastrand::Rng::with_seed(5);
        for len in [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 777] {
            let deletes = |rng: &mut fastrand::Rng| if rng.u8(..8) == 0 { DELETES } else { 0 };
            let mut model: Vec<u32> =
                (0..len).map(|_| rng.u32(0..KEYS) | deletes(&mut rng)).collect();
            let mut future = Future::new();
            for key in &model {
                future.push(key & !DELETES, key & DELETES != 0).expect("written");
            }
            assert_eq!((future.file.is_some(), future.len()), (len >= BLOCK, len as u64));
            assert!(future.kept.len() < BLOCK);
            future.turn_around(KEYS as usize).expect("turned around");
            keys_to_next_uses(&mut model, 0, &mut [NEVER; KEYS as usize]);
            let batches = std::iter::repeat_with(|| rng.usize(1..2 * BLOCK));
            assert!(next_uses(&mut future, batches) == model, "{len}");
        }
    }

    /// The file has no name while it is there, and without a place for it the error says where.
    #[test]
    fn nothing_is_left_behind_and_no_room_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut future = Future::in_dir(dir.path().to_owned());
        (0..BLOCK as u32).for_each(|key| future.push(key, false).expect("written"));
        assert!(future.file.is_some());
        assert_eq!(dir.path().read_dir().expect("read").count(), 0);
        let mut nowhere = Future::in_dir(dir.path().join("gone"));
        let pushed = (0..BLOCK as u32).try_for_each(|key| nowhere.push(key, false));
        let said = pushed.expect_err("no directory").to_string();
        assert!(said.contains("gone") && said.contains("TMPDIR"), "{said}");
    }
}

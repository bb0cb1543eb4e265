//! Syncs of the journal that fail, behind a cache that is as Linux's.

use super::*;

/// Where it goes, and what.
type Unwritten = (usize, Vec<u8>);

/// An area behind a cache that is as Linux's: what a sync cannot write it takes for written.
#[derive(Clone, Default)]
struct Cached {
    cache: Bytes,
    disk: Bytes,
    unwritten: Arc<Mutex<Vec<Unwritten>>>,
    /// Syncs that fail, each once so many writes wait.
    failures: Arc<Mutex<Vec<usize>>>,
    fails_now: Arc<AtomicBool>,
}

impl JournalArea for Cached {
    fn read_all(&self) -> io::Result<Vec<u8>> {
        Ok(lock(&self.cache).clone())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let place = offset as usize..offset as usize + bytes.len();
        lock(&self.cache)[place.clone()].copy_from_slice(bytes);
        lock(&self.unwritten).push((place.start, bytes.to_vec()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut failures = lock(&self.failures);
        let failure = failures.pop();
        self.fails_now.fetch_or(failure.is_some(), Ordering::SeqCst);
        drop(failures);
        if let Some(writes) = failure {
            while lock(&self.unwritten).len() < writes {
                std::thread::yield_now();
            }
            lock(&self.unwritten).clear();
            self.fails_now.store(false, Ordering::SeqCst);
            return Err(io::Error::other("one sync fails"));
        }
        while self.fails_now.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        for (start, bytes) in std::mem::take(&mut *lock(&self.unwritten)) {
            lock(&self.disk)[start..start + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }
}

fn cached() -> (Cached, Journal) {
    let area = Cached { cache: empty_of(1_024), disk: empty_of(1_024), ..Cached::default() };
    let len = lock(&area.cache).len() as u64;
    let contents = contents(&area.cache);
    let boxed = Box::new(area.clone());
    let journal = Journal::new(Some(boxed), len, NONCE, Durability::Synced, &contents);
    (area, journal)
}

#[test]
fn what_a_sync_could_not_write_is_written_before_another_counts() {
    let (area, journal) = cached();
    append(&journal, 1).expect("nothing fails");
    lock(&area.failures).push(2);
    append(&journal, 2).expect_err("its sync fails");
    let on_disk = || contents(&area.disk).records.iter().map(|record| record.seq).max();
    assert_eq!(on_disk(), Some(1));
    journal.sync().expect("it is said once");
    assert_eq!(on_disk(), Some(2));
}

/// A sync fails that began before the other's record came, and loses both.
#[test]
fn nobody_is_told_that_a_record_is_durable_which_is_not() {
    let (area, journal) = cached();
    // Each record is written twice.
    lock(&area.failures).push(4);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| append(&journal, 1));
        while !lock(&area.failures).is_empty() {
            std::thread::yield_now();
        }
        append(&journal, 2).expect("its own sync succeeds");
        first.join().expect("no panic").expect_err("one sync fails");
    });
    assert!(contents(&area.disk).records.iter().any(|record| record.seq == 2));
}

/// They may be hundreds, from a thread that all I/O waits for.
#[test]
fn records_of_those_who_may_not_wait_are_synced_with_the_next() {
    let (area, journal) = cached();
    let has = |hash| contents(&area.disk).records.iter().any(|record| record.op == delete(hash));
    journal.append_soon(delete(1), Sequence::from_raw(1)).expect("there is room");
    assert!(!has(1));
    append(&journal, 2).expect("it is synced");
    assert!(has(1) && has(2));
}

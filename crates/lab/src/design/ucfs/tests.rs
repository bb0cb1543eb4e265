//! The mechanisms of UCFS one by one, on files made by hand: sizes are those on disk, header
//! included.
//!
//! Clusters of 16,384 bytes. All memory is the cold buffer: its younger and its older half have
//! 32,768 bytes each, four files of 8,000, and the fifth file of the older half makes one unit
//! leave. So of nine files of 8,000 bytes, stored one after the other, the first five are looked
//! at.

use super::*;
use crate::requests::Requests;

struct Bed {
    ucfs: Ucfs,
    names: Catalogue,
    urls: Vec<&'static str>,
    out: Vec<Action>,
    writes: u64,
    reads: u64,
}

const EACH: u64 = 8_000;

impl Bed {
    fn new(fills: bool) -> Bed {
        let options = UcfsOptions {
            cluster_bytes: 16 << 10,
            memory_bytes: 64 << 10,
            disk_bytes: 4 << 20,
            hot_percent: 0,
            medium_percent: 0,
            fills,
            ..UcfsOptions::default()
        };
        let ucfs = Ucfs::new(options, Requests::NONE, Changes::Replace);
        let (names, urls, out) = (Catalogue::new(), Vec::new(), Vec::new());
        Bed { ucfs, names, urls, out, writes: 0, reads: 0 }
    }

    fn key(&self, url: &str) -> u64 {
        self.urls.iter().position(|known| *known == url).expect("asked for before") as u64
    }

    fn ask(&mut self, url: &'static str, bytes: u64) -> Outcome {
        if !self.urls.contains(&url) {
            assert_eq!(self.names.push_url(url.as_bytes()), self.urls.len() as u64);
            self.urls.push(url);
        }
        let size_bytes = bytes - HEADER_BYTES - url.len() as u64;
        let request = Request { key: self.key(url), size_bytes, ..Request::default() };
        self.out.clear();
        let outcome = self.ucfs.request(&request, &self.names, &mut self.out);
        for action in &self.out {
            let Action::Block { direction, .. } = action else { panic!("{action:?}") };
            match direction {
                Direction::Read => self.reads += 1,
                Direction::Write => self.writes += 1,
            }
        }
        outcome
    }

    fn store(&mut self, files: &[&'static str]) {
        for url in files {
            assert_eq!(self.ask(url, EACH), Outcome::Stored, "{url}");
        }
    }

    /// What is on a file's unit, in order; nothing if it is in memory only.
    fn unit(&self, url: &str) -> Vec<&'static str> {
        let unit = self.ucfs.files[&self.key(url)].unit;
        let keys = unit.map_or(&[][..], |unit| self.ucfs.clusters.files(unit));
        keys.iter().map(|key| self.urls[*key as usize]).collect()
    }

    fn fact(&self, name: &str) -> u64 {
        let facts = self.ucfs.facts();
        facts.iter().find(|(known, _)| *known == name).expect("a fact of ucfs").1
    }
}

/// Files of hosts of their own, for making others older.
const OTHERS: [&str; 10] = [
    "o0.org/x/a",
    "o1.org/x/a",
    "o2.org/x/a",
    "o3.org/x/a",
    "o4.org/x/a",
    "o5.org/x/a",
    "o6.org/x/a",
    "o7.org/x/a",
    "o8.org/x/a",
    "o9.org/x/a",
];

/// Algorithm 1: of five files the third is HTML and leaves, not the oldest.
#[test]
fn the_oldest_html_file_leaves_first() {
    let mut bed = Bed::new(false);
    bed.store(&["a.org/1.gif", "b.org/2.gif", "c.org/p/3.html", "d.org/4.html", "e.org/5.gif"]);
    bed.store(&OTHERS[..3]);
    assert_eq!(bed.writes, 0, "four files in each half");
    bed.store(&OTHERS[3..4]);
    assert_eq!((bed.writes, bed.unit("c.org/p/3.html")), (1, vec!["c.org/p/3.html"]));
    for url in ["a.org/1.gif", "d.org/4.html"] {
        assert!(bed.unit(url).is_empty(), "{url}");
    }
    // HTML again; then none is left among the older, and the oldest goes.
    bed.store(&OTHERS[4..5]);
    assert_eq!((bed.writes, bed.unit("d.org/4.html")), (2, vec!["d.org/4.html"]));
    bed.store(&OTHERS[5..6]);
    assert_eq!((bed.writes, bed.unit("a.org/1.gif")), (3, vec!["a.org/1.gif"]));
}

/// Algorithm 2, first part: the oldest takes the third along, which is of its host and path and
/// fits: 16,000 of 16,384 bytes. The second is of its host alone; the fifth does not fit any more.
#[test]
fn files_of_a_host_and_path_leave_together() {
    let mut bed = Bed::new(false);
    bed.store(&["a.org/p/1", "a.org/q/2", "a.org/p/3", "b.org/p/4", "a.org/p/5"]);
    bed.store(&OTHERS[..4]);
    assert_eq!((bed.writes, bed.unit("a.org/p/1")), (1, vec!["a.org/p/1", "a.org/p/3"]));
    for url in ["a.org/q/2", "b.org/p/4", "a.org/p/5"] {
        assert!(bed.unit(url).is_empty(), "{url}");
    }
}

/// Algorithm 2, second part, is one pass from the oldest on. The first file was used twice and has
/// 10,000 bytes: 6,384 are free. One of 3,000 bytes, used once, is passed over; one of 800 is small
/// and goes in, which leaves 5,584: one of 5,600 used twice does not fit (it would have, had files
/// used as often come before small ones), one of 4,000 used twice does. 1,584 are free: the last,
/// of 700, goes in.
#[test]
fn gaps_are_filled_with_files_used_as_often_or_small() {
    let files = [
        ("a.org/1", 10_000, 2),
        ("b.org/once", 3_000, 1),
        ("c.org/small", 800, 1),
        ("d.org/twice-large", 5_600, 2),
        ("e.org/twice", 4_000, 2),
        ("f.org/small", 700, 1),
    ];
    let run = |fills: bool| {
        let mut bed = Bed::new(fills);
        for (url, bytes, times) in files {
            for _ in 0..times {
                bed.ask(url, bytes);
            }
        }
        // 24,100 bytes so far: four more make 8,100 of the first five old, and so on to 32,768.
        bed.store(&OTHERS[..5]);
        assert_eq!(bed.writes, 0, "{fills}");
        bed.store(&OTHERS[5..6]);
        assert_eq!(bed.writes, 1, "{fills}");
        bed.unit("a.org/1")
    };
    assert_eq!(run(true), ["a.org/1", "c.org/small", "e.org/twice", "f.org/small"]);
    assert_eq!(run(false), ["a.org/1"]);
}

/// Both files are old, used once. The second is hit, and after it all others, so that it is old
/// again, used twice: when the first leaves, no file that was used once is there, and it goes
/// alone.
#[test]
fn a_file_that_came_back_counts_anew() {
    let mut bed = Bed::new(true);
    bed.store(&["a.org/1", "b.org/2"]);
    bed.store(&OTHERS[..4]);
    assert_eq!(bed.ask("b.org/2", EACH), Outcome::Hit);
    for url in &OTHERS[..4] {
        assert_eq!(bed.ask(url, EACH), Outcome::Hit, "{url}");
    }
    assert_eq!(bed.writes, 0);
    bed.store(&OTHERS[4..7]);
    assert_eq!((bed.writes, bed.unit("a.org/1")), (1, vec!["a.org/1"]));
    assert!(bed.unit("b.org/2").is_empty());
}

/// §2.4.4: of two files on one unit one is asked for, and both come into memory. When they are the
/// oldest, nothing is written, since both lie on the disk as they are; and from there they are read
/// again.
#[test]
fn what_is_on_the_disk_as_it_is_is_not_written_again() {
    let mut bed = Bed::new(false);
    read_back(&mut bed);
    let written = bed.writes;
    bed.store(&NEWER);
    // Two pairs and a single file were written before it was their turn.
    assert_eq!((bed.writes - written, bed.fact("writes_saved")), (3, 1));
    assert_eq!(bed.unit("a.org/1"), ["a.org/1", "a.org/2"]);
    assert!(["a.org/1", "a.org/2"].iter().all(|url| !bed.ucfs.files[&bed.key(url)].in_memory));
    assert_eq!((bed.ask("a.org/2", EACH), bed.reads), (Outcome::Hit, 2));
    assert_eq!((bed.fact("stale"), bed.fact("disk_hits")), (0, 2));
}

/// As before, but one of the two has changed when it is asked for again: the unit is not valid any
/// more, and both are written when they leave.
#[test]
fn a_changed_file_takes_its_unit_from_the_disk() {
    let mut bed = Bed::new(false);
    read_back(&mut bed);
    assert_eq!(bed.ask("a.org/1", EACH - 1), Outcome::Stored);
    assert!(bed.unit("a.org/2").is_empty());
    let written = bed.writes;
    bed.store(&NEWER);
    assert_eq!((bed.writes - written, bed.fact("writes_saved"), bed.fact("stale")), (4, 0, 1));
    assert_eq!(bed.unit("a.org/1"), ["a.org/2", "a.org/1"]);
}

/// Before the pair that was read it is the turn of a single file, which leaves room for another
/// used once. The next such file is one of the pair: it is passed over, or the pair's unit would be
/// taken apart.
#[test]
fn what_is_on_the_disk_as_it_is_fills_no_gap() {
    let mut bed = Bed::new(true);
    read_back(&mut bed);
    bed.store(&NEWER[..6]);
    assert_eq!(bed.unit("e.org/1"), ["e.org/1", "g.org/1"]);
    assert_eq!(bed.unit("a.org/1"), ["a.org/1", "a.org/2"]);
}

const NEWER: [&str; 7] =
    ["g.org/1", "g.org/2", "h.org/1", "h.org/2", "i.org/1", "i.org/2", "j.org/1"];

/// Pairs of four hosts and one file more, so that the first pair is written; then it is read.
fn read_back(bed: &mut Bed) {
    bed.store(&["a.org/1", "a.org/2", "b.org/1", "b.org/2", "c.org/1", "c.org/2"]);
    bed.store(&["d.org/1", "d.org/2", "e.org/1"]);
    assert_eq!((bed.writes, bed.unit("a.org/1")), (1, vec!["a.org/1", "a.org/2"]));
    assert_eq!((bed.ask("a.org/1", EACH), bed.reads), (Outcome::Hit, 1));
    // Nine files are in memory again, so that the next pair left.
    assert_eq!((bed.writes, bed.unit("b.org/1")), (2, vec!["b.org/1", "b.org/2"]));
}

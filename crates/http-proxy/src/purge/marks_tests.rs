//! Tests the marks against a model that keeps every purge ever made and checks each.

use super::*;

const LEDGER: u64 = 5;

/// A stored response of the model.
#[derive(Debug, Clone)]
struct Stored {
    stamp: Stamp,
    url: Vec<u8>,
    group: u64,
}

fn hash(url: &[u8]) -> u64 {
    damelo::GroupId::of(url).get()
}

impl Stored {
    fn subject(&self) -> Subject<'_> {
        let (url, url_hash) = (&self.url, hash(&self.url));
        Subject { stamp: &self.stamp, url, url_hash, group: self.group }
    }

    fn is_covered(&self, scope: &Scope) -> bool {
        match scope {
            Scope::All => true,
            Scope::Url(url) => hash(&self.url) == *url,
            Scope::Tag(tag) => self.stamp.tags.contains(tag),
            Scope::Group(group) => self.group == *group,
            Scope::Prefix(prefix) => self.url.starts_with(prefix),
        }
    }
}

fn url(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut url = format!("http://h{}/", random.u8(..3));
    for _ in 0..random.usize(..4) {
        url.push(['a', 'b', '/'][random.usize(..3)]);
    }
    url.into_bytes()
}

fn scope(random: &mut fastrand::Rng) -> Scope {
    match random.u8(..20) {
        0 => Scope::All,
        1..=6 => Scope::Url(hash(&url(random))),
        7..=11 => Scope::Tag(TagId(random.u64(..6))),
        12..=14 => Scope::Group(random.u64(..4)),
        _ => Scope::Prefix(url(random)),
    }
}

fn stored(random: &mut fastrand::Rng, marks: &Marks) -> Stored {
    let tags = (0..random.usize(..3)).map(|_| TagId(random.u64(..6))).collect();
    let stamp = Stamp { moment: marks.now(), tags };
    Stored { stamp, url: url(random), group: random.u64(..4) }
}

#[test]
fn marks_say_what_a_list_of_all_purges_says() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut marks = Marks::new(LEDGER);
        let mut purges: Vec<(u64, Scope, bool)> = Vec::new();
        let mut all = Vec::new();
        for step in 0..60 {
            if random.bool() {
                all.push(stored(&mut random, &marks));
            } else {
                let (scope, soft) = (scope(&mut random), random.bool());
                let kind = if soft { PurgeKind::Soft } else { PurgeKind::Hard };
                purges.push((marks.set(scope.clone(), kind, step), scope, soft));
            }
            if random.u8(..10) == 0 {
                marks = Marks::decode(&marks.encode()).unwrap();
            }
            if random.u8(..20) == 0 {
                marks = marks.after_restart();
            }
            assert_eq!(marks.newest_mark(), marks.find_newest(), "seed {seed}");
            for one in &all {
                let hits = purges.iter().filter(|(generation, scope, _)| {
                    one.stamp.moment.generation < *generation && one.is_covered(scope)
                });
                let softs: Vec<bool> = hits.map(|(_, _, soft)| *soft).collect();
                let wanted = (softs.contains(&false), softs.contains(&true));
                let got = marks.judge(&one.subject());
                match wanted {
                    (true, _) => assert_eq!(got, Standing::Gone, "seed {seed} {one:?}"),
                    (false, true) => {
                        assert!(matches!(got, Standing::Stale { .. }), "seed {seed} {one:?}");
                    }
                    _ => assert_eq!(got, Standing::Untouched, "seed {seed} {one:?}"),
                }
            }
        }
    }
}

/// How many went that had not been purged; none that was may be there.
fn gone_in_vain(marks: &Marks, all: &[Stored], purged: usize) -> usize {
    let is_gone = |one: &Stored| marks.judge(&one.subject()) == Standing::Gone;
    assert!(all[..purged].iter().all(is_gone), "one is back");
    all[purged..].iter().filter(|one| is_gone(one)).count()
}

#[test]
fn beyond_the_limits_old_marks_cover_more_but_never_less() {
    const PURGED: usize = 155_000;
    let mut marks = Marks::new(LEDGER);
    let page = |n: usize, marks: &Marks| Stored {
        stamp: Stamp { moment: marks.now(), tags: vec![TagId(n as u64)] },
        url: format!("http://h{}/dir/{n}", n % 7).into_bytes(),
        group: n as u64 + 1_000_000,
    };
    let all: Vec<Stored> = (0..200_000).map(|n| page(n, &marks)).collect();
    for (n, one) in all.iter().enumerate().take(PURGED) {
        if n == 140_000 {
            assert_eq!(gone_in_vain(&marks, &all, n), 0, "there was room for all of them");
        }
        let scope = match n % 3 {
            0 => Scope::Tag(TagId(n as u64)),
            1 => Scope::Url(hash(&one.url)),
            _ => Scope::Group(one.group),
        };
        marks.set(scope, PurgeKind::Hard, 0);
        assert!(marks.len() <= MARKS_MAX);
    }
    marks = Marks::decode(&marks.encode()).unwrap();
    let more = gone_in_vain(&marks, &all, PURGED);
    assert!(more > 0, "nothing was folded: the test tests nothing");
    let kept = all.len() - PURGED;
    assert!(more * 10 < kept, "{more} of {kept} went without having been purged");
    let after = page(1, &marks);
    assert_eq!(marks.judge(&after.subject()), Standing::Untouched);
}

/// A ledger of a program before has no older marks.
#[test]
fn a_ledger_of_before_is_read() {
    let mut marks = Marks::new(LEDGER);
    marks.set(Scope::Tag(TagId(7)), PurgeKind::Hard, 0);
    assert_eq!(Marks::decode(&marks.encode_as_before()), Some(marks));
}

/// What was folded into the smaller table of programs before covers as much as it did.
#[test]
fn a_smaller_table_is_taken_over() {
    let mut marks = Marks::new(LEDGER);
    let key = |n: u64| (Kind::Tag, n);
    marks.latest = 3;
    marks.slots = vec![0; SLOTS_BEFORE];
    for slot in slots_of(mixed(key(1))) {
        marks.slots[slot % SLOTS_BEFORE] = 3;
    }
    let taken = Marks::decode(&marks.encode()).unwrap();
    assert_eq!((taken.folded(mixed(key(1))), taken.slots.len()), (3, SLOTS));
    assert!((2..100).any(|n| taken.folded(mixed(key(n))) == 0));
}

#[test]
fn prefixes_fold_to_their_host_and_hosts_to_everything() {
    let mut marks = Marks::new(LEDGER);
    let old = |host: &str| Stored {
        stamp: Stamp { moment: Moment { ledger: LEDGER, generation: 0 }, tags: Vec::new() },
        url: format!("http://{host}/other").into_bytes(),
        group: 0,
    };
    for n in 0..=MARKS_MAX {
        marks.set(Scope::Prefix(format!("http://a/{n}/").into_bytes()), PurgeKind::Hard, 0);
    }
    assert_eq!(marks.judge(&old("a").subject()), Standing::Gone);
    assert_eq!(marks.judge(&old("b").subject()), Standing::Untouched);
    for n in 0..=MARKS_MAX {
        marks.set(Scope::Prefix(format!("http://host{n}/").into_bytes()), PurgeKind::Hard, 0);
    }
    assert_eq!(marks.judge(&old("b").subject()), Standing::Gone);
    assert!(marks.len() <= MARKS_MAX && marks.prefix_bytes <= PREFIX_BYTES_MAX);
}

/// What makes room for prefixes is a prefix.
#[test]
fn long_prefixes_make_no_other_marks_coarser() {
    let mut marks = Marks::new(LEDGER);
    let url = |n: u64| format!("http://a/{n}").into_bytes();
    for n in 0..1000 {
        marks.set(Scope::Url(hash(&url(n))), PurgeKind::Soft, 7);
    }
    for n in 0..150 {
        let short = if n < 50 { 8 } else { PREFIX_MAX };
        let prefix = format!("{:/<short$}", format!("http://b/{n}/"));
        marks.set(Scope::Prefix(prefix.into_bytes()), PurgeKind::Hard, 0);
        assert!(marks.prefix_bytes <= PREFIX_BYTES_MAX, "{n}");
    }
    let stamp = Stamp { moment: Moment { ledger: LEDGER, generation: 0 }, tags: Vec::new() };
    let standing = |url: Vec<u8>| {
        let one = Stored { stamp: stamp.clone(), url, group: 0 };
        marks.judge(&one.subject())
    };
    assert_eq!(standing(b"http://b/other".to_vec()), Standing::Gone, "prefixes were folded");
    for n in 0..1000 {
        assert_eq!(standing(url(n)), Standing::Stale { since_unix_s: 7 }, "{n}");
    }
    assert_eq!(standing(b"http://c/".to_vec()), Standing::Untouched);
}

#[test]
fn another_ledger_s_responses_are_gone() {
    let marks = Marks::new(LEDGER);
    let stamp = Stamp { moment: Moment { ledger: 6, generation: u64::MAX }, tags: Vec::new() };
    let one = Stored { stamp, url: b"http://a/".to_vec(), group: 0 };
    assert_eq!(marks.judge(&one.subject()), Standing::Gone);
}

#[test]
fn damage_is_refused_and_never_panics() {
    let mut marks = Marks::new(LEDGER);
    for n in 0..10 {
        let kind = if n % 2 == 0 { PurgeKind::Soft } else { PurgeKind::Hard };
        marks.set(Scope::Tag(TagId(n)), kind, n);
        marks.set(Scope::Prefix(format!("http://a/{n}/").into_bytes()), PurgeKind::Hard, 0);
    }
    let bytes = marks.encode();
    assert_eq!(Marks::decode(&bytes), Some(marks));
    for length in 0..bytes.len() {
        assert_eq!(Marks::decode(&bytes[..length]), None);
    }
    for seed in 0..5000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut damaged = bytes.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..damaged.len());
            damaged[at] = random.u8(..);
        }
        let _ = Marks::decode(&damaged);
    }
}

/// Found by fuzzing: a mark later than the last purge would cover all later fetches, and after the
/// largest generation there is no next purge.
#[test]
fn no_mark_is_later_than_the_last_purge() {
    let mut marks = Marks::new(1);
    marks.set(Scope::All, PurgeKind::Hard, 5);
    let bytes = marks.encode();
    let with_latest = |latest: u64| {
        let mut changed = bytes.clone();
        changed[9..17].copy_from_slice(&latest.to_le_bytes());
        Marks::decode(&changed)
    };
    assert_eq!(with_latest(1), Some(marks));
    assert_eq!(with_latest(0), None);
    assert_eq!(with_latest(u64::MAX), None);
}

//! Places are given, taken back and joined as a simple model says.

use super::*;

fn nothing(advice: Advice) {
    panic!("{advice:?}");
}

/// Random takes and releases, with a map of the owner of each place as the model.
#[test]
fn runs_never_overlap_and_what_is_occupied_stays_within_the_limit() {
    for seed in 0..50 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (frames, per_frame) = (rng.usize(2..40), 1 << rng.usize(0..5));
        let mut places = Places::new(frames, per_frame);
        let mut occupied = vec![0; places.count()];
        let mut held: Vec<(usize, usize)> = Vec::new();
        for _ in 0..400 {
            let given = std::cell::RefCell::new(Vec::new());
            let give_back = |advice| {
                let Advice::GiveBack(place, grains) = advice else { panic!("{advice:?}") };
                given.borrow_mut().push((place, grains));
            };
            let mut taken = None;
            match rng.u8(0..5) {
                0..3 => {
                    let grains = rng.usize(1..=3 * per_frame);
                    taken = places.take(grains, give_back).map(|first| (first, grains));
                }
                3 if !held.is_empty() => {
                    let (first, grains) = held.swap_remove(rng.usize(..held.len()));
                    places.release(first, grains, give_back);
                }
                _ => places.set_limit(rng.usize(1..=frames * per_frame), give_back),
            }
            for (place, grains) in given.into_inner() {
                let in_use = held.iter().any(|&(first, length)| {
                    (first..first + length.div_ceil(per_frame)).contains(&place)
                });
                assert!(!in_use, "seed {seed}: {place} is in use");
                assert_eq!(occupied[place], grains.end, "seed {seed}: up to its end");
                occupied[place] = grains.start;
            }
            if let Some((first, grains)) = taken {
                let end = first + grains.div_ceil(per_frame);
                let meets = held.iter().any(|&(other, length)| {
                    first < other + length.div_ceil(per_frame) && other < end
                });
                assert!(!meets && end <= places.count(), "seed {seed}");
                for (at, cell) in occupied[first..end].iter_mut().enumerate() {
                    *cell = (grains - at * per_frame).min(per_frame);
                }
                held.push((first, grains));
            }
            let used: usize = held.iter().map(|(_, grains)| grains).sum();
            let all: usize = occupied.iter().sum();
            assert_eq!((places.used_grains(), places.touched_grains), (used, all));
            assert!(all <= places.limit_grains.max(used), "seed {seed}: {all} grains");
        }
    }
}

/// Grains of one place.
const FULL: usize = 16;

/// A mapping as the system sees it: large pages are occupied all over.
struct Mapping {
    occupied: Vec<usize>,
    large: Vec<bool>,
}

impl Mapping {
    fn new(places: usize) -> Mapping {
        Mapping { occupied: vec![0; places], large: vec![false; places] }
    }

    fn advise(&mut self, advice: Advice, seed: u64) {
        match advice {
            Advice::LargePages(places) => {
                assert!(self.occupied[places.clone()].iter().all(|&grains| grains == 0));
                self.occupied[places.clone()].fill(FULL);
                self.large[places].fill(true);
            }
            Advice::SmallPages(places) => self.large[places].fill(false),
            Advice::GiveBack(place, grains) => {
                assert!(!self.large[place], "seed {seed}: it would come back as a whole");
                assert_eq!(self.occupied[place], grains.end, "seed {seed}: up to its end");
                self.occupied[place] = grains.start;
            }
        }
    }

    /// A run is written to.
    fn touch(&mut self, first: usize, grains: usize) {
        let end = first + grains.div_ceil(FULL);
        for (at, cell) in self.occupied[first..end].iter_mut().enumerate() {
            *cell = (grains - at * FULL).min(FULL).max(*cell);
        }
    }
}

#[test]
fn what_is_counted_is_what_is_occupied_with_large_pages_too() {
    let mut larges = 0;
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let is_behind = seed % 2 == 1;
        let new = if is_behind { Places::enlarged_behind } else { Places::new };
        let mut places = new(512, FULL);
        let mut mapping = Mapping::new(places.count());
        let mut held: Vec<(usize, usize)> = Vec::new();
        let (odd_percent, frames_max) = [(0, 1), (2, 3), (30, 3)][seed as usize / 2 % 3];
        let mut aside = false;
        let mut limit = FULL * 512;
        for _ in 0..3_000 {
            let mut advices = Vec::new();
            if is_behind && rng.u8(..8) == 0 {
                // The thread behind large pages is at some step of its work.
                if std::mem::take(&mut aside) {
                    places.enlarged(|advice| advices.push(advice));
                } else if let Some(block) = places.set_aside(|advice| advices.push(advice)) {
                    advices.push(Advice::LargePages(block));
                    aside = true;
                }
            }
            let advise = |advice| advices.push(advice);
            let mut taken = None;
            match rng.u8(0..10) {
                0..6 => {
                    let is_odd = rng.u8(0..100) < odd_percent;
                    let grains =
                        if is_odd { rng.usize(1..40) } else { FULL * rng.usize(1..=frames_max) };
                    taken = places.take(grains, advise).map(|first| (first, grains));
                }
                6..9 if !held.is_empty() => {
                    let (first, grains) = held.swap_remove(rng.usize(..held.len()));
                    places.release(first, grains, advise);
                }
                _ => {
                    // As tables grow.
                    limit -= rng.usize(0..FULL / 4);
                    places.set_limit(limit, advise);
                }
            }
            advices.into_iter().for_each(|advice| mapping.advise(advice, seed));
            if let Some((first, grains)) = taken {
                mapping.touch(first, grains);
                held.push((first, grains));
            }
            let touched = places.touched.iter().map(|&n| usize::from(n));
            assert!(touched.eq(mapping.occupied.iter().copied()));
            let all: usize = mapping.occupied.iter().sum();
            let used: usize = held.iter().map(|(_, grains)| grains).sum();
            let most = places.limit_grains + places.limit_grains / SLACK_SHARE;
            let held_back = if aside { places.blocks.places_each() * FULL } else { 0 };
            assert!(
                all == places.touched_grains && all <= most.max(used + held_back),
                "seed {seed}: {all}"
            );
            larges = larges.max(places.large_blocks());
        }
        let is_enough = odd_percent > 0 || places.large_blocks() >= 10;
        assert!(is_enough, "seed {seed}: {} large pages are left", places.large_blocks());
    }
    assert!(larges > 12, "{larges} large pages at a time at most");
}

/// The block comes after the run that wanted it, and takes the place of free memory.
#[test]
fn a_block_made_large_behind_serves_the_runs_after_it() {
    let (mut places, mut advices) = (Places::enlarged_behind(512, FULL), Vec::new());
    assert_eq!(places.set_aside(nothing), None, "nobody wants it");
    let first = places.take(FULL, nothing).unwrap();
    let block = places.set_aside(nothing).unwrap();
    assert!(!block.contains(&first), "it occupies nothing but what is counted");
    assert_eq!(places.set_aside(nothing), None, "one at a time");
    let second = places.take(FULL, nothing).unwrap();
    assert!(!block.contains(&second), "it is not ready");
    assert_eq!(places.used_grains(), 2 * FULL);
    places.enlarged(nothing);
    let third = places.take(FULL, nothing).unwrap();
    assert_eq!(third, block.start);
    assert_eq!(places.set_aside(nothing), None, "there is room in large pages");
    // Memory that is full of runs has no room for another block.
    let rest: Vec<_> = std::iter::from_fn(|| places.take(FULL, nothing)).collect();
    assert_eq!(places.set_aside(nothing), None);
    // What they leave makes way, even where it is still there to be taken again, but only once so
    // much was taken that clearing a block again does not count.
    rest.into_iter().rev().take(31).for_each(|run| places.release(run, FULL, nothing));
    assert_eq!(places.set_aside(nothing), None, "too soon");
    for _ in 0..WAY_SHARE * block.len() {
        let again = places.take(FULL, nothing).unwrap();
        places.release(again, FULL, nothing);
    }
    let block = places.set_aside(|advice| advices.push(advice)).unwrap();
    let grains: usize = advices
        .iter()
        .map(|advice| match advice {
            Advice::GiveBack(_, grains) => grains.len(),
            other => panic!("{other:?}"),
        })
        .sum();
    assert_eq!(grains, (block.len() - 8) * FULL, "but for the slack of 1/64");
}

/// Memory is always full, one run in eight is odd, and the runs held longest are released.
#[test]
fn mixed_lengths_leave_most_of_the_large_pages_whole() {
    for seed in 0..5 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut places = Places::new(1_024, FULL);
        let mut held: Vec<(usize, usize)> = Vec::new();
        for _ in 0..20_000 {
            let odd = rng.u8(..8) == 0;
            let grains = if odd { rng.usize(1..3 * FULL) } else { FULL };
            while places.available_grains() < grains {
                let (first, grains) = held.swap_remove(rng.usize(..held.len()));
                places.release(first, grains, |_| ());
            }
            held.push((places.take(grains, |_| ()).unwrap(), grains));
        }
        let whole = held.iter().filter(|(_, grains)| grains % FULL == 0).count();
        let share = places.large_blocks() * 32 * 100 / whole;
        assert!(share >= 60, "seed {seed}: {share}% of {whole} whole frames are in large pages");
    }
}

/// Where lengths are mixed large pages are taken apart again: making them must not become most of
/// the work, however often the thread behind them looks.
#[test]
fn few_large_pages_are_made_where_they_do_not_last() {
    for seed in 0..5 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut places = Places::enlarged_behind(1_024, FULL);
        let mut held = VecDeque::new();
        let (mut taken, mut made) = (0, 0);
        for step in 0..20_000 {
            let grains = if rng.bool() { rng.usize(6..20 * FULL) } else { FULL };
            while places.available_grains() < grains {
                let (first, grains) = held.pop_front().unwrap();
                places.release(first, grains, |_| ());
            }
            held.push_back((places.take(grains, |_| ()).unwrap(), grains));
            if let Some(block) = places.set_aside(|_| ()) {
                places.enlarged(|_| ());
                made += if step >= 1_000 { block.len() * FULL } else { 0 };
            }
            taken += if step >= 1_000 { grains } else { 0 };
        }
        assert!(made <= taken / 24, "seed {seed}: {made} grains cleared for {taken} taken");
    }
}

#[test]
fn what_occupies_memory_is_taken_again_as_it_is() {
    let mut places = Places::new(64, 16);
    places.set_limit(16 * 16, nothing);
    let shapes = [48, 17, 9, 16, 35];
    let mut held = shapes.map(|grains| places.take(grains, nothing).unwrap());
    let touched = places.touched_grains;
    for which in [0, 3, 2, 1, 2, 0, 4, 1, 3] {
        places.release(held[which], shapes[which], nothing);
        held[which] = places.take(shapes[which], nothing).unwrap();
    }
    assert_eq!(places.touched_grains, touched);
    // The same number of places serves another length.
    places.release(held[4], 35, nothing);
    held[4] = places.take(38, nothing).unwrap();
    assert_eq!(places.touched_grains, touched + 3);
    // What a longer run left serves shorter ones, too.
    places.release(held[0], 48, nothing);
    places.take(16, nothing).unwrap();
    places.take(32, nothing).unwrap();
    assert_eq!(places.touched_grains, touched + 3);
}

#[test]
fn where_memory_is_short_one_place_is_taken_with_more_or_less_than_is_wanted() {
    let mut places = Places::new(2, 16);
    let (a, b) = (places.take(16, nothing).unwrap(), places.take(16, nothing).unwrap());
    places.release(a, 16, nothing);
    let mut given = Vec::new();
    assert_eq!(places.take(9, |advice| given.push(advice)), Some(a));
    assert_eq!(given, [Advice::GiveBack(a, 9..16)]);
    places.release(b, 16, nothing);
    assert_eq!(places.take(16, nothing), Some(b));
    assert_eq!(places.take(8, nothing), None, "seven grains are left");
}

#[test]
fn what_has_been_free_for_longest_is_given_back_first() {
    let mut places = Places::new(8, 16);
    let (old, new) = (places.take(16, nothing).unwrap(), places.take(16, nothing).unwrap());
    places.release(old, 16, nothing);
    places.release(new, 16, nothing);
    let mut given = Vec::new();
    places.set_limit(16, |advice| given.push(advice));
    assert_eq!(given, [Advice::GiveBack(old, 0..16)]);
}

/// Unused large pages must not displace memory that other runs release and take again.
#[test]
fn runs_of_one_odd_length_take_again_what_others_left() {
    for grains in [17, 33] {
        let mut places = Places::new(2_048, FULL);
        let once = |_| ();
        let whole: Vec<usize> = (0..700).map(|_| places.take(FULL, once).unwrap()).collect();
        whole.into_iter().for_each(|first| places.release(first, FULL, once));
        let mut held = VecDeque::new();
        let mut advices = 0;
        for step in 0..20_000 {
            let mut count = |_| advices += usize::from(step >= 10_000);
            while places.available_grains() < grains {
                places.release(held.pop_front().unwrap(), grains, &mut count);
            }
            held.push_back(places.take(grains, &mut count).unwrap());
        }
        assert!(advices <= 100, "{grains} grains: {advices} in 10,000 runs");
    }
}

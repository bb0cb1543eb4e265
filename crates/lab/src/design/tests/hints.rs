//! Love and hate by the warm-up: what is ranked, and when it takes effect.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::design::Hinted;
use crate::requests::Requests;

type Hints = Rc<RefCell<Vec<(char, u64)>>>;

/// Writes down what it is told; it has as many groups as it is made with.
struct Told(Hints, u64);

impl Design for Told {
    fn request(&mut self, _: &Request, _: &Catalogue, _: &mut Vec<Action>) -> Outcome {
        self.0.borrow_mut().push(('r', 0));
        Outcome::Hit
    }

    fn own_group(&self, group: u64) -> u64 {
        group % self.1
    }

    fn love(&mut self, group: u64) {
        self.0.borrow_mut().push(('l', group));
    }

    fn hate(&mut self, group: u64) {
        self.0.borrow_mut().push(('h', group));
    }
}

fn told(groups: u64, hosts: &[u32], warmup: usize) -> Vec<(char, u64)> {
    let hints = Hints::default();
    let design = Box::new(Told(Rc::clone(&hints), groups));
    let mut hinted = Hinted::new(design, Grouper::new(GroupRule::Given, Requests::NONE), 0.3);
    let requests: Vec<Request> =
        hosts.iter().map(|&host| Request { host, ..read(u64::from(host), 100) }).collect();
    let options = RunOptions { warmup, ..RunOptions::default() };
    let mut machine = Machine::new(&config());
    let report = run(&mut hinted, &mut machine, &requests, &Catalogue::new(), options);
    let report = report.expect("nothing is written");
    let of = |what| hints.borrow().iter().filter(|(hint, _)| *hint == what).count() as u64;
    assert_eq!((report.fact("loved_groups"), report.fact("hated_groups")), (of('l'), of('h')));
    hints.take()
}

/// Groups 7, 8 and 9, of which 9 is asked for most in the warm-up and 7 most afterwards: a third of
/// three is one.
#[test]
fn the_warm_up_decides_what_is_loved() {
    let all = told(100, &[9, 8, 9, 7, 8, 9, 7, 7, 7, 7], 6);
    let r = ('r', 0);
    assert_eq!(all[..6], [r; 6]);
    assert_eq!(all[6..9], [('h', 7), ('h', 8), ('l', 9)], "the popular last");
    assert_eq!(all[9..], [r; 4]);
}

/// 1, 3 and 5 are one group of two, as for the design's own requests.
#[test]
fn groups_are_ranked_as_the_design_has_them() {
    let all = told(2, &[2, 2, 1, 3, 5, 2], 5);
    assert_eq!(all[5..7], [('h', 0), ('l', 1)]);
}

/// Both designs that take hints answer more of what is popular from memory when told what is.
#[test]
fn hints_change_what_stays_in_memory() {
    for name in ["damelo", "store"] {
        let entry = find(name).expect("known");
        assert!(entry.takes_hints, "{name}");
        let mut rng = fastrand::Rng::with_seed(1);
        // A half of the requests are for one group in eight, whose objects all fit in memory.
        let mut requests: Vec<Request> = Vec::new();
        for _ in 0..6_000 {
            let host = if rng.bool() { 0 } else { rng.u32(1..8) };
            let key = u64::from(host) * 1_000 + rng.u64(0..300);
            requests.push(Request { host, ..read(key, 12_000) });
        }
        let options = DesignOptions {
            cache_bytes: 256 << 20,
            memory_bytes: 6 << 20,
            grouping: GroupRule::Given,
            ..DesignOptions::default()
        };
        let play = |hints: bool| {
            let inputs = DesignInputs {
                options: &options,
                requests: Requests::NONE,
                drive: &config().drive,
            };
            let mut design = (entry.make)(&inputs);
            if hints {
                let grouper = Grouper::new(GroupRule::Given, Requests::NONE);
                design = Box::new(Hinted::new(design, grouper, 0.125));
            }
            let options = RunOptions { warmup: 3_000, ..RunOptions::default() };
            let mut machine = Machine::new(&config());
            let report = run(&mut *design, &mut machine, &requests, &Catalogue::new(), options);
            report.expect("fits").memory_hits
        };
        let (plain, hinted) = (play(false), play(true));
        assert!(hinted > plain, "{name}: {hinted} {plain}");
    }
}

//! The microbenchmarks of the Dámelo thesis (2000) §5.1 and §5.2: three stages, create, read and
//! delete, over objects of groups, in five orderings. The group is the host of the URL, the method
//! is PUT, GET or DELETE.
//!
//! Readings where the thesis leaves room: zipf 1:8 gives 1/8 of the objects 7/8 of the reads; of
//! 1:4 and 3:8 it says only that the share of popular objects grows, and here they get the rest of
//! one, 3/4 and 5/8. Sizes are uniform up to 16 KiB, which gives its mean of 8 KiB.

use std::fmt::Write as _;

use fastrand::Rng;

use super::parameters::Parameters;
use super::{Generator, Made};
use crate::ids::mix;

pub(super) const PARAMETERS: &str =
    "seed=1&order=random&objects=131072&groups=16&threads=16&max_bytes=16384";

/// Time between two requests; the thesis has none.
const STEP_US: u64 = 100;

#[derive(Debug, Clone, Copy)]
enum Order {
    Sequential,
    Random,
    /// Eighths of the objects that are popular.
    Zipf(u64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Create,
    Read,
    Delete,
}

pub(super) struct Thesis {
    rng: Rng,
    order: Order,
    objects: u64,
    groups: u64,
    threads: u64,
    max_bytes: u64,
    seed: u64,
    stage: Stage,
    at: u64,
    time_us: u64,
    shuffled: Vec<u32>,
}

impl Thesis {
    pub(super) fn new(p: &mut Parameters) -> Result<Thesis, String> {
        let order = match p.text("order").as_str() {
            "sequential" => Order::Sequential,
            "random" => Order::Random,
            "zipf-1-8" => Order::Zipf(1),
            "zipf-1-4" => Order::Zipf(2),
            "zipf-3-8" => Order::Zipf(3),
            other => {
                return Err(format!(
                    "`order={other}`: write sequential, random, zipf-1-8, zipf-1-4 or zipf-3-8"
                ));
            }
        };
        let seed = p.seed()?;
        let objects = p.whole("objects", 8, 1 << 31)?;
        let mut thesis = Thesis {
            rng: Rng::with_seed(seed),
            order,
            objects,
            groups: p.whole("groups", 1, objects)?,
            threads: p.whole("threads", 1, 1 << 20)?,
            max_bytes: p.whole("max_bytes", 1, 1 << 40)?,
            seed,
            stage: Stage::Create,
            at: 0,
            time_us: 0,
            shuffled: (0..objects as u32).collect(),
        };
        thesis.shuffle();
        Ok(thesis)
    }

    fn shuffle(&mut self) {
        if !matches!(self.order, Order::Sequential) {
            self.rng.shuffle(&mut self.shuffled);
        }
    }

    fn next_stage(&mut self) -> bool {
        self.at = 0;
        self.stage = match self.stage {
            Stage::Create => Stage::Read,
            Stage::Read => Stage::Delete,
            Stage::Delete => return false,
        };
        if self.stage == Stage::Delete {
            self.shuffle();
        }
        true
    }

    /// Objects are numbered group by group, so the popular ones fill the first groups.
    fn read(&mut self) -> u64 {
        match self.order {
            Order::Sequential => self.at,
            Order::Random => self.rng.u64(0..self.objects),
            Order::Zipf(eighths) => {
                let popular = self.objects * eighths / 8;
                if self.rng.u64(0..8) < 8 - eighths {
                    self.rng.u64(0..popular)
                } else {
                    self.rng.u64(popular..self.objects)
                }
            }
        }
    }
}

impl Generator for Thesis {
    fn make(&mut self, made: &mut Made) -> bool {
        if self.at == self.objects && !self.next_stage() {
            return false;
        }
        let (object, method) = match self.stage {
            Stage::Create => (u64::from(self.shuffled[self.at as usize]), "PUT"),
            Stage::Read => (self.read(), "GET"),
            Stage::Delete => (u64::from(self.shuffled[self.at as usize]), "DELETE"),
        };
        made.time_us = self.time_us;
        made.method = method;
        made.size_bytes = 1 + mix(object ^ mix(self.seed).bits()).bits() % self.max_bytes;
        made.client.clear();
        made.url.clear();
        let group = object * self.groups / self.objects;
        // Writing to a String cannot fail.
        let _ = write!(made.client, "t{}", self.at % self.threads);
        let _ = write!(made.url, "http://g{group}.thesis.example/{object}");
        self.at += 1;
        self.time_us += STEP_US;
        true
    }
}

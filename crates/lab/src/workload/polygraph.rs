//! Web Polygraph as the Dámelo thesis (2000) §5.4 used it: one client, one server, 80% of the
//! objects cacheable, 55% of the requests for something asked for before, sizes exponential.
//!
//! The thesis calls 13 KB the maximum of an exponential distribution, which has none; it is taken
//! as its mean. Polygraph of that time asked again for any earlier object alike. Objects that may
//! not be cached have a `?` in their URL, so that the papers' filters take them out.

use std::fmt::Write as _;

use fastrand::Rng;

use super::parameters::Parameters;
use super::zipf::exponential;
use super::{Generator, Made};
use crate::ids::mix;

pub(super) const PARAMETERS: &str =
    "seed=1&requests=100000&cacheable=0.8&revisit=0.55&mean_bytes=13312&rate=600";

pub(super) struct Polygraph {
    rng: Rng,
    seed: u64,
    left: u64,
    cacheable: f64,
    revisit: f64,
    mean_bytes: f64,
    gap_us: f64,
    time_us: f64,
    objects: u64,
}

impl Polygraph {
    pub(super) fn new(p: &mut Parameters) -> Result<Polygraph, String> {
        let seed = p.seed()?;
        Ok(Polygraph {
            rng: Rng::with_seed(seed),
            seed,
            left: p.whole("requests", 0, u64::MAX)?,
            cacheable: p.number("cacheable", 0.0, 1.0)?,
            revisit: p.number("revisit", 0.0, 1.0)?,
            mean_bytes: p.number("mean_bytes", 1.0, 1e12)?,
            gap_us: 1e6 / p.number("rate", 1e-6, 1e9)?,
            time_us: 0.0,
            objects: 0,
        })
    }
}

impl Generator for Polygraph {
    fn make(&mut self, made: &mut Made) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let again = self.objects > 0 && self.rng.f64() < self.revisit;
        let object = if again {
            self.rng.u64(0..self.objects)
        } else {
            self.objects += 1;
            self.objects - 1
        };
        // An object's properties follow from its number, so that nothing has to be remembered.
        let mut own = Rng::with_seed(mix(object ^ mix(self.seed).bits()).bits());
        let mark = if own.f64() < self.cacheable { "" } else { "?nocache" };
        self.time_us += exponential(&mut self.rng, self.gap_us);
        made.time_us = self.time_us as u64;
        made.method = "GET";
        made.size_bytes = 1 + exponential(&mut own, self.mean_bytes) as u64;
        made.client.clear();
        made.client.push_str("robot1");
        made.url.clear();
        // Writing to a String cannot fail.
        let _ = write!(made.url, "http://polygraph.example/w{object}{mark}");
        true
    }
}

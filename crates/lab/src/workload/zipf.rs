//! Zipf-distributed ranks in constant time, by rejection-inversion (Hörmann and Derflinger 1996),
//! and the plainest generator: independent requests of that popularity (independent reference
//! model).

use std::fmt::Write as _;

use fastrand::Rng;

use super::parameters::Parameters;
use super::{Generator, Made};
use crate::ids::mix;

/// Draws ranks 1 to n with probability falling as 1 / rank^alpha.
#[derive(Debug, Clone)]
pub(super) struct Zipf {
    n: f64,
    alpha: f64,
    top: f64,
    bottom: f64,
    sure: f64,
}

impl Zipf {
    /// `n` at least 1, `alpha` at least 0.
    pub(super) fn new(n: u64, alpha: f64) -> Zipf {
        let mut zipf = Zipf { n: n as f64, alpha, top: 0.0, bottom: 0.0, sure: 0.0 };
        zipf.top = zipf.integral(1.5) - 1.0;
        zipf.bottom = zipf.integral(zipf.n + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    fn density(&self, x: f64) -> f64 {
        x.powf(-self.alpha)
    }

    /// Integral of the density from 1 to x.
    fn integral(&self, x: f64) -> f64 {
        let exponent = 1.0 - self.alpha;
        if exponent.abs() < 1e-9 { x.ln() } else { (x.powf(exponent) - 1.0) / exponent }
    }

    fn inverse(&self, y: f64) -> f64 {
        let exponent = 1.0 - self.alpha;
        if exponent.abs() < 1e-9 {
            y.exp()
        } else {
            (1.0 + y * exponent).max(0.0).powf(1.0 / exponent)
        }
    }

    /// A rank, from 1.
    pub(super) fn rank(&self, rng: &mut Rng) -> u64 {
        loop {
            let u = self.bottom + rng.f64() * (self.top - self.bottom);
            let x = self.inverse(u);
            let rank = x.round().clamp(1.0, self.n);
            if rank - x <= self.sure || u >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64;
            }
        }
    }
}

/// Sizes with a heavy tail, the same for the same object: a log-normal body and, for 7 of 100
/// objects, a Pareto tail, after the shape that Barford and Crovella 1998 found for web objects.
pub(super) fn web_size(object: u64) -> u64 {
    const TAIL_SHARE: f64 = 0.07;
    const TAIL_FROM_BYTES: f64 = 30_000.0;
    const TAIL_INDEX: f64 = 1.2;
    const BODY_MEDIAN_BYTES: f64 = 2_500.0;
    const BODY_SIGMA: f64 = 1.3;
    const BYTES_MAX: f64 = 64e6;
    let mut rng = Rng::with_seed(mix(object).bits());
    let bytes = if rng.f64() < TAIL_SHARE {
        TAIL_FROM_BYTES / (1.0 - rng.f64()).powf(1.0 / TAIL_INDEX)
    } else {
        BODY_MEDIAN_BYTES * (BODY_SIGMA * normal(&mut rng)).exp()
    };
    bytes.clamp(32.0, BYTES_MAX) as u64
}

/// A number of the standard normal distribution (Box and Muller 1958).
pub(super) fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

/// A number of the exponential distribution with that mean.
pub(super) fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * (1.0 - rng.f64()).ln()
}

pub(super) const PARAMETERS: &str = "seed=1&requests=100000&objects=20000&alpha=0.8&rate=1000";

/// Independent requests.
pub(super) struct ZipfRequests {
    rng: Rng,
    zipf: Zipf,
    left: u64,
    gap_us: f64,
    time_us: f64,
    salt: u64,
}

impl ZipfRequests {
    pub(super) fn new(p: &mut Parameters) -> Result<ZipfRequests, String> {
        let seed = p.seed()?;
        Ok(ZipfRequests {
            rng: Rng::with_seed(seed),
            zipf: Zipf::new(
                p.whole("objects", 1, u64::from(u32::MAX))?,
                p.number("alpha", 0.0, 4.0)?,
            ),
            left: p.whole("requests", 0, u64::MAX)?,
            gap_us: 1e6 / p.number("rate", 1e-6, 1e9)?,
            time_us: 0.0,
            salt: mix(seed).bits(),
        })
    }
}

impl Generator for ZipfRequests {
    fn make(&mut self, made: &mut Made) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let rank = self.zipf.rank(&mut self.rng);
        self.time_us += exponential(&mut self.rng, self.gap_us);
        made.time_us = self.time_us as u64;
        made.method = "GET";
        made.size_bytes = web_size(rank ^ self.salt);
        made.url.clear();
        // Writing to a String cannot fail.
        let _ = write!(made.url, "http://zipf.example/{rank}");
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_as_often_as_they_should() {
        for alpha in [0.0, 0.7, 1.0, 1.3] {
            let (n, draws) = (50, 400_000);
            let zipf = Zipf::new(n, alpha);
            let mut rng = Rng::with_seed(3);
            let mut counts = vec![0u32; n as usize + 1];
            (0..draws).for_each(|_| counts[zipf.rank(&mut rng) as usize] += 1);
            let whole: f64 = (1..=n).map(|rank| (rank as f64).powf(-alpha)).sum();
            for rank in [1, 2, 3, 10, 50] {
                let expected = f64::from(draws) * (rank as f64).powf(-alpha) / whole;
                let found = f64::from(counts[rank]);
                assert!(
                    (found - expected).abs() < 5.0 * expected.sqrt(),
                    "{alpha} {rank} {found} {expected}"
                );
            }
        }
        assert_eq!(Zipf::new(1, 0.8).rank(&mut Rng::with_seed(1)), 1);
    }
}

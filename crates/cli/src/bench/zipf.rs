//! The zipf distribution of benchmark requests: a table of cumulative weights with binary search.
//! Immutable once made, so threads share it.

use fastrand::Rng;

use crate::failure::Failure;

/// Numbers drawn with probability proportional to `1 / rank^exponent`.
pub(crate) struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    /// A distribution over ranks `0..count`. Costs one float per rank, which may be more than there
    /// is memory for.
    pub(crate) fn new(count: u32, exponent: f64) -> Result<Zipf, Failure> {
        let mut sum = 0.0;
        let mut cumulative = Vec::new();
        cumulative.try_reserve_exact(count as usize).map_err(|_| {
            Failure::Usage(format!("--objects {count}: there is no memory for a table of so many"))
        })?;
        cumulative.extend((1..=count).map(|rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        }));
        Ok(Zipf { cumulative })
    }

    /// Draws a rank, counted from 0.
    pub(crate) fn draw(&self, rng: &mut Rng) -> u32 {
        let total = self.cumulative.last().copied().unwrap_or(0.0);
        let at = rng.f64() * total;
        let rank = self.cumulative.partition_point(|&sum| sum < at);
        rank.min(self.cumulative.len() - 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_draws_follow_the_law() {
        let zipf = Zipf::new(1000, 0.8).expect("8 KB");
        let mut rng = Rng::with_seed(3);
        let mut counts = vec![0_u32; 1000];
        (0..200_000).for_each(|_| counts[zipf.draw(&mut rng) as usize] += 1);
        // Rank 10 is drawn 10^0.8 = 6.3 times less often than rank 1.
        let ratio = f64::from(counts[0]) / f64::from(counts[9]);
        assert!((5.3..7.5).contains(&ratio), "{ratio}");
    }
}

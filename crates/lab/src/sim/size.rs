//! Cache sizes as people write them: absolute, as a share of the working set, or `auto`. Pure.

use damelo::ByteSize;

use super::feed::Scan;
use crate::error::SimError;
use crate::policy::CAPACITY_BYTES_MAX;

/// Shares of the working set that `auto` tries, libCacheSim's.
pub const AUTO_SHARES: [f64; 8] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.8];
/// `auto` leaves out shares that hold fewer objects than this: their results are noise.
const AUTO_OBJECTS_MIN: f64 = 100.0;
/// The same where all objects count as one byte.
const AUTO_UNITS_MIN: f64 = 5.0;

/// How large a cache is to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SizeSpec {
    /// So many bytes, or objects where sizes are ignored.
    Absolute(u64),
    /// This share of the working set.
    Share(f64),
    /// Each of [`AUTO_SHARES`] that holds enough objects.
    Auto,
}

impl SizeSpec {
    /// Understands `64MiB`, `1gb`, `4096`; `0.01` and `5%` of the working set; `auto` and `0`. A
    /// number with a point and no unit is a share, as for libCacheSim.
    ///
    /// # Errors
    /// What is none of these, and a size of nothing that is written in another way than `0`.
    pub fn parse(given: &str) -> Result<SizeSpec, SimError> {
        let bad =
            |reason: &str| SimError::Size { given: given.to_owned(), reason: reason.to_owned() };
        let text = given.trim();
        if text.eq_ignore_ascii_case("auto") || text == "0" {
            return Ok(SizeSpec::Auto);
        }
        let share = match text.strip_suffix('%') {
            Some(percent) => Some(percent.trim().parse::<f64>().map(|percent| percent / 100.0)),
            None if text.contains('.')
                && text.ends_with(|c: char| c.is_ascii_digit() || c == '.') =>
            {
                Some(text.parse::<f64>())
            }
            None => None,
        };
        match share {
            Some(Ok(share)) if share > 0.0 && share.is_finite() => Ok(SizeSpec::Share(share)),
            Some(_) => Err(bad("a share of the working set is a number above 0")),
            None => {
                let size: ByteSize = text.parse().map_err(|_| {
                    bad(
                        "write bytes (64MiB; at most 8000000TiB), a share of the working set (0.1, 10%) or auto",
                    )
                })?;
                if size.bytes() == 0 {
                    return Err(bad(
                        "it holds nothing: write at least 1 (1000, not 1,000), or auto",
                    ));
                }
                Ok(SizeSpec::Absolute(size.bytes()))
            }
        }
    }

    /// Understands several, separated by commas.
    ///
    /// # Errors
    /// As [`SizeSpec::parse`], or when there is none.
    pub fn parse_list(given: &str) -> Result<Vec<SizeSpec>, SimError> {
        let parts = given.split(',').filter(|part| !part.trim().is_empty());
        let sizes: Vec<SizeSpec> = parts.map(SizeSpec::parse).collect::<Result<_, _>>()?;
        if sizes.is_empty() {
            let reason = "write at least one".to_owned();
            return Err(SimError::Size { given: given.to_owned(), reason });
        }
        Ok(sizes)
    }

    /// True if the working set must be known.
    #[must_use]
    pub fn is_relative(&self) -> bool {
        !matches!(self, SizeSpec::Absolute(_))
    }

    /// The sizes in bytes (or objects), given the working set; none is larger than caches may be.
    ///
    /// # Errors
    /// A share that comes to nothing.
    pub(crate) fn resolve(
        &self,
        working_set: &Scan,
        ignores_sizes: bool,
    ) -> Result<Vec<u64>, SimError> {
        let whole = if ignores_sizes { working_set.objects } else { working_set.bytes };
        let of = |share: f64| ((whole as f64 * share) as u64).min(CAPACITY_BYTES_MAX);
        Ok(match self {
            SizeSpec::Absolute(bytes) => vec![*bytes],
            SizeSpec::Share(share) if whole > 0 && of(*share) == 0 => {
                let unit = if ignores_sizes { "objects" } else { "bytes" };
                let reason = format!(
                    "it holds nothing of a working set of {whole} {unit}: write a larger one"
                );
                return Err(SimError::Size { given: share.to_string(), reason });
            }
            SizeSpec::Share(share) => vec![of(*share)],
            SizeSpec::Auto => {
                let min = if ignores_sizes { AUTO_UNITS_MIN } else { AUTO_OBJECTS_MIN };
                let enough = |share: &&f64| working_set.objects as f64 * **share >= min;
                AUTO_SHARES.iter().filter(enough).map(|share| of(*share)).collect()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_understood_as_libcachesim_does() {
        for (given, size) in [
            ("auto", SizeSpec::Auto),
            ("0", SizeSpec::Auto),
            ("1gb", SizeSpec::Absolute(1 << 30)),
            ("64MiB", SizeSpec::Absolute(64 << 20)),
            ("1.5GiB", SizeSpec::Absolute(3 << 29)),
            ("4096", SizeSpec::Absolute(4096)),
            ("0.01", SizeSpec::Share(0.01)),
            ("1.0", SizeSpec::Share(1.0)),
            ("5%", SizeSpec::Share(0.05)),
        ] {
            assert_eq!(SizeSpec::parse(given).expect(given), size);
        }
        for bad in ["", "x", "-1", "0.0", "-0.5", "%", "1xb", "1..2"] {
            assert!(SizeSpec::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(SizeSpec::parse_list("1mb, 0.1").expect("two").len(), 2);
        assert_eq!(SizeSpec::parse_list("0").expect("auto"), [SizeSpec::Auto]);
        assert!(SizeSpec::parse_list(",").is_err());
    }

    /// Found in the field: `1,000` were caches of 1 byte and of none.
    #[test]
    fn a_cache_of_nothing_is_refused() {
        for (list, given) in [
            ("1,000", "000"),
            ("00", "00"),
            ("0B", "0B"),
            ("0 MiB", "0 MiB"),
            ("0.0001KiB", "0.0001KiB"),
        ] {
            let error = SizeSpec::parse_list(list).expect_err(list).to_string();
            assert!(
                error.starts_with(&format!("cache size `{given}`: it holds nothing")),
                "{error}"
            );
            assert!(error.contains("1000, not 1,000"), "{error}");
        }
    }

    #[test]
    fn auto_leaves_out_what_would_hold_too_little() {
        let scan = Scan { objects: 1000, bytes: 1_000_000, ..Scan::default() };
        let of = |ignores| SizeSpec::Auto.resolve(&scan, ignores).expect("sizes");
        assert_eq!(of(false), [100_000, 200_000, 400_000, 800_000]);
        assert_eq!(of(true), [10, 30, 100, 200, 400, 800]);
        let share = |share| SizeSpec::Share(share).resolve(&scan, false);
        assert_eq!(share(0.5).expect("half"), [500_000]);
        let said = share(1e-7).expect_err("a tenth of a byte").to_string();
        assert!(said.contains("it holds nothing of a working set of 1000000 bytes"), "{said}");
    }

    /// A report must not name a size that no cache had.
    #[test]
    fn a_share_is_no_larger_than_a_cache_may_be() {
        let scan = Scan { objects: 2, bytes: u64::MAX, ..Scan::default() };
        assert_eq!(SizeSpec::Share(1.0).resolve(&scan, false).expect("all"), [CAPACITY_BYTES_MAX]);
        assert_eq!(SizeSpec::Share(0.25).resolve(&scan, false).expect("a quarter"), [1 << 62]);
    }
}

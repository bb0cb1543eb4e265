//! A design as it is named on the command line, with its own parameters: `name` or
//! `name:parameter=value:parameter=value`. Each design's file lists its parameters. Pure.

use std::ops::RangeInclusive;

use damelo::ByteSize;

use super::{Design, DesignInputs, DesignOptions, Entry, REGISTRY};

use crate::name_hint::there_are;
use crate::request::Catalogue;

/// Why a design cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DesignError {
    /// A design that does not exist.
    #[error("there is no design `{given}`; {known}")]
    Unknown {
        /// As given.
        given: String,
        /// All names.
        known: String,
    },
    /// A parameter that the design does not have, or a value that is none.
    #[error("design `{design}`: parameter `{given}`: {reason}")]
    Parameter {
        /// Name of the design.
        design: &'static str,
        /// As given.
        given: String,
        /// What would be right.
        reason: String,
    },
    /// Parameters that do not go together.
    #[error("design `{design}`: {reason}")]
    Combination {
        /// Name of the design.
        design: &'static str,
        /// What would be right.
        reason: String,
    },
}

/// What a parameter can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// From the least to the greatest.
    Range(&'static str, &'static str),
    /// One of these.
    OneOf(&'static [&'static str]),
}

impl Values {
    /// The ends of a range, or every choice.
    #[must_use]
    pub fn extremes(self) -> Vec<&'static str> {
        match self {
            Values::Range(least, greatest) => vec![least, greatest],
            Values::OneOf(choices) => choices.to_vec(),
        }
    }
}

/// A parameter of a design.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// Name on the command line.
    pub name: &'static str,
    /// Its default, as it would be written.
    pub default: &'static str,
    /// What it can be, besides its default.
    pub values: Values,
    /// What it is.
    pub about: &'static str,
    /// Puts a value into the options; the error is what would be right.
    pub(crate) set: fn(&mut DesignOptions, &str) -> Result<(), String>,
}

/// A design with parameters.
#[derive(Debug, Clone)]
pub struct DesignSpec {
    /// Its line of the registry.
    pub entry: &'static Entry,
    given: Vec<(&'static Parameter, String)>,
    label: String,
}

impl DesignSpec {
    /// Understands a name with parameters, without case.
    ///
    /// # Errors
    /// An unknown design or parameter, or a value out of range; each with what would be right.
    pub fn parse(given: &str) -> Result<DesignSpec, DesignError> {
        let mut parts = given.trim().split(':');
        let name = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let known = || there_are(&name, REGISTRY.map(|entry| entry.name));
        let entry = REGISTRY
            .iter()
            .find(|entry| entry.name == name)
            .ok_or_else(|| DesignError::Unknown { given: given.to_owned(), known: known() })?;
        let mut spec = DesignSpec::plain(entry);
        for part in parts {
            spec.add(part.trim())?;
        }
        Ok(spec)
    }

    /// A design with its defaults.
    pub fn plain(entry: &'static Entry) -> DesignSpec {
        DesignSpec { entry, given: Vec::new(), label: entry.name.to_owned() }
    }

    /// Name, with the parameters that were given.
    pub fn label(&self) -> &str {
        &self.label
    }

    fn add(&mut self, given: &str) -> Result<(), DesignError> {
        let design = self.entry.name;
        let bad = |reason| DesignError::Parameter { design, given: given.to_owned(), reason };
        let part = given.to_ascii_lowercase();
        let (name, value) =
            part.split_once('=').ok_or_else(|| bad("write name=value".to_owned()))?;
        let parameters = self.entry.parameters;
        let Some(parameter) = parameters.iter().find(|p| p.name == name.trim()) else {
            let names: Vec<&str> = parameters.iter().map(|p| p.name).collect();
            return Err(bad(match names.is_empty() {
                true => "it has no parameters".to_owned(),
                false => there_are(name.trim(), names),
            }));
        };
        if self.given.iter().any(|(given, _)| given.name == parameter.name) {
            return Err(bad("it is given twice".to_owned()));
        }
        (parameter.set)(&mut DesignOptions::default(), value.trim()).map_err(bad)?;
        self.given.push((parameter, value.trim().to_owned()));
        self.label.push(':');
        self.label.push_str(&part);
        Ok(())
    }

    /// The options with the parameters put in.
    ///
    /// # Errors
    /// Parameters that do not go together.
    pub fn options(&self, base: &DesignOptions) -> Result<DesignOptions, DesignError> {
        let mut options = base.clone();
        for (parameter, value) in &self.given {
            (parameter.set)(&mut options, value).expect("it was checked when it was parsed");
        }
        (self.entry.check)(&options)
            .map_err(|reason| DesignError::Combination { design: self.entry.name, reason })?;
        Ok(options)
    }

    /// Whether a trace names what the parameters tell apart.
    ///
    /// # Errors
    /// One of them is about hosts, and the trace has none.
    pub fn check_names(
        &self,
        options: &DesignOptions,
        names: &Catalogue,
    ) -> Result<(), DesignError> {
        if options.hades.remote_host_every > 0 && !names.has_hosts() {
            let reason = "remote-every tells hosts apart, and the trace names none";
            return Err(DesignError::Combination {
                design: self.entry.name,
                reason: reason.to_owned(),
            });
        }
        Ok(())
    }

    /// Makes the design.
    pub fn make(&self, inputs: &DesignInputs<'_>) -> Box<dyn Design> {
        (self.entry.make)(inputs)
    }
}

pub(crate) fn number<T>(text: &str, range: RangeInclusive<u64>) -> Result<T, String>
where
    T: TryFrom<u64>,
{
    let right = || format!("write a whole number from {} to {}", range.start(), range.end());
    let value: u64 = text.parse().map_err(|_| right())?;
    let inside = Some(value).filter(|value| range.contains(value));
    inside.and_then(|value| T::try_from(value).ok()).ok_or_else(right)
}

/// A size that is a power of two within bounds; the error is what would be right.
///
/// # Errors
/// Anything else.
pub fn parse_size<T>(text: &str, range: RangeInclusive<u64>) -> Result<T, String>
where
    T: TryFrom<u64>,
{
    let right = || {
        let [from, to] = [*range.start(), *range.end()].map(ByteSize::new);
        format!("write a power of two from {from} to {to}")
    };
    let bytes = text.parse::<ByteSize>().map_err(|_| right())?.bytes();
    let fits = Some(bytes).filter(|bytes| range.contains(bytes) && bytes.is_power_of_two());
    fits.and_then(|bytes| T::try_from(bytes).ok()).ok_or_else(right)
}

/// What stands behind a name; the error is which names there are.
///
/// # Errors
/// A name that is not among them.
pub fn parse_choice<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let found = choices.iter().find(|(name, _)| *name == text);
    let names = || choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    found.map(|(_, value)| *value).ok_or_else(|| format!("write one of {}", names()))
}

/// That a design has as much memory as it cannot do without.
pub(super) fn memory_check(options: &DesignOptions, needed_bytes: u64) -> Result<(), String> {
    let [needed, given] = [needed_bytes, options.memory_bytes].map(ByteSize::new);
    if options.memory_bytes < needed_bytes {
        return Err(format!("it needs {needed} of memory, not {given}"));
    }
    Ok(())
}

pub(crate) use {parse_choice as choice, parse_size as size};

pub(crate) const YES_NO: [(&str, bool); 2] = [("yes", true), ("no", false)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::Requests;

    #[test]
    fn defaults_are_what_the_lists_say() {
        for entry in &REGISTRY {
            for parameter in entry.parameters {
                let mut options = DesignOptions::default();
                let set = (parameter.set)(&mut options, parameter.default);
                assert_eq!(set, Ok(()), "{} {}", entry.name, parameter.name);
                let unchanged = format!("{:?}", DesignOptions::default());
                assert_eq!(format!("{options:?}"), unchanged, "{} {}", entry.name, parameter.name);
            }
        }
    }

    #[test]
    fn designs_are_found_by_name_and_parameters() {
        let spec = DesignSpec::parse("Store:Disk=LRU:reinsert=20").expect("known");
        assert_eq!(spec.label(), "store:disk=lru:reinsert=20");
        let options = spec.options(&DesignOptions::default()).expect("goes together");
        assert_eq!(options.store.reinsert_percent_max, 20);
        assert_eq!(options.store.disk, damelo::DiskPolicyKind::Lru);
        let spec = DesignSpec::parse("store:admission=64KiB:keep=used").expect("known");
        let options = spec.options(&DesignOptions::default()).expect("goes together");
        assert_eq!(options.store.admission, damelo::Admission::SizeMax { bytes: 64 << 10 });
        assert_eq!(options.store.reinsertion, damelo::Reinsertion::Used { hits_min: 1 });
    }

    /// A modelled disk is in memory and as large as the drive; of a real one nobody here knows the
    /// size.
    #[test]
    fn limits_of_the_model_are_none_of_real_disks() {
        let spec = DesignSpec::parse("store").expect("known");
        let base = DesignOptions { cache_bytes: 5 << 30, ..DesignOptions::default() };
        let error = spec.options(&base).expect_err("beyond 4 GiB").to_string();
        assert!(error.contains("8MiB to 4GiB, not 5GiB") && error.contains("--real"), "{error}");
        let real = DesignOptions { real: true, cache_bytes: 5 << 40, ..base };
        assert_eq!(spec.options(&real).map(|options| options.cache_bytes), Ok(5 << 40));
        let drive = crate::disk::Drive::named("atlas-10k").expect("known");
        let inputs = DesignInputs { options: &real, requests: Requests::NONE, drive: &drive };
        assert!(drive.size_bytes() < inputs.space_bytes().min(5 << 40));
    }

    #[test]
    fn hosts_are_told_apart_where_there_are_some() {
        let spec = DesignSpec::parse("hades:remote-every=4").expect("known");
        let options = spec.options(&DesignOptions::default()).expect("goes together");
        let mut names = Catalogue::new();
        names.push_host(b"");
        let error = spec.check_names(&options, &names).expect_err("no hosts").to_string();
        assert!(error.contains("remote-every tells hosts apart"), "{error}");
        assert_eq!(spec.check_names(&DesignOptions::default(), &names), Ok(()));
        names.push_host(b"a.example");
        assert_eq!(spec.check_names(&options, &names), Ok(()));
    }

    /// A run with more memory than was asked for would stand in a row with the wrong size.
    #[test]
    fn the_store_runs_with_the_memory_asked_for_or_not_at_all() {
        let spec = DesignSpec::parse("store").expect("known");
        let base = DesignOptions { page_bytes: 1 << 20, ..DesignOptions::default() };
        let with = |memory_bytes| spec.options(&DesignOptions { memory_bytes, ..base.clone() });
        let error = with(8 << 20).expect_err("8 pages").to_string();
        assert!(error.contains("it needs 16MiB of memory, not 8MiB"), "{error}");
        assert!(with(16 << 20).is_ok());
    }

    #[test]
    fn errors_say_what_would_be_right() {
        for (given, reason) in [
            ("stor", "there is no design `stor`; do you mean `store`? there are cern, squid,"),
            ("squid:x=1", "design `squid`: parameter `x=1`: it has no parameters"),
            ("store:disk", "design `store`: parameter `disk`: write name=value"),
            ("store:disc=lru", "parameter `disc=lru`: do you mean `disk`? there are disk, "),
            ("store:disk=arc", "write one of fbc, lfu-aging, lru, fifo"),
            ("store:reinsert=91", "write a whole number from 0 to 90"),
            ("store:admission=some", "write one of always, second-hit, half, or a size"),
            ("store:segment=3mib", "write a power of two from 256KiB to 64MiB"),
            ("store:cmax=1:amax=5:cmax=2", "parameter `cmax=2`: it is given twice"),
        ] {
            let error = DesignSpec::parse(given).expect_err(given).to_string();
            assert!(error.contains(reason), "{error}");
        }
        let spec = DesignSpec::parse("ucfs:hot=60:medium=50").expect("each is a share");
        let error = spec.options(&DesignOptions::default()).expect_err("110%").to_string();
        assert!(error.contains("hot and medium are at most 100"), "{error}");
    }
}

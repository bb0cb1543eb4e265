//! Parameters of a generator: `name=value` pairs over a list of defaults, all of which are checked
//! and used. Pure.

use std::collections::BTreeMap;

/// Parameters as given, or by default.
pub(super) struct Parameters {
    values: BTreeMap<String, String>,
}

impl Parameters {
    /// `defaults` and `query` are both of the form `a=1&b=2`; the query may only name what the
    /// defaults do.
    pub(super) fn parse(defaults: &str, query: &str) -> Result<Parameters, String> {
        let pairs = |text: &str| -> Result<Vec<(String, String)>, String> {
            let parts = text.split('&').filter(|part| !part.is_empty());
            let pair = |part: &str| match part.split_once('=') {
                Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
                None => Err(format!("`{part}` is not of the form name=value")),
            };
            parts.map(pair).collect()
        };
        let mut values: BTreeMap<String, String> = pairs(defaults)?.into_iter().collect();
        let given = pairs(query)?;
        for (at, (name, value)) in given.iter().enumerate() {
            if given[..at].iter().any(|(before, _)| before == name) {
                return Err(format!("`{name}` is given twice"));
            }
            match values.get_mut(name) {
                Some(old) => old.clone_from(value),
                None => return Err(format!("there is no `{name}`; by default {defaults}")),
            }
        }
        Ok(Parameters { values })
    }

    /// A parameter as text.
    pub(super) fn text(&mut self, name: &str) -> String {
        self.values.remove(name).unwrap_or_default()
    }

    /// A whole number within bounds.
    pub(super) fn whole(&mut self, name: &str, min: u64, max: u64) -> Result<u64, String> {
        let text = self.text(name);
        let value = text.parse::<u64>().ok().filter(|value| (min..=max).contains(value));
        value.ok_or_else(|| format!("`{name}={text}`: write a whole number from {min} to {max}"))
    }

    /// A number within bounds.
    pub(super) fn number(&mut self, name: &str, min: f64, max: f64) -> Result<f64, String> {
        let text = self.text(name);
        let value = text.parse::<f64>().ok().filter(|value| (min..=max).contains(value));
        value.ok_or_else(|| format!("`{name}={text}`: write a number from {min} to {max}"))
    }

    /// The seed, which every generator has.
    pub(super) fn seed(&mut self) -> Result<u64, String> {
        self.whole("seed", 0, u64::MAX)
    }
}

//! Reads settings and rules from the text of a TOML file, with the line of every mistake.
//!
//! No threads, no I/O.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Settings;
use super::keys::{self, KEYS};
use super::kinds::Value;
use super::rule_keys::{self, RULE_KEYS};
use crate::ruleset::Rule;

/// A mistake in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct SettingsError {
    /// Line of the file, from 1.
    pub line: usize,
    /// The mistake, and where possible a suggestion.
    pub problem: String,
}

/// The state of reading a file: its settings, and the mistakes so far.
struct Reading<'t> {
    text: &'t str,
    errors: Vec<SettingsError>,
}

impl Reading<'_> {
    fn line(&self, at: usize) -> usize {
        line_at(self.text, at)
    }

    fn mistake(&mut self, at: usize, problem: impl Into<String>) {
        let line = self.line(at);
        self.errors.push(SettingsError { line, problem: problem.into() });
    }
}

/// The line, from 1, that contains a byte offset.
fn line_at(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count()
}

/// Reads a file into `settings` and returns its rules.
pub(crate) fn read(text: &str, settings: &mut Settings) -> Result<Vec<Rule>, Vec<SettingsError>> {
    let mut reading = Reading { text, errors: Vec::new() };
    let mut rules = Vec::new();
    match DeTable::parse(text) {
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            reading.mistake(at, error.message().trim_end());
        }
        Ok(table) => {
            for (key, value) in table.get_ref() {
                let name = key.get_ref().as_ref();
                match value.get_ref() {
                    DeValue::Array(list) if name == "rule" => {
                        for rule in list {
                            settings.rule_lines.push(reading.line(rule.span().start));
                            rules.extend(read_rule(&mut reading, rule, rules.len() + 1));
                        }
                    }
                    DeValue::Table(_) if name == "rule" => {
                        reading.mistake(key.span().start, "write [[rule]], with two brackets");
                    }
                    _ if name == "rules" => {
                        reading.mistake(key.span().start, "write [[rule]], without an s");
                    }
                    DeValue::Table(table) => {
                        read_table(&mut reading, settings, name, key.span().start, table);
                    }
                    _ => read_key(&mut reading, settings, name, key.span().start, value),
                }
            }
        }
    }
    if reading.errors.is_empty() {
        return Ok(rules);
    }
    reading.errors.sort_by_key(|error| error.line);
    Err(reading.errors)
}

/// The line of a key in valid text; `None` if the key does not occur.
pub(super) fn line_of(text: &str, name: &str) -> Option<usize> {
    let file = DeTable::parse(text).ok()?;
    let find = |table: &DeTable<'_>, name: &str| {
        table.iter().find(|(key, _)| key.get_ref() == name).map(|(key, _)| key.span().start)
    };
    let at = match name.split_once('.') {
        None => find(file.get_ref(), name),
        Some((outer, inner)) => match file.get_ref().get(outer)?.get_ref() {
            DeValue::Table(table) => find(table, inner),
            _ => None,
        },
    };
    at.map(|at| line_at(text, at))
}

fn read_table(
    reading: &mut Reading<'_>,
    settings: &mut Settings,
    name: &str,
    at: usize,
    table: &DeTable<'_>,
) {
    let tables = || KEYS.iter().filter_map(|key| Some(key.name.split_once('.')?.0));
    // Of any other, its keys are unknown.
    if table.is_empty() && tables().all(|known| known != name) {
        let near = keys::nearest(name, tables());
        let hint = near.map_or_else(String::new, |near| format!(": did you mean `[{near}]`?"));
        reading.mistake(at, format!("there is no table `[{name}]`{hint}"));
    }
    for (inner, value) in table {
        let full = format!("{name}.{}", inner.get_ref());
        read_key(reading, settings, &full, inner.span().start, value);
    }
}

fn read_key(
    reading: &mut Reading<'_>,
    settings: &mut Settings,
    name: &str,
    at: usize,
    value: &Spanned<DeValue<'_>>,
) {
    // An unknown key is reported first: that is more helpful than an error about its value.
    if keys::find(name).is_none() {
        let near = keys::nearest(name, KEYS.iter().map(|key| key.name));
        let hint = near.map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
        reading.mistake(at, format!("there is no key `{name}`{hint}"));
        return;
    }
    let set = plain(value.get_ref()).and_then(|value| settings.set_value(name, &value));
    match set {
        Ok(()) => drop(settings.lines.insert(name.to_owned(), reading.line(at))),
        Err(problem) => reading.mistake(at, problem),
    }
}

fn read_rule(
    reading: &mut Reading<'_>,
    rule: &Spanned<DeValue<'_>>,
    number: usize,
) -> Option<Rule> {
    let DeValue::Table(table) = rule.get_ref() else {
        reading.mistake(rule.span().start, "a rule is a table: write [[rule]] above its keys");
        return None;
    };
    let before = reading.errors.len();
    let mut made = Rule::named(format!("rule {number}"));
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        let Some(known) = rule_keys::find(name) else {
            let near = keys::nearest(name, RULE_KEYS.iter().map(|key| key.name));
            let hint = near.map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
            reading.mistake(key.span().start, format!("a rule has no key `{name}`{hint}"));
            continue;
        };
        let set = plain(value.get_ref()).and_then(|value| (known.set)(&mut made, &value));
        if let Err(problem) = set {
            reading.mistake(key.span().start, format!("`{name}`: {problem}"));
        }
    }
    if reading.errors.len() == before
        && let Err(problem) = made.check()
    {
        reading.mistake(rule.span().start, problem);
    }
    Some(made)
}

fn plain(value: &DeValue<'_>) -> Result<Value, String> {
    match value {
        DeValue::String(text) => Ok(Value::Text(text.to_string())),
        DeValue::Integer(number) => Ok(Value::Integer(number.to_string())),
        DeValue::Boolean(flag) => Ok(Value::Flag(*flag)),
        DeValue::Array(list) => list
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::String(text) => Ok(text.to_string()),
                DeValue::Integer(number) => Ok(number.to_string()),
                _ => Err("a list holds text or numbers here".to_owned()),
            })
            .collect::<Result<_, _>>()
            .map(Value::List),
        DeValue::Float(_) | DeValue::Datetime(_) => {
            Err("write whole numbers, and sizes and times as text".to_owned())
        }
        DeValue::Table(_) => Err("no table is expected here".to_owned()),
    }
}

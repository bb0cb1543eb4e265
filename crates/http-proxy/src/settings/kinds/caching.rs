//! Kinds of values about storing, cache keys and groups. Pure, no threads.

use http::HeaderName;

use super::{Kind, Value, quoted, shown, split_list};
use crate::config::Grouping;
use crate::rules::SetCookie;
use crate::rules::key::QueryRule;
use crate::rules::negotiation::Normaliser;

/// A grouping rule.
pub(crate) struct GroupRule;
/// Words.
pub(crate) struct Words;
/// Names of header fields.
pub(crate) struct Headers;
/// How `Set-Cookie` is treated.
pub(crate) struct Cookies;
/// Which query parameters are part of the key.
pub(crate) struct Query;
/// How a negotiated field is compared.
pub(crate) struct Negotiated;

impl Kind<Grouping> for GroupRule {
    const WRITTEN: &'static str = "named, page, host, path:N, header:NAME or none";
    fn read(value: &Value) -> Result<Grouping, String> {
        let Value::Text(text) = value else { return Err(value.wanted(Self::WRITTEN)) };
        text.parse().map_err(|_| value.wanted(Self::WRITTEN))
    }
    fn show(value: &Grouping) -> String {
        quoted(value)
    }
}

impl Kind<Vec<String>> for Words {
    const WRITTEN: &'static str = "a list of words";
    fn read(value: &Value) -> Result<Vec<String>, String> {
        split_list(value, Self::WRITTEN)
    }
    fn show(value: &Vec<String>) -> String {
        shown(value)
    }
}

impl Kind<Vec<HeaderName>> for Headers {
    const WRITTEN: &'static str = "a list of header names";
    fn read(value: &Value) -> Result<Vec<HeaderName>, String> {
        let names = split_list(value, Self::WRITTEN)?;
        let name = |text: &String| {
            text.parse().map_err(|_| format!("\"{text}\" cannot be the name of a header"))
        };
        names.iter().map(name).collect()
    }
    fn show(value: &Vec<HeaderName>) -> String {
        shown(value)
    }
}

impl Kind<SetCookie> for Cookies {
    const WRITTEN: &'static str = "store, strip or refuse";
    fn read(value: &Value) -> Result<SetCookie, String> {
        match value.text(Self::WRITTEN)? {
            "store" => Ok(SetCookie::Store),
            "strip" => Ok(SetCookie::Strip),
            "refuse" => Ok(SetCookie::Refuse),
            _ => Err(value.wanted(Self::WRITTEN)),
        }
    }
    fn show(value: &SetCookie) -> String {
        quoted(match value {
            SetCookie::Store => "store",
            SetCookie::Strip => "strip",
            SetCookie::Refuse => "refuse",
        })
    }
}

impl Kind<QueryRule> for Query {
    const WRITTEN: &'static str = "all, none, except:NAME,... or only:NAME,...";
    fn read(value: &Value) -> Result<QueryRule, String> {
        let text = value.text(Self::WRITTEN)?;
        let names = |list: &str| list.split(',').map(|name| name.trim().to_owned()).collect();
        match text.split_once(':') {
            None if text == "all" => Ok(QueryRule::All),
            None if text == "none" => Ok(QueryRule::None),
            Some(("except", list)) if !list.is_empty() => Ok(QueryRule::Except(names(list))),
            Some(("only", list)) if !list.is_empty() => Ok(QueryRule::Only(names(list))),
            _ => Err(value.wanted(Self::WRITTEN)),
        }
    }
    fn show(value: &QueryRule) -> String {
        match value {
            QueryRule::All => quoted("all"),
            QueryRule::None => quoted("none"),
            QueryRule::Except(names) => quoted(format!("except:{}", names.join(","))),
            QueryRule::Only(names) => quoted(format!("only:{}", names.join(","))),
        }
    }
}

impl Kind<Normaliser> for Negotiated {
    const WRITTEN: &'static str = "equivalent, as-sent or best-of:NAME,...";
    fn read(value: &Value) -> Result<Normaliser, String> {
        let text = value.text(Self::WRITTEN)?;
        let names = |list: &str| list.split(',').map(|name| name.trim().to_owned()).collect();
        match text.split_once(':') {
            None if text == "equivalent" => Ok(Normaliser::Equivalent),
            None if text == "as-sent" => Ok(Normaliser::AsSent),
            Some(("best-of", list)) if list.split(',').all(is_name) => {
                Ok(Normaliser::BestOf(names(list)))
            }
            _ => Err(value.wanted(Self::WRITTEN)),
        }
    }
    fn show(value: &Normaliser) -> String {
        match value {
            Normaliser::Equivalent => quoted("equivalent"),
            Normaliser::AsSent => quoted("as-sent"),
            Normaliser::BestOf(names) => quoted(format!("best-of:{}", names.join(","))),
        }
    }
}

/// Whether text is a content coding or language; it is sent to origins as written here.
fn is_name(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

//! Edits of answers as they are delivered, by `answer_set` and `answer_remove`.
//!
//! Invariant: which rules apply is found from the request as the client sent it and from the answer
//! that it gets, never from what was stored for somebody else. Pure, no threads.

use http::header::{CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::{ResponseView, Rule, Ruleset, Told};
use crate::rules::list_members;

/// The places of the rules whose conditions on the request are met, of those that edit answers or
/// end the evaluation.
#[derive(Debug)]
pub(crate) struct AnswerEdits {
    places: Vec<usize>,
}

impl Ruleset {
    /// The edits by the rules at these places; `None` if none of them edits anything.
    pub(super) fn answer_edits(&self, places: Vec<usize>) -> Option<AnswerEdits> {
        let edits = places.iter().any(|place| self.rules[*place].then.edits_answers());
        edits.then_some(AnswerEdits { places })
    }

    /// The rules that edit this answer.
    pub(crate) fn on_answer(&self, edits: &AnswerEdits, answer: &ResponseView<'_>) -> Vec<&Rule> {
        let mut rules = Vec::new();
        for place in &edits.places {
            let rule = &self.rules[*place];
            if rule.when.match_response(answer) {
                rules.push(rule);
                if rule.last {
                    break;
                }
            }
        }
        rules
    }
}

/// An answer's headers as these rules have them; `cache` says what the cache did. Names in `Vary`
/// are added to those of the origin: without these, caches after this one would take one variant
/// for another.
pub(crate) fn edited_answer(
    rules: &[&Rule],
    status: StatusCode,
    mut headers: HeaderMap,
    told: &Told<'_>,
    cache: &str,
) -> HeaderMap {
    // It has the boundary without which the parts cannot be read.
    let of_parts = headers.get(CONTENT_TYPE).filter(|value| is_of_parts(status, value)).cloned();
    let edits = rules.iter().map(|rule| (&rule.then.answer_remove, &rule.then.answer_set));
    super::edit(&mut headers, edits, |headers, name, value| match value.of_answer(told, cache) {
        Some(value) if *name == VARY => Some(with_names(headers, value)),
        value => value,
    });
    if let Some(of_parts) = of_parts {
        headers.insert(CONTENT_TYPE, of_parts);
    }
    headers
}

fn is_of_parts(status: StatusCode, value: &HeaderValue) -> bool {
    const KIND: &[u8] = b"multipart/byteranges";
    let kind = value.as_bytes().get(..KIND.len());
    status == StatusCode::PARTIAL_CONTENT && kind.is_some_and(|k| k.eq_ignore_ascii_case(KIND))
}

/// The `Vary` of an answer and these names.
fn with_names(headers: &HeaderMap, more: HeaderValue) -> HeaderValue {
    let mut names: Vec<&[u8]> = list_members(headers, &VARY).collect();
    if names.is_empty() {
        return more;
    }
    for name in more.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
        if !name.is_empty() && !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            names.push(name);
        }
    }
    // Never fails: parts of valid values joined by a valid separator are a valid value.
    HeaderValue::from_bytes(&names.join(&b", "[..])).unwrap_or(more)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::ruleset::{FieldValue, RequestView, Term, response_view};

    fn root_of_h<'a>(method: &'a Method, headers: &'a HeaderMap) -> RequestView<'a> {
        RequestView {
            host: "h",
            scheme: "http",
            path_and_query: "/",
            method,
            headers,
            client: None,
            met: None,
        }
    }

    #[test]
    fn the_answer_itself_decides_and_last_ends() {
        let line = |value: &str| vec![("x-a".parse().unwrap(), FieldValue::read(value).unwrap())];
        let mut rules: Vec<Rule> = (1..=4).map(|n| Rule::named(format!("r{n}"))).collect();
        rules[0].then.answer_set = line("all");
        rules[1].then.answer_set = line("errors");
        rules[1].when.statuses = vec![Term::is(500..=599)];
        rules[2].last = true;
        rules[2].when.statuses = vec![Term::is_not(404..=404)];
        rules[3].then.answer_remove = vec!["x-a".parse().unwrap()];
        let set = Ruleset::new(rules);
        let (none, method) = (HeaderMap::new(), Method::GET);
        let request = root_of_h(&method, &none);
        let told =
            Told { client: None, host: "h", scheme: "http", path_and_query: "/", request_id: None };
        let edits = set.on_request(&request).answer_edits.unwrap();
        for (status, expected) in [
            (StatusCode::OK, Some("all")),
            (StatusCode::NOT_MODIFIED, Some("all")),
            (StatusCode::BAD_GATEWAY, Some("errors")),
            (StatusCode::NOT_FOUND, None),
        ] {
            let rules = set.on_answer(&edits, &response_view(status, &none, None));
            let headers = edited_answer(&rules, status, HeaderMap::new(), &told, "");
            assert_eq!(headers.get("x-a").map(|value| value.to_str().unwrap()), expected);
        }
        let nothing = Ruleset::new(vec![Rule::named("r".to_owned())]);
        assert!(nothing.on_request(&request).answer_edits.is_none());
    }

    #[test]
    fn a_request_has_an_id_where_a_rule_that_it_matches_sets_it() {
        let mut rule = Rule::named("r".to_owned());
        rule.then.answer_set =
            vec![("x-id".parse().unwrap(), FieldValue::read("{request_id}").unwrap())];
        rule.when.methods = vec![Term::is(Method::POST)];
        rule.when.statuses = vec![Term::is(500..=599)];
        let (set, none) = (Ruleset::new(vec![rule]), HeaderMap::new());
        for (method, wants) in [(Method::GET, false), (Method::POST, true)] {
            let request = root_of_h(&method, &none);
            let effects = set.on_request(&request);
            assert_eq!((effects.wants_request_id, effects.answer_edits.is_some()), (wants, wants));
        }
    }

    #[test]
    fn vary_grows_and_the_boundary_of_parts_stays() {
        let line = |name: &'static str, value: &str| {
            (name.parse().unwrap(), FieldValue::read(value).unwrap())
        };
        let mut rule = Rule::named("r".to_owned());
        rule.then.answer_set = vec![line("vary", "Origin, accept"), line("content-type", "a/b")];
        let told =
            Told { client: None, host: "h", scheme: "http", path_and_query: "/", request_id: None };
        let parts = "multipart/byteranges; boundary=x";
        for (status, content_type, vary, expected) in [
            (200, "text/html", &[][..], ("Origin, accept", "a/b")),
            (200, "text/html", &["Accept", "Cookie"], ("Accept, Cookie, Origin", "a/b")),
            (206, "text/html", &["Origin,Accept"], ("Origin, Accept", "a/b")),
            (206, parts, &[], ("Origin, accept", parts)),
            (200, parts, &[], ("Origin, accept", "a/b")),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            for line in vary {
                headers.append(VARY, HeaderValue::from_static(line));
            }
            let status = StatusCode::from_u16(status).unwrap();
            let headers = edited_answer(&[&rule], status, headers, &told, "");
            assert_eq!(headers.get_all(VARY).into_iter().count(), 1);
            assert_eq!(headers[VARY], expected.0);
            assert_eq!(headers[CONTENT_TYPE], expected.1);
        }
    }
}

//! Edits of answers as they are delivered, by `answer_set` and `answer_remove`.
//!
//! Invariant: which rules apply is found from the request as the client sent it and from the answer
//! that it gets, never from what was stored for somebody else. Pure, no threads.

use http::HeaderMap;

use super::{RequestView, ResponseView, Rule, Ruleset, Told};

/// The places of the rules whose conditions on the request are met, of those that edit answers or
/// end the evaluation.
#[derive(Debug)]
pub(crate) struct AnswerEdits {
    places: Vec<usize>,
}

impl Ruleset {
    /// The edits of the answer to a request; `None` if no rule edits any.
    pub(crate) fn answer_edits(&self, request: &RequestView<'_>) -> Option<AnswerEdits> {
        if !self.edits_answers {
            return None;
        }
        let asked = request.asked();
        let met = |place: usize| match request.met.and_then(|met| met.get(place)) {
            Some(met) => *met,
            None => self.rules[place].when.match_request(request, asked),
        };
        let counts = |rule: &Rule| rule.then.edits_answers() || rule.last;
        let candidates = self.index.candidates(asked);
        let places = candidates.filter(|place| counts(&self.rules[*place]) && met(*place));
        let places: Vec<usize> = places.collect();
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

/// An answer's headers as these rules have them.
pub(crate) fn edited_answer(rules: &[&Rule], mut headers: HeaderMap, told: &Told<'_>) -> HeaderMap {
    let edits = rules.iter().map(|rule| (&rule.then.answer_remove, &rule.then.answer_set));
    super::edit(&mut headers, edits, |value| value.of(told));
    headers
}

#[cfg(test)]
mod tests {
    use http::{Method, StatusCode};

    use super::*;
    use crate::ruleset::{FieldValue, Term, response_view};

    #[test]
    fn the_answer_itself_decides_and_last_ends() {
        let line = |value: &str| vec![("x-a".parse().unwrap(), FieldValue::read(value).unwrap())];
        let mut rules: Vec<Rule> = (1..=4).map(|n| Rule::named(format!("r{n}"))).collect();
        rules[0].then.answer_set = line("all");
        rules[1].then.answer_set = line("errors");
        rules[1].when.statuses = vec![Term::new(false, 500..=599)];
        rules[2].last = true;
        rules[2].when.statuses = vec![Term::new(true, 404..=404)];
        rules[3].then.answer_remove = vec!["x-a".parse().unwrap()];
        let set = Ruleset::new(rules);
        let (none, method) = (HeaderMap::new(), Method::GET);
        let request = RequestView {
            host: "h",
            scheme: "http",
            path_and_query: "/",
            method: &method,
            headers: &none,
            client: None,
            met: None,
        };
        let told =
            Told { client: None, host: "h", scheme: "http", path_and_query: "/", request_id: None };
        let edits = set.answer_edits(&request).unwrap();
        for (status, expected) in [
            (StatusCode::OK, Some("all")),
            (StatusCode::NOT_MODIFIED, Some("all")),
            (StatusCode::BAD_GATEWAY, Some("errors")),
            (StatusCode::NOT_FOUND, None),
        ] {
            let rules = set.on_answer(&edits, &response_view(status, &none, None));
            let headers = edited_answer(&rules, HeaderMap::new(), &told);
            assert_eq!(headers.get("x-a").map(|value| value.to_str().unwrap()), expected);
        }
        assert!(Ruleset::new(vec![Rule::named("r".to_owned())]).answer_edits(&request).is_none());
    }
}

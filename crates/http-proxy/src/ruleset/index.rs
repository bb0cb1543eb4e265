//! Which rules may be for a request, where there are thousands of them: of those that name their
//! paths or hosts in full only those of its path or host, as in a list of redirects or of sites.
//!
//! Invariant: a rule that is left out does not match; rules come in their order. Pure, no threads.

use std::collections::HashMap;

use super::{AskedUrl, Glob, Rule, Term};

/// Places of rules, in their order, by a text that they name.
type ByText = HashMap<Box<[u8]>, Vec<usize>>;

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct RuleIndex {
    by_path: ByText,
    by_host: ByText,
    /// Of those that name neither in full.
    others: Vec<usize>,
}

impl RuleIndex {
    pub(super) fn of(rules: &[Rule], counts: impl Fn(&Rule) -> bool) -> RuleIndex {
        let mut index = RuleIndex::default();
        for (place, rule) in rules.iter().enumerate().filter(|(_, rule)| counts(rule)) {
            let (map, texts) = match (texts(&rule.when.paths), texts(&rule.when.hosts)) {
                (Some(paths), _) => (&mut index.by_path, paths),
                (None, Some(hosts)) => (&mut index.by_host, hosts),
                (None, None) => {
                    index.others.push(place);
                    continue;
                }
            };
            for text in texts {
                let places = map.entry(text.into()).or_default();
                // A rule may say the same twice.
                if places.last() != Some(&place) {
                    places.push(place);
                }
            }
        }
        index
    }

    /// Places of the rules that may match.
    pub(super) fn candidates(&self, asked: AskedUrl<'_>) -> impl Iterator<Item = usize> {
        let by_path = places(&self.by_path, asked.path);
        let by_host = places(&self.by_host, asked.host);
        InOrder([&self.others, by_path, by_host])
    }
}

fn places<'m>(map: &'m ByText, text: &str) -> &'m [usize] {
    map.get(text.as_bytes()).map(Vec::as_slice).unwrap_or_default()
}

/// The texts that patterns match, if they match no others. None without patterns; what others rule
/// out is looked at later.
fn texts(globs: &[Term<Glob>]) -> Option<Vec<&[u8]>> {
    let mut all = Vec::new();
    for glob in globs.iter().filter(|glob| !glob.negated) {
        all.extend(glob.of.literals()?);
    }
    (!all.is_empty()).then_some(all)
}

/// Lists in ascending order, with no place in two of them, as one.
struct InOrder<'a>([&'a [usize]; 3]);

impl Iterator for InOrder<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let least = self.0.iter_mut().filter(|list| !list.is_empty()).min_by_key(|list| list[0])?;
        let (first, rest) = least.split_first()?;
        *least = rest;
        Some(*first)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method, StatusCode};

    use super::*;
    use crate::ruleset::{Conditions, FieldValue, RequestEffects, RequestView, Ruleset, Segments};

    fn globs(patterns: &[&str], random: &mut fastrand::Rng) -> Vec<Term<Glob>> {
        let count = random.usize(..3);
        let one = || patterns[random.usize(..patterns.len())];
        let picked: Vec<_> = std::iter::repeat_with(one).take(count).collect();
        let term = |one: &&str| Term::read(one, |one| Glob::new(one, Segments::BySlash)).unwrap();
        picked.iter().map(term).collect()
    }

    /// A request is treated the same whether or not rules are asked that only act on responses.
    #[test]
    fn what_waits_for_a_response_changes_nothing_for_a_request() {
        let (mut random, headers) = (fastrand::Rng::with_seed(5), HeaderMap::new());
        let field = || vec![("x-a".parse().unwrap(), FieldValue::read("a").unwrap())];
        let mut acting = 0;
        for _ in 0..1000 {
            let one = |number: usize| {
                let mut rule = Rule::named(number.to_string());
                match random.u8(..9) {
                    0 => rule.then.pass = Some(random.bool()),
                    1 => rule.then.log = Some(random.bool()),
                    2 => rule.then.key_headers = vec!["x-a".parse().unwrap()],
                    3 => rule.then.answer_set = field(),
                    4 => rule.then.request_set = field(),
                    5 => rule.then.to = vec![format!("http://{}.test", random.u8(..3))],
                    6 => rule.then.respond.status = Some(StatusCode::GONE),
                    _ => rule.then.store = Some(random.bool()),
                }
                if random.bool() {
                    rule.when.paths = globs(&["/a", "/b", "!/a"], &mut random);
                }
                rule.last = random.u8(..6) == 0;
                rule
            };
            let set = Ruleset::new((0..6).map(one).collect());
            let method = Method::GET;
            for path_and_query in ["/a", "/b"] {
                let view = RequestView {
                    host: "h",
                    scheme: "http",
                    path_and_query,
                    method: &method,
                    headers: &headers,
                    client: None,
                    met: None,
                };
                let shown = |effects: &mut RequestEffects<'_>| {
                    let (mut key, edits) = (Vec::new(), effects.answer_edits.take());
                    effects.extend_key(&headers, &mut key);
                    let flags = (effects.pass, effects.log, effects.edits());
                    format!(
                        "{flags:?} {:?} {:?} {edits:?} {key:?}",
                        effects.site, effects.answering
                    )
                };
                let (mut lean, mut named) = (set.on_request(&view), set.on_request_named(&view));
                let (lean_names, named_names) = (lean.names().count(), named.names().count());
                assert_eq!(shown(&mut lean), shown(&mut named), "{path_and_query} {set:?}");
                acting += usize::from(lean_names > 0 && lean_names < named_names);
            }
        }
        assert!(acting > 100, "{acting}");
    }

    /// The same rules apply, in the same order, as if each were tried.
    #[test]
    fn nothing_that_matches_is_left_out() {
        let mut random = fastrand::Rng::with_seed(3);
        let (headers, method) = (HeaderMap::new(), Method::GET);
        let mut matched = 0;
        for _ in 0..500 {
            let one = |number: usize| Rule {
                name: number.to_string(),
                when: Conditions {
                    paths: globs(&["/a", "/b", "/{a,b}", "/a*", "!/a", "/**"], &mut random),
                    hosts: globs(&["h", "i", "{h,i}", "*", "!i"], &mut random),
                    ..Conditions::default()
                },
                then: Default::default(),
                last: false,
            };
            let rules: Vec<_> = (0..9).map(one).collect();
            let set = Ruleset::new(rules.clone());
            for (host, path) in [("h", "/a"), ("h:80", "/b?q"), ("i.", "/c"), ("j", "/ab")] {
                let view = RequestView {
                    host,
                    scheme: "http",
                    path_and_query: path,
                    method: &method,
                    headers: &headers,
                    client: None,
                    met: None,
                };
                let met = set.met(&view);
                let tried = rules.iter().map(|rule| rule.when.match_request(&view, view.asked()));
                assert!(tried.eq(met.iter().copied()), "{host}{path} {rules:?}");
                let applied: Vec<_> =
                    set.on_request_named(&view).names().map(str::to_owned).collect();
                let expected = rules.iter().zip(&met).filter(|(_, met)| **met);
                assert!(expected.map(|(rule, _)| &rule.name).eq(&applied), "{host}{path}");
                matched += applied.len();
            }
        }
        assert!(matched > 1000, "{matched}");
    }
}

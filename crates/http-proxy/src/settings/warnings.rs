//! Finds rules that may be used as they are, but hardly do what is meant. Pure, no threads.

use http::HeaderMap;

use super::Settings;
use crate::rules::ResponseDirectives;
use crate::ruleset::Rule;

/// Rules, by their places, of which something should be known.
pub(super) fn find(settings: &Settings) -> Vec<(usize, String)> {
    let rules = || settings.proxy.ruleset.rules().iter().enumerate();
    let by_hearsay =
        rules().filter_map(|(place, rule)| Some((place, client_by_hearsay(settings, rule)?)));
    let may_be_stored = |(_, rule): &(usize, &Rule)| {
        let then = &rule.then;
        then.pass != Some(true) && then.store != Some(false) && !then.respond.answers()
    };
    let stored = rules().filter(may_be_stored).flat_map(|(place, rule)| {
        let found = [stored_for_all(settings, rule), keeps_errors(settings, rule)];
        found.into_iter().flatten().map(move |problem| (place, problem))
    });
    let mut all: Vec<_> = stored.chain(by_hearsay).collect();
    all.sort_by_key(|(place, _)| *place);
    all
}

/// A condition on who asks, which anybody may say.
fn client_by_hearsay(settings: &Settings, rule: &Rule) -> Option<String> {
    let fields = &settings.proxy.forwarded;
    let is_hearsay = fields.trust_client && fields.trust_networks.is_empty();
    (is_hearsay && !rule.when.clients.is_empty()).then(|| {
        format!(
            "{}: with `forwarded.trust_client` whoever connects says what `client` it is: list the \
             proxies before this one in `forwarded.trust_networks`",
            rule.name
        )
    })
}

/// A lifetime that the origin's errors get as well.
fn keeps_errors(settings: &Settings, rule: &Rule) -> Option<String> {
    let set: HeaderMap = rule.then.response_set.iter().cloned().collect();
    let said = ResponseDirectives::of(&set, &settings.proxy.caching);
    let seconds = said.s_maxage.or(said.max_age).filter(|seconds| *seconds > 0)?;
    if rule.when.names_status() || said.no_store || said.no_cache || said.private {
        return None;
    }
    Some(format!(
        "{}: what `response_set` says is said of the origin's errors, too, which are kept for \
         {seconds} s then: add a `status` such as \"200-399\"; what a rule with a `status` cannot \
         have, such as `key_headers`, goes to another one with the same conditions",
        rule.name
    ))
}

/// Edits of what is stored, by conditions on who asked for it first.
fn stored_for_all(settings: &Settings, rule: &Rule) -> Option<String> {
    let (when, then) = (&rule.when, &rule.then);
    if then.response_set.is_empty() && then.response_remove.is_empty() {
        return None;
    }
    let key = &settings.proxy.caching.key;
    let mut headers = when.headers.iter().map(|term| &term.of.name);
    let by_header =
        headers.any(|name| !then.key_headers.contains(name) && !key.headers.contains(name));
    let is_keyed = |name: &[u8]| {
        let mut keyed = then.key_cookies.iter().chain(&key.cookies);
        keyed.any(|cookie| cookie.as_bytes() == name)
    };
    let by_cookie = when.cookies.iter().any(|term| {
        let names = term.of.name.literals();
        !names.is_some_and(|mut names| names.all(is_keyed))
    });
    let keyed = |keys: &str| format!("use `answer_set` and `answer_remove`, or add it by `{keys}`");
    let (by, instead) = match (when.clients.is_empty(), by_header, by_cookie) {
        (true, false, false) => return None,
        (false, ..) => ("client", "use `answer_set` and `answer_remove`".to_owned()),
        (_, true, _) => ("header", keyed("key_headers")),
        (_, _, true) => ("cookie", keyed("key_cookies")),
    };
    Some(format!(
        "{}: what `response_set` and `response_remove` do is stored, and given to all who ask for \
         the URL, whatever their `{by}`: {instead}",
        rule.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_that_errors_get_too_is_named() {
        for (rule, warned) in [
            ("response_set = [\"Cache-Control: public, max-age=60\"]", true),
            ("status = \"!404\"\nresponse_set = [\"Cache-Control: s-maxage=60\"]", true),
            ("response_set = [\"X-A: b\", \"CDN-Cache-Control: max-age=60\"]", true),
            ("status = 200\nresponse_set = [\"Cache-Control: max-age=60\"]", false),
            ("store = false\nresponse_set = [\"Cache-Control: max-age=60\"]", false),
            ("respond = 404\nresponse_set = [\"Cache-Control: max-age=60\"]", false),
            ("response_set = [\"Cache-Control: max-age=0\"]", false),
            ("response_set = [\"Cache-Control: private, max-age=60\"]", false),
            ("response_set = [\"X-A: max-age=60\"]", false),
            ("answer_set = [\"Cache-Control: max-age=60\"]", false),
        ] {
            let file = format!("[[rule]]\npath = \"/api/**\"\n{rule}\n");
            let warnings = Settings::parse(&file).unwrap().warnings();
            assert_eq!(warnings.len(), usize::from(warned), "{rule}");
            assert!(warnings.iter().all(|warning| warning.problem.contains("60 s")), "{rule}");
        }
    }

    #[test]
    fn a_client_that_anybody_may_say_to_be_is_named() {
        for (forwarded, rule, warned) in [
            ("trust_client = true", "client = \"10.0.0.0/8\"\npass = true", true),
            ("trust_client = true", "client = \"10.0.0.0/8\"\nrespond = 403", true),
            ("trust_client = true", "path = \"/a\"\npass = true", false),
            ("trust_client = false", "client = \"10.0.0.0/8\"\npass = true", false),
            (
                "trust_client = true\ntrust_networks = [\"10.1.0.0/16\"]",
                "client = \"10.0.0.0/8\"\npass = true",
                false,
            ),
        ] {
            let file = format!("[forwarded]\n{forwarded}\n[[rule]]\n{rule}\n");
            let warnings = Settings::parse(&file).unwrap().warnings();
            assert_eq!(warnings.len(), usize::from(warned), "{file}");
            assert!(warnings.iter().all(|one| one.problem.contains("trust_networks")), "{file}");
        }
    }

    #[test]
    fn an_edit_for_one_that_is_stored_for_all_is_named_with_its_line() {
        for (rule, warned) in [
            ("header = \"Origin: *\"\nresponse_set = [\"X-A: b\"]", Some("key_headers")),
            ("header = \"!Origin\"\nresponse_remove = [\"X-A\"]", Some("key_headers")),
            ("cookie = \"lang\"\nresponse_set = [\"X-A: b\"]", Some("key_cookies")),
            (
                "cookie = \"l*\"\nkey_cookies = [\"l*\"]\nresponse_set = [\"X-A: b\"]",
                Some("key_cookies"),
            ),
            ("cookie = \"lang\"\nkey_cookies = [\"lang\"]\nresponse_set = [\"X-A: b\"]", None),
            ("header = \"Origin\"\nkey_headers = [\"origin\"]\nresponse_set = [\"X-A: b\"]", None),
            ("header = \"X-Key\"\nresponse_set = [\"X-A: b\"]", None),
            ("header = \"Origin\"\nresponse_set = [\"X-A: b\"]\npass = true", None),
            ("header = \"Origin\"\nresponse_set = [\"X-A: b\"]\nrespond = 403", None),
            ("header = \"Origin\"\nanswer_set = [\"X-A: b\"]", None),
            ("client = \"::1\"\nresponse_set = [\"X-A: b\"]", Some("answer_set")),
            ("path = \"/a\"\nresponse_set = [\"X-A: b\"]", None),
            ("header = \"Origin\"\nttl = \"1m\"", None),
        ] {
            let file =
                format!("[key]\nheaders = [\"X-Key\"]\n[[rule]]\npass = true\n[[rule]]\n{rule}\n");
            let warnings = Settings::parse(&file).unwrap().warnings();
            assert_eq!(warnings.len(), usize::from(warned.is_some()), "{rule}");
            if let (Some(words), Some(warning)) = (warned, warnings.first()) {
                assert!(warning.line == 5 && warning.problem.contains(words), "{warning}");
            }
        }
    }
}

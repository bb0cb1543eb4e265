//! Checks the flags of `damelo proxy` and `damelo forward` against the keys that they set: a flag
//! consists of words of its key, so that either can be guessed from the other. The test finds a
//! flag's key by passing the flag. No threads.

use clap::{Arg, Args, Command, FromArgMatches};
use damelo_http_proxy::Settings;

use super::forward::Forward;
use super::reverse::Proxy;
use crate::failure::Failure;

/// Flags that set no key: they name a source of settings, or an action other than serving.
const WITHOUT_A_KEY: [&str; 4] = ["config", "set", "json", "hash-password"];

/// Flags whose words are not all in their key.
const EXCEPTIONS: [(&str, &str); 1] = [
    // Sets the part of the value of `upstream.check` that follows its word `every`.
    ("check-interval", "upstream.check"),
];

/// A value other than the default for the value name that the help shows.
fn value_for(name: &str) -> &'static str {
    match name {
        "ADDR" => "127.0.0.1:1",
        "URL" => "http://a.example",
        "PATH[:SIZE],..." => "c:64MiB",
        "SIZE" => "1MiB",
        "COUNT" => "999",
        "FILE" => "/f",
        "LISTENER" => "unix:/l",
        "CHAIN,KEY" => "a,b",
        "NETWORK" => "10.0.0.0/8",
        "TIME" => "999s",
        "HOW" => "least-loaded",
        "PATH" => "/p",
        "RULE" => "allow",
        other => panic!("no value for {other}: add one here"),
    }
}

/// The argument as written on a command line.
fn written(arg: &Arg) -> String {
    let long = arg.get_long().expect("a flag");
    match arg.get_value_names().filter(|_| arg.get_action().takes_values()) {
        Some(names) => format!("--{long}={}", value_for(&names[0])),
        None => format!("--{long}"),
    }
}

/// The keys whose values differ.
fn changed(before: &Settings, after: &Settings) -> Vec<String> {
    let (before, after) = (before.show(), after.show());
    let differing = after.iter().zip(&before).filter(|(after, before)| after != before);
    differing.filter_map(|(line, _)| Some(line.split_once(" = ")?.0.to_owned())).collect()
}

/// Whether a flag consists of words of a key. A leading `no-` is ignored.
fn is_made_of(flag: &str, key: &str) -> bool {
    let flag = flag.strip_prefix("no-").unwrap_or(flag);
    let words: Vec<&str> = key.split(['.', '_']).collect();
    // A flag that adds one item to a list uses the singular of the key's plural.
    flag.split('-')
        .all(|part| words.iter().any(|w| *w == part || w.strip_suffix('s') == Some(part)))
}

/// Checks each flag of a serving command against the keys that it sets.
fn check<T: Args + FromArgMatches>(
    always: &[&str],
    merged: impl Fn(&T) -> Result<Settings, Failure>,
) {
    let settings = |more: &[String]| {
        let words = always.iter().map(|word| (*word).to_owned()).chain(more.iter().cloned());
        let matches =
            T::augment_args(Command::new("serve").no_binary_name(true).args_override_self(true));
        let matches = matches.get_matches_from(words);
        let args = T::from_arg_matches(&matches).expect("arguments");
        merged(&args).unwrap_or_else(|failure| panic!("{more:?}: {failure:?}"))
    };
    for arg in T::augment_args(Command::new("serve")).get_arguments() {
        let flag = arg.get_long().expect("a flag");
        if WITHOUT_A_KEY.contains(&flag) {
            continue;
        }
        let given =
            if flag == "check-interval" { vec!["--check=/".to_owned()] } else { Vec::new() };
        let with: Vec<String> = given.iter().cloned().chain([written(arg)]).collect();
        let keys = changed(&settings(&given), &settings(&with));
        let [key] = &keys[..] else { panic!("--{flag} sets {keys:?}") };
        if EXCEPTIONS.iter().any(|(exception, of)| *exception == flag && of == key) {
            continue;
        }
        assert!(is_made_of(flag, key), "--{flag} sets `{key}`: make it of the words of its key");
    }
}

#[test]
fn flags_are_made_of_the_words_of_their_keys() {
    check::<Proxy>(&["--to=http://b.example"], Proxy::merged);
    check::<Forward>(&[], Forward::merged);
}

#[test]
fn words_of_a_key_in_any_order_make_a_flag() {
    for (flag, key, made) in [
        ("connect-timeout", "timeouts.connect", true),
        ("no-http2", "upstream.http2", true),
        ("also-to", "upstream.more_origins", false),
        ("header-timeout", "timeouts.origin_idle", false),
    ] {
        assert_eq!(is_made_of(flag, key), made, "{flag}");
    }
}

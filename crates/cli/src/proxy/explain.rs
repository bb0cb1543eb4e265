//! `damelo explain`: describes a running proxy's state of one URL.

use std::fmt::Write as _;
use std::net::IpAddr;

use clap::Args;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::names::url_text;
use crate::output::Out;
use crate::proxy::admin::AdminArgs;

const AFTER_HELP: &str = "\
Examples:
  damelo explain http://example.org/news/1 --admin 127.0.0.1:9100
  damelo explain https://example.org:8443/news/1 --admin 9100 --header 'Cookie: lang=de' --json

Tells the key, the variants, the group and where they lie, the arithmetic of age and freshness, the
purges that cover it, the rules that matched, and why it was lately not stored. Write the URL as
clients do, with scheme, host and port: http and https, and two ports, are different objects. A path
alone is enough only where the origin is told neither of scheme nor of host
(`forwarded.x_forwarded = false`, no `preserve_host`).";

/// Ask a running proxy what it knows of a URL.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Explain {
    /// The URL, as clients write it
    #[arg(value_name = "URL")]
    url: String,
    #[command(flatten)]
    admin: AdminArgs,
    /// A header of the request, where rules look at headers
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<String>,
    /// The client's address, where rules look at clients
    #[arg(long, value_name = "ADDR")]
    client: Option<IpAddr>,
    /// Print all of it as one JSON object
    #[arg(long)]
    json: bool,
}

fn header(text: &str) -> Result<String, &'static str> {
    let is_header = text.split_once(':').is_some_and(|(name, _)| !name.trim().is_empty());
    if is_header {
        Ok(text.to_owned())
    } else {
        Err("write NAME: VALUE, such as 'Cookie: lang=de'")
    }
}

/// Queries the proxy and prints its answer. That nothing is stored is an answer, too.
pub(crate) fn run(args: &Explain) -> Result<(), Failure> {
    let order =
        json!({ "url": args.url, "headers": args.header, "client": args.client }).to_string();
    let known = args.admin.ask("/explain", Some(&order))?;
    let mut out = Out::new();
    if args.json {
        out.json(&known)?;
    } else {
        out.bytes(told(&known).as_bytes())?;
    }
    out.finish()
}

/// The proxy's answer in words.
fn told(known: &Value) -> String {
    let mut text = String::new();
    let mut say = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    say(format!("url      {}", url_text(word(&known["url"]))));
    say(format!("key      {}", word(&known["key"])));
    let rules = list(&known["rules"]);
    if !rules.is_empty() {
        say(format!("rules    {}", rules.join("; ")));
    }
    if let Value::Object(answer) = &known["responds"] {
        let to = answer["location"].as_str().map_or(String::new(), |to| format!(", to {to}"));
        say(format!("a rule answers it: {}{to}", answer["status"]));
    }
    if let Some(path) = known["origin_path"].as_str() {
        say(format!("asked    the origin is asked for {}", url_text(path)));
    }
    if known["passes"] == true {
        say("a rule sends it past the cache".to_owned());
    }
    if known["purges_known"] == false {
        say("the store is still recovering: nothing is served from it yet".to_owned());
    }
    if let Value::Object(vary) = &known["vary"] {
        let mut by: Vec<String> = list(&vary["headers"]).into_iter().map(str::to_owned).collect();
        by.extend(list(&vary["cookies"]).into_iter().map(|name| format!("the cookie {name}")));
        say(format!("varies   by {}; {} variants listed", by.join(", "), vary["variants"]));
    }
    let stored = known["stored"].as_array().map(Vec::as_slice).unwrap_or_default();
    if stored.is_empty() {
        say("nothing is stored for it".to_owned());
    }
    if let Value::Object(slices) = &known["slices"] {
        let (count, bytes) = (&slices["stored"], &slices["slice_bytes"]);
        say(format!("slices   {count} stored, of {bytes} bytes; the first of them:"));
    }
    for one in stored {
        say(String::new());
        describe(one, &mut say);
    }
    for purge in known["purges"].as_array().map(Vec::as_slice).unwrap_or_default() {
        say(format!("purged   {} s ago, hard, by {}", purge["seconds_ago"], word(&purge["by"])));
    }
    let refusals = known["not_stored"].as_array().map(Vec::as_slice).unwrap_or_default();
    for refusal in refusals {
        let (ago, why) = (&refusal["seconds_ago"], word(&refusal["reason"]));
        let by = refusal["rule"].as_str().map_or(String::new(), |rule| format!(", {rule}"));
        say(format!("not stored {ago} s ago: {why}{by}"));
    }
    text
}

fn describe(one: &Value, say: &mut impl FnMut(String)) {
    let fresh = &one["freshness"];
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    say(format!(
        "stored   status {}, {} bytes{}, {}, group id:{}",
        one["status"],
        one["body_bytes"],
        if one["body_apart"] == true { " apart from its headers" } else { "" },
        if one["lies"] == "disk" { "on disk" } else { "in memory" },
        word(&one["group"]),
    ));
    say(format!("  key    {}", word(&one["key"])));
    say(format!(
        "  age    {} s = {} s when it came + {} s here",
        number(&fresh["age_s"]),
        number(&fresh["age_when_it_came_s"]),
        number(&fresh["time_here_s"])
    ));
    let by_date = fresh["date"].as_f64().map(|date| number(&fresh["response_time"]) - date);
    if let Some(age) = by_date.filter(|age| *age >= 1.0) {
        say(format!("         made, by its Date, {age:.0} s before it came"));
    }
    let left = number(&fresh["fresh_for_s"]);
    let state =
        if left > 0.0 { format!("fresh for {left} s") } else { format!("stale for {} s", -left) };
    let (lifetime, age) = (number(&fresh["lifetime_s"]), number(&fresh["age_s"]));
    let from = fresh["lifetime_from"].as_str().map_or(String::new(), |from| format!(" ({from})"));
    say(format!("  fresh  lifetime {lifetime} s{from} - age {age} s: {state}"));
    if fresh["validate_always"] == true {
        say("  no-cache: validated before every use".to_owned());
    }
    if fresh["never_stale"] == true {
        say("  never served stale".to_owned());
    }
    let rules = list(&one["rules"]);
    if !rules.is_empty() {
        say(format!("  rules  {}", rules.join("; ")));
    }
    describe_purges(one, say);
    if let Value::Object(group) = &one["group_state"] {
        say(format!(
            "  group  {}, {} objects created, {} pages known, {} of {} prefetched objects used",
            word(&group["hint"]),
            group["objects_created"],
            group["pages_known"],
            group["prefetch_hits"],
            group["prefetched"]
        ));
    }
}

fn describe_purges(one: &Value, say: &mut impl FnMut(String)) {
    say(format!(
        "  purges {}; fetched at generation {}, {} tags",
        word(&one["purged"]),
        one["generation"],
        one["tags"]
    ));
    for purge in one["purges"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let applies = if purge["applies"] == true { "covers it" } else { "was before it" };
        let mut line = format!("    a purge of {} {applies}:", word(&purge["by"]));
        for (name, kind) in [("hard_generation", "hard"), ("soft_generation", "soft")] {
            if purge[name].as_f64().is_some_and(|generation| generation > 0.0) {
                // Writing to a String cannot fail.
                let _ = write!(line, " {kind} at {}", purge[name]);
            }
        }
        say(line);
    }
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

fn list(value: &Value) -> Vec<&str> {
    value.as_array().map(|list| list.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_and_purged_response_is_told() {
        let known = json!({
            "url": "http://h/\u{1b}a", "key": "http://h/a", "passes": false, "rules": ["pictures"],
            "responds": { "status": 301, "location": "https://h/a" }, "origin_path": "/v2/\u{1b}a",
            "vary": { "headers": ["accept"], "cookies": ["lang"], "variants": 1 },
            "stored": [{
                "key": "http://h/a\\x00", "status": 200, "body_bytes": 5, "lies": "disk",
                "group": "7", "purged": "gone by a purge", "generation": 3, "tags": 1,
                "freshness": { "age_s": 15.25, "age_when_it_came_s": 5.0, "time_here_s": 10.25,
                               "response_time": 105.75, "date": 100,
                               "lifetime_s": 12.0, "lifetime_from": "max-age",
                               "fresh_for_s": -3.25 },
                "rules": ["pictures", "long ones"],
                "purges": [{ "by": "a tag", "hard_generation": 4, "soft_generation": 0,
                             "applies": true }],
            }],
            "purges": [{ "by": "its URL", "seconds_ago": 9 }],
            "not_stored": [{ "seconds_ago": 2, "reason": "private" },
                           { "seconds_ago": 3, "reason": "rule", "rule": "none of these" }],
        });
        let text = told(&known);
        for part in [
            r"url      http://h/\x1ba",
            "rules    pictures",
            "a rule answers it: 301, to https://h/a",
            r"the origin is asked for /v2/\x1ba",
            "varies   by accept, the cookie lang; 1 variants listed",
            "on disk, group id:7",
            "15.25 s = 5 s when it came + 10.25 s here",
            "made, by its Date, 6 s before it came",
            "lifetime 12 s (max-age) - age 15.25 s: stale for 3.25 s",
            "  rules  pictures; long ones",
            "a purge of a tag covers it: hard at 4",
            "purged   9 s ago, hard, by its URL",
            "not stored 2 s ago: private",
            "not stored 3 s ago: rule, none of these",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(told(&json!({})).contains("nothing is stored"));
    }
}

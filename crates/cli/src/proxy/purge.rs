//! `damelo purge`: drops a URL, a tag, a group, a prefix or everything, in time independent of the
//! number of objects. Works on a store that no process has open, or asks a running proxy.

use std::ffi::OsString;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser as _};
use damelo::ByteSize;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::names::{GroupName, Volumes, key_bytes, key_text};
use crate::output::Out;
use crate::proxy::admin::AdminArgs;
use crate::store::opening::{self, StoreArgs};

const AFTER_HELP: &str = "\
Examples:
  damelo purge --admin 127.0.0.1:9100 --url http://example.org/news/1
  damelo purge --admin 127.0.0.1:9100 --tag frontpage --tag news --soft
  damelo purge --admin 127.0.0.1:9100 --host example.org
  damelo purge cache.damelo --group example.org
  damelo purge cache.damelo --prefix http://example.org/news/
  damelo purge cache.damelo --all

With --admin a running proxy is asked: --url takes a URL with all its variants, --tag a name from
Surrogate-Key, Cache-Tag, xkey or Cache-Groups, --soft makes stale what it would otherwise remove.
With PATH the store must not be open anywhere. What was purged stays purged after a crash.";

/// Drop a URL, a tag, a group, all keys with a prefix, or everything.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
#[command(group = clap::ArgGroup::new("where").required(true).args(["volumes", "admin"]))]
// Without the default of the other commands: it would be a guess at what to drop from.
#[command(mut_arg("admin", |arg| {
    arg.help("Admin address of a running proxy, as printed when it started")
}))]
pub(crate) struct Purge {
    /// A store that nobody has open (several volumes: PATH,PATH)
    #[arg(value_name = "PATH", value_parser = OsStringValueParser::new().try_map(no_url))]
    volumes: Option<Volumes>,
    /// Open the store though volumes are missing, all but the first; the purge gives up what they
    /// hold
    #[arg(long, requires = "volumes")]
    without_missing: bool,
    #[command(flatten)]
    admin: AdminArgs,
    /// This URL, with all its variants: scheme, host and port as clients write them
    #[arg(long, value_name = "URL", group = "what")]
    url: Vec<String>,
    /// Everything with this tag
    #[arg(long, value_name = "TAG", group = "what")]
    tag: Vec<String>,
    /// Everything of this host; without a port, on every port
    #[arg(long, value_name = "HOST[:PORT]", group = "what")]
    host: Vec<String>,
    /// Every object of this group: its name, or id:NUMBER; of a proxy also page:URL, host:HOST,
    /// path:HOST/SEGMENTS and header:HOST/VALUE
    #[arg(long, value_name = "GROUP", group = "what")]
    group: Option<String>,
    /// Every object whose key begins so
    #[arg(long, value_name = "PREFIX", group = "what")]
    prefix: Option<OsString>,
    /// Every object
    #[arg(long, group = "what")]
    all: bool,
    /// Make it stale rather than remove it: the next request validates it
    #[arg(long)]
    soft: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Parses a store's path; refuses URLs. `explain` takes a URL in this position, so users may write
/// one here by mistake.
fn no_url(text: OsString) -> Result<Volumes, String> {
    match text.to_str().filter(|text| text.contains("://")) {
        Some(url) => Err(format!("this is the place of a store's path: write --url {url}")),
        None => Ok(Volumes::from(text)),
    }
}

/// Carries out the purge and prints its result.
pub(crate) fn run(args: &Purge) -> Result<(), Failure> {
    match &args.volumes {
        Some(volumes) => purge_store(args, volumes),
        None => purge_proxy(args),
    }
}

fn purge_proxy(args: &Purge) -> Result<(), Failure> {
    let mut order = Map::new();
    for (name, texts) in [("url", &args.url), ("tag", &args.tag), ("host", &args.host)] {
        if !texts.is_empty() {
            order.insert(name.to_owned(), json!(texts));
        }
    }
    if let Some(group) = &args.group {
        order.insert("group".to_owned(), json!(group));
    }
    if let Some(prefix) = &args.prefix {
        // A URL is text; with other bytes in their place another prefix would be purged.
        let text = prefix.to_str().ok_or_else(|| {
            let shown = key_text(key_bytes(prefix));
            Failure::Usage(format!("--prefix: `{shown}` is not UTF-8: write its bytes as %XX"))
        })?;
        order.insert("prefix".to_owned(), json!(text));
    }
    if args.all {
        order.insert("all".to_owned(), json!(true));
    }
    order.insert("soft".to_owned(), json!(args.soft));
    let order = Value::Object(order).to_string();
    let done = args.admin.ask("/purge", Some(&order))?;
    let mut out = Out::new();
    if args.json {
        out.json(&done)?;
    } else {
        out.line(format_args!("{}", said(&done)))?;
    }
    out.finish()
}

/// The proxy's answer in words.
fn said(done: &Value) -> String {
    let mut parts = Vec::new();
    if let (Some(urls), Some(removed)) = (done["urls"].as_u64(), done["removed"].as_u64()) {
        let responses = counted(removed, "response");
        parts.push(format!("{responses} of {} removed", counted(urls, "URL")));
    }
    if let (Some(marks), Some(generation)) = (done["marks"].as_u64(), done["generation"].as_u64()) {
        let what = if done["soft"] == true { "stale" } else { "gone" };
        let (set, covers) =
            (counted(marks, "mark"), if marks == 1 { "it covers" } else { "they cover" });
        parts.push(format!(
            "{set} set (generation {generation}): what {covers} is {what} from now on"
        ));
    }
    parts.join("; ")
}

/// `1 mark`, `2 marks`.
fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

fn purge_store(args: &Purge, volumes: &Volumes) -> Result<(), Failure> {
    let asks = [&args.url, &args.tag, &args.host].iter().any(|list| !list.is_empty());
    if asks || args.soft {
        let text = "--url, --tag, --host and --soft ask a running proxy: say where with --admin";
        return Err(Failure::Usage(text.to_owned()));
    }
    let chosen = usize::from(args.group.is_some()) + usize::from(args.prefix.is_some());
    if chosen + usize::from(args.all) != 1 {
        let text = "a store takes one of --group, --prefix and --all at a time";
        return Err(Failure::Usage(text.to_owned()));
    }
    if args.prefix.as_ref().is_some_and(|prefix| prefix.is_empty()) {
        let text = "--prefix: an empty prefix begins every key; say --all to drop everything";
        return Err(Failure::Usage(text.to_owned()));
    }
    let group = args.group.as_ref().map(|name| name.parse::<GroupName>()).transpose();
    let group = group.map_err(|_| Failure::Usage("--group: write a name or id:NUMBER".into()))?;
    let store = opening::open(&StoreArgs {
        volumes: volumes.clone(),
        memory: ByteSize::new(64 << 20),
        without_missing: args.without_missing,
    })?;
    let what = if let Some(group) = group {
        store.purge_group(group.0)?;
        format!("group id:{}", group.0)
    } else if let Some(prefix) = &args.prefix {
        store.purge_prefix(key_bytes(prefix))?;
        format!("prefix {}", key_text(key_bytes(prefix)))
    } else {
        store.purge_all()?;
        "everything".to_owned()
    };
    store.close()?;
    let mut out = Out::new();
    if args.json {
        out.json(&json!({ "purged": what }))?;
    } else {
        out.line(format_args!("purged {what}"))?;
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purge_has_no_proxy_by_default() {
        let help = Purge::augment_args(clap::Command::new("purge")).render_long_help().to_string();
        assert!(help.contains("Admin address") && !help.contains("9100]"), "{help}");
    }

    #[test]
    fn answers_are_told_in_words() {
        let url = json!({ "soft": false, "urls": 1, "removed": 3 });
        assert_eq!(said(&url), "3 responses of 1 URL removed");
        let one = json!({ "soft": false, "marks": 1, "generation": 9 });
        assert_eq!(said(&one), "1 mark set (generation 9): what it covers is gone from now on");
        let tag = json!({ "soft": true, "marks": 2, "generation": 9 });
        assert!(said(&tag).contains("2 marks set (generation 9)") && said(&tag).contains("stale"));
    }
}

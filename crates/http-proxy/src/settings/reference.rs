//! The reference of all keys: as Markdown, of which the middle of `docs/configuration.md` is made,
//! and as JSON. Pure, no threads.

use serde_json::json;

use super::Settings;
use super::keys::{KEYS, Key};
use super::rule_keys::RULE_KEYS;

/// The reference of all keys as Markdown tables: the middle of `docs/configuration.md`.
pub fn reference() -> String {
    let defaults = Settings::default();
    let mut text = String::from(
        "| key | written as | default | reload | what it does |\n|---|---|---|---|---|\n",
    );
    for key in KEYS {
        let default = match key.name {
            "workers" => "one for each core".to_owned(),
            "to" => "none: must be said".to_owned(),
            "from" => {
                let forward = (key.show)(&Settings::for_forward());
                format!("`{}`; for `damelo forward` `{forward}`", (key.show)(&defaults))
            }
            "cache" => (key.show)(&defaults),
            _ => format!("`{}`", (key.show)(&defaults)),
        };
        let live = if key.live { "yes" } else { "no" };
        text.push_str(&format!(
            "| `{}` | {} | {default} | {live} | {} |\n",
            key.name, key.written, key.help
        ));
    }
    text.push_str(
        "\n### Rules\n\n| key of `[[rule]]` | written as | what it does |\n|---|---|---|\n",
    );
    for key in RULE_KEYS {
        text.push_str(&format!("| `{}` | {} | {} |\n", key.name, key.written, key.help));
    }
    text
}

/// The same as JSON: `keys`, and `rule_keys`, those of `[[rule]]`.
pub fn reference_json() -> serde_json::Value {
    let defaults = Settings::default().to_json();
    let key = |key: &Key| {
        // As in the table: no default is shown where it depends on the machine, or there is none.
        let default = match key.name {
            "workers" | "to" => serde_json::Value::Null,
            name => defaults[name].clone(),
        };
        json!({
            "key": key.name,
            "written": key.written,
            "default": default,
            "reload": key.live,
            "help": key.help,
        })
    };
    let rule_keys = RULE_KEYS
        .iter()
        .map(|key| json!({ "key": key.name, "written": key.written, "help": key.help }));
    json!({
        "keys": KEYS.iter().map(key).collect::<Vec<_>>(),
        "rule_keys": rule_keys.collect::<Vec<_>>(),
    })
}

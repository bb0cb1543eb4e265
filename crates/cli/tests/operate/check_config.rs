//! `damelo check-config`: what it shows of a file that is good, and what it says of one that is
//! not.

use serde_json::Value;

use super::{Bed, FILE};

/// A file that is good so far, for `damelo proxy`.
const TO: &str = "to = \"http://127.0.0.1:8000\"\n";

#[test]
fn check_config_names_every_mistake_with_its_line() {
    let bed = Bed::new();
    bed.write("good.toml", FILE);
    assert!(bed.says(0, &["check-config", "good.toml"]).contains("is good"));
    let shown = bed.says(0, &["check-config", "good.toml", "--show"]);
    assert!(shown.contains("memory = \"16MiB\""), "{shown}");
    let rules = "[forward]\nrules = [\"deny port=25\", \"allow\"]\n";
    bed.write("forward.toml", &format!("{FILE}{rules}"));
    assert!(bed.says(0, &["check-config", "forward.toml"]).contains("forward.rules: 2"));
    let shown = bed.says(0, &["check-config", "forward.toml", "--show"]);
    assert!(shown.contains("forward.rules = [\"deny port=25\", \"allow\"]\n"), "{shown}");
    bed.write("shown.toml", &shown);
    assert_eq!(
        bed.says(0, &["check-config", "shown.toml", "--show"]).replace("shown", "forward"),
        shown
    );
    bed.write("bad.toml", "to = \"demo\"\nmemry = \"1GiB\"\n[timeouts]\ndrain = 3\n");
    let text = bed.says(2, &["check-config", "bad.toml"]);
    assert!(text.contains("line 2: ") && text.contains("`memory`"), "{text}");
    assert!(text.contains("line 4: ") && text.contains("30s"), "{text}");
    bed.write("tls.toml", "to = \"demo\"\n[tls]\ncertificates = [\"c.pem,k.pem\"]\n");
    let text = bed.says(2, &["check-config", "tls.toml"]);
    assert!(text.contains("line 3: cannot use `c.pem` for TLS"), "{text}");
    assert!(bed.says(4, &["check-config", "none.toml"]).contains("none.toml"));
    assert!(bed.says(2, &["proxy", "--config", "bad.toml"]).contains("line 2"));
    assert!(bed.says(0, &["check-config", "--keys"]).contains("timeouts.drain"));
    let rule = "[[rule]]\ncookie = \"lang\"\nresponse_set = [\"X-A: b\"]\n";
    bed.write("warned.toml", &format!("{FILE}{rule}"));
    let text = bed.says(0, &["check-config", "warned.toml"]);
    assert!(text.contains("is good") && text.contains("warning: line "), "{text}");
    let shown: Value =
        serde_json::from_str(&bed.says(0, &["check-config", "warned.toml", "--json"])).unwrap();
    assert_eq!((&shown["good"], shown["warnings"].as_array().unwrap().len()), (&true.into(), 1));
}

#[test]
fn check_config_shows_what_the_command_of_the_file_uses() {
    let bed = Bed::new();
    bed.write("f.toml", "memory = \"16MiB\"\n[forward]\nrules = [\"allow port=80 to=.a.test\"]\n");
    let shown = bed.says(0, &["check-config", "f.toml", "--show"]);
    for line in [
        "# f.toml is good for `damelo forward`; rules: 0; forward.rules: 1",
        "from = \"127.0.0.1:3128\"",
        "# to = what the client says",
        "preserve_host = true",
        "forwarded.x_forwarded = false",
        "caching.surrogate = false",
        "caching.set_cookie = \"strip\"",
        "forward.rules = [\"allow port=80 to=.a.test\"]",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
    bed.write("again.toml", &shown);
    assert!(
        bed.says(0, &["check-config", "again.toml", "--show"])
            .lines()
            .skip(1)
            .eq(shown.lines().skip(1))
    );
    let said = bed.says(0, &["check-config", "f.toml", "--show", "--keys", "--json"]);
    let json: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(json["command"], "forward");
    assert_eq!(json["settings"]["from"], "127.0.0.1:3128");
    assert_eq!(json["settings"]["forward.rules"][0], "allow port=80 to=.a.test");
    assert_eq!(json["keys"][0]["key"], "from");
    assert!(json["rule_keys"].as_array().unwrap().iter().any(|key| key["key"] == "key_cookies"));
    // Nothing in a file need tell that it is one for `damelo forward`.
    bed.write("plain.toml", "memory = \"16MiB\"\n");
    assert!(bed.says(2, &["check-config", "plain.toml"]).contains("--forward"));
    let shown = bed.says(0, &["check-config", "plain.toml", "--forward", "--show"]);
    assert!(shown.contains("good for `damelo forward`") && shown.contains(":3128"), "{shown}");
    let output = bed.run(&["check-config", "plain.toml", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &json["good"]), (Some(2), &false.into()));
    assert_eq!(json["mistakes"][0]["line"], 1);
    // The values are those of a file.
    assert!(bed.says(2, &["check-config", "--keys", "--show"]).contains("<FILE>"));
    let keys = bed.says(0, &["check-config", "--keys", "--json"]);
    assert!(serde_json::from_str::<Value>(&keys).unwrap()["good"].is_null());
}

#[test]
fn check_config_refuses_what_could_not_run() {
    let bed = Bed::new();
    std::fs::create_dir(bed.0.path().join("folder")).unwrap();
    for (text, line, words) in [
        ("to = \"http://127.0.0.1:80800\"\n", 1, "its port"),
        ("workers = 1\n", 1, "`to`"),
        ("memory = \"1KiB\"\n", 2, "`memory`"),
        ("cache = \"c.damelo:1MiB\"\n", 2, "`cache`"),
        ("cache = \"none/c.damelo:64MiB\"\n", 2, "no directory `none`"),
        ("listen = [\"unix:none/socket\"]\n", 2, "no directory `none`"),
        ("[log]\nto = \"none/log\"\n", 3, "no directory `none`"),
        ("[log]\nto = \"folder\"\n", 3, "`folder` is a directory"),
        ("cache = \"folder\"\n", 2, "`folder` is a directory"),
        ("cache = \"none/:64MiB\"\n", 2, "`none/` names a directory"),
        ("[log]\nto = \"none/\"\n", 3, "`none/` names a directory"),
        ("[admin]\nfrom = \"127.0.0.1:8080\"\n", 3, "`from` listens"),
        ("[timeouts]\nconnect = \"0s\"\n", 3, "above zero"),
        ("[timeouts]\ndrain = \"61s\"\n", 3, "`timeouts.stop`"),
        ("[upstream]\ncheck = \"/ every 0s\"\n", 3, "above zero"),
        ("[caching]\nslice_bytes = \"17MiB\"\n", 3, "16MiB"),
        ("[caching]\nslice_bytes = 1\n", 3, "4KiB"),
        ("workers = 100000\n", 2, "1024"),
        ("name = \"a b\"\n", 2, "`a b`"),
        ("[limits]\nheader_lines_max = 99999999999\n", 3, "10000"),
        ("[limits]\nuri_bytes_max = 0\n", 3, "1KiB"),
        ("[limits]\nuri_bytes_max = \"64KiB\"\n", 3, "65534B"),
        ("[limits]\nheader_bytes_max = \"4KiB\"\n", 3, "8KiB"),
        (
            "[limits]\nheader_bytes_max = \"32KiB\"\nuri_bytes_max = \"33KiB\"\n",
            4,
            "`limits.uri_bytes_max`, 33KiB, is larger than `limits.header_bytes_max`, 32KiB",
        ),
        // The default of the other one is too large for it.
        ("[limits]\nheader_bytes_max = \"16KiB\"\n", 3, "`limits.uri_bytes_max`, 32KiB"),
        ("[[rules]]\npath = \"/x\"\n", 2, "[[rule]]"),
        ("[[rule]]\nkey_cookies = [\"lang=de\"]\n", 3, "no name of a cookie"),
        ("[[rule]]\npath = \"admin/**\"\npass = true\n", 3, "begin with `/`"),
        ("[caching]\nstale_if_error = \"500ms\"\n", 3, "whole seconds"),
        ("[caching]\nstale_if_error = 60\n", 3, "whole seconds"),
        ("[timeouts]\ntunnel_idle = \"4000d\"\n", 3, "3650d"),
    ] {
        let file = if line == 1 { text.to_owned() } else { format!("{TO}{text}") };
        bed.write("bad.toml", &file);
        let said = bed.says(2, &["check-config", "bad.toml"]);
        assert!(said.contains(&format!("line {line}: ")) && said.contains(words), "{text}: {said}");
    }
}

#[test]
fn check_config_refuses_what_the_command_of_the_file_could_not_run() {
    let bed = Bed::new();
    for (text, words) in [
        ("workers = 1\n[forward]\nusers = \"nobody\"\n", "line 3: cannot take users"),
        ("[forward]\nto_loopback = true\n[forwarded]\ntrust_client = true\n", "line 4: "),
        (
            "workers = 1\nfrom = \"0.0.0.0:3128\"\n[forward]\nrules = [\"allow\"]\n",
            "line 2: `from`",
        ),
        ("listen = [\"tcp:0.0.0.0:81\"]\n[forward]\nrules = [\"allow\"]\n", "line 1: `listen`"),
    ] {
        bed.write("bad.toml", text);
        let said = bed.says(2, &["check-config", "bad.toml"]);
        assert!(said.contains(words), "{text}: {said}");
    }
    // With an origin it is for `damelo proxy`, which takes no users.
    bed.write("both.toml", &format!("{TO}[forward]\nusers = \"nobody\"\n"));
    bed.says(0, &["check-config", "both.toml"]);
    let said = bed.says(2, &["check-config", "both.toml", "--forward"]);
    assert!(said.contains("line 3: cannot take users from `nobody`"), "{said}");
}

#[test]
fn check_config_refuses_sockets_and_authorities_that_cannot_be() {
    let bed = Bed::new();
    for (bytes, code) in [(107, 0), (108, 2)] {
        let path = format!("/tmp/{}", "x".repeat(bytes - "/tmp/".len()));
        bed.write("long.toml", &format!("{TO}listen = [\"unix:{path}\"]\n"));
        let said = bed.says(code, &["check-config", "long.toml"]);
        assert_eq!(said.contains("line 2: ") && said.contains("107 bytes"), code != 0, "{said}");
    }
    bed.write("bad.toml", &format!("{TO}[upstream]\nauthorities = \"none.pem\"\n"));
    let output = bed.run(&["check-config", "bad.toml"]);
    assert!(!output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("none.pem"), "{output:?}");
}

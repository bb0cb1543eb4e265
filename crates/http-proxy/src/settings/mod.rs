//! The configuration file: parses TOML into checked settings, and decides what a reload may change.
//!
//! Invariants: a file with any error changes nothing; every error names its line, and for an
//! unknown key the most similar known one. The caller reads files; nothing here does I/O except to
//! resolve host names in addresses. No threads.

// Settings that do not go together.
mod contradictions;
// The text of the file.
mod document;
// Every key.
mod keys;
// Kinds of values.
mod kinds;
// Kinds of a narrower range.
mod ranges;
// The reference of all keys.
mod reference;
// Every key of a rule.
mod rule_keys;
// Rules that hardly do what is meant.
mod warnings;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use damelo::ByteSize;

pub use document::SettingsError;
pub(crate) use kinds::Value;
pub use reference::{reference, reference_json};

use crate::config::{OriginTarget, ProxyConfig, WriteLimit};
use crate::error::ProxyError;
use crate::forward::{ForwardConfig, ForwardProxy};
use crate::ruleset::Ruleset;
use keys::KEYS;

/// All settings of `damelo proxy`: the proxy's and the store's.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// The proxy's part.
    pub proxy: ProxyConfig,
    /// `PATH` or `PATH:SIZE` of the store, several separated by commas; `None` for a default
    /// derived from the origin.
    pub cache: Option<String>,
    /// Whether it is opened without volumes that are missing, but for the first.
    pub without_missing: bool,
    /// Whether its disks have seeks; `None` asks the system.
    pub seeks: Option<bool>,
    /// Most that is written to them; `None` does not limit it.
    pub disk_writes_max: Option<WriteLimit>,
    /// Memory for data.
    pub memory: ByteSize,
    /// Longest time from the stop request to the end of the process, whatever is still waiting.
    pub stop_timeout: Duration,
    /// Settings that only a forward proxy has.
    pub forward: ForwardConfig,
    /// Whether the file or an argument named an origin.
    pub has_origin: bool,
    /// Whether the file or an argument set a key that only a forward proxy has.
    pub sets_forward_keys: bool,
    /// The line of each key that the file sets.
    lines: BTreeMap<String, usize>,
    /// The line of each rule.
    rule_lines: Vec<usize>,
}

impl Default for Settings {
    fn default() -> Settings {
        let from = SocketAddr::from(([127, 0, 0, 1], 8080));
        let mut proxy = ProxyConfig::new(from, OriginTarget::Demo);
        proxy.admin.from = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        Settings {
            proxy,
            cache: None,
            without_missing: true,
            seeks: None,
            disk_writes_max: None,
            memory: ByteSize::new(256 << 20),
            stop_timeout: Duration::from_secs(60),
            forward: ForwardConfig::default(),
            has_origin: false,
            sets_forward_keys: false,
            lines: BTreeMap::new(),
            rule_lines: Vec::new(),
        }
    }
}

impl Settings {
    /// Parses a file's text, starting from the defaults.
    ///
    /// # Errors
    /// All mistakes, in the order of their lines.
    pub fn parse(text: &str) -> Result<Settings, Vec<SettingsError>> {
        Settings::default().read(text)
    }

    /// Parses a file's text, starting from these settings.
    ///
    /// # Errors
    /// As [`Settings::parse`].
    pub fn read(mut self, text: &str) -> Result<Settings, Vec<SettingsError>> {
        let rules = document::read(text, &mut self)?;
        self.proxy.ruleset = Arc::new(Ruleset::new(rules));
        Ok(self)
    }

    /// Contradictions between settings that are valid one by one.
    pub fn contradictions(&self) -> Vec<SettingsError> {
        let found = contradictions::find(self);
        found.into_iter().map(|(key, problem)| self.mistake(key, problem)).collect()
    }

    /// Rules that can be used, but hardly do what is meant, with their lines.
    pub fn warnings(&self) -> Vec<SettingsError> {
        let line = |place: usize| self.rule_lines.get(place).copied().unwrap_or(1);
        let warning = |(place, problem)| SettingsError { line: line(place), problem };
        warnings::find(self).into_iter().map(warning).collect()
    }

    /// A mistake in the value of a key, with the line that sets it, or line 1 if none does.
    pub fn mistake(&self, key: &str, problem: impl std::fmt::Display) -> SettingsError {
        let line = self.lines.get(key).copied().unwrap_or(1);
        SettingsError { line, problem: format!("`{key}`: {problem}") }
    }

    /// The defaults of `damelo forward`, which differ in its address and in not telling origins
    /// about clients.
    pub fn for_forward() -> Settings {
        let from = SocketAddr::from(([127, 0, 0, 1], 3128));
        let mut settings = Settings::default();
        let admin = settings.proxy.admin;
        settings.proxy = ProxyConfig { admin, ..ProxyConfig::for_forward(from) };
        settings
    }

    /// The proxy's settings for a forward proxy, whose origin the client names whatever the file
    /// says.
    pub fn forward_proxy(&self) -> ProxyConfig {
        self.proxy.clone().without_origin()
    }

    /// Whether the file is one for `damelo forward`: it has keys that nothing else uses, and no
    /// origin.
    pub fn is_for_forward(&self) -> bool {
        self.sets_forward_keys && !self.has_origin
    }

    /// Checks, without side effects, whether a forward proxy could start.
    ///
    /// # Errors
    /// It would listen beyond loopback although `remote` is not set, or its users or a list that
    /// its rules name cannot be read.
    pub fn check_forward(&self) -> Result<(), ProxyError> {
        ForwardProxy::new(&self.forward_proxy(), &self.forward).map(drop)
    }

    /// Sets a key that is a list as a file would.
    ///
    /// # Errors
    /// As [`Settings::set`].
    pub fn set_list(&mut self, name: &str, items: &[String]) -> Result<(), String> {
        self.set_value(name, &Value::List(items.to_vec()))
    }

    /// Sets one key as `KEY=VALUE` of a command line would.
    ///
    /// # Errors
    /// There is no such key, or it does not take this value.
    pub fn set(&mut self, argument: &str) -> Result<(), String> {
        let (name, value) = argument
            .split_once('=')
            .ok_or_else(|| format!("`{argument}` is not KEY=VALUE, such as memory=512MiB"))?;
        self.set_value(name.trim(), &Value::of_argument(value.trim()))
    }

    /// Sets one key to the value of a flag, blanks at its ends included.
    ///
    /// # Errors
    /// As [`Settings::set`].
    pub fn set_flag(&mut self, name: &str, value: &str) -> Result<(), String> {
        self.set_value(name, &Value::of_argument(value))
    }

    pub(crate) fn set_value(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let Some(key) = keys::find(name) else {
            let near = keys::nearest(name, KEYS.iter().map(|key| key.name));
            let hint = near.map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
            return Err(format!("there is no key `{name}`{hint}"));
        };
        self.has_origin |= name == "to";
        self.sets_forward_keys |= name.starts_with("forward.");
        (key.set)(self, value).map_err(|problem| format!("`{name}`: {problem}"))
    }

    /// Every key with its value, as lines of a file that gives these settings. A key whose value no
    /// file can say is a comment.
    pub fn show(&self) -> Vec<String> {
        let line = |key: &keys::Key| match self.value(key) {
            Ok(value) => format!("{} = {value}", key.name),
            Err(words) => format!("# {} = {words}", key.name),
        };
        KEYS.iter().map(line).collect()
    }

    /// Every key with its value as a JSON object; `null` where no file can say the value.
    pub fn to_json(&self) -> serde_json::Value {
        // Texts, numbers, flags and lists are written in JSON as in TOML.
        let value = |key: &keys::Key| -> Option<serde_json::Value> {
            serde_json::from_str(&self.value(key).ok()?).ok()
        };
        KEYS.iter().map(|key| (key.name, value(key))).collect()
    }

    /// A key's value as a file would have it, or words for what no file can say.
    fn value(&self, key: &keys::Key) -> Result<String, String> {
        let forward = self.proxy.is_without_origin();
        match key.name {
            "to" if forward => Err("what the client says".to_owned()),
            "cache" if self.cache.is_none() && forward => Err("one for all origins".to_owned()),
            "cache" if self.cache.is_none() => Err((key.show)(self)),
            _ => Ok((key.show)(self)),
        }
    }

    /// The line of a file's text that an error is about. [`ProxyConfig::check`] reports the key at
    /// fault, but not its line.
    pub fn blame(text: &str, error: &ProxyError) -> Option<SettingsError> {
        let line = document::line_of(text, error.key()?)?;
        Some(SettingsError { line, problem: error.to_string() })
    }

    /// The keys whose values differ between two settings and that a reload cannot change.
    pub fn needs_restart(&self, running: &Settings) -> Vec<&'static str> {
        // The demo lives as long as the proxy.
        let demo = [&self.proxy.to, &running.proxy.to].contains(&&OriginTarget::Demo);
        let live = |key: &keys::Key| key.live && !(demo && key.name == "to");
        let differs = |key: &&keys::Key| !live(key) && (key.show)(self) != (key.show)(running);
        KEYS.iter().filter(differs).map(|key| key.name).collect()
    }

    /// Number of rules.
    pub fn rule_count(&self) -> usize {
        self.proxy.ruleset.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_file_is_read() {
        let settings = Settings::parse(
            "# a site\n\
             from = \"127.0.0.1:81\"\n\
             to = \"http://10.0.0.5:8000\"\n\
             memory = \"1GiB\"\n\
             workers = 3\n\
             [timeouts]\n\
             connect = \"1500ms\"\n\
             [purge]\n\
             networks = [\"10.0.0.0/8\"]\n\
             [[rule]]\n\
             path = \"/img/**\"\n\
             ttl = \"1d\"\n\
             [[rule]]\n\
             host = [\"a.example\", \"*.b.example\"]\n\
             pass = true\n",
        )
        .unwrap();
        assert_eq!(settings.proxy.from.port(), 81);
        assert_eq!(settings.proxy.to, OriginTarget::Url("http://10.0.0.5:8000".to_owned()));
        assert_eq!(settings.memory.bytes(), 1 << 30);
        assert_eq!(settings.proxy.workers, 3);
        assert_eq!(settings.proxy.timeouts.connect.as_millis(), 1500);
        assert_eq!(settings.proxy.purge.networks.len(), 1);
        assert_eq!(settings.rule_count(), 2);
        assert!(settings.has_origin);
    }

    #[test]
    fn every_mistake_is_named_with_its_line() {
        let errors = Settings::parse(
            "memry = \"1GiB\"\n\
             [timeouts]\n\
             connect = 5\n\
             [limit]\n\
             body_bytes_max = \"1GiB\"\n\
             [[rule]]\n\
             pth = \"/x\"\n\
             ttl = \"1 parsec\"\n\
             [[rule]]\n\
             status = 200\n\
             pass = true\n\
             [[rule]]\n\
             size_min = 2\n\
             size_max = 1\n\
             store = false\n\
             [logs]\n",
        )
        .unwrap_err();
        let text: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let expect = [
            (1, "did you mean `memory`"),
            (3, "a time such as"),
            (5, "did you mean `limits.body_bytes_max`"),
            (7, "did you mean `path`"),
            (8, "1 parsec"),
            (9, "`pass`"),
            (12, "`size_min`"),
            (16, "no table `[logs]`: did you mean `[log]`"),
        ];
        assert_eq!(text.len(), expect.len(), "{text:?}");
        for (got, (line, words)) in text.iter().zip(expect) {
            assert!(got.starts_with(&format!("line {line}: ")) && got.contains(words), "{got}");
        }
    }

    #[test]
    fn rules_are_written_as_rule() {
        for (text, line) in [
            ("workers = 1\n[[rules]]\npath = \"/x\"\n[[rules]]\npass = true\n", 2),
            ("rules = []\n", 1),
            ("[rules]\npath = \"/x\"\n", 1),
            ("\n[rule]\npath = \"/x\"\n", 2),
        ] {
            let errors = Settings::parse(text).unwrap_err();
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert!(errors[0].line == line && errors[0].problem.contains("[[rule]]"), "{errors:?}");
        }
    }

    #[test]
    fn what_a_value_names_is_blamed_on_its_line() {
        for (text, line, words) in [
            ("to = \"demo\"\nlisten = [\"tls+tcp:127.0.0.1:0\"]\n", 2, "`tls.certificates`"),
            ("to = \"demo\"\n[tls]\ncertificates = [\"/no,/no\"]\n", 3, "cannot use `/no`"),
            ("to = \"https://a\"\n\nupstream.authorities = \"/no\"\n", 3, "`/no`"),
        ] {
            let error = Settings::parse(text).unwrap().proxy.check().unwrap_err();
            let blamed = Settings::blame(text, &error).unwrap();
            assert!(blamed.line == line && blamed.problem.contains(words), "{blamed}");
        }
        assert_eq!(Settings::blame("to = \"demo\"\n", &ProxyError::NoCertificate), None);
    }

    #[test]
    fn what_does_not_go_together_is_named_with_its_line() {
        let file = "to = \"demo\"\n[timeouts]\nstop = \"5s\"\ndrain = \"7s\"\n";
        let errors = Settings::parse(file).unwrap().contradictions();
        assert_eq!(errors.len(), 1, "{errors:?}");
        let text = errors[0].to_string();
        assert!(text.starts_with("line 4: `timeouts.drain`: "), "{text}");
    }

    #[test]
    fn broken_toml_is_one_error_with_its_line() {
        let errors = Settings::parse("a = 1\nb = [1,\n").unwrap_err();
        assert_eq!(errors.len(), 1);
        assert!(errors[0].to_string().starts_with("line "), "{}", errors[0]);
        let errors = Settings::parse("workers = 1\nworkers = 2\n").unwrap_err();
        assert!(errors[0].to_string().starts_with("line 2"), "{}", errors[0]);
    }

    #[test]
    fn what_only_a_restart_changes_is_named() {
        let running = Settings::parse("to = \"demo\"\n").unwrap();
        let new = Settings::parse(
            "to = \"demo\"\nworkers = 77\nname = \"other\"\n[limits]\nconnections_max = 9\n",
        )
        .unwrap();
        assert_eq!(new.needs_restart(&running), ["workers", "limits.connections_max"]);
        assert!(running.needs_restart(&running).is_empty());
    }

    #[test]
    fn a_forward_proxy_reads_the_same_file() {
        let settings = Settings::for_forward()
            .read(
                "to = \"http://a.example\"\n\
                 listen = [\"tls+tcp:127.0.0.1:443\"]\n\
                 [tls]\n\
                 certificates = [\"c.pem,k.pem\"]\n\
                 [upstream]\n\
                 check = \"/up every 1s\"\n\
                 [forward]\n\
                 rules = [\"deny port=25\", \"allow client=10.0.0.0/8\"]\n",
            )
            .unwrap();
        let proxy = settings.forward_proxy();
        assert_eq!(settings.forward.rules.len(), 2);
        assert_eq!(proxy.from.port(), 3128);
        assert!(proxy.preserve_host && !proxy.forwarded.x_forwarded);
        assert!(!proxy.caching.surrogate && Settings::default().proxy.caching.surrogate);
        assert_eq!(proxy.caching.set_cookie, crate::rules::SetCookie::Strip);
        assert_ne!(proxy.to, settings.proxy.to);
        assert!(proxy.listen[0].tls);
        assert_eq!(proxy.tls.certificates[0].key.to_str(), Some("k.pem"));
        let checks = proxy.upstream.check.as_ref().unwrap();
        assert_eq!((checks.path.as_str(), checks.interval.as_secs()), ("/up", 1));
        let running = Settings::for_forward();
        let changed = settings.needs_restart(&running);
        assert!(changed.contains(&"listen") && !changed.contains(&"forward.rules"), "{changed:?}");
    }

    #[test]
    fn arguments_set_any_key() {
        let mut settings = Settings::default();
        settings.set("timeouts.drain=3s").unwrap();
        settings.set("preserve_host = true").unwrap();
        assert_eq!(settings.proxy.timeouts.drain.as_secs(), 3);
        assert!(settings.proxy.preserve_host);
        settings.set("listen=tcp:127.0.0.1:81").unwrap();
        for empty in ["listen=[]", "upstream.more_origins=[]", "key.cookies = []"] {
            settings.set(empty).unwrap();
        }
        assert!(settings.proxy.listen.is_empty());
        for digits in ["purge.token=12345678", "cache=2024", "log.to=7", "workers=7"] {
            settings.set(digits).unwrap();
        }
        assert_eq!(settings.proxy.purge.token.as_deref(), Some("12345678"));
        assert_eq!(settings.cache.as_deref(), Some("2024"));
        settings.set_flag("cache", " a ").unwrap();
        assert_eq!(settings.cache.as_deref(), Some(" a "));
        assert!(settings.set("memory").unwrap_err().contains("KEY=VALUE"));
        assert!(settings.set("timeouts.drian=3s").unwrap_err().contains("timeouts.drain"));
        assert!(settings.set("workers=many").unwrap_err().contains("many"));
    }

    /// The document must match the table; `DAMELO_BLESS=1` rewrites it.
    #[test]
    fn the_document_lists_every_key() {
        // Defaults that depend on the machine's number of cores are left out of the table.
        crate::documents::hold("configuration.md", "keys", &reference());
    }

    #[test]
    fn the_examples_in_the_documents_are_valid_files() {
        let configuration = include_str!("../../../../docs/configuration.md");
        let operations = include_str!("../../../../docs/operations.md");
        let mut rules = 0;
        let mut forward_rules = 0;
        for document in [configuration, operations] {
            for example in document.split("```toml\n").skip(1) {
                let example = example.split("```").next().unwrap();
                let settings = Settings::parse(example).unwrap_or_else(|e| panic!("{e:?}"));
                rules += settings.rule_count();
                forward_rules += settings.forward.rules.len();
                shows_itself(&settings, Settings::default());
                // A redirect to https needs an https listener.
                if example.contains("https://{host}") {
                    let proxy = &settings.proxy;
                    assert!(proxy.listen.iter().any(|listener| listener.tls));
                    assert!(!proxy.tls.certificates.is_empty());
                }
            }
        }
        assert!(rules >= 4 && forward_rules >= 4);
    }

    /// Checks that what is shown is read as what it was, and is the same in JSON.
    fn shows_itself(settings: &Settings, defaults: Settings) {
        let shown = settings.show();
        let again = defaults.read(&shown.join("\n")).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(again.show(), shown);
        assert_eq!(again.forward.rules, settings.forward.rules);
        let json = settings.to_json();
        let unsaid: Vec<_> = KEYS.iter().filter(|key| json[key.name].is_null()).collect();
        assert_eq!(unsaid.len(), shown.iter().filter(|line| line.starts_with("# ")).count());
    }

    #[test]
    fn what_is_shown_of_any_settings_is_a_file() {
        shows_itself(&Settings::default(), Settings::default());
        let forward = Settings::for_forward();
        shows_itself(&forward, Settings::for_forward());
        assert!(forward.show().contains(&"# to = what the client says".to_owned()));
        let mut odd = Settings::default();
        odd.set("log.to=/a \"quoted\" \\ path\u{7f}\n").unwrap();
        odd.set("cache=c\td:1GiB").unwrap();
        odd.set_list("forward.rules", &["allow to=.a.test port=1-2".to_owned()]).unwrap();
        assert_eq!(odd.to_json()["cache"], "c\td:1GiB");
        assert_eq!(odd.to_json()["forward.rules"][0], "allow port=1-2 to=.a.test");
        shows_itself(&odd, Settings::default());
    }

    #[test]
    fn a_file_for_a_forward_proxy_is_known() {
        for (file, forward) in [
            ("[forward]\nremote = true\n", true),
            ("to = \"demo\"\n[forward]\nremote = true\n", false),
            ("workers = 1\n", false),
        ] {
            assert_eq!(Settings::parse(file).unwrap().is_for_forward(), forward, "{file}");
        }
    }
}

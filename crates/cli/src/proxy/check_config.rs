//! `damelo check-config`: says whether a configuration file is valid, and lists its mistakes.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use damelo::OpenError;
use damelo_http_proxy::{
    ListenAddress, LogTarget, ProxyError, Settings, SettingsError, settings_reference,
    settings_reference_json,
};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Out, heard};
use crate::proxy::serving;

const AFTER_HELP: &str = "\
Examples:
  damelo check-config /etc/damelo.toml
  damelo check-config /etc/damelo.toml --show
  damelo check-config /etc/damelo-forward.toml --forward
  damelo check-config --keys

Mistakes are named with their lines: all wrong keys and values; if there are none, all that does not
go together and directories that are missing; then the first file that cannot be used. Exit code 2
says that there are some; a warning, of a rule that hardly does what is meant, is none. A file
without an origin that sets keys of [forward] is checked, and shown, as `damelo forward` would use
it; --forward says that any other is one for it, too. What --show prints is a file that says the
same, rules aside; admin.token and purge.token are in it as they are. --keys prints all keys with
their defaults, as in docs/configuration.md. With --json all is one object, in which `good` and
`warnings` or, if it is false, `mistakes` are.";

/// Longest configuration file that is read: a path to a device would never end.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Longest path that the system takes for a Unix socket: `sun_path` without its final zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Check a configuration file of the proxy.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct CheckConfig {
    /// The file
    #[arg(value_name = "FILE", required_unless_present = "keys")]
    file: Option<PathBuf>,
    /// Check it as a file for `damelo forward`, whatever it sets
    #[arg(long, requires = "file")]
    forward: bool,
    /// Print every key with the value it gets, tokens included
    #[arg(long, requires = "file")]
    show: bool,
    /// Print all keys that there are
    #[arg(long)]
    keys: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// A file whose settings could be used.
struct Good {
    settings: Settings,
    /// By `damelo forward`, not `damelo proxy`.
    forward: bool,
}

impl Good {
    /// The command that the file is for.
    fn command(&self) -> &'static str {
        if self.forward { "forward" } else { "proxy" }
    }
}

/// Why a file cannot be used.
enum Bad {
    /// By what it says.
    Mistakes(Vec<SettingsError>),
    /// By what no line of it says.
    Other(Failure),
}

impl Bad {
    fn as_json(&self) -> Value {
        match self {
            Bad::Mistakes(mistakes) => as_values(mistakes),
            Bad::Other(failure) => json!([{ "line": null, "problem": failure.text().trim_end() }]),
        }
    }

    fn into_failure(self, path: &Path) -> Failure {
        match self {
            Bad::Mistakes(mistakes) => unusable(path, &mistakes),
            Bad::Other(failure) => failure,
        }
    }
}

fn as_values(mistakes: &[SettingsError]) -> Value {
    let value = |one: &SettingsError| json!({ "line": one.line, "problem": one.problem });
    mistakes.iter().map(value).collect()
}

/// Checks the file and prints its settings or its mistakes.
pub(crate) fn run(args: &CheckConfig) -> Result<(), Failure> {
    let checked = args.file.as_deref().map(|path| (path, check(path, args.forward)));
    heard(tell(args, checked.as_ref()))?;
    match checked {
        Some((path, Err(bad))) => Err(bad.into_failure(path)),
        _ => Ok(()),
    }
}

/// What goes to standard output; mistakes follow on standard error.
fn tell(args: &CheckConfig, checked: Option<&(&Path, Result<Good, Bad>)>) -> Result<(), Failure> {
    let mut out = Out::new();
    if args.json {
        out.json(&as_json(args, checked.map(|(_, checked)| checked)))?;
        return out.finish();
    }
    if args.keys {
        out.bytes(settings_reference().as_bytes())?;
    }
    if let Some((path, Ok(good))) = checked {
        print(args, path, good, &mut out)?;
    }
    out.finish()
}

fn print(args: &CheckConfig, path: &Path, good: &Good, out: &mut Out) -> Result<(), Failure> {
    let settings = &good.settings;
    let (rules, forward_rules) = (settings.rule_count(), settings.forward.rules.len());
    let is_good = format!("{} is good for `damelo {}`", path.display(), good.command());
    // A comment, so that the whole output is a file of settings.
    let mark = if args.show { "# " } else { "" };
    out.line(format_args!("{mark}{is_good}; rules: {rules}; forward.rules: {forward_rules}"))?;
    for warning in settings.warnings() {
        out.line(format_args!("{mark}warning: {warning}"))?;
    }
    if args.show {
        for line in settings.show() {
            out.line(format_args!("{line}"))?;
        }
    }
    Ok(())
}

/// One object with all that is asked for.
fn as_json(args: &CheckConfig, checked: Option<&Result<Good, Bad>>) -> Value {
    let mut all = if args.keys { settings_reference_json() } else { json!({}) };
    match checked {
        Some(Ok(good)) => {
            all["good"] = true.into();
            all["command"] = good.command().into();
            all["rules"] = good.settings.rule_count().into();
            all["forward_rules"] = good.settings.forward.rules.len().into();
            all["warnings"] = as_values(&good.settings.warnings());
            if args.show {
                all["settings"] = good.settings.to_json();
            }
        }
        Some(Err(bad)) => {
            all["good"] = false.into();
            all["mistakes"] = bad.as_json();
        }
        None => {}
    }
    all
}

/// The settings of a file as the command that it is for would use them, if it could. `forward`:
/// that is `damelo forward`, whatever the file sets.
fn check(path: &Path, forward: bool) -> Result<Good, Bad> {
    let text = text_of(path).map_err(Bad::Other)?;
    let mut settings = Settings::default().read(&text).map_err(Bad::Mistakes)?;
    let forward = forward || settings.is_for_forward();
    if forward {
        settings = Settings::for_forward().read(&text).map_err(Bad::Mistakes)?;
        settings.proxy = settings.forward_proxy();
    }
    let mut mistakes = settings.contradictions();
    if !forward && !settings.has_origin {
        let problem = "there is no origin: say `to`, or --forward of a file for `damelo forward`";
        mistakes.push(settings.mistake("to", problem));
    }
    mistakes.extend(misplaced(&settings));
    mistakes.sort_by_key(|mistake| mistake.line);
    if !mistakes.is_empty() {
        return Err(Bad::Mistakes(mistakes));
    }
    // What a file for `damelo proxy` says of a forward proxy has no effect.
    let checked = if forward { settings.check_forward() } else { Ok(()) };
    checked.and_then(|()| settings.proxy.check()).map_err(|error| {
        match blame(&settings, &text, &error) {
            Some(mistake) => Bad::Mistakes(vec![mistake]),
            None => Bad::Other(error.into()),
        }
    })?;
    Ok(Good { settings, forward })
}

/// The line that an error is about, if it is about one.
fn blame(settings: &Settings, text: &str, error: &ProxyError) -> Option<SettingsError> {
    let key = match error {
        ProxyError::NotLoopback { address } if *address == settings.proxy.from => "from",
        ProxyError::NotLoopback { .. } => "listen",
        ProxyError::TrustInForward => "forwarded.trust_client",
        other => return Settings::blame(text, other),
    };
    Some(settings.mistake(key, error))
}

/// Reads settings from a file on top of defaults.
pub(crate) fn read(path: &Path, defaults: Settings) -> Result<Settings, Failure> {
    defaults.read(&text_of(path)?).map_err(|errors| unusable(path, &errors))
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let read = || {
        let mut text = String::new();
        let most = FILE_BYTES_MAX + 1;
        if File::open(path)?.take(most).read_to_string(&mut text)? as u64 == most {
            let problem = "it is too long for a file of settings: more than 16 MiB";
            return Err(io::Error::other(problem));
        }
        Ok(text)
    };
    read().map_err(|source| Failure::io(format!("read {}", path.display()), source))
}

fn unusable(path: &Path, errors: &[SettingsError]) -> Failure {
    let lines: Vec<String> = errors.iter().map(|error| format!("  {error}")).collect();
    Failure::Usage(format!("{} cannot be used:\n{}", path.display(), lines.join("\n")))
}

/// Mistakes that only the system shows: files that cannot be made or written where they should be,
/// and sizes with which the store could not be opened.
fn misplaced(settings: &Settings) -> Vec<SettingsError> {
    let mut files = Vec::new();
    if let LogTarget::File(path) = &settings.proxy.log.to {
        files.push(("log.to", path.clone()));
    }
    for listener in &settings.proxy.listen {
        if let ListenAddress::Unix(path) = &listener.address {
            files.push(("listen", path.clone()));
        }
    }
    files.extend(serving::cache_paths_needed(settings).map(|path| ("cache", path)));
    let problems = files.iter().filter_map(|(key, path)| Some((*key, problem_at(key, path)?)));
    let mut mistakes: Vec<_> =
        problems.map(|(key, problem)| settings.mistake(key, problem)).collect();
    mistakes.extend(serving::log_in_cache(settings));
    let (key, error) = match serving::check_store(settings) {
        Ok(()) => return mistakes,
        Err(error @ OpenError::Setting { setting: "memory", .. }) => ("memory", error),
        Err(error) => ("cache", error),
    };
    mistakes.push(settings.mistake(key, error));
    mistakes
}

/// Why there cannot be such a file.
fn problem_at(key: &str, path: &Path) -> Option<String> {
    let shown = path.display();
    // The parent of a bare file name is empty and means the current directory.
    let missing = path.parent().filter(|dir| !dir.as_os_str().is_empty() && !dir.is_dir());
    if let Some(dir) = missing {
        return Some(format!("there is no directory `{}`", dir.display()));
    }
    if path.is_dir() {
        return Some(format!("`{shown}` is a directory"));
    }
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Some(format!("`{shown}` names a directory: add a file's name"));
    }
    if key == "listen" && path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        let most = SOCKET_PATH_BYTES_MAX;
        return Some(format!("`{shown}`: the path of a Unix socket has at most {most} bytes"));
    }
    None
}

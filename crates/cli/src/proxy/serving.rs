//! Shared parts of `damelo proxy` and `damelo forward`: opening the store, serving until a signal
//! arrives, reloading settings, and ending in time.
//!
//! Threads: the proxy's workers, and those of `signals`, one of which reloads. The store is closed
//! after the last worker has ended, so that the next start needs no recovery.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use damelo::policy::AdmissionPolicy;
use damelo::{ByteSize, Config, GroupId, OpenError, Store, VolumeConfig};
use damelo_http_proxy::{
    Control, KeptOpen, LogTarget, OriginTarget, RunningInfo, Settings, SettingsError, say,
};

use crate::allocator::give_back_from_now_on;
use crate::descriptors;
use crate::failure::Failure;
use crate::names::Volumes;
use crate::proxy::{room, supervisor};
use crate::signals::Stop;
use crate::store::opening::open_with;

/// Size of a new cache if none is configured.
const CACHE_BYTES: u64 = 1 << 30;
/// The same for the demo, which must not fill a newcomer's disk.
const CACHE_BYTES_DEMO: u64 = 256 << 20;

/// File descriptors reserved for the store, the log and the admin listener.
const FILES_KEPT: usize = 64;
/// File descriptors reserved for the event loop and the listeners of each worker.
const FILES_KEPT_WORKER: usize = 8;

/// Which proxy is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A reverse proxy, for one site.
    Reverse,
    /// A forward proxy, to any origin.
    Forward,
}

/// A volume of the cache: `PATH` or `PATH:SIZE`. The size is used only when the store is created.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CacheVolume {
    path: PathBuf,
    size: Option<ByteSize>,
}

impl CacheVolume {
    fn of(text: &str) -> CacheVolume {
        if let Some((path, size)) = text.rsplit_once(':')
            && let Ok(size) = size.parse()
        {
            return CacheVolume { path: path.into(), size: Some(size) };
        }
        CacheVolume { path: text.into(), size: None }
    }
}

/// Opens the store, serves until told to stop, closes the store. `load` reads the settings, at
/// start and on each SIGHUP; `print` prints the start message.
pub(crate) fn serve(
    mode: Mode,
    load: impl Fn() -> Result<Settings, Failure> + Send + 'static,
    print: impl FnOnce(&Settings, &Store, &RunningInfo) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let load = move || load().and_then(consistent);
    let stop = Stop::on_signals(Settings::default().stop_timeout)?;
    let mut settings = load()?;
    stop.set_timeout(settings.stop_timeout);
    settings.proxy.inherited = supervisor::inherited_sockets()?;
    let kept_open = check(&settings, mode)?;
    let connections_max = connections_allowed(&settings)?;
    give_back_from_now_on().map_err(|source| Failure::io("start a thread", source))?;
    let store = open_store(&settings, mode)?;
    if let Some(warning) = room::warning(&store.info()) {
        say(format_args!("damelo: warning: {warning}"));
    }
    let mut printed = Ok(());
    let signals = stop.clone();
    let ready = |running: RunningInfo| {
        drop(kept_open);
        printed = print(&settings, &store, &running);
        let reload = Reload { load, mode, settings: settings.clone(), stop: signals.clone() };
        supervisor::notify(&format!("READY=1\nSTATUS=serving at {}", running.address));
        // After that, as it may begin a reload, which a supervisor expects of who is ready.
        signals.handle_others(reload.handler(running.control.clone()));
    };
    let ended = {
        let signals = stop.clone();
        async move {
            stop.await;
            supervisor::notify("STOPPING=1\nSTATUS=finishing what is under way");
            // A reload would only be in the way. One that is under way may hang.
            signals.ignore_others();
        }
    };
    let handle = store.clone();
    let served = match mode {
        Mode::Reverse => {
            let mut proxy = settings.proxy.clone();
            proxy.limits.connections_max = connections_max;
            damelo_http_proxy::run(proxy, handle, ready, ended)
        }
        Mode::Forward => {
            let mut proxy = settings.forward_proxy();
            proxy.limits.connections_max = connections_max;
            let forward = settings.forward.clone();
            damelo_http_proxy::run_forward(proxy, forward, handle, ready, ended)
        }
    };
    // Closing may take long, so the outcome is printed before it. The full error follows at the
    // end.
    match &served {
        Ok(()) => say(format_args!("damelo: closing the store")),
        Err(error) => say(format_args!("damelo: {error}: closing the store")),
    }
    let closed = store.close();
    served?;
    closed?;
    printed
}

/// What comes before the store: an invalid origin, an address in use or an unwritable log must not
/// leave a new cache file behind.
fn check(settings: &Settings, mode: Mode) -> Result<KeptOpen, Failure> {
    if mode == Mode::Forward {
        settings.check_forward()?;
    }
    settings.proxy.check()?;
    Ok(settings.proxy.check_address()?)
}

/// Refuses settings that contradict each other, as `check-config` does. Without their lines: flags
/// may have set them.
fn consistent(settings: Settings) -> Result<Settings, Failure> {
    let mut mistakes = settings.contradictions();
    mistakes.extend(log_in_cache(&settings));
    if mistakes.is_empty() {
        return Ok(settings);
    }
    let lines: Vec<String> = mistakes.iter().map(|one| format!("  {}", one.problem)).collect();
    Err(Failure::Usage(format!("the settings contradict each other:\n{}", lines.join("\n"))))
}

/// Most client connections at once: the configured number, or fewer if the system's limit on open
/// files is too low for it. Further connections wait in the accept queue.
fn connections_allowed(settings: &Settings) -> Result<usize, Failure> {
    let wanted = settings.proxy.limits.connections_max;
    let limit = match descriptors::raise_limit() {
        Ok(limit) => usize::try_from(limit).unwrap_or(usize::MAX),
        Err(error) => {
            say(format_args!("damelo: cannot tell how many files may be open: {error}"));
            return Ok(wanted);
        }
    };
    let workers = settings.proxy.workers;
    let left = left_for_clients(limit, workers).ok_or_else(|| {
        Failure::io(
            "serve clients",
            std::io::Error::other(format!(
                "{limit} open files are too few for a proxy with {workers} workers: allow more with \
                 `ulimit -n` or LimitNOFILE=, or set `workers` lower"
            )),
        )
    })?;
    let allowed = wanted.min(left);
    if allowed < wanted {
        say(format_args!(
            "damelo: the system allows {limit} open files, so that {allowed} connections of clients are \
             accepted at once, fewer than limits.connections_max ({wanted}): raise it with `ulimit -n` \
             or LimitNOFILE="
        ));
    }
    Ok(allowed)
}

/// File descriptors left for clients out of `limit`; `None` if there are none. A third is reserved
/// for connections to origins, and some for the admin listener and the workers' event loops:
/// otherwise clients would be accepted and then get an origin error.
fn left_for_clients(limit: usize, workers: usize) -> Option<usize> {
    let kept = FILES_KEPT + FILES_KEPT_WORKER * workers + limit / 3;
    limit.checked_sub(kept).filter(|left| *left > 0)
}

/// State for SIGHUP: how to load the settings, and the settings from the start.
struct Reload<L> {
    load: L,
    mode: Mode,
    settings: Settings,
    stop: Stop,
}

impl<L: Fn() -> Result<Settings, Failure> + Send + 'static> Reload<L> {
    /// The signal handler: SIGHUP reloads the settings, SIGUSR1 reopens the access log.
    fn handler(mut self, control: Control) -> impl FnMut(i32) + Send + 'static {
        move |signal| {
            if signal == libc::SIGUSR1 {
                control.reopen_log();
            } else {
                self.reload(&control);
            }
        }
    }

    fn reload(&mut self, control: &Control) {
        supervisor::notify(&supervisor::reloading());
        self.reload_now(control);
        supervisor::notify("READY=1");
    }

    fn reload_now(&mut self, control: &Control) {
        let read = (self.load)().and_then(|new| self.could_start(new));
        let loaded = read.inspect_err(|_| control.reload_failed()).and_then(|new| {
            let reloaded = control.reload_forward(new.proxy.clone(), &new.forward);
            reloaded.map_err(Failure::Reload)?;
            Ok(new)
        });
        match loaded {
            Err(failure) => {
                say(format_args!("{}", failure.text().trim_end()));
                say(format_args!("damelo: the settings stay as they were"));
            }
            Ok(new) => {
                self.stop.set_timeout(new.stop_timeout);
                let pending = new.needs_restart(&self.settings);
                control.set_restart_pending(pending.len());
                for key in pending {
                    say(format_args!("damelo: `{key}` has changed, which takes a restart"));
                }
                say(format_args!("damelo: settings reloaded, {} rules", new.rule_count()));
            }
        }
    }
}

impl<L> Reload<L> {
    /// Refuses what waits for a restart and would fail it, or would take another cache. The rest
    /// [`Control`] checks. Users are looked at only then: one bad line of them keeps no reload from
    /// its rules.
    fn could_start(&self, new: Settings) -> Result<Settings, Failure> {
        let of_forward =
            |key: &&str| key.starts_with("forward.") || ["from", "listen"].contains(key);
        if self.mode == Mode::Forward && new.needs_restart(&self.settings).iter().any(of_forward) {
            new.check_forward().map_err(Failure::Reload)?;
        }
        let names = [&self.settings, &new].map(|settings| cache_name(&settings.proxy.to));
        let demo = [&self.settings, &new].iter().any(|one| one.proxy.to == OriginTarget::Demo);
        if new.cache.is_none() && !demo && names[0] != names[1] {
            return Err(Failure::Usage(format!(
                "`to` has changed, and the cache, {}.store, is named after the former origin: set \
                 `cache`, or restart",
                names[0]
            )));
        }
        Ok(new)
    }
}

fn open_store(settings: &Settings, mode: Mode) -> Result<Store, Failure> {
    let volumes = match cache_volumes(settings) {
        volumes if !volumes.is_empty() => volumes,
        _ if mode == Mode::Forward => vec![default_cache("forward")],
        _ => vec![default_cache(&cache_name(&settings.proxy.to))],
    };
    let named = Volumes::from(volumes[0].path.as_path());
    open_with(store_config(settings, &volumes), &named)
}

/// The volumes that the settings name, in their order; empty if the default is to be used.
fn cache_volumes(settings: &Settings) -> Vec<CacheVolume> {
    let all = settings.cache.iter().flat_map(|text| text.split(','));
    all.map(CacheVolume::of).collect()
}

/// Paths of the configured cache volumes.
pub(crate) fn cache_paths(settings: &Settings) -> impl Iterator<Item = PathBuf> {
    cache_volumes(settings).into_iter().map(|volume| volume.path)
}

/// Those that a start needs: not where a disk may be mounted that a store is opened without.
pub(crate) fn cache_paths_needed(settings: &Settings) -> impl Iterator<Item = PathBuf> {
    let is_store = cache_paths(settings).next().is_some_and(|first| has_a_size(&first));
    let lets_go = settings.without_missing && is_store;
    let is_gone =
        |path: &Path| path.parent().is_some_and(|dir| !dir.as_os_str().is_empty() && !dir.exists());
    let numbered = cache_paths(settings).enumerate();
    numbered.filter(move |(at, path)| *at == 0 || !(lets_go && is_gone(path))).map(|(_, path)| path)
}

/// An access log that would be written into a volume of the cache, and damage it.
pub(crate) fn log_in_cache(settings: &Settings) -> Option<SettingsError> {
    let LogTarget::File(log) = &settings.proxy.log.to else { return None };
    let is_log = |path: &PathBuf| match (fs::canonicalize(path), fs::canonicalize(log)) {
        (Ok(path), Ok(log)) => path == log,
        _ => path == log,
    };
    let volume = cache_paths(settings).find(is_log)?;
    let problem = format!("`{}` is the cache: name another file", volume.display());
    Some(settings.mistake("log.to", problem))
}

/// The store's configuration; `volumes` is not empty.
fn store_config(settings: &Settings, volumes: &[CacheVolume]) -> Config {
    let is_demo = settings.proxy.to == OriginTarget::Demo;
    let default_bytes = if is_demo { CACHE_BYTES_DEMO } else { CACHE_BYTES };
    let default = Some(ByteSize::new(default_bytes));
    let volume = |CacheVolume { path, size }: &CacheVolume| {
        // Without a size, an existing device or file is used whole.
        let size = if has_a_size(path) { *size } else { size.or(default) };
        VolumeConfig { path: path.clone(), size }
    };
    let mut config = Config::new(&volumes[0].path, ByteSize::new(default_bytes));
    config.volumes = volumes.iter().map(volume).collect();
    config.memory = settings.memory;
    config.without_missing = settings.without_missing;
    config.seeks = settings.seeks;
    config.own_policies.admission =
        settings.disk_writes_max.map(|limit| -> Arc<dyn AdmissionPolicy> {
            Arc::new(damelo_http_proxy::admission_within(limit))
        });
    config
}

/// Checks that a store could be created with the sizes in these settings. An existing store keeps
/// its own size, but `memory` is still checked.
pub(crate) fn check_store(settings: &Settings) -> Result<(), OpenError> {
    let mut volumes = cache_volumes(settings);
    if volumes.is_empty() {
        volumes.push(CacheVolume::of(""));
    }
    let bytes = |CacheVolume { path, size }: &CacheVolume| {
        let size = size.filter(|_| !path.exists());
        size.map_or(CACHE_BYTES, ByteSize::bytes)
    };
    let bytes: Vec<u64> = volumes.iter().map(bytes).collect();
    Store::check_sizes(&store_config(settings, &volumes), &bytes)
}

/// Whether the path already exists and has a size of its own.
fn has_a_size(path: &Path) -> bool {
    fs::metadata(path)
        .is_ok_and(|meta| meta.file_type().is_block_device() || (meta.is_file() && meta.len() > 0))
}

/// The user's cache directory, or the current one.
fn default_cache(name: &str) -> CacheVolume {
    let variable =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let path = match user.map(|dir| dir.join("damelo")) {
        Some(dir) if is_writable(&dir) => dir.join(format!("{name}.store")),
        _ => PathBuf::from(format!("damelo-{name}.store")),
    };
    CacheVolume { path, size: None }
}

fn is_writable(dir: &Path) -> bool {
    fs::create_dir_all(dir).is_ok() && tempfile::tempfile_in(dir).is_ok()
}

/// A file name for an origin: its host and port, with `_` for characters that are awkward in names,
/// or its socket's path, with a hash, as many paths look the same then.
fn cache_name(to: &OriginTarget) -> String {
    let url = match to {
        OriginTarget::Demo => return "demo".to_owned(),
        OriginTarget::Url(url) => url,
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' };
    let named = |text: &str| format!("origin-{}", text.chars().map(plain).collect::<String>());
    if let Some(path) = url.strip_prefix("unix:") {
        // Stable, as the store keeps such hashes, too.
        let hash = GroupId::of(path).get() as u32;
        return format!("{}-{hash:08x}", named(path.trim_start_matches('/')));
    }
    let after_scheme = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    let host = after_scheme.split(['/', '?', '#']).next().unwrap_or_default();
    named(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_may_have_a_size() {
        let size = Some(ByteSize::new(20 << 30));
        assert_eq!(CacheVolume::of("/a/b:20GiB"), CacheVolume { path: "/a/b".into(), size });
        assert_eq!(CacheVolume::of("/a/b"), CacheVolume { path: "/a/b".into(), size: None });
        assert_eq!(CacheVolume::of("/a:b/c"), CacheVolume { path: "/a:b/c".into(), size: None });
    }

    /// How often it warns of a size. The system may call for other warnings: a container mostly
    /// refuses io_uring.
    fn warnings_of_size(store: &Store) -> usize {
        store.info().warnings.iter().filter(|warning| warning.contains("declared")).count()
    }

    #[test]
    fn a_cache_may_have_several_volumes() {
        let directory = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| directory.path().join(name));
        let mut settings = Settings::default();
        settings.memory = ByteSize::new(16 << 20);
        settings.cache = Some(format!("{}:64MiB,{}:96MiB", one.display(), two.display()));
        check_store(&settings).unwrap();
        open_store(&settings, Mode::Reverse).unwrap().close().unwrap();
        let length = |path: &Path| fs::metadata(path).unwrap().len();
        assert_eq!((length(&one), length(&two)), (64 << 20, 96 << 20));
        settings.cache = Some(format!("{},{}", one.display(), two.display()));
        let store = open_store(&settings, Mode::Reverse).unwrap();
        assert_eq!(warnings_of_size(&store), 0);
        store.close().unwrap();
        settings.cache = Some(one.display().to_string());
        assert!(open_store(&settings, Mode::Reverse).is_err(), "half of a store is none");
        settings.cache =
            Some(format!("{0}:64MiB,{0}:64MiB", directory.path().join("new").display()));
        let twice = check_store(&settings).unwrap_err();
        assert!(matches!(twice, OpenError::NamedTwice { .. }), "{twice}");
    }

    #[test]
    fn a_cache_without_a_size_keeps_the_one_it_was_made_with() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.store");
        let open = |cache: String| {
            let mut settings = Settings::default();
            settings.cache = Some(cache);
            settings.memory = ByteSize::new(16 << 20);
            let store = open_store(&settings, Mode::Reverse).unwrap();
            let warnings = warnings_of_size(&store);
            store.close().unwrap();
            warnings
        };
        assert_eq!(open(format!("{}:64MiB", path.display())), 0);
        assert_eq!(open(path.display().to_string()), 0, "nobody asked for another size");
        assert_eq!(open(format!("{}:128MiB", path.display())), 1);
    }

    #[test]
    fn clients_leave_files_for_origins_and_for_the_admin() {
        assert_eq!(left_for_clients(1024, 2), Some(1024 - 341 - 80));
        assert_eq!(left_for_clients(120, 2), None);
        assert_eq!(left_for_clients(64, 64), None);
        assert!(left_for_clients(1 << 20, 64) > Some(600_000));
    }

    #[test]
    fn a_file_that_is_there_keeps_its_size() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("made beforehand");
        let volumes = [CacheVolume { path: path.clone(), size: None }];
        let size = || store_config(&Settings::default(), &volumes).volumes[0].size;
        assert!(size().is_some());
        fs::File::create(&path).unwrap().set_len(128 << 20).unwrap();
        assert_eq!(size(), None);
    }

    #[test]
    fn every_origin_has_a_cache_of_its_own() {
        let name = |url: &str| cache_name(&url.parse().unwrap());
        assert_eq!(name("demo"), "demo");
        assert_eq!(name("https://Example.org:8443/x"), "origin-Example.org_8443");
        assert_eq!(name("http://[::1]:80"), "origin-___1__80");
        let sockets = ["unix:/run/a/web.sock", "unix:/run/b/web.sock", "unix:/run/a_web.sock"];
        let names = sockets.map(name);
        assert!(names[0].starts_with("origin-run_a_web.sock-"), "{names:?}");
        assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2], "{names:?}");
    }
}

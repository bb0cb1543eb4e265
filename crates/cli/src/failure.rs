//! All failures of commands: what the command was doing, the chain of causes, advice, and the exit
//! code. The codes are a promise to scripts; see `AFTER_HELP` in `main.rs`.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use damelo_http_proxy::{AdminError, ProxyError};
use damelo_lab::design::DesignError;
use damelo_lab::disk::DriveError;
use damelo_lab::machine::MachineError;
use damelo_lab::machine::RealError;
use damelo_lab::output::ReportError;
use damelo_lab::paper::PaperError;
use damelo_lab::{BadRecord, SimError, TraceError};

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A key that is not in the store.
    #[error("`{key}` is not in the store")]
    NotFound {
        /// The key, printable.
        key: String,
    },
    /// A key that may be in the store, where its disk cannot be read.
    #[error("`{key}` could not be read: its volume fails, or is out of service")]
    Unread {
        /// The key, printable.
        key: String,
    },
    /// Several keys of which some are not there; each was named already.
    #[error("{missing} of {asked} keys were not in the store")]
    SomeNotFound {
        /// Keys that were not there.
        missing: usize,
        /// Keys asked for.
        asked: usize,
    },
    /// `check` found damage.
    #[error("{damaged} damaged place{} found", if *damaged == 1 { "" } else { "s" })]
    Damaged {
        /// How many.
        damaged: u64,
    },
    /// A benchmark saw bytes that are not what was written.
    #[error("{wrong} reads returned wrong bytes")]
    WrongBytes {
        /// How many.
        wrong: u64,
    },
    /// A command line that parses but makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The store cannot be opened or made.
    #[error("cannot open the store `{path}`")]
    Open {
        /// First volume.
        path: PathBuf,
        /// What the store said.
        source: damelo::OpenError,
    },
    /// The same, of a command that can do without a volume that is missing.
    #[error("cannot open the store `{path}`")]
    OpenWithout {
        /// First volume.
        path: PathBuf,
        /// What the store said.
        source: damelo::OpenError,
    },
    /// What is to be the store is something else.
    #[error("`{path}` holds data that is not a Damelo store")]
    NotOurs {
        /// The volume.
        path: PathBuf,
    },
    /// `format` would destroy what is there.
    #[error("`{path}` exists already")]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// An operating system call failed.
    #[error("cannot {doing}")]
    Io {
        /// What was being done, as the rest of "cannot ...".
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// `ls` could not read all segments, or an object that lies in several places.
    #[error(
        "{places} place{} could not be read: what is there is not listed",
        if *places == 1 { "" } else { "s" }
    )]
    Unlisted {
        /// How many.
        places: u64,
    },
    /// Reading from the store failed.
    #[error("cannot read from the store")]
    Read(#[from] damelo::ReadError),
    /// Writing to the store failed.
    #[error("the store did not take the object")]
    Create(#[from] damelo::CreateError),
    /// New metadata were not stored.
    #[error("the store did not take the new metadata")]
    Metadata(#[from] damelo::MetadataError),
    /// Deleting failed.
    #[error("the store could not record the deletion")]
    Purge(#[from] damelo::PurgeError),
    /// Bringing the store's state to disk failed.
    #[error("cannot bring everything to disk")]
    Sync(#[from] damelo::SyncError),
    /// The proxy cannot run, or ended.
    #[error("the proxy cannot run")]
    Proxy(#[from] ProxyError),
    /// A running proxy cannot use settings that were read again.
    #[error("these settings cannot be used")]
    Reload(#[source] ProxyError),
    /// A running proxy could not be asked, or refused.
    #[error("the proxy was not reached or refused")]
    Admin(#[source] AdminError),
    /// A running proxy does not understand what it was asked: the command line is wrong.
    #[error("the proxy cannot do this: {problem}")]
    NotUnderstood {
        /// What it said.
        problem: String,
    },
    /// A simulation cannot be set up.
    #[error(transparent)]
    Sim(SimError),
    /// A trace cannot be read or written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Some of several designs could not be run; each was named already.
    #[error("{failed} of {asked} runs failed, each for the reason above")]
    SomeDesigns {
        /// Runs that failed.
        failed: usize,
        /// Runs asked for.
        asked: usize,
    },
    /// A design could not be played on the modelled machine.
    #[error("the design {design} cannot be run")]
    Design {
        /// Its name.
        design: String,
        /// It keeps everything, whatever room it is given.
        is_unlimited: bool,
        /// What it asked for and did not get.
        source: MachineError,
    },
    /// There is no such design, or not with these parameters.
    #[error(transparent)]
    DesignSpec(#[from] DesignError),
    /// A design could not be run on a real disk.
    #[error(transparent)]
    Real(#[from] RealError),
    /// A paper could not be measured.
    #[error(transparent)]
    Paper(#[from] PaperError),
    /// There is no such drive.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// A report cannot be run again.
    #[error("`{path}` is not a report of the lab that can be run again")]
    Report {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ReportError,
    },
    /// The trace of a report, or its drive, is not what it was.
    #[error("the {what} `{name}` is not the report's: its digest was {before}, is {after}")]
    Changed {
        /// Trace or drive.
        what: &'static str,
        /// Its path.
        name: String,
        /// Digest in the report.
        before: String,
        /// Digest of the file.
        after: String,
    },
    /// A report's run came out differently.
    #[error("`{report}` was run again and differs: {difference}")]
    NotTheSame {
        /// The report.
        report: String,
        /// Where.
        difference: String,
    },
    /// A report's command failed.
    #[error("the report's command failed ({status}); what it said is above")]
    RunFailed {
        /// How it ended.
        status: ExitStatus,
    },
    /// A child process of a benchmark failed.
    #[error("the benchmark's child process failed: {0}")]
    Child(String),
    /// Anything serialised by ourselves that did not parse.
    #[error("cannot understand the benchmark's own output")]
    Json(#[from] serde_json::Error),
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Failure {
        match error {
            AdminError::Refused { status: 400, problem } => Failure::NotUnderstood { problem },
            error => Failure::Admin(error),
        }
    }
}

impl From<SimError> for Failure {
    fn from(error: SimError) -> Failure {
        match error {
            SimError::Trace(error) => Failure::Trace(error),
            error => Failure::Sim(error),
        }
    }
}

impl Failure {
    /// An I/O failure, with what was being done as the rest of "cannot ...".
    pub(crate) fn io(doing: impl Into<String>, source: io::Error) -> Failure {
        Failure::Io { doing: doing.into(), source }
    }

    /// The process's exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::NotFound { .. }
            | Failure::SomeNotFound { .. }
            | Failure::Damaged { .. }
            | Failure::WrongBytes { .. }
            | Failure::NotTheSame { .. } => 1,
            Failure::Usage(_)
            | Failure::NotUnderstood { .. }
            | Failure::DesignSpec(_)
            | Failure::Proxy(
                ProxyError::Origin { .. }
                | ProxyError::Name(_)
                | ProxyError::NotLoopback { .. }
                | ProxyError::NoCertificate
                | ProxyError::RuleInForward
                | ProxyError::TrustInForward
                | ProxyError::HealthPath(_)
                | ProxyError::TargetsOverHeaders { .. }
                | ProxyError::Inherited { .. },
            ) => 2,
            Failure::Sim(
                SimError::Policy { .. } | SimError::Parameter { .. } | SimError::Size { .. },
            ) => 2,
            Failure::Trace(
                TraceError::FormatName { .. }
                | TraceError::Columns { .. }
                | TraceError::NoColumns { .. }
                | TraceError::NoUnit { .. }
                | TraceError::NoFile { .. }
                | TraceError::Generator { .. },
            ) => 2,
            Failure::Drive(DriveError::Unknown { .. }) => 2,
            Failure::Paper(PaperError::ScaledTooFar { .. }) => 2,
            Failure::Open { .. }
            | Failure::OpenWithout { .. }
            | Failure::NotOurs { .. }
            | Failure::Exists { .. } => 3,
            failure if failure.is_unread() => 0,
            _ => 4,
        }
    }

    /// Whether it is only that nobody reads what is written, as with `... | head`.
    pub(crate) fn is_unread(&self) -> bool {
        match self {
            Failure::Io { source, .. } | Failure::Trace(TraceError::Write { source, .. }) => {
                source.kind() == io::ErrorKind::BrokenPipe
            }
            _ => false,
        }
    }

    /// What a person can do about it, if there is anything to say beyond the error itself.
    fn advice(&self) -> Option<String> {
        match self {
            Failure::Open { source: damelo::OpenError::Missing { path }, .. } => {
                Some(format!("`damelo format {} --size 20GiB`", path.display()))
            }
            Failure::OpenWithout { path, source: damelo::OpenError::VolumeMissing { path: missing } }
                if path != missing =>
            {
                Some(
                    "add --without-missing, if the others are to do; nothing of it is lost by `stat`, `ls` and `get`"
                        .to_owned(),
                )
            }
            // Of several volumes all have to be named, which is why none is here.
            Failure::Open {
                source: damelo::OpenError::Version { .. } | damelo::OpenError::Damaged { .. },
                ..
            } => Some(
                "`damelo format PATH --size SIZE --force` makes it anew; what it held can be fetched again"
                    .to_owned(),
            ),
            Failure::NotOurs { path } => {
                let is_device = path.metadata().is_ok_and(|m| m.file_type().is_block_device());
                Some(of_other_data(path, is_device))
            }
            Failure::Exists { .. } => Some(
                "choose another path, or add --force to lose what is there now".to_owned(),
            ),
            Failure::Damaged { .. } => Some(
                "nothing wrong is ever served: damaged objects read as misses and are fetched again; \
                 see the lines above for where"
                    .to_owned(),
            ),
            Failure::Proxy(ProxyError::Origin { .. })
            | Failure::Reload(ProxyError::Origin { .. }) => Some(
                "write http://HOST[:PORT], https://HOST[:PORT], unix:/PATH or demo".to_owned(),
            ),
            Failure::Proxy(ProxyError::Inherited { .. }) => {
                Some("add it to `listen` in the settings, or have the supervisor hand it to nobody".to_owned())
            }
            Failure::Proxy(ProxyError::Listen { key, source, .. }) => of_listening(key, source),
            Failure::Proxy(ProxyError::ListenUnix { source, .. }) => of_unix_socket(source),
            Failure::Admin(AdminError::Connect { .. } | AdminError::Protocol { .. }) => Some(
                "say where its admin listener is with --admin; `damelo proxy` prints it at start"
                    .to_owned(),
            ),
            Failure::Proxy(ProxyError::NotLoopback { .. }) => Some(
                "add --remote, and --rule for each who may use it, or listen on 127.0.0.1".to_owned(),
            ),
            Failure::Create(_) => {
                Some("`damelo put --help` lists what the store takes".to_owned())
            }
            Failure::Trace(error) => of_trace(error),
            Failure::NotFound { .. } => Some("`damelo ls PATH` lists what there is".to_owned()),
            Failure::Design {
                is_unlimited: true,
                source: MachineError::FsFull(_) | MachineError::BeyondDisk { .. },
                ..
            } => Some(
                "leave it out, or use a larger drive: it keeps all that it is asked for, and no --cache limits it"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    /// The message with its causes, in a line.
    pub(crate) fn line(&self) -> String {
        let mut line = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let more = error.to_string();
            // Some errors tell their cause themselves.
            if !line.contains(&more) {
                line = format!("{line}: {more}");
            }
            cause = error.source();
        }
        line
    }

    /// The message with its causes and advice, ready for stderr.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("damelo: {self}\n");
        let mut cause = self.source();
        while let Some(error) = cause {
            let more = error.to_string();
            // Some errors tell their cause themselves.
            if !text.contains(&more) {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "  because: {more}");
            }
            cause = error.source();
        }
        if let Some(advice) = self.advice() {
            let _ = writeln!(text, "  try: {advice}");
        }
        text
    }

    /// Prints the failure on stderr, unless it is only a reader that went away (`... | head`).
    pub(crate) fn print(&self) {
        if !self.is_unread() {
            // That nobody listens changes nothing about the exit code.
            let _ = io::stderr().lock().write_all(self.text().as_bytes());
        }
    }
}

/// What to do about a path that holds something else. A device is not to be removed, and has a size
/// of its own.
fn of_other_data(path: &Path, is_device: bool) -> String {
    let (size, or) = if is_device { ("SIZE", "name another") } else { ("20GiB", "remove it") };
    let format = format!("`damelo format {} --size {size} --force`", path.display());
    format!("{format} to lose what is there now, or {or}")
}

/// What helps who cannot read a trace.
fn of_trace(error: &TraceError) -> Option<String> {
    match error {
        TraceError::Malformed { reason: BadRecord::NotSeconds { .. }, .. } => {
            Some("add --time-unit ms, us or ns; or s, if they are seconds all the same".to_owned())
        }
        TraceError::Malformed { doubted: Some(format), .. } => Some(format!(
            "it was read as {format}: if it is of another form, name that with --format, its \
             columns with -t; if only this line is broken, add --skip-bad"
        )),
        TraceError::AllMalformed { .. } => Some(
            "name another form with --format, its columns with -t time-col=..,obj-id-col=..,\
             obj-size-col=.. (`damelo lab --help` lists the forms)"
                .to_owned(),
        ),
        TraceError::Json { .. } => Some(
            "make columns of it, as by jq -r '[.time,.url,.bytes]|@csv', and name them with -t \
             time-col=1,obj-id-col=2,obj-size-col=3; of damelo's own log use log.format = \
             \"squid\""
                .to_owned(),
        ),
        TraceError::Malformed { .. } => {
            Some("add --skip-bad to leave such lines out, and have them counted".to_owned())
        }
        _ => None,
    }
}

/// What to do about an address that cannot be listened on; `key` names it, as does the flag of its
/// table's name or its own.
fn of_listening(key: &str, source: &io::Error) -> Option<String> {
    let why = match (source.kind(), source.raw_os_error()) {
        (io::ErrorKind::PermissionDenied, _) => {
            return Some(
                "ports below 1024 want root, CAP_NET_BIND_SERVICE or a socket handed down: \
                 packaging/damelo.service shows how"
                    .to_owned(),
            );
        }
        (_, Some(libc::EMFILE | libc::ENFILE)) => {
            return Some(
                "raise the limit on open files with `ulimit -n` or LimitNOFILE=".to_owned(),
            );
        }
        (io::ErrorKind::AddrInUse, _) => "another program has that address",
        (io::ErrorKind::AddrNotAvailable, _) => "this machine has no such address",
        _ => return None,
    };
    let flag = key.split('.').next().unwrap_or(key);
    Some(format!("{why}: choose one with --{flag}, or `{key}` in the settings"))
}

/// What to do about a Unix socket that cannot be made.
fn of_unix_socket(source: &io::Error) -> Option<String> {
    let advice = match source.kind() {
        io::ErrorKind::NotFound => "create its directory, or choose another path",
        io::ErrorKind::PermissionDenied => {
            "let this user write to its directory, or choose another path"
        }
        io::ErrorKind::AddrInUse => {
            "another program listens there, or a file lies there: choose another path"
        }
        _ => return None,
    };
    Some(advice.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_the_cause_and_the_way_out() {
        let failure = Failure::io("read `x`", io::Error::other("disk on fire"));
        assert_eq!(failure.text(), "damelo: cannot read `x`\n  because: disk on fire\n");
        let path = PathBuf::from("x");
        let source = io::Error::other("it is a dangling link");
        let source =
            damelo::device::DeviceOpenError::Io { path: path.clone(), doing: "open it", source };
        let failure = Failure::Open { path, source: source.into() };
        assert_eq!(failure.text().matches("dangling").count(), 1, "{}", failure.text());
        assert!(Failure::NotFound { key: "k".into() }.text().contains("try: `damelo ls"));
    }

    #[test]
    fn a_listener_that_cannot_be_is_named() {
        let text = |number| {
            let source = io::Error::from_raw_os_error(number);
            let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
            Failure::Proxy(ProxyError::Listen { address, key: "admin.from", source }).text()
        };
        let said = text(libc::EADDRINUSE);
        let both = "another program has that address: choose one with --admin, or `admin.from` in";
        assert!(said.contains(both), "{said}");
        assert!(text(libc::EADDRNOTAVAIL).contains("no such address: choose one with --admin"));
        assert!(text(libc::EMFILE).contains("ulimit -n"));
        assert!(text(libc::EACCES).contains("ports below 1024"));
        assert!(!text(libc::EAFNOSUPPORT).contains("try:"));
        let text = |number| {
            let source = io::Error::from_raw_os_error(number);
            Failure::Proxy(ProxyError::ListenUnix { path: "/run/x".into(), source }).text()
        };
        assert!(text(libc::ENOENT).contains("try: create its directory"), "{}", text(libc::ENOENT));
        assert!(text(libc::EADDRINUSE).contains("try: another program listens there, or a file"));
        assert!(text(libc::EACCES).contains("try: let this user write to its directory"));
        assert!(!text(libc::EAFNOSUPPORT).contains("try:"));
    }

    #[test]
    fn a_device_is_not_to_be_removed() {
        let said = |is_device| of_other_data(Path::new("x"), is_device);
        assert!(
            said(false).ends_with("--size 20GiB --force` to lose what is there now, or remove it")
        );
        assert!(
            said(true).ends_with("--size SIZE --force` to lose what is there now, or name another")
        );
    }

    #[test]
    fn a_store_that_has_to_be_made_anew_comes_with_the_command() {
        let path = PathBuf::from("old.store");
        let version = damelo::OpenError::Version { path: path.clone(), found: 2, expected: 3 };
        let reason = "checksum".to_owned();
        let damaged = damelo::OpenError::Damaged { path: path.clone(), reason };
        for source in [version, damaged] {
            let text = Failure::Open { path: path.clone(), source }.text();
            assert!(text.contains("try: `damelo format PATH --size SIZE --force`"), "{text}");
        }
    }

    #[test]
    fn exit_codes_are_the_documented_ones() {
        assert_eq!(Failure::NotFound { key: String::new() }.exit_code(), 1);
        assert_eq!(Failure::Usage(String::new()).exit_code(), 2);
        for settings in [ProxyError::NoCertificate, ProxyError::TrustInForward] {
            assert_eq!(Failure::Proxy(settings).exit_code(), 2);
        }
        let (design, source) = ("ucfs".to_owned(), MachineError::Missing { what: "raw disk" });
        let failure = Failure::Design { design, is_unlimited: false, source };
        assert_eq!(failure.line().matches("raw disk").count(), 1);
        assert_eq!(failure.exit_code(), 4);
        assert_eq!(Failure::SomeDesigns { failed: 1, asked: 2 }.exit_code(), 4);
        let unknown = damelo_lab::disk::Drive::open("no-such-drive").map(|_| ());
        assert_eq!(unknown.map_err(|e| Failure::from(e).exit_code()), Err(2));
        assert_eq!(Failure::Exists { path: PathBuf::new() }.exit_code(), 3);
        assert_eq!(Failure::io("", io::Error::other("")).exit_code(), 4);
        assert_eq!(Failure::io("", io::ErrorKind::BrokenPipe.into()).exit_code(), 0);
    }
}

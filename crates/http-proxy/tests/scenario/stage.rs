//! Plays a script: an origin that does what the script says at the moment, a proxy of its own, a
//! clock that the script moves, clients over real sockets.
//!
//! Threads: the proxy's, one for each connection to the origin, one for each request that was
//! begun.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, UNIX_EPOCH};

use damelo::Clock as _;
use damelo_http_proxy::{OriginTarget, Settings};

use crate::script::{Action, Ask, Fields, Mistake, OriginAnswer, Script, Wish};
use crate::support::{Home, Message, PATIENCE, Proxy, TestClock, ask_at, read_message};

/// When every script begins: some day, not today, so that a look at the system's clock shows.
const BEGIN_UNIX_S: u64 = 1_700_000_000;

/// What the origin does now, and what it was asked.
#[derive(Default)]
struct Manner {
    answers: OriginAnswer,
    validates: Option<OriginAnswer>,
    gone: bool,
    holds: bool,
    asked: Vec<Message>,
}

struct Origin {
    address: SocketAddr,
    manner: Mutex<Manner>,
    changed: Condvar,
    clock: Arc<TestClock>,
}

impl Origin {
    fn start(clock: &Arc<TestClock>) -> Arc<Origin> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        let (manner, changed) = (Mutex::default(), Condvar::new());
        let origin = Arc::new(Origin { address, manner, changed, clock: clock.clone() });
        let serving = origin.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let origin = serving.clone();
                std::thread::spawn(move || origin.serve(stream));
            }
        });
        origin
    }

    fn change(&self, change: impl FnOnce(&mut Manner)) {
        change(&mut self.manner.lock().expect("lock"));
        self.changed.notify_all();
    }

    fn count(&self) -> usize {
        self.manner.lock().expect("lock").asked.len()
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("clone"));
        // One request to a connection: none is sent again because a kept one has gone stale.
        let Some(request) = read_message(&mut reader, false) else { return };
        let Some(answer) = self.answer(&request) else { return };
        // A proxy that has gone away shows in what clients get.
        let _ = write_answer(&mut stream, &request, &answer, self.clock.unix_seconds());
    }

    /// None: the connection is to be closed.
    fn answer(&self, request: &Message) -> Option<OriginAnswer> {
        let mut manner = self.manner.lock().expect("lock");
        // Also if it is gone: what a proxy asks of the dead, it asks.
        manner.asked.push(request.clone());
        self.changed.notify_all();
        if manner.gone {
            return None;
        }
        let waited = self.changed.wait_timeout_while(manner, PATIENCE, |manner| manner.holds);
        let manner = waited.expect("lock").0;
        let conditional = request.has("if-none-match") || request.has("if-modified-since");
        let validates = manner.validates.as_ref().filter(|_| conditional);
        (!manner.gone).then(|| validates.unwrap_or(&manner.answers).clone())
    }

    fn wait_asked(&self, count: usize) -> Result<(), String> {
        let manner = self.manner.lock().expect("lock");
        let few = |manner: &mut Manner| manner.asked.len() < count;
        let waited = self.changed.wait_timeout_while(manner, PATIENCE, few).expect("lock").0;
        let asked = waited.asked.len();
        if asked == count { Ok(()) } else { Err(format!("it was asked {asked} times")) }
    }

    fn saw(&self, name: &str, wanted: Option<&String>) -> Result<(), String> {
        let manner = self.manner.lock().expect("lock");
        let last = manner.asked.last().ok_or("it was asked nothing")?;
        check_field(last, name, wanted)
    }
}

fn write_answer(
    stream: &mut TcpStream,
    request: &Message,
    answer: &OriginAnswer,
    now_s: u64,
) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} X\r\n", answer.status);
    for (name, value) in &answer.fields {
        let _ = write!(head, "{name}: {}\r\n", dated(value, now_s));
    }
    let bodyless = matches!(answer.status, 204 | 304);
    if !bodyless {
        let _ = write!(head, "Content-Length: {}\r\n", answer.body.len());
    }
    head.push_str("Connection: close\r\n\r\n");
    if !bodyless && request.method() != "HEAD" {
        head.push_str(&answer.body);
    }
    stream.write_all(head.as_bytes())
}

/// `{-5}` is the date of five seconds ago.
fn dated(value: &str, now_s: u64) -> String {
    let offset = value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match offset.and_then(|offset| offset.parse::<i64>().ok()) {
        Some(offset) => {
            let then = Duration::from_secs(now_s.wrapping_add_signed(offset));
            httpdate::fmt_http_date(UNIX_EPOCH + then)
        }
        None => value.to_owned(),
    }
}

/// Plays a script on a stage of its own.
pub(crate) fn play(script: &Script) -> Result<(), Mistake> {
    let clock = Arc::new(TestClock::at(BEGIN_UNIX_S));
    let origin = Origin::start(&clock);
    let home = Home::new();
    let proxy = start_proxy(script, &home, &origin, &clock)?;
    let mut stage = Stage { origin, clock, proxy, begun: HashMap::new() };
    for step in &script.steps {
        stage.act(&step.action).map_err(|why| (step.line, why))?;
    }
    // A proxy that panicked fails the script as it ends, here.
    drop(stage);
    Ok(())
}

fn start_proxy(
    script: &Script,
    home: &Home,
    origin: &Origin,
    clock: &Arc<TestClock>,
) -> Result<Proxy, Mistake> {
    let mut settings = Settings::default();
    let mut rules = String::new();
    for step in &script.steps {
        let line = step.line;
        match &step.action {
            Action::Set(setting) => settings.set(setting).map_err(|why| (line, why))?,
            Action::Rule(keys) => {
                rules.push_str("[[rule]]\n");
                keys.iter()
                    .for_each(|(name, value)| rules.push_str(&format!("{name} = {value}\n")));
                let parsed = Settings::parse(&rules).map_err(|why| (line, format!("{why:?}")))?;
                settings.proxy.ruleset = parsed.proxy.ruleset;
            }
            _ => {}
        }
    }
    let to = OriginTarget::Url(format!("http://{}", origin.address));
    Ok(Proxy::start_in(home, to, |config| {
        let usual = std::mem::replace(config, settings.proxy);
        (config.from, config.to, config.workers) = (usual.from, usual.to, usual.workers);
        (config.admin.from, config.timeouts.drain) = (usual.admin.from, usual.timeouts.drain);
        config.clock = clock.clone();
    }))
}

struct Stage {
    origin: Arc<Origin>,
    clock: Arc<TestClock>,
    proxy: Proxy,
    begun: HashMap<String, JoinHandle<Message>>,
}

impl Stage {
    fn act(&mut self, action: &Action) -> Result<(), String> {
        let origin = &self.origin;
        match action {
            Action::Set(_) | Action::Rule(_) => {}
            Action::Answers(answer) => origin.change(|manner| manner.answers = answer.clone()),
            Action::Validates(answer) => {
                origin.change(|manner| manner.validates = Some(answer.clone()));
            }
            Action::Gone(gone) => origin.change(|manner| manner.gone = *gone),
            Action::Holds(holds) => origin.change(|manner| manner.holds = *holds),
            Action::WasAsked(count) => origin.wait_asked(*count)?,
            Action::Waiting(count) => self.wait_for_waiting(*count)?,
            Action::Saw(name, wanted) => origin.saw(name, wanted.as_ref())?,
            Action::Wait(millis) => self.clock.pass_millis(*millis),
            Action::Request { ask, soon, wishes } => self.request(ask, *soon, wishes)?,
            Action::Begin(name, ask) => {
                let (address, ask) = (self.proxy.info.address, ask.clone());
                self.begun.insert(name.clone(), std::thread::spawn(move || send(address, &ask)));
            }
            Action::End(name, wishes) => {
                let begun = self.begun.remove(name).ok_or("nothing was begun by this name")?;
                let answer = begun.join().map_err(|_| "no answer")?;
                self.check(&answer, wishes)?;
            }
        }
        Ok(())
    }

    fn wait_for_waiting(&self, count: u64) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let waiting = self.proxy.metric("damelo_proxy_collapsed_waiting");
            if waiting == count {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("{waiting} wait"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn request(&self, ask: &Ask, soon: bool, wishes: &[Wish]) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let checked = self.check(&send(self.proxy.info.address, ask), wishes);
            if checked.is_ok() || !soon || start.elapsed() > PATIENCE {
                return checked;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn check(&self, answer: &Message, wishes: &[Wish]) -> Result<(), String> {
        if wishes.is_empty() {
            return Err("nothing is said of its answer".to_owned());
        }
        for wish in wishes {
            let kept = match wish {
                Wish::Status(status) => answer.status() == *status,
                Wish::Body(body) => answer.complete && answer.text() == *body,
                Wish::Age(age) => answer.age() == *age && answer.has("age") == age.is_some(),
                Wish::Asked(count) => self.origin.count() == *count,
                Wish::Field(name, wanted) => {
                    check_field(answer, name, wanted.as_ref())?;
                    true
                }
                Wish::Parameter(word, there) => has_parameter(answer, word) == *there,
            };
            if !kept {
                let (count, text) = (self.origin.count(), answer.text());
                return Err(format!(
                    "wanted {wish:?}; got {}, {:?}, body {text:?}, origin asked {count} times",
                    answer.line, answer.headers
                ));
            }
        }
        Ok(())
    }
}

fn send(address: SocketAddr, ask: &Ask) -> Message {
    let lines = |fields: &Fields| {
        let line = |(name, value): &(String, String)| format!("{name}: {value}\n");
        fields.iter().map(line).collect::<String>()
    };
    ask_at(address, &ask.method, &ask.path, &lines(&ask.fields), b"")
}

/// Whether the proxy's own member of `Cache-Status` has this parameter.
fn has_parameter(answer: &Message, word: &str) -> bool {
    let cache = answer.cache();
    let own = cache.rsplit(", ").next().unwrap_or_default();
    own.split(';').any(|parameter| parameter.trim() == word)
}

fn check_field(message: &Message, name: &str, wanted: Option<&String>) -> Result<(), String> {
    let (value, there) = (message.header(name), message.has(name));
    match wanted {
        Some(wanted) if there && value == *wanted => Ok(()),
        None if !there => Ok(()),
        _ => Err(format!("{name} is {value:?}, there: {there}, in {:?}", message.headers)),
    }
}

//! The language of scenario scripts. A line is a step; indented lines belong to the step above.
//!
//! ```text
//! # Why.
//! set KEY=VALUE                 a key of the configuration file; before the first request
//! rule                          a rule of it, with its keys in the indented lines, `NAME: VALUE`
//! origin 200 BODY               what the origin answers from now on, with the indented headers;
//!     Date: {-5}                {N} becomes the date N seconds from the moment of answering
//! validated 304                 what it answers to If-None-Match and If-Modified-Since instead
//! origin gone                   it closes connections; `origin back` ends that
//! origin holds                  it takes requests, and answers once `origin goes on`
//! origin was asked 2            waits until it has been asked so often in all
//! 2 wait                        waits until so many requests wait for another's to come back
//! origin saw NAME VALUE         in the request before; `origin saw no NAME`
//! wait 30                       the clock moves, and only here; also `wait 30ms`
//! GET /path                     a request with the indented headers, then what must come back:
//!     -> 200, body BODY, hit, ttl=5, age 25, asked 1
//! soon GET /path                the same, repeated until it comes back so
//! begin NAME GET /path          a request whose answer is looked at by `end NAME`
//! ```
//!
//! After `->`: a status; `body`; `age N` or `no age`; `asked N`, how often the origin was asked in
//! all; `field NAME VALUE`, `no field NAME`; and parameters of `Cache-Status`, each as it stands
//! there or with `not` before it. No threads.

/// Where a script is wrong, and why.
pub(crate) type Mistake = (usize, String);

/// Header lines as they were written.
pub(crate) type Fields = Vec<(String, String)>;

#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) line: usize,
    pub(crate) action: Action,
}

/// What the origin sends.
#[derive(Debug, Clone, Default)]
pub(crate) struct OriginAnswer {
    pub(crate) status: u16,
    pub(crate) body: String,
    pub(crate) fields: Fields,
}

#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) fields: Fields,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wish {
    Status(u16),
    Body(String),
    Age(Option<u64>),
    Asked(usize),
    Field(String, Option<String>),
    Parameter(String, bool),
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    Set(String),
    Rule(Fields),
    Answers(OriginAnswer),
    Validates(OriginAnswer),
    Gone(bool),
    Holds(bool),
    WasAsked(usize),
    Waiting(u64),
    Saw(String, Option<String>),
    Wait(u64),
    Request { ask: Ask, soon: bool, wishes: Vec<Wish> },
    Begin(String, Ask),
    End(String, Vec<Wish>),
}

impl Script {
    pub(crate) fn parse(text: &str) -> Result<Script, Mistake> {
        let mut script = Script::default();
        for (index, line) in text.lines().enumerate() {
            let wrong = |why: &str| (index + 1, format!("{why}: `{}`", line.trim()));
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with(' ') {
                let step = script.steps.last_mut().ok_or_else(|| wrong("nothing above"))?;
                step.action.belongs(line.trim()).ok_or_else(|| wrong("not understood"))?;
                continue;
            }
            let action = Action::parse(line.trim()).ok_or_else(|| wrong("not understood"))?;
            script.steps.push(Step { line: index + 1, action });
        }
        Ok(script)
    }
}

impl Action {
    fn parse(line: &str) -> Option<Action> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match (verb, rest) {
            ("set", setting) => Action::Set(setting.to_owned()),
            ("rule", "") => Action::Rule(Fields::new()),
            ("origin", "gone") => Action::Gone(true),
            ("origin", "back") => Action::Gone(false),
            ("origin", "holds") => Action::Holds(true),
            ("origin", "goes on") => Action::Holds(false),
            ("origin", rest) => match rest.split_once(' ') {
                Some(("was", count)) => {
                    Action::WasAsked(count.strip_prefix("asked ")?.parse().ok()?)
                }
                Some(("saw", what)) => saw(what)?,
                _ => Action::Answers(answer(rest)?),
            },
            ("validated", rest) => Action::Validates(answer(rest)?),
            ("wait", time) => Action::Wait(time_ms(time)?),
            ("soon", rest) => Action::Request { ask: ask(rest)?, soon: true, wishes: Vec::new() },
            ("begin", rest) => {
                let (name, rest) = rest.split_once(' ')?;
                Action::Begin(name.to_owned(), ask(rest)?)
            }
            (count, "wait") => Action::Waiting(count.parse().ok()?),
            ("end", name) => Action::End(name.to_owned(), Vec::new()),
            _ => Action::Request { ask: ask(line)?, soon: false, wishes: Vec::new() },
        })
    }

    /// Takes an indented line.
    fn belongs(&mut self, line: &str) -> Option<()> {
        if let Some(wanted) = line.strip_prefix("->") {
            let (Action::Request { wishes, .. } | Action::End(_, wishes)) = self else {
                return None;
            };
            for wish in wanted.split(',') {
                wishes.push(Wish::parse(wish.trim())?);
            }
            return Some(());
        }
        let (name, value) = line.split_once(':')?;
        let fields = match self {
            Action::Answers(answer) | Action::Validates(answer) => &mut answer.fields,
            Action::Request { ask, .. } | Action::Begin(_, ask) => &mut ask.fields,
            Action::Rule(fields) => fields,
            _ => return None,
        };
        fields.push((name.to_owned(), value.trim().to_owned()));
        Some(())
    }
}

fn time_ms(text: &str) -> Option<u64> {
    match text.strip_suffix("ms") {
        Some(millis) => millis.parse().ok(),
        None => text.parse::<u64>().ok()?.checked_mul(1000),
    }
}

fn answer(text: &str) -> Option<OriginAnswer> {
    let (status, body) = text.split_once(' ').unwrap_or((text, ""));
    let status = status.parse().ok()?;
    Some(OriginAnswer { status, body: body.to_owned(), fields: Vec::new() })
}

fn ask(text: &str) -> Option<Ask> {
    let (method, path) = text.split_once(' ')?;
    let upper = method.bytes().all(|byte| byte.is_ascii_uppercase());
    let whole = upper && path.starts_with('/') && !path.contains(' ');
    whole.then(|| Ask { method: method.to_owned(), path: path.to_owned(), fields: Vec::new() })
}

fn saw(text: &str) -> Option<Action> {
    Some(match text.split_once(' ')? {
        ("no", name) => Action::Saw(name.to_owned(), None),
        (name, value) => Action::Saw(name.to_owned(), Some(value.to_owned())),
    })
}

impl Wish {
    fn parse(text: &str) -> Option<Wish> {
        // What Cache-Status can say; anything else is a slip of the pen.
        const WORDS: [&str; 10] = [
            "hit",
            "stored",
            "collapsed",
            "fwd=uri-miss",
            "fwd=vary-miss",
            "fwd=miss",
            "fwd=request",
            "fwd=stale",
            "fwd=method",
            "fwd=bypass",
        ];
        if let Ok(status) = text.parse() {
            return Some(Wish::Status(status));
        }
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        Some(match (verb, rest) {
            ("body", body) => Wish::Body(body.to_owned()),
            ("age", age) => Wish::Age(Some(age.parse().ok()?)),
            ("no", "age") => Wish::Age(None),
            ("asked", count) => Wish::Asked(count.parse().ok()?),
            ("field", rest) => {
                let (name, value) = rest.split_once(' ')?;
                Wish::Field(name.to_owned(), Some(value.to_owned()))
            }
            ("no", rest) => Wish::Field(rest.strip_prefix("field ")?.to_owned(), None),
            ("not", word) if WORDS.contains(&word) => Wish::Parameter(word.to_owned(), false),
            (word, "")
                if WORDS.contains(&word)
                    || ["ttl=", "fwd-status=", "detail="].iter().any(|p| word.starts_with(p)) =>
            {
                Wish::Parameter(word.to_owned(), true)
            }
            _ => return None,
        })
    }
}

//! Patterns of rules: `*` within a segment, `**` for anything, `?`, `[a-z]`, `{a,b}`.
//!
//! Invariants: a pattern that cannot match anything sensible is refused when it is parsed; text is
//! bytes, since clients send text that is not UTF-8; matching time is bounded by text length times
//! pattern length, because no position is tried twice for the same `*`. Pure, no threads.

/// Longest pattern: matching time grows with it.
const PATTERN_BYTES_MAX: usize = 1024;

/// Maximum number of alternatives that the braces of one pattern expand to.
const ALTERNATIVES_MAX: usize = 256;

/// Whether the text has segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Segments {
    /// Slashes separate segments: paths and media types. `*` stays within one segment.
    BySlash,
    /// No segments, as in header values: a slash is an ordinary character.
    None,
}

/// A pattern, which must match the whole text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob {
    /// One per expansion of the braces; any of them may match.
    alternatives: Vec<Alternative>,
    segments: Segments,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Alternative {
    tokens: Vec<Token>,
    /// What the text must begin with: the first `literal_tokens` of them. Most rules of many are
    /// for other paths, which this shows at once.
    literal: Box<[u8]>,
    literal_tokens: usize,
    /// What the rest must end with, such as `.png`: of a path that begins with `**` this is all
    /// that shows at once.
    tail: Box<[u8]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Char(char),
    /// `?`
    One,
    /// `[a-z]`
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// `*`
    Star,
    /// `**`
    Anything,
    /// `**/` at the start of a segment: any number of whole segments, including none.
    Directories,
}

impl Glob {
    pub(crate) fn new(pattern: &str, segments: Segments) -> Result<Glob, String> {
        if pattern.is_empty() || pattern.len() > PATTERN_BYTES_MAX {
            return Err(format!("a pattern has 1 to {PATTERN_BYTES_MAX} characters"));
        }
        let mut choices = Vec::new();
        expand(pattern, &mut choices).map_err(|why| format!("\"{pattern}\": {why}"))?;
        let alternatives = choices
            .iter()
            .map(|choice| tokens(choice).map(Alternative::new))
            .collect::<Result<_, _>>()
            .map_err(|why| format!("\"{pattern}\": {why}"))?;
        Ok(Glob { alternatives, segments })
    }

    /// Whether one of its alternatives begins with a character that is written out, and is not
    /// this; a leading `*` stands for nothing where this is what it cannot stand for.
    pub(crate) fn begins_with_other_than(&self, wanted: char) -> bool {
        let excluded = self.segments == Segments::BySlash && wanted == '/';
        let begins = |Alternative { tokens, .. }: &Alternative| {
            let mut rest = tokens.iter().skip_while(|token| excluded && **token == Token::Star);
            match rest.next() {
                Some(Token::Char(first)) => *first != wanted,
                Some(_) => false,
                None => !tokens.is_empty(),
            }
        };
        self.alternatives.iter().any(begins)
    }

    /// Whether one of its alternatives matches no text that has this character.
    pub(crate) fn lacks(&self, wanted: char) -> bool {
        let may_be = |token: &Token| match token {
            Token::Char(c) => *c == wanted,
            Token::Class { .. } | Token::Anything | Token::Directories => true,
            Token::One | Token::Star => self.segments == Segments::None || wanted != '/',
        };
        self.alternatives.iter().any(|one| !one.tokens.iter().any(may_be))
    }

    /// All texts that it matches, if it has no wildcards.
    pub(crate) fn literals(&self) -> Option<impl Iterator<Item = &[u8]>> {
        let is_literal = |one: &Alternative| one.literal_tokens == one.tokens.len();
        self.alternatives
            .iter()
            .all(is_literal)
            .then(|| self.alternatives.iter().map(|one| &*one.literal))
    }

    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        self.alternatives.iter().any(|one| one.matches(text, self.segments))
    }
}

impl Alternative {
    fn new(tokens: Vec<Token>) -> Alternative {
        let literal_tokens = tokens.iter().map_while(Token::literal).count();
        let literal: String = tokens.iter().map_while(Token::literal).collect();
        let mut tail: Vec<char> =
            tokens[literal_tokens..].iter().rev().map_while(Token::literal).collect();
        tail.reverse();
        let tail = String::from_iter(tail);
        Alternative {
            tokens,
            literal: literal.into_bytes().into(),
            literal_tokens,
            tail: tail.into_bytes().into(),
        }
    }

    fn matches(&self, text: &[u8], segments: Segments) -> bool {
        text.strip_prefix(&*self.literal).is_some_and(|rest| {
            rest.ends_with(&self.tail)
                && whole(&self.tokens[self.literal_tokens..], rest, segments, |_| ())
        })
    }
}

/// Position of the first character of `text` that is in `wanted` and is neither escaped nor within
/// brackets or braces.
fn find_bare(text: &str, wanted: &[char]) -> Option<usize> {
    let (mut escaped, mut bracket, mut depth) = (false, false, 0_u32);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if bracket => bracket = c != ']',
            _ if depth == 0 && wanted.contains(&c) => return Some(at),
            '[' => bracket = true,
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Expands the braces of a pattern into all choices.
fn expand(pattern: &str, choices: &mut Vec<String>) -> Result<(), &'static str> {
    let Some(open) = find_bare(pattern, &['{']) else {
        if choices.len() == ALTERNATIVES_MAX {
            return Err("its braces leave too many choices");
        }
        choices.push(pattern.to_owned());
        return Ok(());
    };
    let (head, rest) = (&pattern[..open], &pattern[open + 1..]);
    let close = find_bare(rest, &['}']).ok_or("a `{` is not closed")?;
    let (mut inner, tail) = (&rest[..close], &rest[close + 1..]);
    loop {
        let comma = find_bare(inner, &[',']);
        let choice = &inner[..comma.unwrap_or(inner.len())];
        expand(&format!("{head}{choice}{tail}"), choices)?;
        match comma {
            Some(comma) => inner = &inner[comma + 1..],
            None => return Ok(()),
        }
    }
}

fn tokens(pattern: &str) -> Result<Vec<Token>, &'static str> {
    let mut tokens = Vec::new();
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        let begins_segment =
            matches!(tokens.last(), None | Some(Token::Char('/') | Token::Directories));
        rest = &rest[c.len_utf8()..];
        let token = match c {
            '*' if !rest.starts_with('*') => Token::Star,
            '*' => {
                rest = rest.trim_start_matches('*');
                match rest.strip_prefix('/') {
                    Some(behind) if begins_segment => {
                        rest = behind;
                        Token::Directories
                    }
                    _ => Token::Anything,
                }
            }
            '?' => Token::One,
            '[' => class(&mut rest)?,
            '\\' => {
                let c = rest.chars().next().ok_or("nothing follows its last `\\`")?;
                rest = &rest[c.len_utf8()..];
                Token::Char(c)
            }
            c => Token::Char(c),
        };
        tokens.push(token);
    }
    Ok(tokens)
}

/// Parses a class, behind its `[`.
fn class(rest: &mut &str) -> Result<Token, &'static str> {
    const OPEN: &str = "a `[` is not closed";
    let negated = rest.starts_with(['!', '^']);
    let mut chars = rest.char_indices().skip(usize::from(negated)).peekable();
    let mut ranges = Vec::new();
    loop {
        let (at, c) = chars.next().ok_or(OPEN)?;
        // As in shells, a leading `]` is one of the characters.
        if c == ']' && !ranges.is_empty() {
            *rest = &rest[at + 1..];
            return Ok(Token::Class { negated, ranges });
        }
        let first = if c == '\\' { chars.next().ok_or(OPEN)?.1 } else { c };
        let mut last = first;
        let mut ahead = chars.clone();
        if let (Some((_, '-')), Some((_, end))) = (ahead.next(), ahead.next())
            && end != ']'
        {
            last = if end == '\\' { ahead.next().ok_or(OPEN)?.1 } else { end };
            chars = ahead;
        }
        ranges.push((first, last));
    }
}

/// The first character and its length. A byte that is not UTF-8 counts as one character.
fn first_char(text: &[u8]) -> Option<(char, usize)> {
    let length = match text.first()? {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        ascii @ ..0x80 => return Some((char::from(*ascii), 1)),
        _ => 1,
    };
    let whole = text.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok());
    Some(
        whole
            .and_then(|text| text.chars().next())
            .map_or((char::REPLACEMENT_CHARACTER, 1), |c| (c, c.len_utf8())),
    )
}

impl Token {
    /// The character that it stands for, whose bytes the text must have.
    fn literal(&self) -> Option<char> {
        match self {
            // That one stands for bytes that are no UTF-8, too.
            Token::Char(c) if *c != char::REPLACEMENT_CHARACTER => Some(*c),
            _ => None,
        }
    }

    /// Bytes of the text that this token matches, if it matches exactly one character and that one
    /// fits.
    fn takes(&self, text: &[u8], segments: Segments) -> Option<usize> {
        let (c, length) = first_char(text)?;
        let parts = segments == Segments::BySlash && c == '/';
        let is_it = match self {
            Token::Char(wanted) => *wanted == c,
            Token::One => !parts,
            Token::Class { negated, ranges } => {
                !parts
                    && ranges.iter().any(|(first, last)| (first..=last).contains(&&c)) != *negated
            }
            Token::Star | Token::Anything | Token::Directories => false,
        };
        is_it.then_some(length)
    }
}

/// A position to resume from if the rest does not match.
#[derive(Clone, Copy)]
struct Retry {
    /// First token behind the `*` or `**`.
    token: usize,
    /// Position in the text where these were last tried.
    at: usize,
}

/// Whether the tokens match the whole text. Each `*` and `**` matches as little as possible first.
/// Only the last one of each kind is retried: anything that an earlier one could match in addition,
/// the later one could match as well. `looks` hears how many bytes of the text were looked at.
fn whole(tokens: &[Token], text: &[u8], segments: Segments, mut looks: impl FnMut(usize)) -> bool {
    let (mut token, mut at) = (0, 0);
    let (mut star, mut anything): (Option<Retry>, Option<Retry>) = (None, None);
    // The first `*` behind a `**` was already tried at every position up to this one.
    let mut tried_to = None;
    loop {
        looks(1);
        match tokens.get(token) {
            Some(Token::Star) if star.is_some() || tried_to.is_none_or(|end| at > end) => {
                if star.is_none() {
                    let end = segment_end(text, at, segments);
                    looks(end - at);
                    tried_to = Some(end);
                }
                token += 1;
                star = Some(Retry { token, at });
                continue;
            }
            Some(Token::Anything | Token::Directories) => {
                token += 1;
                (star, tried_to) = (None, None);
                anything = Some(Retry { token, at });
                continue;
            }
            Some(one) => {
                if let Some(length) = one.takes(&text[at..], segments) {
                    (token, at) = (token + 1, at + length);
                    continue;
                }
            }
            None if at == text.len() => return true,
            None => {}
        }
        let again = star.and_then(|retry| further(retry, text, segments, &Token::Star));
        star = again;
        let again = again.or_else(|| {
            anything = anything
                .and_then(|retry| further(retry, text, segments, tokens.get(retry.token - 1)?));
            anything
        });
        let Some(retry) = again else { return false };
        looks(retry.at.saturating_sub(at));
        (token, at) = (retry.token, retry.at);
    }
}

/// The next position to try behind a `*`, `**` or `**/`.
fn further(retry: Retry, text: &[u8], segments: Segments, kind: &Token) -> Option<Retry> {
    let rest = &text[retry.at..];
    let taken = match kind {
        Token::Directories => rest.iter().position(|byte| *byte == b'/')? + 1,
        Token::Star if segments == Segments::BySlash && rest.first() == Some(&b'/') => return None,
        _ => first_char(rest)?.1,
    };
    Some(Retry { at: retry.at + taken, ..retry })
}

fn segment_end(text: &[u8], at: usize, segments: Segments) -> usize {
    let slash = text[at..].iter().position(|byte| *byte == b'/');
    match slash {
        Some(length) if segments == Segments::BySlash => at + length,
        _ => text.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Glob::new(pattern, Segments::BySlash).unwrap().matches(text.as_bytes())
    }

    #[test]
    fn patterns_of_paths() {
        for (pattern, text, expected) in [
            ("/img/*", "/img/a.png", true),
            ("/img/*", "/img/a/b.png", false),
            ("/img/*", "/img/", true),
            ("/img/**", "/img/a/b.png", true),
            ("/img/**", "/img/", true),
            ("/img/**", "/img", false),
            ("/img**", "/img", true),
            ("/img**", "/img/a/b", true),
            ("**.php", "/index.php", true),
            ("**.php", "/a/b/index.php", true),
            ("**.php", "/a/b/index.php5", false),
            ("/a/**.{jpg,png}", "/a/b/c.png", true),
            ("**/*.{css,js}", "/a/b.js", true),
            ("**/*.{css,js}", "b.js", true),
            ("**/*.{css,js}", "/a/b.jsx", false),
            ("/a*a", "/a", false),
            ("/a*a", "/aa", true),
            ("/a/**/b", "/a/b", true),
            ("/a/**/b", "/a/x/y/b", true),
            ("/a/**/b", "/a/xb", false),
            ("/**/admin/**", "/x/admin/", true),
            ("/**/admin/**", "/x/nadmin/", false),
            ("/a?c", "/abc", true),
            ("/a?c", "/a/c", false),
            ("/a?c", "/a\u{e9}c", true),
            ("/[a-c]x", "/bx", true),
            ("/[!a-c]x", "/bx", false),
            ("/[^a-c]x", "/dx", true),
            ("/[]x]", "/]", true),
            ("/[a-]", "/-", true),
            ("/{a,b{c,d}}", "/bd", true),
            ("/{a,}", "/", true),
            ("/{a,b}{1,2}", "/b1", true),
            ("/{a,b}{1,2}", "/b3", false),
            ("/\\*", "/*", true),
            ("/\\*", "/x", false),
            ("/[{]", "/{", true),
            ("image/*", "image/png", true),
            ("*/*", "image/png", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    /// Cookies contain slashes and non-ASCII bytes.
    #[test]
    fn values_have_no_segments() {
        for (pattern, text, expected) in [
            ("*session=*", &b"a=/x/y; session=1/2"[..], true),
            ("**session=**", b"a=/x/y; session=1/2", true),
            ("*session=*", b"a=\xff\xc3\xa9; session=1", true),
            ("*session=?", b"session=\xff", true),
            ("a\u{fffd}b", b"a\xffb", true),
            ("*\u{fffd}b", b"a\xffb", true),
            ("*b\u{fffd}", b"ab\xff", true),
            ("*\u{e9}", b"a\xff\xc3\xa9", true),
            ("*\u{e9}", b"a\xa9", false),
            ("\u{e9}*", b"\xc3\xa9x", true),
            ("\u{e9}*", b"\xc3x", false),
            ("*session=*", b"a=/x/y", false),
            ("Mozilla*", b"Mozilla/5.0 (X11)", true),
            ("a**/b", b"a/b", true),
        ] {
            let glob = Glob::new(pattern, Segments::None).unwrap();
            assert_eq!(glob.matches(text), expected, "{pattern} {}", text.escape_ascii());
        }
    }

    #[test]
    fn patterns_that_mean_nothing_are_refused() {
        let long = "x".repeat(PATTERN_BYTES_MAX + 1);
        let choices = "{a,b}".repeat(9);
        for pattern in ["", "/[a", "/{a,b", "/[a-", "/a\\", &long, &choices] {
            assert!(Glob::new(pattern, Segments::BySlash).is_err(), "{pattern}");
        }
    }

    /// A matcher straight from the definition: a star matches this much, or one character more.
    fn naive(tokens: &[Token], text: &[u8], segments: Segments) -> bool {
        let Some((first, rest)) = tokens.split_first() else { return text.is_empty() };
        let more = |pass: &dyn Fn(usize) -> bool| {
            (0..=text.len()).any(|taken| pass(taken) && naive(rest, &text[taken..], segments))
        };
        match first {
            Token::Star if segments == Segments::None => more(&|_| true),
            Token::Star => more(&|taken| !text[..taken].contains(&b'/')),
            Token::Anything => more(&|_| true),
            Token::Directories => more(&|taken| taken == 0 || text[taken - 1] == b'/'),
            one => one.takes(text, segments).is_some_and(|n| naive(rest, &text[n..], segments)),
        }
    }

    #[test]
    fn as_by_the_definition() {
        const PARTS: [&str; 8] = ["a", "b", "/", "*", "**", "**/", "?", "[ab]"];
        let mut random = fastrand::Rng::with_seed(7);
        let mut matched = 0;
        for _ in 0..50_000 {
            let pattern: String =
                (0..random.usize(1..10)).map(|_| PARTS[random.usize(..PARTS.len())]).collect();
            let text: String =
                (0..random.usize(..13)).map(|_| ['a', 'b', '/'][random.usize(..3)]).collect();
            for segments in [Segments::BySlash, Segments::None] {
                let glob = Glob::new(&pattern, segments).unwrap();
                let expected = naive(&glob.alternatives[0].tokens, text.as_bytes(), segments);
                assert_eq!(glob.matches(text.as_bytes()), expected, "{pattern} {text}");
                matched += u32::from(expected);
            }
        }
        assert!(matched > 5_000, "{matched}");
    }

    /// Clients choose the text, up to `limits.uri_bytes_max`.
    #[test]
    fn a_text_is_looked_at_no_more_often_than_the_pattern_is_long() {
        for text in ["a".repeat(1 << 14), "a/".repeat(1 << 13), "ab/a".repeat(1 << 12)] {
            for pattern in ["**a*b*c", "*a*a*a*b", "**/a*/b*/**c*d", "**a*a?a*c"] {
                for segments in [Segments::BySlash, Segments::None] {
                    let (tokens, mut looked) = (tokens(pattern).unwrap(), 0);
                    assert!(!whole(&tokens, text.as_bytes(), segments, |bytes| looked += bytes));
                    let most = tokens.len() * text.len();
                    assert!(looked <= most, "{looked} of {most} for {pattern}");
                }
            }
        }
    }
}

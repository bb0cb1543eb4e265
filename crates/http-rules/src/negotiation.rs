//! Equivalence of values of `Accept-Encoding` or `Accept-Language` (RFC 9111 §4.1).
//!
//! Both are lists of case-insensitive names with weights, whose order has no meaning (RFC 9110
//! §12.4.2, §12.5.3, §12.5.4). [`Normaliser::Equivalent`] equates values that differ only in case,
//! order, spacing and the spelling of weights. [`Normaliser::BestOf`] also equates values that the
//! operator declares equal, and therefore changes the request to the origin.
//!
//! Invariants: the normal form of a normal form is itself; a value that is not such a list, or has
//! more than [`MEMBERS_MAX`] members, is its own normal form. Nothing here allocates but
//! [`Normaliser::replacement`].

/// Lists with more members are compared as they are.
pub const MEMBERS_MAX: usize = 16;

/// Weight of a member in thousandths: the grammar allows three decimals.
type Weight = u16;
const WEIGHT_MAX: Weight = 1000;

/// How a field with weighted names is compared, and whether it is reduced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Normaliser {
    /// As sent, except for spaces around commas.
    AsSent,
    /// Case, order and spelling of weights make no difference. The origin gets what was sent.
    #[default]
    Equivalent,
    /// Only the best of these names that the client accepts counts, the first listed winning a tie,
    /// but for languages that the client itself names; the origin is asked for that name alone. If
    /// the client accepts none, the field is removed.
    BestOf(Vec<String>),
}

/// A name and its weight.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Member<'a> {
    name: &'a [u8],
    weight: Weight,
}

impl Normaliser {
    /// Appends the normal form of a list given by its members; false if it has none, in which case
    /// nothing was appended.
    pub fn write<'a>(&self, members: impl Iterator<Item = &'a [u8]>, key: &mut Vec<u8>) -> bool {
        if *self == Normaliser::AsSent {
            return false;
        }
        let mut buffer = [Member { name: b"", weight: 0 }; MEMBERS_MAX];
        let Some(parsed) = parse(members, &mut buffer) else { return false };
        if let Normaliser::BestOf(names) = self {
            key.extend_from_slice(best_of(names, parsed).unwrap_or_default().as_bytes());
            return true;
        }
        parsed.sort_unstable_by(compare);
        for (index, member) in parsed.iter().enumerate() {
            if index > 0 {
                key.push(b',');
            }
            key.extend(member.name.iter().map(u8::to_ascii_lowercase));
            if member.weight < WEIGHT_MAX {
                key.push(b';');
                let digits = [100, 10, 1].map(|unit| (member.weight / unit % 10) as u8 + b'0');
                key.extend_from_slice(&digits);
            }
        }
        true
    }

    /// The replacement of such a list in the origin's request: `None` leaves it, `Some("")` removes
    /// it.
    pub fn replacement<'a>(&self, members: impl Iterator<Item = &'a [u8]>) -> Option<String> {
        let Normaliser::BestOf(names) = self else { return None };
        let mut buffer = [Member { name: b"", weight: 0 }; MEMBERS_MAX];
        let parsed = parse(members, &mut buffer)?;
        Some(best_of(names, parsed).unwrap_or_default().to_owned())
    }
}

/// By descending weight, then by name, ignoring case.
fn compare(a: &Member<'_>, b: &Member<'_>) -> std::cmp::Ordering {
    let lower = |name: &[u8], at: usize| name.get(at).map(u8::to_ascii_lowercase);
    b.weight.cmp(&a.weight).then_with(|| {
        let length = a.name.len().max(b.name.len());
        let differ = (0..length).find(|at| lower(a.name, *at) != lower(b.name, *at));
        differ.map_or(std::cmp::Ordering::Equal, |at| lower(a.name, at).cmp(&lower(b.name, at)))
    })
}

/// The name of highest weight. A language range accepts what it is a prefix of (RFC 4647 §3.3.1),
/// and, where nothing says more of it, what it comes to if it is cut short (§3.4): `en-US` accepts
/// `en`. Of two with the same weight one that the client names itself is better: who asks for
/// `en-GB` gets that and not the `en` listed before it.
fn best_of<'n>(names: &'n [String], members: &[Member<'_>]) -> Option<&'n str> {
    let standing_of = |name: &str| {
        let name = name.as_bytes();
        let exact = members.iter().find(|m| m.name.eq_ignore_ascii_case(name));
        let prefix = || members.iter().find(|m| is_range_of(m.name, name));
        // A client that refuses one region may still accept the language.
        let cut = || members.iter().filter(|m| m.weight > 0 && is_range_of(name, m.name));
        let longer = || cut().max_by_key(|m| m.weight);
        let any = || members.iter().find(|m| m.name == b"*");
        let related = || prefix().or_else(longer).map(|member| (member.weight, false));
        let named = exact.map(|member| (member.weight, true));
        named.or_else(related).or_else(|| any().map(|member| (member.weight, true)))
    };
    let mut best: Option<(&str, (Weight, bool))> = None;
    for name in names {
        let Some(standing) = standing_of(name).filter(|(weight, _)| *weight > 0) else { continue };
        if best.is_none_or(|(_, so_far)| standing > so_far) {
            best = Some((name, standing));
        }
    }
    best.map(|(name, _)| name)
}

fn is_range_of(range: &[u8], tag: &[u8]) -> bool {
    tag.len() > range.len()
        && tag[..range.len()].eq_ignore_ascii_case(range)
        && tag[range.len()] == b'-'
}

fn parse<'a, 'b>(
    members: impl Iterator<Item = &'a [u8]>,
    buffer: &'b mut [Member<'a>; MEMBERS_MAX],
) -> Option<&'b mut [Member<'a>]> {
    let mut count = 0;
    for text in members {
        *buffer.get_mut(count)? = member(text)?;
        count += 1;
    }
    Some(&mut buffer[..count])
}

/// `name` or `name;q=0.5`.
fn member(text: &[u8]) -> Option<Member<'_>> {
    let mut halves = text.splitn(2, |byte| *byte == b';');
    let name = halves.next()?.trim_ascii();
    let tidy = |byte: &u8| byte.is_ascii_alphanumeric() || b"*-_.+!#$%&'^`|~".contains(byte);
    if name.is_empty() || !name.iter().all(tidy) {
        return None;
    }
    let weight = match halves.next() {
        None => WEIGHT_MAX,
        Some(parameter) => weight(parameter.trim_ascii())?,
    };
    Some(Member { name, weight })
}

/// `q=0.123` (RFC 9110 §12.4.2).
fn weight(text: &[u8]) -> Option<Weight> {
    let value = text.strip_prefix(b"q=").or_else(|| text.strip_prefix(b"Q="))?;
    let (whole, decimals) = match value {
        [whole @ (b'0' | b'1')] => (*whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] if decimals.len() <= 3 => (*whole, decimals),
        _ => return None,
    };
    if !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut sum = Weight::from(whole - b'0') * WEIGHT_MAX;
    for (digit, unit) in decimals.iter().zip([100, 10, 1]) {
        sum += Weight::from(digit - b'0') * unit;
    }
    (sum <= WEIGHT_MAX).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> impl Iterator<Item = &[u8]> {
        text.as_bytes().split(|b| *b == b',').map(<[u8]>::trim_ascii).filter(|m| !m.is_empty())
    }

    fn normal(normaliser: &Normaliser, text: &str) -> Option<String> {
        let mut key = Vec::new();
        let written = normaliser.write(members(text), &mut key);
        written.then(|| String::from_utf8(key).unwrap())
    }

    /// RFC 9111 §4.1.
    #[test]
    fn what_means_the_same_is_equal() {
        let equivalent = Normaliser::Equivalent;
        for (text, expected) in [
            ("gzip, br", Some("br,gzip")),
            ("BR,GZip", Some("br,gzip")),
            ("gzip;q=0.5, br;q=1.0", Some("br,gzip;500")),
            ("gzip; Q=0.500 , br;q=1", Some("br,gzip;500")),
            ("gzip;q=0", Some("gzip;000")),
            ("en-GB, de-at", Some("de-at,en-gb")),
            ("", Some("")),
            ("gzip;q=2", None),
            ("gzip;level=9", None),
            ("gzip;q=0.1234", None),
            ("gzip;q=1.001", None),
            ("gzip;q=1.000", Some("gzip")),
            ("gzip;q=0.", Some("gzip;000")),
            ("gzip;q=0.5x", None),
            ("gzip;q=0.-5", None),
            ("gzip;q=", None),
            ("gzip;q", None),
            ("gzip;", None),
            ("b;q=0.2, c, a;q=0.2, d;q=0.3", Some("c,d;300,a;200,b;200")),
            ("\"quoted\"", None),
        ] {
            assert_eq!(normal(&equivalent, text).as_deref(), expected, "{text}");
        }
        let many = ["x"; MEMBERS_MAX + 1].join(",");
        assert_eq!(normal(&equivalent, &many), None);
        assert_eq!(normal(&Normaliser::AsSent, "gzip"), None);
    }

    #[test]
    fn classes_of_the_operator() {
        let codings = Normaliser::BestOf(vec!["br".to_owned(), "gzip".to_owned()]);
        for (text, expected) in [
            ("gzip, deflate, br", "br"),
            ("gzip, deflate", "gzip"),
            ("br;q=0.5, gzip", "gzip"),
            ("br;q=0, *", "gzip"),
            ("deflate", ""),
            ("", ""),
        ] {
            assert_eq!(normal(&codings, text).as_deref(), Some(expected), "{text}");
            assert_eq!(codings.replacement(members(text)).as_deref(), Some(expected));
        }
        let languages = Normaliser::BestOf(vec!["de".to_owned(), "en-GB".to_owned()]);
        assert_eq!(normal(&languages, "en;q=0.8, fr").as_deref(), Some("en-GB"));
        let exact = "en;q=0.9, en-GB;q=0.1, de;q=0.5";
        assert_eq!(normal(&languages, exact).as_deref(), Some("de"), "what is named goes first");
        let plain = Normaliser::BestOf(vec!["en".to_owned(), "de".to_owned()]);
        for (text, expected) in [
            ("en-US", "en"),
            ("de-AT, en-US;q=0.5", "de"),
            ("de-AT;q=0.3, en-US;q=0.5", "en"),
            ("en-US, en;q=0.1, de;q=0.5", "de"),
            ("en-US, de", "de"),
            ("de, en", "en"),
            ("en-US;q=0.1, en-GB;q=0.9, de;q=0.5", "en"),
            ("en-US;q=0, *;q=0.5", "en"),
            ("en-US;q=0, de", "de"),
            ("zh-Hant-TW, eng", ""),
            ("fr", ""),
        ] {
            assert_eq!(normal(&plain, text).as_deref(), Some(expected), "{text}");
        }
        let both = Normaliser::BestOf(["en", "en-GB", "en-US"].map(str::to_owned).to_vec());
        for (text, expected) in [
            ("en-GB", "en-GB"),
            ("en", "en"),
            ("en-AU", "en"),
            ("en-US;q=0.9, en-GB, en;q=0.9", "en-GB"),
            ("en-US, en-GB", "en-GB"),
            ("*", "en"),
        ] {
            assert_eq!(normal(&both, text).as_deref(), Some(expected), "{text}");
            assert_eq!(normal(&both, expected).as_deref(), Some(expected), "normal once and twice");
        }
        assert_eq!(normal(&codings, "gzip, *").as_deref(), Some("br"), "the client takes either");
        assert_eq!(codings.replacement(members("odd;x")), None, "unreadable: sent as it is");
        assert_eq!(Normaliser::Equivalent.replacement(members("gzip")), None);
    }
}

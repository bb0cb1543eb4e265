//! Terms of a condition's list, each of which may have a `!` before it.
//!
//! Invariant: a term with `!` rules out. It is met by what has nothing of the kind as well, so that
//! "no such cookie" can be said, and no other cookie, line or pattern beside it makes up for one
//! that it names. Pure, no threads.

/// One term of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Term<T> {
    pub(super) negated: bool,
    pub(crate) of: T,
}

impl<T> Term<T> {
    /// Met by what has this.
    #[cfg(test)]
    pub(crate) fn is(of: T) -> Term<T> {
        Term::new(false, of)
    }

    /// Met by what does not have this.
    #[cfg(test)]
    pub(crate) fn is_not(of: T) -> Term<T> {
        Term::new(true, of)
    }

    pub(crate) fn new(negated: bool, of: T) -> Term<T> {
        Term { negated, of }
    }

    /// Parses a term, whose own text `read` gets without what negates it.
    pub(crate) fn read(
        text: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Term<T>, String> {
        let (negated, positive) = split_not(text);
        read(positive).map(|of| Term { negated, of })
    }
}

/// Takes off a leading `!`; two of them say nothing.
pub(crate) fn split_not(text: &str) -> (bool, &str) {
    let positive = text.trim_start_matches('!');
    ((text.len() - positive.len()) % 2 == 1, positive)
}

/// Whether a list is met: by one of its terms without `!`, if it has any, and by none of the
/// others.
pub(super) fn any_met<T>(terms: &[Term<T>], mut is_found: impl FnMut(&T) -> bool) -> bool {
    let (mut wanted, mut met) = (false, false);
    for term in terms {
        if term.negated {
            if is_found(&term.of) {
                return false;
            }
        } else {
            wanted = true;
            met = met || is_found(&term.of);
        }
    }
    met || !wanted
}

/// Whether all terms of a list are met.
pub(super) fn all_met<T>(terms: &[Term<T>], mut is_found: impl FnMut(&T) -> bool) -> bool {
    terms.iter().all(|term| is_found(&term.of) != term.negated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_must_be_found_and_none_of_those_ruled_out() {
        for (list, found, any, all) in [
            (&[][..], "", true, true),
            (&["a"], "a", true, true),
            (&["a"], "b", false, false),
            (&["a"], "", false, false),
            (&["a", "b"], "b", true, false),
            (&["a", "b"], "ab", true, true),
            (&["!a"], "", true, true),
            (&["!a"], "b", true, true),
            (&["!a"], "a", false, false),
            (&["!a"], "ab", false, false),
            (&["!a", "!b"], "b", false, false),
            (&["!a", "!b"], "c", true, true),
            (&["a", "!b"], "a", true, true),
            (&["a", "!b"], "ab", false, false),
            (&["a", "!b"], "", false, false),
            (&["!b", "a"], "ab", false, false),
            (&["!!a"], "a", true, true),
            (&["!!a"], "", false, false),
        ] {
            let read = |text: &&str| Term::read(text, |text| Ok(text.to_owned())).unwrap();
            let terms: Vec<Term<String>> = list.iter().map(read).collect();
            let is_found = |of: &String| found.contains(of.as_str());
            assert_eq!(any_met(&terms, is_found), any, "{list:?} {found}");
            assert_eq!(all_met(&terms, is_found), all, "{list:?} {found}");
        }
    }
}

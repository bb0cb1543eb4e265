//! Names beside charts in lines: a policy or a design with its parameters is longer than the room
//! there, and what is cut off may be all in which two differ. Pure.

/// From line to line.
pub(super) const LINE_STEP: f64 = 14.0;
/// A letter of 12 pixels is this wide, or less on average.
const LETTER: f64 = 7.0;

/// `name` in lines for a room of that width, broken before a parameter or behind a blank; within a
/// word only where that is wider than the room. At least one line.
pub(super) fn lines(name: &str, room: f64) -> Vec<String> {
    let letters_max = ((room / LETTER) as usize).max(1);
    let mut lines = vec![String::new()];
    let mut letters = 0;
    for word in words(name) {
        let length = word.chars().count();
        // Blanks at the end of a line take no room.
        if letters > 0 && letters + word.trim_end().chars().count() > letters_max {
            lines.push(String::new());
            letters = 0;
        }
        for c in word.chars() {
            if letters == letters_max && length > letters_max {
                lines.push(String::new());
                letters = 0;
            }
            if let Some(line) = lines.last_mut() {
                line.push(c);
            }
            letters += 1;
        }
    }
    lines.iter().map(|line| line.trim().to_owned()).collect()
}

/// What is kept in one line: words with the blank behind them, parameters with the colon before.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split_inclusive(' ').flat_map(|word| {
        let colons = word.match_indices(':').map(|(at, _)| at).filter(|at| *at > 0);
        let ends: Vec<usize> = colons.chain([word.len()]).collect();
        let begins: Vec<usize> = [0].into_iter().chain(ends.iter().copied()).collect();
        begins.into_iter().zip(ends).map(move |(begin, end)| &word[begin..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_broken_before_parameters_and_behind_blanks() {
        let room = 25.0 * LETTER;
        for (name, wanted) in [
            ("store-memory-hit-density", vec!["store-memory-hit-density"]),
            ("damelo 16MiB 64KiB host-path", vec!["damelo 16MiB 64KiB", "host-path"]),
            ("fbc:cmax=5:amax=50:more=99", vec!["fbc:cmax=5:amax=50", ":more=99"]),
            ("a:b=1 16MiB 64KiB host-path", vec!["a:b=1 16MiB 64KiB", "host-path"]),
            ("", vec![""]),
            (":", vec![":"]),
        ] {
            assert_eq!(lines(name, room), wanted, "{name}");
        }
    }

    #[test]
    fn nothing_of_a_name_is_lost_and_no_line_is_too_long() {
        let name = "ü".repeat(60) + ":disk=lru:: 16MiB  x";
        for letters in 1..70 {
            let lines = lines(&name, letters as f64 * LETTER);
            assert!(lines.iter().all(|line| line.chars().count() <= letters), "{lines:?}");
            assert_eq!(lines.concat().replace(' ', ""), name.replace(' ', ""));
        }
    }
}

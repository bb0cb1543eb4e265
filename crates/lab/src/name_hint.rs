//! Which names there are, for an error that says that there is no such one: the nearest first, if
//! one is near. Pure.

/// "there are a, b and so on", and before that the name that was probably meant.
pub(crate) fn there_are<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let all = format!("there are {}", names.join(", "));
    match nearest(given, &names) {
        Some(name) => format!("do you mean `{name}`? {all}"),
        None => all,
    }
}

/// The first of the names with the fewest letters added, left out or changed, if they are few.
fn nearest<'a>(given: &str, names: &[&'a str]) -> Option<&'a str> {
    let given = given.to_ascii_lowercase();
    let distance = |name: &str| strsim::levenshtein(&given, &name.to_ascii_lowercase());
    let (name, changes) =
        names.iter().map(|name| (*name, distance(name))).min_by_key(|(_, changes)| *changes)?;
    // A third of a name may be wrong, of a short one a letter.
    (changes <= (name.len() / 3).max(1)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_told_if_one_is_near() {
        let said = |given: &str| there_are(given, ["lru", "s3-fifo", "w-tinylfu"]);
        let all = "there are lru, s3-fifo, w-tinylfu";
        assert_eq!(said("Lrru"), format!("do you mean `lru`? {all}"));
        assert_eq!(said("tinylfu"), format!("do you mean `w-tinylfu`? {all}"));
        assert_eq!(said("arc"), all);
        assert_eq!(said(""), all);
    }
}

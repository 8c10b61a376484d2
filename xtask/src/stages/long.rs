//! Which of the tests run that take long: real guests, and tests in modules named `slow`. Commits
//! take turns with the parts into which they are divided.

use anyhow::Result;

use super::{Context, nextest, nextest_with};
use crate::counts::Counts;
use crate::simulate::seed_of_commit;

/// Parts into which real guests are divided; a run has one of them, unless it is for all.
const GUEST_PARTS: u64 = 6;
/// Parts into which slow tests without a guest are divided.
const SLOW_PARTS: u64 = 6;
/// Where a change needs every guest.
const OF_GUESTS: [&str; 2] = ["tests/vm/", "crates/guest-rig/"];

/// A part of the guests, or all of them.
///
/// # Errors
/// As [`Context::run_tests`]; git cannot name the commit.
pub(super) fn guests(context: &mut Context<'_>) -> Result<Counts> {
    let seed = seed_of_commit(context.workspace)?;
    match part_of_guests(context.all, &context.changed(), seed) {
        None => nextest(context, "guests"),
        Some(part) => {
            let part = format!("slice:{part}/{GUEST_PARTS}");
            nextest_with(context, "guests", &["--partition", &part])
        }
    }
}

/// A part of the slow tests without a guest, or all of them; `of` selects some by a filter.
///
/// # Errors
/// As [`guests`].
pub(super) fn slow_units(context: &mut Context<'_>, of: Option<&str>) -> Result<Counts> {
    let seed = seed_of_commit(context.workspace)?;
    let part = format!("slice:{}/{SLOW_PARTS}", seed % SLOW_PARTS + 1);
    let mut args = vec!["--no-tests=pass"];
    if !context.all {
        args.extend(["--partition", &part]);
    }
    if let Some(of) = of {
        args.extend(["-E", of]);
    }
    nextest_with(context, "unit-slow", &args)
}

/// The part of the guests that runs, counted from 1; `None` for all of them. Commits take turns.
fn part_of_guests(all: bool, changed: &[String], seed: u64) -> Option<u64> {
    let is_theirs = |file: &String| OF_GUESTS.iter().any(|folder| file.starts_with(folder));
    let needs_all = all || changed.iter().any(is_theirs);
    (!needs_all).then_some(seed % GUEST_PARTS + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_take_turns_with_the_guests_and_a_change_of_them_takes_all() {
        let changed = |files: &[&str]| files.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>();
        let other = changed(&["README.md", "crates/model/src/lib.rs"]);
        let parts: Vec<_> = (11..14)
            .map(|seed| part_of_guests(false, &other, seed))
            .collect();
        assert_eq!(parts, [Some(6), Some(1), Some(2)]);
        assert_eq!(part_of_guests(true, &other, 7), None);
        let rig = changed(&["README.md", "crates/guest-rig/src/lib.rs"]);
        assert_eq!(part_of_guests(false, &rig, 7), None);
    }
}

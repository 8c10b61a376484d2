//! Which of the tests run that take long: real guests, and tests in modules named `slow`. Commits
//! take turns with the parts into which they are divided.

use anyhow::Result;

use super::{Context, nextest, nextest_with};
use crate::counts::Counts;
use crate::simulate::seed_of_commit;

/// Parts into which real guests are divided; a run has one of them, unless it is for all.
const GUEST_PARTS: u64 = 8;
/// Parts into which slow tests without a guest are divided.
const SLOW_PARTS: u64 = 8;
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

/// The filter that selects a part of the slow tests without a guest, or all of them.
///
/// # Errors
/// As [`guests`].
pub(super) fn slow_units(context: &mut Context<'_>) -> Result<String> {
    let seed = seed_of_commit(context.workspace)?;
    let part = format!("slice:{}/{SLOW_PARTS}", seed % SLOW_PARTS + 1);
    let args = [
        "nextest",
        "list",
        "--locked",
        "--workspace",
        "--profile",
        "unit-slow",
    ];
    let mut command = context.workspace.cargo(&args)?;
    command.args(["--message-format", "oneline"]);
    if !context.all {
        command.args(["--partition", &part]);
    }
    Ok(filter_of(&context.run(&mut command)?))
}

/// The filter that selects the slow tests of a list, which has a binary and a name in each line;
/// other lines are what the build prints.
fn filter_of(list: &str) -> String {
    let tests = list.lines().filter_map(|line| line.split_once(' '));
    let tests = tests.filter(|(_, name)| name.contains("slow::") && !name.contains(' '));
    let of = |(binary, name)| format!("(binary_id(={binary}) & test(={name}))");
    let filters: Vec<String> = tests.map(of).collect();
    match filters.as_slice() {
        [] => "none()".to_owned(),
        filters => filters.join(" + "),
    }
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
    fn slow_tests_are_selected_by_their_names() {
        let list = "   Compiling slow::er v0.1.0\nlab calibrate::slow::keys\n\
                    tests-sim::tenants slow::caps\n";
        assert_eq!(
            filter_of(list),
            "(binary_id(=lab) & test(=calibrate::slow::keys)) + \
             (binary_id(=tests-sim::tenants) & test(=slow::caps))"
        );
        assert_eq!(filter_of("    Finished\n"), "none()");
    }

    #[test]
    fn commits_take_turns_with_the_guests_and_a_change_of_them_takes_all() {
        let changed = |files: &[&str]| files.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>();
        let other = changed(&["README.md", "crates/model/src/lib.rs"]);
        let parts: Vec<_> = (15..18)
            .map(|seed| part_of_guests(false, &other, seed))
            .collect();
        assert_eq!(parts, [Some(8), Some(1), Some(2)]);
        assert_eq!(part_of_guests(true, &other, 7), None);
        let rig = changed(&["README.md", "crates/guest-rig/src/lib.rs"]);
        assert_eq!(part_of_guests(false, &rig, 7), None);
    }
}

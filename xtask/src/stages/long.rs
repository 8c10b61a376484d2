//! Which of the tests run that take long: real guests, tests in modules named `slow`, and stages
//! whose subject seldom changes. Commits take turns with them.

use anyhow::Result;

use super::since::Changes;
use super::{Asked, Context, Stage, nextest, nextest_with};
use crate::counts::Counts;
use crate::simulate::seed_of_commit;
use crate::workspace::Workspace;

/// Parts into which real guests are divided; a run has one of them, unless it is for all.
const GUEST_PARTS: u64 = 8;
/// Parts into which slow tests without a guest are divided.
const SLOW_PARTS: u64 = 8;
/// Where a change needs every guest.
const OF_GUESTS: [&str; 2] = ["tests/vm/", "crates/guest-rig/"];
/// Stages that a commit has in its turn, one of [`TURNS`], or where files that begin so changed in
/// one of the newest [`RECENT`] commits.
const IN_TURNS: [(&str, &[&str]); 3] = [
    ("loom", &["crates/memory/"]),
    ("oracle", &["crates/model/", "tests/oracle/"]),
    ("golden", &["crates/model/", "crates/simulate/"]),
];
const TURNS: u64 = 4;
const RECENT: u32 = 50;

/// Removes the stages that a run leaves to other commits, and says which. Where git does not know
/// the newest commits, a run has all stages.
///
/// # Errors
/// git cannot name the commit.
pub(super) fn leave_out(
    stages: &mut Vec<&Stage>,
    workspace: &Workspace,
    asked: &Asked<'_>,
) -> Result<()> {
    if asked.all || asked.since.is_some() || !asked.only.is_empty() {
        return Ok(());
    }
    let Ok(recent) = Changes::recent(workspace, RECENT) else {
        return Ok(());
    };
    let left = in_other_turns(seed_of_commit(workspace)?, &recent);
    if !left.is_empty() {
        stages.retain(|stage| !left.contains(&stage.name));
        println!("left to other commits: {}", left.join(", "));
    }
    Ok(())
}

fn in_other_turns(seed: u64, recent: &[String]) -> Vec<&'static str> {
    let changed = |starts: &[&str]| {
        let is_of = |file: &String| starts.iter().any(|start| file.starts_with(start));
        recent.iter().any(is_of)
    };
    let others = (0..).zip(IN_TURNS).filter(|(turn, (_, starts))| {
        let is_its_turn = seed % TURNS == *turn;
        !is_its_turn && !changed(starts)
    });
    others.map(|(_, (stage, _))| stage).collect()
}

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
    let args = ["nextest", "list", "--locked", "--profile", "unit-slow"];
    let mut command = context.workspace.cargo(&args)?;
    command
        .args(super::TESTED)
        .args(["--message-format", "oneline"]);
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
    fn every_stage_has_its_turn_and_a_recent_change_needs_it() {
        let names: Vec<_> = IN_TURNS.iter().map(|(stage, _)| *stage).collect();
        assert!(
            names
                .iter()
                .all(|name| super::super::names().any(|known| known == *name))
        );
        let of = |seed| in_other_turns(seed, &["README.md".to_owned()]);
        assert_eq!(of(4), ["oracle", "golden"]);
        assert_eq!(of(5), ["loom", "golden"]);
        assert_eq!(of(6), ["loom", "oracle"]);
        assert_eq!(of(7), names);
        let changed = ["crates/model/src/lib.rs".to_owned()];
        assert_eq!(in_other_turns(7, &changed), ["loom"]);
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

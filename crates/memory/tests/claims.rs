//! Claims of several claimants on one thread, against a list of what each command touches.

use memory::{Claim, Claimant, Claims, MAX_CLAIMANTS};
use proptest::prelude::*;

const PIECE: u64 = 4096;
/// Number of pieces after which the words repeat.
const AROUND: u64 = 8192 * PIECE;

fn claimants<const N: usize>() -> [Claimant; N] {
    let claims = Claims::new();
    let mut claimants = [(); N].map(|()| claims.claimant().expect("room"));
    // The first to be opened was alone for a moment.
    for claimant in &mut claimants {
        assert!(claimant.must_claim(|_| unreachable!("nothing is in flight")));
    }
    claimants
}

/// A claim that is tried once.
fn tried(claimant: &Claimant, ranges: &[(u64, u64)], changes: bool) -> Claim {
    let mut claim = Claim::default();
    let whole = claimant.claim(&mut claim, ranges.iter().copied(), changes);
    assert_eq!(whole, claim.is_whole());
    claim
}

fn ended(claimant: &Claimant, claim: &mut Claim, ranges: &[(u64, u64)]) {
    claimant.release(claim, ranges.iter().copied());
}

#[test]
fn whoever_is_alone_claims_nothing_until_another_comes() {
    let claims = Claims::new();
    let mut first = claims.claimant().unwrap();
    assert!(!first.must_claim(|_| unreachable!()));
    assert!(!first.must_claim(|_| unreachable!()));
    let mut second = claims.claimant().unwrap();
    assert!(second.must_claim(|_| unreachable!()));
    // The first has two commands in flight at one piece, which it keeps apart by itself.
    let range = [(PIECE, 512)];
    let mut claim = tried(&second, &range, true);
    assert!(!claim.is_whole(), "the first has not looked yet");
    let mut flying = [Claim::default(), Claim::default()];
    assert!(first.must_claim(|first| {
        for claim in &mut flying {
            first.claim_at_once(claim, range);
        }
    }));
    assert!(first.must_claim(|_| unreachable!("once")));
    for flying in &mut flying {
        assert!(!second.claim(&mut claim, range, true));
        ended(&first, flying, &range);
    }
    assert!(second.claim(&mut claim, range, true));
    ended(&second, &mut claim, &range);
    // After a second claimant existed, each one must claim, also if all others are dropped.
    drop(second);
    assert!(first.must_claim(|_| unreachable!()));
    drop(first);
    assert!(claims.claimant().unwrap().must_claim(|_| unreachable!()));
}

#[test]
fn one_that_rests_keeps_nobody_waiting() {
    let claims = Claims::new();
    let mut first = claims.claimant().unwrap();
    assert!(!first.must_claim(|_| unreachable!()));
    first.rest();
    let second = claims.claimant().unwrap();
    assert!(tried(&second, &[(0, 512)], true).is_whole());
    assert!(first.must_claim(|_| unreachable!("nothing was in flight")));
    assert!(!tried(&first, &[(0, 512)], false).is_whole());
}

#[test]
fn one_that_goes_keeps_nobody_waiting() {
    let claims = Claims::new();
    let mut first = claims.claimant().unwrap();
    assert!(!first.must_claim(|_| unreachable!()));
    let second = claims.claimant().unwrap();
    drop(first);
    assert!(tried(&second, &[(0, 512)], true).is_whole());
    // Its number is given again, and another's is not.
    let others: Vec<Claimant> = (1..MAX_CLAIMANTS)
        .map(|_| claims.claimant().unwrap())
        .collect();
    assert!(claims.claimant().is_none());
    for other in &others {
        assert!(!tried(other, &[(0, 512)], true).is_whole());
    }
}

#[test]
fn readers_share_and_nobody_joins_them_where_a_writer_waits() {
    let [one, two, three] = claimants();
    let range = [(0, 512)];
    let mut readers = [tried(&one, &range, false), tried(&two, &range, false)];
    assert!(readers.iter().all(Claim::is_whole));
    let mut writer = tried(&three, &range, true);
    assert!(!writer.is_whole());
    let mut late = tried(&one, &range, false);
    assert!(!late.is_whole(), "or the writer would never get there");
    ended(&one, &mut readers[0], &range);
    assert!(!three.claim(&mut writer, range, true));
    ended(&two, &mut readers[1], &range);
    // A new command leaves the range to those that wait.
    assert!(!tried(&two, &range, true).is_whole());
    assert!(three.claim(&mut writer, range, true));
    assert!(!one.claim(&mut late, range, false));
    ended(&three, &mut writer, &range);
    assert!(one.claim(&mut late, range, false));
}

#[test]
fn who_waits_at_a_marked_word_and_goes_away_holds_nobody_up() {
    let [one, two] = claimants();
    let range = [(0, 512)];
    let mut held = tried(&one, &range, true);
    let mut gone = tried(&two, &range, true);
    ended(&two, &mut gone, &range);
    ended(&one, &mut held, &range);
    let mut next = tried(&one, &range, true);
    assert!(one.claim(&mut next, range, true), "at the second try");
}

#[test]
fn a_large_claim_gets_its_pieces_one_by_one() {
    let [one, two] = claimants();
    let all = [(0, 4 * PIECE)];
    let piece = |at: u64| [(at * PIECE, 1)];
    let mut small = [1, 3].map(|at| tried(&two, &piece(at), true));
    let mut large = tried(&one, &all, true);
    assert!(!large.is_whole());
    // Its pieces so far are its own.
    assert!(!tried(&two, &piece(0), false).is_whole());
    // The first piece of the others that becomes free is taken, and kept.
    ended(&two, &mut small[0], &piece(1));
    assert!(!one.claim(&mut large, all, true));
    assert!(!tried(&two, &piece(1), false).is_whole());
    assert!(!tried(&two, &piece(2), false).is_whole());
    ended(&two, &mut small[1], &piece(3));
    assert!(one.claim(&mut large, all, true));
    ended(&one, &mut large, &all);
    // One try for the mark that the last one left.
    let mut next = tried(&two, &all, true);
    while !two.claim(&mut next, all, true) {}
}

#[test]
fn a_claim_around_the_end_of_the_words_and_of_all_of_them() {
    let [one, two] = claimants();
    let around = [(AROUND - PIECE, 2 * PIECE)];
    let mut claim = tried(&one, &around, true);
    assert!(!tried(&two, &[(AROUND - 1, 1)], false).is_whole());
    assert!(!tried(&two, &[(0, 1)], false).is_whole());
    assert!(tried(&two, &[(PIECE, 1)], true).is_whole());
    ended(&one, &mut claim, &around);
    let [one, two] = claimants();
    for all in [(5 * PIECE, u64::MAX - 5 * PIECE), (0, AROUND), (1, AROUND)] {
        let mut claim = tried(&one, &[all], true);
        assert!(claim.is_whole());
        assert!(!tried(&two, &[(77 * PIECE, 1)], false).is_whole());
        ended(&one, &mut claim, &[all]);
        let mut two_s = tried(&two, &[all], true);
        while !two.claim(&mut two_s, [all], true) {}
        ended(&two, &mut two_s, &[all]);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Begin {
        who: usize,
        ranges: Vec<(u64, u64)>,
        changes: bool,
    },
    Again(usize),
    End(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let range = || {
        prop_oneof![
            8 => (0..12_u64, 0..4_u64).prop_map(|(at, len)| (at * PIECE, len * PIECE)),
            4 => (0..96_u64, 1..9_u64).prop_map(|(at, len)| (at * 512, len * 512)),
            1 => (0..4_u64, 1..4_u64).prop_map(|(at, len)| (AROUND + (at * PIECE), len * PIECE)),
            1 => (0..3_u64).prop_map(|at| (AROUND - at * PIECE, 4 * PIECE)),
        ]
    };
    let ranges = prop_oneof![
        3 => range().prop_map(|range| vec![range]),
        1 => prop::collection::vec(range(), 0..5),
    ];
    prop_oneof![
        3 => (0..3_usize, ranges, any::<bool>())
            .prop_map(|(who, ranges, changes)| Step::Begin { who, ranges, changes }),
        2 => any::<usize>().prop_map(Step::Again),
        2 => any::<usize>().prop_map(Step::End),
    ]
}

struct Command {
    who: usize,
    ranges: Vec<(u64, u64)>,
    changes: bool,
    claim: Claim,
}

impl Command {
    /// Two claimants whose pieces stand for each other, and one of them may change what is there.
    fn conflicts(&self, other: &Command) -> bool {
        let words = |command: &Command| -> Vec<u64> {
            let ranges = command.ranges.iter().filter(|(_, len)| *len > 0);
            let pieces = ranges.flat_map(|(at, len)| at / PIECE..=(at + len - 1) / PIECE);
            pieces.map(|piece| piece % 8192).collect()
        };
        let (one, two) = (words(self), words(other));
        self.who != other.who
            && (self.changes || other.changes)
            && one.iter().any(|word| two.contains(word))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// No two that conflict hold all of theirs at one time; and whatever has happened, everybody
    /// gets there.
    #[test]
    fn those_that_conflict_are_never_there_together(steps in prop::collection::vec(step(), 1..150)) {
        let claimants: [Claimant; 3] = claimants();
        let mut commands: Vec<Command> = Vec::new();
        let again = |command: &mut Command| {
            claimants[command.who].claim(&mut command.claim, command.ranges.iter().copied(), command.changes)
        };
        let end = |mut command: Command| ended(&claimants[command.who], &mut command.claim, &command.ranges);
        for step in steps {
            match step {
                Step::Begin { who, ranges, changes } => {
                    let claim = tried(&claimants[who], &ranges, changes);
                    commands.push(Command { who, ranges, changes, claim });
                }
                Step::Again(which) if !commands.is_empty() => {
                    let at = which % commands.len();
                    again(&mut commands[at]);
                }
                Step::End(which) if !commands.is_empty() => end(commands.swap_remove(which % commands.len())),
                Step::Again(_) | Step::End(_) => {}
            }
            let whole: Vec<&Command> = commands.iter().filter(|command| command.claim.is_whole()).collect();
            for (at, one) in whole.iter().enumerate() {
                for two in &whole[at + 1..] {
                    prop_assert!(!one.conflicts(two));
                }
            }
        }
        // Everything that began ends, and so the next ones begin, until none is left.
        let mut rounds = 0;
        while !commands.is_empty() {
            commands.iter_mut().for_each(|command| { again(command); });
            let (whole, rest): (Vec<Command>, Vec<Command>) =
                commands.into_iter().partition(|command| command.claim.is_whole());
            whole.into_iter().for_each(&end);
            commands = rest;
            rounds += 1;
            prop_assert!(rounds < 1000, "a circle of commands that wait for each other");
        }
        // And nothing is left behind.
        let mut all = Claim::default();
        claimants[0].claim(&mut all, [(0, AROUND)], true);
        let mut tries = 0;
        while !claimants[0].claim(&mut all, [(0, AROUND)], true) {
            tries += 1;
            prop_assert!(tries < 100, "some word is still held");
        }
    }
}

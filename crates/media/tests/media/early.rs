//! Media with a timing model whose hosts see completions later than those on this machine.

use port::Channel as _;
use port::time::Time;

use crate::common::{Host, Runner};
use crate::timed::{READ, at, nvm, ram};

/// Their host sees it later, by the time that its transport takes.
#[test]
fn commands_are_done_early_and_later_ones_take_as_long_as_without() {
    let (host, medium) = (Host::new(1 << 20), ram(&nvm()));
    medium.release_early(4_000);
    // Also after the model was at rest.
    for _ in 0..2 {
        let mut runner = Runner::new(&medium, 8);
        assert_eq!(at(&mut runner, 5_000), [0_u64; 0]);
        let read = |runner: &mut Runner| runner.add(&host, &READ, &[(0, 4096)]);
        let (first, second) = (read(&mut runner), read(&mut runner));
        assert_eq!(runner.channel.next_due(), Some(Time(11_000)));
        assert_eq!(at(&mut runner, 10_999), [0_u64; 0]);
        assert_eq!(at(&mut runner, 11_000), [first]);
        let third = read(&mut runner);
        assert_eq!(at(&mut runner, 13_047), [0_u64; 0]);
        assert_eq!(at(&mut runner, 13_048), [second]);
        assert_eq!(runner.channel.next_due(), Some(Time(17_000)));
        assert_eq!(at(&mut runner, 16_999), [0_u64; 0]);
        assert_eq!(at(&mut runner, 17_000), [third]);
    }
    // One that takes less time than that is done when its bytes are there.
    medium.release_early(50_000);
    let mut runner = Runner::new(&medium, 8);
    assert_eq!(at(&mut runner, 5_000), [0_u64; 0]);
    let short = runner.add(&host, &READ, &[(0, 4096)]);
    assert_eq!(at(&mut runner, 5_000), [short]);
}

//! Whether a host submits one command at a time, and waits for it before the next one.
//!
//! Most of such a command's time goes to cache lines on their way between two processors: that of
//! the doorbell, that of the entry, and that of the completion. A lane that expects a single
//! command asks for the lines before it needs them. With more commands on their way the same would
//! only take lines from a host that is still writing them.

/// Looks in a row that found one command, after which the next one is expected alone, too.
const ROW: u8 = 8;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Singles(u8);

impl Singles {
    /// A look at a doorbell found this many commands, and at least one.
    #[inline]
    pub(super) fn found(&mut self, commands: u32) {
        self.0 = if commands == 1 {
            self.0.saturating_add(1)
        } else {
            0
        };
    }

    /// Whether the next look that finds something is expected to find one command.
    #[inline]
    pub(super) fn are_expected(&self) -> bool {
        self.0 >= ROW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_ends_the_row() {
        let mut singles = Singles::default();
        for number in 0..400 {
            assert_eq!(singles.are_expected(), number >= 8, "{number}");
            singles.found(1);
        }
        singles.found(2);
        assert!(!singles.are_expected());
    }
}

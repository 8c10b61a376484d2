//! `nvmirage set`: other values for what may change while hosts use it.

use super::{UsageError, parse::Control};
use crate::{
    config::Text,
    control::{self, MediumChange},
};

const EXAMPLES: &str = "\
Examples:
  nvmirage set media fast timing.read_latency=8us
      From now on reads of this drive take 8 us; what is under way keeps its time
  nvmirage set media fast timing.read_bandwidth=2GiB/s timing.read_rate=500K/s
      Several at once, or none of them

Which parameters there are, and which of them may change while hosts use the drive: nvmirage explain
PRESET";

/// Change a medium of a running server
///
/// A change that cannot be is refused, and says whether it could be made at a reset or only where the medium is created.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Set {
    /// What kind of object is changed
    #[arg(value_parser = ["media"])]
    kind: String,

    /// Its name
    name: String,

    /// Parameters of its timing, as they stand in a configuration
    #[arg(required = true, value_name = "timing.PARAMETER=VALUE")]
    changes: Vec<String>,

    #[command(flatten)]
    control: Control,
}

impl Set {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let changes = self.changes.iter().map(|change| {
            let parameter = change.strip_prefix("timing.");
            let both = parameter.and_then(|parameter| parameter.split_once('='));
            let (name, value) = both.ok_or_else(|| {
                UsageError(format!(
                    "`{change}`: write timing.PARAMETER=VALUE, as in timing.read_latency=8us"
                ))
            })?;
            Ok((name.to_owned(), Text(value.to_owned())))
        });
        let timing = changes.collect::<anyhow::Result<_>>()?;
        let socket = self.control.socket();
        control::client::change_medium(&socket, &self.name, &MediumChange { timing })
    }
}

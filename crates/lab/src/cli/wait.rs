//! The option of all commands that act as a drive's host.

use api::config::Span;
use driver::wait::Wait;

/// See the module.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct WaitArg {
    /// Maximum time to wait while another host uses the drive. Default: fail after one second
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true)]
    #[expect(
        clippy::option_option,
        reason = "as clap has an option whose value may be left out"
    )]
    wait: Option<Option<Span>>,
}

impl WaitArg {
    /// How long to wait.
    #[must_use]
    pub fn get(self) -> Wait {
        match self.wait {
            None => Wait::Not,
            Some(None) => Wait::Ever,
            Some(Some(span)) => Wait::For(span.0),
        }
    }
}

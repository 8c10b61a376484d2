//! `nvmirage reload`: applies the configuration file again while hosts keep running.

use api::{Reload, ReloadRequest};

use super::parse::Control;
use crate::{requests, words};

const EXAMPLES: &str = "\
Examples:
  nvmirage reload --dry-run
      Plan for the edited file: + create, ~ change, - delete, ! stays as it is
  nvmirage reload
      Apply it
  nvmirage reload --dry-run --json | jq '.held'
      Changes deferred because of an attached host

What was made at run time and is not in the file stays. Exit status 1: something of the file is not
served yet, and the lines with ! say why.";

/// Reload the configuration of a running server and apply it
///
/// An invalid file changes nothing. SIGHUP does the same, and writes its plan to the server's log.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ReloadCommand {
    /// Print the plan without applying it
    #[arg(long)]
    dry_run: bool,

    /// Allow hosts to lose controllers and namespaces that the file deletes or recreates
    #[arg(long)]
    detach_hosts: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    control: Control,
}

impl ReloadCommand {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let request = ReloadRequest {
            dry_run: self.dry_run,
            detach_hosts: self.detach_hosts,
        };
        let socket = if self.dry_run {
            self.control.to_read()?
        } else {
            self.control.to_change()?
        };
        let reload = requests::reload(&socket, request)?;
        if self.json {
            terminal::print_json(&reload)?
        } else {
            terminal::print(&shown(&reload))?
        }
        anyhow::ensure!(
            self.dry_run || reload.is_whole(),
            "{} is only partly applied: the lines with ! give the object, the reason, and the next step",
            reload.file
        );
        Ok(())
    }
}

fn shown(reload: &Reload) -> String {
    let mut text = String::new();
    for line in &reload.lost {
        text += &format!("! {line}\n");
    }
    for line in reload.lines() {
        text += &format!("{}\n", words::of_parameters(&line.to_string()));
    }
    let count = reload.steps.len();
    let last = match (count, reload.dry_run) {
        (0, _) if reload.is_whole() => "nothing to do: the file is already applied".to_owned(),
        (0, _) => "nothing else to do".to_owned(),
        (count, true) => format!("{count} to do; run without --dry-run to apply"),
        (count, false) => format!("{count} done"),
    };
    format!("{text}{last}\n")
}

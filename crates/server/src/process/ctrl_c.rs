//! Ctrl-C at the terminal of a server. If hosts would lose their drives, the first Ctrl-C warns,
//! and a second one within [`WINDOW`] ends the server. Without hosts, or without a terminal, the
//! first one ends it.

use std::io::{IsTerminal, stderr, stdin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::supervisor::Supervisor;

/// Time in which a second Ctrl-C ends the server.
const WINDOW: Duration = Duration::from_secs(10);
/// Maximum time to wait for the list of hosts while a change is in progress.
const PATIENCE: Duration = Duration::from_secs(1);

/// State of the two-step Ctrl-C; see the module.
#[derive(Debug, Default)]
pub(super) struct CtrlC {
    warned: Option<Instant>,
}

impl CtrlC {
    /// Whether the Ctrl-C just received ends the server.
    pub(super) async fn ends(&mut self, supervisor: &Arc<Supervisor>) -> bool {
        if !(stdin().is_terminal() || stderr().is_terminal()) || self.is_confirmed() {
            return true;
        }
        let supervisor = supervisor.clone();
        let list = tokio::task::spawn_blocking(move || supervisor.attached_hosts());
        let hosts = match tokio::time::timeout(PATIENCE, list).await {
            Ok(Ok(hosts)) => hosts.iter().map(ToString::to_string).collect(),
            Ok(Err(_)) | Err(_) => vec!["unknown, as a change is in progress".to_owned()],
        };
        let Some(warning) = warning(&hosts) else {
            return true;
        };
        // Printed, not logged: the answer to a key must appear at every log level.
        eprintln!("{warning}");
        self.warned = Some(Instant::now());
        false
    }

    fn is_confirmed(&self) -> bool {
        self.warned.is_some_and(|at| at.elapsed() < WINDOW)
    }
}

fn warning(hosts: &[String]) -> Option<String> {
    let count = match hosts.len() {
        0 => return None,
        1 => "1 host is attached".to_owned(),
        count => format!("{count} hosts are attached"),
    };
    Some(format!(
        "{count}: {}. Press Ctrl-C again within {} s to stop and detach {}",
        hosts.join(", "),
        WINDOW.as_secs(),
        if hosts.len() == 1 { "it" } else { "them" }
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_names_the_hosts() {
        assert_eq!(warning(&[]), None);
        let one = warning(&["nvme0 (pid 123, fio)".to_owned()]);
        assert_eq!(
            one.unwrap(),
            "1 host is attached: nvme0 (pid 123, fio). Press Ctrl-C again within 10 s to stop and detach it"
        );
        let two = warning(&["a".to_owned(), "b".to_owned()]).unwrap();
        assert!(two.starts_with("2 hosts are attached: a, b. "), "{two}");
    }

    #[test]
    fn a_first_one_counts_for_a_while() {
        let mut ctrl_c = CtrlC::default();
        assert!(!ctrl_c.is_confirmed());
        ctrl_c.warned = Some(Instant::now());
        assert!(ctrl_c.is_confirmed());
        ctrl_c.warned = Instant::now().checked_sub(WINDOW);
        assert!(!ctrl_c.is_confirmed());
    }
}

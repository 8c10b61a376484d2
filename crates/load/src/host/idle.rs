//! Idle queue pairs of a host: on its own controller, and on others of the same server.

use anyhow::{Context, bail};
use driver::bus::place::Place;
use driver::{Doorbells, prp};

use super::{Host, Needs, Queue};

/// Idle queue pairs to open. The size of their rings matters only for the memory that a server
/// keeps for them.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// Number of queue pairs, on all controllers together.
    pub queues: u32,
    /// Commands that each can hold.
    pub depth: u16,
}

/// Default size: a ring of one page.
pub const DEPTH: u16 = 63;
/// Maximum size that [`queue_len`] provides for.
pub const DEPTH_MAX: u16 = 1023;

/// Maximum number of idle queue pairs of a controller that memory is reserved for.
pub const MAX_QUEUES: u32 = 256;

/// Memory for the rings and PRP lists of an idle queue pair, on a host with commands of
/// `block_size` bytes.
pub(super) fn queue_len(block_size: u32) -> u64 {
    let entries = u64::from(DEPTH_MAX) + 1;
    let rings = (entries * 64).next_multiple_of(4096) + (entries * 16).next_multiple_of(4096);
    rings + prp::list_pages(u64::from(block_size).max(4096)) * 4096 * entries
}

/// Open idle queue pairs; dropping this closes them.
pub struct Kept {
    hosts: Vec<Host>,
    _queues: Vec<Queue>,
}

impl Idle {
    /// Opens the queue pairs one after the other: first on `host`, which keeps them, then on the
    /// controllers at `others`, each up to its limit.
    pub fn open(
        self,
        host: &mut Host,
        others: &[Place],
        doorbells: Doorbells,
        note: &mut dyn FnMut(usize),
    ) -> anyhow::Result<Kept> {
        let needs = Needs {
            idle: self.queues.min(MAX_QUEUES),
            ..Needs::of(1, 4096)
        };
        let mut hosts = Vec::new();
        for place in others {
            hosts.push(Host::connect(place, doorbells, needs)?);
            note(hosts.len());
        }
        let mut queues: Vec<Queue> = Vec::new();
        let wanted = usize::try_from(self.queues)?;
        while queues.len() < wanted {
            let before = queues.len();
            for host in std::iter::once(&mut *host).chain(&mut hosts) {
                if queues.len() < wanted && host.has_room() {
                    let queue = host.device().create_queue_pair(self.depth, false);
                    queues.push(queue.context("cannot create an idle queue pair")?);
                }
            }
            if queues.len() == before {
                bail!(
                    "{wanted} idle queue pairs exceed the {before} that the controllers have left: name more controllers with --idle-at"
                );
            }
        }
        Ok(Kept {
            hosts,
            _queues: queues,
        })
    }
}

impl Kept {
    /// Detaches from the other controllers.
    pub fn leave(self) -> anyhow::Result<()> {
        self.hosts.into_iter().try_for_each(Host::leave)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_and_lists_of_an_idle_queue_have_room() {
        // 1024 entries of 64 and of 16 bytes
        assert_eq!(queue_len(4096), 65_536 + 16_384);
        // plus a page of PRP list for each command
        assert_eq!(queue_len(8192), 65_536 + 16_384 + 1024 * 4096);
    }
}

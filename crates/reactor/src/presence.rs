//! Whether a controller has a host, and the host's process; of a controller over NVMe/TCP, NBD or
//! vhost-user-blk, its hosts: written by the reactor, read by any thread.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use port::time::Time;
use transport::nvme_tcp::Proof;

/// Called with the name of a controller, and whether it has a host now. It must not wait.
pub type Announce = fn(controller: &str, is_there: bool);

/// See the module.
#[derive(Debug)]
pub struct Presence {
    /// A single word, so that a reader never combines two hosts.
    host: AtomicU64,
    /// Hosts over NVMe/TCP, NBD clients and front ends, in order of arrival. The lock is taken when
    /// one comes or goes, and by readers.
    hosts: Mutex<Vec<HostView>>,
    announce: Announce,
}

/// A host over NVMe/TCP: an association, which has an admin connection and I/O connections. Or an
/// NBD client or a front end of vhost-user-blk, which has one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostView {
    /// Identifier of its controller.
    pub cntlid: u16,
    /// NVMe Qualified Name of the host; empty of an NBD client or front end, which has none.
    pub nqn: String,
    /// Export of an NBD client, or disk of a front end: the name of a namespace. `None`: a host
    /// over NVMe/TCP.
    pub export: Option<String>,
    /// Address of its admin connection, or of its only one. `None`: it has come over a UNIX socket.
    pub address: Option<SocketAddr>,
    /// Proof of the host.
    pub proof: Proof,
    /// It has come through TLS.
    pub is_secured: bool,
    /// Number of I/O queues.
    pub io_queues: u16,
    /// Keep alive timeout in milliseconds; 0: none.
    pub keep_alive_ms: u32,
    /// Time of its Connect command, of the choice of its export, or at which the front end was
    /// accepted, on the reactors' clock.
    pub connected: Time,
}

/// Bit that says that a host is attached.
const THERE: u64 = 1;

impl Presence {
    /// No host; changes are announced.
    pub fn new(announce: Announce) -> Self {
        Presence {
            host: AtomicU64::new(0),
            hosts: Mutex::default(),
            announce,
        }
    }

    /// A host of the controller has attached; its process, where known.
    pub(crate) fn enter(&self, controller: &str, process: Option<u32>) {
        let process = u64::from(process.unwrap_or_default());
        self.host.store((process << 1) | THERE, Ordering::Relaxed);
        (self.announce)(controller, true);
    }

    /// The controller's host has left.
    pub(crate) fn leave(&self, controller: &str) {
        self.host.store(0, Ordering::Relaxed);
        (self.announce)(controller, false);
    }

    /// A host over NVMe/TCP or a front end has connected, or an NBD client has chosen its export.
    pub fn enter_association(&self, controller: &str, host: HostView) {
        let mut hosts = self.all();
        hosts.push(host);
        self.host.store(THERE, Ordering::Relaxed);
        drop(hosts);
        (self.announce)(controller, true);
    }

    /// The number of I/O queues, or what it has proved, of a host has changed.
    pub fn change_association(&self, cntlid: u16, change: impl FnOnce(&mut HostView)) {
        let mut hosts = self.all();
        if let Some(host) = hosts.iter_mut().find(|host| host.cntlid == cntlid) {
            change(host);
        }
    }

    /// A host has left.
    pub fn leave_association(&self, controller: &str, cntlid: u16) {
        let mut hosts = self.all();
        let count = hosts.len();
        hosts.retain(|host| host.cntlid != cntlid);
        if hosts.is_empty() {
            self.host.store(0, Ordering::Relaxed);
        }
        let has_left = hosts.len() < count;
        drop(hosts);
        if has_left {
            (self.announce)(controller, false);
        }
    }

    /// The hosts over NVMe/TCP and the NBD clients, in order of arrival.
    pub fn hosts(&self) -> Vec<HostView> {
        self.all().clone()
    }

    /// A panic elsewhere leaves the list whole: each change is one call of `Vec`.
    fn all(&self) -> MutexGuard<'_, Vec<HostView>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a host is attached.
    pub fn is_there(&self) -> bool {
        self.host.load(Ordering::Relaxed) & THERE != 0
    }

    /// The host's process, where known.
    pub fn process(&self) -> Option<u32> {
        let process = self.host.load(Ordering::Relaxed) >> 1;
        u32::try_from(process).ok().filter(|process| *process != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_there_has_its_process() {
        static ANNOUNCED: AtomicU64 = AtomicU64::new(0);
        let presence = Presence::new(|controller, is_there| {
            assert_eq!(controller, "c");
            ANNOUNCED.fetch_add(if is_there { 1 } else { 256 }, Ordering::Relaxed);
        });
        assert!(!presence.is_there());
        presence.enter("c", Some(7));
        assert!(presence.is_there());
        assert_eq!(presence.process(), Some(7));
        assert_eq!(ANNOUNCED.load(Ordering::Relaxed), 1);
        presence.leave("c");
        assert_eq!(ANNOUNCED.load(Ordering::Relaxed), 257);
        assert!(!presence.is_there());
        assert_eq!(presence.process(), None);
    }

    #[test]
    fn hosts_over_tcp_come_change_and_go_one_by_one() {
        static ANNOUNCED: AtomicU64 = AtomicU64::new(0);
        let presence = Presence::new(|controller, is_there| {
            assert_eq!(controller, "c");
            ANNOUNCED.fetch_add(if is_there { 1 } else { 256 }, Ordering::Relaxed);
        });
        let host = |cntlid| HostView {
            cntlid,
            nqn: "nqn.2014-08.org.nvmexpress:uuid:1".to_owned(),
            export: None,
            address: Some("127.0.0.1:50000".parse().unwrap()),
            proof: Proof::default(),
            is_secured: false,
            io_queues: 0,
            keep_alive_ms: 5000,
            connected: Time(7),
        };
        for cntlid in [0x100, 0x101] {
            presence.enter_association("c", host(cntlid));
        }
        presence.change_association(0x101, |host| host.io_queues += 2);
        presence.change_association(0x102, |host| host.io_queues += 9);
        let changed = HostView {
            io_queues: 2,
            ..host(0x101)
        };
        assert_eq!(presence.hosts(), [host(0x100), changed.clone()]);
        assert_eq!(presence.process(), None);
        // the second one is for an association that has ended already
        for _ in 0..2 {
            presence.leave_association("c", 0x100);
        }
        assert!(presence.is_there());
        assert_eq!(presence.hosts(), [changed]);
        assert_eq!(ANNOUNCED.load(Ordering::Relaxed), 2 + 256);
        presence.leave_association("c", 0x101);
        assert!(!presence.is_there());
        assert_eq!(presence.hosts(), []);
    }
}

//! The host of a controller, as far as the controller knows it: where it is, and over fabrics the
//! association, with the traffic that keeps it alive.
//!
//! The transport plays the host of the controller: it writes registers, creates the queues and
//! copies commands and completions. It does NOT come here with sockets, capsules or the identifiers
//! of its connections.

use std::sync::Arc;

use subsystem::Subsystem;

use super::Controller;
use super::lifecycle::Phase;

/// The host of a controller. One of a PCI function, which is outside, has nothing here.
#[derive(Debug, Default)]
pub(crate) struct Host {
    /// It is inside this process.
    is_inside: bool,
    /// Its NQN, where it has one.
    nqn: Option<Arc<str>>,
    /// The host that has connected, of a controller over fabrics.
    association: Option<Association>,
}

/// A host that has connected.
#[derive(Clone, Copy, Debug)]
struct Association {
    host_id: [u8; 16],
    keep_alive_ms: u32,
    /// The subsystem does not know of it yet.
    is_new: bool,
    /// It has not proved yet that it is the one that it names.
    is_claimed: bool,
    /// Bytes have come from the host since the last turn.
    heard: bool,
}

impl Host {
    pub(super) fn is_inside(&self) -> bool {
        self.is_inside
    }

    /// Whether bytes have come since the last call.
    pub(super) fn take_heard(&mut self) -> bool {
        let association = self.association.as_mut();
        association.is_some_and(|association| std::mem::take(&mut association.heard))
    }

    /// Of a reset: the host is the same.
    pub(super) fn stays(&mut self) {
        if let Some(association) = &mut self.association {
            association.is_new = true;
        }
    }
}

impl Controller {
    /// Its host is inside this process: I/O queues that it creates from now on accept queries for
    /// allocated blocks ([`port::allocation`]).
    pub fn set_inside(&mut self) {
        self.host.is_inside = true;
    }

    /// A host has connected: its Host Identifier, and its Keep Alive Timeout in milliseconds, where
    /// 0 is none. Once, before the first turn of a controller over fabrics. The Keep Alive Timer
    /// runs from then on.
    pub fn connect(&mut self, host_id: [u8; 16], keep_alive_ms: u32) {
        debug_assert!(
            self.config.is_over_fabrics(),
            "no host connects to a PCI function"
        );
        self.host.association = Some(Association {
            host_id,
            keep_alive_ms,
            is_new: true,
            is_claimed: false,
            heard: true,
        });
        self.apply_connect();
    }

    /// The host that has connected is to prove who it is: the subsystem does not know of it before
    /// [`Self::host_has_proved`].
    pub fn await_proof(&mut self) {
        if let Some(association) = &mut self.host.association {
            association.is_claimed = true;
        }
    }

    /// The host has proved who it is.
    pub fn host_has_proved(&mut self) {
        if let Some(association) = &mut self.host.association {
            association.is_claimed = false;
        }
    }

    /// The name of the host that has connected, which decides what it sees.
    pub fn name_host(&mut self, nqn: &str) {
        self.host.nqn = Some(nqn.into());
    }

    /// The Keep Alive Timeout in milliseconds, of Connect or of the feature; 0 is none.
    #[must_use]
    pub fn keep_alive_ms(&self) -> u32 {
        self.features.keep_alive_ms()
    }

    /// Bytes have come from the host, on any of its connections: the Keep Alive Timer restarts with
    /// the next turn (traffic based keep alive; Base 2.1, 3.9).
    ///
    /// A timer that has expired is looked at again by a turn at least 100 ms later before the
    /// controller fails. So a thread that was stopped blames no host, if it reads the sockets of an
    /// association at least once between two turns that are so far apart.
    #[inline]
    pub fn heard(&mut self) {
        if let Some(association) = &mut self.host.association {
            association.heard = true;
        }
    }

    /// The values of features that Connect has set: a Controller Level Reset keeps them (Base 2.1,
    /// 6.3).
    pub(super) fn apply_connect(&mut self) {
        if let Some(association) = self.host.association {
            self.features
                .connected(&association.host_id, association.keep_alive_ms);
        }
    }

    /// Tells the subsystem who the host is.
    pub(super) fn introduce_host(&mut self, subsystem: &mut Subsystem) {
        let Some(association) = &mut self.host.association else {
            return;
        };
        if association.is_claimed || !std::mem::take(&mut association.is_new) {
            return;
        }
        let (id, mut is_anothers) = (&association.host_id, false);
        if let Some(nqn) = &self.host.nqn {
            subsystem.name_host(self.id, nqn);
            is_anothers = subsystem.is_anothers(id, nqn);
        }
        // Both connected at the same time. One without an identifier has no reservation.
        if !is_anothers {
            subsystem.continue_host(self.id, id);
        }
    }

    /// Whether a host has connected and the controller is not enabled.
    pub(super) fn waits_for_enable(&self) -> bool {
        self.host.association.is_some() && self.life.phase == Phase::Disabled
    }
}

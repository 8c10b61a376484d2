//! Usage figures of tenants, for monitoring.
//!
//! An engine counts for itself, and publishes its counts once a turn with a few atomic additions,
//! for any number of commands. The numbers guard nothing: one may be visible before another.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Usage of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantFigures {
    /// Commands that went to media.
    pub commands: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Commands that had to wait for the tenant's caps.
    pub capped: u64,
    /// Commands that had to wait for others, or for the limit of commands in flight.
    pub held: u64,
    /// Commands that media have.
    pub in_flight: u64,
}

/// The same for all engines together.
#[derive(Debug, Default)]
pub(super) struct Had {
    commands: AtomicU64,
    bytes: AtomicU64,
    capped: AtomicU64,
    held: AtomicU64,
    in_flight: AtomicU64,
}

impl Had {
    pub(super) fn get(&self) -> TenantFigures {
        TenantFigures {
            commands: self.commands.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            capped: self.capped.load(Relaxed),
            held: self.held.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
        }
    }
}

/// One engine's counts for a tenant.
#[derive(Debug, Default)]
pub(super) struct Counted {
    now: TenantFigures,
    sent: TenantFigures,
}

impl Counted {
    /// Commands that media have.
    pub(super) fn in_flight(&self) -> u64 {
        self.now.in_flight
    }

    /// A command goes to a medium, which has it from now on where it is `pending`.
    #[inline]
    pub(super) fn went(&mut self, bytes: u32, pending: bool) {
        self.now.commands += 1;
        self.now.bytes += u64::from(bytes);
        self.now.in_flight += u64::from(pending);
    }

    /// A medium has ended one.
    #[inline]
    pub(super) fn ended(&mut self) {
        self.now.in_flight = self.now.in_flight.saturating_sub(1);
    }

    /// One has to wait.
    pub(super) fn waits(&mut self, by_cap: bool) {
        if by_cap {
            self.now.capped += 1
        } else {
            self.now.held += 1
        }
    }

    /// Publishes new counts.
    #[inline]
    pub(super) fn tell(&mut self, had: &Had) {
        if self.now == self.sent {
            return;
        }
        let (now, sent) = (self.now, self.sent);
        for (sum, now, sent) in [
            (&had.commands, now.commands, sent.commands),
            (&had.bytes, now.bytes, sent.bytes),
            (&had.capped, now.capped, sent.capped),
            (&had.held, now.held, sent.held),
            (&had.in_flight, now.in_flight, sent.in_flight),
        ] {
            if now != sent {
                // In flight may have become fewer: all of it is modulo 2^64.
                sum.fetch_add(now.wrapping_sub(sent), Relaxed);
            }
        }
        self.sent = now;
    }
}

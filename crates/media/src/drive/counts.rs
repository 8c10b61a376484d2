//! Counters of a drive, written by its channels and the drive supervisor ([`super::keeper`]),
//! readable by any thread.
//!
//! A channel counts locally and publishes now and then, so that no command writes to memory that
//! other reactors write to.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use port::DriveReport;

use super::op::GONE;
use crate::trouble::Troubles;

/// Counters of commands at a drive, and state of the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveCounts {
    /// Commands that the drive has answered, on all channels; one host command may need several.
    pub commands: u64,
    /// Host requests that ended as interrupted: the drive did not answer in time, was reset, or was
    /// lost.
    pub interrupted: u64,
    /// Queue pairs that were abandoned.
    pub queues_given_up: u64,
    /// Resets of the drive.
    pub resets: u64,
    /// Losses of the drive.
    pub losses: u64,
    /// Whether the drive is available.
    pub is_there: bool,
    /// Latest Composite Temperature in kelvins; 0 if the drive reports none.
    pub temperature: u64,
    /// Latest Available Spare in percent; `None` without a health log.
    pub available_spare: Option<u64>,
    /// Latest Percentage Used; `None` without a health log.
    pub percentage_used: Option<u64>,
}

/// The shared form of the counters.
#[derive(Debug, Default)]
pub(super) struct Counting {
    /// Errors of all channels.
    pub(super) troubles: Arc<Troubles>,
    pub(super) commands: AtomicU64,
    pub(super) interrupted: AtomicU64,
    pub(super) queues_given_up: AtomicU64,
    pub(super) resets: AtomicU64,
    pub(super) losses: AtomicU64,
    pub(super) is_there: AtomicBool,
    has_health: AtomicBool,
    temperature: AtomicU64,
    available_spare: AtomicU64,
    percentage_used: AtomicU64,
}

// Relaxed: the numbers are independent.
impl Counting {
    /// Records the loss of the drive.
    pub(super) fn lost(&self) {
        self.losses.fetch_add(1, Relaxed);
        self.is_there.store(false, Relaxed);
        self.troubles.note(&GONE);
    }

    pub(super) fn add(to: &AtomicU64, more: u64) {
        if more > 0 {
            to.fetch_add(more, Relaxed);
        }
    }

    /// Records the drive's health report.
    pub(super) fn reported(&self, report: &DriveReport) {
        let Some(health) = &report.health else {
            return;
        };
        let temperature = health.composite_temperature.get();
        self.temperature.store(temperature.into(), Relaxed);
        self.available_spare
            .store(health.available_spare.into(), Relaxed);
        self.percentage_used
            .store(health.percentage_used.into(), Relaxed);
        self.has_health.store(true, Relaxed);
    }

    pub(super) fn counts(&self) -> DriveCounts {
        let has_health = self.has_health.load(Relaxed);
        let of_health = |number: &AtomicU64| has_health.then(|| number.load(Relaxed));
        DriveCounts {
            commands: self.commands.load(Relaxed),
            interrupted: self.interrupted.load(Relaxed),
            queues_given_up: self.queues_given_up.load(Relaxed),
            resets: self.resets.load(Relaxed),
            losses: self.losses.load(Relaxed),
            is_there: self.is_there.load(Relaxed),
            temperature: self.temperature.load(Relaxed),
            available_spare: of_health(&self.available_spare),
            percentage_used: of_health(&self.percentage_used),
        }
    }
}

//! Caps: a rate per second, and a burst.
//!
//! A bucket is one number that the reactors of a process share: the time when it will be full
//! again. Spending moves that time on by as long as it takes to earn the amount. The bucket holds
//! its burst, less the time from now until then. It may be overdrawn by one command, which is paid
//! back before the next: so commands of any size pass, and over time exactly as much as the cap
//! allows.
//!
//! A reactor reads the bucket once a turn and reports its spending at the end of the turn, with one
//! atomic operation for any number of commands. Several reactors of one tenant may thus overdraw by
//! what each of them admits in a turn, and pay it back.
//!
//! Time counts in sixteenths of a nanosecond, and remainders are carried over: nothing is lost.

use std::sync::atomic::{AtomicU64, Ordering};

use port::time::Time;

/// Sixteenths of a nanosecond in a second.
const SECOND: u128 = 16_000_000_000;
/// Bits of a nanosecond's fraction.
const FRACTION_BITS: u32 = 4;
/// The longest time that a burst takes to earn: some 36 years lie between this and the end of time.
const LONGEST: u64 = u64::MAX / 4;

/// A limit per second, with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// In a second; not 0.
    pub per_second: u64,
    /// At once, after a rest; not 0.
    pub burst: u64,
}

/// The rest of a cap, for all reactors of a process.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// Units in a second; 0: there is no cap.
    per_second: AtomicU64,
    burst: AtomicU64,
    /// When it is full, in sixteenths of a nanosecond.
    full_at: AtomicU64,
}

impl Bucket {
    /// Changes the cap. A new cap begins with an empty bucket; a changed one keeps its contents.
    pub(super) fn set(&self, cap: Option<Cap>, now: Time) {
        let Cap { per_second, burst } = cap.unwrap_or(Cap {
            per_second: 0,
            burst: 0,
        });
        let before = self.per_second.swap(per_second, Ordering::Relaxed);
        let before = (before, self.burst.swap(burst, Ordering::Relaxed));
        if before == (per_second, burst) || per_second == 0 {
            return;
        }
        let full_at = fine(now).saturating_add(earns(burst.into(), per_second).0);
        // At the first start no reactor has spent anything.
        let full_at = if before == (0, 0) { 0 } else { full_at };
        self.full_at.store(full_at, Ordering::Relaxed);
    }

    fn cap(&self) -> Option<Cap> {
        let per_second = self.per_second.load(Ordering::Relaxed);
        let burst = self.burst.load(Ordering::Relaxed).max(1);
        (per_second > 0).then_some(Cap { per_second, burst })
    }
}

/// One reactor's view of a bucket in a turn, and its spending.
#[derive(Debug, Default)]
pub(super) struct Purse {
    cap: Option<Cap>,
    now: u64,
    full_at: u64,
    /// The bucket may be earned back by so much later than it is full.
    patience: u64,
    spent: u64,
    /// Remainder of the time to earn it, less than a sixteenth, in parts of the cap.
    rest: u64,
}

impl Purse {
    /// Looks into the bucket at the begin of a turn.
    #[inline]
    pub(super) fn look(&mut self, bucket: &Bucket, now: Time) {
        let cap = bucket.cap();
        if cap != self.cap {
            self.cap = cap;
            self.rest = 0;
            self.patience = cap.map_or(0, |Cap { per_second, burst }| {
                // One unit must be there.
                earns((burst - 1).into(), per_second).0
            });
        }
        if self.cap.is_some() {
            self.now = fine(now);
            self.full_at = bucket.full_at.load(Ordering::Relaxed);
        }
    }

    /// Whether there is something to spend.
    #[inline]
    pub(super) fn has_some(&self) -> bool {
        self.cap.is_none() || self.full_at <= self.now.saturating_add(self.patience)
    }

    /// When there is something to spend, unless others spend it first.
    pub(super) fn ready_at(&self) -> Time {
        let at = self.full_at.saturating_sub(self.patience);
        Time(at.div_ceil(1 << FRACTION_BITS))
    }

    /// Spends so much.
    #[inline]
    pub(super) fn spend(&mut self, units: u64) {
        if let Some(Cap { per_second, .. }) = self.cap {
            let owed = u128::from(units) * SECOND + u128::from(self.rest);
            let takes = (owed / u128::from(per_second)).min(LONGEST.into()) as u64;
            self.rest = (owed % u128::from(per_second)) as u64;
            self.spent = self.spent.saturating_add(takes);
            self.full_at = self.full_at.max(self.now).saturating_add(takes);
        }
    }

    /// Publishes the spending of the turn.
    #[inline]
    pub(super) fn tell(&mut self, bucket: &Bucket) {
        let spent = std::mem::take(&mut self.spent);
        if spent > 0 {
            let now = self.now;
            let later = |full_at: u64| Some(full_at.max(now).saturating_add(spent));
            let told = bucket
                .full_at
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
            debug_assert!(told.is_ok(), "there is always a later moment");
        }
    }
}

/// In sixteenths of a nanosecond.
#[inline]
fn fine(now: Time) -> u64 {
    now.0.saturating_mul(1 << FRACTION_BITS)
}

/// Time to earn `units`, and the remainder of the division.
fn earns(units: u128, per_second: u64) -> (u64, u64) {
    let (owed, per_second) = (units * SECOND, u128::from(per_second));
    let takes = (owed / per_second).min(LONGEST.into()) as u64;
    (takes, (owed % per_second) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes commands of so many units as fast as they go, until then; how many.
    fn taken(bucket: &Bucket, purse: &mut Purse, units: u64, from: u64, until: u64) -> u64 {
        let (mut count, mut now) = (0, Time(from));
        while now.0 < until {
            purse.look(bucket, now);
            if purse.has_some() {
                purse.spend(units);
                count += 1;
            } else {
                now = purse.ready_at().max(Time(now.0 + 1));
            }
            purse.tell(bucket);
        }
        count
    }

    fn bucket(per_second: u64, burst: u64) -> Bucket {
        let bucket = Bucket::default();
        bucket.set(Some(Cap { per_second, burst }), Time(0));
        bucket
    }

    #[test]
    fn the_burst_comes_at_once_and_then_the_rate_without_drift() {
        for (rate, burst, seconds) in [
            (1_000, 1, 3600),
            (1_000, 100, 3600),
            (333_333, 7, 100),
            (7_777_777, 4096, 10),
        ] {
            let bucket = bucket(rate, burst);
            let mut purse = Purse::default();
            let start = 5_000_000_000;
            assert_eq!(taken(&bucket, &mut purse, 1, start, start + 1), burst);
            // From here on each is earned: less than one is missing or too much, in an hour, too.
            let end = start + 1 + seconds * 1_000_000_000;
            let count = taken(&bucket, &mut purse, 1, start + 1, end);
            let earned = rate * seconds;
            assert!(count.abs_diff(earned) <= 1, "{count} of {earned} at {rate}");
        }
    }

    #[test]
    fn a_command_larger_than_the_burst_goes_and_is_paid_back() {
        let bucket = bucket(1 << 20, 4096);
        let mut purse = Purse::default();
        let second = 1_000_000_000;
        let count = taken(&bucket, &mut purse, 1 << 20, second, 11 * second);
        assert!(
            (10..=11).contains(&count),
            "{count} of a MiB in ten seconds"
        );
    }

    #[test]
    fn two_reactors_share_one_cap() {
        let bucket = bucket(100_000, 10);
        let mut purses = [Purse::default(), Purse::default()];
        let mut count = 0;
        for now in (0..1_000_000_000).step_by(500) {
            for purse in &mut purses {
                purse.look(&bucket, Time(now));
                while purse.has_some() {
                    purse.spend(1);
                    count += 1;
                }
                purse.tell(&bucket);
            }
        }
        assert!((100_000..=100_011).contains(&count), "{count}");
    }

    #[test]
    fn nothing_is_forgiven_and_nothing_doubled_by_a_change() {
        let bucket = bucket(1_000, 1_000);
        let mut purse = Purse::default();
        taken(&bucket, &mut purse, 1, 0, 1);
        // The same again changes nothing.
        bucket.set(
            Some(Cap {
                per_second: 1_000,
                burst: 1_000,
            }),
            Time(1),
        );
        assert_eq!(taken(&bucket, &mut purse, 1, 1, 2), 0);
        // Another cap begins empty.
        bucket.set(
            Some(Cap {
                per_second: 2_000,
                burst: 10,
            }),
            Time(2),
        );
        let count = taken(&bucket, &mut purse, 1, 2, 1_000_000_002);
        assert!((1_999..=2_000).contains(&count), "{count}");
        bucket.set(None, Time(1_000_000_002));
        purse.look(&bucket, Time(1_000_000_002));
        assert!(purse.has_some());
    }
}

//! Time as an argument: nanoseconds on a clock that never goes back.
//!
//! The crate reads no clock. A reactor passes one stamp per turn, and a simulator passes virtual
//! time.

use std::ops::Add;

/// A moment, in nanoseconds since an origin that the caller chose once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Nanoseconds from `earlier` until this moment; 0 where `earlier` is not earlier.
    #[must_use]
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The moment `nanoseconds` later; saturates at the end of time, which is 584 years away.
impl Add<u64> for Time {
    type Output = Time;

    fn add(self, nanoseconds: u64) -> Time {
        Time(self.0.saturating_add(nanoseconds))
    }
}

#[cfg(test)]
mod tests {
    use super::Time;

    #[test]
    fn sums_and_differences_saturate() {
        assert_eq!(Time(5) + 7, Time(12));
        assert_eq!(Time(u64::MAX) + 1, Time(u64::MAX));
        assert_eq!(Time(9).since(Time(4)), 5);
        assert_eq!(Time(4).since(Time(9)), 0);
    }
}

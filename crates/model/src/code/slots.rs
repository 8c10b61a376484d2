//! Links and channels of the published program: time slots with credits, instead of intervals.
//!
//! Time is divided into slots of 4 us. A slot has one credit for each block of 128 bytes that it
//! can carry, rounded down. A transfer takes the free credits of the slot in which it may begin,
//! then those of later slots. So, as with intervals, a transfer that begins later does not delay an
//! earlier one that is requested afterwards; but rounding loses up to 5 % of the bandwidth.
//!
//! ```text
//! credits of a slot   C = floor(floor(B * 4000 ns) / 128)
//! time of a credit    x = floor(128 / B) + floor(firmware_channel_transfer * 128 / 4096)
//! n = ceil(len / 128), taken from the slot of t on; s slots further than the first
//! done at t + x * n + max(0, s - floor(n / C)) * 4000;  t more than 98304 slots ahead: at t
//! ```
//!
//! The program counts credits in 8 bits, so it miscounts more than 255 per slot. A bandwidth with
//! more than 255 credits, or with none, is rejected.

use std::collections::VecDeque;

use crate::units::{CREDIT, SECOND, SLOT_NS, credits};

/// Slots that the program looks ahead.
const SLOTS: u64 = 98_304;

/// One link or channel.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// Credits of a slot; 0: unlimited.
    credits: u64,
    /// Nanoseconds for each of them.
    credit_ns: u64,
    /// The slot that `used` begins with.
    first: u64,
    used: VecDeque<u64>,
}

/// Bytes that go through in a second at most, at a bandwidth; 0: as many as one likes.
pub(crate) fn effective(bytes_per_s: u64) -> u64 {
    match bytes_per_s {
        0 => 0,
        rate => credits(rate) * CREDIT * (SECOND / SLOT_NS),
    }
}

impl Slots {
    /// Sets the bandwidth, and an additional time for each 4096 bytes.
    pub(crate) fn retune(&mut self, bytes_per_s: u64, per_page_ns: u64) {
        self.credits = credits(bytes_per_s);
        let own = match bytes_per_s {
            0 => 0,
            rate => CREDIT * SECOND / rate,
        };
        self.credit_ns = own.saturating_add(per_page_ns.saturating_mul(CREDIT) / 4096);
    }

    /// End of the transfer of `bytes` that may begin at `from`. `now` is the present, at most
    /// `from`.
    pub(crate) fn reserve(&mut self, now: u64, from: u64, bytes: u32) -> u64 {
        let wanted = u64::from(bytes).div_ceil(CREDIT);
        let through = from.saturating_add(self.credit_ns.saturating_mul(wanted));
        let (present, begin) = (now / SLOT_NS, from / SLOT_NS);
        if self.credits == 0 {
            return through;
        }
        if begin - present >= SLOTS {
            return from;
        }
        while self.first < present && self.used.pop_front().is_some() {
            self.first += 1;
        }
        if self.used.is_empty() {
            self.first = present;
        }
        let mut left = wanted;
        let mut slot = begin;
        loop {
            let credits = self.credits;
            let used = self.used(slot);
            let taken = left.min(credits.saturating_sub(*used));
            *used += taken;
            left -= taken;
            if left == 0 {
                break;
            }
            slot += 1;
        }
        let beyond = (slot - begin).saturating_sub(wanted / self.credits);
        through.saturating_add(beyond * SLOT_NS)
    }

    fn used(&mut self, slot: u64) -> &mut u64 {
        let index = usize::try_from(slot - self.first).expect("slots ahead are few");
        if index >= self.used.len() {
            self.used.resize(index + 1, 0);
        }
        &mut self.used[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::is_counted;

    const MIB: u64 = 1 << 20;

    fn slots(bandwidth: u64) -> Slots {
        let mut slots = Slots::default();
        slots.retune(bandwidth, 0);
        slots
    }

    /// The bandwidths of the program's configurations.
    #[test]
    fn credits_and_their_time() {
        for (bandwidth, credits, ns) in [
            (800, 26, 152),
            (450, 14, 271),
            (3360, 110, 36),
            (3200, 104, 38),
            (3050, 99, 40),
        ] {
            let slots = slots(bandwidth * MIB);
            assert_eq!(
                (slots.credits, slots.credit_ns),
                (credits, ns),
                "{bandwidth}"
            );
            assert_eq!(effective(bandwidth * MIB), credits * 128 * 250_000);
        }
        // 413 ns for each 4 KiB are 12 for each credit
        let mut prototype = Slots::default();
        prototype.retune(800 * MIB, 413);
        assert_eq!(prototype.credit_ns, 164);
    }

    /// 32 credits of 152 ns; a slot has 26. Alone: 1 slot further, and floor(32 / 26) = 1 is
    /// expected.
    #[test]
    fn a_page_over_a_channel_of_800() {
        let mut channel = slots(800 * MIB);
        assert_eq!(channel.reserve(0, 0, 4096), 4_864);
        // 20 left in the second slot, 12 from the third: two slots further than the first, which is
        // full
        assert_eq!(channel.reserve(0, 0, 4096), 4_864 + 4_000);
        // 14 left in the third, 18 in the fourth: three further
        assert_eq!(channel.reserve(0, 0, 4096), 4_864 + 8_000);
        // later, with nothing before it
        assert_eq!(channel.reserve(0, 100_100, 4096), 104_964);
    }

    #[test]
    fn a_transfer_that_begins_later_delays_none_that_begins_earlier() {
        let mut link = slots(3360 * MIB);
        // 128 credits of 36 ns; 110 in a slot
        assert_eq!(link.reserve(0, 40_000, 16 << 10), 44_608);
        assert_eq!(link.reserve(0, 0, 16 << 10), 4_608);
        // 92 left in the second slot, then the third
        assert_eq!(link.reserve(0, 0, 16 << 10), 4_608 + 4_000);
    }

    #[test]
    fn what_is_too_far_ahead_is_not_delayed_and_the_past_is_forgotten() {
        let mut channel = slots(800 * MIB);
        let far = SLOTS * SLOT_NS;
        assert_eq!(channel.reserve(0, far, 4096), far);
        assert_eq!(channel.reserve(0, far - 1, 128), far - 1 + 152);
        assert_eq!(channel.reserve(far, far, 4096), far + 4_864);
        assert!(channel.used.len() <= 2, "{}", channel.used.len());
    }

    #[test]
    fn bandwidths_that_it_cannot_count_with() {
        assert!(is_counted(0));
        assert!(!is_counted(31_999_999));
        assert!(is_counted(32_000_000));
        assert!(is_counted(7_782 * MIB));
        assert!(!is_counted(8_192_000_000));
        // not limited
        assert_eq!(slots(0).reserve(0, 7, 1 << 20), 7);
    }
}

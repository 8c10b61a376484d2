//! Pages, and durations of transfers.

use std::ops::Range;

/// Bytes of a host's page, in every model.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes of a page, the unit of mapping and of the firmware's costs.
pub(crate) const PAGE: u64 = PAGE_BYTES;

/// The same, where lengths of one command are meant.
pub(crate) const PAGE_LEN: u32 = 4096;

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Length of a slot of a link of the published program; see [`crate::code`].
pub(crate) const SLOT_NS: u64 = 4_000;

/// Bytes of a credit of such a slot.
pub(crate) const CREDIT: u64 = 128;

/// Nanoseconds that `bytes` take at `bytes_per_s`, rounded up; none where that is 0 (not limited).
pub(crate) fn duration(bytes: u32, bytes_per_s: u64) -> u64 {
    match bytes_per_s {
        0 => 0,
        rate => (u64::from(bytes) * SECOND).div_ceil(rate), // below 2^62
    }
}

/// Credits of a slot at a bandwidth.
pub(crate) fn credits(bytes_per_s: u64) -> u64 {
    let bytes = u128::from(bytes_per_s) * u128::from(SLOT_NS) / u128::from(SECOND);
    u64::try_from(bytes).unwrap_or(u64::MAX) / CREDIT
}

/// Whether the program can count with that bandwidth, in bytes per second; 0 is none.
pub(crate) fn is_counted(bytes_per_s: u64) -> bool {
    bytes_per_s == 0 || (1..=u64::from(u8::MAX)).contains(&credits(bytes_per_s))
}

/// The pages that `len` bytes at `offset` touch, of `total` pages.
pub(crate) fn pages_touched(offset: u64, len: u32, total: u64) -> Range<u64> {
    if len == 0 {
        return 0..0;
    }
    let end = offset.saturating_add(u64::from(len)).div_ceil(PAGE);
    let start = offset / PAGE;
    start.min(total)..end.min(total)
}

/// The pages completely within `len` bytes at `offset`, of `total` pages.
pub(crate) fn pages_within(offset: u64, len: u64, total: u64) -> Range<u64> {
    let end = (offset.saturating_add(len) / PAGE).min(total);
    offset.div_ceil(PAGE).min(end)..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up_and_no_bandwidth_takes_no_time() {
        assert_eq!(duration(4096, 800_000_000), 5120);
        assert_eq!(duration(4096, 3_000_000_000), 1366); // 1365.33
        assert_eq!(duration(1, 1), SECOND);
        assert_eq!(duration(u32::MAX, 0), 0);
        assert_eq!(duration(u32::MAX, 1), 4_294_967_295_000_000_000);
    }

    #[test]
    fn pages_are_touched_in_part_and_lie_within_as_a_whole() {
        assert_eq!(pages_touched(0, 4096, 100), 0..1);
        assert_eq!(pages_touched(4095, 2, 100), 0..2);
        assert_eq!(pages_touched(4096, 512, 100), 1..2);
        assert_eq!(pages_touched(99 * 4096, 8192, 100), 99..100);
        assert!(pages_touched(u64::MAX, u32::MAX, 100).is_empty());
        assert!(pages_touched(0, 0, 100).is_empty());
        assert_eq!(pages_within(0, 4096, 100), 0..1);
        assert_eq!(pages_within(1, 8192, 100), 1..2);
        assert!(pages_within(1, 4096, 100).is_empty());
        assert_eq!(pages_within(0, u64::MAX, 100), 0..100);
        assert!(pages_within(u64::MAX, u64::MAX, 100).is_empty());
    }
}

//! Copies of a store's bytes, which mostly are in no cache.
//!
//! Past the caches: a usual store first fetches the line that it writes. Where a medium is larger
//! than the caches, that line comes from memory although none of it is read, and the copy of a
//! write takes about twice as long as necessary. Non-temporal stores write whole lines without
//! fetching them.
//!
//! In parts: a copy from one end to the other waits for memory at the start of each page, where the
//! processor has to notice again that lines are read in order. Four parts at the same time wait for
//! four pages together.

/// Length in bytes from which a copy goes past the caches. Shorter ones were not measured.
pub(super) const STREAM_MIN: usize = 4096;
/// Length in bytes of a store from which on most of it is in no cache: twice the last-level cache
/// of the processor that was measured.
pub(super) const STORE_MIN: usize = 64 << 20;

/// Length in bytes from which on a copy is made in parts at the same time.
pub(super) const PARTS_MIN: usize = 64 << 10;
/// How many.
const PARTS: usize = 4;

/// A cache line.
const LINE: usize = 64;

/// Copies `len` bytes past the caches; false: nothing was copied, because this processor or these
/// addresses do not allow it. The stored bytes are visible to other processors before anything that
/// this thread stores afterwards.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`], except that others may write to the bytes meanwhile:
/// any mixture is a valid result.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> bool {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const WORD: usize = size_of::<__m128i>();
    if !(to as usize | len).is_multiple_of(LINE) {
        return false;
    }
    for at in (0..len).step_by(LINE) {
        // SAFETY: the line lies inside both ranges; the destination is aligned, as checked above.
        // Every processor of this architecture has SSE2.
        unsafe {
            let from = from.add(at).cast::<__m128i>();
            let to = to.add(at).cast::<__m128i>();
            let words = [
                _mm_loadu_si128(from),
                _mm_loadu_si128(from.byte_add(WORD)),
                _mm_loadu_si128(from.byte_add(2 * WORD)),
                _mm_loadu_si128(from.byte_add(3 * WORD)),
            ];
            _mm_stream_si128(to, words[0]);
            _mm_stream_si128(to.byte_add(WORD), words[1]);
            _mm_stream_si128(to.byte_add(2 * WORD), words[2]);
            _mm_stream_si128(to.byte_add(3 * WORD), words[3]);
        }
    }
    // Non-temporal stores are weakly ordered (Intel SDM, MOVNTDQ): without a fence a host could see
    // the completion before the data.
    // SAFETY: every processor of this architecture has it.
    unsafe { _mm_sfence() };
    true
}

/// Nothing: other processors find out by themselves that whole lines are written.
///
/// # Safety
/// None is needed.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) unsafe fn copy(_: *const u8, _: *mut u8, _: usize) -> bool {
    false
}

/// Copies `len` bytes in several parts at the same time; false: nothing was copied, because this
/// processor or this length does not allow it.
///
/// # Safety
/// As for [`copy`].
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) unsafe fn copy_in_parts(from: *const u8, to: *mut u8, len: usize) -> bool {
    let suits = len.is_multiple_of(PARTS * LINE) && std::arch::is_x86_feature_detected!("avx");
    if suits {
        // SAFETY: the processor has AVX, and the length is as asked for; the rest as for us.
        unsafe { copy_in_parts_avx(from, to, len) };
    }
    suits
}

/// # Safety
/// As for [`copy`]; `len` is a multiple of a line in each part.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_in_parts_avx(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256};
    const WORD: usize = size_of::<__m256i>();
    let part = len / PARTS;
    for at in (0..part).step_by(LINE) {
        for first in (0..PARTS).map(|number| number * part) {
            // SAFETY: the line lies inside both ranges.
            unsafe {
                let from = from.add(first + at).cast::<__m256i>();
                let to = to.add(first + at).cast::<__m256i>();
                let words = [
                    _mm256_loadu_si256(from),
                    _mm256_loadu_si256(from.byte_add(WORD)),
                ];
                _mm256_storeu_si256(to, words[0]);
                _mm256_storeu_si256(to.byte_add(WORD), words[1]);
            }
        }
    }
}

/// Nothing: it was not measured there.
///
/// # Safety
/// None is needed.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) unsafe fn copy_in_parts(_: *const u8, _: *mut u8, _: usize) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_whole() {
        let has_avx = {
            #[cfg(target_arch = "x86_64")]
            let it = std::arch::is_x86_feature_detected!("avx");
            #[cfg(not(target_arch = "x86_64"))]
            let it = false;
            it
        };
        let from: Vec<u8> = (0..200_000u32).map(|at| ((at * 7) >> 4) as u8).collect();
        for (start, at, len) in [
            (0, 0, PARTS_MIN),
            (5, 3, 128 << 10),
            (64, 1, PARTS_MIN + 256),
            (0, 0, 256),
            (0, 0, PARTS_MIN + 128),
            (0, 0, PARTS_MIN + 1),
        ] {
            let mut to = vec![255; at + len + 64];
            // SAFETY: both ranges lie inside.
            let copied =
                unsafe { copy_in_parts(from.as_ptr().add(start), to.as_mut_ptr().add(at), len) };
            assert_eq!(
                copied,
                has_avx && len.is_multiple_of(256),
                "{start} {at} {len}"
            );
            if copied {
                assert!(
                    to[at..at + len] == from[start..start + len],
                    "{start} {at} {len}"
                );
                to[at..at + len].fill(255);
            }
            assert!(to.iter().all(|byte| *byte == 255), "{start} {at} {len}");
        }
    }

    /// Lines, aligned as the pages of a store.
    #[repr(align(64))]
    struct Lines([u8; 1024]);

    #[test]
    fn every_byte_is_copied_or_none() {
        let from: Vec<u8> = (0..1100u32).map(|at| (at % 251) as u8).collect();
        for (start, at, len) in [
            (0, 0usize, 1024usize),
            (3, 64, 128),
            (1, 960, 64),
            (0, 16, 64),
            (0, 0, 100),
        ] {
            let mut to = Lines([255; 1024]);
            let whole =
                at.is_multiple_of(LINE) && len.is_multiple_of(LINE) && cfg!(target_arch = "x86_64");
            // SAFETY: both ranges lie inside.
            let copied = unsafe { copy(from.as_ptr().add(start), to.0.as_mut_ptr().add(at), len) };
            assert_eq!(copied, whole, "{start} {at} {len}");
            let expected = if whole {
                &from[start..start + len]
            } else {
                &[255; 1024][..len]
            };
            assert_eq!(&to.0[at..at + len], expected);
            assert!(
                to.0[..at]
                    .iter()
                    .chain(&to.0[at + len..])
                    .all(|byte| *byte == 255)
            );
        }
    }
}

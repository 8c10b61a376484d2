//! The order in which the two words of a completion queue entry are stored, as the processor sees
//! it: the page may only be read, so the first store faults, and the fault names its address.

#![expect(clippy::unwrap_used, reason = "the helpers are part of the test")]

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use memory::{Access, ClientMappings, CqRing, DmaMap, Hint, Iova, Need, PAGE};
use rustix::fs::MemfdFlags;

/// Where the page is.
static GUARDED: AtomicUsize = AtomicUsize::new(0);
/// The address that was stored to first.
static FIRST: AtomicUsize = AtomicUsize::new(0);

/// Notes the address of the first store to the page, and lets it be written from then on.
extern "C" fn fault(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid siginfo_t, which for SIGSEGV has
    // an address.
    let at = unsafe { (*info).si_addr() } as usize;
    let page = GUARDED.load(Ordering::Relaxed);
    if at.wrapping_sub(page) >= PAGE as usize {
        // SAFETY: ends the process as if this handler had not been there: the access faults again.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
        return;
    }
    FIRST.store(at, Ordering::Relaxed);
    protect(page, libc::PROT_READ | libc::PROT_WRITE);
}

fn protect(page: usize, how: libc::c_int) {
    // SAFETY: the page is a whole page of a shared mapping that outlives the test's accesses; no
    // reference points into it.
    let done = unsafe { libc::mprotect(page as *mut libc::c_void, PAGE as usize, how) };
    assert_eq!(done, 0);
}

fn take_faults() {
    // SAFETY: a zeroed sigaction is a valid one; the handler only loads, stores, and calls
    // mprotect, which is a plain system call. This file has one test, so no other thread relies on
    // SIGSEGV.
    unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, ptr::null_mut()), 0);
    }
}

fn memfd() -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("store-order", flags).unwrap();
    rustix::fs::ftruncate(&fd, PAGE).unwrap();
    fd
}

/// Base 2.1, 4.2.4: a host that sees the phase tag turn reads the rest of the entry.
#[test]
fn the_word_with_the_phase_is_stored_last() {
    let mapping = ClientMappings::new().map(memfd()).unwrap();
    let mut map = DmaMap::new(1);
    let backing = Some((mapping, 0));
    map.map(Iova(0), PAGE, Access::READ_WRITE, backing).unwrap();
    let view = map.view();
    let ring = CqRing::new(&view, Iova(0), 4).unwrap();
    let segment = view.translate(&mut Hint::default(), Iova(0), 16, Need::DeviceWrites);
    let (page, _) = segment.unwrap().as_raw();
    GUARDED.store(page as usize, Ordering::Relaxed);
    take_faults();
    for index in [0, 3] {
        protect(page as usize, libc::PROT_READ);
        assert!(ring.store(index, [7, 1 << 48 | 9]));
        let first = FIRST.load(Ordering::Relaxed) - page as usize;
        assert_eq!(first, 16 * index as usize, "its first word");
        assert_eq!(ring.load(index), Some([7, 1 << 48 | 9]));
    }
}

//! Client memory that disappears while we have it mapped.
//!
//! A client may shrink its memory file after we mapped it (or punch the file system full), and the
//! next access to a missing page raises SIGBUS in this process. That must end this client's
//! controller and nothing else. So every mapping of a client's file has an entry in a fixed table,
//! and the signal handler looks up the address. Inside a mapping, zeros replace everything from the
//! faulting page to the mapping's end, the session's [`LostFlag`] is raised, and the interrupted
//! copy continues. Any other SIGBUS gets the action that was installed before ours.
//!
//! Replacing the whole rest, not one page, keeps the kernel's list of mappings short: a client
//! cannot make us split a mapping once per page until the process has no mappings left. A file that
//! shrank has lost exactly such a rest.
//!
//! Invariants:
//! - The handler takes no lock, allocates nothing and calls only the kernel; it keeps `errno`.
//! - An entry changes only while no thread can fault in its range: it is added after the mapping
//!   and before its first use, and removed after the last use and before the unmapping.
//! - A thread that accesses client memory must not block SIGBUS: the kernel kills a process for a
//!   blocked one.
//!
//! Not included: restoring lost bytes; reads return zeros meanwhile. The kernel's own accesses
//! (io_uring) raise no signal; they fail with EFAULT.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::{io, mem, ptr};

/// The most mappings of clients' files in this process.
pub const MAX_MAPPINGS: usize = 4096;

/// Whether any of a session's memory has been lost. Clones share one flag; it is never lowered.
#[derive(Clone, Debug, Default)]
pub struct LostFlag(Arc<AtomicBool>);

impl LostFlag {
    /// One Relaxed load: the flag orders nothing, what was read from lost memory is zeros whatever
    /// the flag says.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Marks the session's memory as lost, as the signal's handler does.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One mapping in the table. `version` is odd while an entry exists, and grows with every change.
struct Entry {
    /// Claimed by a mapping; guards the other fields against a second writer.
    taken: AtomicBool,
    version: AtomicUsize,
    start: AtomicUsize,
    /// Bytes, a multiple of `unit`.
    len: AtomicUsize,
    /// The smallest piece that can be remapped: the page size of the file's file system.
    unit: AtomicUsize,
    /// The protection that the mapping was made with.
    protection: AtomicUsize,
    flag: AtomicPtr<AtomicBool>,
}

impl Entry {
    const fn vacant() -> Self {
        Entry {
            taken: AtomicBool::new(false),
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            unit: AtomicUsize::new(0),
            protection: AtomicUsize::new(0),
            flag: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The action for a fault at `address`, if it lies in this entry's mapping.
    ///
    /// The race: another thread may fill or empty this entry meanwhile. It makes the version even
    /// before it stores any field and odd after all of them; so equal odd versions around the loads
    /// mean that they belong together. The entry of the mapping that faulted cannot change now (see
    /// the module's invariants), so no retry is needed.
    fn loss_at(&self, address: usize) -> Option<Loss> {
        let version = self.version.load(Ordering::Acquire);
        if version.is_multiple_of(2) {
            return None;
        }
        let start = self.start.load(Ordering::Relaxed);
        let len = self.len.load(Ordering::Relaxed);
        let unit = self.unit.load(Ordering::Relaxed);
        let protection = self.protection.load(Ordering::Relaxed);
        let flag = self.flag.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        if self.version.load(Ordering::Relaxed) != version {
            return None;
        }
        let (from, rest) = rest_of(start, len, unit, address)?;
        Some(Loss {
            from,
            rest,
            unit,
            protection: protection as c_int,
            flag,
        })
    }
}

/// The memory lost by a fault: the bytes from `from` to the mapping's end.
struct Loss {
    from: usize,
    rest: usize,
    unit: usize,
    protection: c_int,
    flag: *const AtomicBool,
}

/// From the `unit` that holds `address` to the end of the mapping: its start and length; `None`
/// outside the mapping.
fn rest_of(start: usize, len: usize, unit: usize, address: usize) -> Option<(usize, usize)> {
    let offset = address.checked_sub(start)?;
    if offset >= len || unit == 0 {
        return None;
    }
    let kept = offset - offset % unit;
    Some((start + kept, len - kept))
}

static TABLE: [Entry; MAX_MAPPINGS] = [const { Entry::vacant() }; MAX_MAPPINGS];

/// The action that stood before ours; set before our handler can run.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Why a mapping cannot be watched.
#[derive(Debug)]
pub(crate) enum WatchError {
    /// All [`MAX_MAPPINGS`] entries are in use.
    TableFull,
    /// The handler could not be installed.
    Handler(io::Error),
}

/// A mapping's place in the table, from before its first use until after its last.
#[derive(Debug)]
pub(crate) struct Watch {
    index: usize,
    /// The entry points at the flag inside.
    _flag: LostFlag,
}

impl Watch {
    /// Puts the mapping of `len` bytes at `start` into the table. `unit` is its page size,
    /// `protection` its PROT bits.
    pub(crate) fn new(
        start: usize,
        len: usize,
        unit: usize,
        protection: c_int,
        flag: &LostFlag,
    ) -> Result<Watch, WatchError> {
        install_sigbus_handler().map_err(WatchError::Handler)?;
        let claim = |entry: &Entry| !entry.taken.swap(true, Ordering::Acquire);
        let index = TABLE.iter().position(claim);
        let index = index.ok_or(WatchError::TableFull)?;
        let entry = &TABLE[index];
        // The version is even here; the fence keeps the fields' stores behind the claim for a
        // handler that reads them.
        fence(Ordering::Release);
        entry.start.store(start, Ordering::Relaxed);
        entry.len.store(len, Ordering::Relaxed);
        entry.unit.store(unit, Ordering::Relaxed);
        entry
            .protection
            .store(protection as usize, Ordering::Relaxed);
        let pointer = Arc::as_ptr(&flag.0).cast_mut();
        entry.flag.store(pointer, Ordering::Relaxed);
        entry.version.fetch_add(1, Ordering::Release);
        Ok(Watch {
            index,
            _flag: flag.clone(),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let entry = &TABLE[self.index];
        entry.version.fetch_add(1, Ordering::Release);
        entry.taken.store(false, Ordering::Release);
    }
}

/// Makes SIGBUS inside clients' memory end in zeros and a [`LostFlag`]. Mapping such memory through
/// this crate installs it automatically; calling it first, and again, is harmless.
///
/// # Errors
/// Those of sigaction(2), the same at every call.
pub fn install_sigbus_handler() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    INSTALLED
        .get_or_init(|| install().map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL)))
        .map_err(io::Error::from_raw_os_error)
}

fn install() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value: the default action, an empty mask, no flags.
    let mut previous: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: no new action is given, and `previous` is valid for the write.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &mut previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    PREVIOUS.get_or_init(|| previous);
    // SAFETY: as above.
    let mut ours: libc::sigaction = unsafe { mem::zeroed() };
    ours.sa_sigaction = on_sigbus as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `ours` names a handler of the three-argument form that SA_SIGINFO asks for, and it is
    // async-signal-safe: see `on_sigbus`.
    if unsafe { libc::sigaction(libc::SIGBUS, &ours, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The handler. Async-signal-safe: atomics, raw system calls, and glibc's sigaction and raise,
/// which are so by POSIX.
extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the C library's errno of this thread is always valid to read and write.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel hands a valid siginfo to a handler installed with SA_SIGINFO.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // A page beyond the file's end or without room, or a broken memory page under this very access.
    // Anything else (an unaligned access, a signal that somebody sent) is not a loss of client
    // memory.
    let is_loss = code == libc::BUS_ADRERR || code == libc::BUS_MCEERR_AR;
    let handled = is_loss && TABLE.iter().any(|entry| replace(entry, address));
    if !handled {
        chain(signal, info, context);
    }
    // SAFETY: as above. The interrupted code must not see our calls' errno.
    unsafe { *libc::__errno_location() = errno };
}

/// If `address` lies in this entry's mapping: puts zeros there and raises the flag. False when it
/// does not, or when the kernel refuses.
fn replace(entry: &Entry, address: usize) -> bool {
    let Some(loss) = entry.loss_at(address) else {
        return false;
    };
    // All the rest at once; a system that refuses so much (strict overcommit) gives one page at
    // least.
    let replaced = put_zeros(loss.from, loss.rest, loss.protection)
        || put_zeros(loss.from, loss.unit, loss.protection);
    if replaced {
        // SAFETY: the entry's Watch holds the flag, and lives as long as the mapping whose user
        // faulted.
        unsafe { (*loss.flag).store(true, Ordering::Relaxed) };
    }
    replaced
}

fn put_zeros(at: usize, len: usize, protection: c_int) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // The raw call: a C library's wrapper may do more than call the kernel (musl's waits for other
    // threads). SAFETY: the range lies inside a mapping of a client's file that a Mapping owns, and
    // stays owned by it. Its users expect the bytes to change at any moment; the protection stays,
    // so every access that was valid stays valid.
    let address = unsafe { libc::syscall(libc::SYS_mmap, at, len, protection, flags, -1, 0usize) };
    address == at as libc::c_long
}

/// Gives a SIGBUS that is not ours to the action that stood before.
fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let (action, flags) = match PREVIOUS.get() {
        Some(previous) => (previous.sa_sigaction, previous.sa_flags),
        None => (libc::SIG_DFL, 0),
    };
    // SAFETY: the kernel hands a valid siginfo.
    let was_sent = unsafe { (*info).si_code } <= 0;
    if action == libc::SIG_IGN && was_sent {
        return;
    }
    if action == libc::SIG_DFL || action == libc::SIG_IGN {
        // The default action ends the process once the handler has returned. (A fault cannot be
        // ignored: the kernel would raise it for ever.) SAFETY: an all-zero sigaction is the
        // default action; both calls are async-signal-safe.
        unsafe {
            let default: libc::sigaction = mem::zeroed();
            libc::sigaction(signal, &default, ptr::null_mut());
            libc::raise(signal);
        }
        return;
    }
    if flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the kernel would have called this address with these arguments: it was installed
        // with SA_SIGINFO.
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
            unsafe { mem::transmute(action) };
        handler(signal, info, context);
    } else {
        // SAFETY: the kernel would have called this address with the signal alone: installed
        // without SA_SIGINFO.
        let handler: extern "C" fn(c_int) = unsafe { mem::transmute(action) };
        handler(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::rest_of;

    const HUGE: usize = 1 << 21;

    #[test]
    fn a_fault_loses_its_page_and_all_behind_it() {
        let at = |address| rest_of(0x10_0000, 0x4000, 0x1000, address);
        assert_eq!(at(0x0f_ffff), None);
        assert_eq!(at(0x10_0000), Some((0x10_0000, 0x4000)));
        assert_eq!(at(0x10_0fff), Some((0x10_0000, 0x4000)));
        assert_eq!(at(0x10_1000), Some((0x10_1000, 0x3000)));
        assert_eq!(at(0x10_3fff), Some((0x10_3000, 0x1000)));
        assert_eq!(at(0x10_4000), None);
        assert_eq!(at(usize::MAX), None);
    }

    #[test]
    fn a_huge_page_is_lost_as_a_whole() {
        let at = |address| rest_of(8 * HUGE, 2 * HUGE, HUGE, address);
        assert_eq!(at(9 * HUGE - 1), Some((8 * HUGE, 2 * HUGE)));
        assert_eq!(at(9 * HUGE + 0x5000), Some((9 * HUGE, HUGE)));
        assert_eq!(at(10 * HUGE), None);
    }
}

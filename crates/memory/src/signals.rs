//! SIGXFSZ: a write beyond the process's limit of file sizes (RLIMIT_FSIZE) fails instead of ending
//! the process.
//!
//! By default the signal ends the process, and with it every drive that it serves. With a handler
//! that does nothing, only the call fails, with EFBIG. It is a handler and not SIG_IGN because
//! child programs inherit ignored signals, but not handlers.

use std::{io, mem, ptr};

use libc::c_int;

/// Has writes beyond the limit of file sizes fail with EFBIG. Of no effect where the signal is
/// ignored or handled already.
///
/// # Errors
/// Those of sigaction(2).
pub fn survive_file_size_limit() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value: the default action, an empty mask, no flags.
    let mut before: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: no new action is given, and `before` is valid for the write.
    if unsafe { libc::sigaction(libc::SIGXFSZ, ptr::null(), &mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if before.sa_sigaction != libc::SIG_DFL {
        return Ok(());
    }
    // SAFETY: as above.
    let mut ours: libc::sigaction = unsafe { mem::zeroed() };
    ours.sa_sigaction = on_signal as *const () as usize;
    ours.sa_flags = libc::SA_RESTART;
    // SAFETY: `ours` names a handler of the one-argument form, which does nothing.
    if unsafe { libc::sigaction(libc::SIGXFSZ, &ours, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn on_signal(_: c_int) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_for_a_file_that_is_too_large_ends_nothing() {
        survive_file_size_limit().unwrap();
        // SAFETY: raise has no preconditions; the handler that was just installed does nothing.
        assert_eq!(unsafe { libc::raise(libc::SIGXFSZ) }, 0);
        survive_file_size_limit().unwrap();
    }
}

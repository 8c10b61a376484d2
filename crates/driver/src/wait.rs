//! Handling of a drive that has another host: whether to wait for that host to detach, and the
//! messages meanwhile.

use std::thread;
use std::time::{Duration, Instant};

use crate::DriverError;

/// Pause between two attempts. This program's server answers only after a second, so a host that
/// detaches is not missed.
const PAUSE: Duration = Duration::from_millis(100);

/// How long to wait for another host of a drive to detach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Fail immediately.
    #[default]
    Not,
    /// Wait for this long.
    For(Duration),
    /// Wait until it detaches.
    Ever,
}

impl Wait {
    /// Opens the drive that the user calls `place`. `ends` returns whether the program should end;
    /// `said` gets one line where it has to wait.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open<T>(
        self,
        place: &impl std::fmt::Display,
        ends: &dyn Fn() -> bool,
        said: &dyn Fn(&str),
        mut open: impl FnMut() -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let begun = Instant::now();
        let mut is_said = false;
        loop {
            let error = match open() {
                Err(error) if error.may_have_host() => error,
                opened => return opened,
            };
            let goes_on = match self {
                Wait::Not => false,
                Wait::For(bound) => begun.elapsed() < bound,
                Wait::Ever => true,
            };
            if !goes_on || ends() {
                return Err(error);
            }
            if !std::mem::replace(&mut is_said, true) {
                said(&format!("{place}: {error}; waiting"));
            }
            thread::sleep(PAUSE);
        }
    }
}

/// The error of a drive that may have another host, with advice.
#[derive(Debug)]
pub struct Advised(pub DriverError);

impl std::fmt::Display for Advised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Advised(error) = self;
        write!(f, "{error}")?;
        if error.may_have_host() {
            f.write_str(
                "; a controller has one host at a time: disconnect the other host, or wait for it with --wait",
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Advised {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy() -> DriverError {
        DriverError::InUse {
            path: "a.sock".into(),
            host: Some(7),
        }
    }

    #[test]
    fn it_tries_once_unless_it_may_wait() {
        let mut tries = 0;
        let opened = Wait::Not.open(&"a", &|| false, &|_| {}, || {
            tries += 1;
            Err::<(), _>(busy())
        });
        assert!(matches!(opened, Err(DriverError::InUse { .. })));
        assert_eq!(tries, 1);
    }

    #[test]
    fn it_waits_for_another_host_and_for_nothing_else() {
        let mut tries = 0;
        let opened = Wait::Ever.open(&"a", &|| false, &|_| {}, || {
            tries += 1;
            match tries {
                1 | 2 => Err(busy()),
                _ => Ok(tries),
            }
        });
        assert_eq!(opened.ok(), Some(3));
        let gone = Wait::Ever.open(&"a", &|| false, &|_| {}, || Err::<(), _>(DriverError::Gone));
        assert!(matches!(gone, Err(DriverError::Gone)));
    }

    #[test]
    fn it_ends_at_its_bound_and_when_it_is_told_to() {
        let bound = Wait::For(Duration::from_millis(1));
        for (wait, ends) in [(bound, false), (Wait::Ever, true)] {
            let opened = wait.open(&"a", &|| ends, &|_| {}, || Err::<(), _>(busy()));
            assert!(matches!(opened, Err(DriverError::InUse { .. })));
        }
    }
}

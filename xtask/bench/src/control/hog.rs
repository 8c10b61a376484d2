//! A process that burns parts of processors and does nothing else: until its input ends.

use std::io::Read as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

/// What control has: ten steps below those who serve hosts.
const NICER: i32 = 10;
/// It catches up with its part after naps of this length, as threads that answer requests do.
const NAP: Duration = Duration::from_millis(1);

/// Burns these parts of a processor: one as nice as this process is, one as nice as control.
///
/// # Errors
/// The input cannot be read.
pub(super) fn burn(own: f64, nicer: f64) -> Result<()> {
    thread::spawn(move || part(own));
    thread::spawn(move || {
        // on Linux it is of this thread; where it may not be changed, the thread is as nice as the
        // other one
        let _ = rustix::process::nice(NICER);
        part(nicer);
    });
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn part(part: f64) {
    let begun = Instant::now();
    let mut sum = 0u64;
    loop {
        let due = begun.elapsed().mul_f64(part.max(0.0));
        while own_time() < due {
            for step in 0..1000 {
                sum = std::hint::black_box(sum.wrapping_add(step));
            }
        }
        thread::sleep(NAP);
    }
}

/// What this thread has run.
fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

//! The client: the front end of the tests, which polls on a processor of its own.
//!
//! A silence of [`STALL`] is a stall for any server: the system did not let one side run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tests_vhost_front::{Disk, Load, Options};

use crate::ours::Ours;
use crate::process::{cpu_time, on_cpu};
use crate::sample::Sample;
use crate::vhost::Export;

/// Completions that come so long after those before come after a stall of one side: no request of a
/// medium in memory takes as long.
const STALL: Duration = Duration::from_millis(1);
/// Bytes of a request.
const BLOCK: usize = 4096;

/// Format of a virtqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ring {
    Split,
    Packed,
}

impl Ring {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Packed => "packed",
        }
    }
}

/// A back end of vhost-user-blk that runs.
pub(super) struct BackEnd<'a> {
    socket: PathBuf,
    pid: u32,
    /// Our own server, which counts the time of its reactor.
    ours: Option<&'a Ours<'a>>,
}

impl<'a> BackEnd<'a> {
    pub(super) fn ours(ours: &'a Ours<'a>) -> Self {
        Self {
            socket: ours.disk(0),
            pid: ours.pid(),
            ours: Some(ours),
        }
    }

    pub(super) fn export(export: &Export<'_>) -> Self {
        Self {
            socket: export.socket().to_owned(),
            pid: export.pid(),
            ours: None,
        }
    }

    fn busy(&self) -> Result<Option<Duration>> {
        self.ours.map(Ours::busy).transpose()
    }
}

/// Connects with one ring.
pub(super) fn connect(socket: &Path, ring: Ring, memory_len: usize) -> Result<Disk> {
    let options = Options {
        is_packed: ring == Ring::Packed,
        memory_len,
        ..Options::default()
    };
    Disk::connect(socket, options)
        .with_context(|| format!("no front end can use {}", socket.display()))
}

/// Measures random reads for so many seconds, without a placement.
///
/// # Errors
/// The back end cannot be used, or stops.
pub(super) fn measure(
    back_end: &BackEnd<'_>,
    ring: Ring,
    depth: u64,
    seconds: u32,
    cpu: u32,
) -> Result<Sample> {
    let mut disk = connect(&back_end.socket, ring, Options::default().memory_len)?;
    let load = Load {
        queue: 0,
        depth: usize::try_from(depth)?,
        duration: Duration::from_secs(seconds.into()),
        is_write: false,
        block: BLOCK,
        stall: Some(STALL),
    };
    let busy = back_end.busy()?;
    let spent = cpu_time(back_end.pid)?;
    let measured = on_cpu(cpu, || tests_vhost_front::bench(&mut disk, &load))?;
    let spent = cpu_time(back_end.pid)?.saturating_sub(spent);
    let busy = busy
        .zip(back_end.busy()?)
        .map(|(before, after)| after.saturating_sub(before));
    ensure!(measured.requests > 0, "the back end completes no request");
    let each = |time: Duration| time.as_nanos() as f64 / measured.requests as f64;
    Ok(Sample {
        iops: measured.iops,
        mean_us: measured.mean_ns / 1e3,
        p50_us: Some(measured.p50_ns as f64 / 1e3),
        p99_us: Some(measured.p99_ns as f64 / 1e3),
        server_ns: Some(each(spent)),
        reactor_ns: busy.map(each),
        messages: Some(measured.kicks as f64 / measured.requests as f64),
        stalls: Some(measured.stalls),
        ..Sample::default()
    })
}

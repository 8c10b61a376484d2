//! A host that loads a drive: the driver's workloads on this program's clock, with the reactor's
//! own counters if this program serves the drive.

pub mod idle;

use std::ops::ControlFlow;

use anyhow::{Context, bail, ensure};
use controller::{REACTOR_LOG, ReactorLog};
use driver::bus::place::{AnyBus, Place};
use driver::io::Namespace;
use driver::wait::{Advised, Wait};
use driver::workload::{self, Job, JobResult, Lulls, Progress, Setting};
use driver::zoned::{Zone, Zones};
use driver::{CommandSets, Device, Doorbells, DriverError, Options, QueuePair, Shutdown};
use machine::clock::Clock;
use nvme_spec::opcode::Csi;
use terminal::progress;
use zerocopy::{FromBytes, IntoBytes};

use crate::beside::{Beside, Ticks};

/// Memory shared with the drive besides buffers: admin queue, doorbells, log pages.
const SPARE_LEN: u64 = 16 << 20;
/// Bytes of a report of zones that is read at a time.
const REPORT_LEN: usize = 64 << 10;
/// Maximum transfer size that a load accepts; drives support less.
pub const MAX_BLOCK_SIZE: u64 = 32 << 20;

/// Maximum needs of several jobs.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Commands in flight in each queue pair.
    pub queue_depth: u16,
    /// Bytes of a command.
    pub block_size: u32,
    /// Queue pairs of the jobs.
    pub queues: u16,
    /// Bytes of buffers, if commands use more than one each.
    pub buffers: u64,
    /// Idle queue pairs, each of [`idle::depth`] commands.
    pub idle: u32,
    /// Whether to wait for another host of the drive to detach.
    pub wait: Wait,
}

impl Needs {
    /// Needs of one queue pair.
    pub const fn of(queue_depth: u16, block_size: u32) -> Self {
        Needs {
            queue_depth,
            block_size,
            queues: 1,
            buffers: 0,
            idle: 0,
            wait: Wait::Not,
        }
    }

    /// The same needs, with another way to wait.
    pub const fn waiting(self, wait: Wait) -> Self {
        Needs { wait, ..self }
    }

    /// Bytes of memory: a buffer, two PRP lists (the queue's and the buffer's), and entries of both
    /// queues for each command.
    fn memory_len(self) -> anyhow::Result<usize> {
        let block = u64::from(self.block_size).next_multiple_of(4096);
        // a page of a PRP list describes 511 pages of data and the next page of the list
        let lists = (block / 4096).div_ceil(511) * 4096;
        let commands = u64::from(self.queue_depth) * u64::from(self.queues);
        // the lists of buffers take less than 1 % of them
        let buffers = self.buffers + self.buffers / 64;
        let idle = u64::from(self.idle) * idle::queue_len(self.block_size);
        let len = (block + 2 * lists + 128) * commands + buffers + idle + SPARE_LEN;
        usize::try_from(len).context("so much memory has no address")
    }
}

/// A drive with an enabled controller, and a clock.
pub struct Host {
    device: Device<AnyBus>,
    clock: Ticks,
}

/// Result of a job.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The host's figures, without the stalls of the server.
    pub result: JobResult,
    /// Time of the reactor for a command, if this program serves the drive.
    pub reactor_busy_ns_per_command: Option<f64>,
    /// Times in which the machine did not run the server, by its reactor's time stamps.
    pub server_stalls: Lulls,
}

/// An I/O queue pair of such a drive.
pub type Queue = QueuePair<AnyBus>;

impl Host {
    /// Connects to a drive and enables its controller, with all command sets that it supports.
    pub fn connect(at: &Place, doorbells: Doorbells, needs: Needs) -> anyhow::Result<Self> {
        Self::connect_with(at, doorbells, needs, CommandSets::Supported)
    }

    /// Like [`Host::connect`], but an error for a controller that supports only the NVM command
    /// set.
    pub fn connect_to_all_sets(
        at: &Place,
        doorbells: Doorbells,
        needs: Needs,
    ) -> anyhow::Result<Self> {
        Self::connect_with(at, doorbells, needs, CommandSets::All)
    }

    fn connect_with(
        at: &Place,
        doorbells: Doorbells,
        needs: Needs,
        command_sets: CommandSets,
    ) -> anyhow::Result<Self> {
        let options = Options {
            memory_len: needs.memory_len()?,
            doorbells,
            transfer_len_max: needs.block_size.max(4096),
            command_sets,
            ..Options::default()
        };
        let place = || format!("cannot use the drive at {at}");
        let never = || false;
        let device = needs
            .wait
            .open(at, &never, &progress::note, || Device::at(at, &options));
        let device = device.map_err(Advised);
        let mut device = device.with_context(place)?;
        device.enable().with_context(place)?;
        Ok(Host {
            device,
            clock: Ticks(Clock::new()),
        })
    }

    /// The drive.
    pub fn device(&mut self) -> &mut Device<AnyBus> {
        &mut self.device
    }

    /// Whether the controller has queue pairs left.
    pub fn has_room(&self) -> bool {
        self.device.queues_in_use() < self.device.queues_max()
    }

    /// The clock that measures jobs.
    pub fn clock(&self) -> Clock {
        self.clock.0.clone()
    }

    /// The same, as jobs read it.
    pub fn ticks(&self) -> Ticks {
        self.clock.clone()
    }

    /// The command set of a namespace; NVM where the drive has no descriptors of namespaces.
    pub fn command_set(&mut self, nsid: u32) -> anyhow::Result<Csi> {
        match self.device.command_set(nsid) {
            Err(DriverError::Status { .. }) => Ok(Csi::NVM),
            csi => Ok(csi?),
        }
    }

    /// Common properties of the zones of a namespace, and each zone.
    pub fn zones(
        &mut self,
        queue: &mut Queue,
        namespace: &Namespace,
    ) -> anyhow::Result<(Zones, Vec<Zone>)> {
        let common = self.device.zones(namespace.nsid)?;
        let scratch = self.device.alloc(REPORT_LEN)?;
        let zones = queue.report_zones(namespace, &common, &scratch);
        Ok((common, zones.context("cannot report the zones")?))
    }

    /// Runs a job on one queue pair; ends it early when `progress` says so.
    pub fn measure(
        &mut self,
        queue: &mut Queue,
        namespace: &Namespace,
        job: &Job,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> anyhow::Result<Measured> {
        let queues = std::slice::from_mut(queue);
        self.measure_with(queues, namespace, job, &mut (), progress)
    }

    /// Like [`Host::measure`], on several queue pairs and with background work.
    pub fn measure_on(
        &mut self,
        queues: &mut [Queue],
        namespace: &Namespace,
        job: &Job,
        beside: &mut Beside<'_, '_>,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> anyhow::Result<Measured> {
        self.measure_with(queues, namespace, job, beside, progress)
    }

    fn measure_with(
        &mut self,
        queues: &mut [Queue],
        namespace: &Namespace,
        job: &Job,
        beside: &mut impl workload::beside::Beside,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> anyhow::Result<Measured> {
        let before = self.reactor()?;
        let setting = Setting {
            namespace,
            queues,
            memory: self.device.memory(),
            clock: &self.clock,
            beside,
        };
        let result = workload::run_in(job, setting, progress)
            .with_context(|| format!("the job {} cannot be done", job.name))?;
        let reactor = before.zip(self.reactor()?);
        let busy = reactor.and_then(|(before, after)| busy_ns(&before, &after));
        let did_not_run =
            reactor.is_some_and(|(before, after)| explains(&before, &after, &result.lulls));
        let without = result.without_lulls().filter(|_| did_not_run);
        Ok(match without {
            None => Measured {
                result,
                reactor_busy_ns_per_command: busy,
                server_stalls: Lulls::default(),
            },
            Some(without) => Measured {
                server_stalls: result.lulls,
                result: without,
                reactor_busy_ns_per_command: busy,
            },
        })
    }

    /// Turns of the reactor in which the machine did not let it run; 0 if this program does not
    /// serve the drive.
    pub fn reactor_stalls(&mut self) -> anyhow::Result<u64> {
        Ok(self.reactor()?.map_or(0, |log| log.stalls))
    }

    /// The reactor's counters, if this program serves the drive.
    fn reactor(&mut self) -> anyhow::Result<Option<ReactorLog>> {
        let mut page = [0; size_of::<ReactorLog>()];
        match self
            .device
            .get_log_page(REACTOR_LOG, nvme_spec::NSID_ALL, 0, &mut page)
        {
            Ok(()) => {}
            // drives of other vendors have no such page
            Err(DriverError::Status { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let log = ReactorLog::read_from_bytes(page.as_bytes()).expect("the sizes are equal");
        // or a different page: the number is vendor specific
        Ok((log.version == 3 && log.turns_with_work <= log.turns).then_some(log))
    }

    /// Rejects a drive that does not keep written data; writes to the first `span` bytes.
    pub fn refuse_forgetful(
        &mut self,
        queue: &mut Queue,
        namespace: &Namespace,
        span: u64,
    ) -> anyhow::Result<()> {
        ensure!(
            self.keeps_data(queue, namespace, span)?,
            "the drive does not store data, as a `null` medium: remove --verify, or serve `ram` or `file`"
        );
        Ok(())
    }

    /// Whether a namespace keeps written data: writes its first blocks, as far as they are in the
    /// first `span` bytes, and reads them. Over NVMe/TCP a read that moves no data may return those
    /// of the last command, so one block shows nothing there.
    pub fn keeps_data(
        &mut self,
        queue: &mut Queue,
        namespace: &Namespace,
        span: u64,
    ) -> anyhow::Result<bool> {
        let len = usize::try_from(namespace.block_len)?;
        let buffer = self.device.alloc(len)?;
        let data = |lba: u64| -> Vec<u8> {
            let byte = |at: usize| (at * 131 + 7 + lba as usize).to_le_bytes()[0];
            (0..len).map(byte).collect()
        };
        let blocks = (span / u64::from(namespace.block_len)).clamp(1, 2);
        for lba in 0..blocks {
            buffer.write_from(0, &data(lba));
            queue.write(namespace, lba, 1, &buffer, false)?;
        }
        for lba in 0..blocks {
            buffer.zero();
            queue.read(namespace, lba, 1, &buffer)?;
            let mut read = vec![0; len];
            buffer.read_into(0, &mut read);
            if read != data(lba) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Shuts the controller down, so that all data is durable, and detaches.
    pub fn leave(mut self) -> anyhow::Result<()> {
        self.device
            .shutdown(Shutdown::Normal)
            .context("cannot shut the drive down; the last writes may not be durable")
    }

    /// Detaches after a measurement, whose data is not needed: a fatal error of a controller that
    /// has shut down does not invalidate the result.
    pub fn leave_measured(mut self) -> anyhow::Result<()> {
        match self.device.shutdown(Shutdown::Normal) {
            Err(error @ DriverError::ShutDownFatal { .. }) => {
                eprintln!("warning: {error}");
                Ok(())
            }
            left => left.context("the drive cannot be shut down"),
        }
    }
}

/// Nanoseconds per command that the reactor was busy between two readings.
#[expect(
    clippy::cast_precision_loss,
    reason = "a mean needs no more than 52 bits"
)]
fn busy_ns(before: &ReactorLog, after: &ReactorLog) -> Option<f64> {
    let commands = after.completions.checked_sub(before.completions)?;
    let busy = after.busy_ns.checked_sub(before.busy_ns)?;
    (commands > 0).then(|| busy as f64 / commands as f64)
}

/// Maximum time between the end of a reactor's stall and the host's next completion, in which the
/// reactor does the postponed work.
const AFTER_STALL_NS: u64 = 100_000;

/// Whether the reactor was kept from running between two readings for as long as the host saw no
/// completion.
fn explains(before: &ReactorLog, after: &ReactorLog, lulls: &Lulls) -> bool {
    let stalled_ns = after.stalled_ns.saturating_sub(before.stalled_ns);
    lulls.count > 0 && stalled_ns.saturating_add(lulls.count * AFTER_STALL_NS) >= lulls.ns
}

/// The word for the doorbell method in use.
pub fn doorbells_name(doorbells: Doorbells) -> &'static str {
    match doorbells {
        Doorbells::Auto => "auto",
        Doorbells::Mapped => "mapped",
        Doorbells::Shadow => "shadow",
        Doorbells::Trapped => "trapped",
    }
}

/// Rejects block sizes larger than any drive accepts.
pub fn check_block_size(bytes: u64) -> anyhow::Result<u32> {
    match u32::try_from(bytes) {
        Ok(size) if bytes > 0 && bytes <= MAX_BLOCK_SIZE => Ok(size),
        _ => bail!("a block of {bytes} bytes cannot be transferred: write 512B to 32MiB"),
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    fn log(busy_ns: u64, completions: u64) -> ReactorLog {
        ReactorLog {
            busy_ns,
            completions,
            ..ReactorLog::new_zeroed()
        }
    }

    #[test]
    fn a_command_costs_its_share_of_busy_time() {
        assert_eq!(busy_ns(&log(1_000, 10), &log(3_000, 20)), Some(200.0));
        assert_eq!(busy_ns(&log(1_000, 10), &log(1_000, 10)), None);
        // the server was restarted in between
        assert_eq!(busy_ns(&log(1_000, 10), &log(500, 20)), None);
    }

    #[test]
    fn a_lull_is_a_stall_where_the_reactor_says_so() {
        let log = |stalled_ns| ReactorLog {
            stalled_ns,
            ..ReactorLog::new_zeroed()
        };
        let lulls = |count, ns| Lulls {
            count,
            ns,
            ..Lulls::default()
        };
        let (before, after) = (log(1_000_000), log(3_000_000));
        assert!(explains(&before, &after, &lulls(1, 2_050_000)));
        assert!(explains(&before, &after, &lulls(3, 2_250_000)));
        assert!(
            !explains(&before, &after, &lulls(1, 2_150_000)),
            "not all of it"
        );
        assert!(
            !explains(&before, &before, &lulls(1, 300_000)),
            "the drive was slow"
        );
        assert!(
            !explains(&before, &after, &lulls(0, 0)),
            "nothing to leave out"
        );
    }

    #[test]
    fn memory_covers_buffers_and_lists() {
        let needs = |queue_depth, block_size| Needs::of(queue_depth, block_size);
        let len = |needs: Needs| needs.memory_len().unwrap();
        assert!(len(needs(1, 512)) >= 4096 + 4096);
        // 4 MiB are 1024 pages: three pages of list
        let large = needs(32, 4 << 20);
        assert!(len(large) >= 32 * ((4 << 20) + 3 * 4096));
        let more = Needs { queues: 4, ..large };
        assert!(len(more) >= 4 * 32 * ((4 << 20) + 3 * 4096));
        // every other page in a separate PRP list: 16 bytes for 8 KiB
        let turns = Needs {
            buffers: 1 << 30,
            ..needs(32, 8192)
        };
        assert!(len(turns) >= (1 << 30) + (1 << 21));
        let idle = Needs {
            idle: 60,
            ..needs(1, 4096)
        };
        assert!(len(idle) >= len(needs(1, 4096)) + 60 * 8192);
    }

    #[test]
    fn absurd_block_sizes_are_refused() {
        for bytes in [0, MAX_BLOCK_SIZE + 1, u64::MAX] {
            assert!(check_block_size(bytes).is_err());
        }
        assert_eq!(check_block_size(4096).unwrap(), 4096);
    }
}

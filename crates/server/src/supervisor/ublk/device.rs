//! A device in the kernel: found, added, taken over, and deleted.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use transport::ublk::{Disk, MAX_IO};
use ublk::{Control, Device, DeviceInfo, Features, State, path_of_disk};

/// Where the kernel lists devices.
const CLASS: &str = "/sys/class/ublk-char";
/// How long the kernel may take to notice the end of a device's former server, and a program that
/// manages device files to hand one over.
const NOTICE: Duration = Duration::from_secs(10);
/// How long it may take where that server had all of a device's requests: the kernel notices when
/// they time out, which it looks for every 30 s.
const LATE_NOTICE: Duration = Duration::from_secs(100);
/// Pause between two looks at that.
const PAUSE: Duration = Duration::from_millis(20);
/// How long programs' data in the page cache may take to reach the medium as a disk ends.
const FLUSH: Duration = Duration::from_secs(10);
/// Pause between two looks at that.
const FLUSHED: Duration = Duration::from_millis(5);
/// How long one command to quiesce a disk may wait in the kernel. It is repeated.
const QUIESCE: Duration = Duration::from_millis(200);
/// How long a disk may take to stop, or to be deleted.
const END: Duration = Duration::from_secs(10);

/// Devices of this process, by the kernel's control device.
#[derive(Debug)]
pub(super) struct Devices {
    control: Control,
    /// Features of the driver; none where it is too old to report them.
    features: Features,
}

/// A device to serve.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) device: Device,
    /// It has a disk, whose requests wait.
    pub(super) goes_on: bool,
    /// Sectors of that.
    pub(super) sectors: u64,
}

/// Which device is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Its number; `None`: any.
    pub(super) id: Option<u32>,
    pub(super) queues: u16,
    /// The drive outlives this process: so does the device.
    pub(super) lasts: bool,
}

impl Devices {
    /// # Errors
    /// There is no driver, or this user may not use it.
    pub(super) fn open() -> anyhow::Result<Self> {
        let mut control = Control::open()?;
        let features = match control.features() {
            Ok(features) => features,
            // Linux before 6.5.
            Err(error) if error.errno().is_some() => Features::new(),
            Err(error) => return Err(error.into()),
        };
        Ok(Self { control, features })
    }

    /// Finds or adds the device of a disk, and opens it. A found device has waited for a server.
    ///
    /// # Errors
    /// The device is another drive's or another server's, or the kernel refuses it.
    pub(super) fn get(&mut self, disk: &Disk, wanted: &Wanted) -> anyhow::Result<Found> {
        let found = match wanted.id {
            Some(id) => self.control.info(id)?,
            // Another server may have a drive of the same name in memory.
            None if wanted.lasts => self.find(disk.mark),
            None => None,
        };
        let Some(info) = found else {
            return self.add(disk, wanted);
        };
        let id = info.dev_id;
        ensure!(
            info.ublksrv_flags == disk.mark,
            "device {id} of the kernel is another drive's or another program's (process {}): name another ID, or write `ublk:` and the kernel chooses one",
            info.ublksrv_pid
        );
        match self.settled(info)?.state {
            State::DEAD => {
                self.control.delete(id, END)?;
                self.add(disk, wanted)
            }
            _ if !wanted.lasts => bail!(
                "device {id} of the kernel waits for a drive that outlives its server, and this drive is in memory: its users would find other data; end them, then delete it with `ublk del -n {id}` of the program ublk, or name another ID"
            ),
            _ => self.take_over(id, disk),
        }
    }

    /// A device of this drive.
    fn find(&mut self, mark: u64) -> Option<DeviceInfo> {
        let names = fs::read_dir(CLASS).ok()?;
        let names = names.flatten().map(|entry| entry.file_name());
        let mut ids: Vec<u32> = names
            .filter_map(|name| name.to_str()?.strip_prefix("ublkc")?.parse().ok())
            .collect();
        ids.sort_unstable();
        // One of another user cannot be looked at, and is not ours.
        let infos = ids.iter().filter_map(|id| self.control.info(*id).ok()?);
        let mut infos = infos.collect::<Vec<_>>().into_iter();
        infos.find(|info| info.ublksrv_flags == mark)
    }

    /// Waits until the kernel has noticed the end of a device's former server.
    fn settled(&mut self, mut info: DeviceInfo) -> anyhow::Result<DeviceInfo> {
        let (begin, mut is_told) = (Instant::now(), false);
        while info.state == State::LIVE {
            let (waited, is_gone) = (begin.elapsed(), is_gone(info.ublksrv_pid));
            if is_gone && waited > NOTICE / 5 && !std::mem::replace(&mut is_told, true) {
                tracing::info!(
                    "the kernel has not noticed yet that the last server of {} has ended",
                    path_of_disk(info.dev_id)
                );
            }
            ensure!(
                waited < if is_gone { LATE_NOTICE } else { NOTICE },
                "device {} of the kernel has a server: process {}; end that one, or name another ID",
                info.dev_id,
                info.ublksrv_pid
            );
            std::thread::sleep(PAUSE);
            let now = self.control.info(info.dev_id)?;
            info = now.context("the device went away")?;
        }
        Ok(info)
    }

    fn add(&mut self, disk: &Disk, wanted: &Wanted) -> anyhow::Result<Found> {
        let cpus = fs::read_to_string("/sys/devices/system/cpu/possible").ok();
        let cpus = cpus.as_deref().and_then(count).unwrap_or(1);
        let queues = wanted.queues.clamp(1, cpus);
        let is_zoned = disk.zone_blocks > 0;
        let is_privileged = self.control.is_privileged();
        ensure!(
            is_privileged || !is_zoned,
            "a disk with zones needs the capability CAP_SYS_ADMIN: run as root"
        );
        // A device of a user without privileges ends with its server.
        let recovers = wanted.lasts && is_privileged;
        let flags = disk
            .features()
            .with_unprivileged_dev(!is_privileged)
            .with_user_recovery(recovers)
            // A zone takes no write twice: what was in flight fails.
            .with_user_recovery_reissue(recovers && !is_zoned)
            .with_update_size(self.features.update_size())
            .with_quiesce(recovers && self.features.quiesce())
            .with_safe_stop_dev(self.features.safe_stop_dev());
        let info = DeviceInfo {
            nr_hw_queues: queues,
            queue_depth: Disk::depth(queues),
            max_io_buf_bytes: MAX_IO,
            dev_id: wanted.id.unwrap_or(u32::MAX),
            flags,
            ublksrv_flags: disk.mark,
            ..DeviceInfo::default()
        };
        let info = self.control.add(&info)?;
        // Opened first: a program may have to give its file to this user, of whom the driver then
        // takes commands about the device.
        let opened = open(&info).and_then(|device| {
            let set = self.control.set_parameters(info.dev_id, &disk.parameters);
            set?;
            Ok(device)
        });
        match opened {
            Ok(device) => Ok(Found {
                device,
                goes_on: false,
                sectors: disk.sectors(),
            }),
            Err(error) => {
                self.delete(info.dev_id);
                Err(error)
            }
        }
    }

    /// Takes over a device whose server has ended.
    fn take_over(&mut self, id: u32, disk: &Disk) -> anyhow::Result<Found> {
        let has = self.control.parameters(id)?;
        let has = has.context("the device has no parameters")?;
        let is_same = has.basic.logical_bs_shift == disk.parameters.basic.logical_bs_shift
            && has.basic.chunk_sectors == disk.parameters.basic.chunk_sectors;
        ensure!(
            is_same,
            "device {id} of the kernel has waited for blocks or zones of another size than the namespace has now: end its users, then delete it with `ublk del -n {id}` of the program ublk"
        );
        let until = Instant::now() + NOTICE;
        loop {
            match self.control.begin_recovery(id) {
                Ok(()) => break,
                // The server before has begun, and ended before it had fetched.
                Err(error) if error.errno() == Some(Errno::INVAL) => break,
                Err(error) if error.errno() == Some(Errno::BUSY) && Instant::now() < until => {
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let info = self.control.info(id)?.context("the device went away")?;
        Ok(Found {
            device: open(&info)?,
            goes_on: true,
            sectors: has.basic.dev_sectors,
        })
    }

    /// Starts the disk of a device whose requests are fetched.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn start(&mut self, id: u32, goes_on: bool) -> anyhow::Result<()> {
        let started = if goes_on {
            self.control.end_recovery(id, 2 * END)
        } else {
            self.control.start(id, 2 * END)
        };
        Ok(started?)
    }

    /// Changes the size of a disk.
    ///
    /// # Errors
    /// The kernel is too old.
    pub(super) fn resize(&mut self, id: u32, sectors: u64) -> anyhow::Result<()> {
        ensure!(
            self.features.update_size(),
            "this kernel cannot change the size of a ublk disk (Linux 6.16 can): the disk keeps its size until its controller is deleted and created again"
        );
        Ok(self.control.update_size(id, sectors)?)
    }

    /// Whether devices outlive this process.
    pub(super) fn are_privileged(&self) -> bool {
        self.control.is_privileged()
    }

    /// Deletes the device of a disk that no one uses. False: it is in use.
    pub(super) fn end_unless_used(&mut self, id: u32) -> bool {
        if is_taken(id) {
            return false;
        }
        if self.features.safe_stop_dev() {
            match self.control.try_stop(id, END) {
                Ok(()) => {}
                Err(error) if error.errno() == Some(Errno::BUSY) => return false,
                Err(error) => tracing::error!("cannot stop {}: {error}", path_of_disk(id)),
            }
        }
        self.end(id);
        true
    }

    /// Has new requests of a disk wait in the kernel, and takes tags without a request away from
    /// its session. Where tags have requests, this is to be repeated after those have completed:
    /// the session ends with the last tag.
    ///
    /// # Errors
    /// The kernel's; `EBUSY` where all tags of a queue have requests.
    pub(super) fn quiesce(&mut self, id: u32) -> Result<(), ublk::Error> {
        self.control.quiesce(id, QUIESCE)
    }

    /// Deletes a device. Data that programs have written to its disk is written before.
    pub(super) fn end(&mut self, id: u32) {
        if let Err(error) = flush(id) {
            tracing::warn!(
                "cannot flush {}, data that programs have not synchronised may be lost: {error}",
                path_of_disk(id)
            );
        }
        self.delete(id);
    }

    /// Deletes a device whose disk has no server.
    pub(super) fn delete(&mut self, id: u32) {
        let stopped = self.control.stop(id, END);
        let deleted = stopped.and_then(|()| self.control.delete(id, END));
        if let Err(error) = deleted {
            tracing::error!(
                "cannot delete {}: {error}; `ublk del -n {id}` of the program ublk does, once its users have ended",
                path_of_disk(id)
            );
        }
    }
}

/// Opens the server's end of a device. A program may have to make its file, or give it to this
/// user.
fn open(info: &DeviceInfo) -> anyhow::Result<Device> {
    let until = Instant::now() + NOTICE;
    loop {
        match Device::open(info) {
            Ok(device) => return Ok(device),
            Err(error) => {
                // A session that has just ended may have it open.
                let is_early = matches!(
                    error.kind(),
                    io::ErrorKind::NotFound
                        | io::ErrorKind::PermissionDenied
                        | io::ErrorKind::ResourceBusy
                );
                if !is_early || Instant::now() >= until {
                    let path = ublk::path_of_device(info.dev_id);
                    bail!("cannot open {path}: {error}");
                }
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Whether a disk is taken: a file system or a device on top of it has it alone. A disk
/// that is only open is found by [`Devices::end_unless_used`], on Linux 7.0 and later.
pub(super) fn is_taken(id: u32) -> bool {
    let exclusive = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::EXCL.bits().cast_signed())
        .open(path_of_disk(id));
    exclusive.is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
}

/// Whether there is no such process.
fn is_gone(pid: i32) -> bool {
    let pid = Pid::from_raw(pid);
    pid.is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

/// Writes what is cached of a disk, within a bound, by the system's program `sync`. A thread of
/// this process would hold the device open if the process was killed meanwhile, and wait forever
/// for requests that the driver fails when the device is closed.
fn flush(id: u32) -> io::Result<()> {
    let path = path_of_disk(id);
    if !Path::new(&path).exists() {
        return Ok(());
    }
    let mut sync = Command::new("sync")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("no program `sync`: {error}")))?;
    let until = Instant::now() + FLUSH;
    loop {
        match sync.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(io::Error::other(format!("`sync`: {status}"))),
            None if Instant::now() < until => std::thread::sleep(FLUSHED),
            None => break,
        }
    }
    // It ends when the driver fails the requests that it waits for.
    sync.kill()?;
    std::thread::Builder::new()
        .name("nvmirage-flush".to_owned())
        .spawn(move || sync.wait())?;
    let why = format!("it takes longer than {} s", FLUSH.as_secs());
    Err(io::Error::new(io::ErrorKind::TimedOut, why))
}

/// How many processors a list as `0-3,8` has.
fn count(list: &str) -> Option<u16> {
    let mut count = 0_u16;
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn lists_of_processors_are_counted() {
        for (list, expected) in [
            ("0\n", Some(1)),
            ("0-3\n", Some(4)),
            ("0-1,8,10-12", Some(6)),
            ("", None),
            ("3-1", None),
            ("x", None),
            ("0-65535", None),
        ] {
            assert_eq!(count(list), expected, "{list:?}");
        }
    }
}

//! The driver's control device: commands about whole devices.
//!
//! A command may wait for a server, for the disk's users or for the disk's data. So each has a
//! bound, after which it is cancelled. One that cannot be cancelled keeps its ring and its buffer:
//! the [`Control`] takes no further command.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};
use zerocopy::{FromZeros as _, IntoBytes as _};

use crate::abi::{ControlCommand, ControlOp, DeviceInfo, Features, PARAMETERS_LEN, Parameters};
use crate::device::path_of_device;

/// The driver's control device.
pub const CONTROL: &str = "/dev/ublk-control";
/// A bound for commands that wait for nothing.
pub const SHORT: Duration = Duration::from_secs(5);
/// The longest bound.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a command may take that was cancelled.
const CANCEL: Duration = Duration::from_secs(2);
/// Bytes of the buffer: a path, and the largest structure.
const BUFFER: usize = 512;
/// The command and its cancellation, by their `user_data`.
const COMMAND: u64 = 1;
const CANCELLATION: u64 = 2;

/// Why a command has failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The driver is not there.
    #[error(
        "there is no {CONTROL}: load the kernel's driver with `modprobe ublk_drv` (Linux 6.4 and later)"
    )]
    Missing,
    /// The control device cannot be opened.
    #[error("cannot open {CONTROL}: {0}; run as root, or give this user the device by a udev rule")]
    Denied(io::Error),
    /// There is no io_uring.
    #[error("cannot use io_uring, which ublk needs: {0}")]
    Ring(io::Error),
    /// The driver has refused a command.
    #[error("the kernel refused {command}: {errno}")]
    Refused {
        /// The driver's name of the command.
        command: &'static str,
        /// Why.
        errno: Errno,
    },
    /// A command has not ended within its bound.
    #[error("the kernel did not end {0} in time")]
    Late(&'static str),
}

impl Error {
    /// Why the driver has refused a command, if it has.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Error::Refused { errno, .. } => Some(*errno),
            _ => None,
        }
    }
}

/// See the module.
pub struct Control {
    ring: ManuallyDrop<IoUring<squeue::Entry128, cqueue::Entry>>,
    file: File,
    /// Memory of the command that is in flight.
    buffer: ManuallyDrop<Box<[u8; BUFFER]>>,
    is_privileged: bool,
    /// A command has not ended: it has the ring and the buffer.
    is_stuck: bool,
}

/// A command.
struct Command<'b> {
    name: &'static str,
    op: ControlOp,
    id: u32,
    data: u64,
    /// What the driver reads and writes.
    bytes: &'b mut [u8],
    bound: Duration,
}

impl Control {
    /// Opens the control device.
    ///
    /// # Errors
    /// It is missing or forbidden, or io_uring is.
    pub fn open() -> Result<Self, Error> {
        let file = OpenOptions::new().read(true).write(true).open(CONTROL);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Missing,
            // A node of a driver that is not loaded.
            _ if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV)) => Error::Missing,
            _ => Error::Denied(error),
        })?;
        let ring = IoUring::builder().dontfork().build(4);
        let capabilities = capabilities(None).map(|sets| sets.effective);
        let has = |sets: CapabilitySet| sets.contains(CapabilitySet::SYS_ADMIN);
        Ok(Self {
            ring: ManuallyDrop::new(ring.map_err(Error::Ring)?),
            file,
            buffer: ManuallyDrop::new(Box::new([0; BUFFER])),
            is_privileged: capabilities.is_ok_and(has),
            is_stuck: false,
        })
    }

    /// Whether this process may do everything. Where not, its devices are
    /// [`Features::unprivileged_dev`].
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        self.is_privileged
    }

    /// Features of the driver.
    ///
    /// # Errors
    /// Linux before 6.5 has no such command (`EOPNOTSUPP` or `EINVAL`).
    pub fn features(&mut self) -> Result<Features, Error> {
        let mut features = Features::new();
        let bytes = features.as_mut_bytes();
        self.run(Command {
            bytes,
            ..command("GET_FEATURES", ControlOp::GET_FEATURES, u32::MAX)
        })?;
        Ok(features)
    }

    /// Adds a device without a disk, and says what it has become: the driver leaves out features
    /// that it lacks.
    ///
    /// # Errors
    /// `EEXIST`: there is one with that identifier. `EINVAL`: features that do not go together.
    pub fn add(&mut self, info: &DeviceInfo) -> Result<DeviceInfo, Error> {
        let mut info = *info;
        let id = info.dev_id;
        self.run(Command {
            bytes: info.as_mut_bytes(),
            ..command("ADD_DEV", ControlOp::ADD_DEV, id)
        })?;
        Ok(info)
    }

    /// What a device is; `None` where there is none.
    ///
    /// # Errors
    /// `EACCES`, `EPERM`: it is another user's.
    pub fn info(&mut self, id: u32) -> Result<Option<DeviceInfo>, Error> {
        let mut info = DeviceInfo::new_zeroed();
        let found = self.run(Command {
            bytes: info.as_mut_bytes(),
            ..command("GET_DEV_INFO2", ControlOp::GET_DEV_INFO2, id)
        });
        match found {
            Ok(_) => Ok(Some(info)),
            Err(error) => match error.errno() {
                Some(Errno::NODEV | Errno::NOENT) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Sets what the disk of a device is like, before it starts.
    ///
    /// # Errors
    /// `EINVAL`: values that do not go together. `EACCES`: it has started.
    pub fn set_parameters(&mut self, id: u32, parameters: &Parameters) -> Result<(), Error> {
        let bytes = &mut parameters.encode();
        let set = self.run(Command {
            bytes,
            ..command("SET_PARAMS", ControlOp::SET_PARAMS, id)
        });
        set.map(drop)
    }

    /// What the disk of a device is like; `None`: nothing was set.
    ///
    /// # Errors
    /// `ENODEV`: there is no such device.
    pub fn parameters(&mut self, id: u32) -> Result<Option<Parameters>, Error> {
        let mut bytes = [0; PARAMETERS_LEN];
        // The driver fills as many as that.
        bytes[..4].copy_from_slice(&(PARAMETERS_LEN as u32).to_le_bytes());
        self.run(Command {
            bytes: &mut bytes,
            ..command("GET_PARAMS", ControlOp::GET_PARAMS, id)
        })?;
        Ok(Parameters::parse(&bytes))
    }

    /// Starts the disk of a device. It waits until the device's [`Ring`](crate::Ring) has fetched
    /// for every tag, and looks for partitions.
    ///
    /// # Errors
    /// [`Error::Late`]: no ring has fetched, or its server does not answer.
    pub fn start(&mut self, id: u32, bound: Duration) -> Result<(), Error> {
        let data = std::process::id().into();
        let started = self.run(Command {
            data,
            bound,
            ..command("START_DEV", ControlOp::START_DEV, id)
        });
        started.map(drop)
    }

    /// Takes the disk away. Requests that its server has are awaited, and later ones fail.
    ///
    /// # Errors
    /// [`Error::Late`]: the server does not commit what it has.
    pub fn stop(&mut self, id: u32, bound: Duration) -> Result<(), Error> {
        let stopped = self.run(Command {
            bound,
            ..command("STOP_DEV", ControlOp::STOP_DEV, id)
        });
        stopped.map(drop)
    }

    /// As [`Self::stop`], where no one has the disk open (Linux 7.0,
    /// [`Features::safe_stop_dev`]).
    ///
    /// # Errors
    /// `EBUSY`: it is open.
    pub fn try_stop(&mut self, id: u32, bound: Duration) -> Result<(), Error> {
        let stopped = self.run(Command {
            bound,
            ..command("TRY_STOP_DEV", ControlOp::TRY_STOP_DEV, id)
        });
        stopped.map(drop)
    }

    /// Deletes a device, and its disk if it has one. It waits until no one has `/dev/ublkcN` open.
    ///
    /// # Errors
    /// [`Error::Late`]: someone has.
    pub fn delete(&mut self, id: u32, bound: Duration) -> Result<(), Error> {
        let deleted = self.run(Command {
            bound,
            ..command("DEL_DEV", ControlOp::DEL_DEV, id)
        });
        deleted.map(drop)
    }

    /// Begins to take over a device whose server has ended.
    ///
    /// # Errors
    /// `EBUSY`: the driver has not noticed the end, or the server has not ended.
    pub fn begin_recovery(&mut self, id: u32) -> Result<(), Error> {
        let begun = self.run(command(
            "START_USER_RECOVERY",
            ControlOp::START_USER_RECOVERY,
            id,
        ));
        begun.map(drop)
    }

    /// Ends that: the requests that have waited come. It waits as [`Self::start`] does.
    ///
    /// # Errors
    /// [`Error::Late`]: no ring has fetched.
    pub fn end_recovery(&mut self, id: u32, bound: Duration) -> Result<(), Error> {
        let data = std::process::id().into();
        let ended = self.run(Command {
            data,
            bound,
            ..command("END_USER_RECOVERY", ControlOp::END_USER_RECOVERY, id)
        });
        ended.map(drop)
    }

    /// Changes the size of a disk (Linux 6.16, [`Features::update_size`]).
    ///
    /// # Errors
    /// `EOPNOTSUPP` or `EINVAL`: the driver is older.
    pub fn update_size(&mut self, id: u32, sectors: u64) -> Result<(), Error> {
        let updated = self.run(Command {
            data: sectors,
            ..command("UPDATE_SIZE", ControlOp::UPDATE_SIZE, id)
        });
        updated.map(drop)
    }

    /// Has new requests of a disk wait, and takes tags without a request away from its server
    /// (Linux 6.16, [`Features::quiesce`]). A tag whose request is committed later is taken away by
    /// the next call. Where all tags of a queue have requests it waits for one of them, at most
    /// `bound`, in whole milliseconds.
    ///
    /// # Errors
    /// `EBUSY`: the server did not commit any; new requests wait all the same.
    pub fn quiesce(&mut self, id: u32, bound: Duration) -> Result<(), Error> {
        // 0 would be no bound for the driver.
        let data = bound.as_millis().try_into().unwrap_or(u64::MAX).max(1);
        let quiesced = self.run(Command {
            data,
            bound: bound.saturating_add(SHORT),
            ..command("QUIESCE_DEV", ControlOp::QUIESCE_DEV, id)
        });
        quiesced.map(drop)
    }

    fn run(&mut self, command: Command<'_>) -> Result<i32, Error> {
        let Command {
            name,
            op,
            id,
            data,
            bytes,
            bound,
        } = command;
        if self.is_stuck {
            return Err(Error::Late(name));
        }
        // A user without privileges names the device, by which the driver sees whose it is; and
        // everyone does to GET_DEV_INFO2.
        let is_about_one = !matches!(op, ControlOp::ADD_DEV | ControlOp::GET_FEATURES);
        let is_named = is_about_one && (!self.is_privileged || op == ControlOp::GET_DEV_INFO2);
        let path = if is_named {
            let mut path = path_of_device(id).into_bytes();
            path.push(0);
            path
        } else {
            Vec::new()
        };
        let (named, end) = (path.len(), path.len() + bytes.len());
        self.buffer[..named].copy_from_slice(&path);
        self.buffer[named..end].copy_from_slice(bytes);
        let command = ControlCommand {
            dev_id: id,
            queue_id: u16::MAX,
            len: end as u16,
            addr: if end > 0 {
                self.buffer.as_mut_ptr().addr() as u64
            } else {
                0
            },
            data,
            dev_path_len: named as u16,
            ..ControlCommand::default()
        };
        let mut place = [0; 80];
        place[..size_of::<ControlCommand>()].copy_from_slice(command.as_bytes());
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), op.0)
            .cmd(place)
            .build()
            .user_data(COMMAND);
        self.push(&entry);
        let result = match self.wait(bound)? {
            Some(result) => result,
            None => {
                self.cancel(name)?;
                return Err(Error::Late(name));
            }
        };
        if result < 0 {
            let errno = Errno::from_raw_os_error(-result);
            return Err(Error::Refused {
                command: name,
                errno,
            });
        }
        bytes.copy_from_slice(&self.buffer[named..end]);
        Ok(result)
    }

    fn push(&mut self, entry: &squeue::Entry128) {
        // SAFETY: an entry points to `buffer` at most, which lives until the entry has ended: it is
        // leaked where that does not happen.
        let pushed = unsafe { self.ring.submission().push(entry) };
        debug_assert!(pushed.is_ok(), "it has room for two");
    }

    /// Waits for the command: its result, if it has ended within the bound.
    #[expect(clippy::disallowed_methods, reason = "no reactor calls this")]
    fn wait(&mut self, bound: Duration) -> Result<Option<i32>, Error> {
        let until = Instant::now() + bound.min(LONGEST);
        loop {
            while let Some(entry) = self.ring.completion().next() {
                if entry.user_data() == COMMAND {
                    return Ok(Some(entry.result()));
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let left = Timespec::from(left);
            let args = SubmitArgs::new().timespec(&left);
            match self.ring.submitter().submit_with_args(1, &args) {
                Ok(_) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => {}
                    _ => {
                        self.is_stuck = true;
                        return Err(Error::Ring(error));
                    }
                },
            }
        }
    }

    /// Cancels the command.
    fn cancel(&mut self, name: &'static str) -> Result<(), Error> {
        let entry = opcode::AsyncCancel::new(COMMAND).build();
        self.push(&squeue::Entry128::from(entry.user_data(CANCELLATION)));
        self.is_stuck = self.wait(CANCEL)?.is_none();
        if self.is_stuck {
            return Err(Error::Late(name));
        }
        Ok(())
    }
}

fn command(name: &'static str, op: ControlOp, id: u32) -> Command<'static> {
    Command {
        name,
        op,
        id,
        data: 0,
        bytes: &mut [],
        bound: SHORT,
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.is_stuck {
            return;
        }
        // SAFETY: neither is used again, and the kernel has nothing that points into the buffer.
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
            ManuallyDrop::drop(&mut self.buffer);
        }
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control")
            .field("is_privileged", &self.is_privileged)
            .field("is_stuck", &self.is_stuck)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A file without commands.
    fn other() -> File {
        use rustix::fs::{MemfdFlags, memfd_create};
        File::from(memfd_create("t", MemfdFlags::CLOEXEC).unwrap())
    }

    /// A control device that is another file.
    fn control(file: File) -> Control {
        let ring = IoUring::builder().dontfork().build(4).unwrap();
        Control {
            ring: ManuallyDrop::new(ring),
            file,
            buffer: ManuallyDrop::new(Box::new([0; BUFFER])),
            is_privileged: true,
            is_stuck: false,
        }
    }

    #[test]
    fn without_the_driver_an_error_says_what_to_do() {
        // Where the driver is loaded there is nothing to see.
        if std::path::Path::new(CONTROL).exists() {
            return;
        }
        let error = Control::open().unwrap_err();
        assert!(matches!(error, Error::Missing), "{error}");
        assert!(error.to_string().contains("modprobe ublk_drv"), "{error}");
        assert_eq!(error.errno(), None);
    }

    #[test]
    fn commands_to_what_is_no_driver_are_refused_by_name() {
        let mut control = control(other());
        let refused = |name: &str, error: Error| {
            assert_eq!(error.errno(), Some(Errno::OPNOTSUPP), "{error}");
            let said = format!("the kernel refused {name}: ");
            assert!(error.to_string().starts_with(&said), "{error}");
        };
        refused("GET_FEATURES", control.features().unwrap_err());
        let info = DeviceInfo::default();
        refused("ADD_DEV", control.add(&info).unwrap_err());
        refused("GET_DEV_INFO2", control.info(0).unwrap_err());
        let parameters = Parameters::default();
        let set = control.set_parameters(0, &parameters);
        refused("SET_PARAMS", set.unwrap_err());
        refused("GET_PARAMS", control.parameters(0).unwrap_err());
        refused("START_DEV", control.start(0, SHORT).unwrap_err());
        refused("STOP_DEV", control.stop(0, SHORT).unwrap_err());
        refused("TRY_STOP_DEV", control.try_stop(0, SHORT).unwrap_err());
        refused("DEL_DEV", control.delete(0, SHORT).unwrap_err());
        let begun = control.begin_recovery(0);
        refused("START_USER_RECOVERY", begun.unwrap_err());
        let ended = control.end_recovery(0, Duration::MAX);
        refused("END_USER_RECOVERY", ended.unwrap_err());
        refused("UPDATE_SIZE", control.update_size(0, 8).unwrap_err());
        let quiesced = control.quiesce(0, Duration::MAX);
        refused("QUIESCE_DEV", quiesced.unwrap_err());
        assert!(!control.is_stuck);
    }

    /// A user without privileges names the device before the structure.
    #[test]
    fn a_device_is_named_where_the_driver_asks_for_that() {
        let mut control = control(other());
        let path = *b"/dev/ublkc4294967295\0";
        let _ = control.info(u32::MAX);
        assert_eq!(control.buffer[..path.len()], path);
        control.buffer.fill(0xff);
        let _ = control.parameters(u32::MAX);
        assert_eq!(control.buffer[..4], [108, 0, 0, 0]);
        control.is_privileged = false;
        let _ = control.parameters(u32::MAX);
        assert_eq!(control.buffer[..path.len()], path);
        assert_eq!(control.buffer[path.len()..][..4], [108, 0, 0, 0]);
    }

    /// A read of a socket waits for what does not come.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "no reactor calls this")]
    fn a_command_that_waits_is_cancelled_and_the_next_one_runs() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut control = control(other());
        let fd = Fd(ours.as_raw_fd());
        let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
        control.push(&squeue::Entry128::from(entry.user_data(COMMAND)));
        let begun = Instant::now();
        let waited = control.wait(Duration::from_millis(50)).unwrap();
        assert_eq!(waited, None);
        assert!(begun.elapsed() >= Duration::from_millis(50));
        control.cancel("POLL").unwrap();
        assert!(!control.is_stuck);
        let refused = control.features().unwrap_err();
        assert_eq!(refused.errno(), Some(Errno::OPNOTSUPP));
        control.is_stuck = true;
        let late = control.features().unwrap_err();
        assert!(matches!(late, Error::Late("GET_FEATURES")), "{late}");
        // It is not dropped with what the kernel may still use.
        drop(control);
    }
}

//! A controller that moves from one vfio-user server to another while its host uses it.
//!
//! The bus keeps what it has given a server (memory and eventfds) and gives it to the next one. The
//! state of the controller goes from server to server as bytes that the host does not interpret.
//!
//! Invariants:
//! - Requests of other threads wait while the device is stopped.
//! - A move that fails leaves the device where it was, if that server still serves it.
//! - Doorbells are never mapped: a page would be the former server's.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use memory::{EventFd, HostMemory, Iova};
use vfio_user::message::MigrationState;

use super::vfio_user::VfioUser;
use super::{Bus, MappedDoorbells, NAP, spin_then_nap};
use crate::DriverError;

/// Largest state that is read, far above those of our servers: a server that sends without end is
/// an error.
const STATE_MAX_LEN: usize = 1 << 30;
/// Bytes of the state in one message.
const PIECE: usize = 1 << 20;

/// A move that is done.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// Bytes of the state.
    pub state_len: u64,
    /// From the request to stop until no command was in flight and the medium was durable.
    pub stop: Duration,
    /// From the request to stop until the device ran at the other server.
    pub pause: Duration,
}

/// A move that is not done.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The device runs where it was.
    #[error("the drive stays at its server: {0}")]
    Stayed(DriverError),
    /// It runs at neither server.
    #[error("the drive is at neither server: {why}; and its server does not continue it: {then}")]
    Lost {
        /// Why it was not moved.
        why: DriverError,
        /// Why it could not go on where it was.
        then: DriverError,
    },
}

/// What a server was given, for the next one.
#[derive(Debug, Default)]
struct Given {
    memory: Vec<(OwnedFd, u64, Iova)>,
    vectors: BTreeMap<u16, EventFd>,
    messages: BTreeMap<u16, EventFd>,
}

/// The bus to the server that has the device.
pub struct Movable {
    at: Mutex<Arc<VfioUser>>,
    given: Mutex<Given>,
    timeout: Duration,
    started: Instant,
}

impl Movable {
    /// Connects to the device's server. Each request is bounded by `timeout`.
    ///
    /// # Errors
    /// As [`VfioUser::connect`]; [`DriverError::Unsupported`] where the server moves no devices.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, DriverError> {
        let server = connect(path, timeout)?;
        Ok(Self {
            at: Mutex::new(Arc::new(server)),
            given: Mutex::default(),
            timeout,
            started: Instant::now(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Arc<VfioUser>> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server that has the device.
    fn at(&self) -> Arc<VfioUser> {
        self.lock().clone()
    }

    /// Moves the device to the server at `path`, with the commands that are in its queues.
    ///
    /// # Errors
    /// [`MoveError`]
    pub fn move_to(&self, path: &Path) -> Result<Move, MoveError> {
        let target = self.prepare(path).map_err(MoveError::Stayed)?;
        let mut at = self.lock();
        let begun = Instant::now();
        match carry(&at, &target, begun) {
            Ok((state_len, stop)) => {
                let pause = begun.elapsed();
                *at = Arc::new(target);
                Ok(Move {
                    state_len,
                    stop,
                    pause,
                })
            }
            Err(why) => {
                // It may have the medium, which it releases then.
                let _ = target.set_migration_state(MigrationState::RESUMING);
                drop(target);
                match at.set_migration_state(MigrationState::RUNNING) {
                    Ok(()) => Err(MoveError::Stayed(why)),
                    Err(then) => Err(MoveError::Lost { why, then }),
                }
            }
        }
    }

    /// Connects to the next server, and gives it everything that the device needs except its state.
    fn prepare(&self, path: &Path) -> Result<VfioUser, DriverError> {
        let target = connect(path, self.timeout)?;
        let given = self.given();
        for (fd, len, base) in &given.memory {
            target.share_file(fd.as_fd(), *len, *base)?;
        }
        for (vector, eventfd) in &given.vectors {
            target.set_interrupt(*vector, eventfd)?;
        }
        for (message, eventfd) in &given.messages {
            target.set_message_interrupt(*message, eventfd)?;
        }
        target.set_migration_state(MigrationState::RESUMING)?;
        Ok(target)
    }
}

/// Connects to a server that moves devices.
fn connect(path: &Path, timeout: Duration) -> Result<VfioUser, DriverError> {
    let server = VfioUser::connect(path, timeout)?;
    if !server.migrates()? {
        return Err(DriverError::Unsupported(format!(
            "the server at {} does not move its drive: write migration = true for the controller, on both servers",
            path.display()
        )));
    }
    Ok(server)
}

/// Stops the device at one server and continues it at another; the length of its state, and the
/// time until it had stopped.
fn carry(
    source: &VfioUser,
    target: &VfioUser,
    begun: Instant,
) -> Result<(u64, Duration), DriverError> {
    source.set_migration_state(MigrationState::STOP_COPY)?;
    let stop = begun.elapsed();
    let mut len = 0;
    loop {
        let data = source.read_migration_data(PIECE)?;
        len += data.len();
        if len > STATE_MAX_LEN {
            return Err(DriverError::Broken(format!(
                "the state of the device has more than {STATE_MAX_LEN} bytes"
            )));
        }
        if !data.is_empty() {
            target.write_migration_data(&data)?;
        }
        if data.len() < PIECE {
            break;
        }
    }
    target.set_migration_state(MigrationState::RUNNING)?;
    Ok((u64::try_from(len).expect("usize fits in 64 bits"), stop))
}

impl Bus for Movable {
    fn read32(&self, offset: u64) -> Result<u32, DriverError> {
        self.lock().read32(offset)
    }

    fn read64(&self, offset: u64) -> Result<u64, DriverError> {
        self.lock().read64(offset)
    }

    fn write32(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        self.lock().write32(offset, value)
    }

    fn write64(&self, offset: u64, value: u64) -> Result<(), DriverError> {
        self.lock().write64(offset, value)
    }

    fn ring(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        self.lock().ring(offset, value)
    }

    fn config_read(&self, offset: u64, out: &mut [u8]) -> Result<(), DriverError> {
        self.lock().config_read(offset, out)
    }

    fn config_write(&self, offset: u64, data: &[u8]) -> Result<(), DriverError> {
        self.lock().config_write(offset, data)
    }

    fn bar_len(&self, bar: u8) -> Result<u64, DriverError> {
        self.lock().bar_len(bar)
    }

    fn bar_read(&self, bar: u8, offset: u64, out: &mut [u8]) -> Result<(), DriverError> {
        self.lock().bar_read(bar, offset, out)
    }

    fn bar_write(&self, bar: u8, offset: u64, data: &[u8]) -> Result<(), DriverError> {
        self.lock().bar_write(bar, offset, data)
    }

    fn reset_function(&self) -> Result<(), DriverError> {
        self.lock().reset_function()
    }

    fn doorbells(&self) -> Option<MappedDoorbells> {
        None
    }

    fn share(&self, memory: &HostMemory, base: Iova) -> Result<(), DriverError> {
        let fd = memory.fd().try_clone_to_owned();
        let fd = fd.map_err(|source| DriverError::System {
            what: "duplicate the descriptor of shared memory",
            source,
        })?;
        self.lock().share(memory, base)?;
        let len = u64::try_from(memory.len()).expect("usize fits in 64 bits");
        self.given().memory.push((fd, len, base));
        Ok(())
    }

    fn unshare(&self, base: Iova, len: u64) -> Result<(), DriverError> {
        self.lock().unshare(base, len)?;
        self.given().memory.retain(|(_, _, at)| *at != base);
        Ok(())
    }

    fn vectors(&self) -> u16 {
        self.at().vectors()
    }

    fn set_interrupt(&self, vector: u16, eventfd: &EventFd) -> Result<(), DriverError> {
        self.lock().set_interrupt(vector, eventfd)?;
        self.given().vectors.insert(vector, eventfd.clone());
        Ok(())
    }

    fn clear_interrupt(&self, vector: u16) -> Result<(), DriverError> {
        self.lock().clear_interrupt(vector)?;
        self.given().vectors.remove(&vector);
        Ok(())
    }

    fn set_message_interrupt(&self, message: u16, eventfd: &EventFd) -> Result<(), DriverError> {
        self.lock().set_message_interrupt(message, eventfd)?;
        self.given().messages.insert(message, eventfd.clone());
        Ok(())
    }

    fn pause(&self) {
        thread::sleep(NAP);
    }

    fn relax(&self, empty: u32) {
        spin_then_nap(empty);
    }

    fn wait(&self, eventfd: &EventFd, timeout: Duration) -> Result<bool, DriverError> {
        self.at().wait(eventfd, timeout)
    }

    fn check_alive(&self) -> Result<(), DriverError> {
        self.at().check_alive()
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

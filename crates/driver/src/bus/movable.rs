//! A controller that moves from one vfio-user server to another while its host uses it.
//!
//! The bus keeps what it has given a server (memory and eventfds) and gives it to the next one. The
//! state of the controller goes from server to server as bytes that the host does not interpret.
//!
//! The next server has the same memory ([`Movable::move_to`]), or a copy of it, as on another
//! machine ([`Movable::copy_memory`], [`Movable::move_copied`]): made while the device works, in
//! rounds, of the pages that the device's log and the host's own have.
//!
//! Invariants:
//! - Requests of other threads wait while the device is stopped.
//! - A move that fails leaves the device where it was, if that server still serves it.
//! - The last round of a copy comes when the device has stopped: its log is complete then.
//! - Doorbells are never mapped: a page would be the former server's.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use memory::{EventFd, HostMemory, Iova, LogError, PAGE};
use vfio_user::message::{LoggingRange, MigrationState};

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

/// A copy of the host's memory, for a server that does not share it.
#[derive(Debug)]
pub struct MemoryCopy {
    /// The host's memory, its copy, and where the device finds both.
    parts: Vec<(HostMemory, HostMemory, Iova)>,
    /// Rounds, the first of which copies everything.
    pub rounds: u64,
    /// Pages that were copied in all rounds.
    pub pages: u64,
    /// Pages of the last round.
    pub last_pages: u64,
}

impl MemoryCopy {
    /// Starts the logs, and copies everything: what is written during that is in the next report.
    fn begin(&mut self, server: &VfioUser) -> Result<u64, DriverError> {
        // A previous log does not have the pages that were written between both.
        server.stop_logging()?;
        let mut ranges = Vec::new();
        for (memory, _, base) in &self.parts {
            memory.start_log().map_err(no_log)?;
            ranges.push(LoggingRange {
                iova: base.0,
                length: len_of(memory),
            });
        }
        server.start_logging(&ranges)?;
        let mut pages = 0;
        for (memory, copy, _) in &self.parts {
            memory.copy_to(copy, 0, memory.len());
            pages += len_of(memory) / PAGE;
        }
        Ok(self.count(pages))
    }

    /// Copies the pages of a report.
    fn round(&mut self, server: &VfioUser) -> Result<u64, DriverError> {
        let mut pages = 0;
        for (memory, copy, base) in &self.parts {
            let Some(device) = server.report_logging(*base, len_of(memory))? else {
                // Another process serves the device.
                return self.begin(server);
            };
            let host = memory.take_log().map_err(no_log)?;
            for (word, (device, host)) in device.iter().zip(host).enumerate() {
                let mut bits = device | host;
                while bits != 0 {
                    let page = word * 64 + bits.trailing_zeros() as usize;
                    memory.copy_to(copy, page * PAGE as usize, PAGE as usize);
                    pages += 1;
                    bits &= bits - 1;
                }
            }
        }
        Ok(self.count(pages))
    }

    fn count(&mut self, pages: u64) -> u64 {
        self.rounds += 1;
        self.pages += pages;
        self.last_pages = pages;
        pages
    }

    /// The host goes on with the copy.
    fn continue_on(&self) -> Result<(), DriverError> {
        let mut parts = self.parts.iter();
        parts
            .try_for_each(|(memory, copy, _)| memory.continue_on(copy))
            .map_err(no_copy)
    }
}

fn len_of(memory: &HostMemory) -> u64 {
    u64::try_from(memory.len()).expect("usize fits in 64 bits")
}

fn no_copy(source: io::Error) -> DriverError {
    DriverError::System {
        what: "copy the host's memory",
        source,
    }
}

fn no_log(error: LogError) -> DriverError {
    no_copy(io::Error::other(error))
}

/// Properties that a server was given, for the next one.
#[derive(Debug, Default)]
struct Given {
    memory: Vec<(HostMemory, Iova)>,
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

    /// Moves the device to the server at `path`, with the commands that are in its queues. Both
    /// servers share the host's memory.
    ///
    /// # Errors
    /// [`MoveError`]
    pub fn move_to(&self, path: &Path) -> Result<Move, MoveError> {
        self.move_with(path, None)
    }

    /// Moves it, and goes on with a copy of the host's memory.
    ///
    /// # Errors
    /// [`MoveError`]; then the host goes on with its memory.
    pub fn move_copied(&self, path: &Path, copy: &mut MemoryCopy) -> Result<Move, MoveError> {
        self.move_with(path, Some(copy))
    }

    fn move_with(&self, path: &Path, mut copy: Option<&mut MemoryCopy>) -> Result<Move, MoveError> {
        let target = self
            .prepare(path, copy.as_deref())
            .map_err(MoveError::Stayed)?;
        let mut at = self.lock();
        let begun = Instant::now();
        let carried = match &mut copy {
            Some(copy) => stop_and_copy(&at, copy).and_then(|()| carry(&at, &target, begun)),
            None => carry(&at, &target, begun),
        };
        match carried.and_then(|done| copy.map_or(Ok(()), |it| it.continue_on()).map(|()| done)) {
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
                // The next copy begins with all memory.
                let _ = at.stop_logging();
                match at.set_migration_state(MigrationState::RUNNING) {
                    Ok(()) => Err(MoveError::Stayed(why)),
                    Err(then) => Err(MoveError::Lost { why, then }),
                }
            }
        }
    }

    /// Begins to copy the host's memory, while the device works: all of it. [`Self::copy_written`]
    /// follows.
    ///
    /// # Errors
    /// There is no memory for the copy; as of a request.
    pub fn copy_memory(&self) -> Result<MemoryCopy, DriverError> {
        let at = self.lock();
        let parts = self.given();
        let parts = parts.memory.iter().map(|(memory, base)| {
            let copy = HostMemory::new(memory.len()).map_err(no_copy)?;
            Ok((memory.clone(), copy, *base))
        });
        let mut copy = MemoryCopy {
            parts: parts.collect::<Result<_, DriverError>>()?,
            rounds: 0,
            pages: 0,
            last_pages: 0,
        };
        copy.begin(&at)?;
        Ok(copy)
    }

    /// Copies what the host and the device have written since the last round; the number of pages.
    ///
    /// # Errors
    /// As of a request.
    pub fn copy_written(&self, copy: &mut MemoryCopy) -> Result<u64, DriverError> {
        copy.round(&self.lock())
    }

    /// Connects to the next server, and gives it everything that the device needs except its state.
    fn prepare(&self, path: &Path, copy: Option<&MemoryCopy>) -> Result<VfioUser, DriverError> {
        let target = connect(path, self.timeout)?;
        let given = self.given();
        match copy {
            Some(copy) => {
                for (_, copy, base) in &copy.parts {
                    target.share(copy, *base)?;
                }
            }
            None => {
                for (memory, base) in &given.memory {
                    target.share(memory, *base)?;
                }
            }
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

/// Stops the device, and copies what was written since the last round: nothing is written then.
fn stop_and_copy(source: &VfioUser, copy: &mut MemoryCopy) -> Result<(), DriverError> {
    source.set_migration_state(MigrationState::STOP)?;
    copy.round(source).map(drop)
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
        self.lock().share(memory, base)?;
        self.given().memory.push((memory.clone(), base));
        Ok(())
    }

    fn unshare(&self, base: Iova, len: u64) -> Result<(), DriverError> {
        self.lock().unshare(base, len)?;
        self.given().memory.retain(|(_, at)| *at != base);
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

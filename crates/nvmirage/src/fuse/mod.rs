//! A drive for the host itself: each namespace of a controller as a file, without a kernel module
//! or a virtual machine.
//!
//! A mount is a *host*: it drives a controller as a guest does, with our driver over vfio-user, and
//! answers the kernel's requests for the files (FUSE). So the controller and its data path know
//! nothing of it, it works with any server, and a file has the time of the medium behind it.
//!
//! Reading order: [`plan`] (bytes to blocks), [`claims`] (who may write where), [`request`] and
//! [`carrier`] (commands and their completions), [`filesystem`] (what the kernel asks), [`watch`]
//! (namespaces that come and go), [`mount`] (the folder), [`loss`] and [`guarded`] (what a lost
//! drive or a panic does), and here how all of it begins and ends.
//!
//! Invariants: every wait is bounded, but for the kernel's next request; at a clean end everything
//! written is durable and nothing is in flight. What it does NOT do: no files but those of
//! namespaces, no names, times or owners that last.

mod carrier;
mod claims;
mod errno;
mod files;
mod filesystem;
mod guarded;
mod input;
mod loss;
mod memory;
mod mount;
mod plan;
mod request;
#[cfg(test)]
mod tests;
mod watch;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};
use std::{fmt, io};

use anyhow::Context;
use driver::bus::vfio_user::VfioUser;
use driver::{Device, DriverError, Options as DriverOptions, Shutdown};
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};

use self::carrier::Carrier;
use self::claims::Claims;
use self::files::Files;
use self::filesystem::{Mounted, Shared};
use self::guarded::Guarded;
use self::input::Input;
use self::loss::{Loss, caught};
use self::memory::{Pool, REQUEST_LEN};
use self::watch::Watch;
use crate::interrupt::Interrupt;
use crate::load::wait::{self, Wait};

/// Commands in flight in each queue pair.
const DEPTH: u16 = 64;
/// Most queue pairs, with a thread each that reads requests.
const MAX_QUEUES: usize = 8;
/// How long a command may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long commands in flight may take at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// How long threads that read requests may take to notice that there is nobody to read from.
const UNREAD: Duration = Duration::from_secs(1);

/// How to mount.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Other users may open the files.
    pub(crate) allow_other: bool,
    /// Reads and writes go through the page cache of this machine.
    pub(crate) page_cache: bool,
    /// Queue pairs to use at most; as many as the machine has use for where there are more.
    pub(crate) queues: usize,
    /// The name in the list of mounts.
    pub(crate) name: String,
    /// Whether to wait for another host of the drive.
    pub(crate) wait: Wait,
    /// What ends that.
    pub(crate) interrupt: Option<Interrupt>,
}

/// A mount.
pub(crate) struct Mount {
    dir: PathBuf,
    shared: Arc<Shared>,
    /// Until it is unmounted, or could not be.
    session: Option<BackgroundSession>,
    is_mounted: bool,
    threads: Vec<JoinHandle<()>>,
    watch: Watch,
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mount")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

/// Something uses the files.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} cannot be unmounted: {source}; unmount file systems on it, detach loop devices (losetup -d), close its files", dir.display()
)]
pub(crate) struct Busy {
    dir: PathBuf,
    source: io::Error,
}

/// Why a mount is one no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Somebody unmounted it.
    Unmounted,
    /// The drive is lost.
    Lost,
}

/// Whether something holds before the time is over.
fn within(time: Duration, holds: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + time;
    while !holds() {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Queue pairs that this machine has use for: the other half of its processors serves and asks.
fn useful_queues() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).clamp(1, MAX_QUEUES)
}

impl Mount {
    /// Attaches to the controller behind a vfio-user socket and mounts its namespaces at `dir`.
    pub(crate) fn start(socket: &Path, dir: &Path, options: &Options) -> anyhow::Result<Self> {
        mount::prepare(dir)?;
        let dir = dir.canonicalize()?;
        let queues = options.queues.clamp(1, useful_queues());
        let driver_options = DriverOptions {
            memory_len: memory::memory_len(queues * usize::from(DEPTH)),
            interrupts: true,
            transfer_len_max: REQUEST_LEN,
            ..DriverOptions::default()
        };
        let ends = || options.interrupt.as_ref().is_some_and(Interrupt::is_set);
        let connect = || Device::connect(socket, &driver_options);
        let place = socket.display();
        let mut device = options
            .wait
            .open(&place, &ends, connect)
            .map_err(wait::advised)
            .with_context(|| format!("cannot use the drive at {place}"))?;
        device.enable()?;
        let input = Arc::new(Input::default());
        let loss = Arc::new(Loss::new(dir.clone()));
        let shared = share(&mut device, queues, options, input.clone(), loss)?;
        let config = session_config(options, shared.carriers.len());
        let filesystem = Guarded(Mounted(shared.clone()));
        let session = Session::new(filesystem, &dir, &config).map_err(|error| {
            let advice = mount::explain(&error);
            anyhow::Error::new(error).context(format!("cannot mount {}{advice}", dir.display()))
        })?;
        input.set(session.as_fd().try_clone_to_owned()?);
        let notifier = session.notifier();
        let mut mount = Mount {
            dir,
            shared: shared.clone(),
            session: None,
            is_mounted: true,
            threads: Vec::new(),
            watch: Watch::start(device, shared, notifier)?,
        };
        for index in 0..mount.shared.carriers.len() {
            let shared = mount.shared.clone();
            let thread = thread::Builder::new().name(format!("completions {index}"));
            let thread = thread.spawn(move || {
                if let Err(panicked) = caught(|| shared.carriers[index].complete()) {
                    shared.give_up(&panicked);
                }
            })?;
            mount.threads.push(thread);
        }
        mount.session = Some(session.spawn().context("cannot start a thread")?);
        if let Ok(connection) = mount::connection(&mount.dir) {
            let _ = mount.shared.connection.set(connection);
        }
        Ok(mount)
    }

    /// Where it is.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Names and sizes of its files now.
    pub(crate) fn files(&self) -> Vec<(String, u64)> {
        let files = self.shared.files();
        files.iter().map(|file| (file.name(), file.len())).collect()
    }

    /// Whether it has ended by itself.
    pub(crate) fn ended(&self) -> Option<End> {
        if self.shared.loss.is_declared() {
            return Some(End::Lost);
        }
        let session = self.session.as_ref();
        let is_over = session.is_some_and(|session| session.guard.is_finished());
        (is_over && self.is_mounted).then_some(End::Unmounted)
    }

    /// How often its files are open.
    pub(crate) fn open_files(&self) -> usize {
        // A mount that is lost serves nobody, whoever still has its files open.
        if self.shared.loss.is_declared() {
            0
        } else {
            self.shared.open.load(Ordering::Relaxed)
        }
    }

    /// Unmounts it, unless somebody uses it.
    ///
    /// # Errors
    /// [`Busy`]; the files go on to be served.
    pub(crate) fn unmount(&mut self) -> Result<(), Busy> {
        self.try_unmount().map_err(|source| Busy {
            dir: self.dir.clone(),
            source,
        })
    }

    fn try_unmount(&mut self) -> io::Result<()> {
        match self.session.take() {
            _ if !self.is_mounted => {}
            // Its watch has unmounted it, or is about to: what is mounted there later is somebody
            // else's.
            session if self.shared.loss.is_declared() => {
                std::mem::forget(session);
                self.await_end()?;
            }
            Some(session) if session.guard.is_finished() => {
                // Somebody has unmounted it. Its end would unmount the folder again, and with it
                // whatever is mounted there now.
                std::mem::forget(session);
            }
            Some(session) => {
                // Not by fuser, which would have the helper take it out of the tree, in use or not.
                if let Err(error) = mount::unmount(&self.dir, false) {
                    self.session = Some(session);
                    return Err(error);
                }
                self.end_session(session);
            }
            None => mount::unmount(&self.dir, false)?,
        }
        self.is_mounted = false;
        Ok(())
    }

    /// Waits for the threads that read requests, once it is unmounted. They go on for as long as it
    /// is mounted elsewhere: a mount namespace that was made meanwhile has a copy
    /// (mount_namespaces(7)). Then the kernel is to end it there, too.
    fn end_session(&self, session: BackgroundSession) {
        let is_over = || session.guard.is_finished();
        if !within(UNREAD, is_over)
            && let Some(connection) = self.shared.connection.get()
            && let Err(error) = mount::abort(*connection)
        {
            let dir = self.dir.display();
            tracing::warn!(
                "{dir}: still mounted in another mount namespace, with errors from now on: {error}"
            );
        }
        if !within(UNREAD, is_over) {
            std::mem::forget(session);
        } else if let Err(error) = session.join() {
            tracing::debug!("{}: its requests ended with {error}", self.dir.display());
        }
    }

    /// Waits for the end of a lost mount.
    fn await_end(&self) -> io::Result<()> {
        if within(DRAIN, || self.shared.loss.is_ended()) {
            Ok(())
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    /// Ends it: it is unmounted, or taken out of the tree where somebody uses it, and everything
    /// written is made durable.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        if let Err(busy) = self.unmount() {
            tracing::warn!("{busy}; its users get errors from now on");
        }
        if self.is_mounted && !self.shared.loss.is_declared() {
            mount::unmount(&self.dir, true)?;
            self.is_mounted = false;
        }
        // Where somebody has files open its threads go on; its end would unmount what is mounted
        // there by then.
        std::mem::forget(self.session.take());
        let carriers = &self.shared.carriers;
        let drained = carriers.iter().all(|carrier| carrier.drain(DRAIN));
        for carrier in carriers {
            carrier.stop();
        }
        for thread in self.threads.drain(..) {
            anyhow::ensure!(thread.join().is_ok(), "a thread of the mount panicked");
        }
        let is_lost = self.shared.loss.is_declared();
        let flushed = if drained && !is_lost {
            self.flush()
        } else {
            Err(DriverError::Gone)
        };
        let mut device = self.watch.stop()?;
        if is_lost {
            // it was logged, and its users have had their errors
            return Ok(());
        }
        device.shutdown(Shutdown::Normal)?;
        device.disable()?;
        flushed.with_context(|| {
            format!(
                "what was written to {} may not be durable",
                self.dir.display()
            )
        })
    }

    fn flush(&self) -> Result<(), DriverError> {
        let files: Vec<_> = self.shared.files().iter().collect();
        let carrier = self.shared.carriers.first().expect("a mount has a queue");
        for file in files {
            match carrier.flush(file.found.namespace.nsid) {
                // detached since
                Err(DriverError::Status { status, .. })
                    if status == nvme_spec::Status::INVALID_NAMESPACE_OR_FORMAT => {}
                other => other?,
            }
        }
        Ok(())
    }
}

/// What the threads of a mount share, with the files that there are.
fn share(
    device: &mut Device<VfioUser>,
    queues: usize,
    options: &Options,
    input: Arc<Input>,
    loss: Arc<Loss>,
) -> Result<Arc<Shared>, DriverError> {
    let pool = Arc::new(Pool::new(device.memory().clone()));
    let depth = DEPTH.min(device.depth_max());
    let mut carriers = Vec::new();
    for _ in 0..queues.min(device.queues_max().into()) {
        let queue = device.create_queue_pair(depth, true)?;
        let carrier = Carrier::new(queue, pool.clone(), input.clone(), loss.clone(), TIMEOUT);
        carriers.push(carrier);
    }
    let mut files = Files::default();
    files.update(&watch::find(device)?);
    Ok(Arc::new(Shared {
        files: RwLock::new(files),
        open: AtomicUsize::new(0),
        carriers,
        claims: Arc::new(Claims::default()),
        pool,
        transfer_len: device.transfer_len_max(),
        depth,
        page_cache: options.page_cache,
        timeout: TIMEOUT,
        mode: if options.allow_other { 0o666 } else { 0o600 },
        owner: (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        ),
        since: SystemTime::now(),
        next_carrier: AtomicUsize::new(0),
        loss,
        input,
        connection: OnceLock::new(),
        is_unread: AtomicBool::new(false),
    }))
}

fn session_config(options: &Options, threads: usize) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.name.clone()),
        MountOption::Subtype("nvmirage".into()),
        MountOption::NoExec,
        MountOption::NoAtime,
        MountOption::DefaultPermissions,
    ];
    config.acl = if options.allow_other {
        SessionACL::All
    } else {
        SessionACL::Owner
    };
    config.n_threads = Some(threads);
    config.clone_fd = threads > 1;
    config
}

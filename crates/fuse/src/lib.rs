//! Mounts a drive on this machine: each namespace of a controller as a file, without a kernel
//! module or a virtual machine.
//!
//! A mount is a *host*: it drives a controller over vfio-user as a guest does, with this project's
//! driver, and answers the kernel's file requests (FUSE). The controller and its data path are
//! unaware of it, it works with any vfio-user server, and a file has the latency of its medium.
//!
//! Reading order: [`plan`] (bytes to blocks), [`claims`] (conflicting writes), [`request`] and
//! [`carrier`] (commands and completions), [`filesystem`] (requests of the kernel), [`watch`]
//! (changes of namespaces), [`mount`] (the folder), [`loss`] and [`guarded`] (lost drives and
//! panics), [`process`] (a mount that outlives its server's process), and this file (start and end
//! of a mount).
//!
//! Invariants: every wait is bounded, except for the kernel's next request; after a clean end, all
//! written data is durable and no command is in flight. There are no files other than namespaces,
//! and no persistent names, times or owners.
#![forbid(unsafe_code)]

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
pub mod process;
mod request;
#[cfg(feature = "testing")]
pub mod testing;
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
use driver::wait::{Advised, Wait};
use driver::{Device, DriverError, Options as DriverOptions, Shutdown};
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use terminal::interrupt::Interrupt;
use terminal::progress;

use self::carrier::Carrier;
use self::claims::Claims;
use self::files::Files;
use self::filesystem::{Mounted, Shared};
use self::guarded::Guarded;
use self::input::Input;
use self::loss::{Loss, caught};
use self::memory::{Pool, REQUEST_LEN};
pub use self::mount::unmount_dead;
use self::watch::Watch;

/// Commands in flight in each queue pair.
const DEPTH: u16 = 64;
/// Maximum number of queue pairs, each with a thread that reads requests.
const MAX_QUEUES: usize = 8;
/// Timeout of a command.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for draining at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// Time for reader threads to notice that the mount is gone.
const UNREAD: Duration = Duration::from_secs(1);

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct Options {
    /// Allow other users to open the files.
    pub allow_other: bool,
    /// Use this machine's page cache for reads and writes.
    pub page_cache: bool,
    /// Maximum number of queue pairs, further limited by the machine's processors.
    pub queues: usize,
    /// Name in the list of mounts.
    pub name: String,
    /// Whether to wait while the drive has another host.
    pub wait: Wait,
    /// Ends that wait.
    pub interrupt: Option<Interrupt>,
}

/// A mount.
pub struct Mount {
    dir: PathBuf,
    shared: Arc<Shared>,
    /// Present until the folder is unmounted, or unmounting has failed.
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

/// The files are in use.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} cannot be unmounted: {source}; unmount file systems on it, detach loop devices (losetup -d), close its files", dir.display()
)]
pub struct Busy {
    dir: PathBuf,
    source: io::Error,
}

/// Why a mount has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The user unmounted it.
    Unmounted,
    /// The drive is lost.
    Lost,
}

/// Waits for a condition; whether it held in time.
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

/// Number of useful queue pairs: the other half of the processors runs the server and the programs.
fn useful_queues() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).clamp(1, MAX_QUEUES)
}

impl Mount {
    /// Attaches to the controller behind a vfio-user socket and mounts its namespaces at `dir`.
    pub fn start(socket: &Path, dir: &Path, options: &Options) -> anyhow::Result<Self> {
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
            .open(&place, &ends, &progress::note, connect)
            .map_err(Advised)
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

    /// Folder of the mount.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Names and sizes of its files.
    pub fn files(&self) -> Vec<(String, u64)> {
        let files = self.shared.files();
        files.iter().map(|file| (file.name(), file.len())).collect()
    }

    /// The reason, if it has ended by itself.
    pub fn ended(&self) -> Option<End> {
        if self.shared.loss.is_declared() {
            return Some(End::Lost);
        }
        let session = self.session.as_ref();
        let is_over = session.is_some_and(|session| session.guard.is_finished());
        (is_over && self.is_mounted).then_some(End::Unmounted)
    }

    /// Number of open files.
    pub fn open_files(&self) -> usize {
        // Open files of a lost mount do not count: they are no longer served.
        if self.shared.loss.is_declared() {
            0
        } else {
            self.shared.open.load(Ordering::Relaxed)
        }
    }

    /// Unmounts the folder, unless files are in use.
    ///
    /// # Errors
    /// [`Busy`]; the files continue to be served.
    pub fn unmount(&mut self) -> Result<(), Busy> {
        self.try_unmount().map_err(|source| Busy {
            dir: self.dir.clone(),
            source,
        })
    }

    fn try_unmount(&mut self) -> io::Result<()> {
        match self.session.take() {
            _ if !self.is_mounted => {}
            // The watch thread has unmounted it or is about to; a later mount in this folder is not
            // ours.
            session if self.shared.loss.is_declared() => {
                std::mem::forget(session);
                self.await_end()?;
            }
            Some(session) if session.guard.is_finished() => {
                // The user has unmounted it. Ending the session would unmount whatever is mounted
                // there now.
                std::mem::forget(session);
            }
            Some(session) => {
                // Not through fuser, which would use the helper's lazy unmount, even with files in
                // use.
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

    /// Waits for the threads that read requests, after the unmount. They continue while another
    /// mount namespace, created meanwhile, has a copy of the mount (mount_namespaces(7)). In that
    /// case the kernel is asked to abort the connection.
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

    /// Waits until a lost mount has ended.
    fn await_end(&self) -> io::Result<()> {
        if within(DRAIN, || self.shared.loss.is_ended()) {
            Ok(())
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    /// Ends the mount: unmounts the folder, lazily if files are in use, and makes written data
    /// durable.
    pub fn stop(mut self) -> anyhow::Result<()> {
        if let Err(busy) = self.unmount() {
            tracing::warn!("{busy}; its users get errors from now on");
        }
        if self.is_mounted && !self.shared.loss.is_declared() {
            mount::unmount(&self.dir, true)?;
            self.is_mounted = false;
        }
        // With open files, its threads continue; ending the session would unmount whatever is
        // mounted there by then.
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
            // the loss was logged, and requests have failed with EIO
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
                // detached in the meantime
                Err(DriverError::Status { status, .. })
                    if status == nvme_spec::Status::INVALID_NAMESPACE_OR_FORMAT => {}
                other => other?,
            }
        }
        Ok(())
    }
}

/// Creates the state shared by the threads of a mount, with the current files.
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

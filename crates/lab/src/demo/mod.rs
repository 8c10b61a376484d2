//! `nvmirage demo`: a server and a host in separate processes, and two drives whose every byte is
//! verified and whose performance is measured.
//!
//! All files are in a new folder in the system's temporary folder, which is removed at the end,
//! also after an error or Ctrl-C. The demo needs no privileges, and does not touch the current
//! folder.

mod server;
mod shown;
mod vm;

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use api::config::medium::{Backing, File, Medium};
use api::config::{self, Config, Control, Listen, Mode, Size};
use driver::Doorbells;
use driver::bus::place::Place;
use driver::io::Namespace;
use driver::workload::{Job, Rw};
use load::{Host, Needs, Queue};
use machine::cpu;
use serde::Serialize;
use server::Server;
use tempfile::TempDir;
use terminal::interrupt::Interrupt;
use terminal::progress;

use crate::identity::Identity;
use crate::job::JobReport;
use crate::line::Line;

/// Bytes of each drive.
const DRIVE_LEN: u64 = 256 << 20;
/// Free space that the file system keeps beside the file.
const SPARE_LEN: u64 = 64 << 20;
/// Maximum needs of the jobs.
const NEEDS: Needs = Needs::of(32, 128 << 10);
/// Jobs of each drive.
const JOBS: [(Rw, u32, u16); 6] = [
    (Rw::RandRead, 4 << 10, 1),
    (Rw::RandRead, 4 << 10, 32),
    (Rw::RandWrite, 4 << 10, 1),
    (Rw::RandWrite, 4 << 10, 32),
    (Rw::Read, 128 << 10, 8),
    (Rw::Write, 128 << 10, 8),
];
/// Default duration of each job, and the maximum of all.
const TIME: Duration = Duration::from_secs(1);
const ALL_TIME: Duration = Duration::from_secs(17);
/// Job that writes the drive; everything is read back and compared.
const CHECK: (Rw, u32, u16) = (Rw::Write, 128 << 10, 32);

/// Options of a demo.
#[derive(Debug)]
pub(crate) struct Demo {
    /// Duration of each job. Default: [`TIME`], or less if the total would exceed [`ALL_TIME`].
    pub(crate) time: Option<Duration>,
    /// Print JSON.
    pub(crate) json: bool,
}

/// Results of one drive.
#[derive(Debug, Serialize)]
struct Drive {
    name: &'static str,
    identity: Identity,
    /// Bytes that were written, read back and equal.
    bytes_verified: u64,
    jobs: Vec<JobReport>,
}

/// Results of a demo.
#[derive(Debug, Serialize)]
struct Findings {
    /// Mode of the server's reactor.
    mode: Mode,
    /// CPUs of server and host; absent if there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<(u32, u32)>,
    doorbells: &'static str,
    drives: Vec<Drive>,
}

impl Demo {
    /// Runs the demo.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let findings = in_folder(|dir, interrupt| {
            let mut run = Run {
                time: self.time,
                begun,
                interrupt,
                jobs_left: 2 * (1 + JOBS.len()),
            };
            run.everything(dir)
        })?;
        if self.json {
            terminal::print_json(&findings)?;
        } else {
            terminal::print(&shown::findings(&findings))?;
        }
        findings.verdict()
    }

    /// Runs the demo with a guest.
    pub(crate) fn run_vm(&self) -> anyhow::Result<()> {
        let seen = in_folder(vm::run_in)?;
        if self.json {
            return terminal::print_json(&seen);
        }
        terminal::print(&shown::seen(&seen))
    }
}

/// Runs `work` with a folder for its files, and removes the folder whatever the result.
fn in_folder<T>(work: impl FnOnce(&Path, &Interrupt) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let interrupt = Interrupt::install().context("cannot handle signals")?;
    let dir = TempDir::with_prefix("nvmirage-").with_context(|| {
        let folder = std::env::temp_dir();
        format!(
            "cannot create a folder in {}: set TMPDIR to a writable folder",
            folder.display()
        )
    })?;
    let result = work(dir.path(), &interrupt);
    let cleaned = dir.close().context("cannot remove the demo's files");
    let done = result?;
    cleaned?;
    Ok(done)
}

/// State of a running demo.
struct Run<'a> {
    time: Option<Duration>,
    begun: Instant,
    interrupt: &'a Interrupt,
    jobs_left: usize,
}

impl Run<'_> {
    fn everything(&mut self, dir: &Path) -> anyhow::Result<Findings> {
        let cpus = cpu::pair().context("cannot determine the usable CPUs")?;
        let config = configuration(dir, cpus.map(|(server, _)| server))?;
        let mode = config.reactor[0].mode;
        let server = Server::start(&config, dir)?;
        progress::note(&shown::started(server.id(), mode, cpus));
        if let Some((_, host)) = cpus {
            cpu::pin(host).with_context(|| format!("cannot run on CPU {host}"))?;
        }
        let mut findings = Findings {
            mode,
            cpus,
            doorbells: "none",
            drives: Vec::new(),
        };
        for (name, controller) in ["RAM", "file"].into_iter().zip(&config.controller) {
            let socket = controller.listen.path();
            let socket = socket.context("the demonstration's drives have sockets")?;
            let drive = self.drive(name, socket);
            // an interrupt caused every later error
            ensure!(
                !self.interrupt.is_set(),
                "interrupted; everything is removed"
            );
            let drive =
                drive.with_context(|| format!("the {name} drive failed{}", server.last_words()))?;
            findings.doorbells = drive.identity.controller.doorbells;
            findings.drives.push(drive);
        }
        server.stop()?;
        Ok(findings)
    }

    /// Identifies, verifies and measures one drive.
    fn drive(&mut self, name: &'static str, socket: &Path) -> anyhow::Result<Drive> {
        let place = Place::VfioUser(socket.to_owned());
        let mut host = Host::connect(&place, Doorbells::Auto, NEEDS)?;
        let identity = Identity::ask(&mut host)?;
        progress::note(&shown::identified(name, &identity));
        let namespace = host.device().namespace(1)?;
        let mut queue = host.device().create_queue_pair(NEEDS.queue_depth, false)?;
        let mut drive = Drive {
            name,
            identity,
            bytes_verified: 0,
            jobs: Vec::new(),
        };
        let checked = self.job(name, &mut host, &mut queue, &namespace, CHECK, true)?;
        verdict(&checked)?;
        drive.bytes_verified = checked.blocks_verified * u64::from(namespace.block_len);
        progress::note(&shown::checked(name, drive.bytes_verified));
        for kind in JOBS {
            if self.interrupt.is_set() {
                break;
            }
            let report = self.job(name, &mut host, &mut queue, &namespace, kind, false)?;
            drive.jobs.push(report);
        }
        host.device().delete_queue_pair(queue)?;
        host.leave()?;
        Ok(drive)
    }

    fn job(
        &mut self,
        drive: &str,
        host: &mut Host,
        queue: &mut Queue,
        namespace: &Namespace,
        (rw, block_size, queue_depth): (Rw, u32, u16),
        verify: bool,
    ) -> anyhow::Result<JobReport> {
        let job = Job {
            name: crate::job::title(rw.name(), block_size, queue_depth),
            rw,
            block_size,
            queue_depth,
            runtime: self.runtime(),
            verify,
            ..Job::default()
        };
        self.jobs_left = self.jobs_left.saturating_sub(1);
        let line = Line::new(&format!("{drive}: {}", job.name), job.runtime);
        let report = host.measure(queue, namespace, &job, &mut |now| {
            line.update(now);
            if self.interrupt.is_set() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        line.clear();
        Ok(JobReport::of(&report?))
    }

    /// Duration of the next job.
    fn runtime(&self) -> Duration {
        self.time.unwrap_or_else(|| {
            let left = u32::try_from(self.jobs_left.max(1)).unwrap_or(u32::MAX);
            (ALL_TIME.saturating_sub(self.begun.elapsed()) / left).min(TIME)
        })
    }
}

/// The demo fails if a job had errors.
fn verdict(job: &JobReport) -> anyhow::Result<()> {
    let first = job.first_error.as_deref().unwrap_or("unknown status");
    ensure!(
        job.errors == 0,
        "{}: {} errors; {first}",
        job.name,
        job.errors
    );
    Ok(())
}

impl Findings {
    fn verdict(&self) -> anyhow::Result<()> {
        for drive in &self.drives {
            for job in &drive.jobs {
                verdict(job).with_context(|| {
                    format!("commands on the {} drive ended with errors", drive.name)
                })?;
            }
        }
        Ok(())
    }
}

/// Two controllers, one with a namespace in memory, one with a namespace in a file.
fn configuration(dir: &Path, cpu: Option<u32>) -> anyhow::Result<Config> {
    let mut config = Config {
        state_dir: Some(dir.join("state")),
        control: Some(Control::at(dir.join("control"))),
        reactor: vec![config::Reactor {
            cpu,
            // a polling reactor would take the only CPU from the host
            mode: if cpu.is_some() {
                Mode::Poll
            } else {
                Mode::Adaptive
            },
            ..config::Reactor::default()
        }],
        ..Config::default()
    };
    let file_len = file_len(dir)?;
    let file = File::new(dir.join("disk.img"), Some(Size(file_len)));
    let media = [
        ("ram", Medium::ram("ram".into(), Size(DRIVE_LEN))),
        ("file", Medium::new("file".into(), Backing::File(file))),
    ];
    for (name, medium) in media {
        config.media.push(medium);
        let namespace = config::Namespace::new(name.into(), name.into());
        config.namespace.push(namespace);
        let listen = Listen::VfioUser(dir.join(format!("{name}.sock")));
        let mut controller = config::Controller::new(name.into(), listen);
        controller.namespaces = vec![name.into()];
        config.controller.push(controller);
    }
    Ok(config)
}

/// Size of the file: less than [`DRIVE_LEN`] if the file system has too little space.
fn file_len(dir: &Path) -> anyhow::Result<u64> {
    let room = rustix::fs::statvfs(dir)?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    let len = free.saturating_sub(SPARE_LEN).min(DRIVE_LEN) & !((1 << 20) - 1);
    ensure!(
        len >= 16 << 20,
        "{} has only {} left: set TMPDIR to a folder with more",
        dir.display(),
        terminal::units::bytes(free)
    );
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_one_that_can_be_used() {
        let dir = tempfile::tempdir().unwrap();
        for cpu in [None, Some(0)] {
            let config = configuration(dir.path(), cpu).unwrap();
            assert_eq!(config.validate(), []);
            assert_eq!(config.controller.len(), 2);
            let reread =
                config::from_toml(&config.with_defaults(machine::files::may_be_regular)).unwrap();
            assert_eq!(reread.controller, config.controller);
        }
    }

    #[test]
    fn every_job_fits_what_the_host_sets_aside() {
        for (_, block_size, queue_depth) in JOBS.into_iter().chain([CHECK]) {
            assert!(block_size <= NEEDS.block_size && queue_depth <= NEEDS.queue_depth);
        }
    }
}

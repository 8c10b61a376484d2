//! Our own server and our own host, each on a processor of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use guest_rig::Server;
use serde_json::Value;
use tempfile::TempDir;
use xtask_shared::workspace::Workspace;

use super::Cpus;
use super::process::cpu_time;
use super::sample::Sample;

/// How long the server may take to end.
const STOP: Duration = Duration::from_secs(20);
/// How long the allocation of memory may take, which has idle processors only.
const ALLOCATE: Duration = Duration::from_secs(60);
/// How long a medium is written at most: what was never written is no data to read.
const FILL_SECONDS: u32 = 8;

/// Disks over vhost-user-blk of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Disks {
    #[default]
    None,
    /// Each controller serves a front end, and no host over vfio-user.
    Only,
    /// Beside each controller another one serves the same namespace to a front end.
    Beside,
}

/// A medium and its reactor.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) kind: &'static str,
    pub(crate) path: Option<PathBuf>,
    pub(crate) size: &'static str,
    pub(crate) lba_size: u32,
    pub(crate) mode: &'static str,
    pub(crate) doorbells: &'static str,
    /// Controllers, each with a namespace of its own.
    pub(crate) controllers: usize,
    /// Queue pairs of each.
    pub(crate) queues: u16,
    /// `serve --survive`.
    pub(crate) survives: bool,
    /// `preallocate` of a medium in memory.
    pub(crate) preallocate: bool,
    /// The port of the only controller, which hosts reach over NVMe/TCP instead of a socket.
    pub(crate) tcp: Option<u16>,
    /// The socket of the only controller, which NBD clients reach.
    pub(crate) nbd: Option<PathBuf>,
    pub(crate) disks: Disks,
}

impl Setup {
    /// A reactor that polls, doorbells mapped, blocks of 4 KiB.
    pub(crate) fn new(kind: &'static str, size: &'static str) -> Self {
        Self {
            kind,
            path: None,
            size,
            lba_size: 4096,
            mode: "poll",
            doorbells: "auto",
            controllers: 1,
            queues: 64,
            survives: false,
            preallocate: false,
            tcp: None,
            nbd: None,
            disks: Disks::None,
        }
    }

    /// Lines of the server that a controller is ready.
    fn ready(&self) -> usize {
        match self.disks {
            Disks::None | Disks::Only => self.controllers,
            Disks::Beside => 2 * self.controllers,
        }
    }

    fn configuration(&self, sockets: &Path, cpu: u32) -> String {
        let Self {
            kind,
            size,
            lba_size,
            mode,
            doorbells,
            queues,
            ..
        } = self;
        let mut text = format!("[[reactor]]\ncpu = {cpu}\nmode = {mode:?}\n");
        for number in 0..self.controllers {
            let mut own = self.path.as_ref().map_or(String::new(), |path| {
                format!("path = {:?}\n", path.display().to_string())
            });
            if self.preallocate {
                own += "preallocate = true\n";
            }
            let disk = format!(
                "listen = \"vhost-user-blk:{}\"\nqueues = {queues}",
                disk(sockets, number).display()
            );
            let front = match (self.tcp, &self.nbd) {
                _ if self.disks == Disks::Only => disk.clone(),
                // Each command of more than a capsule's data has memory for the largest one.
                (Some(port), _) => format!(
                    "listen = \"nvme-tcp:127.0.0.1:{port}\"\nsubnqn = {NQN:?}\n\
                     max_transfer = \"1MiB\"\nqueues = {queues}"
                ),
                (None, Some(socket)) => format!("listen = \"nbd:{}\"", socket.display()),
                (None, None) => format!(
                    "listen = {:?}\ndoorbells = {doorbells:?}\nmax_transfer = \"4MiB\"\n\
                     queues = {queues}",
                    address(sockets, number)
                ),
            };
            text += &format!(
                "[[media]]\nname = \"m{number}\"\nkind = {kind:?}\nsize = {size:?}\n{own}\
                 [[namespace]]\nname = \"n{number}\"\nmedia = \"m{number}\"\nlba_size = {lba_size}\n\
                 [[controller]]\nname = \"c{number}\"\nnamespaces = [\"n{number}\"]\n{front}\n"
            );
            if self.disks == Disks::Beside {
                text += &format!(
                    "subsystem = \"s{number}\"\n[[controller]]\nname = \"d{number}\"\n\
                     subsystem = \"s{number}\"\nnamespaces = [\"n{number}\"]\n{disk}\n"
                );
            }
        }
        text
    }
}

/// The subsystem of a controller that hosts reach over NVMe/TCP.
const NQN: &str = "nqn.2026-11.example:bench";

fn address(sockets: &Path, number: usize) -> String {
    format!(
        "vfio-user:{}",
        sockets.join(format!("{number}.sock")).display()
    )
}

fn disk(sockets: &Path, number: usize) -> PathBuf {
    sockets.join(format!("{number}.disk"))
}

fn control(dir: &Path) -> String {
    format!("unix:{}", dir.join("control").display())
}

/// A server that runs, and the program to load it with.
pub(crate) struct Ours<'a> {
    workspace: &'a Workspace,
    server: Server,
    /// Of a server that survives.
    worker: Option<u32>,
    dir: TempDir,
    tcp: Option<u16>,
    host_cpu: u32,
    server_cpu: u32,
}

impl<'a> Ours<'a> {
    pub(crate) fn start(
        workspace: &'a Workspace,
        setup: &Setup,
        (server_cpu, host_cpu): (u32, u32),
    ) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("nvmirage-").tempdir()?;
        let file = dir.path().join("config.toml");
        let state = dir.path().join("state").display().to_string();
        let control = control(dir.path());
        let head = format!("state_dir = {state:?}\ncontrol = {control:?}\n");
        fs::write(&file, head + &setup.configuration(dir.path(), server_cpu))?;
        let mut options = vec!["--config".as_ref(), file.as_os_str()];
        if setup.survives {
            options.push("--survive".as_ref());
        }
        let mut server = Server::start(&options)?;
        for _ in 1..setup.ready() {
            server.wait_for_line("ready: ", STOP)?;
        }
        let worker = if setup.survives {
            server.worker()?
        } else {
            None
        };
        Ok(Self {
            workspace,
            server,
            worker,
            dir,
            tcp: setup.tcp,
            host_cpu,
            server_cpu,
        })
    }

    /// The server's process: that which serves.
    pub(crate) fn pid(&self) -> u32 {
        self.worker.unwrap_or(self.server.pid())
    }

    /// Where controller `number` listens.
    pub(crate) fn target(&self, number: usize) -> String {
        match self.tcp {
            Some(port) => format!("nvme-tcp:127.0.0.1:{port}/{NQN}"),
            None => address(self.dir.path(), number),
        }
    }

    /// Where disk `number` listens for its front end ([`Disks`]).
    pub(crate) fn disk(&self, number: usize) -> PathBuf {
        disk(self.dir.path(), number)
    }

    /// Where it is steered.
    pub(crate) fn control(&self) -> String {
        control(self.dir.path())
    }

    /// Everything that it serves, with counters.
    fn inventory(&self) -> Result<Value> {
        let mut command = self.workspace.command(&self.workspace.program())?;
        output(command.args(["ls", "--json", "--control", &self.control()]))
    }

    /// Time of the reactor's turns that found work, since its start.
    pub(crate) fn busy(&self) -> Result<Duration> {
        busy(&self.inventory()?)
    }

    /// Waits until the memory of all media with [`Setup::preallocate`] is allocated.
    pub(crate) fn wait_for_memory(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let media = self.inventory()?["media"].take();
            let mut media = media.as_array().into_iter().flatten();
            if media.all(|medium| medium["preallocated_bytes"] == medium["bytes"]) {
                return Ok(());
            }
            ensure!(begun.elapsed() < ALLOCATE, "the memory is not allocated");
            sleep(Duration::from_millis(100));
        }
    }

    /// Writes all of the first controller's namespace, which has `mib` MiB.
    pub(crate) fn fill(&self, mib: u64) -> Result<()> {
        let args = format!("--rw write --bs 128k --qd 8 --time {FILL_SECONDS}s --span {mib}MiB");
        // in order, again and again: a second is enough for memory
        let quick = args.replace(&format!("{FILL_SECONDS}s"), "1s");
        let done = self.bench(&quick)?;
        let written = done["jobs"][0]["commands"].as_u64().unwrap_or(0) * 128 / 1024;
        if written < mib {
            self.bench(&args)?;
        }
        Ok(())
    }

    /// Loads the first controller: `args` are those of `nvmirage bench`.
    pub(crate) fn bench(&self, args: &str) -> Result<Value> {
        let mut command = self.workspace.command(&self.workspace.program())?;
        command
            .args([
                "bench",
                "--json",
                "--target",
                &self.target(0),
                "--destroy-data",
            ])
            .args(["--cpu", &self.host_cpu.to_string()])
            .args(["--server-cpu", &self.server_cpu.to_string()])
            .args(args.split(' '));
        output(&mut command)
    }

    /// As [`Ours::bench`], for one job.
    pub(crate) fn job(&self, args: &str) -> Result<Value> {
        let mut output = self.bench(args)?;
        Ok(output["jobs"][0].take())
    }

    /// One job's sample, with the time that the server spent for each command.
    pub(crate) fn sample(&self, args: &str) -> Result<Sample> {
        let before = cpu_time(self.pid())?;
        let job = self.job(args)?;
        let spent = cpu_time(self.pid())? - before;
        let mut sample = sample(&job)?;
        let commands = job["commands"].as_f64().context("a job has no commands")?;
        // what it spent while the host set up and looked at the placement belongs to no command
        let elapsed = ["elapsed_ns", "stalled_ns", "server_stalled_ns"]
            .map(|part| job[part].as_f64().unwrap_or(0.0))
            .iter()
            .sum::<f64>();
        let spent = (spent.as_nanos() as f64).min(elapsed);
        sample.server_ns = (commands > 0.0).then(|| spent / commands);
        Ok(sample)
    }

    /// Ends the server.
    pub(crate) fn stop(self) -> Result<()> {
        self.server.stop(STOP)?;
        Ok(())
    }
}

/// Runs the program, which prints JSON.
pub(crate) fn output(command: &mut std::process::Command) -> Result<Value> {
    let output = command.output().context("cannot run nvmirage")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "nvmirage failed: {}", said.trim());
    serde_json::from_slice(&output.stdout).context("nvmirage printed something else than JSON")
}

/// Time of the turns of the only reactor that found work.
fn busy(inventory: &Value) -> Result<Duration> {
    let busy = inventory["reactors"][0]["busy_ns"].as_u64();
    Ok(Duration::from_nanos(
        busy.context("the server lists no busy time of its reactor")?,
    ))
}

/// How far the two processors are from each other now.
pub(crate) fn placement(workspace: &Workspace, cpus: Cpus) -> Result<String> {
    let (server, host) = cpus.pair();
    let mut command = workspace.command(&workspace.program())?;
    command.args(["bench", "floor", "--brief", "--json"]);
    let cpus = format!("{host},{server}");
    let looked = output(command.args(["--cpus", &cpus]))?;
    let placement = looked["placement"].as_str();
    Ok(placement.context("the floor has no placement")?.to_owned())
}

/// A job of `nvmirage bench --json`.
pub(crate) fn sample(job: &Value) -> Result<Sample> {
    let micros = |name: &str| Some(job["latency_ns"][name].as_f64()? / 1000.0);
    Ok(Sample {
        iops: job["iops"].as_f64().context("a job has no rate")?,
        mean_us: micros("mean").context("a job has no latency")?,
        p50_us: micros("p50"),
        p99_us: micros("p99"),
        p999_us: micros("p999"),
        server_ns: None,
        reactor_ns: job["reactor_busy_ns_per_command"].as_f64(),
        batch: job["batch"].as_f64(),
        messages: job["doorbell_messages_per_command"].as_f64(),
        placement: job["placement"].as_str().unwrap_or("unknown").to_owned(),
        stalls: job["stalls"]
            .as_u64()
            .map(|stalls| stalls + job["server_stalls"].as_u64().unwrap_or(0)),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_becomes_a_sample() {
        let job = json!({
            "name": "a", "rw": "randread", "block_size": 4096, "queue_depth": 32, "iops": 2e6,
            "latency_ns": {"mean": 1500.0, "p50": 1000, "p99": 2000, "p999": 3000, "max": 4000},
            "reactor_busy_ns_per_command": 250.4, "placement": "far", "batch": 12.5, "stalls": 2,
        });
        let sample = sample(&job).unwrap();
        assert_eq!((sample.iops, sample.mean_us), (2e6, 1.5));
        assert_eq!((sample.p50_us, sample.p999_us), (Some(1.0), Some(3.0)));
        assert_eq!((sample.reactor_ns, sample.batch), (Some(250.4), Some(12.5)));
        assert_eq!((sample.placement.as_str(), sample.stalls), ("far", Some(2)));
        assert!(super::sample(&json!({})).is_err());
    }

    #[test]
    fn a_configuration_has_every_controller() {
        let setup = Setup {
            controllers: 3,
            mode: "adaptive",
            ..Setup::new("ram", "64MiB")
        };
        let text = setup.configuration(Path::new("/run/s"), 3);
        assert!(text.starts_with("[[reactor]]\ncpu = 3\nmode = \"adaptive\"\n[["));
        assert_eq!(text.matches("[[controller]]").count(), 3);
        assert!(text.contains("listen = \"vfio-user:/run/s/2.sock\"") && !text.contains("path"));
        let file = Setup {
            path: Some("/d/disk".into()),
            ..Setup::new("file", "1GiB")
        };
        assert!(
            file.configuration(Path::new("/s"), 0)
                .contains("path = \"/d/disk\"\n")
        );
    }

    #[test]
    fn disks_are_served_alone_or_beside_hosts() {
        let with = |disks| Setup {
            disks,
            controllers: 2,
            queues: 1,
            ..Setup::new("ram", "64MiB")
        };
        let setup = with(Disks::Only);
        let text = setup.configuration(Path::new("/run/s"), 0);
        assert_eq!((setup.ready(), text.matches("listen =").count()), (2, 2));
        assert!(text.contains("listen = \"vhost-user-blk:/run/s/1.disk\"\nqueues = 1\n"));
        assert!(!text.contains("doorbells") && !text.contains("subsystem"));
        let setup = with(Disks::Beside);
        let text = setup.configuration(Path::new("/run/s"), 0);
        assert_eq!((setup.ready(), text.matches("listen =").count()), (4, 4));
        assert!(text.contains("listen = \"vfio-user:/run/s/1.sock\""));
        assert_eq!(text.matches("subsystem = \"s1\"\n").count(), 2);
        assert_eq!(text.matches("namespaces = [\"n1\"]\n").count(), 2);
        assert_eq!(with(Disks::None).ready(), 2);
    }

    #[test]
    fn the_busy_time_is_that_of_the_first_reactor() {
        let inventory = json!({ "reactors": [{ "busy_ns": 1_500 }] });
        assert_eq!(busy(&inventory).unwrap(), Duration::from_nanos(1_500));
        assert!(busy(&json!({ "reactors": [] })).is_err());
    }
}

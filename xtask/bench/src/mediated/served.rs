//! A server whose drive is itself: a controller of a medium, and others that are mediated onto it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use guest_rig::Server;
use serde_json::Value;
use tempfile::TempDir;

use super::super::ours::output;
use super::super::process::cpu_time;
use super::super::sample::Sample;
use super::Mediated;
use super::split::Placement;

/// How long the server may take to begin and to end.
const BOUND: Duration = Duration::from_secs(20);
/// Of each host's part of the drive, in MiB.
pub(super) const PART_MIB: u64 = 256;

/// What is served.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// Keys of the drive's medium beside its name: kind, timing.
    pub(super) medium: String,
    /// Of the drive, in MiB.
    pub(super) size_mib: u64,
    /// What each host of the drive is created with: options of `nvmirage create tenant`; empty: it
    /// is no tenant's. Without any, the drive is driven directly.
    pub(super) hosts: Vec<String>,
    /// Reactors, and what of a command each does; `None`: one that polls.
    pub(super) placement: Option<Placement>,
}

impl Setup {
    /// A drive of a kind, driven directly.
    pub(super) fn direct(kind: &str) -> Self {
        Self {
            medium: format!("kind = {kind:?}"),
            size_mib: 1024,
            hosts: Vec::new(),
            placement: None,
        }
    }

    /// With the timing of a real drive, which does not keep what is written.
    pub(super) fn modelled(timing: &str, size_mib: u64) -> Self {
        Self {
            medium: format!("kind = \"null\"\ntiming = {{ preset = {timing:?} }}"),
            size_mib,
            hosts: Vec::new(),
            placement: None,
        }
    }

    /// The same with these reactors.
    pub(super) fn placed(&self, placement: Placement) -> Self {
        Self {
            placement: Some(placement),
            ..self.clone()
        }
    }

    /// The same drive with hosts.
    pub(super) fn with(&self, hosts: &[&str]) -> Self {
        Self {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..self.clone()
        }
    }
}

/// A server that runs.
pub(super) struct Served<'a> {
    mediated: &'a Mediated<'a>,
    server: Server,
    dir: TempDir,
    hosts: usize,
}

impl<'a> Served<'a> {
    pub(super) fn start(mediated: &'a Mediated<'a>, setup: &Setup) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("nvmirage-").tempdir()?;
        let at = |name: &str| dir.path().join(name).display().to_string();
        let file = dir.path().join("config.toml");
        let one = || Placement::one(mediated.args.cpus.pair().0);
        let placement = setup.placement.clone().unwrap_or_else(one);
        let text = format!(
            "state_dir = {:?}\ncontrol = {:?}\n{}\
             [[media]]\nname = \"medium\"\n{}\nsize = \"{}MiB\"\n\
             [[namespace]]\nname = \"all\"\nmedia = \"medium\"\nlba_size = 4096\n\
             [[controller]]\nname = \"drive\"\nnamespaces = [\"all\"]\nlisten = {:?}\nmax_transfer = \"1MiB\"\n",
            at("state"),
            format!("unix:{}", at("control")),
            placement.reactors(),
            setup.medium,
            setup.size_mib,
            address(dir.path(), "drive"),
        );
        fs::write(&file, text)?;
        let server = Server::start(&["--config".as_ref(), file.as_os_str()])?;
        let served = Self {
            mediated,
            server,
            dir,
            hosts: setup.hosts.len(),
        };
        if served.hosts > 0 {
            served.mediate(setup)?;
        }
        Ok(served)
    }

    /// Makes the medium that is the drive, and its hosts' controllers.
    fn mediate(&self, setup: &Setup) -> Result<()> {
        let drive = address(self.dir.path(), "drive");
        self.steer(&format!(
            "create media shared --kind drive --target {drive}{}",
            setup.placement.as_ref().map_or("", Placement::options)
        ))?;
        for (number, options) in setup.hosts.iter().enumerate() {
            let from = PART_MIB * number as u64;
            let until = from + PART_MIB;
            self.steer(&format!(
                "create namespace part{number} --media shared --lba-size 4096 --range {from}MiB..{until}MiB"
            ))?;
            let mut whose = String::new();
            if !options.is_empty() {
                self.steer(&format!("create tenant t{number} {options}"))?;
                whose = format!(" --tenant t{number}");
            }
            let listen = self.target(number);
            self.steer(&format!(
                "create controller host{number} --namespaces part{number} --listen {listen}{whose}"
            ))?;
        }
        Ok(())
    }

    fn steer(&self, words: &str) -> Result<()> {
        let workspace = self.mediated.workspace;
        let mut command = workspace.command(&workspace.program())?;
        let control = self.dir.path().join("control");
        command
            .args(words.split(' '))
            .args(["--control", &format!("unix:{}", control.display())]);
        let done = command.output().context("cannot run nvmirage")?;
        anyhow::ensure!(
            done.status.success(),
            "nvmirage {words}: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        );
        Ok(())
    }

    /// Where a host finds its controller; where there are none, the drive.
    pub(super) fn target(&self, number: usize) -> String {
        match self.hosts {
            0 => address(self.dir.path(), "drive"),
            _ => address(self.dir.path(), &format!("host{number}")),
        }
    }

    /// All but the first, as `nvmirage bench --also` has them.
    pub(super) fn others(&self) -> String {
        let targets: Vec<String> = (1..self.hosts).map(|number| self.target(number)).collect();
        targets.join(",")
    }

    /// Loads it: `args` are those of `nvmirage bench`. The first job.
    pub(super) fn job(&self, args: &str) -> Result<Value> {
        let workspace = self.mediated.workspace;
        let (server, host) = self.mediated.args.cpus.pair();
        let mut command = workspace.command(&workspace.program())?;
        command
            .args([
                "bench",
                "--json",
                "--target",
                &self.target(0),
                "--destroy-data",
            ])
            .args(["--cpu", &host.to_string()])
            .args(["--server-cpu", &server.to_string()])
            .args(args.split(' '));
        Ok(output(&mut command)?["jobs"][0].take())
    }

    /// Writes every byte of the first host's part, that reads find some.
    pub(super) fn fill(&self) -> Result<()> {
        self.job(&format!(
            "--rw write --bs 128k --qd 8 --time 2s --span {PART_MIB}MiB"
        ))?;
        Ok(())
    }

    /// A job's sample, with the time that the server spent for each command.
    pub(super) fn sample(&self, args: &str) -> Result<Sample> {
        let before = cpu_time(self.server.pid())?;
        let job = self.job(args)?;
        let spent = cpu_time(self.server.pid())? - before;
        let mut sample = super::super::ours::sample(&job)?;
        let commands = job["commands"].as_f64().context("a job has no commands")?;
        sample.server_ns = (commands > 0.0).then(|| spent.as_nanos() as f64 / commands);
        // The reactor's own count has each command twice: it completes it as the drive, too.
        let twice = if self.hosts > 0 { 2.0 } else { 1.0 };
        sample.reactor_ns = sample.reactor_ns.map(|ns| ns * twice);
        Ok(sample)
    }

    /// What the server itself saw of the first host's reads, from the doorbell to the completion:
    /// of one command of 256, in microseconds, what so many of them did not exceed.
    pub(super) fn seen(&self, parts: &[f64]) -> Result<Vec<Option<f64>>> {
        let workspace = self.mediated.workspace;
        let mut command = workspace.command(&workspace.program())?;
        let control = self.dir.path().join("control");
        let control = format!("unix:{}", control.display());
        command.args(["latency", "host0", "--json", "--control", &control]);
        let report = output(&mut command)?;
        let all = report["latency"].as_array().context("it has no latency")?;
        let reads = all.iter().find(|one| one["operation"] == "read");
        let reads = reads.context("no read was seen")?;
        let number = |value: &Value| value.as_f64().context("it is no number");
        let count = number(&reads["count"])?;
        let mut seen = vec![None; parts.len()];
        let mut below = 0.0;
        for bucket in reads["buckets"].as_array().context("it has no buckets")? {
            below += number(&bucket[1])?;
            let last = number(&bucket[0])? / 1000.0;
            for (part, seen) in parts.iter().zip(&mut seen) {
                if seen.is_none() && below >= part * count {
                    *seen = Some(last);
                }
            }
        }
        Ok(seen)
    }

    /// Ends the server: those who use the drive before the drive, which is a part of it, too.
    pub(super) fn stop(self) -> Result<()> {
        for number in 0..self.hosts {
            self.steer(&format!("delete controller host{number}"))?;
            self.steer(&format!("delete namespace part{number}"))?;
        }
        if self.hosts > 0 {
            self.steer("delete media shared")?;
        }
        self.server.stop(BOUND)?;
        Ok(())
    }
}

fn address(dir: &Path, name: &str) -> String {
    format!("vfio-user:{}", dir.join(format!("{name}.sock")).display())
}

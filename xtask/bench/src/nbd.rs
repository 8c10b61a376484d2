//! `cargo xtask bench nbd`: an export in memory over NBD, of the program, of qemu-storage-daemon
//! and of nbdkit, by the same clients: fio's engine of libnbd, and nbdcopy.
//!
//! Each round has every server, one after the other and each alone, on one processor, and the
//! client on the other one. What is read was written before. A row has medians, and the median of
//! the ratios of the rounds to the better of the other two.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use guest_rig::{Rig, libnbd};
use serde_json::json;
use xtask_shared::process::Interrupt;
use xtask_shared::workspace::Workspace;

use super::ours::{Ours, Setup, placement};
use super::process::{Running, output_on, spawn_on};
use super::sample::{Sample, median};
use super::{Cpus, fio, memory_dir, write_file};

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct NbdArgs {
    /// Seconds for each figure of fio
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// How often everything is measured
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    #[command(flatten)]
    cpus: Cpus,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// MiB of the export.
const MIB: u64 = 512;
const SIZE: &str = "512MiB";
/// How long a server may take until it serves.
const START: Duration = Duration::from_secs(10);

/// A server of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rival {
    Ours,
    StorageDaemon,
    Nbdkit,
}

const RIVALS: [Rival; 3] = [Rival::Ours, Rival::StorageDaemon, Rival::Nbdkit];

/// What clients do.
#[derive(Clone, Copy, Debug)]
enum Case {
    /// fio: `rw`, requests of 4 KiB in flight.
    Fio(&'static str, u64),
    /// nbdcopy of everything, with so many connections.
    Copy(u32),
}

const CASES: [Case; 5] = [
    Case::Fio("randread", 1),
    Case::Fio("randread", 32),
    Case::Fio("randwrite", 32),
    Case::Copy(1),
    Case::Copy(4),
];

impl Case {
    fn name(self) -> String {
        match self {
            Case::Fio(rw, depth) => format!("fio {rw} 4 KiB, {depth} in flight, K/s"),
            Case::Copy(connections) => format!("nbdcopy, connections: {connections}, MiB/s"),
        }
    }
}

/// One figure: requests or MiB a second, and nanoseconds of the server's processor for each.
#[derive(Clone, Copy, Debug)]
struct Figure {
    rate: f64,
    server_ns: f64,
}

/// A server that runs.
enum Served<'a> {
    Ours(Box<Ours<'a>>),
    Other(Running),
}

impl Served<'_> {
    fn pid(&self) -> u32 {
        match self {
            Served::Ours(ours) => ours.pid(),
            Served::Other(running) => running.0.id(),
        }
    }
}

/// The time that all threads of a process have run, also those that have ended, in hundredths of a
/// second as `/proc/PID/stat` has it (proc_pid_stat(5)).
fn cpu_time_of_all(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, which may have spaces, ends with the last parenthesis; utime is field 14.
    let (_, fields) = stat.rsplit_once(')').context("a process has no name")?;
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.map(|ticks| ticks.parse().unwrap_or(0)).sum();
    Ok(Duration::from_millis(ticks * 10))
}

struct Bench<'a> {
    workspace: &'a Workspace,
    args: &'a NbdArgs,
    rig: Rig,
    /// In memory.
    dir: tempfile::TempDir,
}

impl Bench<'_> {
    fn socket(&self) -> PathBuf {
        self.dir.path().join("nbd.sock")
    }

    fn start(&self, rival: Rival) -> Result<Served<'_>> {
        let (server_cpu, _) = self.args.cpus.pair();
        let socket = self.socket();
        // The last server may have left its own.
        let _ = fs::remove_file(&socket);
        let mut command = match rival {
            Rival::Ours => {
                let setup = Setup {
                    nbd: Some(socket),
                    ..Setup::new("ram", SIZE)
                };
                let ours = Ours::start(self.workspace, &setup, self.args.cpus.pair())?;
                return Ok(Served::Ours(Box::new(ours)));
            }
            Rival::StorageDaemon => {
                let file = self.dir.path().join("disk");
                write_file(&file, MIB)?;
                let mut command = self.rig.qemu("qemu-storage-daemon").command();
                command
                    .arg("--blockdev")
                    .arg(format!(
                        "driver=file,filename={},node-name=n0",
                        file.display()
                    ))
                    .arg("--nbd-server")
                    .arg(format!(
                        "addr.type=unix,addr.path={},max-connections=0",
                        socket.display()
                    ))
                    .args([
                        "--export",
                        "type=nbd,id=e0,node-name=n0,name=n0,writable=on",
                    ]);
                command
            }
            Rival::Nbdkit => {
                let (nbdkit, plugin) = libnbd::nbdkit()?;
                let mut command = nbdkit.command();
                command.arg("--foreground").arg("--unix").arg(&socket);
                command.arg(plugin).arg(SIZE.trim_end_matches("iB"));
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let running = spawn_on(server_cpu, &mut command)?;
        let deadline = Instant::now() + START;
        while !socket.exists() {
            ensure!(Instant::now() < deadline, "{rival:?} does not serve");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Served::Other(running))
    }

    /// Every case by one server.
    fn measure(&self, rival: Rival, interrupt: &Interrupt) -> Result<Vec<Figure>> {
        let served = self.start(rival)?;
        // The name of the only export; nbdkit takes any.
        let uri = format!("nbd+unix:///n0?socket={}", self.socket().display());
        let image = self.dir.path().join("image");
        self.copy(&image.display().to_string(), &uri, 1)?;
        let mut figures = Vec::new();
        for case in CASES {
            ensure!(!interrupt.is_set(), "interrupted");
            let (before, begun) = (cpu_time_of_all(served.pid())?, Instant::now());
            let (rate, count) = match case {
                Case::Fio(rw, depth) => {
                    let sample = self.fio(&uri, rw, depth)?;
                    (sample.iops, sample.iops * f64::from(self.args.seconds))
                }
                Case::Copy(connections) => {
                    self.copy(&uri, "null:", connections)?;
                    (MIB as f64 / begun.elapsed().as_secs_f64(), MIB as f64)
                }
            };
            let spent = cpu_time_of_all(served.pid())? - before;
            figures.push(Figure {
                rate,
                server_ns: spent.as_nanos() as f64 / count,
            });
        }
        match served {
            Served::Ours(ours) => ours.stop()?,
            Served::Other(running) => drop(running),
        }
        Ok(figures)
    }

    fn fio(&self, uri: &str, rw: &str, depth: u64) -> Result<Sample> {
        let mut command = libnbd::program("fio")?.command();
        command
            .args([
                "--name=bench",
                "--bs=4k",
                "--ioengine=nbd",
                "--thread",
                "--time_based",
            ])
            .args([
                "--randrepeat=0",
                "--norandommap",
                "--output-format=terse",
                "--terse-version=3",
            ])
            .arg(format!("--uri={uri}"))
            .arg(format!("--rw={rw}"))
            .arg(format!("--iodepth={depth}"))
            .arg(format!("--size={SIZE}"))
            .arg(format!("--runtime={}", self.args.seconds));
        fio::parse(&output_on(self.args.cpus.pair().1, &mut command, "")?)
    }

    fn copy(&self, from: &str, to: &str, connections: u32) -> Result<()> {
        let mut command = libnbd::program("nbdcopy")?.command();
        command
            .arg(format!("--connections={connections}"))
            .args([from, to]);
        output_on(self.args.cpus.pair().1, &mut command, "").map(drop)
    }
}

/// Measures, and writes a table.
///
/// # Errors
/// A server or a client cannot be started, or fails, or we are asked to stop.
pub(super) fn run(workspace: &Workspace, interrupt: &Interrupt, args: &NbdArgs) -> Result<()> {
    let bench = Bench {
        workspace,
        args,
        rig: Rig::prepare_all(&mut |_| {})?,
        dir: memory_dir()?,
    };
    write_file(&bench.dir.path().join("image"), MIB)?;
    // Of each case, of each round, by each server.
    let mut rounds: Vec<Vec<[Figure; 3]>> = vec![Vec::new(); CASES.len()];
    let mut placements = Vec::new();
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        placements.push(placement(workspace, args.cpus)?);
        let mut all = Vec::new();
        for at in 0..RIVALS.len() {
            let at = (at + round as usize) % RIVALS.len();
            all.push((at, bench.measure(RIVALS[at], interrupt)?));
        }
        all.sort_by_key(|(at, _)| *at);
        for (case, figures) in rounds.iter_mut().enumerate() {
            figures.push([0, 1, 2].map(|at| all[at].1[case]));
        }
    }
    let rows: Vec<Row> = CASES.iter().zip(&rounds).map(Row::of).collect();
    report(workspace, args.json, &rows, &placements)
}

/// What a case comes to: medians of its rounds, by server.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    rate: [f64; 3],
    server_ns: [f64; 3],
    /// Our rate, of the better of the others': median, least and most.
    ratio: [f64; 3],
}

impl Row {
    fn of((case, rounds): (&Case, &Vec<[Figure; 3]>)) -> Self {
        let of = |value: &dyn Fn(&[Figure; 3]) -> f64| {
            median(rounds.iter().map(value).collect()).unwrap_or(f64::NAN)
        };
        let ratio = |round: &[Figure; 3]| round[0].rate / round[1].rate.max(round[2].rate);
        let unit = match case {
            Case::Fio(..) => 1e3,
            Case::Copy(_) => 1.0,
        };
        let ratios = rounds.iter().map(ratio);
        Self {
            name: case.name(),
            rate: [0, 1, 2].map(|at| of(&|round| round[at].rate / unit)),
            server_ns: [0, 1, 2].map(|at| of(&|round| round[at].server_ns)),
            ratio: [
                of(&ratio),
                ratios.clone().fold(f64::INFINITY, f64::min),
                ratios.fold(0.0, f64::max),
            ],
        }
    }
}

fn report(workspace: &Workspace, in_json: bool, rows: &[Row], placements: &[String]) -> Result<()> {
    let all = rows.iter().map(|row| {
        json!({
            "subject": row.name, "rate": row.rate, "server_ns": row.server_ns, "ratio": row.ratio,
        })
    });
    let json = json!({ "rows": all.collect::<Vec<_>>(), "placements": placements });
    fs::create_dir_all(workspace.logs())?;
    let file = workspace.logs().join("nbd.json");
    fs::write(&file, format!("{json:#}\n")).context("cannot write results")?;
    if in_json {
        println!("{json:#}");
    } else {
        print!("{}", table(rows));
        println!("placements: {}", placements.join(", "));
    }
    Ok(())
}

/// As the book has it.
fn table(rows: &[Row]) -> String {
    let mut text = "| 512 MiB of memory over NBD | nvmirage | qemu-storage-daemon | nbdkit | ratio to the \
                    better (least to most) | server, ns for each: nvmirage | qemu-storage-daemon | nbdkit |\n\
                    |---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for row in rows {
        let ([ours, daemon, kit], [median, least, most]) = (row.rate, row.ratio);
        let [ours_ns, daemon_ns, kit_ns] = row.server_ns;
        let _ = writeln!(
            text,
            "| {} | {ours:.1} | {daemon:.1} | {kit:.1} | {median:.2} ({least:.2} to {most:.2}) | \
             {ours_ns:.0} | {daemon_ns:.0} | {kit_ns:.0} |",
            row.name
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_beside_the_better_of_each_round() {
        let figure = |rate: f64| Figure {
            rate: rate * 1e3,
            server_ns: 1e6 / rate,
        };
        let rounds = [[30.0, 10.0, 20.0], [33.0, 30.0, 11.0], [8.0, 4.0, 2.0]];
        let rounds = rounds.map(|round| round.map(figure)).to_vec();
        let row = Row::of((&Case::Fio("randread", 32), &rounds));
        assert_eq!(row.rate, [30.0, 10.0, 11.0]);
        assert_eq!(row.ratio, [1.5, 1.1, 2.0]);
        let table = table(&[row]);
        assert_eq!(
            table.lines().last().unwrap(),
            "| fio randread 4 KiB, 32 in flight, K/s | 30.0 | 10.0 | 11.0 | 1.50 (1.10 to 2.00) | 33333 | 100000 | 90909 |"
        );
    }
}

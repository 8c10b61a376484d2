//! `cargo xtask bench control`: what a storm of abuse on the control socket costs hosts, beside a
//! process that burns as much of the same processors and has nothing to do with us.
//!
//! Rounds have a case each of: alone, under the storm, beside the hog. The storm is a process of
//! its own ([`storm`]). What it and the server's own threads for control burn in its case, the hog
//! burns in the case that follows ([`hog`]): one of its threads as nice as the storm, one as nice
//! as control. The ratio of their p99 is that of one round; figures are reported and never judged.

mod hog;
mod storm;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use xtask_shared::process::Interrupt;
use xtask_shared::workspace::Workspace;

use super::Cpus;
use super::ours::{Ours, Setup};
use super::process::Running;
use super::reach::{Row, shown, table};
use super::sample::{Sample, median};

/// How long the storm has blown before it is measured.
const BLOWN: Duration = Duration::from_millis(300);

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// Seconds for each figure
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// How many rounds there are
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How the reactor waits for work
    #[arg(long, default_value = "poll", value_parser = ["poll", "adaptive"])]
    mode: String,
    #[command(flatten)]
    cpus: Cpus,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Be the storm on this control socket
    #[arg(long, hide = true, value_name = "PATH")]
    storm: Option<std::path::PathBuf>,
    /// Be the hog that burns these parts of a processor: as nice as we are, and as control is
    #[arg(long, hide = true, value_name = "A,B", value_delimiter = ',')]
    hog: Vec<f64>,
}

impl ControlArgs {
    /// Does what a process that we have started is for; whether it is one.
    pub(super) fn is_child(&self) -> Result<bool> {
        if let Some(socket) = &self.storm {
            storm::blow(socket)?;
            return Ok(true);
        }
        if let [own, nicer] = self.hog[..] {
            hog::burn(own, nicer)?;
            return Ok(true);
        }
        Ok(false)
    }
}

/// What one round came to.
#[derive(Clone, Debug)]
struct Round {
    alone: Sample,
    storm: Sample,
    hog: Sample,
    /// Parts of a processor that the storm and control burned, and those that the hog burned.
    burned: [f64; 2],
    hog_burned: f64,
    /// Requests that the storm has had answered, each second, and how.
    answers: Value,
    /// Memory that the server had at most, in KiB.
    resident_kib: u64,
}

/// Measures all of it.
///
/// # Errors
/// The program or a child cannot be run, results cannot be written, or somebody interrupts us.
pub(super) fn run(workspace: &Workspace, interrupt: &Interrupt, args: &ControlArgs) -> Result<()> {
    fs::create_dir_all(workspace.logs())?;
    let setup = Setup {
        mode: match &*args.mode {
            "adaptive" => "adaptive",
            _ => "poll",
        },
        ..Setup::new("null", "1GiB")
    };
    let ours = Ours::start(workspace, &setup, args.cpus.pair())?;
    let at_rest = resident_kib(ours.pid())?;
    let mut rounds = Vec::new();
    for number in 1..=args.rounds {
        eprintln!("round {number} of {}", args.rounds);
        rounds.push(round(&ours, args)?);
        ensure!(!interrupt.is_set(), "interrupted");
    }
    ours.stop()?;
    report(workspace, args, at_rest, &rounds)
}

fn round(ours: &Ours<'_>, args: &ControlArgs) -> Result<Round> {
    let job = format!("--qd 1 --time {}s", args.seconds);
    let alone = ours.sample(&job)?;
    let socket = ours.control();
    let socket = socket.trim_start_matches("unix:");

    let mut child = child(&["--storm", socket])?;
    std::thread::sleep(BLOWN);
    let before = (burned(child.0.id(), |_| true)?, control_time(ours.pid())?);
    let since = Instant::now();
    let storm = ours.sample(&job)?;
    let elapsed = since.elapsed().as_secs_f64();
    let after = (burned(child.0.id(), |_| true)?, control_time(ours.pid())?);
    let resident = resident_kib(ours.pid())?;
    let answers = answers(&mut child)?;
    let part = |after: Duration, before: Duration| (after - before).as_secs_f64() / elapsed;
    let burned_parts = [part(after.0, before.0), part(after.1, before.1)];

    let parts = burned_parts.map(|part| format!("{part:.4}")).join(",");
    let hog = self::child(&["--hog", &parts])?;
    std::thread::sleep(BLOWN);
    let before = burned(hog.0.id(), |_| true)?;
    let since = Instant::now();
    let beside = ours.sample(&job)?;
    let elapsed = since.elapsed().as_secs_f64();
    let hog_burned = (burned(hog.0.id(), |_| true)? - before).as_secs_f64() / elapsed;
    drop(hog);
    Ok(Round {
        alone,
        storm,
        hog: beside,
        burned: burned_parts,
        hog_burned,
        answers,
        resident_kib: resident,
    })
}

/// A process of ours that does one thing until its input ends.
fn child(args: &[&str]) -> Result<Running> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(program);
    command.arg("control").args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let child = command.spawn().context("cannot run ourselves")?;
    Ok(Running(child))
}

/// Ends the storm, and what it has had answered.
fn answers(storm: &mut Running) -> Result<Value> {
    use std::io::Read as _;
    drop(storm.0.stdin.take());
    let mut said = String::new();
    let stdout = storm.0.stdout.as_mut();
    stdout
        .context("standard output is a pipe")?
        .read_to_string(&mut said)?;
    let status = storm.0.wait()?;
    ensure!(status.success(), "the storm ended with {status}");
    serde_json::from_str(&said).context("the storm printed something else than JSON")
}

/// What threads of a process whose names are so have run.
fn burned(pid: u32, counts: impl Fn(&str) -> bool) -> Result<Duration> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        // A thread that has ended since is not there, or cannot be read any more.
        let (Ok(name), Ok(schedstat)) = (
            fs::read_to_string(task.join("comm")),
            fs::read_to_string(task.join("schedstat")),
        ) else {
            continue;
        };
        if counts(name.trim()) {
            sum += super::process::run_ns(&schedstat)?;
        }
    }
    Ok(Duration::from_nanos(sum))
}

/// What the server's threads but its reactors have run.
fn control_time(pid: u32) -> Result<Duration> {
    burned(pid, |name| !name.starts_with("reactor"))
}

fn resident_kib(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"))?;
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:"));
    let words = line.and_then(|line| line.split_whitespace().next());
    words.context("no VmRSS")?.parse().context("no number")
}

/// The median of figures of all rounds, with the least and the most.
fn spread(rounds: &[Round], of: impl Fn(&Round) -> Option<f64>) -> Option<[f64; 3]> {
    let all: Vec<f64> = rounds.iter().filter_map(of).collect();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(0.0, f64::max);
    Some([median(all)?, least, most])
}

/// How a ratio came out: `1.05 (0.98 to 1.20)`.
fn shown_spread(spread: Option<[f64; 3]>, digits: usize, unit: &str) -> String {
    spread.map_or("-".to_owned(), |[median, least, most]| {
        let median = shown(Some(median), digits, unit);
        format!("{median} ({least:.digits$} to {most:.digits$})")
    })
}

fn report(workspace: &Workspace, args: &ControlArgs, at_rest: u64, rounds: &[Round]) -> Result<()> {
    let ratio = |of: fn(&Sample) -> Option<f64>| {
        spread(rounds, |round| Some(of(&round.storm)? / of(&round.hog)?))
    };
    let p99 = ratio(|sample| sample.p99_us);
    let mean = ratio(|sample| Some(sample.mean_us));
    let of = |case: fn(&Round) -> &Sample| {
        let all = spread(rounds, |round| case(round).p99_us);
        shown_spread(all, 2, "us")
    };
    let most = rounds.iter().map(|round| round.resident_kib).max();
    let grown = most.unwrap_or(at_rest).saturating_sub(at_rest) / 1024;
    let burned = spread(rounds, |round| Some(round.burned.iter().sum()));
    let hog = spread(rounds, |round| Some(round.hog_burned));
    let answered = spread(rounds, |round| round.answers["per_second"].as_f64());
    let rows = [
        Row::new(
            "QD1 reads under abuse of the control socket: p99 to that beside an equal hog",
            "<= 1.2 x",
            format!(
                "{}; {}, beside the hog {}, alone {}",
                shown_spread(p99, 2, "x"),
                of(|round| &round.storm),
                of(|round| &round.hog),
                of(|round| &round.alone)
            ),
            p99.map(|[median, ..]| median),
        ),
        Row::new(
            "the same of the mean",
            "",
            shown_spread(mean, 2, "x"),
            mean.map(|[median, ..]| median),
        ),
        Row::new(
            "what the storm and control burn of a processor, and the hog",
            "equal",
            format!(
                "{}, the hog {}",
                shown_spread(burned, 2, "CPU"),
                shown_spread(hog, 2, "CPU")
            ),
            burned.zip(hog).map(|(storm, hog)| storm[0] / hog[0]),
        ),
        Row::new(
            "requests answered in a second",
            "",
            shown_spread(answered, 0, "/s"),
            None,
        ),
        Row::new(
            "memory that the server has more than at rest",
            "<= 64 MiB",
            format!("{grown} MiB"),
            None,
        ),
    ];
    let json = json!({
        "mode": args.mode,
        "seconds": args.seconds,
        "p99_ratio": p99,
        "mean_ratio": mean,
        "rows": rows.iter().map(Row::in_json).collect::<Vec<_>>(),
        "rounds": rounds.iter().map(in_json).collect::<Vec<_>>(),
        "memory_grown_mib": grown,
    });
    let file = workspace.logs().join("control.json");
    fs::write(&file, format!("{json:#}\n"))?;
    if args.json {
        println!("{json:#}");
    } else {
        print!("{}", table(&rows));
        println!("{} has all of it", file.display());
    }
    Ok(())
}

fn in_json(round: &Round) -> Value {
    let sample = |sample: &Sample| {
        json!({
            "mean_us": sample.mean_us, "p50_us": sample.p50_us, "p99_us": sample.p99_us,
            "p999_us": sample.p999_us, "iops": sample.iops, "stalls": sample.stalls,
            "placement": sample.placement,
        })
    };
    json!({
        "alone": sample(&round.alone),
        "storm": sample(&round.storm),
        "hog": sample(&round.hog),
        "storm_cpu": round.burned[0],
        "control_cpu": round.burned[1],
        "hog_cpu": round.hog_burned,
        "answers": round.answers,
        "resident_kib": round.resident_kib,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_middle_and_both_ends() {
        let round = |p99: f64| Round {
            alone: Sample::default(),
            storm: Sample {
                p99_us: Some(p99),
                ..Sample::default()
            },
            hog: Sample {
                p99_us: Some(2.0),
                ..Sample::default()
            },
            burned: [0.0; 2],
            hog_burned: 0.0,
            answers: Value::Null,
            resident_kib: 0,
        };
        let rounds = [2.0, 1.0, 8.0].map(round);
        let ratios = spread(&rounds, |r| Some(r.storm.p99_us? / r.hog.p99_us?));
        assert_eq!(ratios, Some([1.0, 0.5, 4.0]));
        assert_eq!(shown_spread(ratios, 2, "x"), "1.00 x (0.50 to 4.00)");
        assert_eq!(spread(&rounds, |r| r.alone.p99_us), None);
    }

    #[test]
    fn threads_are_counted_by_their_names() {
        let all = burned(std::process::id(), |_| true).unwrap();
        let none = burned(std::process::id(), |name| name == "nobody's name").unwrap();
        assert!(all > Duration::ZERO && none == Duration::ZERO);
        assert!(resident_kib(std::process::id()).unwrap() > 0);
    }
}

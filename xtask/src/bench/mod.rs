//! `cargo xtask bench`: the program against itself, server and host each on a processor of its own,
//! beside the floor of this machine.
//!
//! Rounds are interleaved over the media, and the table has medians: a machine that is shared is
//! slower at one moment than at the next. Figures are reported and never judged.

mod plot;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use tests_vm::Server;

use crate::workspace::Workspace;

/// Of each medium: much more than the caches hold, little enough to be written whole before it is measured.
const SIZE: &str = "1GiB";
/// How long a medium is written before it is measured, in seconds: what was never written is no data to read.
const FILL_SECONDS: u32 = 8;

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Media to measure
    #[arg(long, value_delimiter = ',', default_value = "null,ram,file")]
    media: Vec<String>,
    /// Kinds of access
    #[arg(long, value_delimiter = ',', default_value = "randread,randwrite")]
    rw: Vec<String>,
    /// Queue depths
    #[arg(long, default_value = "1,32,128")]
    qd: String,
    /// Seconds for each figure
    #[arg(long, default_value_t = 2)]
    seconds: u32,
    /// How often everything is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// The processor of the server
    #[arg(long, default_value_t = 0)]
    server_cpu: u32,
    /// The processor of the host
    #[arg(long, default_value_t = 1)]
    host_cpu: u32,
    /// Where the plot is written, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// One job in one round.
#[derive(Clone, Debug, PartialEq)]
struct Figure {
    iops: f64,
    mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    /// Reactor nanoseconds for each command.
    busy_ns: f64,
}

/// One job in all rounds.
#[derive(Clone, Debug, PartialEq)]
struct Series {
    media: String,
    rw: String,
    queue_depth: u64,
    rounds: Vec<Figure>,
}

impl Series {
    /// The median of something over the rounds.
    fn median(&self, of: impl Fn(&Figure) -> f64) -> f64 {
        let mut values: Vec<f64> = self.rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The least and the most commands a second of any round.
    fn spread(&self) -> (f64, f64) {
        let iops = self.rounds.iter().map(|figure| figure.iops);
        (
            iops.clone().fold(f64::INFINITY, f64::min),
            iops.fold(0.0, f64::max),
        )
    }
}

/// Builds the program, and measures.
///
/// # Errors
/// It cannot be built or run.
pub(crate) fn run(workspace: &Workspace, args: &BenchArgs) -> Result<()> {
    let status = workspace
        .cargo(&["build", "--release", "-p", "nvmirage"])?
        .status()?;
    ensure!(status.success(), "the program cannot be built");
    let mut floors = Vec::new();
    let mut all: Vec<Series> = Vec::new();
    for round in 1..=args.rounds {
        floors.push(output(
            workspace
                .command(&workspace.program())?
                .args(["bench", "floor", "--json"]),
        )?);
        for media in &args.media {
            eprintln!("round {round} of {}: {media}", args.rounds);
            measure(workspace, args, media, &mut all)
                .with_context(|| format!("cannot measure {media}"))?;
        }
    }
    if let Some(file) = &args.plot {
        plot::write(file, &all)?;
    }
    if args.json {
        let all: Vec<Value> = all.iter().map(in_json).collect();
        println!("{:#}", json!({ "floor": floors, "jobs": all }));
    } else {
        for floor in &floors {
            println!("floor: {floor}");
        }
        print!("{}", table(&all));
    }
    Ok(())
}

fn measure(
    workspace: &Workspace,
    args: &BenchArgs,
    media: &str,
    all: &mut Vec<Series>,
) -> Result<()> {
    fs::create_dir_all(&workspace.target)?;
    // Not in the system's folder of temporary files, which may live in memory.
    let dir = tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(&workspace.target)?;
    let sockets = tempfile::Builder::new().prefix("nvmirage-").tempdir()?;
    let listen = format!("vfio-user:{}", sockets.path().join("s").display());
    let file = dir.path().join("config.toml");
    fs::write(
        &file,
        configuration(media, &listen, args.server_cpu, &dir.path().join("disk")),
    )?;
    let server = Server::start(&["--config".as_ref(), file.as_os_str()])?;
    if media != "null" {
        let time = format!("{FILL_SECONDS}s");
        let mut fill = workspace.command(&workspace.program())?;
        fill.args([
            "bench", "--target", &listen, "--rw", "write", "--bs", "128k",
        ]);
        fill.args(["--qd", "8", "--time", &time, "--json"]);
        output(&mut fill)?;
    }
    for rw in &args.rw {
        let time = format!("{}s", args.seconds);
        let cpu = args.host_cpu.to_string();
        let mut bench = workspace.command(&workspace.program())?;
        bench.args([
            "bench", "--target", &listen, "--rw", rw, "--bs", "4k", "--qd", &args.qd,
        ]);
        bench.args(["--time", &time, "--cpu", &cpu, "--json"]);
        take(media, &output(&mut bench)?, all)?;
    }
    server.stop(Duration::from_secs(10))?;
    Ok(())
}

fn configuration(media: &str, listen: &str, cpu: u32, path: &Path) -> String {
    let path = if media == "file" {
        format!("path = {:?}\n", path.display().to_string())
    } else {
        String::new()
    };
    format!(
        "[[reactor]]\ncpu = {cpu}\nmode = \"poll\"\n\
         [[media]]\nname = \"m\"\nkind = {media:?}\nsize = {SIZE:?}\n{path}\
         [[namespace]]\nname = \"n\"\nmedia = \"m\"\nlba_size = 4096\n\
         [[controller]]\nname = \"c\"\nnamespaces = [\"n\"]\nlisten = {listen:?}\n"
    )
}

fn output(command: &mut Command) -> Result<Value> {
    let output = command.output().context("cannot run nvmirage")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "nvmirage failed: {}", said.trim());
    serde_json::from_slice(&output.stdout).context("nvmirage printed something else than JSON")
}

/// Adds each job of the program's output to its series.
fn take(media: &str, output: &Value, all: &mut Vec<Series>) -> Result<()> {
    let jobs = output["jobs"]
        .as_array()
        .context("the output has no jobs")?;
    for job in jobs {
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let latency = |name: &str| number(&job["latency_ns"][name]) / 1000.0;
        let figure = Figure {
            iops: number(&job["iops"]),
            mean_us: latency("mean"),
            p50_us: latency("p50"),
            p99_us: latency("p99"),
            p999_us: latency("p999"),
            busy_ns: number(&job["reactor_busy_ns_per_command"]),
        };
        let rw = job["rw"]
            .as_str()
            .context("a job does not say what it did")?;
        let depth = job["queue_depth"].as_u64().context("a job has no depth")?;
        let same = |s: &&mut Series| s.media == media && s.rw == rw && s.queue_depth == depth;
        match all.iter_mut().find(same) {
            Some(series) => series.rounds.push(figure),
            None => all.push(Series {
                media: media.to_owned(),
                rw: rw.to_owned(),
                queue_depth: depth,
                rounds: vec![figure],
            }),
        }
    }
    Ok(())
}

fn in_json(series: &Series) -> Value {
    let (least, most) = series.spread();
    json!({
        "media": series.media,
        "rw": series.rw,
        "block_size": 4096,
        "queue_depth": series.queue_depth,
        "rounds": series.rounds.len(),
        "iops": series.median(|f| f.iops),
        "iops_min": least,
        "iops_max": most,
        "latency_us": {
            "mean": series.median(|f| f.mean_us),
            "p50": series.median(|f| f.p50_us),
            "p99": series.median(|f| f.p99_us),
            "p999": series.median(|f| f.p999_us),
        },
        "reactor_busy_ns_per_command": series.median(|f| f.busy_ns),
    })
}

/// Medians, a row for each series.
fn table(all: &[Series]) -> String {
    let mut table = format!(
        "{:<6} {:<10} {:>4} {:>10} {:>10} {:>10} {:>9} {:>9} {:>9} {:>7}\n",
        "media", "4 KiB", "qd", "iops", "least", "most", "mean us", "p50 us", "p99 us", "ns/cmd"
    );
    for series in all {
        let (least, most) = series.spread();
        table += &format!(
            "{:<6} {:<10} {:>4} {:>10.0} {least:>10.0} {most:>10.0} {:>9.2} {:>9.2} {:>9.2} {:>7.0}\n",
            series.media,
            series.rw,
            series.queue_depth,
            series.median(|f| f.iops),
            series.median(|f| f.mean_us),
            series.median(|f| f.p50_us),
            series.median(|f| f.p99_us),
            series.median(|f| f.busy_ns),
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(iops: f64) -> Value {
        json!({
            "jobs": [{
                "name": "a", "rw": "randread", "block_size": 4096, "queue_depth": 32, "iops": iops,
                "latency_ns": {"mean": 1500.0, "p50": 1000, "p99": 2000, "p999": 3000, "max": 4000},
                "reactor_busy_ns_per_command": 250.4,
            }],
        })
    }

    #[test]
    fn a_row_has_the_medians_of_its_rounds() {
        let mut all = Vec::new();
        for iops in [30.0, 1_000_000.0, 20.0, 40.0, 10.0] {
            take("null", &job(iops), &mut all).unwrap();
        }
        let table = table(&all);
        let words: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            words,
            [
                "null", "randread", "32", "30", "10", "1000000", "1.50", "1.00", "2.00", "250"
            ]
        );
        assert!(take("null", &json!({}), &mut all).is_err());
    }

    #[test]
    fn the_plot_shows_every_medium() {
        let mut all = Vec::new();
        take("null", &job(3e6), &mut all).unwrap();
        take("ram", &job(1e6), &mut all).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("plot.svg");
        plot::write(&file, &all).unwrap();
        let svg = fs::read_to_string(&file).unwrap();
        assert!(
            svg.starts_with("<svg") && svg.contains("ram randread"),
            "{svg}"
        );
    }

    #[test]
    fn only_a_file_has_a_path() {
        let file = configuration("file", "vfio-user:/run/s", 3, Path::new("/d/disk"));
        assert!(
            file.contains("path = \"/d/disk\"\n") && file.contains("cpu = 3\n"),
            "{file}"
        );
        assert!(
            !configuration("ram", "vfio-user:/run/s", 0, Path::new("/d/disk")).contains("path")
        );
    }
}

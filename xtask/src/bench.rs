//! `cargo xtask bench`: the program against itself, server and host each on a processor of its own,
//! beside the floor of this machine.
//!
//! Figures are reported and never judged: machines differ, and so do runs on one machine.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;
use tests_vm::Server;

use crate::workspace::Workspace;

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
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// The processor of the server
    #[arg(long, default_value_t = 0)]
    server_cpu: u32,
    /// The processor of the host
    #[arg(long, default_value_t = 1)]
    host_cpu: u32,
}

const SIZE: &str = "4GiB";

/// Builds the program, and measures.
///
/// # Errors
/// It cannot be built or run.
pub(crate) fn run(workspace: &Workspace, args: &BenchArgs) -> Result<()> {
    let status = workspace
        .cargo(&["build", "--release", "-p", "nvmirage"])?
        .status()?;
    ensure!(status.success(), "the program cannot be built");
    let floor = json(
        workspace
            .command(&workspace.program())?
            .args(["bench", "floor", "--json"]),
    )?;
    println!("floor: {floor:#}");
    println!(
        "{:<6} {:<10} {:>6} {:>4} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "media", "rw", "block", "qd", "iops", "mean us", "p50 us", "p99 us", "p99.9 us", "ns/cmd"
    );
    for media in &args.media {
        measure(workspace, args, media).with_context(|| format!("cannot measure {media}"))?;
    }
    Ok(())
}

fn measure(workspace: &Workspace, args: &BenchArgs, media: &str) -> Result<()> {
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
    for rw in &args.rw {
        let time = format!("{}s", args.seconds);
        let cpu = args.host_cpu.to_string();
        let mut bench = workspace.command(&workspace.program())?;
        bench.args([
            "bench", "--target", &listen, "--rw", rw, "--bs", "4k", "--qd", &args.qd,
        ]);
        bench.args(["--time", &time, "--cpu", &cpu, "--json"]);
        print!("{}", rows(media, &json(&mut bench)?)?);
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

fn json(command: &mut Command) -> Result<Value> {
    let output = command.output().context("cannot run nvmirage")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "nvmirage failed: {}", said.trim());
    serde_json::from_slice(&output.stdout).context("nvmirage printed something else than JSON")
}

/// A row for each job of the program's output.
fn rows(media: &str, output: &Value) -> Result<String> {
    let jobs = output["jobs"]
        .as_array()
        .context("the output has no jobs")?;
    let row = |job: &Value| {
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let latency = |name: &str| number(&job["latency_ns"][name]) / 1000.0;
        let busy = job
            .get("reactor_busy_ns_per_command")
            .unwrap_or(&output["reactor_busy_ns_per_command"]);
        format!(
            "{media:<6} {:<10} {:>6} {:>4} {:>10.0} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>9.0}\n",
            job["rw"].as_str().unwrap_or("?"),
            number(&job["block_size"]),
            number(&job["queue_depth"]),
            number(&job["iops"]),
            latency("mean"),
            latency("p50"),
            latency("p99"),
            latency("p999"),
            number(busy),
        )
    };
    Ok(jobs.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_figures_of_a_job() {
        let output = serde_json::json!({
            "jobs": [{
                "name": "a", "rw": "randread", "block_size": 4096, "queue_depth": 32, "iops": 1234567.8,
                "latency_ns": {"mean": 1500.0, "p50": 1000, "p99": 2000, "p999": 3000, "max": 4000},
            }],
            "reactor_busy_ns_per_command": 250.4,
        });
        let row = rows("null", &output).unwrap();
        let words: Vec<_> = row.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "null", "randread", "4096", "32", "1234568", "1.5", "1.0", "2.0", "3.0", "250"
            ]
        );
        assert!(rows("null", &serde_json::json!({})).is_err());
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

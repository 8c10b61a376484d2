//! Simulations from the command line.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use tests_sim::{Options, simulate};

/// Runs hosts, controllers and reactors in virtual time.
#[derive(Debug, Parser)]
struct Args {
    /// The seed of the first run; the others have those that follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// I/O commands of each run
    #[arg(long, default_value_t = 100_000)]
    commands: u64,
    /// How many runs
    #[arg(long, default_value_t = 10)]
    runs: u64,
    /// The process dies now and then, and another one goes on from what it left
    #[arg(long)]
    kill: bool,
    /// Hosts also copy, reserve namespaces, and write to zones
    #[arg(long)]
    more: bool,
    /// Print what hosts do, from this step of each run on
    #[arg(long, value_name = "STEP")]
    trace: Option<u64>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let start = Instant::now();
    let (mut commands, mut resets, mut unmaps, mut deaths, mut moves) = (0, 0, 0, 0, 0);
    let mut kills = 0;
    for seed in args.seed..args.seed.saturating_add(args.runs) {
        let began = Instant::now();
        let options = Options {
            seed,
            commands: args.commands,
            trace_from: args.trace.unwrap_or(u64::MAX),
            kills: args.kill,
            more: args.more,
        };
        match simulate(options) {
            Ok(report) => {
                let tally = report.tally;
                println!(
                    "seed {seed}: {:.2} s, {} k commands/s, {:.3} virtual s, {} steps, {} sleeps, {} second looks, {} hung; {tally:?}",
                    began.elapsed().as_secs_f64(),
                    (tally.commands as f64 / began.elapsed().as_secs_f64() / 1e3) as u64,
                    report.virtual_ns as f64 / 1e9,
                    report.steps,
                    report.sleeps,
                    report.second_looks,
                    report.hung,
                );
                commands += tally.commands;
                resets += tally.resets;
                unmaps += tally.unmaps;
                deaths += tally.deaths;
                moves += tally.moves;
                kills += tally.kills;
            }
            Err(found) => {
                println!("{found}");
                return ExitCode::FAILURE;
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} runs in {seconds:.1} s: {commands} commands ({:.0} k per second), {resets} resets, {unmaps} unmaps, {deaths} deaths, {moves} moves, {kills} kills",
        args.runs,
        commands as f64 / seconds / 1e3
    );
    ExitCode::SUCCESS
}

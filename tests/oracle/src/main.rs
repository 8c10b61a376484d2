//! The timing models against their oracle, on the terminal: `cargo xtask oracle`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use tests_oracle::drive::drive;
use tests_oracle::{compare, points, python, vectors};

/// Compares the timing models with their oracle.
#[derive(Debug, Parser)]
struct Arguments {
    /// Random drives of each shape, and random commands for each preset
    #[arg(long, default_value_t = 4)]
    seeds: u64,
    /// The first of the seeds
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One more seed
    #[arg(long, value_name = "SEED")]
    also: Option<u64>,
    /// Commands of each
    #[arg(long, default_value_t = 10_000)]
    commands: u64,
    /// Only drives whose name begins so
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Runs in which the oracle is itself compared with closed forms; 0: not at all
    #[arg(long, default_value_t = 10)]
    checks: u64,
    /// Also ask the oracle of the points where drives are compared
    #[arg(long)]
    points: bool,
    /// Ask the oracle of the points where drives are compared, record its answers, and do nothing
    /// else
    #[arg(long)]
    record_points: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool> {
    if arguments.record_points {
        points::record()?;
        return Ok(true);
    }
    let file = python::folder().join("vectors.json");
    let Some(file) = file.to_str() else {
        bail!("a path that is no text: {}", file.display());
    };
    let mut well = python::check(&["vectors", file])? & by_hand()?;
    if arguments.checks > 0 {
        well &= python::check(&["check", "--seeds", &arguments.checks.to_string()])?;
    }
    if arguments.points {
        let differing = points::differing("", "")?;
        println!(
            "points where drives are compared: {} differ from what is recorded",
            differing.len()
        );
        differing.iter().for_each(|line| println!("  {line}"));
        well &= differing.is_empty();
    }
    let mut cases = compare::cases()?;
    if let Some(only) = &arguments.only {
        cases.retain(|case| case.label().starts_with(only));
    }
    let seeds: Vec<u64> = (arguments.seed..)
        .take(usize::try_from(arguments.seeds)?)
        .chain(arguments.also)
        .collect();
    well &= compare::run(&cases, &seeds, arguments.commands)?;
    Ok(well)
}

/// Whether the model gives what was worked out by hand.
fn by_hand() -> Result<bool> {
    let mut well = true;
    for vector in vectors::read()? {
        let done = drive(&vector.document)?.done;
        if done != vector.done {
            println!(
                "{}\n  {}\n  by hand {:?}\n  model   {done:?}",
                vector.name, vector.working, vector.done
            );
            well = false;
        }
    }
    Ok(well)
}

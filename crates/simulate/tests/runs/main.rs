//! Simulations as a whole: closed forms, and the same bytes from the same seed.
#![allow(clippy::unwrap_used, reason = "tests")]

mod closed_forms;
mod golden;
mod job_keys;
mod keys;
mod world;
mod zones;

use std::ops::ControlFlow;

use model::{Arithmetic, Direction, Moment, NvmParameters, Parameters, preset};
use simulate::output::{Document, Run};
use simulate::{Commands, Error, Kind, Plan, Ran, Workload, fio};

/// Reads of 10 us and at most 400,000 a second, writes of 20 us and 1 GB/s.
fn nvm() -> Parameters {
    Parameters::Nvm(NvmParameters {
        arithmetic: Arithmetic::Exact,
        read: Direction {
            latency_ns: 10_000,
            bandwidth_bytes_per_s: 0,
            rate_per_s: 400_000,
        },
        write: Direction {
            latency_ns: 20_000,
            bandwidth_bytes_per_s: 1_000_000_000,
            rate_per_s: 0,
        },
    })
}

/// A small drive of flash, whose collection sets in soon.
fn flash() -> Parameters {
    let preset = preset::preset("samsung-970-pro@code").unwrap();
    let mut parameters = preset.parameters(FLASH_SIZE, None).unwrap();
    parameters.set("block", "128KiB", Moment::Creation).unwrap();
    parameters
}

const FLASH_SIZE: u64 = 256 << 20;
const SIZE: u64 = 1 << 30;
const MS: u64 = 1_000_000;

fn plan(jobs: &str, virtual_ns: u64) -> Plan {
    Plan::new(
        Workload::Jobs(fio::parse(jobs, &[]).unwrap()),
        virtual_ns,
        1,
    )
}

fn run(plan: &Plan) -> Ran {
    try_run(plan).unwrap()
}

fn try_run(plan: &Plan) -> Result<Ran, Error> {
    run_on(&nvm(), SIZE, plan)
}

fn run_on(parameters: &Parameters, size: u64, plan: &Plan) -> Result<Ran, Error> {
    simulate::run(parameters, size, plan, &mut |_| ControlFlow::Continue(()))
}

fn of(ran: &Ran, job: usize, kind: Kind) -> &Commands {
    &ran.jobs[job].kinds[kind as usize]
}

fn json(ran: &Ran) -> String {
    let document = Document {
        nvmirage: "",
        configuration: serde_json::Value::Null,
        runs: vec![Run::new(ran, Vec::new())],
    };
    serde_json::to_string(&document).unwrap()
}

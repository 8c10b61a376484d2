//! How many commands a second of this machine's time a simulation does: of a pipeline, and of a
//! drive of flash.

use std::ops::ControlFlow;
use std::time::Instant;

use model::{Parameters, preset};
use simulate::{Plan, Workload, fio};

const SIZE: u64 = 8 << 30;

/// Preset, what is done, and for how many milliseconds.
const RUNS: [(&str, &str, u64); 8] = [
    (
        "optane-p4800x",
        "rw=randread\nioengine=libaio\niodepth=1",
        20_000,
    ),
    (
        "optane-p4800x",
        "rw=randread\nioengine=libaio\niodepth=32",
        4_000,
    ),
    (
        "optane-p4800x",
        "rw=randread\nioengine=libaio\niodepth=32\nnumjobs=4",
        4_000,
    ),
    (
        "optane-p4800x",
        "rw=randwrite\nbs=64k\nioengine=libaio\niodepth=8",
        20_000,
    ),
    (
        "samsung-970-pro",
        "rw=randread\nioengine=libaio\niodepth=32",
        4_000,
    ),
    (
        "samsung-970-pro",
        "rw=randread\nioengine=libaio\niodepth=32\nnumjobs=4",
        4_000,
    ),
    (
        "samsung-970-pro",
        "rw=randwrite\nioengine=libaio\niodepth=32",
        2_000,
    ),
    (
        "samsung-970-pro",
        "rw=randrw\nioengine=libaio\niodepth=32\nnumjobs=4",
        2_000,
    ),
];

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    for (name, jobs, ms) in RUNS {
        let shown = format!("{name} {}", jobs.replace('\n', " "));
        if shown.contains(&only) {
            measure(name, &shown, jobs, ms);
        }
    }
}

fn parameters(name: &str) -> Parameters {
    let preset = preset::preset(name).expect("a preset");
    let parameters = preset.parameters(SIZE, None);
    parameters.expect("its values are in order")
}

fn measure(name: &str, shown: &str, jobs: &str, ms: u64) {
    let fill = match name {
        "samsung-970-pro" => "[fill]\nrw=write\nbs=1m\nioengine=libaio\niodepth=8\n",
        _ => "",
    };
    let text = format!("{fill}[job]\nstonewall\n{jobs}\ntime_based\nruntime={ms}ms\n");
    let jobs = fio::parse(&text, &[]).expect("a job file");
    let plan = Plan::new(Workload::Jobs(jobs), 60_000_000_000, 1);
    let (mut filled, mut before) = (Instant::now(), 0);
    let ran = simulate::run(&parameters(name), SIZE, &plan, &mut |progress| {
        if before == 0 && progress.commands > SIZE >> 20 {
            (filled, before) = (Instant::now(), progress.commands);
        }
        ControlFlow::Continue(())
    });
    let ran = ran.expect("a run");
    let took = filled.elapsed().as_secs_f64();
    let commands = ran.commands as f64;
    println!(
        "{shown}: {commands} commands, {:.0} K/s; {:.2} turns and {:.2} instants for each",
        (commands - before as f64) / took / 1e3,
        ran.turns as f64 / commands,
        ran.instants as f64 / commands,
    );
}

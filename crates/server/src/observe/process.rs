//! The process itself, by the names that Prometheus' client libraries use, so that dashboards and
//! alerts for any process fit this one.

use api::EndedProcess;
use rustix::time::{ClockId, clock_gettime};

use super::Snapshot;
use super::text::{Family, Kind, Number, Sample, Unit};

/// Families of the process. One that the system does not report is left out.
pub(super) fn families(snapshot: &Snapshot) -> Vec<Family> {
    let status = &snapshot.process;
    let last = |of: fn(&EndedProcess) -> u64| status.before.as_ref().map(of);
    let gauge = |name, unit, help, value: Option<u64>| family(name, Kind::Gauge, unit, help, value);
    vec![
        family(
            "process_cpu_seconds",
            Kind::Counter,
            Unit::Seconds,
            "CPU time of the process, of all its threads.",
            cpu_ns(),
        ),
        gauge(
            "process_resident_memory_bytes",
            Unit::Bytes,
            "Resident memory of the process, including media in memory.",
            resident_bytes(),
        ),
        gauge(
            "process_open_fds",
            Unit::None,
            "Open file descriptors of the process.",
            std::fs::read_dir("/proc/self/fd")
                .ok()
                .map(|all| all.count() as u64),
        ),
        gauge(
            "process_start_time_seconds",
            Unit::Seconds,
            "Start of the process, in seconds since 1970.",
            (snapshot.day.saturating_mul(1_000_000)).checked_sub(snapshot.time.0),
        ),
        family(
            "nvmirage_restarts",
            Kind::Counter,
            Unit::None,
            "Processes of the server that were replaced with hosts attached (`serve --survive`).",
            (status.survives).then(|| status.generation.saturating_sub(1)),
        ),
        gauge(
            "nvmirage_restart_pause_seconds",
            Unit::Seconds,
            "Time in which no host was served at the last replacement of the server's process.",
            last(|before| before.pause_ms.saturating_mul(1_000_000)),
        ),
        gauge(
            "nvmirage_restart_replayed",
            Unit::None,
            "Commands in flight that were executed again at the last replacement of the server's process.",
            last(|before| before.replayed),
        ),
        gauge(
            "nvmirage_restart_interrupted",
            Unit::None,
            "Commands in flight that ended as interrupted, or with an error, at the last replacement of the server's process.",
            last(|before| before.interrupted),
        ),
        gauge(
            "nvmirage_restart_timing_models_lost",
            Unit::None,
            "Timing models that began as new drives at the last replacement of the server's process: their checkpoints were missing or damaged.",
            last(|before| before.timing.iter().filter(|model| model.lost).count() as u64),
        ),
        Family {
            name: "nvmirage_restart_timing_checkpoint_age_seconds",
            kind: Kind::Gauge,
            unit: Unit::Seconds,
            help: "Age, at the end of the last process of the server, of the checkpoint with which a timing model continued.",
            samples: checkpoint_ages(status.before.as_ref()),
        },
    ]
}

fn checkpoint_ages(before: Option<&EndedProcess>) -> Vec<Sample> {
    let models = before.map_or(&[][..], |before| &before.timing);
    let known = models.iter().filter_map(|model| {
        let age = model.checkpoint_age_ms?;
        Some(Sample {
            labels: vec![("media", model.media.clone())],
            value: Number::Whole(age.saturating_mul(1_000_000)),
        })
    });
    known.collect()
}

fn family(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    help: &'static str,
    value: Option<u64>,
) -> Family {
    let sample = |value| Sample {
        labels: Vec::new(),
        value: Number::Whole(value),
    };
    Family {
        name,
        kind,
        unit,
        help,
        samples: value.map(sample).into_iter().collect(),
    }
}

fn cpu_ns() -> Option<u64> {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let rest = u64::try_from(time.tv_nsec).ok()?;
    Some(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

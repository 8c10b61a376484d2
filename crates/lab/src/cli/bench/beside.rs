//! Background load of `nvmirage bench`: idle queue pairs, a cold queue pair, a neighbour that
//! writes its doorbells continuously, and further drives that run the same jobs.

use std::time::Duration;

use api::config::Span;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use driver::Doorbells;
use driver::bus::place::{AnyBus, Place};
use driver::io::Namespace;
use driver::workload::beside::{Cold, Stores, Storm};
use driver::workload::{Job, Neighbour};
use load::beside::{Load, Ticks};
use load::host::idle::{DEPTH, DEPTH_MAX, Idle, Kept};
use load::{Host, Needs, Queue};
use terminal::progress;

use crate::figures::LatencyReport;
use crate::job::ColdReport;

/// Queue pairs whose doorbells the neighbour writes, and the commands that each can hold.
const STORM_QUEUES: u16 = 8;
const STORM_DEPTH: u16 = 31;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Beside the jobs")]
pub(super) struct BesideArgs {
    /// Number of idle queue pairs to open
    ///
    /// They are on the target's controller, as many as it has left beside those in use; the rest
    /// are on those of --idle-at, in turn.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) idle_queues: u32,

    /// Addresses of further controllers for idle queue pairs; several separated by commas
    #[arg(
        long,
        value_name = "vfio-user:PATH|nvme-tcp:HOST:PORT/NQN|pci:ADDRESS",
        value_delimiter = ','
    )]
    idle_at: Vec<Place>,

    /// Commands that an idle queue pair can hold
    #[arg(long, value_name = "N", default_value_t = DEPTH, value_parser = clap::value_parser!(u16).range(1..=i64::from(DEPTH_MAX)), requires = "idle_queues")]
    idle_qd: u16,

    /// Interval of a single read on a queue pair of its own: the first command on a cold queue
    #[arg(long, value_name = "TIME", value_parser = above_zero)]
    cold_every: Option<Span>,

    /// Address of a controller whose doorbells are written continuously, on the same thread
    #[arg(long, value_name = "vfio-user:PATH|pci:ADDRESS")]
    storm_at: Option<Place>,

    /// Values of these writes: any value, or only the current one
    #[arg(long, value_name = "WHAT", value_parser = stores(), default_value = "wild", requires = "storm_at")]
    storm: Stores,

    /// Addresses of further drives that run each job at the same time, on the same thread; several
    /// separated by commas
    ///
    /// Each drive has its own results.
    #[arg(
        long,
        value_name = "vfio-user:PATH|nvme-tcp:HOST:PORT/NQN|pci:ADDRESS",
        value_delimiter = ',',
        conflicts_with = "verify"
    )]
    also: Vec<Place>,

    /// Queue depth on the drives of --also; default: that of --qd
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), requires = "also")]
    also_qd: Option<u16>,
}

fn above_zero(text: &str) -> Result<Span, String> {
    match text.parse()? {
        Span(Duration::ZERO) => Err("write a time above 0".to_owned()),
        span => Ok(span),
    }
}

fn stores() -> impl TypedValueParser<Value = Stores> {
    PossibleValuesParser::new(["wild", "valid"]).map(|word| match word.as_str() {
        "valid" => Stores::Valid,
        _ => Stores::Wild,
    })
}

/// Everything that runs beside the jobs.
pub(super) struct Besides {
    idle: Kept,
    cold: Option<Queue>,
    cold_every_ns: u64,
    storm: Option<(Host, Vec<Queue>)>,
    stores: Stores,
    also: Vec<Also>,
    also_qd: Option<u16>,
}

/// A further drive that runs each job.
struct Also {
    target: String,
    host: Host,
    queue: Queue,
    namespace: Namespace,
}

impl BesideArgs {
    /// Addresses of the further drives that run each job.
    pub(super) fn also(&self) -> impl Iterator<Item = &Place> {
        self.also.iter()
    }

    /// Opens all of it for jobs with these needs on namespace `nsid`.
    pub(super) fn open(
        &self,
        host: &mut Host,
        doorbells: Doorbells,
        (needs, nsid): (Needs, u32),
    ) -> anyhow::Result<Besides> {
        let cold = match self.cold_every {
            Some(_) => Some(host.device().create_queue_pair(1, false)?),
            None => None,
        };
        let idle = Idle {
            queues: self.idle_queues,
            depth: self.idle_qd,
        };
        let all = self.idle_at.len();
        let idle = idle.open(host, &self.idle_at, doorbells, &mut |done| {
            if done % 25 == 0 {
                progress::note(&format!("attached to {done} of {all} idle controllers"));
            }
        })?;
        let storm = match &self.storm_at {
            Some(place) => {
                let mut stormy = Host::connect(place, doorbells, Needs::of(STORM_DEPTH, 4096))?;
                let number = STORM_QUEUES.min(stormy.device().queues_max());
                let queues =
                    (0..number).map(|_| stormy.device().create_queue_pair(STORM_DEPTH, false));
                let queues = queues.collect::<Result<_, _>>()?;
                Some((stormy, queues))
            }
            None => None,
        };
        let also = self.also.iter();
        let also = also.map(|place| Also::open(place, doorbells, needs, (nsid, self.also_qd)));
        let also = also.collect::<anyhow::Result<_>>()?;
        let every = self.cold_every.map_or(0, |span| span.0.as_nanos());
        Ok(Besides {
            also,
            also_qd: self.also_qd,
            idle,
            cold,
            cold_every_ns: u64::try_from(every).unwrap_or(u64::MAX),
            storm,
            stores: self.storm,
        })
    }
}

impl Also {
    fn open(
        place: &Place,
        doorbells: Doorbells,
        needs: Needs,
        (nsid, depth): (u32, Option<u16>),
    ) -> anyhow::Result<Self> {
        let needs = Needs {
            queue_depth: depth.unwrap_or(needs.queue_depth),
            queues: 1,
            idle: 0,
            ..needs
        };
        let mut host = Host::connect(place, doorbells, needs)?;
        let namespace = host.device().namespace(nsid)?;
        let queue = host.device().create_queue_pair(needs.queue_depth, false)?;
        Ok(Also {
            target: place.to_string(),
            host,
            queue,
            namespace,
        })
    }
}

impl Besides {
    /// Background load of one job.
    pub(super) fn of_job<'a>(
        &'a mut self,
        host: &mut Host,
        namespace: &Namespace,
        job: &Job,
        clock: &'a Ticks,
    ) -> anyhow::Result<Load<'a>> {
        let memory = host.device().memory();
        let every = self.cold_every_ns;
        let cold = self
            .cold
            .as_mut()
            .map(|queue| Cold::new(namespace, queue, memory, clock, every))
            .transpose()?;
        let stores = self.stores;
        let storm = self
            .storm
            .as_mut()
            .map(|(host, queues)| Storm::new(host.device().bus(), queues, stores));
        let mut also = Vec::new();
        for (other, seed) in self.also.iter_mut().zip(job.seed + 1..) {
            let its = Job {
                queue_depth: self.also_qd.unwrap_or(job.queue_depth),
                seed,
                ..job.clone()
            };
            let memory = other.host.device().memory();
            also.push(Neighbour::new(
                &its,
                &other.namespace,
                &mut other.queue,
                memory,
                clock,
            )?);
        }
        Ok(((cold, storm), also))
    }

    /// The further drives that run each job.
    pub(super) fn also(&self) -> Vec<String> {
        self.also.iter().map(|other| other.target.clone()).collect()
    }

    /// Detaches from the other controllers. A controller whose doorbells received arbitrary values
    /// is left as it is.
    pub(super) fn leave(self) -> anyhow::Result<()> {
        for mut other in self.also {
            other.host.device().delete_queue_pair(other.queue)?;
            other.host.leave_measured()?;
        }
        self.idle.leave()
    }
}

/// Result of the cold queue, if it ran commands.
pub(super) fn cold_report(cold: &Cold<'_, AnyBus, Ticks>) -> Option<ColdReport> {
    let (latency, commands, errors) = cold.result();
    (commands > 0).then(|| ColdReport {
        commands,
        errors,
        latency_ns: LatencyReport::new(&latency),
    })
}

//! Start of the search: the kind of the drive, the points that apply to it, and first guesses of
//! its parameters.

use model::{Arithmetic, Direction, Kind, Parameters};

use super::findings::Given;
use super::{Act, Sample, float, whole};

/// The kind of the measured drive: that of the preset, or derived from the commands.
pub(super) fn kind(given: &Given<'_>) -> Kind {
    match &given.like {
        Some(like) => like.kind(),
        None if given.samples.iter().any(|s| s.act.is_keyed()) => Kind::Kv,
        None => Kind::Nvm,
    }
}

/// The points that apply to a drive of `kind`, and why the others do not.
pub(super) fn usable(kind: Kind, samples: &[Sample]) -> (Vec<Sample>, Vec<String>) {
    let mut usable = Vec::new();
    let mut passed_over = Vec::new();
    for sample in samples {
        match sample.on(kind) {
            Ok(sample) => usable.push(sample),
            Err(why) => passed_over.push(format!("{}: {why}", sample.title())),
        }
    }
    (usable, passed_over)
}

/// The parameters at which the search starts.
///
/// # Errors
/// Too few measurements; the message says which are missing.
pub(super) fn parameters(
    given: &Given<'_>,
    kind: Kind,
    plain: &[&Sample],
) -> Result<Parameters, String> {
    let acts = Act::of_kind(kind);
    for act in acts {
        if !plain.iter().any(|s| s.act == act) && given.like.is_none() {
            return Err(format!(
                "nothing was measured of {}s: measure them, or take what is missing from a preset with --like",
                act.name()
            ));
        }
    }
    if plain.is_empty() {
        return Err("nothing was measured that is of use".to_owned());
    }
    let mut start = match &given.like {
        Some(like) => like.clone(),
        None => nothing_known(kind)?,
    };
    let [read, write] = acts;
    match &mut start {
        Parameters::Nvm(nvm) => {
            guess(&mut nvm.read, plain, read);
            guess(&mut nvm.write, plain, write);
            nvm.arithmetic = Arithmetic::Exact;
        }
        Parameters::Kv(kv) => {
            guess(&mut kv.read, plain, read);
            guess(&mut kv.write, plain, write);
            kv.arithmetic = Arithmetic::Exact;
            if given.like.is_none() {
                (kv.exist_latency_ns, kv.list_latency_ns) =
                    (kv.read.latency_ns, kv.read.latency_ns);
                kv.delete_latency_ns = kv.write.latency_ns;
            }
            // A delete takes its latency minus the unit time of a page of a store, which is less
            // than a whole store.
            let deletes = plain.iter().filter(|s| s.act == Act::Delete);
            if let Some(alone) = deletes.min_by_key(|s| s.depth) {
                let own = whole(alone.mean_ns / f64::from(alone.depth));
                kv.delete_latency_ns = own.saturating_add(kv.write.latency_ns);
            }
        }
        Parameters::Flash(_) | Parameters::Zones(_) => {}
    }
    Ok(start)
}

/// A drive defined only by latency, bandwidth and rate, without a preset.
fn nothing_known(kind: Kind) -> Result<Parameters, String> {
    const LIMITS: &[(&str, &str)] = &[
        ("arithmetic", "exact"),
        ("read_latency", "1us"),
        ("read_bandwidth", "none"),
        ("read_rate", "none"),
        ("write_latency", "1us"),
        ("write_bandwidth", "none"),
        ("write_rate", "none"),
    ];
    const KEYS: &[(&str, &str)] = &[
        ("units", "1"),
        ("delete_latency", "1us"),
        ("exist_latency", "1us"),
        ("list_latency", "1us"),
        ("compound", "together"),
    ];
    let keys = if kind == Kind::Kv { KEYS } else { &[] };
    let values = LIMITS.iter().chain(keys).copied();
    Parameters::given(kind, 1 << 40, values).map_err(|error| error.to_string())
}

/// Guesses latency, bandwidth and rate: from commands measured alone, and from the maximum seen.
fn guess(way: &mut Direction, samples: &[&Sample], act: Act) {
    let own = || samples.iter().copied().filter(|s| s.act == act);
    let Some(alone) = own().min_by_key(|s| (s.depth, s.block_bytes)) else {
        return;
    };
    let most = |value: &dyn Fn(&Sample) -> f64| own().map(value).fold(0.0, f64::max);
    way.latency_ns = whole(alone.mean_ns / f64::from(alone.depth)).max(1);
    way.rate_per_s = whole(most(&Sample::rate)).max(1);
    way.bandwidth_bytes_per_s = whole(most(&|s| s.rate() * f64::from(s.block_bytes))).max(1);
    // A single command takes at least the time for which it occupies the drive.
    let least = 4096e9 / float(way.bandwidth_bytes_per_s);
    let least = least.max(1e9 / float(way.rate_per_s)).ceil();
    way.latency_ns = way.latency_ns.max(whole(least));
}

/// Parameters with `units` units: each gets its share of bandwidth and rate, but not so little that
/// a single page would take longer than measured.
pub(super) fn with_units(start: &Parameters, units: u32) -> Parameters {
    let mut start = start.clone();
    if let Parameters::Kv(kv) = &mut start {
        kv.units = units;
        for way in [&mut kv.read, &mut kv.write] {
            let latency = float(way.latency_ns) / f64::from(units);
            let least = |limit: &mut u64, of: f64| {
                if *limit > 0 {
                    *limit = (*limit).max(whole((of * 1e9 / latency).ceil()));
                }
            };
            least(&mut way.bandwidth_bytes_per_s, 4096.0);
            least(&mut way.rate_per_s, 1.0);
        }
    }
    start
}

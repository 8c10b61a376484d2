//! Inspection of media: on the reactors that serve them, or directly where none does.

use std::collections::BTreeMap;

use api::{MapNamespace, MediumMap, MediumStatus, Refusal};
use machine::clock::Clock;
use reactor::maps::{Taken, Taking, Wanted};

use super::{OpenMedium, State, Supervisor};

impl Supervisor {
    /// The internal state of a medium.
    pub(crate) fn map(&self, name: &str, wanted: Wanted) -> Result<MediumMap, Refusal> {
        let failed = |error: anyhow::Error| Refusal::failed(&error);
        let state = self.lock();
        let mut media = state.media.iter();
        let Some(open) = media.find(|medium| medium.name == name) else {
            return Err(Refusal::not_found("media", name));
        };
        let namespaces = state.namespaces_on(open).map_err(failed)?;
        let mut taken = state.look(&[(open, wanted)]).map_err(failed)?;
        let Taken {
            model,
            pairs,
            flash_map,
            zone_map,
            ..
        } = match taken.pop().flatten() {
            // the medium is between two owners
            None if open.medium.why_single().is_some() => {
                let text = format!("medium {name} cannot be inspected now: retry");
                return Err(Refusal::no_answer(text));
            }
            taken => taken.unwrap_or_default(),
        };
        let mut zones = zone_map;
        if let Some(zones) = &mut zones {
            zones.place(&namespaces);
        }
        Ok(MediumMap {
            name: open.name.clone(),
            bytes: open.medium.size(),
            time_ns: Clock::of_process().now().0,
            namespaces,
            model,
            flash: flash_map,
            zones,
            pairs,
        })
    }
}

impl State {
    /// Fills in the parts of the status that reactors know.
    pub(super) fn look_at_media(&self, statuses: &mut [MediumStatus]) -> anyhow::Result<()> {
        let wanted = self.media.iter().map(|open| (open, Wanted::default()));
        let taken = self.look(&wanted.collect::<Vec<_>>())?;
        for (status, taken) in statuses.iter_mut().zip(taken) {
            let taken = taken.unwrap_or_default();
            status.model = taken.model;
            status.zones = taken.zones;
            status.pairs = taken.pairs;
        }
        Ok(())
    }

    /// Inspects media, in the order of the list. Each reactor is asked once.
    fn look(&self, wanted: &[(&OpenMedium, Wanted)]) -> anyhow::Result<Vec<Option<Taken>>> {
        let mut taken: Vec<Option<Taken>> = Vec::new();
        taken.resize_with(wanted.len(), || None);
        let mut by_reactor = BTreeMap::<usize, Vec<usize>>::new();
        for (at, (open, wanted)) in wanted.iter().enumerate() {
            // a medium that stores only bytes has no further state
            if open.medium.why_single().is_none() {
                continue;
            }
            match open.home.get() {
                Some(reactor) => by_reactor.entry(reactor).or_default().push(at),
                None => taken[at] = open.medium.look(|look| Taking::take(*wanted, look)),
            }
        }
        for (reactor, media) in by_reactor {
            let asked = media.iter().map(|at| {
                let (open, wanted) = wanted[*at];
                (open.channel, wanted)
            });
            let answers = self.reactors[reactor].look(asked.collect())?;
            for (at, answer) in media.into_iter().zip(answers) {
                taken[at] = answer;
            }
        }
        Ok(taken)
    }

    /// The namespaces on a medium, in order of creation.
    fn namespaces_on(&self, open: &OpenMedium) -> anyhow::Result<Vec<MapNamespace>> {
        let views = self.views()?;
        let all = self.namespaces(&views)?.into_iter();
        let here = all.filter(|namespace| namespace.config.media == open.name);
        let has_blocks = !self.has_keys(&open.name);
        here.map(|namespace| {
            let extent = self.extent(&namespace.config)?;
            let lba_size = namespace.config.lba_size;
            let bytes = if has_blocks {
                namespace.blocks * u64::from(lba_size)
            } else {
                extent.len()
            };
            Ok(MapNamespace {
                name: namespace.config.name,
                start_bytes: extent.start.0,
                bytes,
                lba_size: has_blocks.then_some(lba_size),
            })
        })
        .collect()
    }
}

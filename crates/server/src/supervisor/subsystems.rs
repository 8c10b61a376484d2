//! Subsystems: started from the configuration and their sidecars, and ended with their last
//! controller.

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use api::config::{self, Config, Controller};
use engine::SubsystemSlot;
use reactor::message::{Keep, NewSubsystem, View};
use subsystem::{
    ControllerId, ControllerRecord, CurrentReservation, DEFAULT_NAMESPACE_LIMIT, NamespaceRecord,
    Record, SanitizeOutcome, Subsystem, SubsystemConfig,
};

use super::State;
use super::media::medium_basis;
use super::places::{Resting, range_of};
use crate::identity::{self, Identities};
use crate::keep::claim::Claim;
use crate::keep::keeper::Kept;
use crate::keep::merge::{Merged, OpenMedium, Wanted, WantedNamespace, merge};
use crate::keep::sidecar::{Basis, NamespaceBasis, Place, Sidecar};
use crate::reconcile::unfinished::Unfinished;
use crate::survival;

/// Bytes of the reservations of a subsystem at most, far above those of 63 hosts in each namespace.
const MAX_RESERVATIONS: u64 = 64 << 20;
/// Longest wait for the keeper, longer than it tries.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running subsystem.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) name: String,
    pub(super) reactor: usize,
    pub(super) slot: SubsystemSlot,
    /// The media in which its hosts may create namespaces; fixed while it is served.
    pub(super) pool: Vec<String>,
    /// Controllers that it was started with and that are not served yet.
    expected: BTreeSet<String>,
    /// Its sidecar, if it has one.
    kept: Option<LiveKept>,
}

#[derive(Debug)]
struct LiveKept {
    place: Place,
    /// The configuration as of the start of the subsystem; of controllers, as of their creation.
    wanted: Wanted,
    /// The lock on the sidecar, held while the subsystem is served.
    _claim: Claim,
}

impl State {
    pub(super) fn live(&self, subsystem: &str) -> Option<&Live> {
        self.subsystems.iter().find(|live| live.name == subsystem)
    }

    /// The current state of a subsystem.
    pub(super) fn view(&self, live: &Live) -> anyhow::Result<View> {
        let view = self.reactors[live.reactor].view(live.slot);
        view.with_context(|| format!("cannot look at subsystem {}", live.name))
    }

    /// The reactor for a subsystem: the one that a controller of it names, else the only one that
    /// may serve its media, else the one with the fewest controllers.
    fn placement(&self, subsystem: &str) -> usize {
        let aim = self.aim();
        let named = aim.controllers_of(subsystem).find_map(|c| c.reactor);
        let named = named.or_else(|| self.home_of_media(subsystem, &aim));
        named.unwrap_or_else(|| {
            let load = |reactor: &usize| {
                let mine = self.subsystems.iter().filter(|s| s.reactor == *reactor);
                let counts = mine.map(|s| aim.controllers_of(&s.name).count());
                counts.sum::<usize>()
            };
            (0..self.reactors.len()).min_by_key(load).unwrap_or(0)
        })
    }

    /// The reactor of a medium that only one may serve, if the subsystem uses such a medium.
    fn home_of_media(&self, subsystem: &str, aim: &Config) -> Option<usize> {
        let mut open = self.media.iter();
        open.find_map(|medium| {
            let home = medium.home.get()?;
            let mut controllers = aim.controllers_of(subsystem);
            controllers
                .any(|c| c.uses(aim, &medium.name))
                .then_some(home)
        })
    }

    pub(super) fn state_dir(&self) -> anyhow::Result<PathBuf> {
        match &self.config.state_dir {
            Some(dir) => Ok(dir.clone()),
            None => identity::default_state_dir(),
        }
    }

    /// Whether a medium outlives the process, so that its hosts expect the same drive again.
    fn keeps_data(&self) -> bool {
        let mut media = self.config.media.iter();
        media.any(|m| {
            m.path().is_some()
                || m.state().is_some()
                || matches!(m.backing, config::Backing::Drive(_))
        })
    }

    /// Identities are read or created only if a configuration omits one.
    pub(super) fn identities(&mut self) -> anyhow::Result<&Identities> {
        let is_a_must =
            self.config.state_dir.is_some() || self.keeps_data() || self.holder.is_some();
        if let Some(identities) = &self.identities {
            anyhow::ensure!(
                identities.are_saved() || !is_a_must,
                "a drive that keeps data must have the same identities at each start, and the state folder could not be used when this server started: start it again with --state-dir FOLDER, or with state_dir in its configuration"
            );
        } else {
            let opened = self.state_dir().and_then(|dir| Identities::open(&dir));
            self.identities = Some(match opened {
                Err(error) if !is_a_must => {
                    tracing::warn!(
                        "serial numbers and other identities change at the next start: {error:#}"
                    );
                    Identities::of_this_process()?
                }
                opened => opened?,
            });
        }
        Ok(self.identities.as_ref().expect("set above"))
    }

    /// Whether a medium is for a controller that may move.
    pub(super) fn is_to_migrate(&self, medium: &str) -> bool {
        let desired = Config {
            namespace: self.desired.namespace.clone(),
            controller: self.desired.controller.clone(),
            ..Config::default()
        };
        desired.migrates(medium)
    }

    /// Whether another server has the media of a subsystem.
    pub(super) fn is_elsewhere(&self, subsystem: &str) -> bool {
        let aim = self.aim();
        self.media.iter().any(|open| {
            let mut controllers = aim.controllers_of(subsystem);
            !open.medium.is_held() && controllers.any(|c| c.uses(&aim, &open.name))
        })
    }

    /// Starts a subsystem from the desired objects and its sidecar, without controllers.
    pub(super) fn serve_subsystem(&mut self, name: &str) -> anyhow::Result<()> {
        let context = || format!("subsystem {name}");
        let reactor = self.placement(name);
        self.check_pool(name).with_context(context)?;
        let wanted = self.wanted(name).with_context(context)?;
        let claimed = self.claim(name).with_context(context)?;
        let sidecar = match &claimed {
            Some((place, _)) => place.read()?,
            None => None,
        };
        let media = self.media_for(name, &wanted, sidecar.as_ref(), reactor)?;
        let merged = merge(&wanted, &media, sidecar.as_ref(), &self.unfinished);
        let merged = match &claimed {
            Some((place, _)) if sidecar.is_some() => merged.with_context(|| {
                format!(
                    "subsystem {name} in the configuration does not fit its saved changes in {}: change the configuration, or remove that file: then only the configuration applies, namespaces that hosts created are lost, and their data stays",
                    place.path().display()
                )
            })?,
            _ => merged.with_context(context)?,
        };
        for note in &merged.notes {
            tracing::info!(subsystem = name, "{note}");
        }
        for loss in &merged.losses {
            tracing::warn!(subsystem = name, "{loss}");
        }
        let apart = self.check_apart_from_others(name, &merged.namespaces);
        apart.with_context(context)?;
        self.adopt_ranges(&merged)?;
        let pool: Vec<String> = self
            .aim()
            .pool_of(name)
            .into_iter()
            .map(str::to_owned)
            .collect();
        let mut config = subsystem_config(name, merged);
        // Also of those that no controller lists: an operator has attached them, or may.
        let aim = self.aim();
        for namespace in &mut config.namespaces {
            let mut all = aim.namespace.iter();
            let its = all.find(|one| Some(&one.name) == namespace.name.as_ref());
            namespace.hosts = its.and_then(|its| self.visible_to(its));
        }
        let sanitizes = config.sanitize.outcome == SanitizeOutcome::InProgress;
        anyhow::ensure!(
            !sanitizes || !self.is_elsewhere(name),
            "subsystem {name}: a sanitize operation is to go on, and another server has its media: end that server, and start this one again"
        );
        self.continue_reservations(&mut config)
            .with_context(context)?;
        let in_pool = |m: &&OpenMedium| pool.contains(&m.basis.name);
        let pools = media.iter().filter(in_pool);
        config.pools = pools.map(|m| m.pool.clone()).collect();
        if !pool.is_empty() {
            let lasting = identity::lasting_name(&self.config, name);
            config.identity_seed = self.identities()?.subsystem_seed(&lasting);
        }
        let controllers = config.controllers.clone();
        let expected = wanted.controllers.iter().cloned().collect();
        let restored = (!self.unfinished.is_empty()).then(|| config.clone());
        let keeper = claimed
            .as_ref()
            .map(|_| -> Box<dyn Keep> { Box::new(self.keeper.sender()) });
        let new = NewSubsystem { config, keeper };
        let kept = claimed.map(|(place, claim)| LiveKept {
            place,
            wanted,
            _claim: claim,
        });
        if let Some(kept) = &kept {
            // the keeper must know the basis before the first record
            self.tell_keeper(name, kept, reactor, &controllers)?;
            if let Some(restored) = restored {
                self.keep_record(name, restored).with_context(context)?;
            }
        }
        let slot = self.reactors[reactor].add_subsystem(new);
        self.subsystems.push(Live {
            name: name.to_owned(),
            reactor,
            slot: slot.with_context(context)?,
            pool,
            expected,
            kept,
        });
        self.resting.retain(|r| r.subsystem != name);
        Ok(())
    }

    /// Refuses a pool with partitions, or with namespaces that hosts of a resting subsystem created
    /// there.
    fn check_pool(&self, name: &str) -> anyhow::Result<()> {
        let aim = self.aim();
        let pool = aim.pool_of(name);
        for medium in &pool {
            self.refuse_partitions_in_pool(medium)?;
        }
        let of_others = |r: &&Resting| r.subsystem != name && pool.contains(&r.medium.as_str());
        match self.resting.iter().find(of_others) {
            Some(other) => anyhow::bail!(
                "pool: medium {} holds namespace {}, created by a host of subsystem {}: serve that subsystem and delete the namespace, or use another medium",
                other.medium,
                other.taken.name,
                other.subsystem
            ),
            None => Ok(()),
        }
    }

    /// Updates the ranges of namespaces in the held configuration to their actual ones, after
    /// earlier resizes.
    fn adopt_ranges(&mut self, merged: &Merged) -> anyhow::Result<()> {
        for namespace in &merged.namespaces {
            let mut configs = self.config.namespace.iter();
            let at = configs.position(|n| Some(&n.name) == namespace.name.as_ref());
            let (Some(at), actual) = (at, range_of(namespace)) else {
                continue;
            };
            if self.extent(&self.config.namespace[at])? != actual {
                self.config.namespace[at].range = Some(actual);
            }
        }
        Ok(())
    }

    /// Place of a subsystem's sidecar, with its lock; `None` if changes of the subsystem are not
    /// persistent.
    fn claim(&mut self, name: &str) -> anyhow::Result<Option<(Place, Claim)>> {
        let aim = self.aim();
        let on_file = |medium: &str| {
            let mut media = aim.media.iter();
            media.any(|m| m.name == medium && m.path().is_some())
        };
        let pool = aim.pool_of(name);
        let mut namespaces = aim.namespaces_of(name).into_iter();
        let is_brief = self.config.short_form.is_some() && !namespaces.any(|n| on_file(&n.media));
        if is_brief && self.holder.is_none() {
            return Ok(None);
        }
        // an explicit `state_dir`, or a pool, requires persistence; otherwise it is best effort
        let is_a_must =
            self.config.state_dir.is_some() || !pool.is_empty() || self.holder.is_some();
        let place = self.state_dir().and_then(|dir| {
            let place = Place::new(&dir, name, &identity::lasting_name(&self.config, name))?;
            place.prepare()?;
            Ok(place)
        });
        match place {
            Ok(place) => {
                let claim = place.claim()?;
                if is_brief && self.holder.as_ref().is_some_and(|it| it.generation() == 1) {
                    // The state that a former server has left describes memory that is gone.
                    place.forget()?;
                }
                Ok(Some((place, claim)))
            }
            Err(error) if is_a_must => Err(error),
            Err(error) => {
                tracing::warn!(
                    subsystem = name,
                    "changes by hosts are lost when the server stops: {error:#}"
                );
                Ok(None)
            }
        }
    }

    /// The configuration of a subsystem.
    fn wanted(&mut self, name: &str) -> anyhow::Result<Wanted> {
        let config = self.aim();
        let controllers: Vec<&Controller> = config.controllers_of(name).collect();
        // a subsystem with a name may get more controllers later
        let shared = controllers.iter().any(|c| c.subsystem.is_some());
        let all = || config.controller.iter();
        let named: HashSet<&String> = all().flat_map(|c| &c.namespaces).collect();
        let pools: HashSet<&String> = all().flat_map(|c| &c.pool).collect();
        let spare = config.namespace.iter();
        let spare = spare.filter(|n| !named.contains(&n.name) && !pools.contains(&n.media));
        Ok(Wanted {
            controllers: controllers.iter().map(|c| c.name.clone()).collect(),
            namespaces: config
                .namespaces_of(name)
                .into_iter()
                .map(|n| self.wanted_namespace(n, &controllers, shared))
                .collect::<anyhow::Result<_>>()?,
            spare: spare
                .map(|n| self.wanted_namespace(n, &controllers, shared))
                .collect::<anyhow::Result<_>>()?,
            namespace_limit: DEFAULT_NAMESPACE_LIMIT,
        })
    }

    pub(super) fn wanted_namespace(
        &mut self,
        config: &config::Namespace,
        controllers: &[&Controller],
        shared: bool,
    ) -> anyhow::Result<WantedNamespace> {
        let range = self.extent(config)?;
        let (nguid, eui64) = match (&config.nguid, &config.eui64) {
            (Some(nguid), Some(eui64)) => (hex(nguid), hex(eui64)),
            (nguid, eui64) => {
                let lasting = identity::lasting_name(&self.config, &config.name);
                let (derived_nguid, derived_eui64) = self.identities()?.namespace(&lasting);
                (
                    nguid.as_deref().map_or(derived_nguid, hex),
                    eui64.as_deref().map_or(derived_eui64, hex),
                )
            }
        };
        let its = controllers
            .iter()
            .filter(|c| c.namespaces.contains(&config.name));
        Ok(WantedNamespace {
            namespace: NamespaceRecord {
                name: Some(config.name.clone()),
                medium: config.media.clone(),
                start: range.start.0,
                len: range.len(),
                blocks: range.len() / u64::from(config.lba_size),
                lba_size: config.lba_size,
                nguid,
                eui64,
                shared,
                ..NamespaceRecord::default()
            },
            range: match config.partition {
                Some(_) => Some(range),
                None => config.range,
            },
            is_partition: config.partition.is_some(),
            controllers: its.map(|c| c.name.clone()).collect(),
            ana_group: config.ana_group(),
        })
    }

    /// Every medium on which the subsystem has a namespace or may get one, with an open channel.
    fn media_for(
        &self,
        subsystem: &str,
        wanted: &Wanted,
        sidecar: Option<&Sidecar>,
        reactor: usize,
    ) -> anyhow::Result<Vec<OpenMedium>> {
        let configured = wanted.namespaces.iter().map(|n| &n.namespace);
        let kept = sidecar.iter().flat_map(|s| &s.record.namespaces);
        let aim = self.aim();
        let pool = aim.pool_of(subsystem).into_iter();
        let named = configured
            .chain(kept)
            .map(|n| n.medium.as_str())
            .chain(pool);
        let mut media: Vec<OpenMedium> = Vec::new();
        for name in named {
            let is_open = self.media.iter().any(|m| m.name == name);
            if is_open && media.iter().all(|m| m.basis.name != name) {
                media.push(self.medium_for(subsystem, name, reactor)?);
            }
        }
        Ok(media)
    }

    /// Sends the keeper the basis with which a subsystem's records are compared.
    fn tell_keeper(
        &self,
        name: &str,
        kept: &LiveKept,
        reactor: usize,
        controllers: &[ControllerRecord],
    ) -> anyhow::Result<()> {
        let LiveKept { place, wanted, .. } = kept;
        let media = self.media_for(name, wanted, None, reactor)?;
        let all = self.config.media.iter();
        let basis = Basis {
            media: all.map(medium_basis).collect::<anyhow::Result<_>>()?,
            namespaces: namespace_bases(wanted),
        };
        let kept = Kept {
            place: place.clone(),
            basis,
            plain: plain_record(wanted, &media, controllers),
            holder: self.holder.clone(),
        };
        self.keeper.sender().serve(name, kept);
        Ok(())
    }

    /// Gives namespaces the registrants and reservations that they had in the process before.
    fn continue_reservations(&mut self, config: &mut SubsystemConfig) -> anyhow::Result<()> {
        // One that ends, and another one with its name, have nothing in common.
        let continues = self.continued.insert(config.name.clone());
        let holder = self.holder.as_ref();
        let Some(holder) = holder.filter(|it| continues && it.generation() > 1) else {
            return Ok(());
        };
        let name = survival::reservations_name(&config.name);
        let Some(bytes) = holder.fetch_bytes(&name, MAX_RESERVATIONS)? else {
            return Ok(());
        };
        let kept: Vec<CurrentReservation> = serde_json::from_slice(&bytes)
            .context("the reservations that the last process has left cannot be read")?;
        for namespace in &mut config.namespaces {
            let its = kept.iter().find(|it| it.nsid == namespace.nsid());
            namespace.reservation = its.map(|it| it.reservation.clone()).unwrap_or_default();
        }
        for it in kept {
            config.answers.extend(it.answers);
            config.notices.extend(it.notices);
        }
        Ok(())
    }

    /// Writes a subsystem's state before it is served, because it has what an unfinished plan took
    /// away, and what is unfinished is soon forgotten.
    fn keep_record(&self, name: &str, config: SubsystemConfig) -> anyhow::Result<()> {
        let record = Subsystem::new(config)?.record();
        let (sender, receiver) = mpsc::channel();
        // the wait may have timed out
        let ended = Box::new(move |is_kept| sender.send(is_kept).unwrap_or_default());
        self.keeper.sender().keep(name, record, ended);
        let is_kept = receiver.recv_timeout(PATIENCE);
        anyhow::ensure!(
            is_kept == Ok(true),
            "its state cannot be saved; see the log"
        );
        Ok(())
    }

    /// Whether the controller's subsystem was started with it, and it is not served yet.
    pub(super) fn expects(&self, controller: &Controller) -> bool {
        let live = self.live(controller.subsystem());
        live.is_some_and(|live| live.expected.contains(&controller.name))
    }

    /// A controller that its subsystem may have expected is served.
    pub(super) fn is_served(&mut self, controller: &Controller) {
        let name = controller.subsystem();
        for live in self.subsystems.iter_mut().filter(|live| live.name == name) {
            live.expected.remove(&controller.name);
        }
    }

    /// Sends the keeper a new basis, because media may have been added.
    pub(super) fn refresh_kept(&self, name: &str) -> anyhow::Result<()> {
        let Some(live) = self.live(name) else {
            return Ok(());
        };
        match &live.kept {
            Some(kept) => {
                let controllers = self.view(live)?.controllers;
                self.tell_keeper(name, kept, live.reactor, &controllers)
            }
            None => Ok(()),
        }
    }

    /// Adds a controller and its namespaces to the subsystem's basis.
    pub(super) fn extend_kept(&mut self, controller: &Controller) -> anyhow::Result<()> {
        let name = controller.subsystem();
        let now = self.wanted(name)?;
        let mut live = self.subsystems.iter_mut();
        let live = live.find(|live| live.name == name);
        let Some(kept) = live.and_then(|live| live.kept.as_mut()) else {
            return Ok(());
        };
        let wanted = &mut kept.wanted;
        wanted.controllers.push(controller.name.clone());
        for namespace in &controller.namespaces {
            let named = |n: &&mut WantedNamespace| n.name() == namespace;
            match wanted.namespaces.iter_mut().find(named) {
                Some(known) => known.controllers.push(controller.name.clone()),
                None => {
                    let new = now.namespaces.iter().find(|n| n.name() == namespace);
                    wanted.namespaces.extend(new.cloned());
                }
            }
        }
        self.refresh_kept(name)
    }

    /// Updates the subsystem's basis: the current configuration of its controllers, and of the
    /// `touched` namespaces.
    pub(super) fn say_anew(&mut self, name: &str, touched: &BTreeSet<&str>) -> anyhow::Result<()> {
        let now = self.wanted(name)?;
        let mut live = self.subsystems.iter_mut();
        let live = live.find(|live| live.name == name);
        let Some(kept) = live.and_then(|live| live.kept.as_mut()) else {
            return Ok(());
        };
        let wanted = &mut kept.wanted;
        let is_there = |n: &WantedNamespace| now.namespaces.iter().any(|m| m.name() == n.name());
        let is_touched = |n: &WantedNamespace| touched.contains(n.name());
        wanted.namespaces.retain(|n| !is_touched(n) || is_there(n));
        for namespace in now.namespaces {
            let same = |n: &&mut WantedNamespace| n.name() == namespace.name();
            match wanted.namespaces.iter_mut().find(same) {
                Some(known) if is_touched(&namespace) => *known = namespace,
                Some(known) => known.controllers = namespace.controllers,
                None if is_touched(&namespace) => wanted.namespaces.push(namespace),
                None => {}
            }
        }
        self.refresh_kept(name)
    }

    /// Ends a subsystem if none of its controllers is served.
    pub(super) fn end_subsystem_without_controllers(&mut self, name: &str) -> anyhow::Result<()> {
        let controllers = self.config.controllers_of(name);
        let served = |c: &Controller| self.controllers.iter().any(|s| s.name == c.name);
        if controllers.into_iter().any(served) {
            return Ok(());
        }
        let Some(at) = self.subsystems.iter().position(|live| live.name == name) else {
            return Ok(());
        };
        let live = self.subsystems.remove(at);
        // if the reactor does not answer, ending the subsystem fails below and reports it
        if live.kept.is_some()
            && let Ok(view) = self.view(&live)
        {
            self.rest(name, &view);
        }
        let is_kept = self.reactors[live.reactor].end_subsystem(live.slot);
        self.keeper.sender().end(name);
        let is_kept = is_kept.with_context(|| format!("subsystem {name} does not end"))?;
        anyhow::ensure!(
            is_kept,
            "the last changes of subsystem {name} could not be saved; see the log"
        );
        // The last record is written, and the next subsystem with this name reads it.
        match &live.kept {
            Some(kept) => kept.place.forget_deleted(&self.config.namespace),
            None => Ok(()),
        }
    }
}

fn subsystem_config(name: &str, merged: Merged) -> SubsystemConfig {
    let Merged {
        namespaces,
        controllers,
        deleted,
        created,
        sanitize,
        answers,
        notes: _,
        losses: _,
    } = merged;
    SubsystemConfig {
        name: name.to_owned(),
        namespaces,
        controllers,
        deleted,
        created,
        sanitize,
        answers,
        // a number that no other process has
        process: RandomState::new().build_hasher().finish(),
        ..SubsystemConfig::with_namespaces(DEFAULT_NAMESPACE_LIMIT, [])
    }
}

/// The record of a subsystem that matches its configuration, except that these controllers have
/// existed. `None` if the configuration alone does not fit, because later changes made room for it.
fn plain_record(
    wanted: &Wanted,
    media: &[OpenMedium],
    controllers: &[ControllerRecord],
) -> Option<Record> {
    let new = |c: &ControllerRecord| ControllerRecord::new(&c.name, c.id);
    let had = Record {
        controllers: controllers.iter().map(new).collect(),
        ..Record::default()
    };
    let had = Sidecar::new(String::new(), Basis::default(), had, None);
    let merged = merge(wanted, media, Some(&had), &Unfinished::default()).ok()?;
    let subsystem = Subsystem::new(subsystem_config("", merged)).ok()?;
    Some(subsystem.record())
}

/// The basis of namespaces, for comparison with later configurations.
fn namespace_bases(wanted: &Wanted) -> Vec<NamespaceBasis> {
    let basis = |n: &WantedNamespace| NamespaceBasis {
        name: n.name().to_owned(),
        range: n.range,
        controllers: n.controllers.clone(),
    };
    wanted.namespaces.iter().map(basis).collect()
}

/// The identifier of a controller.
pub(super) fn id_of(view: &View, controller: &str) -> Option<ControllerId> {
    let mut controllers = view.controllers.iter();
    controllers.find(|c| c.name == controller).map(|c| c.id)
}

/// Decodes hexadecimal digits that [`config::Config::validate`] has accepted.
fn hex<const N: usize>(digits: &str) -> [u8; N] {
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        let pair = digits.get(2 * at..2 * at + 2).unwrap_or("00");
        *byte = u8::from_str_radix(pair, 16).unwrap_or_default();
    }
    bytes
}

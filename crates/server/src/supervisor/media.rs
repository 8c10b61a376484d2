//! Media, and the ranges of them that namespaces use.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use api::config::medium::Kept;
use api::config::{self, Backing, Range, Size};
use api::{Refusal, ZoneLoss};
use media::{Dialect, Direct, Duty, FileIo, Medium, MediumKind as Store, MediumSpec};
use port::{ChannelId, MediumTraits};
use reactor::memory_care::{self, Owner};
use reactor::message::View;
use subsystem::Allocated;

use super::places::{Resting, Taken, label, range_of};
use super::recording::RecordingFile;
use super::{OpenMedium, State, preallocation, timing};
use crate::keep::merge;
use crate::keep::presence::Mark;
use crate::keep::sidecar::MediumBasis;
use crate::survival;

impl State {
    pub(super) fn open_medium(&mut self, config: config::Medium) -> anyhow::Result<()> {
        let name = config.name.clone();
        let opened = self.open_new_medium(config);
        // A start that fails is tried again by another process.
        let is_open = self.media.iter().any(|open| open.name == name);
        if opened.is_err() && !is_open && !self.is_continuing {
            self.forget_kept(&name);
        }
        opened
    }

    fn open_new_medium(&mut self, config: config::Medium) -> anyhow::Result<()> {
        let place = || format!("media {}", config.name);
        if self.holder.is_some()
            && let Some(why) = survival::obstacle(&config)
        {
            bail!(
                "media {}: it does not survive the server's process: {why}: serve it by a server without --survive",
                config.name
            );
        }
        let mut spec = spec_of(&config).with_context(place)?;
        let bytes = match &mut spec.kind {
            Store::Zoned { of, .. } | Store::Vendor { of, .. } => of,
            bytes => bytes,
        };
        if let Store::File { io, .. } = bytes {
            io.survives = self.holder.is_some();
            io.migrates = self.is_to_migrate(&config.name);
        }
        let mark = self.mark_of(&config).with_context(place)?;
        mark.as_ref()
            .map_or(Ok(()), Mark::check)
            .with_context(place)?;
        let opened = self.open_store(&config, &spec);
        let (mut medium, image) = opened.with_context(place)?;
        self.continue_vendor(&config, &mut medium)
            .with_context(place)?;
        let succession = self.holder.as_ref().map(|holder| timing::Succession {
            holder,
            continues: self.is_continuing,
        });
        let begun = timing::give(&config, &mut medium, succession).with_context(place)?;
        if let (Some(before), Some(continued)) = (&mut self.before, begun.continued) {
            before.timing.push(continued);
        }
        let allowance = config
            .timing
            .as_ref()
            .map(config::Timing::transport_allowance_ns);
        medium.release_early(allowance.unwrap_or_default());
        let recording = RecordingFile::begin(&config, &medium).with_context(place)?;
        let mut ids = (0..=u16::MAX).map(ChannelId);
        let free = ids.find(|id| self.media.iter().all(|m| m.channel != *id));
        let channel = free.context("the maximum of 65,536 media is reached: delete one first")?;
        let partitions = self.open_partitions(&config, &medium).with_context(place)?;
        self.open_relays(&config, &medium).with_context(place)?;
        if let Some(image) = &image {
            medium.tell_zones();
            // Last of the steps that can fail: the file's content now exists only in memory.
            image.use_up(&medium).with_context(place)?;
        }
        tracing::info!(media = config.name, "{}", medium.describe());
        if medium.is_new() {
            tracing::info!(media = config.name, "its file is new");
        }
        match mark {
            Some(mark) if medium.is_lasting() => {
                if let Err(error) = mark.set() {
                    tracing::warn!(
                        media = config.name,
                        "if its file is gone at the next start, an empty one is created: {error:#}"
                    );
                }
            }
            Some(mark) => mark.remove(),
            None => {}
        }
        if let Some(pieces) = medium.pieces().filter(|pieces| pieces.count() > 0) {
            memory_care::look_after(&Owner::Medium(config.name.clone()), &pieces);
        }
        if let Backing::Ram { preallocate, .. } = config.backing
            && preallocate
            && let Err(error) = preallocation::start(&medium, &config.name)
        {
            tracing::warn!(
                media = config.name,
                "its memory is not allocated in advance: {error}"
            );
        }
        self.troubles.watch(&config.name, &medium);
        self.media.push(OpenMedium {
            name: config.name.clone(),
            medium,
            channel,
            home: Cell::new(None),
            state: begun.state,
            image,
            partitions,
            recording,
        });
        self.config.media.push(config);
        Ok(())
    }

    /// Removes the marks of files that a failed start created: its caller may remove these files.
    pub(super) fn forget_new_files(&self) {
        for open in self.media.iter().filter(|open| open.medium.is_new()) {
            let config = self.config.media.iter().find(|m| m.name == open.name);
            if let Some(Ok(Some(mark))) = config.map(|config| self.mark_of(config)) {
                mark.remove();
            }
        }
    }

    /// The mark of the medium's file, if it has one.
    pub(super) fn mark_of(&self, config: &config::Medium) -> anyhow::Result<Option<Mark>> {
        let Some(path) = config.path() else {
            return Ok(None);
        };
        // without a folder nothing is known of earlier starts
        let state_dir = self.state_dir().ok();
        let mark = state_dir.map(|dir| Mark::of(&dir, path)).transpose()?;
        Ok(mark)
    }

    /// Assigns the reactors in `completions` and `heads` to a drive, before it has channels.
    fn open_relays(&self, config: &config::Medium, medium: &Arc<Medium>) -> anyhow::Result<()> {
        let Some(drive) = config.drive() else {
            return Ok(());
        };
        let duties = [
            (Duty::Entries, drive.completions),
            (Duty::Heads, drive.heads),
        ];
        for (duty, reactor) in duties {
            let Some(reactor) = reactor else { continue };
            let its = self.reactors.get(reactor);
            let its = its.with_context(|| format!("there is no reactor {reactor}"))?;
            its.open_relay(medium.clone(), duty)?;
        }
        Ok(())
    }

    pub(super) fn close_medium(&mut self, at: usize) -> anyhow::Result<()> {
        let medium = self.media[at].medium.clone();
        self.checkpoints.forget(&self.media[at].name);
        for reactor in &self.reactors {
            reactor.close_channel(medium.clone())?;
        }
        // After the channels: the relays carry their completions.
        for reactor in &self.reactors {
            reactor.close_relays(medium.clone())?;
        }
        let name = &self.media[at].name;
        medium.sync().with_context(|| {
            format!("medium {name} could not be made durable; what was written since its last flush may be lost")
        })?;
        let OpenMedium {
            name,
            state,
            image,
            recording,
            ..
        } = self.media.remove(at);
        self.troubles.forget(&name);
        // the medium is deleted even if parts of it could not be saved
        self.config.media.retain(|m| m.name != name);
        let recorded = recording.map_or(Ok(()), |file| file.write(&medium));
        let recorded = recorded.with_context(|| format!("media {name}"));
        let bytes = image.map_or(Ok(()), |mut image| image.keep(&medium));
        let bytes =
            bytes.with_context(|| format!("medium {name} cannot be saved; its data is lost"));
        let kept = state.map_or(Ok(()), |state| state.keep(&medium));
        let kept = kept.with_context(|| format!("medium {name}: the state of its timing model cannot be saved; an older state is used at the next start"));
        // If the process dies before this, the next one has the memory.
        self.forget_kept(&name);
        bytes.and(kept).and(recorded)
    }

    /// Refuses to close a medium on which namespaces exist or could be created.
    pub(super) fn refuse_use_of_medium(&self, name: &str) -> Result<(), Refusal> {
        if let Some(user) = self.config.namespace.iter().find(|n| n.media == name) {
            return Err(Refusal::conflict(format!(
                "medium `{name}` holds namespace `{}`: delete that first",
                user.name
            )));
        }
        if let Some(owner) = self.config.pool_owner(name) {
            return Err(Refusal::conflict(format!(
                "medium `{name}` is in the pool of subsystem `{owner}`: delete its controllers first"
            )));
        }
        let taken = self.taken(name).map_err(|error| Refusal::failed(&error))?;
        match taken.first() {
            Some(user) => Err(Refusal::conflict(format!(
                "medium `{name}` holds namespace `{}`: delete that first",
                user.name
            ))),
            None => Ok(()),
        }
    }

    pub(super) fn medium(&self, name: &str) -> anyhow::Result<&Arc<Medium>> {
        Ok(&self.open(name)?.medium)
    }

    pub(super) fn open(&self, name: &str) -> anyhow::Result<&OpenMedium> {
        let open = self.media.iter().find(|m| m.name == name);
        open.with_context(|| format!("medium {name} is not open"))
    }

    /// Opens a medium's channel on a reactor, unless it is open there.
    pub(super) fn open_on(&self, name: &str, reactor: usize) -> anyhow::Result<ChannelId> {
        let open = self.open(name)?;
        if let Some(home) = open.home.get().filter(|home| *home != reactor) {
            anyhow::bail!(
                "medium {name} has {}, so one reactor serves it, which is reactor {home}: write reactor = {home} for the controllers that use it, or create them there",
                open.medium.why_single().unwrap_or("a state")
            );
        }
        self.reactors[reactor].open_channel(open.medium.clone(), open.channel)?;
        if open.medium.why_single().is_some() && open.home.replace(Some(reactor)).is_none() {
            self.watch_state(open, reactor);
        }
        Ok(open.channel)
    }

    /// Changes the timing parameters of a medium, on its reactor if one serves it.
    pub(super) fn retune_on_reactor(
        &self,
        name: &str,
        timing: model::Parameters,
    ) -> anyhow::Result<()> {
        let open = self.open(name)?;
        if let Some(home) = open.home.get() {
            self.reactors[home].retune(open.channel, timing.clone())?;
        }
        Ok(open.medium.retune(timing)?)
    }

    /// Changes the state of zones and notifies the hosts that have them. Stops at the first error.
    pub(super) fn lose_zones(
        &self,
        name: &str,
        zones: &BTreeMap<u32, ZoneLoss>,
    ) -> Result<(), Refusal> {
        if !self.config.media.iter().any(|medium| medium.name == name) {
            return Err(Refusal::not_found("media", name));
        }
        let failed = |error: anyhow::Error| Refusal::failed(&error);
        let open = self.open(name).map_err(failed)?;
        for (zone, loss) in zones {
            let to = match loss {
                ZoneLoss::ReadOnly => media::ZoneLoss::ReadOnly,
                ZoneLoss::Offline => media::ZoneLoss::Offline,
            };
            let lost = match open.home.get() {
                Some(home) => {
                    let lost = self.reactors[home].lose_zone(open.channel, *zone, to);
                    lost.map_err(failed)?
                }
                None => open.medium.lose_zone(*zone, to).map(drop),
            };
            lost.map_err(|error| Refusal::conflict(format!("medium `{name}`: {error}")))?;
            tracing::info!(media = name, zone, ?loss, "a zone is lost");
        }
        Ok(())
    }

    /// A medium for a subsystem of that reactor, with channels open on every reactor that serves
    /// the subsystem's queues.
    pub(super) fn medium_for(
        &self,
        subsystem: &str,
        name: &str,
        reactor: usize,
    ) -> anyhow::Result<merge::OpenMedium> {
        let medium = self.medium(name)?;
        let config = self.config.media.iter().find(|m| m.name == name);
        let config = config.with_context(|| format!("medium {name} is no longer open"))?;
        let channel = self.open_on(name, reactor)?;
        for reactor in self.reactors_of(subsystem) {
            self.open_on(name, reactor)?;
        }
        Ok(merge::OpenMedium {
            pool: subsystem::Pool {
                medium: name.to_owned(),
                channel,
                bytes: medium.size(),
                traits: MediumTraits {
                    // The file of the last clean stop has what is erased since.
                    erases: medium.traits().erases && config.state().is_none(),
                    ..medium.traits()
                },
                set: medium.set(),
                min_lba_bytes: medium.min_lba_bytes(),
                max_lba_bytes: max_lba_bytes(medium, config),
            },
            basis: medium_basis(config)?,
        })
    }

    /// The range of its medium that the configuration gives to a namespace.
    pub(super) fn extent(&self, namespace: &config::Namespace) -> anyhow::Result<Range> {
        let place = || format!("namespace {}", namespace.name);
        if let Some(partition) = &namespace.partition {
            return self
                .partition(&namespace.media, partition)
                .with_context(place);
        }
        let size = Size(self.medium(&namespace.media).with_context(place)?.size());
        match namespace.range {
            Some(range) if range.end > size => Err(anyhow::anyhow!(
                "range = \"{range}\" ends beyond the medium's size of {size}: write a smaller end"
            ))
            .with_context(place),
            Some(range) => Ok(range),
            None => Ok(Range {
                start: Size(0),
                end: size,
            }),
        }
    }

    pub(super) fn check_namespace(&self, namespace: &config::Namespace) -> anyhow::Result<()> {
        let extent = self.extent(namespace)?;
        let len = extent.len();
        let medium = self.medium(&namespace.media)?;
        let least = medium.min_lba_bytes();
        if namespace.lba_size < least {
            anyhow::bail!(
                "namespace {}: lba_size = {}: medium {} supports no blocks below {least}: write lba_size = {least}, or direct = \"auto\" for a file",
                namespace.name,
                namespace.lba_size,
                namespace.media
            );
        }
        let config = self.config.media.iter();
        let config = config.clone().find(|m| m.name == namespace.media);
        let most = config.map_or(4096, |config| max_lba_bytes(medium, config));
        if namespace.lba_size > most {
            anyhow::bail!(
                "namespace {}: lba_size = {}: medium {} keeps only {most} bytes atomic across a power failure (AWUPF, NAWUPF), and each block needs that: write lba_size = 512, or awupf = \"4KiB\" in [[media]] if the drive is known to do so",
                namespace.name,
                namespace.lba_size,
                namespace.media
            );
        }
        self.warn_of_content(namespace, extent);
        let rest = len % u64::from(namespace.lba_size);
        if rest != 0 {
            tracing::warn!(
                namespace = namespace.name,
                "its size is not a multiple of {}: the last {rest} bytes are not used",
                namespace.lba_size
            );
        }
        Ok(())
    }

    /// Warns of an image that a guest will not understand as it is served.
    fn warn_of_content(&self, namespace: &config::Namespace, extent: Range) {
        let mut media = self.config.media.iter();
        let medium = media.find(|m| m.name == namespace.media);
        let Some(path) = medium.and_then(config::Medium::path) else {
            return;
        };
        // a medium that cannot be looked at is served all the same
        let found = machine::image::look(path, extent.start.0).unwrap_or_default();
        let how = "write lba_size =";
        if let Some(advice) = found.and_then(|found| found.advice(namespace.lba_size, how)) {
            tracing::warn!(namespace = namespace.name, "{}: {advice}", path.display());
        }
    }

    /// The ranges of a medium in use: by namespaces of subsystems, and by namespaces that are in no
    /// subsystem yet.
    pub(super) fn taken(&self, medium: &str) -> anyhow::Result<Vec<Taken>> {
        let mut taken = self.taken_of_subsystems(medium)?;
        let mut deleted = Vec::new();
        for live in &self.subsystems {
            deleted.extend(self.view(live)?.deleted);
        }
        for namespace in self.config.namespace.iter().filter(|n| n.media == medium) {
            let name = &namespace.name;
            if !deleted.contains(name) && taken.iter().all(|t| t.name != *name) {
                taken.push(Taken {
                    name: name.clone(),
                    range: self.extent(namespace)?,
                });
            }
        }
        Ok(taken)
    }

    /// The ranges of a medium that namespaces of subsystems use, served or not.
    fn taken_of_subsystems(&self, medium: &str) -> anyhow::Result<Vec<Taken>> {
        let resting = self.resting.iter().filter(|r| r.medium == medium);
        let mut taken: Vec<Taken> = resting.map(|r| r.taken.clone()).collect();
        for live in &self.subsystems {
            let view = self.view(live)?;
            let here = view.namespaces.iter().filter(|n| n.medium == medium);
            taken.extend(here.map(|n| Taken {
                name: label(&live.name, n),
                range: range_of(n),
            }));
        }
        Ok(taken)
    }

    /// Checks that no two subsystems share a byte, whatever their sidecars and the configuration
    /// say.
    pub(super) fn check_apart_from_others(
        &self,
        subsystem: &str,
        namespaces: &[Allocated],
    ) -> anyhow::Result<()> {
        for namespace in namespaces {
            let mine = label(subsystem, namespace);
            let range = range_of(namespace);
            let taken = self.taken_of_subsystems(&namespace.medium)?;
            // a subsystem takes back its own resting namespaces
            let own = |t: &Taken| namespace.name.is_none() && t.name == mine;
            let mut others = taken.iter().filter(|t| !own(t));
            if let Some(other) = others.find(|t| t.range.overlaps(range)) {
                anyhow::bail!(
                    "namespace {mine} has {range} of medium {}, and namespace {} of another subsystem has {} there: a namespace is in one subsystem; delete it in the other one, or give it another range",
                    namespace.medium,
                    other.name,
                    other.range
                );
            }
        }
        Ok(())
    }

    /// Remembers the namespaces that hosts created in a subsystem, before it is no longer served.
    pub(super) fn rest(&mut self, subsystem: &str, view: &View) {
        let made = view.namespaces.iter().filter(|n| n.name.is_none());
        self.resting.extend(made.map(|n| Resting {
            subsystem: subsystem.to_owned(),
            medium: n.medium.clone(),
            taken: Taken {
                name: label(subsystem, n),
                range: range_of(n),
            },
        }));
    }

    /// Refuses a namespace that overlaps another one, including those that hosts created.
    pub(super) fn check_space(&self, namespace: &config::Namespace) -> Result<(), Refusal> {
        let range = self
            .extent(namespace)
            .map_err(|error| Refusal::failed(&error))?;
        self.check_free(&namespace.media, range, &namespace.name)?;
        match namespace.partition {
            Some(_) => Ok(()),
            None => self.refuse_partition(&namespace.media, range, &namespace.name),
        }
    }

    /// Refuses a range of a medium that overlaps a namespace other than `but`.
    pub(super) fn check_free(&self, medium: &str, range: Range, but: &str) -> Result<(), Refusal> {
        let taken = self
            .taken(medium)
            .map_err(|error| Refusal::failed(&error))?;
        let mut others = taken.iter().filter(|t| t.name != but);
        match others.find(|t| t.range.overlaps(range)) {
            Some(other) => Err(Refusal::conflict(format!(
                "namespace `{but}` would overlap namespace `{}`, which has {} of medium {medium}: `nvmirage ls` shows what is taken",
                other.name, other.range
            ))),
            None => Ok(()),
        }
    }
}

/// The largest logical block that stays whole across a power failure: as the medium reports, or as
/// the operator states for a drive.
fn max_lba_bytes(medium: &Medium, config: &config::Medium) -> u32 {
    let known = config.drive().and_then(|drive| drive.awupf);
    let known = known.map_or(0, |size| size.0);
    let known = u32::try_from(known).unwrap_or(u32::MAX);
    medium.max_lba_bytes().max(known)
}

/// The basis of a medium, for comparison with later configurations.
pub(super) fn medium_basis(config: &config::Medium) -> anyhow::Result<MediumBasis> {
    let path = config.path().map(std::path::absolute).transpose();
    Ok(MediumBasis {
        name: config.name.clone(),
        kind: config.kind(),
        path: path.with_context(|| format!("media {}", config.name))?,
    })
}

/// How to open a medium of a configuration.
///
/// # Errors
/// The secrets of a drive over NVMe/TCP cannot be read.
pub fn spec_of(config: &config::Medium) -> anyhow::Result<MediumSpec> {
    let store = match &config.backing {
        Backing::Null { size, .. } => Store::Null { size: size.0 },
        Backing::Ram { size, .. } => Store::Ram { size: size.0 },
        Backing::Drive(drive) => Store::Drive {
            place: (drive.target.clone(), super::access::host_of(drive)?),
            nsid: drive.nsid,
            shown: drive.admin_allow.iter().map(|allow| allow.0).collect(),
        },
        Backing::KeyValue(pairs) => Store::KeyValue {
            path: match &pairs.kept {
                Kept::Log(path) => Some(path.clone()),
                Kept::No | Kept::Image(_) => None,
            },
            size: pairs.size.0,
            keys: pairs.max_keys,
            dialect: match pairs.dialect {
                config::Dialect::Nvme => Dialect::Nvme,
                config::Dialect::Samsung => Dialect::Samsung,
            },
        },
        Backing::File(file) => Store::File {
            path: file.path.clone(),
            size: file.size.map(|size| size.0),
            direct: match file.direct {
                config::Direct::Auto => Direct::Auto,
                config::Direct::On => Direct::On,
                config::Direct::Off => Direct::Off,
            },
            io: FileIo {
                poll_submissions: file.poll_submissions,
                poll_completions: file.poll_completions,
                register_memory: file.register_memory,
                read_only: file.read_only,
                survives: false,
                migrates: false,
            },
        },
    };
    let kind = match (config.zoned(), config.vendor) {
        (Some(zoned), _) => Store::Zoned {
            of: Box::new(store),
            zones: zoned.spec(),
        },
        (None, Some(vendor)) => Store::Vendor {
            of: Box::new(store),
            commands: vendor.into(),
        },
        (None, None) => store,
    };
    Ok(MediumSpec { kind })
}

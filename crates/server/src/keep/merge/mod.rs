//! Merge of a subsystem's configuration with the changes in its sidecar.
//!
//! Saved changes win: size, block size, attachments. The current configuration is compared with the
//! one saved beside the record, which tells an operator's edits from a host's changes. A different
//! medium or range is an error. Controllers that were added to a namespace get it, and controllers
//! that were removed from it lose it.
//!
//! This module opens nothing.

use anyhow::{Context, bail, ensure};
use api::config::{Range, Size};
use subsystem::{
    Allocated, ControllerId, ControllerRecord, ControllerSet, DEFAULT_ANA_GROUP, KeptAnswer,
    MAX_CONTROLLERS, NamespaceRecord, Pool, Record, SanitizeRecord,
};

use super::sidecar::{Basis, MediumBasis, NamespaceBasis, Sidecar};
use crate::reconcile::merge::merge3;
use crate::reconcile::unfinished::Unfinished;

/// Configuration of a subsystem.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Its controllers, in the order of their identifiers.
    pub(crate) controllers: Vec<String>,
    /// Its namespaces, in the order of their identifiers.
    pub(crate) namespaces: Vec<WantedNamespace>,
    /// Namespaces that are in no subsystem: one of them may have been attached at run time.
    pub(crate) spare: Vec<WantedNamespace>,
    /// The highest identifier of a namespace.
    pub(crate) namespace_limit: u32,
}

/// Configuration of a namespace.
#[derive(Clone, Debug)]
pub(crate) struct WantedNamespace {
    /// Its initial record, without attachments; the `nsid` is ignored.
    pub(crate) namespace: NamespaceRecord,
    /// Its range on the medium, as configured; with a partition, the partition's range.
    pub(crate) range: Option<Range>,
    /// Whether it is a partition, whose table alone determines its size.
    pub(crate) is_partition: bool,
    /// The controllers that list it.
    pub(crate) controllers: Vec<String>,
    /// Its ANA group, which no record has.
    pub(crate) ana_group: u32,
}

impl WantedNamespace {
    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.namespace.name.as_deref().unwrap_or_default()
    }
}

/// An open medium, for the reactor of the subsystem.
#[derive(Clone, Debug)]
pub(crate) struct OpenMedium {
    /// Its properties that namespaces depend on.
    pub(crate) pool: Pool,
    /// Its identity.
    pub(crate) basis: MediumBasis,
}

/// A subsystem, ready to be served.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Merged {
    /// Its namespaces.
    pub(crate) namespaces: Vec<Allocated>,
    /// Its controllers, current and earlier ones.
    pub(crate) controllers: Vec<ControllerRecord>,
    /// Configured namespaces that are deleted.
    pub(crate) deleted: Vec<String>,
    /// Number of namespaces that hosts have ever created.
    pub(crate) created: u64,
    /// State of its sanitize operations.
    pub(crate) sanitize: SanitizeRecord,
    /// Answers of commands that were in flight.
    pub(crate) answers: Vec<KeptAnswer>,
    /// Parts of the configuration that have no effect.
    pub(crate) notes: Vec<String>,
    /// Namespaces that existed before and are no longer served.
    pub(crate) losses: Vec<String>,
}

/// Merges the configuration with a sidecar. `unfinished` objects return: the sidecar has
/// them as deleted, detached or different only because a plan was about to create or attach them
/// again.
///
/// # Errors
/// They contradict each other, or the sidecar is invalid.
pub(crate) fn merge(
    wanted: &Wanted,
    media: &[OpenMedium],
    kept: Option<&Sidecar>,
    unfinished: &Unfinished,
) -> anyhow::Result<Merged> {
    let record = kept.map(|sidecar| sidecar.record.clone());
    let basis = kept.and_then(|sidecar| sidecar.configuration.clone());
    let Record {
        namespaces,
        deleted,
        created,
        sanitize,
        controllers,
        answers,
        reservations: _,
    } = record.unwrap_or_default();
    let mut merging = Merging {
        wanted,
        media,
        unfinished,
        basis: basis.unwrap_or_default(),
        merged: Merged {
            controllers: all_controllers(wanted, controllers)?,
            deleted,
            created,
            sanitize,
            answers,
            ..Merged::default()
        },
    };
    let is_recreated = |name: &String| unfinished.is_missing(name);
    merging.merged.deleted.retain(|name| !is_recreated(name));
    for record in namespaces {
        if !record.name.as_ref().is_some_and(is_recreated) {
            merging.keep(record)?;
        }
    }
    let is_owed = |namespace: &&WantedNamespace| {
        let mut users = unfinished.users_of(namespace.name());
        is_recreated(&namespace.name().to_owned())
            && users.any(|user| wanted.controllers.iter().any(|c| c == user))
    };
    let owed = wanted.spare.iter().filter(is_owed);
    for namespace in wanted.namespaces.iter().chain(owed) {
        merging.add(namespace)?;
    }
    let mut merged = merging.merged;
    let all = || wanted.namespaces.iter().chain(&wanted.spare);
    merged
        .deleted
        .retain(|name| all().any(|n| n.name() == name));
    merged.namespaces.sort_by_key(Allocated::nsid);
    check_apart(&merged.namespaces)?;
    Ok(merged)
}

/// Earlier controllers with their identifiers, then the new ones with the lowest free identifiers.
fn all_controllers(
    wanted: &Wanted,
    before: Vec<ControllerRecord>,
) -> anyhow::Result<Vec<ControllerRecord>> {
    let mut controllers: Vec<ControllerRecord> = Vec::new();
    for controller in before {
        let (id, name) = (controller.id, &controller.name);
        ensure!(
            (1..=MAX_CONTROLLERS).contains(&id.0)
                && controllers.iter().all(|c| c.id != id && c.name != *name),
            "controller {name} has the identifier {}, which is invalid or already used",
            id.0
        );
        controllers.push(controller);
    }
    for name in &wanted.controllers {
        if controllers.iter().any(|c| c.name == *name) {
            continue;
        }
        let free = |id: &u16| controllers.iter().all(|c| c.id.0 != *id);
        let Some(id) = (1..=MAX_CONTROLLERS).find(free) else {
            bail!(
                "no identifier left for controller {name}: the subsystem has used all {MAX_CONTROLLERS}"
            );
        };
        controllers.push(ControllerRecord::new(name, ControllerId(id)));
    }
    controllers.sort_by_key(|c| c.id);
    Ok(controllers)
}

struct Merging<'a> {
    wanted: &'a Wanted,
    media: &'a [OpenMedium],
    unfinished: &'a Unfinished,
    basis: Basis,
    merged: Merged,
}

impl Merging<'_> {
    /// Restores a namespace of the sidecar.
    fn keep(&mut self, mut record: NamespaceRecord) -> anyhow::Result<()> {
        let place = shown(record.nsid, record.name.as_deref());
        if let Some(name) = &record.name {
            let mut all = self.wanted.namespaces.iter().chain(&self.wanted.spare);
            let Some(wanted) = all.find(|n| n.name() == name) else {
                self.merged.losses.push(format!(
                    "{place} existed before, and is no longer in a subsystem of the configuration: it is not served, and its data stays in medium {}",
                    record.medium
                ));
                return Ok(());
            };
            self.follow_partition(&mut record, wanted);
            self.check_extent(&record, wanted)
                .with_context(|| place.clone())?;
            let configured = wanted.namespace.lba_size;
            if record.lba_size != configured {
                self.merged.notes.push(format!(
                    "{place} has blocks of {} bytes, because a host formatted it; the configuration's lba_size = {configured} applied only when it was created",
                    record.lba_size
                ));
            }
            record.attached = self.attachments(&record, wanted).iter().collect();
            // only the configuration can change its identifiers and whether it is shared
            (record.nguid, record.eui64) = (wanted.namespace.nguid, wanted.namespace.eui64);
            record.shared = wanted.namespace.shared;
        }
        self.restore(record).context(place)
    }

    /// Adds a namespace of the configuration, if it is new.
    fn add(&mut self, wanted: &WantedNamespace) -> anyhow::Result<()> {
        let name = wanted.name();
        let there = |n: &Allocated| n.name.as_deref() == Some(name);
        if self.merged.namespaces.iter().any(there) {
            return Ok(());
        }
        // a namespace that the configuration did not have before is new
        let had = self.before(name).is_some();
        if had && self.merged.deleted.iter().any(|deleted| deleted == name) {
            self.merged.notes.push(format!(
                "namespace {name} was deleted while it was served, and stays deleted; `nvmirage attach` creates it again"
            ));
            return Ok(());
        }
        let free = |nsid: &u32| self.merged.namespaces.iter().all(|n| n.nsid() != *nsid);
        let Some(nsid) = (1..=self.wanted.namespace_limit).find(free) else {
            bail!(
                "no identifier left for namespace {name}: a subsystem has at most {}",
                self.wanted.namespace_limit
            );
        };
        let listing = wanted.controllers.iter().cloned();
        let attached: Vec<String> = if self.unfinished.is_missing(name) {
            // what a recreated controller gets is known, listed or not
            let is_open = |user: &String| !self.unfinished.controllers.contains_key(user);
            let owed = self.unfinished.users_of(name).map(str::to_owned);
            listing.filter(is_open).chain(owed).collect()
        } else {
            listing.collect()
        };
        let record = NamespaceRecord {
            nsid,
            attached: self.ids(&attached).iter().collect(),
            ..wanted.namespace.clone()
        };
        self.restore(record)
            .with_context(|| format!("namespace {name}"))
    }

    fn restore(&mut self, record: NamespaceRecord) -> anyhow::Result<()> {
        let nsid = record.nsid;
        ensure!(
            (1..=self.wanted.namespace_limit).contains(&nsid)
                && self.merged.namespaces.iter().all(|n| n.nsid() != nsid),
            "its identifier {nsid} is invalid or already used"
        );
        let medium = self.medium(&record.medium)?;
        let mut all = self.wanted.namespaces.iter().chain(&self.wanted.spare);
        let wanted = all.find(|n| record.name.as_deref() == Some(n.name()));
        let ana_group = wanted.map_or(DEFAULT_ANA_GROUP, |wanted| wanted.ana_group);
        self.merged.namespaces.push(Allocated {
            ana_group,
            ..record.restore(&medium.pool)?
        });
        Ok(())
    }

    /// A medium, whose identity must not have changed.
    fn medium(&self, name: &str) -> anyhow::Result<&OpenMedium> {
        let Some(medium) = self.media.iter().find(|m| m.basis.name == name) else {
            bail!("its medium {name} is not in the configuration: add it");
        };
        let before = self.basis.media.iter().find(|m| m.name == name);
        let before = before.filter(|_| !self.unfinished.media.contains(name));
        if let Some(before) = before.filter(|before| **before != medium.basis) {
            bail!(
                "medium {name} is {}, but was {}: restore its earlier file, or give it another name",
                described(&medium.basis),
                described(before)
            );
        }
        Ok(medium)
    }

    /// Gives a namespace all blocks of its partition, which may have grown while it was not served.
    fn follow_partition(&mut self, record: &mut NamespaceRecord, wanted: &WantedNamespace) {
        let now = &wanted.namespace;
        let is_same = record.medium == now.medium && record.start == now.start;
        if wanted.is_partition && is_same && record.len != now.len {
            record.len = now.len;
            record.blocks = now.len / u64::from(record.lba_size.max(1));
        }
    }

    /// Checks that the configured range has not changed, or is the actual one.
    fn check_extent(
        &self,
        record: &NamespaceRecord,
        wanted: &WantedNamespace,
    ) -> anyhow::Result<()> {
        let now = &wanted.namespace;
        ensure!(
            now.medium == record.medium,
            "it is on medium {} in the configuration, but was created on medium {}",
            now.medium,
            record.medium
        );
        let is_there = (now.start, now.len) == (record.start, record.len);
        let before = self.before(wanted.name());
        let was_there = before.is_some_and(|before| before.range == wanted.range);
        if is_there || was_there {
            return Ok(());
        }
        let actual = Range {
            start: Size(record.start),
            end: Size(record.start.saturating_add(record.len)),
        };
        let said = match wanted.range {
            Some(range) => format!("range = \"{range}\""),
            None => "no range".to_owned(),
        };
        bail!(
            "it has {said} in the configuration, but \"{actual}\" of medium {}: write that, and change its size with `nvmirage resize` while it is served",
            record.medium
        );
    }

    fn before(&self, name: &str) -> Option<&NamespaceBasis> {
        self.basis.namespaces.iter().find(|n| n.name == name)
    }

    /// The saved attachments, with later changes of the configuration, and those that are to
    /// return.
    fn attachments(&self, record: &NamespaceRecord, wanted: &WantedNamespace) -> ControllerSet {
        let had: ControllerSet = record.attached.iter().copied().collect();
        let now = self.ids(&wanted.controllers);
        let before = match self.before(wanted.name()) {
            Some(before) => self.ids(&before.controllers),
            None => ControllerSet::NONE,
        };
        let owed: Vec<String> = self
            .unfinished
            .users_of(wanted.name())
            .map(str::to_owned)
            .collect();
        let owed = self.ids(&owed);
        let stays = |id: &ControllerId| {
            let is = |all: &ControllerSet| all.contains(*id);
            owed.contains(*id) || merge3(is(&before), is(&had), is(&now))
        };
        had.union(now).union(owed).iter().filter(stays).collect()
    }

    fn ids(&self, names: &[String]) -> ControllerSet {
        let controllers = self.merged.controllers.iter();
        let named = controllers.filter(|c| names.contains(&c.name));
        named.map(|c| c.id).collect()
    }
}

/// Checks that no two namespaces overlap.
fn check_apart(namespaces: &[Allocated]) -> anyhow::Result<()> {
    for (index, this) in namespaces.iter().enumerate() {
        for other in &namespaces[..index] {
            let (a, b) = (this.extent(), other.extent());
            let overlap = a.offset < b.offset + b.len && b.offset < a.offset + a.len;
            if this.medium == other.medium && overlap {
                bail!(
                    "{} and {} overlap on medium {}: {} to {}, and {} to {}",
                    shown(other.nsid(), other.name.as_deref()),
                    shown(this.nsid(), this.name.as_deref()),
                    this.medium,
                    b.offset,
                    b.offset + b.len,
                    a.offset,
                    a.offset + a.len
                );
            }
        }
    }
    Ok(())
}

fn shown(nsid: u32, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("namespace {name}"),
        None => format!("namespace {nsid}, created by a host,"),
    }
}

fn described(medium: &MediumBasis) -> String {
    let kind = serde_json::to_value(medium.kind).unwrap_or_default();
    let kind = kind.as_str().unwrap_or_default();
    match &medium.path {
        Some(path) => format!("{kind} {}", path.display()),
        None => kind.to_owned(),
    }
}

#[cfg(test)]
mod tests;

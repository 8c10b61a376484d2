//! Partitions of drives and files: the ranges that they give to namespaces, and changes at run
//! time.
//!
//! A change is in the table, on stable storage, before a host sees it.

use std::sync::Arc;

use anyhow::Context;
use api::config::{self, MediumKind, Range, Size};
use api::{Refusal, What};
use media::Medium;
use subsystem::OperatorRequest;

use super::{State, Supervisor};
use crate::events;
use crate::partition::{Owner, Store, Taken};

impl Supervisor {
    /// Creates a partition and returns its range.
    pub(crate) fn create_partition(
        &self,
        medium: &str,
        name: &str,
        size: Size,
        at: Option<Size>,
    ) -> Result<Range, Refusal> {
        let mut state = self.lock();
        state.refuse_while_ending()?;
        if let Some(owner) = state.config.pool_owner(medium) {
            return Err(Refusal::conflict(format!(
                "medium `{medium}` is in the pool of subsystem `{owner}`, whose hosts create namespaces there: it cannot have partitions"
            )));
        }
        let taken = state.taken_beside_partitions(medium)?;
        let store = state.store_mut(medium)?;
        let range = store.change(|table| table.create(name, size, at, &taken))?;
        tell(What::Created, medium, name);
        Ok(range)
    }

    /// Resizes a partition, and the namespace on it.
    pub(crate) fn grow_partition(
        &self,
        medium: &str,
        name: &str,
        size: Size,
    ) -> Result<Range, Refusal> {
        let mut state = self.lock();
        state.refuse_while_ending()?;
        let taken = state.taken_beside_partitions(medium)?;
        let store = state.store_mut(medium)?;
        let range = store.change(|table| table.grow(name, size, &taken))?;
        tell(What::Changed, medium, name);
        let namespace = state.namespace_of_partition(medium, name).cloned();
        let Some(namespace) = namespace else {
            return Ok(range);
        };
        if let Some(found) = state.find(&namespace.name)? {
            let request = OperatorRequest::Resize {
                nsid: found.namespace.nsid(),
                len: size.0,
            };
            state.ask(found.reactor, found.slot, request)?;
        }
        Ok(range)
    }

    /// Deletes a partition that no namespace uses. With `erase`, zeroes its bytes before its space
    /// becomes free. Erasing takes long, so `begun` is dropped before it begins.
    pub(crate) fn delete_partition<B>(
        &self,
        medium: &str,
        name: &str,
        erase: bool,
        begun: B,
    ) -> Result<(), Refusal> {
        let (bytes, range) = {
            let mut state = self.lock();
            state.refuse_while_ending()?;
            if let Some(user) = state.namespace_of_partition(medium, name) {
                return Err(Refusal::conflict(format!(
                    "partition `{name}` is namespace `{}`: delete that first",
                    user.name
                )));
            }
            let store = state.store_mut(medium)?;
            if !erase {
                store.change(|table| table.delete(name))?;
                tell(What::Deleted, medium, name);
                return Ok(());
            }
            let range = store.change(|table| table.begin_delete(name))?;
            let bytes: Arc<Medium> = state.medium(medium).map_err(failed)?.clone();
            (bytes, range)
        };
        // The partition is marked as being deleted, so nothing can use it, and other changes may
        // proceed.
        drop(begun);
        let erased = bytes.erase(range.start.0, range.len());
        erased
            .with_context(|| {
                format!(
                    "partition `{name}` is not fully erased, and cannot be used: delete it again"
                )
            })
            .map_err(failed)?;
        let mut state = self.lock();
        state
            .store_mut(medium)?
            .change(|table| table.delete(name))?;
        tell(What::Deleted, medium, name);
        Ok(())
    }
}

fn tell(what: What, medium: &str, partition: &str) {
    events::tell(what, "partition", &format!("{medium}/{partition}"));
}

fn failed(error: anyhow::Error) -> Refusal {
    Refusal::failed(&error)
}

impl State {
    /// The partition table of a medium that is being opened.
    pub(super) fn open_partitions(
        &self,
        config: &config::Medium,
        medium: &Medium,
    ) -> anyhow::Result<Option<Store>> {
        let of_bytes = matches!(config.kind(), MediumKind::Drive | MediumKind::File);
        if !of_bytes || config.zoned().is_some() {
            return Ok(None);
        }
        let owner = Owner::of(medium, config.path())?;
        // Without a state folder there is no table; operations that need one report that.
        match (owner, self.state_dir()) {
            (Some(owner), Ok(dir)) => Store::open(&dir, owner, medium.size()).map(Some),
            _ => Ok(None),
        }
    }

    fn store(&self, medium: &str) -> anyhow::Result<&Store> {
        let store = self.open(medium)?.partitions.as_ref();
        store.with_context(|| no_partitions(medium))
    }

    fn store_mut(&mut self, medium: &str) -> Result<&mut Store, Refusal> {
        let mut media = self.media.iter_mut();
        let open = media.find(|m| m.name == medium);
        let open = open.ok_or_else(|| Refusal::not_found("media", medium))?;
        let store = open.partitions.as_mut();
        store.ok_or_else(|| Refusal::conflict(no_partitions(medium)))
    }

    /// The range of a partition that a namespace names.
    pub(super) fn partition(&self, medium: &str, name: &str) -> anyhow::Result<Range> {
        let store = self.store(medium)?;
        let found = store.table().usable(name).map_err(anyhow::Error::msg);
        let found = found.with_context(|| format!("partition = \"{name}\" of medium {medium}"));
        Ok(found?.range)
    }

    pub(super) fn namespace_of_partition(
        &self,
        medium: &str,
        name: &str,
    ) -> Option<&config::Namespace> {
        let mut namespaces = self.config.namespace.iter();
        namespaces.find(|n| n.media == medium && n.partition.as_deref() == Some(name))
    }

    /// The ranges of a medium that namespaces use without a partition.
    fn taken_beside_partitions(&self, medium: &str) -> Result<Vec<Taken>, Refusal> {
        if !self.media.iter().any(|m| m.name == medium) {
            return Err(Refusal::not_found("media", medium));
        }
        let is_partition = |name: &str| {
            let mut namespaces = self.config.namespace.iter();
            namespaces.any(|n| n.name == name && n.partition.is_some())
        };
        let taken = self.taken(medium).map_err(failed)?.into_iter();
        let others = taken.filter(|t| !is_partition(&t.name)).map(|t| Taken {
            by: format!("namespace `{}`", t.name),
            range: t.range,
        });
        Ok(others.collect())
    }

    /// Refuses a range that overlaps a partition, for a namespace that names none.
    pub(super) fn refuse_partition(
        &self,
        medium: &str,
        range: Range,
        namespace: &str,
    ) -> Result<(), Refusal> {
        let store = self.open(medium).map_err(failed)?.partitions.as_ref();
        match store.and_then(|store| store.table().overlapping(range)) {
            Some(partition) => Err(Refusal::conflict(format!(
                "namespace {namespace}: it has {range} of medium {medium}, and partition `{}` has {} there: write partition = \"{}\", or another range, or delete the partition",
                partition.name, partition.range, partition.name
            ))),
            None => Ok(()),
        }
    }

    /// Refuses to resize a namespace whose size follows from its partition.
    pub(super) fn refuse_size_of_partition(&self, namespace: &str) -> Result<(), Refusal> {
        let mut namespaces = self.config.namespace.iter();
        let found = namespaces.find(|n| n.name == namespace);
        match found.and_then(|n| n.partition.as_ref().map(|partition| (n, partition))) {
            Some((found, partition)) => Err(Refusal::conflict(format!(
                "namespace `{namespace}` has the size of partition `{partition}`: `nvmirage partition resize {} {partition} SIZE`",
                found.media
            ))),
            None => Ok(()),
        }
    }

    /// Refuses a medium with partitions in a pool, where hosts would create namespaces.
    pub(super) fn refuse_partitions_in_pool(&self, medium: &str) -> anyhow::Result<()> {
        let store = self.open(medium)?.partitions.as_ref();
        match store.and_then(|store| store.table().partitions().first()) {
            Some(partition) => anyhow::bail!(
                "pool: medium {medium} has partition `{}`, beside which hosts cannot create namespaces: delete it, or remove the medium from the pool",
                partition.name
            ),
            None => Ok(()),
        }
    }
}

fn no_partitions(medium: &str) -> String {
    format!(
        "medium {medium} cannot have partitions: only drives with a serial number, and files without zones, can, and only with a state_dir"
    )
}

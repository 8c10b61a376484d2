//! Plans for commands on the namespaces of a subsystem: Namespace Management, Namespace Attachment,
//! Format NVM (Base 2.1, 5.1.10, 5.1.20, 5.1.21 and 8.1.15).
//!
//! A plan is made when its operation begins, so nothing changes between the decision and the first
//! step. It does NOT check conditions that are independent of other commands: fields of the command
//! are checked before.

use nvme_spec::{NSID_ALL, Status};
use port::BlockRanges;
use port::namespace::Namespace;

use super::Subsystem;
use crate::access::DEFAULT_ANA_GROUP;
use crate::allocated::{Allocated, Busy, GRANULE};
use crate::directory::Change;
use crate::erase::Erase;
use crate::identity;
use crate::operation::{Operation, Step};
use crate::request::Plan;
use crate::reservation::Reservation;
use crate::set::{ControllerId, ControllerSet};

impl Subsystem {
    /// The steps of a plan, or why it cannot be.
    pub(super) fn plan(
        &mut self,
        plan: Plan,
        operation: &mut Operation,
    ) -> Result<Vec<Step>, Status> {
        let sanitizes = matches!(plan, Plan::Sanitize { .. } | Plan::ExitFailureMode);
        if let Some(status) = self.directory.sanitize().lock().filter(|_| !sanitizes) {
            return Err(status);
        }
        self.check_visible(&plan, operation)?;
        match plan {
            Plan::Create {
                blocks,
                lba_shift,
                shared,
            } => self.plan_create(blocks, lba_shift, shared, operation),
            Plan::Delete { nsid } => self.plan_delete(nsid, operation),
            Plan::Attach { nsid, controllers } => {
                self.check_reservation(nsid, operation)?;
                self.plan_attach(nsid, controllers)
            }
            Plan::Detach { nsid, controllers } => {
                self.check_reservation(nsid, operation)?;
                self.plan_detach(nsid, controllers)
            }
            Plan::Format {
                nsid,
                lba_shift,
                controller,
            } => self.plan_format(nsid, lba_shift, controller, operation),
            Plan::MarkUncorrectable {
                nsid,
                slba,
                blocks,
                controller,
            } => self.plan_mark(nsid, slba, blocks, controller),
            Plan::Sanitize {
                cdw10,
                pattern,
                controller,
            } => self.plan_sanitize(cdw10, pattern, controller, operation),
            Plan::ExitFailureMode => self.plan_exit_failure_mode(),
            Plan::Operator(request) => self.plan_request(request, operation),
        }
    }

    /// Whether what a host asks for concerns only namespaces that it may know of.
    fn check_visible(&self, plan: &Plan, operation: &Operation) -> Result<(), Status> {
        let Some(by) = operation.by.controller() else {
            return Ok(());
        };
        let is_hidden = |n: &Allocated| !self.is_visible(n, by);
        let nsid = match plan {
            Plan::Create { .. } | Plan::Operator(_) => return Ok(()),
            // Of all namespaces it formats those that the host has attached.
            Plan::Format { nsid: NSID_ALL, .. } => return Ok(()),
            Plan::Delete { nsid }
            | Plan::Attach { nsid, .. }
            | Plan::Detach { nsid, .. }
            | Plan::Format { nsid, .. }
            | Plan::MarkUncorrectable { nsid, .. } => *nsid,
            Plan::Sanitize { .. } | Plan::ExitFailureMode => NSID_ALL,
        };
        match nsid {
            NSID_ALL if self.directory.iter().any(is_hidden) => Err(Status::OPERATION_DENIED),
            // As one that is not allocated.
            nsid if self.directory.get(nsid).is_some_and(is_hidden) => {
                Err(Status::INVALID_FIELD_IN_COMMAND)
            }
            _ => Ok(()),
        }
    }

    /// The namespace with this identifier. One that is valid and names none is inactive (Base 2.1,
    /// figure 92, NSID).
    pub(super) fn existing(&self, nsid: u32) -> Result<&Allocated, Status> {
        if nsid == 0 || nsid > self.namespace_limit {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT);
        }
        let found = self.directory.get(nsid);
        found.ok_or(Status::INVALID_FIELD_IN_COMMAND)
    }

    /// Whether reservations allow the requesting host to change the namespace at all (Base 2.1,
    /// figure 646).
    pub(super) fn check_reservation(&self, nsid: u32, operation: &Operation) -> Result<(), Status> {
        let by = operation.by.controller();
        let refusal = by.and_then(|by| self.write_refusal(by, nsid));
        refusal.map_or(Ok(()), Err)
    }

    /// The names of the next namespace that a host creates. The count continues over restarts and
    /// never decreases, so no name is used twice (Base 2.1, 4.7).
    fn next_names(&mut self) -> ([u8; 16], [u8; 8]) {
        let count = self.directory.count_created().to_be_bytes();
        let mut seed = self.identity_seed;
        for (at, byte) in count[3..].iter().enumerate() {
            // EUI-64 is made of the first five bytes of a seed, and NGUID has them, too.
            seed[at] ^= byte;
        }
        (identity::nguid(seed), identity::eui64(seed))
    }

    fn plan_create(
        &mut self,
        blocks: u64,
        lba_shift: u8,
        shared: bool,
        operation: &mut Operation,
    ) -> Result<Vec<Step>, Status> {
        let lba_bytes = 1 << lba_shift;
        let mut pools = self.directory.pools().iter();
        if !pools.any(|pool| pool.takes(lba_bytes)) {
            return Err(Status::INVALID_FORMAT);
        }
        let nsid = self.directory.free_nsid()?;
        let len = blocks.checked_mul(lba_bytes.into());
        let len = len.filter(|len| *len <= u64::MAX - GRANULE);
        let len = len.ok_or(Status::NAMESPACE_INSUFFICIENT_CAPACITY)?;
        // The size that would be needed, for the host, where there is less.
        operation.information = len.next_multiple_of(GRANULE);
        let found = self.directory.allocate(len, lba_bytes);
        let (pool, range) = found.ok_or(Status::NAMESPACE_INSUFFICIENT_CAPACITY)?;
        operation.information = 0;
        let (medium, channel) = (pool.medium.clone(), pool.channel);
        let (traits, set) = (pool.traits, pool.set.clone());
        let (min_lba_bytes, max_lba_bytes) = (pool.min_lba_bytes, pool.max_lba_bytes);
        let (nguid, eui64) = self.next_names();
        let new = Allocated {
            namespace: Namespace {
                nsid,
                channel,
                start: range.offset,
                blocks,
                lba_shift,
                nguid,
                eui64,
                traits,
                restrictions: None,
                set,
            },
            name: None,
            medium,
            len,
            ana_group: DEFAULT_ANA_GROUP,
            shared,
            attached: ControllerSet::NONE,
            min_lba_bytes,
            max_lba_bytes,
            busy: Some(Busy::Creating),
            uncorrectable: BlockRanges::default(),
            reservation: Reservation::default(),
            hosts: None,
        };
        (operation.nsid, operation.dw0) = (nsid, nsid);
        operation.on_failure = vec![Change::Delete { nsid }];
        let extent = new.erasable();
        Ok(vec![
            Step::Change(Change::Create(Box::new(new))),
            Step::Erase(Erase::zero(vec![(channel, extent)])),
            Step::Change(Change::SetBusy { nsid, busy: None }),
            Step::Keep,
        ])
    }

    /// Hosts lose it first, and their commands in flight end; only then its space can be reused.
    /// Its bytes stay, for the operator may want them; the state of its vendor commands goes.
    pub(super) fn plan_delete(
        &self,
        nsid: u32,
        operation: &Operation,
    ) -> Result<Vec<Step>, Status> {
        let nsids: Vec<u32> = match nsid {
            NSID_ALL => self.directory.iter().map(Allocated::nsid).collect(),
            _ => vec![self.existing(nsid)?.nsid()],
        };
        for nsid in &nsids {
            self.check_reservation(*nsid, operation)?;
            // An operator may: it changes nothing on the medium.
            if operation.by.controller().is_some() {
                self.existing(*nsid)?.check_writable()?;
            }
        }
        let detach = nsids.iter().map(|nsid| {
            let controllers = ControllerSet::ALL;
            Step::Change(Change::Detach {
                nsid: *nsid,
                controllers,
            })
        });
        let mut forget = Erase::zero(Vec::new());
        for nsid in &nsids {
            forget.add_state(self.existing(*nsid)?);
        }
        let delete = nsids.iter().map(|nsid| Change::Delete { nsid: *nsid });
        let forget = (!forget.renewed.is_empty()).then_some(Step::Erase(forget));
        let steps = detach.chain([Step::Drain]);
        Ok(steps
            .chain(forget)
            .chain(delete.map(Step::Change))
            .chain([Step::Keep])
            .collect())
    }

    /// Every controller is served now.
    fn check_controllers(&self, controllers: ControllerSet) -> Result<(), Status> {
        let served: ControllerSet = self.controllers().collect();
        let known = controllers.iter().all(|id| served.contains(id));
        known.then_some(()).ok_or(Status::CONTROLLER_LIST_INVALID)
    }

    fn plan_attach(&self, nsid: u32, controllers: ControllerSet) -> Result<Vec<Step>, Status> {
        let namespace = self.existing(nsid)?;
        self.check_controllers(controllers)?;
        let members: ControllerSet = self.members.iter().map(|m| m.id).collect();
        let attached: ControllerSet = namespace
            .attached
            .iter()
            .filter(|id| members.contains(*id))
            .collect();
        if controllers.iter().any(|id| attached.contains(id)) {
            return Err(Status::NAMESPACE_ALREADY_ATTACHED);
        }
        if !namespace.shared && attached.union(controllers).len() > 1 {
            return Err(Status::NAMESPACE_IS_PRIVATE);
        }
        let change = Change::Attach { nsid, controllers };
        Ok(vec![Step::Change(change), Step::Keep])
    }

    fn plan_detach(&self, nsid: u32, controllers: ControllerSet) -> Result<Vec<Step>, Status> {
        let attached = self.existing(nsid)?.attached;
        self.check_controllers(controllers)?;
        if !controllers.iter().all(|id| attached.contains(id)) {
            return Err(Status::NAMESPACE_NOT_ATTACHED);
        }
        let change = Change::Detach { nsid, controllers };
        Ok(vec![Step::Change(change), Step::Drain, Step::Keep])
    }

    /// Nothing that was there before can be read after it, whether erasing was asked for or not
    /// (Base 2.1, 5.1.10).
    fn plan_format(
        &self,
        nsid: u32,
        lba_shift: u8,
        controller: ControllerId,
        operation: &mut Operation,
    ) -> Result<Vec<Step>, Status> {
        let attached = |n: &&Allocated| self.is_attached(n, controller);
        let namespaces: Vec<&Allocated> = match nsid {
            NSID_ALL => self.directory.iter().filter(attached).collect(),
            // Figure 188: any other value that is not allocated is an invalid field.
            _ => vec![
                self.existing(nsid)
                    .map_err(|_| Status::INVALID_FIELD_IN_COMMAND)?,
            ],
        };
        for namespace in &namespaces {
            if !namespace.takes(1 << lba_shift) || namespace.len >> lba_shift == 0 {
                return Err(Status::INVALID_FORMAT);
            }
            namespace.check_writable()?;
            self.check_reservation(namespace.nsid(), operation)?;
        }
        let busy = |busy| {
            move |n: &&Allocated| Change::SetBusy {
                nsid: n.nsid(),
                busy,
            }
        };
        let begin = namespaces.iter().map(busy(Some(Busy::Formatting)));
        let end: Vec<Change> = namespaces.iter().map(busy(None)).collect();
        let reformat = namespaces.iter().map(|n| Change::Reformat {
            nsid: n.nsid(),
            lba_shift,
        });
        let mut erase = Erase::zero(Vec::new());
        namespaces.iter().for_each(|n| erase.add(n));
        operation.on_failure = end.clone();
        let mut steps: Vec<Step> = begin.map(Step::Change).collect();
        steps.extend([Step::Drain, Step::Erase(erase)]);
        steps.extend(reformat.chain(end).map(Step::Change));
        steps.push(Step::Keep);
        Ok(steps)
    }

    /// It was checked against a namespace that may be another one by now: formatted, or deleted and
    /// made again.
    fn plan_mark(
        &self,
        nsid: u32,
        slba: u64,
        blocks: u64,
        controller: ControllerId,
    ) -> Result<Vec<Step>, Status> {
        let attached = |n: &&Allocated| self.is_attached(n, controller);
        let namespace = self.directory.get(nsid).filter(attached);
        let namespace = namespace.ok_or(Status::INVALID_FIELD_IN_COMMAND)?;
        if namespace.namespace.bytes(slba, blocks).is_none() {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        if namespace.namespace.traits.read_only {
            return Err(Status::ATTEMPTED_WRITE_TO_READ_ONLY_RANGE);
        }
        let change = Change::MarkUncorrectable { nsid, slba, blocks };
        Ok(vec![Step::Change(change)])
    }

    /// Percentage of a namespace still to be formatted; `None` if no format is in progress.
    #[must_use]
    pub fn format_remaining(&self, nsid: u32) -> Option<u8> {
        let namespace = self.directory.get(nsid)?;
        if namespace.busy != Some(Busy::Formatting) {
            return None;
        }
        let erasing = [nsid, NSID_ALL]
            .into_iter()
            .find_map(|nsid| self.operations.erasing(nsid));
        // At most 100.
        Some(erasing.map_or(100, |erasing| 100 - erasing.progress(100)) as u8)
    }

    /// Whether a command about a namespace, or (`NSID_ALL`) about all of them, meets a format in
    /// progress.
    ///
    /// # Errors
    /// What it ends with.
    pub fn check_idle(&self, nsid: u32) -> Result<(), Status> {
        let concerned = |n: &&Allocated| nsid == NSID_ALL || n.nsid() == nsid;
        let busy = self.directory.iter().filter(concerned).find_map(|n| n.busy);
        busy.map_or(Ok(()), |busy| Err(busy.status()))
    }
}

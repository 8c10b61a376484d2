//! Asymmetric Namespace Access (Base 2.1, 8.1.1), of controllers over fabrics: the groups of the
//! attached namespaces, the log page that describes them, and the admin commands that a state
//! refuses.
//!
//! The subsystem has the states. Its namespace table carries the refusal of I/O commands, so that
//! nothing here is on their way. A controller of a PCI function reports no groups.

use std::collections::BTreeMap;

use nvme_spec::ana::{AnaCapabilities, AnaGroupDescriptor, AnaGroupState, AnaLogHead, AnaState};
use nvme_spec::command::{GetFeaturesCdw10, SetFeaturesCdw10};
use nvme_spec::features::FeatureId;
use nvme_spec::identify::IdentifyController;
use nvme_spec::opcode::AdminOpcode;
use nvme_spec::{NSID_ALL, Sqe, Status};
use subsystem::{Allocated, MAX_ANA_GROUP, Subsystem, ana_refusal};
use zerocopy::IntoBytes;

use super::events::Event;
use crate::controller::Controller;

/// ANATT: a transition is one step, and this is how long an operator may leave a group in the
/// change state, in seconds. Linux resets the controller after twice that time.
const TRANSITION_TIME: u8 = 10;

/// A group with attached namespaces.
#[derive(Clone, Debug)]
struct Group {
    state: AnaState,
    /// Rising.
    nsids: Vec<u32>,
    /// Changes of it since the reset.
    changes: u64,
}

/// The groups as the log page shows them.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnaLog {
    groups: BTreeMap<u32, Group>,
    /// Last states of groups whose namespaces have all gone since the reset: a host keeps what it
    /// has read of them.
    gone: BTreeMap<u32, AnaState>,
    /// Changes of the page since the reset.
    changes: u64,
    /// It has been filled since the reset.
    is_known: bool,
}

impl AnaLog {
    /// Takes the current states and namespaces; whether the state of a group is another one than
    /// the last that the page has shown. Groups that come and go do so with their namespaces, of
    /// which another event notifies.
    fn follow(&mut self, now: BTreeMap<u32, (AnaState, Vec<u32>)>) -> bool {
        let (mut is_other, mut is_news) = (self.groups.len() != now.len(), false);
        let mut before = std::mem::take(&mut self.groups);
        for (id, (state, nsids)) in now {
            let changes = match before.remove(&id) {
                Some(group) if group.state == state && group.nsids == nsids => group.changes,
                Some(group) => {
                    is_news |= group.state != state;
                    is_other = true;
                    group.changes.wrapping_add(1)
                }
                None => {
                    is_news |= self.gone.remove(&id).is_some_and(|last| last != state);
                    is_other = true;
                    // A group that returns does not count what it has counted before.
                    self.changes
                }
            };
            let group = Group {
                state,
                nsids,
                changes,
            };
            self.groups.insert(id, group);
        }
        let gone = before.into_iter().map(|(id, group)| (id, group.state));
        self.gone.extend(gone);
        if std::mem::replace(&mut self.is_known, true) && is_other {
            self.changes = self.changes.wrapping_add(1);
        }
        is_news
    }

    /// The log page; without namespace identifiers where the host asks for groups only.
    pub(super) fn page(&self, groups_only: bool) -> Vec<u8> {
        let head = AnaLogHead {
            chgcnt: self.changes,
            nagd: self.groups.len() as u16,
            reserved: [0; 6],
        };
        let mut page = head.as_bytes().to_vec();
        for (&agid, group) in &self.groups {
            let nsids = if groups_only { &[] } else { &group.nsids[..] };
            let descriptor = AnaGroupDescriptor {
                agid,
                nnsid: nsids.len() as u32,
                chgcnt: group.changes,
                state: AnaGroupState::new().with_state(group.state),
                reserved: [0; 15],
            };
            page.extend_from_slice(descriptor.as_bytes());
            page.extend_from_slice(nsids.as_bytes());
        }
        page
    }
}

/// The fields of Identify Controller.
pub(super) fn identify(c: &mut IdentifyController) {
    c.cmic = c.cmic.with_anars(true);
    c.oaes = c.oaes.with_anacn(true);
    c.anatt = TRANSITION_TIME;
    c.anacap = AnaCapabilities::new()
        .with_optimized(true)
        .with_non_optimized(true)
        .with_inaccessible(true)
        .with_persistent_loss(true)
        .with_change(true)
        .into();
    (c.anagrpmax, c.nanagrpid) = (MAX_ANA_GROUP, MAX_ANA_GROUP);
}

impl Controller {
    /// The ANA group of a namespace, as Identify reports it; 0 where groups are not reported.
    pub(super) fn ana_group(&self, namespace: &Allocated) -> u32 {
        if self.config.is_over_fabrics() {
            namespace.ana_group
        } else {
            0
        }
    }

    /// Whether Identify hides how much of a namespace is in use, as Linux' own target does.
    pub(super) fn hides_use(&self, namespace: &Allocated, subsystem: &Subsystem) -> bool {
        let hidden = [AnaState::INACCESSIBLE, AnaState::PERSISTENT_LOSS];
        let state = subsystem.ana_state(self.id(), namespace.ana_group);
        self.config.is_over_fabrics() && hidden.contains(&state)
    }

    /// The groups as the log page shows them; none where groups are not reported.
    pub(super) fn ana_log(&self) -> Option<&AnaLog> {
        self.config.is_over_fabrics().then_some(&self.logs.ana)
    }

    /// Takes the states of the groups of its namespaces, and notifies the host of another one.
    pub(crate) fn follow_access(&mut self, subsystem: &Subsystem) {
        if !self.config.is_over_fabrics() {
            return;
        }
        let mut groups: BTreeMap<u32, (AnaState, Vec<u32>)> = BTreeMap::new();
        for nsid in self.attached.table.iter().map(|n| n.nsid) {
            if let Some(namespace) = subsystem.directory().get(nsid) {
                let group = namespace.ana_group;
                let state = subsystem.ana_state(self.id(), group);
                let (_, nsids) = groups.entry(group).or_insert_with(|| (state, Vec::new()));
                nsids.push(nsid);
            }
        }
        if self.logs.ana.follow(groups) {
            self.raise(Event::AccessChanged);
        }
    }

    /// Whether the state of its namespace's group allows an admin command. Those that show a
    /// namespace, and those of the controller, are allowed in every state (Base 2.1, 8.1.1.8).
    ///
    /// # Errors
    /// What it ends with.
    pub(super) fn check_access(&self, sqe: &Sqe, subsystem: &Subsystem) -> Result<(), Status> {
        let concerns = match sqe.admin_opcode() {
            AdminOpcode::FORMAT_NVM
            | AdminOpcode::GET_LBA_STATUS
            | AdminOpcode::NAMESPACE_MANAGEMENT
            | AdminOpcode::NAMESPACE_ATTACHMENT => true,
            AdminOpcode::GET_FEATURES => is_reserved(GetFeaturesCdw10::from(sqe.cdw10).fid()),
            AdminOpcode::SET_FEATURES => is_reserved(SetFeaturesCdw10::from(sqe.cdw10).fid()),
            _ => false,
        };
        if !concerns || !self.config.is_over_fabrics() {
            return Ok(());
        }
        let named = |n: &&Allocated| {
            (sqe.nsid == NSID_ALL || sqe.nsid == n.nsid()) && subsystem.is_attached(n, self.id())
        };
        let mut refusals = subsystem
            .directory()
            .iter()
            .filter(named)
            .filter_map(|n| ana_refusal(subsystem.ana_state(self.id(), n.ana_group)));
        refusals.next().map_or(Ok(()), Err)
    }
}

/// Features of a namespace's reservations.
fn is_reserved(fid: FeatureId) -> bool {
    [
        FeatureId::RESERVATION_NOTIFICATION_MASK,
        FeatureId::RESERVATION_PERSISTENCE,
    ]
    .contains(&fid)
}

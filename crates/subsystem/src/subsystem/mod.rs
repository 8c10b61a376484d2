//! The shared state itself: who has joined, the generations of the table, forwarded commands, and
//! the operations in flight.

mod dynamic;
mod kept;
mod moving;
mod operator;
mod plan;
mod progress;
mod reserve;
mod sanitizing;
mod schedule;

use std::collections::VecDeque;
use std::sync::Arc;

use nvme_spec::Status;
use nvme_spec::ana::AnaState;
use nvme_spec::command::{WriteUncorrectableCdw12, slba};
use nvme_spec::opcode::NvmOpcode;
use port::namespace::NamespaceTable;
use port::ticket::{OwnerKey, Ticket};
use port::time::Time;
use port::{Channel, Channels, Outcome};

use self::reserve::keys;
pub use self::reserve::{DATA_LEN, Forward};
use self::schedule::Operations;
use crate::access::AnaStates;
use crate::allocated::{Allocated, Pool};
use crate::answers::{Answers, KeptAnswer, UNNAMED};
use crate::config::{ConfigError, MAX_NAMESPACES, number};
use crate::directory::{Change, Directory};
use crate::notices::{KeptNotice, Notices, Numbers};
use crate::operation::{Answer, Operation, Requester, Step};
use crate::record::{ControllerRecord, Record};
use crate::request::Plan;
use crate::reservation::Host;
use crate::sanitize::{SanitizeNews, SanitizeRecord};
use crate::set::{ControllerId, MAX_CONTROLLERS};

/// Operations that one controller may have outstanding in its subsystem, those included that a
/// reset has left behind.
const OUTSTANDING_LIMIT: usize = 8192;

/// The same for a dynamic controller, of which there are more.
const OUTSTANDING_LIMIT_DYNAMIC: usize = 1024;

/// Configuration of a subsystem.
#[derive(Clone, Debug)]
pub struct SubsystemConfig {
    /// Name in the log and the record.
    pub name: String,
    /// The highest namespace id (NN): 1 to [`MAX_NAMESPACES`].
    pub namespace_limit: u32,
    /// The namespaces that exist, attached or not.
    pub namespaces: Vec<Allocated>,
    /// Media whose unallocated space hosts may make namespaces of; empty: no Namespace Management.
    pub pools: Vec<Pool>,
    /// Previous controllers: their identifiers and kept state.
    pub controllers: Vec<ControllerRecord>,
    /// Names of configured namespaces that were deleted before.
    pub deleted: Vec<String>,
    /// Number of namespaces that hosts have created before.
    pub created: u64,
    /// State of sanitize operations; one that was in progress continues.
    pub sanitize: SanitizeRecord,
    /// The program keeps the records; without that, everything counts as kept.
    pub keeping: bool,
    /// Seed of the names of namespaces that hosts create.
    pub identity_seed: [u8; 16],
    /// Answers of commands whose effect the record of the process before has.
    pub answers: Vec<KeptAnswer>,
    /// Notifications that its controllers may not have taken.
    pub notices: Vec<KeptNotice>,
    /// A number that no other process has that serves the subsystem: names of commands begin with
    /// it.
    pub process: u64,
}

impl SubsystemConfig {
    /// A subsystem with these namespaces, each attached to every controller; nothing is kept.
    #[must_use]
    pub fn with_namespaces(
        namespace_limit: u32,
        namespaces: impl IntoIterator<Item = port::namespace::Namespace>,
    ) -> Self {
        SubsystemConfig {
            name: "subsystem".to_owned(),
            namespace_limit,
            namespaces: namespaces.into_iter().map(Allocated::everywhere).collect(),
            pools: Vec::new(),
            controllers: Vec::new(),
            deleted: Vec::new(),
            created: 0,
            sanitize: SanitizeRecord::default(),
            keeping: false,
            identity_seed: [0; 16],
            answers: Vec::new(),
            notices: Vec::new(),
            process: 1,
        }
    }
}

/// A controller of the subsystem.
#[derive(Debug)]
struct Member {
    id: ControllerId,
    name: String,
    /// It is being served; one that is not keeps its identifier and its saved state, or, if it is
    /// dynamic, waits for the end of its operations.
    present: bool,
    /// Of a dynamic controller: the one whose attachments it has.
    entrance: Option<ControllerId>,
    /// The generation of the table that it took last.
    seen: u64,
    /// Nothing that it fetched under an older table than this generation's is in flight.
    acknowledged: u64,
    /// Namespaces whose attributes changed since its last check, except by its own changes.
    changed: Vec<u32>,
    answers: VecDeque<Answer>,
    /// Operations that were begun for it and are not over.
    outstanding: usize,
    /// Its host, as reservations identify hosts.
    host: Host,
    /// The NQN of its host, of a dynamic controller that a host has connected to.
    hostnqn: Option<Arc<str>>,
    /// Pending reservation notifications.
    notices: Notices,
    sanitize_news: Option<SanitizeNews>,
    record: ControllerRecord,
}

/// One NVM subsystem.
#[derive(Debug)]
pub struct Subsystem {
    key: OwnerKey,
    name: String,
    namespace_limit: u32,
    identity_seed: [u8; 16],
    directory: Directory,
    generation: u64,
    /// By ascending identifier, so that dynamic controllers are the last.
    members: Vec<Member>,
    /// Where the search for the next dynamic controller's identifier begins.
    next_dynamic: u16,
    operations: Operations,
    /// Answers that records have.
    answers: Answers,
    /// Those of the next notifications.
    numbers: Numbers,
    process: u64,
    /// Answers to the operator: token and result.
    operator_answers: VecDeque<(u64, Result<u32, Status>)>,
    keeping: bool,
    /// Counts of changes of the record; of those handed out to be kept; and of those kept.
    version: u64,
    taken_version: u64,
    kept_version: u64,
    /// The version that could not be kept, nor anything before it.
    failed_version: u64,
    now: Time,
}

impl Subsystem {
    /// A subsystem without controllers.
    ///
    /// # Errors
    /// The highest id is out of range, or an id of a namespace is out of range or given twice.
    pub fn new(config: SubsystemConfig) -> Result<Self, ConfigError> {
        let SubsystemConfig {
            name,
            namespace_limit,
            namespaces,
            pools,
            controllers,
            deleted,
            created,
            sanitize,
            keeping,
            identity_seed,
            answers,
            notices,
            process,
        } = config;
        number("namespace_limit", namespace_limit, 1, MAX_NAMESPACES)?;
        let mut directory = Directory::new(namespaces, pools, namespace_limit)?;
        directory.restore(deleted, created, sanitize.into());
        let mut members: Vec<Member> = controllers.into_iter().map(Member::absent).collect();
        members.sort_by_key(|member| member.id);
        let mut subsystem = Subsystem {
            key: OwnerKey::subsystem(0),
            name,
            namespace_limit,
            identity_seed,
            directory,
            generation: 1,
            members,
            next_dynamic: dynamic::first_id(process),
            operations: Operations::default(),
            answers: Answers::found(answers),
            numbers: Numbers::of(process),
            process,
            operator_answers: VecDeque::new(),
            keeping,
            version: 0,
            taken_version: 0,
            kept_version: 0,
            failed_version: 0,
            now: Time(0),
        };
        subsystem.find_notices(notices);
        subsystem.resume_sanitize();
        Ok(subsystem)
    }

    /// Name in the log and the record.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whose name the tickets of its own requests carry.
    #[inline]
    #[must_use]
    pub fn key(&self) -> OwnerKey {
        self.key
    }

    /// Gives it its place among the subsystems of its reactor. Before its first turn.
    pub fn set_key(&mut self, key: OwnerKey) {
        self.key = key;
    }

    /// The highest namespace id that is valid (NN).
    #[must_use]
    pub fn namespace_limit(&self) -> u32 {
        self.namespace_limit
    }

    /// The namespaces and the space between them.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Whether hosts may create and delete namespaces.
    #[must_use]
    pub fn has_namespace_management(&self) -> bool {
        !self.directory.pools().is_empty()
    }

    /// Identifiers of the controllers that are served now, ascending.
    pub fn controllers(&self) -> impl Iterator<Item = ControllerId> {
        self.members.iter().filter(|m| m.present).map(|m| m.id)
    }

    /// The identifier of a configured controller, served now or before.
    #[must_use]
    pub fn controller_named(&self, name: &str) -> Option<ControllerId> {
        self.configured().find(|m| m.name == name).map(|m| m.id)
    }

    fn configured(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|m| m.entrance.is_none())
    }

    /// Adds a configured controller and returns its identifier, which stays assigned to its name
    /// forever.
    ///
    /// # Errors
    /// There is no identifier left.
    pub fn join(&mut self, name: &str) -> Result<ControllerId, ConfigError> {
        let id = match self.controller_named(name) {
            Some(id) => id,
            None => {
                let free = |id: &u16| self.member(ControllerId(*id)).is_none();
                let id = (1..=MAX_CONTROLLERS).find(free).map(ControllerId);
                let id = id.ok_or_else(|| ConfigError::TooManyControllers(self.name.clone()))?;
                self.add(Member::absent(ControllerRecord::new(name, id)));
                self.touch();
                id
            }
        };
        self.begin_service(id);
        Ok(id)
    }

    fn add(&mut self, member: Member) {
        let at = self.members.partition_point(|m| m.id < member.id);
        self.members.insert(at, member);
    }

    fn begin_service(&mut self, id: ControllerId) {
        let generation = self.generation;
        if let Some(member) = self.member_mut(id) {
            member.present = true;
            // It takes its table when it is made.
            (member.seen, member.acknowledged) = (generation, generation);
        }
    }

    /// A controller is served no longer. The dynamic controllers of an entrance leave before it;
    /// one that does not keeps its namespaces, as an entrance keeps its identifier and attachments.
    /// An entrance does not keep its states of ANA groups: the next controller with its name may be
    /// a PCI function, which has none.
    pub fn leave(&mut self, id: ControllerId) {
        debug_assert!(
            !self
                .members
                .iter()
                .any(|m| m.present && m.entrance == Some(id)),
            "dynamic controllers leave before their entrance"
        );
        self.answers.forget(id);
        self.set_ana_states(id, AnaStates::new());
        if let Some(member) = self.member_mut(id) {
            member.present = false;
            member.changed.clear();
            member.answers.drain(..).for_each(Answer::retire);
        }
        self.end_dynamic(id);
    }

    #[inline]
    fn position(&self, id: ControllerId) -> Option<usize> {
        self.members.binary_search_by_key(&id, |m| m.id).ok()
    }

    #[inline]
    fn member(&self, id: ControllerId) -> Option<&Member> {
        self.members.get(self.position(id)?)
    }

    #[inline]
    fn member_mut(&mut self, id: ControllerId) -> Option<&mut Member> {
        let at = self.position(id)?;
        self.members.get_mut(at)
    }

    /// Counts the changes of the directory that commands can notice.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The namespaces that a controller has attached, as of this generation.
    pub fn take_table(&mut self, id: ControllerId) -> Arc<NamespaceTable> {
        let generation = self.generation;
        if let Some(member) = self.member_mut(id) {
            member.seen = generation;
        }
        let has_it = |namespace: &Allocated| self.is_attached(namespace, id);
        let (entrance, host) = (self.entrance_of(id), self.host_of(id));
        Arc::new(self.directory.table(entrance, has_it, host))
    }

    /// Namespaces whose attributes changed since the last call, other than by the controller's own
    /// commands.
    pub fn take_changed(&mut self, id: ControllerId) -> Vec<u32> {
        self.member_mut(id)
            .map(|member| std::mem::take(&mut member.changed))
            .unwrap_or_default()
    }

    /// Nothing that the controller fetched under an older table than this generation's is in
    /// flight.
    #[inline]
    pub fn acknowledge(&mut self, id: ControllerId, generation: u64) {
        if let Some(member) = self.member_mut(id) {
            member.acknowledged = member.acknowledged.max(generation);
        }
    }

    /// Whether an operation has waited too long for commands of this controller, which must then
    /// abort them.
    #[inline]
    pub fn wants_abandon(&self, id: ControllerId) -> bool {
        if self.operations.is_empty() {
            return false;
        }
        let late = self.operations.late_drain(self.now);
        late.is_some_and(|generation| {
            let member = self.member(id);
            member.is_some_and(|m| m.acknowledged < generation)
        })
    }

    /// The next answer to a command of this controller's.
    #[inline]
    pub fn take_answer(&mut self, id: ControllerId) -> Option<Answer> {
        self.member_mut(id)?.answers.pop_front()
    }

    /// Whether [`Subsystem::take_operator_answer`] would return one.
    #[inline]
    #[must_use]
    pub fn has_operator_answer(&self) -> bool {
        !self.operator_answers.is_empty()
    }

    /// The next answer to the operator: the token of the request, and how it ended.
    pub fn take_operator_answer(&mut self) -> Option<(u64, Result<u32, Status>)> {
        self.operator_answers.pop_front()
    }

    /// A number that no other process has that serves the subsystem.
    #[must_use]
    pub fn process(&self) -> u64 {
        self.process
    }

    /// Begins an operation. It is answered in a later turn. If a process before has done it, it
    /// changes nothing.
    pub fn begin(&mut self, mut operation: Operation) {
        if operation.name != UNNAMED
            && let Some(controller) = operation.by.controller()
            && let Some(dw0) = self.answers.claim(controller, operation.name)
        {
            operation.dw0 = dw0;
            operation.steps = [Step::Drain, Step::Keep].into();
            operation.is_answered = true;
        }
        let member = operation.by.controller().and_then(|id| self.member_mut(id));
        match member {
            // A host that resets its controller forgets what it began, and may begin as much again.
            Some(member) if member.outstanding >= member.outstanding_limit() => {
                self.answer(operation, Err(Status::COMMAND_INTERRUPTED));
            }
            Some(member) => {
                member.outstanding += 1;
                self.operations.push(operation);
            }
            None => self.operations.push(operation),
        }
    }

    /// An operation that was begun for that controller is over.
    fn ended(&mut self, by: Option<ControllerId>) {
        if let Some(id) = by
            && let Some(member) = self.member_mut(id)
        {
            member.outstanding = member.outstanding.saturating_sub(1);
            if !member.present {
                self.end_dynamic(id);
            }
        }
    }

    /// Takes a command of a controller's that a lane could not do.
    pub fn forwarded(&mut self, controller: ControllerId, forward: Forward) {
        let Forward { sqe, data, .. } = &forward;
        let nsid = sqe.nsid;
        let step = match sqe.nvm_opcode() {
            NvmOpcode::WRITE_UNCORRECTABLE => Step::Plan(Box::new(Plan::MarkUncorrectable {
                nsid,
                slba: slba(sqe),
                blocks: u64::from(WriteUncorrectableCdw12::from(sqe.cdw12).nlb_z()) + 1,
                controller,
            })),
            // It has written there: the lane says where.
            NvmOpcode::WRITE | NvmOpcode::WRITE_ZEROES | NvmOpcode::COPY => {
                let [slba, blocks] = keys(data);
                Step::Change(Change::ClearUncorrectable { nsid, slba, blocks })
            }
            _ => return self.reservation_command(controller, forward),
        };
        let ticket = forward.ticket;
        let by = Requester::Io { controller, ticket };
        let steps = [step, Step::Drain, Step::Keep];
        self.begin(Operation::new(by, nsid, steps));
    }

    /// Edits the directory at once; controllers other than `by` learn which namespaces changed.
    fn apply(&mut self, change: Change, by: Option<ControllerId>) -> Result<(), Status> {
        let nsid = change.nsid();
        let before = self.directory.attachments(nsid);
        let hosts = |directory: &Directory| directory.get(nsid).map(|n| n.hosts.clone());
        let hosts_before = hosts(&self.directory);
        let announced = change.is_announced();
        let sanitize = match &change {
            Change::Sanitize(change) => Some(*change),
            _ => None,
        };
        let moves = matches!(change, Change::Attach { .. } | Change::Detach { .. });
        self.directory.apply(change)?;
        self.generation += 1;
        self.touch();
        if let Some(change) = sanitize {
            self.spread_sanitize_news(change);
        }
        if !announced {
            return Ok(());
        }
        let after = self.directory.attachments(nsid);
        let all_hosts = [hosts_before, hosts(&self.directory)];
        for member in &mut self.members {
            let attached = member.entrance();
            let (had, has) = (before.contains(attached), after.contains(attached));
            // A controller that has it before and after sees no difference when another one gets
            // or loses it.
            let concerned = if moves { had != has } else { had || has };
            // Its host may know of the namespace as it was, or as it is.
            let mut shown = all_hosts.iter().flatten();
            let sees = shown.any(|hosts| member.sees(hosts.as_deref()));
            let told = member.present && concerned && sees && Some(member.id) != by;
            if told && !member.changed.contains(&nsid) {
                member.changed.push(nsid);
            }
        }
        Ok(())
    }

    /// Sets the states of ANA groups for the hosts of an entrance: of those that are missing it is
    /// optimized. Commands in flight complete as they would have; their hosts are notified.
    pub fn set_ana_states(&mut self, entrance: ControllerId, states: AnaStates) {
        if self.directory.set_ana_states(entrance, states) {
            self.generation += 1;
        }
    }

    /// The state of an ANA group for the host of a controller.
    #[must_use]
    pub fn ana_state(&self, id: ControllerId, group: u32) -> AnaState {
        self.directory.ana_state(self.entrance_of(id), group)
    }

    /// The record changed.
    pub fn touch(&mut self) {
        self.version += 1;
        if !self.keeping {
            (self.taken_version, self.kept_version) = (self.version, self.version);
        }
    }

    /// For tests: from now on there are these namespaces, each attached everywhere.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_namespaces(&mut self, namespaces: Vec<port::namespace::Namespace>) {
        let same = |n: &&Allocated| namespaces.contains(&n.namespace);
        let kept: Vec<u32> = self
            .directory
            .iter()
            .filter(same)
            .map(Allocated::nsid)
            .collect();
        let before: Vec<u32> = self.directory.iter().map(Allocated::nsid).collect();
        for nsid in before.into_iter().filter(|nsid| !kept.contains(nsid)) {
            let _ = self.apply(Change::Delete { nsid }, None);
        }
        for namespace in namespaces {
            if !kept.contains(&namespace.nsid) {
                let new = Allocated::everywhere(namespace);
                let _ = self.apply(Change::Create(Box::new(new)), None);
            }
        }
    }

    /// Kept state of a controller.
    #[must_use]
    pub fn controller_record(&self, id: ControllerId) -> Option<&ControllerRecord> {
        self.member(id).map(|member| &member.record)
    }

    /// Changes the kept state of a controller. That of a dynamic one ends with it.
    pub fn update_controller(
        &mut self,
        id: ControllerId,
        update: impl FnOnce(&mut ControllerRecord),
    ) {
        if let Some(member) = self.member_mut(id) {
            let before = member.record.clone();
            update(&mut member.record);
            if member.record != before && member.entrance.is_none() {
                self.touch();
            }
        }
    }

    /// The current state that outlives a restart.
    #[must_use]
    pub fn record(&self) -> Record {
        let controllers = self.configured().map(|m| m.record.clone()).collect();
        let notices = self.kept_notices();
        self.directory.record(controllers, &self.answers, &notices)
    }

    /// Whether [`Subsystem::take_record`] would return one.
    #[inline]
    #[must_use]
    pub fn has_record(&self) -> bool {
        let idle = self.kept_version == self.taken_version;
        self.keeping && idle && self.version != self.taken_version
    }

    /// The record, where it changed since it was taken last, and its version. One at a time: the
    /// next is there when this one was kept, or could not be.
    pub fn take_record(&mut self) -> Option<(u64, Record)> {
        if !self.has_record() {
            return None;
        }
        self.taken_version = self.version;
        Some((self.version, self.record()))
    }

    /// A record is on stable storage.
    pub fn kept(&mut self, version: u64) {
        self.kept_version = self.kept_version.max(version);
    }

    /// The taken record could not be kept in a time that a host can wait: operations that wait for
    /// it end with an error, also later ones, because the next record may fail as well. Changes
    /// stay in effect until a restart, and the next record contains them.
    pub fn keep_failed(&mut self) {
        self.failed_version = self.version;
        self.taken_version = self.kept_version;
    }

    /// Whether nothing would be lost if the program ended now.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.kept_version == self.version
    }

    /// A request of its own has ended.
    pub fn complete(&mut self, ticket: Ticket, outcome: Outcome) {
        self.operations.complete(ticket, outcome);
    }

    /// Moves its operations on; whether it did anything.
    #[inline]
    pub fn turn<C: Channel>(&mut self, now: Time, channels: &mut Channels<C>) -> bool {
        self.now = now;
        !self.operations.is_empty() && self.advance_operations(channels)
    }

    /// Whether a turn of it or of one of its controllers would find something to do.
    #[inline]
    #[must_use]
    pub fn has_work(&self) -> bool {
        let version = self.kept_version.max(self.failed_version);
        let behind = |m: &Member| {
            let told = m.answers.is_empty()
                && m.changed.is_empty()
                && !m.notices.are_kept(version)
                && m.sanitize_news.is_none();
            m.present && (m.seen != self.generation || !told)
        };
        self.members.iter().any(behind) || !self.operations.is_empty() && self.operations_can_move()
    }

    /// When a turn is due because something took too long.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.operations.next_deadline()
    }
}

impl Member {
    fn absent(record: ControllerRecord) -> Self {
        Member {
            id: record.id,
            name: record.name.clone(),
            present: false,
            entrance: None,
            seen: 0,
            acknowledged: 0,
            changed: Vec::new(),
            answers: VecDeque::new(),
            outstanding: 0,
            host: Host::Anonymous(record.id),
            hostnqn: None,
            notices: Notices::default(),
            sanitize_news: None,
            record,
        }
    }
}

#[cfg(test)]
mod tests;

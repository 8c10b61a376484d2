//! The discovery controller of one connection: an admin queue without namespaces, which answers
//! from the server's [`DiscoveryLog`].
//!
//! It is a state machine over commands: the connection hands it each command of its admin queue,
//! and each access to a property, and sends what it says. It has no memory of a host, no lane and
//! no place in a subsystem: there is no state that outlives the connection.
//!
//! A host reads the log in pieces and compares the generation afterwards. All pieces behind the
//! first are of the log as it was when its head was read, so that a list is never mixed from two.

mod log;
mod session;

use std::sync::Arc;

use arrayvec::ArrayVec;
use nvme_spec::command::{
    GetFeaturesCdw10, GetLogPageCdw10, GetLogPageCdw14, IdentifyCdw10, SetFeaturesCdw10,
    get_log_page_numd_z, get_log_page_offset,
};
use nvme_spec::event::{EventDw0, EventType, NoticeInformation};
use nvme_spec::fabrics::DiscoveryControllerType;
use nvme_spec::features::{AsynchronousEventConfiguration, FeatureId};
use nvme_spec::identify::controller::{ControllerType, Ctratt, Lpa, Oaes, Sgls};
use nvme_spec::identify::{Cns, IdentifyController, ascii_field};
use nvme_spec::log::{LidSupportedAndEffects, LogPageId, SupportedLogPages};
use nvme_spec::opcode::AdminOpcode;
use nvme_spec::registers::{
    CAP, CC, CSTS, Cap, Cc, Csts, ShutdownNotification, ShutdownStatus, VS, Version,
};
use nvme_spec::{Sqe, Status};
use port::time::Time;
use zerocopy::{FromZeros, IntoBytes};

use self::log::Reader;
pub use self::log::{Channel, DiscoveryLog, Listed};
pub use self::session::DiscoverySession;

/// Asynchronous Event Requests that may wait.
const EVENTS_MAX: usize = 4;
/// Longest piece of the log that one command reads, in bytes: 2^[`MDTS`] pages of 4 KiB.
const TRANSFER_MAX: u64 = 4096 << MDTS;
const MDTS: u8 = 5;
/// Entries of the admin queue that a host may ask for.
const QUEUE_ENTRIES: u16 = 128;
/// CAP.TO, in units of 500 ms. The controller is ready at once.
const READY_TIMEOUT: u8 = 1;
/// The bit of the Asynchronous Event Configuration that asks for Discovery Log Page Change Notices,
/// in its four bits of Discovery controllers (Base 2.1, figure 403).
const CHANGE_NOTICES: u8 = 0b1000;
/// Dword 0 of an Abort that found no command.
const NOT_ABORTED: u32 = 1;
/// How long a host without a keep-alive timeout may be silent (Linux reads the log at once).
const SILENT_NS: u64 = 120_000_000_000;
/// KAS, in units of 100 ms.
const KAS: u16 = 1;
/// Text fields of Identify Controller.
const MODEL: &str = "nvmirage discovery";

/// Outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It completes.
    Done {
        /// Its status.
        status: Status,
        /// Dword 0 of its completion.
        dw0: u32,
    },
    /// It completes successfully, and these are its data.
    Data(Vec<u8>),
    /// It waits for an event: [`Discovery::take_event`].
    Held,
}

impl From<Result<u32, Status>> for Answer {
    fn from(result: Result<u32, Status>) -> Self {
        match result {
            Ok(dw0) => Answer::Done {
                status: Status::SUCCESSFUL_COMPLETION,
                dw0,
            },
            Err(status) => Answer::Done { status, dw0: 0 },
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Discovery {
    /// The log as the server has it.
    log: Arc<DiscoveryLog>,
    /// The generation of the log since which this host's page is the same.
    generation: u64,
    /// The page as it was when its head was read.
    page: Vec<u8>,
    /// The host, and where it reads the log.
    reader: Reader,
    cntlid: u16,
    cc: Cc,
    csts: Csts,
    events: AsynchronousEventConfiguration,
    kato_ms: u32,
    /// Identifiers of Asynchronous Event Requests that wait.
    requests: ArrayVec<u16, EVENTS_MAX>,
    /// The log has changed since an event told of it, or since its head was read.
    has_changed: bool,
    /// An event was reported, and the log was not read since.
    is_masked: bool,
    /// When the host was heard of last.
    heard: Time,
}

impl Discovery {
    /// A controller that a host has connected to, with this keep-alive timeout.
    #[must_use]
    pub(super) fn new(
        log: Arc<DiscoveryLog>,
        reader: Reader,
        cntlid: u16,
        kato_ms: u32,
        now: Time,
    ) -> Self {
        Discovery {
            page: log.page(&reader, log.generation),
            generation: log.generation,
            log,
            reader,
            cntlid,
            cc: Cc::new(),
            csts: Csts::new(),
            events: AsynchronousEventConfiguration::new(),
            kato_ms,
            requests: ArrayVec::new(),
            has_changed: false,
            is_masked: false,
            heard: now,
        }
    }

    /// Bytes have come from the host.
    pub(super) fn heard(&mut self, now: Time) {
        self.heard = now;
    }

    /// When the connection ends if nothing is heard of the host until then.
    #[must_use]
    pub(super) fn deadline(&self) -> Time {
        let timeout_ns = u64::from(self.kato_ms) * 1_000_000;
        self.heard
            + if timeout_ns == 0 {
                SILENT_NS
            } else {
                timeout_ns
            }
    }

    /// The server has another log. A host whose page is the same gets neither an event nor another
    /// GENCTR: the change is about controllers that it does not read of.
    pub(super) fn set_log(&mut self, log: Arc<DiscoveryLog>) {
        let [before, after] = [&self.log, &log].map(|log| log.page(&self.reader, 0));
        if before != after {
            self.generation = log.generation;
            self.has_changed = true;
        }
        self.log = log;
    }

    /// The command identifier and Dword 0 of an Asynchronous Event Request that completes now.
    pub(super) fn take_event(&mut self) -> Option<(u16, u32)> {
        let is_wanted = self.events.discovery() & CHANGE_NOTICES != 0;
        if !self.has_changed || self.is_masked || !is_wanted || !self.csts.rdy() {
            return None;
        }
        let cid = self.requests.pop_at(0)?;
        (self.has_changed, self.is_masked) = (false, true);
        let event = EventDw0::new()
            .with_aet(EventType::NOTICE)
            .with_aei(NoticeInformation::DISCOVERY_LOG_PAGE_CHANGE.0)
            .with_lid(LogPageId::DISCOVERY);
        Some((cid, event.into()))
    }

    /// The value of a property of `size` bytes.
    ///
    /// # Errors
    /// There is no such property, or it has another size.
    pub(super) fn property(&self, offset: u32, size: usize) -> Result<u64, Status> {
        match (u64::from(offset), size) {
            (CAP, 8) => {
                let cap = Cap::new()
                    .with_mqes_z(QUEUE_ENTRIES - 1)
                    .with_cqr(true)
                    .with_to(READY_TIMEOUT)
                    .with_css_nvm(true);
                Ok(cap.into())
            }
            (VS, 4) => Ok(u32::from(Version::V2_1).into()),
            (CC, 4) => Ok(u32::from(self.cc).into()),
            (CSTS, 4) => Ok(u32::from(self.csts).into()),
            _ => Err(Status::INVALID_FIELD_IN_COMMAND),
        }
    }

    /// Sets a property of `size` bytes.
    ///
    /// # Errors
    /// There is no such property that a host may set, or it has another size.
    pub(super) fn set_property(
        &mut self,
        offset: u32,
        size: usize,
        value: u64,
    ) -> Result<(), Status> {
        let value = u32::try_from(value).map_err(|_| Status::INVALID_FIELD_IN_COMMAND)?;
        if (u64::from(offset), size) != (CC, 4) {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        self.cc = Cc::from(value);
        self.csts.set_rdy(self.cc.en());
        if !self.cc.en() {
            self.csts = Csts::new();
            self.requests.clear();
            self.events = AsynchronousEventConfiguration::new();
            self.is_masked = false;
        } else if self.cc.shn() != ShutdownNotification::NONE {
            self.csts.set_shst(ShutdownStatus::COMPLETE);
        }
        Ok(())
    }

    /// Executes a command of the admin queue.
    pub(super) fn command(&mut self, sqe: &Sqe) -> Answer {
        if !self.csts.rdy() {
            return Err(Status::COMMAND_SEQUENCE_ERROR).into();
        }
        match sqe.admin_opcode() {
            AdminOpcode::IDENTIFY => self.identify(sqe),
            AdminOpcode::GET_LOG_PAGE => self.get_log_page(sqe),
            AdminOpcode::SET_FEATURES => self.set_features(sqe).into(),
            AdminOpcode::GET_FEATURES => self.get_features(sqe).into(),
            AdminOpcode::KEEP_ALIVE => Ok(0).into(),
            AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST => self.event_request(sqe.cid),
            // No command takes long: there is none to abort.
            AdminOpcode::ABORT => Ok(NOT_ABORTED).into(),
            _ => Err(Status::INVALID_COMMAND_OPCODE).into(),
        }
    }

    fn event_request(&mut self, cid: u16) -> Answer {
        match self.requests.try_push(cid) {
            Ok(()) => Answer::Held,
            Err(_) => Err(Status::ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED).into(),
        }
    }

    fn identify(&self, sqe: &Sqe) -> Answer {
        if IdentifyCdw10::from(sqe.cdw10).cns() != Cns::CONTROLLER {
            return Err(Status::INVALID_FIELD_IN_COMMAND).into();
        }
        let mut c = IdentifyController::new_zeroed();
        c.sn = ascii_field("0");
        c.mn = ascii_field(MODEL);
        c.fr = ascii_field(env!("CARGO_PKG_VERSION"));
        c.mdts = MDTS;
        c.cntlid = self.cntlid;
        c.ver = Version::V2_1;
        c.oaes = Oaes::new().with_dlpcn(true);
        c.ctratt = Ctratt::new().with_hids(true).with_tbkas(true);
        c.cntrltype = ControllerType::DISCOVERY;
        c.aerl_z = EVENTS_MAX as u8 - 1;
        c.lpa = Lpa::new().with_lpeds(true);
        c.kas = KAS;
        c.maxcmd = QUEUE_ENTRIES;
        c.sgls = Sgls::new().with_sglsupp(1).with_saos(true);
        let nqn = self.reader.subnqn.as_bytes();
        c.subnqn[..nqn.len()].copy_from_slice(nqn);
        c.fabrics.dctype = DiscoveryControllerType::DIRECT;
        Answer::Data(c.as_bytes().to_vec())
    }

    fn get_log_page(&mut self, sqe: &Sqe) -> Answer {
        let cdw10 = GetLogPageCdw10::from(sqe.cdw10);
        let len = (u64::from(get_log_page_numd_z(sqe)) + 1) * 4;
        let offset = get_log_page_offset(sqe);
        let supported;
        let page = match cdw10.lid() {
            LogPageId::DISCOVERY => {
                if offset == 0 {
                    self.page = self.log.page(&self.reader, self.generation);
                    self.has_changed = false;
                    self.is_masked &= cdw10.rae();
                }
                &self.page[..]
            }
            LogPageId::SUPPORTED_LOG_PAGES => {
                supported = supported_pages();
                supported.as_bytes()
            }
            _ => return Err(Status::INVALID_LOG_PAGE).into(),
        };
        let refused = len > TRANSFER_MAX
            || !offset.is_multiple_of(4)
            || offset > page.len() as u64
            || GetLogPageCdw14::from(sqe.cdw14).ot();
        if refused {
            return Err(Status::INVALID_FIELD_IN_COMMAND).into();
        }
        let (offset, len) = (offset as usize, len as usize);
        let mut part = page[offset..].to_vec();
        part.resize(len, 0);
        Answer::Data(part)
    }

    fn set_features(&mut self, sqe: &Sqe) -> Result<u32, Status> {
        match SetFeaturesCdw10::from(sqe.cdw10).fid() {
            FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION => {
                self.events = AsynchronousEventConfiguration::from(sqe.cdw11);
                Ok(sqe.cdw11)
            }
            FeatureId::KEEP_ALIVE_TIMER => {
                self.kato_ms = sqe.cdw11;
                Ok(0)
            }
            _ => Err(Status::INVALID_FIELD_IN_COMMAND),
        }
    }

    fn get_features(&self, sqe: &Sqe) -> Result<u32, Status> {
        match GetFeaturesCdw10::from(sqe.cdw10).fid() {
            FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION => Ok(self.events.into()),
            FeatureId::KEEP_ALIVE_TIMER => Ok(self.kato_ms),
            _ => Err(Status::INVALID_FIELD_IN_COMMAND),
        }
    }
}

/// The log pages that there are. No option of the Discovery log page is supported: hosts that see
/// the page refused read options from memory that nothing has written (nvme-stas 2.4).
fn supported_pages() -> SupportedLogPages {
    let mut log = SupportedLogPages::new_zeroed();
    for page in [LogPageId::SUPPORTED_LOG_PAGES, LogPageId::DISCOVERY] {
        log.lids[usize::from(page.0)] = LidSupportedAndEffects::new().with_lsupp(true);
    }
    log
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::SocketAddr;

    use super::*;

    const HERE: &str = "127.0.0.1:4420";
    const NOW: Time = Time(1_000);

    fn log(generation: u64, ports: &[u16]) -> Arc<DiscoveryLog> {
        let listed = ports.iter().map(|port| {
            let address = SocketAddr::from(([127, 0, 0, 1], *port));
            let subnqn = "nqn.2014-08.org.example:s".to_owned();
            Listed::new("e".to_owned(), subnqn, address)
        });
        Arc::new(DiscoveryLog {
            generation,
            subsystems: listed.collect(),
        })
    }

    fn discovery() -> Discovery {
        let reader = Reader {
            entrance: "e".to_owned(),
            here: HERE.parse().unwrap(),
            subnqn: "nqn.d".to_owned(),
            hostnqn: "nqn.h".to_owned(),
        };
        Discovery::new(log(1, &[4420]), reader, 1, 30_000, NOW)
    }

    /// Brought up as Linux 7.3 does it, recorded.
    fn ready() -> Discovery {
        let mut discovery = discovery();
        for value in [0x46_0060, 0x46_0061] {
            discovery.set_property(0x14, 4, value).unwrap();
        }
        assert_eq!(discovery.property(0x1c, 4), Ok(1));
        discovery
    }

    fn command(opcode: AdminOpcode, cid: u16, [cdw10, cdw11, cdw12]: [u32; 3]) -> Sqe {
        Sqe {
            opcode: opcode.0,
            cid,
            cdw10,
            cdw11,
            cdw12,
            ..Sqe::default()
        }
    }

    fn done(status: Status, dw0: u32) -> Answer {
        Answer::Done { status, dw0 }
    }

    /// Get Log Page of the Discovery log: bytes, and offset.
    fn read(len: u32, offset: u32) -> Sqe {
        let cdw10 = (len / 4 - 1) << 16 | 0x70;
        command(AdminOpcode::GET_LOG_PAGE, 1, [cdw10, 0, offset])
    }

    fn data(answer: Answer) -> Vec<u8> {
        match answer {
            Answer::Data(data) => data,
            other => panic!("no data: {other:?}"),
        }
    }

    #[test]
    fn a_recorded_session_of_linux_finds_what_it_needs() {
        let mut discovery = ready();
        // CAP: 100h entries or fewer, CQR, ready in time, the NVM command set.
        let cap = Cap::from(discovery.property(0, 8).unwrap());
        assert!(cap.css_nvm() && cap.mqes_z() >= 31);
        assert_eq!(discovery.property(8, 4), Ok(0x2_0100));
        let identify = command(AdminOpcode::IDENTIFY, 0x1a, [1, 0, 0]);
        let identity = data(discovery.command(&identify));
        assert_eq!(identity.len(), 4096);
        // CNTRLTYPE 2 at byte 111, OAES bit 31 at byte 95, LPA bit 2 at byte 261, SGLS at 536,
        // CNTLID at 78: offsets of Base 2.1, figure 312.
        assert_eq!((identity[111], identity[95], identity[261]), (2, 0x80, 4));
        assert_eq!(identity[536..540], 0x0010_0001_u32.to_le_bytes());
        assert_eq!(identity[78], 1);
        let notices = command(AdminOpcode::SET_FEATURES, 0x1b, [0xb, 0x8000_0000, 0]);
        let success = Status::SUCCESSFUL_COMPLETION;
        assert_eq!(discovery.command(&notices), done(success, 0x8000_0000));
        let request = command(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST, 0x1f, [0; 3]);
        assert_eq!(discovery.command(&request), Answer::Held);
        let head = data(discovery.command(&read(20, 0)));
        assert_eq!(head[..8], 1_u64.to_le_bytes());
        assert_eq!(head[8..16], 2_u64.to_le_bytes());
        let entries = data(discovery.command(&read(2048, 1024)));
        assert_eq!(entries[..3], [3, 1, 3]);
        assert_eq!(entries[1024..1027], [3, 1, 2]);
        assert_eq!(discovery.take_event(), None);
        discovery.set_log(log(2, &[4420, 4421]));
        // A notice, its information F0h, about page 70h.
        assert_eq!(discovery.take_event(), Some((0x1f, 0x0070_f002)));
    }

    #[test]
    fn pieces_of_the_log_are_of_one_generation() {
        let mut discovery = ready();
        let before = data(discovery.command(&read(3072, 0)));
        discovery.set_log(log(2, &[4421, 4422]));
        let piece = data(discovery.command(&read(1024, 2048)));
        assert_eq!(piece, before[2048..]);
        let head = data(discovery.command(&read(20, 0)));
        assert_eq!((head[0], head[8]), (2, 3));
        let beyond = data(discovery.command(&read(8, 4096)));
        assert_eq!(beyond, [0; 8]);
    }

    #[test]
    fn a_change_is_told_once_until_the_log_is_read() {
        let mut discovery = ready();
        let notices = command(AdminOpcode::SET_FEATURES, 1, [0xb, 0x8000_0000, 0]);
        discovery.command(&notices);
        let request = |cid| command(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST, cid, [0; 3]);
        discovery.set_log(log(2, &[]));
        assert_eq!(discovery.take_event(), None);
        for cid in 2..6 {
            assert_eq!(discovery.command(&request(cid)), Answer::Held);
        }
        let status = Status::ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED;
        assert_eq!(discovery.command(&request(6)), done(status, 0));
        assert!(discovery.take_event().is_some_and(|(cid, _)| cid == 2));
        discovery.set_log(log(3, &[1]));
        assert_eq!(discovery.take_event(), None);
        // RAE keeps the event, and without it the log's change is known.
        let mut retained = read(20, 0);
        retained.cdw10 |= 1 << 15;
        data(discovery.command(&retained));
        discovery.set_log(log(4, &[2]));
        assert_eq!(discovery.take_event(), None);
        data(discovery.command(&read(20, 0)));
        assert_eq!(discovery.take_event(), None);
        discovery.set_log(log(5, &[3]));
        assert!(discovery.take_event().is_some_and(|(cid, _)| cid == 3));
    }

    #[test]
    fn a_change_of_what_a_host_does_not_read_is_no_event() {
        let mut discovery = ready();
        let notices = command(AdminOpcode::SET_FEATURES, 1, [0xb, 0x8000_0000, 0]);
        discovery.command(&notices);
        let request = command(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST, 2, [0; 3]);
        assert_eq!(discovery.command(&request), Answer::Held);
        let before = data(discovery.command(&read(3072, 0)));
        // A controller that only another host may connect to, behind the one that this host sees.
        let mut others = DiscoveryLog::clone(&log(2, &[4420, 4421]));
        let allowed = BTreeSet::from(["nqn.other".to_owned()]);
        others.subsystems[1].allowed = Some(Arc::new(allowed));
        discovery.set_log(Arc::new(others));
        assert_eq!(discovery.take_event(), None);
        let same = data(discovery.command(&read(3072, 0)));
        assert_eq!(same, before, "GENCTR is in it");
        discovery.set_log(log(3, &[4420, 4421]));
        assert!(discovery.take_event().is_some());
        let head = data(discovery.command(&read(20, 0)));
        assert_eq!((head[0], head[8]), (3, 3));
    }

    #[test]
    fn its_log_pages_have_no_options() {
        let mut discovery = ready();
        // 1024 bytes of page 00h: LSUPP is bit 0, options are bits 31:16 (Base 2.1, figure 206).
        let supported = command(AdminOpcode::GET_LOG_PAGE, 1, [255 << 16, 0, 0]);
        let mut expected = [0; 1024];
        (expected[0], expected[4 * 0x70]) = (1, 1);
        assert_eq!(data(discovery.command(&supported)), expected);
    }

    #[test]
    fn what_it_does_not_have_is_refused() {
        let mut discovery = ready();
        let mut refused = |sqe: &Sqe, status| {
            assert_eq!(discovery.command(sqe), done(status, 0), "{sqe:?}");
        };
        let invalid = Status::INVALID_FIELD_IN_COMMAND;
        refused(&read(8, 3076), invalid);
        refused(&read(8, 2), invalid);
        refused(&read(TRANSFER_MAX as u32 + 4, 0), invalid);
        let other_log = command(AdminOpcode::GET_LOG_PAGE, 1, [2, 0, 0]);
        refused(&other_log, Status::INVALID_LOG_PAGE);
        refused(&command(AdminOpcode::IDENTIFY, 1, [0, 0, 0]), invalid);
        refused(&command(AdminOpcode::GET_FEATURES, 1, [7, 0, 0]), invalid);
        refused(&command(AdminOpcode::SET_FEATURES, 1, [7, 0, 0]), invalid);
        let create = command(AdminOpcode::CREATE_IO_COMPLETION_QUEUE, 1, [1, 0, 0]);
        refused(&create, Status::INVALID_COMMAND_OPCODE);
    }

    #[test]
    fn properties_are_those_that_a_host_reads() {
        let mut discovery = discovery();
        let invalid = Err(Status::INVALID_FIELD_IN_COMMAND);
        for (offset, size) in [
            (0, 4),
            (8, 8),
            (0x24, 4),
            (0x28, 8),
            (0x20, 4),
            (u32::MAX, 4),
        ] {
            assert_eq!(discovery.property(offset, size), invalid.map(|()| 0));
        }
        assert_eq!(discovery.set_property(0x1c, 4, 0), invalid);
        assert_eq!(discovery.set_property(0x14, 8, 1), invalid);
        assert_eq!(discovery.set_property(0x14, 4, 1 << 32), invalid);
        let keep_alive = command(AdminOpcode::KEEP_ALIVE, 1, [0; 3]);
        let early = done(Status::COMMAND_SEQUENCE_ERROR, 0);
        assert_eq!(discovery.command(&keep_alive), early);
        discovery.set_property(0x14, 4, 0x46_0061).unwrap();
        discovery.set_property(0x14, 4, 0x46_4061).unwrap();
        // CSTS.SHST 10b: shut down.
        assert_eq!(discovery.property(0x1c, 4), Ok(0b1001));
        discovery.set_property(0x14, 4, 0x46_0060).unwrap();
        assert_eq!(discovery.property(0x1c, 4), Ok(0));
    }

    #[test]
    fn a_host_that_falls_silent_has_an_end() {
        let mut discovery = ready();
        assert_eq!(discovery.deadline(), NOW + 30_000_000_000);
        discovery.heard(Time(5_000));
        assert_eq!(discovery.deadline(), Time(5_000) + 30_000_000_000);
        let never = command(AdminOpcode::SET_FEATURES, 1, [0xf, 0, 0]);
        discovery.command(&never);
        assert_eq!(discovery.deadline(), Time(5_000) + SILENT_NS);
    }
}

//! Data of admin commands, to and from the host's buffers, and the commands that are little more
//! than that.

use memory::{Hint, Need};
use nvme_spec::command::{GetFeaturesCdw10, SetFeaturesCdw10};
use nvme_spec::features::{FeatureId, Select};
use nvme_spec::log::LogPageId;
use nvme_spec::{Sqe, Status};
use port::prp::{Segments, walk};
use subsystem::{NSID_NONE, Step, Subsystem};

use super::Reply;
use super::events::Event;
use super::features::{FeatureContext, Features, data_len};
use super::identify::{identify, sets};
use super::logs::{LogRequest, LogSources};
use crate::controller::Controller;
use crate::lane::LaneTable;

impl Controller {
    /// Copies `bytes` to where the command's PRPs point.
    pub(super) fn send(&self, sqe: &Sqe, bytes: &[u8]) -> Result<(), Status> {
        let mut segments = Segments::new();
        let len = u32::try_from(bytes.len()).map_err(|_| Status::INVALID_FIELD_IN_COMMAND)?;
        let mut hint = Hint::default();
        walk(
            &self.view,
            &mut hint,
            sqe.prp1,
            sqe.prp2,
            len,
            Need::DeviceWrites,
            &mut segments,
        )?;
        let mut rest = bytes;
        for segment in &segments {
            let (part, after) = rest.split_at(segment.len() as usize);
            segment.write_from(0, part);
            rest = after;
        }
        Ok(())
    }

    /// Copies from where the command's PRPs point, once.
    pub(super) fn receive(&self, sqe: &Sqe, bytes: &mut [u8]) -> Result<(), Status> {
        let mut segments = Segments::new();
        let len = u32::try_from(bytes.len()).map_err(|_| Status::INVALID_FIELD_IN_COMMAND)?;
        let mut hint = Hint::default();
        walk(
            &self.view,
            &mut hint,
            sqe.prp1,
            sqe.prp2,
            len,
            Need::DeviceReads,
            &mut segments,
        )?;
        let mut rest = bytes;
        for segment in &segments {
            let (part, after) = rest.split_at_mut(segment.len() as usize);
            segment.read_into(0, part);
            rest = after;
        }
        Ok(())
    }

    pub(super) fn identify(&mut self, sqe: &Sqe, subsystem: &Subsystem) -> Result<Reply, Status> {
        let page = identify(sqe, self, subsystem)?;
        self.send(sqe, &page)?;
        Ok(Reply::Done(0))
    }

    pub(super) fn get_log_page(
        &mut self,
        sqe: &Sqe,
        subsystem: &Subsystem,
    ) -> Result<Reply, Status> {
        let request = LogRequest::parse(
            sqe,
            self.config.max_transfer,
            &self.attached.table,
            &self.health.drives,
            self.ana_log(),
        )?;
        let sources = LogSources {
            errors: &self.logs.errors,
            changed: &self.logs.changed_namespaces,
            changed_zones: &self.logs.changed_zones,
            health: self.health(),
            namespaces: &self.attached.table,
            drives: &self.health.drives,
            firmware_revision: &self.config.firmware_revision,
            over_fabrics: self.config.is_over_fabrics(),
            served: self.served(subsystem).collect(),
            sets: sets(subsystem).cloned().collect(),
            sanitize: subsystem.sanitize_log(),
            reservations: &self.admin.notifications,
            ana: self.ana_log(),
            reactor: self.logs.reactor.as_deref(),
        };
        let part = request.cut(&sources.page(&request)?);
        self.send(sqe, &part)?;
        if !request.retain_event {
            self.admin.events.clear(request.lid);
            if request.lid == LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST {
                self.logs.changed_namespaces.clear();
            }
            if request.lid == LogPageId::CHANGED_ZONE_LIST {
                self.logs.changed_zones.clear(request.nsid);
                // There is an event for each namespace.
                if self.logs.changed_zones.first().is_some() {
                    self.raise(Event::ZoneChanged);
                }
            }
            let reservations = request.lid == LogPageId::RESERVATION_NOTIFICATION;
            if reservations && self.admin.notifications.read() {
                self.raise(Event::ReservationNotification);
            }
        }
        Ok(Reply::Done(0))
    }

    /// Properties that features depend on.
    pub(crate) fn feature_context(&self) -> FeatureContext {
        FeatureContext {
            queues: self.config.queues,
            queues_exist: !self.queues.is_empty(),
            namespaces: self.attached.table.clone(),
            over_fabrics: self.config.is_over_fabrics(),
            namespace_limit: self.attached.limit,
            warning_temperature: self.health.drives.limits(&self.attached.table).0,
            now: self.now,
        }
    }

    pub(super) fn get_features(
        &mut self,
        sqe: &Sqe,
        subsystem: &Subsystem,
    ) -> Result<Reply, Status> {
        let cdw10 = GetFeaturesCdw10::from(sqe.cdw10);
        let persistence = cdw10.fid() == FeatureId::RESERVATION_PERSISTENCE;
        if persistence && cdw10.sel() != Select::SUPPORTED_CAPABILITIES {
            return self.get_reservation_persistence(sqe, subsystem);
        }
        let answer = self.features.get(sqe, &self.feature_context())?;
        if !answer.data.is_empty() {
            self.send(sqe, &answer.data)?;
        }
        Ok(Reply::Done(answer.dw0))
    }

    pub(super) fn set_features(
        &mut self,
        sqe: &Sqe,
        lanes: &mut impl LaneTable,
        subsystem: &mut Subsystem,
    ) -> Result<Reply, Status> {
        let context = self.feature_context();
        let fid = Features::check_set(sqe, &context)?;
        if fid == FeatureId::RESERVATION_PERSISTENCE {
            return self.set_reservation_persistence(sqe, subsystem);
        }
        let mut data = vec![0; data_len(fid, sqe.cdw11)];
        if !data.is_empty() {
            self.receive(sqe, &mut data)?;
        }
        if fid == FeatureId::VOLATILE_WRITE_CACHE && self.is_flushing_cache() {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        if fid == FeatureId::HOST_IDENTIFIER {
            subsystem.set_host(self.id(), &data)?;
        }
        let cached = self.features.write_cache_enabled();
        let dw0 = self.features.set(sqe, &data, &context)?;
        self.apply_features(fid, lanes);
        if self.features.write_cache_enabled() != cached {
            let reply = self.write_cache_changed(sqe.cid, lanes);
            if reply == Reply::Waits {
                return Ok(reply);
            }
        }
        if SetFeaturesCdw10::from(sqe.cdw10).sv() {
            Ok(self.keep_features(sqe.cid, subsystem))
        } else {
            Ok(Reply::Done(dw0))
        }
    }

    /// Has the saved values of features kept; the command completes when they are on stable
    /// storage.
    pub(crate) fn keep_features(&mut self, cid: u16, subsystem: &mut Subsystem) -> Reply {
        self.keep_saved_features(subsystem);
        let by = Sqe {
            cid,
            ..Sqe::default()
        };
        let operation = self.begin_operation(&by, NSID_NONE, [Step::Keep]);
        subsystem.begin(operation);
        Reply::Waits
    }

    /// A command ended with an error: where it was to save a feature, nothing has changed, here and
    /// for the next process.
    pub(super) fn feature_not_kept(
        &mut self,
        cid: u16,
        lanes: &mut impl LaneTable,
        subsystem: &mut Subsystem,
    ) {
        let cached = self.features.write_cache_enabled();
        let Some(fid) = self.features.not_kept(cid) else {
            return;
        };
        self.keep_saved_features(subsystem);
        self.apply_features(fid, lanes);
        if self.features.write_cache_enabled() != cached {
            self.write_cache_restored(lanes);
        }
    }

    /// Puts the saved values into the record.
    pub(crate) fn keep_saved_features(&self, subsystem: &mut Subsystem) {
        let features = self.features.saved(&self.feature_context());
        subsystem.update_controller(self.id(), |record| record.features = features);
    }
}

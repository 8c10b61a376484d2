//! Namespace Management and Namespace Attachment (Base 2.1, 5.1.20, 5.1.21 and 8.1.15; NVM 1.1,
//! 4.1.6): from the command to a plan of the subsystem, which keeps the namespaces.
//!
//! Supported only if the subsystem has space that hosts may use. Every namespace uses the NVM
//! command set and has no metadata; there are no NVM Sets, Endurance Groups or ANA Groups to assign
//! one to.

use nvme_spec::identify::lists::{CONTROLLER_IDS_MAX, ControllerList};
use nvme_spec::namespace_management::{
    AttachmentSelect, HOST_SOFTWARE_SPECIFIED_SIZE, HostSoftwareSpecified, ManagementSelect,
    NamespaceAttachmentCdw10, NamespaceManagementCdw10, NamespaceManagementCdw11,
};
use nvme_spec::opcode::Csi;
use nvme_spec::{NSID_ALL, Sqe, Status};
use subsystem::{ControllerId, ControllerSet, NSID_NONE, Plan, Subsystem};
use zerocopy::FromBytes;

use super::Reply;
use super::format::lba_shift;
use crate::controller::Controller;

impl Controller {
    /// Namespace Management. NSID of a Create is reserved: the controller chooses it.
    pub(super) fn namespace_management(
        &mut self,
        sqe: &Sqe,
        subsystem: &mut Subsystem,
    ) -> Result<Reply, Status> {
        let (nsid, plan) = match NamespaceManagementCdw10::from(sqe.cdw10).sel() {
            ManagementSelect::CREATE => (NSID_NONE, self.parse_create(sqe)?),
            ManagementSelect::DELETE => {
                subsystem.check_idle(sqe.nsid)?;
                (sqe.nsid, Plan::Delete { nsid: sqe.nsid })
            }
            _ => return Err(Status::INVALID_FIELD_IN_COMMAND),
        };
        Ok(self.begin_plan(sqe, nsid, plan, subsystem))
    }

    fn parse_create(&self, sqe: &Sqe) -> Result<Plan, Status> {
        if NamespaceManagementCdw11::from(sqe.cdw11).csi() != Csi::NVM {
            return Err(Status::IO_COMMAND_SET_NOT_SUPPORTED);
        }
        let mut data = [0; HOST_SOFTWARE_SPECIFIED_SIZE];
        self.receive(sqe, &mut data)?;
        let fields = HostSoftwareSpecified::read_from_bytes(&data);
        let fields = fields.map_err(|_| Status::INTERNAL_ERROR)?;
        let flbas = fields.flbas;
        let lba_shift = lba_shift(flbas.fidxl(), flbas.fidxu(), &self.features)?;
        let elsewhere = fields.nvmsetid != 0 || fields.endgid != 0;
        let invalid = fields.nsze == 0
            || fields.ncap > fields.nsze
            || u8::from(fields.dps) != 0
            || fields.nmic.disns()
            || elsewhere;
        if invalid {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        if fields.ncap < fields.nsze {
            return Err(Status::THIN_PROVISIONING_NOT_SUPPORTED);
        }
        if fields.anagrpid != 0 {
            return Err(Status::ANA_GROUP_IDENTIFIER_INVALID);
        }
        Ok(Plan::Create {
            blocks: fields.nsze,
            lba_shift,
            shared: fields.nmic.shrns(),
        })
    }

    /// Namespace Attachment: for all controllers of the list, or for none.
    pub(super) fn namespace_attachment(
        &mut self,
        sqe: &Sqe,
        subsystem: &mut Subsystem,
    ) -> Result<Reply, Status> {
        let nsid = sqe.nsid;
        // FFFFFFFFh is not supported (Base 2.1, figure 141, note 4).
        if nsid == NSID_ALL {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        let select = NamespaceAttachmentCdw10::from(sqe.cdw10).sel();
        let attach = match select {
            AttachmentSelect::CONTROLLER_ATTACH => true,
            AttachmentSelect::CONTROLLER_DETACH => false,
            _ => return Err(Status::INVALID_FIELD_IN_COMMAND),
        };
        let mut data = [0; size_of::<ControllerList>()];
        self.receive(sqe, &mut data)?;
        let controllers = parse_controllers(&data)?;
        subsystem.check_idle(nsid)?;
        let plan = if attach {
            Plan::Attach { nsid, controllers }
        } else {
            Plan::Detach { nsid, controllers }
        };
        Ok(self.begin_plan(sqe, nsid, plan, subsystem))
    }
}

/// The controllers of a list, in whatever order: some, each once, with identifiers that can be.
fn parse_controllers(data: &[u8]) -> Result<ControllerSet, Status> {
    let invalid = Status::CONTROLLER_LIST_INVALID;
    let list = ControllerList::read_from_bytes(data).map_err(|_| Status::INTERNAL_ERROR)?;
    let count = usize::from(list.numids);
    if count == 0 || count > CONTROLLER_IDS_MAX {
        return Err(invalid);
    }
    let ids = list.cntlids[..count].iter().map(|id| ControllerId(*id));
    let set: ControllerSet = ids.collect();
    // One that cannot be, or comes twice, is missing in the set.
    (set.len() == count).then_some(set).ok_or(invalid)
}

//! Admin commands: what is sent, and what is compared.

use super::{Machine, PLAIN, nothing};
use crate::host::Failure;
use crate::model::{ABORT_REQUESTED, Verdict};
use crate::program::{Admin, Fault};
use crate::wire::Command;

impl Machine {
    pub(super) fn admin(&mut self, admin: &Admin) -> Result<(), Failure> {
        let admin = &settled(admin);
        if let Admin::Abort { held, sqid } = admin {
            return self.abort(*held, *sqid);
        }
        let verdict = self.model.admin(admin);
        let len = data_len(admin);
        let command = self.admin_command(admin, len, verdict.succeeds());
        self.host.spoil_data();
        let cid = self.host.put(0, command);
        self.host.ring(0);
        if matches!(admin, Admin::EventRequest) && verdict.succeeds() {
            self.model.held.push_back(cid);
            return nothing(&self.host.quiet());
        }
        let (completion, others) = self.host.wait_admin(cid)?;
        nothing(&others)?;
        verdict.judge(completion.status, completion.dw0)?;
        if !verdict.succeeds() {
            return Ok(());
        }
        self.compare_data(&verdict, &PLAIN, len)?;
        match admin {
            Admin::DeleteSq(qid) => self.host.remove_sq(*qid),
            Admin::DeleteCq(qid) => self.host.remove_cq(*qid),
            _ => (),
        }
        Ok(())
    }

    fn admin_command(&mut self, admin: &Admin, len: usize, succeeds: bool) -> Command {
        let (flags, dptr) = self.host.describe(&PLAIN, len, Fault::None);
        let command = |opcode, nsid, dword10: u32, dword11: u32| Command {
            opcode,
            flags,
            nsid,
            dptr,
            cdw: [dword10, dword11, 0, 0, 0, 0],
        };
        match *admin {
            Admin::CreateCq { .. } | Admin::CreateSq { .. } => self.create(admin, succeeds),
            Admin::DeleteCq(qid) => command(0x04, 0, qid.into(), 0),
            Admin::DeleteSq(qid) => command(0x00, 0, qid.into(), 0),
            Admin::Identify { cns, nsid, csi } => identify(command(0x06, nsid, 0, 0), cns, csi),
            Admin::GetLog {
                lid,
                dwords_z,
                offset,
            } => {
                let mut log = command(0x02, u32::MAX, 0, 0);
                log.cdw[0] = u32::from(dwords_z) << 16 | u32::from(lid);
                (log.cdw[2], log.cdw[3]) = (offset as u32, (offset >> 32) as u32);
                log
            }
            Admin::GetFeature {
                fid,
                sel,
                nsid,
                which,
            } => command(0x0a, nsid, u32::from(sel) << 8 | u32::from(fid), which),
            Admin::SetFeature {
                fid,
                save,
                nsid,
                value,
            } => command(0x09, nsid, u32::from(save) << 31 | u32::from(fid), value),
            Admin::EventRequest => command(0x0c, 0, 0, 0),
            Admin::KeepAlive => command(0x18, 0, 0, 0),
            Admin::Format {
                nsid,
                format,
                erase,
                protection,
            } => {
                let fields = [(format, 0), (protection, 5), (erase, 9)];
                let dword = fields.map(|(value, at)| u32::from(value) << at);
                command(0x80, nsid, dword.iter().sum(), 0)
            }
            Admin::Odd { opcode, flags } => Command {
                flags,
                ..identify(command(opcode, 0, 0, 0), 0x01, 0)
            },
            Admin::Abort { .. } => command(0x08, 0, 0, 0),
        }
    }

    /// A Create command. The ring of a queue that will be made is made here, and may be used from
    /// then on.
    fn create(&mut self, admin: &Admin, succeeds: bool) -> Command {
        let (opcode, qid, size_z, dword11, misaligned) = match *admin {
            Admin::CreateCq {
                qid,
                size_z,
                contiguous,
                vector,
                misaligned,
            } => {
                if succeeds {
                    self.host.add_cq(qid, u32::from(size_z) + 1);
                }
                // With interrupts.
                let dword11 = u32::from(vector) << 16 | 2 | u32::from(contiguous);
                (0x05, qid, size_z, dword11, misaligned)
            }
            Admin::CreateSq {
                qid,
                size_z,
                contiguous,
                cqid,
                misaligned,
            } => {
                if succeeds {
                    self.host.add_sq(qid, u32::from(size_z) + 1, cqid);
                }
                let dword11 = u32::from(cqid) << 16 | u32::from(contiguous);
                (0x01, qid, size_z, dword11, misaligned)
            }
            _ => unreachable!("it creates a queue"),
        };
        let at = match (succeeds, opcode) {
            (false, _) => self.host.somewhere(),
            (true, 0x05) => self.host.cq_address(qid),
            (true, _) => self.host.sq_address(qid),
        };
        Command {
            opcode,
            dptr: [at | u64::from(misaligned) << 6, 0],
            cdw: [
                u32::from(size_z) << 16 | u32::from(qid),
                dword11,
                0,
                0,
                0,
                0,
            ],
            ..Command::default()
        }
    }

    /// Abort (5.1.1) succeeds whatever it finds; a held request may be aborted, and completes with
    /// that status then.
    fn abort(&mut self, held: bool, sqid: u16) -> Result<(), Failure> {
        let request = self.model.held.front().copied().filter(|_| held);
        let (sqid, cid) = match request {
            Some(cid) => (0, cid),
            None if self.model.sqs.contains_key(&sqid) => (sqid, 0xfff0),
            None => (0, 0xfff0),
        };
        let command = Command {
            opcode: 0x08,
            cdw: [u32::from(cid) << 16 | u32::from(sqid), 0, 0, 0, 0, 0],
            ..Command::default()
        };
        let own = self.host.put(0, command);
        self.host.ring(0);
        let (completion, others) = self.host.wait_admin(own)?;
        Verdict::success().judge(completion.status, 0)?;
        let aborted = completion.dw0 & 1 == 0;
        match (request, &others[..]) {
            (_, []) if !aborted => Ok(()),
            (Some(cid), [other]) if aborted => {
                self.model.held.pop_front();
                if (other.cid, other.status) == (cid, ABORT_REQUESTED) {
                    return Ok(());
                }
                Err(format!("{other:?} came for the aborted request {cid}"))
            }
            _ => Err(format!("aborted: {aborted}, and {others:?} came beside it")),
        }
    }
}

/// CNS in Dword 10, where FFFFh stands for the controller itself; CSI in Dword 11.
pub(super) fn identify(command: Command, cns: u8, csi: u8) -> Command {
    let controller = if cns == 0x1c { 0xffff_0000 } else { 0 };
    let mut command = command;
    command.cdw[0] = controller | u32::from(cns);
    command.cdw[1] = u32::from(csi) << 24;
    command
}

/// Bytes that an admin command transfers to the host.
fn data_len(admin: &Admin) -> usize {
    match admin {
        Admin::Identify { .. } | Admin::Odd { .. } => 4096,
        Admin::GetLog { dwords_z, .. } => 4 * (usize::from(*dwords_z) + 1),
        _ => 0,
    }
}

/// The same command without what the specification leaves open: NSID where it means nothing, and
/// which value is asked for where capabilities are.
fn settled(admin: &Admin) -> Admin {
    let mut admin = admin.clone();
    match &mut admin {
        Admin::GetFeature {
            fid,
            sel,
            nsid,
            which,
        } => {
            if *fid != 0x05 {
                *nsid = 0;
            }
            if *sel == 3 {
                (*nsid, *which) = (u32::from(*fid == 0x05), 0);
            }
        }
        Admin::Identify { cns, nsid, .. } if [0x01, 0x06, 0x1c].contains(cns) => *nsid = 0,
        _ => (),
    }
    admin
}

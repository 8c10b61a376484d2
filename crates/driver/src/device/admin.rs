//! Admin commands (Base 2.1, 5): one at a time, each waited for.

use memory::{Buffer, Iova};
use nvme_spec::command::{
    AbortCdw10, AbortDw0, CreateIoCqCdw11, CreateIoQueueCdw10, CreateIoSqCdw11, DeleteIoQueueCdw10,
    GetFeaturesCdw10, GetLogPageCdw10, GetLogPageCdw11, IdentifyCdw10, IdentifyCdw11,
    SetFeaturesCdw10,
};
use nvme_spec::event::EventDw0;
use nvme_spec::features::{FeatureId, NumberOfQueues, Select};
use nvme_spec::identify::lists::{NAMESPACE_IDS_MAX, NamespaceIdList, NamespaceIdentifierType};
use nvme_spec::identify::{Cns, IDENTIFY_SIZE, IdentifyController, IdentifyNamespace};
use nvme_spec::log::LogPageId;
use nvme_spec::opcode::{AdminOpcode, Csi};
use nvme_spec::{Cqe, Sqe};
use zerocopy::FromBytes;

use super::Device;
use crate::bus::Bus;
use crate::doorbell::ShadowBuffers;
use crate::io::Namespace;
use crate::{DataPointer, DriverError, QueuePair};

/// I/O queue pairs requested; the controller grants as many of them as it has.
const QUEUES_WANTED: u16 = 256;
/// Data of one Get Log Page; longer pages are read in pieces.
const LOG_PIECE_LEN: usize = 4096;

impl<B: Bus> Device<B> {
    /// Executes an admin command and waits for it. `data` is the target of the command's data
    /// pointer: at most two pages, from the start of the buffer.
    ///
    /// # Errors
    /// [`DriverError::Status`] when the command fails, [`DriverError::Timeout`],
    /// [`DriverError::ControllerFatal`] when that is why it timed out,
    /// [`DriverError::Gone`]. After a timeout the buffer is the controller's
    /// until the controller is reset.
    pub fn admin(&mut self, sqe: Sqe, data: Option<&Buffer>) -> Result<Cqe, DriverError> {
        let mut sqe = sqe;
        if let Some(buffer) = data {
            self.admin_pointer(buffer)?.put(&mut sqe);
        }
        let cid = self.submit_admin(sqe)?;
        let cqe = self.await_admin(cid, sqe.admin_opcode())?;
        DriverError::check(sqe.admin_opcode().name(), cqe.status.status())?;
        Ok(cqe)
    }

    fn admin_pointer(&self, buffer: &Buffer) -> Result<DataPointer, DriverError> {
        let len = u64::try_from(buffer.len()).expect("usize fits in 64 bits");
        let address = self.iova(buffer).0;
        let none = |_: u64, _: u64| unreachable!("no pages for lists are given");
        match crate::prp::build(address, len, 0, 0, none) {
            Ok(_) if self.bus.is_over_fabrics() => {
                let len = u32::try_from(len).expect("two pages at most");
                Ok(DataPointer::block(address, len))
            }
            Ok(prps) => Ok(prps.into()),
            Err(_) => Err(DriverError::Unsupported(format!(
                "an admin command transfers at most two pages (8192 bytes), not {len} bytes"
            ))),
        }
    }

    fn submit_admin(&mut self, sqe: Sqe) -> Result<u16, DriverError> {
        let admin = &mut self.enabled()?.admin;
        let cid = admin
            .submit(sqe)
            .map_err(|full| DriverError::Unsupported(format!("the admin queue is full: {full}")))?;
        admin.ring()?;
        Ok(cid)
    }

    fn await_admin(&mut self, cid: u16, opcode: AdminOpcode) -> Result<Cqe, DriverError> {
        let timeout = self.options.timeout;
        let deadline = self.enabled()?.admin.deadline(timeout);
        loop {
            if let Some(cqe) = self.poll_admin()?
                && cqe.cid == cid
            {
                return Ok(cqe);
            }
            if self.bus.now_ns() > deadline {
                // A controller that has died says more than that it is late.
                self.check()?;
                return Err(DriverError::Timeout {
                    what: opcode.name(),
                    after: timeout,
                });
            }
            self.enabled()?.admin.relax()?;
        }
    }

    /// Takes one completion of the admin queue. Completions of event requests are kept for later;
    /// those of aborted commands are dropped by the next caller that waits for another.
    fn poll_admin(&mut self) -> Result<Option<Cqe>, DriverError> {
        let enabled = self.enabled()?;
        enabled.admin.poll()?;
        let Some(cqe) = enabled.admin.next_completion() else {
            return Ok(None);
        };
        // Nothing may follow for long: the entry is given back at once.
        enabled.admin.ring()?;
        let requests = &mut enabled.event_requests;
        if let Some(at) = requests.iter().position(|&cid| cid == cqe.cid) {
            requests.remove(at);
            if cqe.status.status().is_success() {
                enabled.events.push_back(EventDw0::from(cqe.dw0));
            }
            return Ok(None);
        }
        Ok(Some(cqe))
    }

    /// Reads into a buffer of the driver's own, and copies the data from there.
    fn read_admin(&mut self, sqe: Sqe, data: &mut [u8]) -> Result<Cqe, DriverError> {
        let buffer = self.alloc(data.len().next_multiple_of(4))?;
        let result = self.admin(sqe, Some(&buffer));
        if let Err(DriverError::Timeout { .. }) = result {
            self.enabled()?.given_up.push(buffer);
            return result;
        }
        buffer.read_into(0, data);
        result
    }

    /// Identify, with any structure.
    ///
    /// # Errors
    /// As [`Self::admin`].
    pub fn identify(
        &mut self,
        cns: Cns,
        nsid: u32,
        data: &mut [u8; IDENTIFY_SIZE],
    ) -> Result<(), DriverError> {
        let sqe = Sqe {
            opcode: AdminOpcode::IDENTIFY.0,
            nsid,
            cdw10: IdentifyCdw10::new().with_cns(cns).into(),
            ..Sqe::default()
        };
        self.read_admin(sqe, data).map(drop)
    }

    fn identify_as<T: FromBytes>(&mut self, cns: Cns, nsid: u32) -> Result<Box<T>, DriverError> {
        const { assert!(size_of::<T>() == IDENTIFY_SIZE) };
        let mut data = [0; IDENTIFY_SIZE];
        self.identify(cns, nsid, &mut data)?;
        let structure = T::read_from_bytes(&data).expect("the sizes are equal");
        Ok(Box::new(structure))
    }

    /// I/O Command Set specific Identify Namespace (CNS 05h).
    ///
    /// # Errors
    /// As [`Self::admin`].
    pub fn identify_command_set<T: FromBytes>(
        &mut self,
        csi: Csi,
        nsid: u32,
    ) -> Result<Box<T>, DriverError> {
        const { assert!(size_of::<T>() == IDENTIFY_SIZE) };
        let mut data = [0; IDENTIFY_SIZE];
        let sqe = Sqe {
            opcode: AdminOpcode::IDENTIFY.0,
            nsid,
            cdw10: IdentifyCdw10::new()
                .with_cns(Cns::IO_COMMAND_SET_NAMESPACE)
                .into(),
            cdw11: IdentifyCdw11::new().with_csi(csi).into(),
            ..Sqe::default()
        };
        self.read_admin(sqe, &mut data)?;
        let structure = T::read_from_bytes(&data).expect("the sizes are equal");
        Ok(Box::new(structure))
    }

    /// Identify Controller.
    ///
    /// # Errors
    /// As [`Self::admin`].
    pub fn identify_controller(&mut self) -> Result<Box<IdentifyController>, DriverError> {
        self.identify_as(Cns::CONTROLLER, 0)
    }

    /// Identify Namespace.
    ///
    /// # Errors
    /// As [`Self::admin`].
    pub fn identify_namespace(&mut self, nsid: u32) -> Result<Box<IdentifyNamespace>, DriverError> {
        self.identify_as(Cns::NAMESPACE, nsid)
    }

    /// Size and block size of a namespace.
    ///
    /// # Errors
    /// As [`Self::admin`]; [`DriverError::Unsupported`] for an inactive
    /// namespace, or a format with metadata or blocks below 512 bytes.
    pub fn namespace(&mut self, nsid: u32) -> Result<Namespace, DriverError> {
        let identity = self.identify_namespace(nsid)?;
        described(nsid, &identity)
    }

    /// The command set of a namespace, from its identification descriptors (Base 2.1, 5.1.13.2.3):
    /// heads of four bytes, type and length, each before its identifier. NVM where none says
    /// otherwise.
    ///
    /// # Errors
    /// As [`Self::admin`]; [`DriverError::Status`] also by a drive that has no such descriptors.
    pub fn command_set(&mut self, nsid: u32) -> Result<Csi, DriverError> {
        let csi = self.descriptor::<1>(nsid, NamespaceIdentifierType::CSI)?;
        Ok(csi.map_or(Csi::NVM, |[csi]| Csi(csi)))
    }

    /// The UUID of a namespace; zeros where it has none.
    ///
    /// # Errors
    /// As [`Self::admin`], except for [`DriverError::Status`].
    pub fn uuid(&mut self, nsid: u32) -> Result<[u8; 16], DriverError> {
        match self.descriptor(nsid, NamespaceIdentifierType::UUID) {
            Ok(uuid) => Ok(uuid.unwrap_or_default()),
            Err(DriverError::Status { .. }) => Ok([0; 16]),
            Err(error) => Err(error),
        }
    }

    /// The first bytes of an identification descriptor of a namespace, if there is one of the type
    /// with so many.
    fn descriptor<const LEN: usize>(
        &mut self,
        nsid: u32,
        wanted: NamespaceIdentifierType,
    ) -> Result<Option<[u8; LEN]>, DriverError> {
        let mut list = [0; IDENTIFY_SIZE];
        self.identify(
            Cns::NAMESPACE_IDENTIFICATION_DESCRIPTOR_LIST,
            nsid,
            &mut list,
        )?;
        let mut rest = &list[..];
        while let [kind, len, _, _, tail @ ..] = rest {
            match NamespaceIdentifierType(*kind) {
                kind if kind == wanted => return Ok(tail.first_chunk().copied()),
                NamespaceIdentifierType(0) => break,
                _ => rest = tail.get(usize::from(*len)..).unwrap_or_default(),
            }
        }
        Ok(None)
    }

    /// Identifiers of the active namespaces, ascending.
    ///
    /// # Errors
    /// As [`Self::admin`]; [`DriverError::Broken`] for a list that does not
    /// ascend.
    pub fn active_namespaces(&mut self) -> Result<Vec<u32>, DriverError> {
        let mut all = Vec::new();
        let mut after = 0;
        loop {
            let list: Box<NamespaceIdList> =
                self.identify_as(Cns::ACTIVE_NAMESPACE_ID_LIST, after)?;
            let listed = list.nsids.iter().copied().take_while(|&nsid| nsid != 0);
            let mut count = 0;
            for nsid in listed {
                if nsid <= after {
                    return Err(DriverError::Broken(format!(
                        "its namespace list is not in ascending order: {nsid} follows {after}"
                    )));
                }
                after = nsid;
                all.push(nsid);
                count += 1;
            }
            if count < NAMESPACE_IDS_MAX {
                return Ok(all);
            }
        }
    }

    /// Reads a log page from `offset` bytes on: all of `data`, whose length is
    /// a multiple of four. Pieces of a page keep its event until the last.
    ///
    /// # Errors
    /// As [`Self::admin`]; [`DriverError::Unsupported`] for a length or an
    /// offset that is no multiple of four.
    pub fn get_log_page(
        &mut self,
        lid: LogPageId,
        nsid: u32,
        offset: u64,
        data: &mut [u8],
    ) -> Result<(), DriverError> {
        if !data.len().is_multiple_of(4) || !offset.is_multiple_of(4) {
            return Err(DriverError::Unsupported(format!(
                "a log page is read in dwords, not {} bytes at offset {offset}",
                data.len()
            )));
        }
        let pieces = data.len().div_ceil(LOG_PIECE_LEN);
        let mut at = offset;
        for (index, piece) in data.chunks_mut(LOG_PIECE_LEN).enumerate() {
            let dwords = u32::try_from(piece.len() / 4).expect("a piece is a page at most");
            let numdl = u16::try_from(dwords - 1).expect("a piece is a page at most");
            let [lower, upper] = split(at);
            let sqe = Sqe {
                opcode: AdminOpcode::GET_LOG_PAGE.0,
                nsid,
                cdw10: GetLogPageCdw10::new()
                    .with_lid(lid)
                    .with_rae(index + 1 < pieces)
                    .with_numdl(numdl)
                    .into(),
                cdw11: GetLogPageCdw11::new().into(),
                cdw12: lower,
                cdw13: upper,
                ..Sqe::default()
            };
            self.read_admin(sqe, piece)?;
            at = at.saturating_add(u64::from(dwords) * 4);
        }
        Ok(())
    }

    /// Get Features: completion Dword 0. Not for features with a data
    /// structure; use [`Self::admin`] for those.
    ///
    /// # Errors
    /// As [`Self::admin`].
    pub fn get_feature(
        &mut self,
        fid: FeatureId,
        select: Select,
        nsid: u32,
        cdw11: u32,
    ) -> Result<u32, DriverError> {
        let sqe = Sqe {
            opcode: AdminOpcode::GET_FEATURES.0,
            nsid,
            cdw10: GetFeaturesCdw10::new()
                .with_fid(fid)
                .with_sel(select)
                .into(),
            cdw11,
            ..Sqe::default()
        };
        Ok(self.admin(sqe, None)?.dw0)
    }

    /// Set Features, without saving: completion Dword 0.
    ///
    /// # Errors
    /// As [`Self::admin`].
    pub fn set_feature(
        &mut self,
        fid: FeatureId,
        nsid: u32,
        cdw11: u32,
    ) -> Result<u32, DriverError> {
        let sqe = Sqe {
            opcode: AdminOpcode::SET_FEATURES.0,
            nsid,
            cdw10: SetFeaturesCdw10::new().with_fid(fid).into(),
            cdw11,
            ..Sqe::default()
        };
        Ok(self.admin(sqe, None)?.dw0)
    }

    /// Asks the controller to abort a command; whether it did. The command
    /// completes in its own queue either way.
    ///
    /// # Errors
    /// As [`Self::admin`].
    pub fn abort(&mut self, sqid: u16, cid: u16) -> Result<bool, DriverError> {
        let sqe = Sqe {
            opcode: AdminOpcode::ABORT.0,
            cdw10: AbortCdw10::new().with_sqid(sqid).with_cid(cid).into(),
            ..Sqe::default()
        };
        Ok(!AbortDw0::from(self.admin(sqe, None)?.dw0).ianp())
    }

    /// As [`Self::abort`], without waiting for the answer: whether the command was
    /// aborted shows in its own queue.
    ///
    /// # Errors
    /// [`DriverError::Unsupported`] where the admin queue is full of commands
    /// without an answer; those of the bus.
    pub fn post_abort(&mut self, sqid: u16, cid: u16) -> Result<(), DriverError> {
        // Answers to those before make room.
        while self.poll_admin()?.is_some() {}
        self.submit_admin(Sqe {
            opcode: AdminOpcode::ABORT.0,
            cdw10: AbortCdw10::new().with_sqid(sqid).with_cid(cid).into(),
            ..Sqe::default()
        })
        .map(drop)
    }

    /// Leaves an Asynchronous Event Request with the controller. One slot of
    /// the admin queue stays free for commands.
    ///
    /// # Errors
    /// [`DriverError::Unsupported`] beyond the controller's limit (AERL) or the
    /// admin queue's depth; those of the bus.
    pub fn request_event(&mut self) -> Result<(), DriverError> {
        let enabled = self.enabled()?;
        let held = enabled.event_requests.len();
        let aerl = usize::from(enabled.aerl_z) + 1;
        let limit = aerl.min(usize::from(enabled.admin.depth()) - 1);
        if held >= limit {
            return Err(DriverError::Unsupported(format!(
                "{held} Asynchronous Event Requests are outstanding; the limit is {limit}"
            )));
        }
        let cid = self.submit_admin(Sqe {
            opcode: AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST.0,
            ..Sqe::default()
        })?;
        self.enabled()?.event_requests.push(cid);
        Ok(())
    }

    /// The next event, where there is one; does not wait. Each takes a request
    /// with it.
    ///
    /// # Errors
    /// Those of polling a queue pair.
    pub fn poll_event(&mut self) -> Result<Option<EventDw0>, DriverError> {
        self.poll_admin()?;
        Ok(self.enabled()?.events.pop_front())
    }

    /// Event requests that the controller holds.
    #[must_use]
    pub fn event_requests(&self) -> usize {
        self.enabled
            .as_ref()
            .map_or(0, |enabled| enabled.event_requests.len())
    }

    /// Asks for I/O queue pairs; how many there may be.
    pub(super) fn request_queues(&mut self) -> Result<u16, DriverError> {
        let wanted = NumberOfQueues::new()
            .with_nsq_z(QUEUES_WANTED - 1)
            .with_ncq_z(QUEUES_WANTED - 1);
        let granted = self.set_feature(FeatureId::NUMBER_OF_QUEUES, 0, wanted.into())?;
        let granted = NumberOfQueues::from(granted);
        // The controller may have more than were asked for.
        let pairs_z = granted.nsq_z().min(granted.ncq_z()).min(QUEUES_WANTED - 1);
        Ok(pairs_z + 1)
    }

    pub(super) fn configure_doorbell_buffer(
        &mut self,
        buffers: &ShadowBuffers,
    ) -> Result<(), DriverError> {
        let (Iova(prp1), Iova(prp2)) = buffers.iovas(super::MEMORY_AT);
        let sqe = Sqe {
            opcode: AdminOpcode::DOORBELL_BUFFER_CONFIG.0,
            prp1,
            prp2,
            ..Sqe::default()
        };
        self.admin(sqe, None).map(drop)
    }

    /// Creates both queues, or neither where the controller refuses one.
    pub(super) fn create_queues(&mut self, queue: &QueuePair<B>) -> Result<(), DriverError> {
        let cdw10 = CreateIoQueueCdw10::new()
            .with_qid(queue.qid())
            // A ring has one entry more than commands in flight.
            .with_qsize_z(queue.depth())
            .into();
        let vector = queue.interrupt_vector();
        let cq = Sqe {
            opcode: AdminOpcode::CREATE_IO_COMPLETION_QUEUE.0,
            prp1: queue.cq_iova().0,
            cdw10,
            cdw11: CreateIoCqCdw11::new()
                .with_pc(true)
                .with_ien(vector.is_some())
                .with_iv(vector.unwrap_or(0))
                .into(),
            ..Sqe::default()
        };
        self.admin(cq, None)?;
        let sq = Sqe {
            opcode: AdminOpcode::CREATE_IO_SUBMISSION_QUEUE.0,
            prp1: queue.sq_iova().0,
            cdw10,
            cdw11: CreateIoSqCdw11::new()
                .with_pc(true)
                .with_cqid(queue.qid())
                .into(),
            ..Sqe::default()
        };
        let created = self.admin(sq, None);
        if created.as_ref().is_err_and(DriverError::is_refusal) {
            self.delete_queue(AdminOpcode::DELETE_IO_COMPLETION_QUEUE, queue.qid())?;
        }
        created.map(drop)
    }

    pub(super) fn delete_queues(&mut self, qid: u16) -> Result<(), DriverError> {
        self.delete_queue(AdminOpcode::DELETE_IO_SUBMISSION_QUEUE, qid)?;
        self.delete_queue(AdminOpcode::DELETE_IO_COMPLETION_QUEUE, qid)
    }

    fn delete_queue(&mut self, opcode: AdminOpcode, qid: u16) -> Result<(), DriverError> {
        let sqe = Sqe {
            opcode: opcode.0,
            cdw10: DeleteIoQueueCdw10::new().with_qid(qid).into(),
            ..Sqe::default()
        };
        self.admin(sqe, None).map(drop)
    }
}

/// The lower and the upper half.
fn split(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    [
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    ]
}

/// The description of a namespace from Identify Namespace, if this crate supports its format.
fn described(nsid: u32, identity: &IdentifyNamespace) -> Result<Namespace, DriverError> {
    let unsupported = |why: String| Err(DriverError::Unsupported(why));
    if identity.nsze == 0 {
        return unsupported(format!("the drive has no active namespace {nsid}"));
    }
    let index = usize::from(identity.flbas.format_index());
    let Some(format) = identity.lbaf.get(index) else {
        return unsupported(format!(
            "namespace {nsid} reports LBA format {index}, which does not exist"
        ));
    };
    if format.ms() != 0 || !(9..=16).contains(&format.lbads()) {
        return unsupported(format!(
            "namespace {nsid} has blocks of 2^{} bytes with {} bytes of metadata, which is not supported",
            format.lbads(),
            format.ms()
        ));
    }
    Ok(Namespace {
        nsid,
        blocks: identity.nsze,
        block_len: 1 << format.lbads(),
    })
}

#[cfg(test)]
mod tests {
    use nvme_spec::identify::namespace::{Flbas, LbaFormat};
    use zerocopy::FromZeros;

    use super::*;

    /// A namespace of 100 blocks in its second format, of these bytes of data and of metadata.
    fn namespace(lbads: u8, ms: u16) -> Result<Namespace, DriverError> {
        let mut identity = IdentifyNamespace::new_zeroed();
        identity.nsze = 100;
        identity.lbaf[0] = LbaFormat::new().with_lbads(9);
        identity.lbaf[1] = LbaFormat::new().with_lbads(lbads).with_ms(ms);
        identity.flbas = Flbas::from(1);
        described(7, &identity)
    }

    #[test]
    fn a_format_with_metadata_is_none_for_this() {
        let error = namespace(12, 8).unwrap_err().to_string();
        assert!(error.contains("8 bytes of metadata"), "{error}");
        for lbads in [0, 8, 17, 255] {
            assert!(namespace(lbads, 0).is_err(), "{lbads}");
        }
        let good = namespace(12, 0).unwrap();
        assert_eq!((good.nsid, good.blocks, good.block_len), (7, 100, 4096));
    }
}

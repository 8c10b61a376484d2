//! A host of a drive, for what the program's own commands do not do.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use driver::bus::Bus;
use driver::bus::place::AnyBus;
use driver::bus::vfio_user::VfioUser;
use driver::{Device, DriverError, Options};
use nvme_spec::features::{FeatureId, Select};
use nvme_spec::log::LogPageId;
use nvme_spec::opcode::{AdminOpcode, NvmOpcode};
use nvme_spec::{Sqe, Status};

use crate::world::{BOUND, World};

pub(crate) struct Host<B: Bus = VfioUser>(Device<B>);

impl Host {
    /// Attaches to a controller at that socket, enables it, and asks it for an event when its
    /// namespaces change.
    pub(crate) fn attach(world: &World, socket: &str) -> Self {
        let path: PathBuf = world.path(socket);
        Host(Device::connect(path, &Options::default()).unwrap()).enabled()
    }
}

impl Host<AnyBus> {
    /// The same, at any address; the error where no controller can be had.
    pub(crate) fn at(target: &str) -> Result<Self, DriverError> {
        let device = Device::at(&target.parse().unwrap(), &Options::default())?;
        Ok(Host(device).enabled())
    }
}

impl<B: Bus> Host<B> {
    fn enabled(mut self) -> Self {
        self.0.enable().unwrap();
        // Namespace Attribute Notices (Base 2.1, 5.1.25.1.8)
        let config = FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION;
        self.0.set_feature(config, 0, 1 << 8).unwrap();
        self
    }

    pub(crate) fn device(&mut self) -> &mut Device<B> {
        &mut self.0
    }

    /// The controller's status register, CSTS (Base 2.1, 3.1.4.6).
    pub(crate) fn status(&self) -> u32 {
        self.0.bus().read32(0x1c).unwrap()
    }

    /// The namespaces that are attached.
    pub(crate) fn active(&mut self) -> Vec<u32> {
        self.0.active_namespaces().unwrap()
    }

    /// The size of a namespace and of its blocks, in bytes.
    pub(crate) fn size(&mut self, nsid: u32) -> (u64, u32) {
        let namespace = self.0.namespace(nsid).unwrap();
        (namespace.len(), namespace.block_len)
    }

    /// Leaves an Asynchronous Event Request.
    pub(crate) fn listen(&mut self) {
        self.0.request_event().unwrap();
    }

    /// Waits for an event, which must say that namespaces changed; which ones (Base 2.1,
    /// 5.1.12.1.5).
    pub(crate) fn changed(&mut self) -> Vec<u32> {
        let deadline = Instant::now() + BOUND;
        let event = loop {
            if let Some(event) = self.0.poll_event().unwrap() {
                break event;
            }
            assert!(Instant::now() < deadline, "no event came");
            thread::sleep(Duration::from_millis(1));
        };
        // a notice (2), Attached Namespace Attribute Changed (0), log page 04h
        assert_eq!(u32::from(event), 0x0004_0002);
        let mut page = [0; 4096];
        self.0
            .get_log_page(
                LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST,
                u32::MAX,
                0,
                &mut page,
            )
            .unwrap();
        let words = page
            .chunks(4)
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()));
        words.take_while(|nsid| *nsid != 0).collect()
    }

    /// Sets a feature and has it saved.
    pub(crate) fn save_feature(&mut self, fid: FeatureId, value: u32) {
        self.try_save_feature(fid, value).unwrap();
    }

    /// Sets a feature and has it saved; what the command ended with where it failed.
    pub(crate) fn try_save_feature(&mut self, fid: FeatureId, value: u32) -> Result<(), Status> {
        let sqe = Sqe {
            opcode: AdminOpcode::SET_FEATURES.0,
            // Save (Base 2.1, figure 399)
            cdw10: 1 << 31 | u32::from(fid.0),
            cdw11: value,
            ..Sqe::default()
        };
        match self.0.admin(sqe, None) {
            Ok(_) => Ok(()),
            Err(DriverError::Status { status, .. }) => Err(status),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn feature(&mut self, fid: FeatureId) -> u32 {
        self.0.get_feature(fid, Select::CURRENT, 0, 0).unwrap()
    }

    fn command(
        &mut self,
        opcode: AdminOpcode,
        nsid: u32,
        dwords: (u32, u32),
        data: Option<&[u8]>,
    ) -> u32 {
        let buffer = data.map(|bytes| {
            let buffer = self.0.alloc(4096).unwrap();
            buffer.write_from(0, bytes);
            buffer
        });
        let sqe = Sqe {
            opcode: opcode.0,
            nsid,
            cdw10: dwords.0,
            cdw11: dwords.1,
            ..Sqe::default()
        };
        self.0.admin(sqe, buffer.as_ref()).unwrap().dw0
    }

    /// Creates a namespace of that many blocks of 4096 bytes; its identifier (Base 2.1, 5.1.21; NVM
    /// 1.1, figure 111).
    pub(crate) fn create(&mut self, blocks: u64, shared: bool) -> u32 {
        let mut page = [0; 384];
        page[0..8].copy_from_slice(&blocks.to_le_bytes());
        page[8..16].copy_from_slice(&blocks.to_le_bytes());
        page[26] = self.format_index(u32::MAX, 4096);
        page[30] = u8::from(shared);
        self.command(AdminOpcode::NAMESPACE_MANAGEMENT, 0, (0, 0), Some(&page))
    }

    /// Deletes a namespace.
    pub(crate) fn delete(&mut self, nsid: u32) {
        self.command(AdminOpcode::NAMESPACE_MANAGEMENT, nsid, (1, 0), None);
    }

    /// Attaches a namespace to a controller: a list of one (Base 2.1, 5.1.20 and figure 137).
    pub(crate) fn attach_namespace(&mut self, nsid: u32, cntlid: u16) {
        let mut list = [0; 4];
        list[0] = 1;
        list[2..4].copy_from_slice(&cntlid.to_le_bytes());
        self.command(AdminOpcode::NAMESPACE_ATTACHMENT, nsid, (0, 0), Some(&list));
    }

    /// Formats a namespace with blocks of that size.
    pub(crate) fn format(&mut self, nsid: u32, block_len: u32) {
        let index = self.format_index(nsid, block_len);
        self.command(AdminOpcode::FORMAT_NVM, nsid, (index.into(), 0), None);
    }

    /// The index of the format with blocks of that size, as Identify has it for a namespace, or for
    /// all of them.
    fn format_index(&mut self, nsid: u32, block_len: u32) -> u8 {
        let common = self.0.identify_namespace(nsid).unwrap();
        let shift = block_len.ilog2();
        let at = common
            .lbaf
            .iter()
            .position(|f| u32::from(f.lbads()) == shift);
        u8::try_from(at.unwrap()).unwrap()
    }

    /// The block sizes that a namespace can be formatted to.
    pub(crate) fn formats(&mut self, nsid: u32) -> Vec<u32> {
        let its = self.0.identify_namespace(nsid).unwrap();
        let shifts = its.lbaf.iter().map(|format| u32::from(format.lbads()));
        shifts.filter(|s| *s > 0).map(|s| 1 << s).collect()
    }

    /// Fills a block with a byte.
    pub(crate) fn fill(&mut self, nsid: u32, lba: u64, byte: u8) {
        let namespace = self.0.namespace(nsid).unwrap();
        let mut queue = self.0.create_queue_pair(4, false).unwrap();
        let len = usize::try_from(namespace.block_len).unwrap();
        let buffer = self.0.alloc(len).unwrap();
        buffer.write_from(0, &vec![byte; len]);
        queue.write(&namespace, lba, 1, &buffer, true).unwrap();
        self.0.delete_queue_pair(queue).unwrap();
    }

    /// Reads a block.
    pub(crate) fn block(&mut self, nsid: u32, lba: u64) -> Vec<u8> {
        let namespace = self.0.namespace(nsid).unwrap();
        let mut queue = self.0.create_queue_pair(4, false).unwrap();
        let len = usize::try_from(namespace.block_len).unwrap();
        let buffer = self.0.alloc(len).unwrap();
        queue.read(&namespace, lba, 1, &buffer).unwrap();
        let mut read = vec![0; len];
        buffer.read_into(0, &mut read);
        self.0.delete_queue_pair(queue).unwrap();
        read
    }

    /// How long it takes to read the first block, alone in its queue.
    pub(crate) fn time_of_read(&mut self, nsid: u32) -> Duration {
        let namespace = self.0.namespace(nsid).unwrap();
        let mut queue = self.0.create_queue_pair(4, false).unwrap();
        let buffer = self.0.alloc(4096).unwrap();
        let since = Instant::now();
        queue.read(&namespace, 0, 1, &buffer).unwrap();
        let time = since.elapsed();
        self.0.delete_queue_pair(queue).unwrap();
        time
    }

    /// Sets the host's identifier, of 64 bits (Base 2.1, 5.1.25.1.28).
    pub(crate) fn identify_as(&mut self, identifier: u64) {
        let fid = FeatureId::HOST_IDENTIFIER.0.into();
        let bytes = identifier.to_le_bytes();
        self.command(AdminOpcode::SET_FEATURES, 0, (fid, 0), Some(&bytes));
    }

    /// Executes a reservation command with two keys (Base 2.1, 7.3 to 7.6); its status.
    pub(crate) fn reserve(&mut self, opcode: NvmOpcode, dword: u32, keys: [u64; 2]) -> Status {
        let mut queue = self.0.create_queue_pair(4, false).unwrap();
        let buffer = self.0.alloc(4096).unwrap();
        let bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
        buffer.write_from(0, &bytes);
        let mut sqe = Sqe {
            opcode: opcode.0,
            nsid: 1,
            cdw10: dword,
            ..Sqe::default()
        };
        // Release has the current key only.
        let len = if opcode == NvmOpcode::RESERVATION_RELEASE {
            8
        } else {
            16
        };
        let cid = queue.next_cid().unwrap();
        queue.pointer(cid, &buffer, 0, len).unwrap().put(&mut sqe);
        let status = match queue.run("a reservation command", sqe) {
            Ok(_) => Status::SUCCESSFUL_COMPLETION,
            Err(DriverError::Status { status, .. }) => status,
            Err(error) => panic!("{error}"),
        };
        self.0.delete_queue_pair(queue).unwrap();
        status
    }

    /// The status of a write to the first block.
    pub(crate) fn write_status(&mut self) -> Status {
        let namespace = self.0.namespace(1).unwrap();
        let mut queue = self.0.create_queue_pair(4, false).unwrap();
        let buffer = self.0.alloc(4096).unwrap();
        let status = match queue.write(&namespace, 0, 1, &buffer, false) {
            Ok(_) => Status::SUCCESSFUL_COMPLETION,
            Err(DriverError::Status { status, .. }) => status,
            Err(error) => panic!("{error}"),
        };
        self.0.delete_queue_pair(queue).unwrap();
        status
    }
}

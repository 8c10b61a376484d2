//! A host of a drive, for what the program's own commands do not do.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use driver::{Device, Options, bus::vfio_user::VfioUser};
use nvme_spec::{
    Sqe,
    features::{FeatureId, Select},
    log::LogPageId,
    opcode::AdminOpcode,
};

use crate::world::{BOUND, World};

pub(crate) struct Host(Device<VfioUser>);

impl Host {
    /// Attaches to a controller at that socket and enables it; it is told when its namespaces change.
    pub(crate) fn attach(world: &World, socket: &str) -> Self {
        let path: PathBuf = world.path(socket);
        let mut device = Device::connect(path, &Options::default()).unwrap();
        device.enable().unwrap();
        let mut host = Host(device);
        // Namespace Attribute Notices (Base 2.1, 5.1.25.1.8)
        let config = FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION;
        host.0.set_feature(config, 0, 1 << 8).unwrap();
        host
    }

    pub(crate) fn device(&mut self) -> &mut Device<VfioUser> {
        &mut self.0
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

    /// Waits for an event, which must say that namespaces changed; which ones (Base 2.1, 5.1.12.1.5).
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
        let sqe = Sqe {
            opcode: AdminOpcode::SET_FEATURES.0,
            // Save (Base 2.1, figure 399)
            cdw10: 1 << 31 | u32::from(fid.0),
            cdw11: value,
            ..Sqe::default()
        };
        self.0.admin(sqe, None).unwrap();
    }

    pub(crate) fn feature(&mut self, fid: FeatureId) -> u32 {
        self.0.get_feature(fid, Select::CURRENT, 0, 0).unwrap()
    }
}

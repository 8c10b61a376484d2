//! Several hosts, each with a controller of one subsystem, on media that answer at once.

use nvme_spec::Sqe;
use port::testing::{Manner, TestMedium};
use port::ticket::OwnerKey;
use port::{ChannelId, Channels, MediumTraits};
use subsystem::{Pool, Subsystem, SubsystemConfig};

use super::rig::{OK, Rig, code, config};
use crate::controller::ControllerConfig;

pub(super) const NS_MANAGEMENT: u8 = 0x0d;
pub(super) const NS_ATTACHMENT: u8 = 0x15;
pub(super) const FORMAT: u8 = 0x80;
pub(super) const SANITIZE: u8 = 0x84;

// Statuses: type and code (Base 2.1, figures 97 and 98).
pub(super) const SANITIZE_FAILED: u16 = 0x01c;
pub(super) const SANITIZE_IN_PROGRESS: u16 = 0x01d;
pub(super) const FORMAT_IN_PROGRESS: u16 = 0x084;
pub(super) const INVALID_FORMAT: u16 = 0x10a;
pub(super) const INSUFFICIENT_CAPACITY: u16 = 0x115;
pub(super) const IDENTIFIER_UNAVAILABLE: u16 = 0x116;
pub(super) const ALREADY_ATTACHED: u16 = 0x118;
pub(super) const IS_PRIVATE: u16 = 0x119;
pub(super) const NOT_ATTACHED: u16 = 0x11a;
pub(super) const THIN_PROVISIONING: u16 = 0x11b;
pub(super) const LIST_INVALID: u16 = 0x11c;
pub(super) const COMMAND_SET_NOT_SUPPORTED: u16 = 0x129;

/// Hosts with a controller each. The subsystem and the media are where the last one looked at is.
pub(super) struct World {
    rigs: Vec<Rig>,
    home: usize,
}

/// A pool on the medium behind `channel`.
pub(super) fn pool(channel: u16, bytes: u64) -> Pool {
    Pool {
        medium: format!("medium {channel}"),
        channel: ChannelId(channel),
        bytes,
        traits: MediumTraits {
            deallocate: true,
            ..MediumTraits::default()
        },
        set: None,
        min_lba_bytes: 512,
        max_lba_bytes: 4096,
    }
}

fn nobody() -> Subsystem {
    Subsystem::new(SubsystemConfig::with_namespaces(1, [])).unwrap()
}

impl World {
    /// Of so many hosts, all enabled, and two media of so many bytes, full of AAh.
    pub(super) fn new(hosts: usize, subsystem: SubsystemConfig, medium_bytes: u64) -> Self {
        let config = |number| ControllerConfig {
            name: format!("controller {number}"),
            ..config()
        };
        Self::with((0..hosts).map(config), subsystem, medium_bytes)
    }

    /// As [`World::new`], of a host for each of these controllers.
    pub(super) fn with(
        configs: impl IntoIterator<Item = ControllerConfig>,
        subsystem: SubsystemConfig,
        medium_bytes: u64,
    ) -> Self {
        let mut subsystem = Subsystem::new(subsystem).unwrap();
        subsystem.set_key(OwnerKey::subsystem(3));
        let mut rigs: Vec<Rig> = Vec::new();
        for config in configs {
            let mut rig = Rig::in_subsystem(config, std::mem::replace(&mut subsystem, nobody()));
            std::mem::swap(&mut rig.subsystem, &mut subsystem);
            rigs.push(rig);
        }
        let hosts = rigs.len();
        let mut channels = Channels::new();
        for _ in 0..2 {
            let mut medium = TestMedium::new(medium_bytes as usize, Manner::Synchronous);
            medium.bytes.fill(0xaa);
            assert!(channels.insert(medium).is_ok());
        }
        (rigs[0].subsystem, rigs[0].channels) = (subsystem, channels);
        let mut world = World { rigs, home: 0 };
        for host in 0..hosts {
            world.at(host).enable();
        }
        world
    }

    /// A host, with the subsystem and the media.
    pub(super) fn at(&mut self, host: usize) -> &mut Rig {
        if host != self.home {
            let pair = self.rigs.get_disjoint_mut([host, self.home]);
            let [to, from] = pair.unwrap();
            std::mem::swap(&mut to.subsystem, &mut from.subsystem);
            std::mem::swap(&mut to.channels, &mut from.channels);
            self.home = host;
        }
        &mut self.rigs[host]
    }

    pub(super) fn subsystem(&mut self) -> &mut Subsystem {
        let home = self.home;
        &mut self.at(home).subsystem
    }

    pub(super) fn medium(&mut self, id: u16) -> &mut TestMedium {
        let home = self.home;
        self.at(home).channels.get_mut(ChannelId(id)).unwrap()
    }

    /// One turn of every host.
    pub(super) fn turn(&mut self) {
        for host in 0..self.rigs.len() {
            self.at(host).turn();
        }
    }

    /// Runs an admin command of a host to its end: its status, and Dword 0.
    pub(super) fn admin(&mut self, host: usize, sqe: Sqe) -> (u16, u32) {
        let cid = self.at(host).submit(sqe);
        for _ in 0..64 {
            self.turn();
            if let Some(cqe) = self.at(host).reap() {
                assert_eq!(cqe.cid, cid);
                return (code(&cqe), cqe.dw0);
            }
        }
        panic!("admin command {:#x} was not answered", sqe.opcode);
    }

    /// Namespace Management, Create: the identifier.
    pub(super) fn create(&mut self, host: usize, fields: Fields) -> Result<u32, u16> {
        self.create_of(host, fields, 0)
    }

    pub(super) fn create_of(&mut self, host: usize, fields: Fields, csi: u32) -> Result<u32, u16> {
        let rig = self.at(host);
        rig.host.write(rig.data_page(), &fields.bytes());
        let sqe = Sqe {
            cdw11: csi << 24,
            ..rig.with_data(NS_MANAGEMENT)
        };
        match self.admin(host, sqe) {
            (OK, nsid) => Ok(nsid),
            (status, _) => Err(status),
        }
    }

    pub(super) fn delete(&mut self, host: usize, nsid: u32) -> u16 {
        let sqe = Sqe {
            opcode: NS_MANAGEMENT,
            nsid,
            cdw10: 1,
            ..Sqe::default()
        };
        self.admin(host, sqe).0
    }

    fn attachment(&mut self, host: usize, nsid: u32, ids: &[u16], select: u32) -> u16 {
        let mut list = vec![0; 4096];
        list[..2].copy_from_slice(&(ids.len() as u16).to_le_bytes());
        for (at, id) in ids.iter().enumerate() {
            list[2 + 2 * at..4 + 2 * at].copy_from_slice(&id.to_le_bytes());
        }
        let rig = self.at(host);
        rig.host.write(rig.data_page(), &list);
        let sqe = Sqe {
            nsid,
            cdw10: select,
            ..rig.with_data(NS_ATTACHMENT)
        };
        self.admin(host, sqe).0
    }

    pub(super) fn attach(&mut self, host: usize, nsid: u32, ids: &[u16]) -> u16 {
        self.attachment(host, nsid, ids, 0)
    }

    pub(super) fn detach(&mut self, host: usize, nsid: u32, ids: &[u16]) -> u16 {
        self.attachment(host, nsid, ids, 1)
    }

    pub(super) fn format(&mut self, host: usize, nsid: u32, cdw10: u32) -> u16 {
        let sqe = Sqe {
            opcode: FORMAT,
            nsid,
            cdw10,
            ..Sqe::default()
        };
        self.admin(host, sqe).0
    }

    /// Identifiers that Identify lists: CNS 02h is active, 10h allocated ones.
    pub(super) fn listed(&mut self, host: usize, cns: u32) -> Vec<u32> {
        let page = self.at(host).identify(cns, 0, 0).unwrap();
        let ids = page
            .chunks_exact(4)
            .map(|id| u32::from_le_bytes(id.try_into().unwrap()));
        ids.take_while(|id| *id != 0).collect()
    }
}

/// Data of a host that creates a namespace (NVM 1.1, 4.1.6).
#[derive(Clone, Copy)]
pub(super) struct Fields {
    pub(super) nsze: u64,
    pub(super) ncap: u64,
    pub(super) flbas: u8,
    pub(super) dps: u8,
    pub(super) nmic: u8,
    pub(super) anagrpid: u32,
    pub(super) nvmsetid: u16,
    pub(super) endgid: u16,
}

impl Fields {
    /// Of so many blocks of 512 bytes, private.
    pub(super) fn new(blocks: u64) -> Self {
        Fields {
            nsze: blocks,
            ncap: blocks,
            flbas: 0,
            dps: 0,
            nmic: 0,
            anagrpid: 0,
            nvmsetid: 0,
            endgid: 0,
        }
    }

    pub(super) fn shared(blocks: u64) -> Self {
        Fields {
            nmic: 1,
            ..Self::new(blocks)
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[..8].copy_from_slice(&self.nsze.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.ncap.to_le_bytes());
        (bytes[26], bytes[29], bytes[30]) = (self.flbas, self.dps, self.nmic);
        bytes[92..96].copy_from_slice(&self.anagrpid.to_le_bytes());
        bytes[100..102].copy_from_slice(&self.nvmsetid.to_le_bytes());
        bytes[102..104].copy_from_slice(&self.endgid.to_le_bytes());
        bytes
    }
}

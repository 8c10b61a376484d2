//! The example with a drive of each kind: all in one process, a host at each, all at the same time.

use std::path::Path;
use std::time::Instant;

use driver::bus::vfio_user::VfioUser;
use driver::io::Namespace;
use driver::key_value::{Dialect, Keys, Rule};
use driver::{Device, DriverError, Options, QueuePair};
use memory::Buffer;
use nvme_spec::command::slba_cdw10_11;
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::zoned::{
    ReportingOption, ZoneAppendCdw12, ZoneDescriptor, ZoneReceiveAction, ZoneReceiveCdw13,
    ZoneReportHeader, ZoneSendAction, ZoneSendCdw13, ZoneState, ZonedOpcode,
};
use nvme_spec::{Sqe, Status};
use zerocopy::FromBytes;

use crate::world::{Server, World};

/// The example, as it lies in the source tree.
const EXAMPLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/one-of-each.toml"
);
const NAMES: [&str; 7] = [
    "nothing", "memory", "disk", "optane", "flash", "zones", "pairs",
];
/// Those whose blocks hold what is written.
const BLOCKS: [&str; 4] = ["memory", "disk", "optane", "flash"];
const BLOCK: usize = 4096;
/// Blocks of a zone of 128 MiB, and those of its 96 MiB that can be written.
const ZONE: u64 = 32_768;
const ZONE_CAPACITY: u64 = 24_576;
const ZONES: u64 = 32;

fn serve(world: &World) -> Server {
    world.serve(&["--config", EXAMPLE])
}

/// A host of one of the drives.
pub(crate) struct Drive {
    device: Device<VfioUser>,
    pub(crate) queue: QueuePair<VfioUser>,
    pub(crate) buffer: Buffer,
}

impl Drive {
    pub(crate) fn attach(world: &World, name: &str) -> Self {
        let options = Options {
            memory_len: 16 << 20,
            command_sets: driver::CommandSets::All,
            ..Options::default()
        };
        let socket = world.path(&format!("{name}.sock"));
        let mut device = Device::connect(socket, &options).unwrap();
        device.enable().unwrap();
        assert_eq!(device.active_namespaces().unwrap(), [1], "{name}");
        let queue = device.create_queue_pair(8, false).unwrap();
        let buffer = device.alloc(1 << 16).unwrap();
        Drive {
            device,
            queue,
            buffer,
        }
    }

    fn all(world: &World) -> [Self; NAMES.len()] {
        NAMES.map(|name| Drive::attach(world, name))
    }

    fn namespace(&mut self) -> Namespace {
        self.device.namespace(1).unwrap()
    }

    pub(crate) fn write(&mut self, lba: u64, bytes: &[u8]) -> Result<(), DriverError> {
        let namespace = Namespace {
            nsid: 1,
            blocks: u64::MAX,
            block_len: BLOCK as u32,
        };
        self.buffer.write_from(0, bytes);
        let blocks = (bytes.len() / BLOCK) as u32;
        let done = self
            .queue
            .write(&namespace, lba, blocks, &self.buffer, false);
        done.map(drop)
    }

    pub(crate) fn read(&mut self, lba: u64, blocks: usize) -> Vec<u8> {
        let namespace = self.namespace();
        self.buffer.write_from(0, &vec![0xa5; blocks * BLOCK]);
        self.queue
            .read(&namespace, lba, blocks as u32, &self.buffer)
            .unwrap();
        let mut read = vec![0; blocks * BLOCK];
        self.buffer.read_into(0, &mut read);
        read
    }

    /// Appends to a zone; the first block that was written.
    pub(crate) fn append(&mut self, zslba: u64, bytes: &[u8]) -> Result<u64, DriverError> {
        self.buffer.write_from(0, bytes);
        let (cdw10, cdw11) = slba_cdw10_11(zslba);
        let sqe = Sqe {
            opcode: ZonedOpcode::ZONE_APPEND.0,
            nsid: 1,
            cdw10,
            cdw11,
            cdw12: ZoneAppendCdw12::new()
                .with_nlb_z((bytes.len() / BLOCK - 1) as u16)
                .into(),
            ..Sqe::default()
        };
        let len = bytes.len() as u32;
        let cqe = self.queue.run_with("Zone Append", sqe, &self.buffer, len)?;
        Ok(u64::from(cqe.dw1) << 32 | u64::from(cqe.dw0))
    }

    /// Its admin commands.
    pub(crate) fn device(&mut self) -> &mut Device<VfioUser> {
        &mut self.device
    }

    /// Reads a block, or says why not.
    pub(crate) fn try_read(&mut self, lba: u64) -> Result<(), DriverError> {
        let namespace = self.namespace();
        let read = self.queue.read(&namespace, lba, 1, &self.buffer);
        read.map(drop)
    }

    pub(crate) fn send(&mut self, zslba: u64, action: ZoneSendAction) {
        self.try_send(zslba, action).unwrap();
    }

    pub(crate) fn try_send(
        &mut self,
        zslba: u64,
        action: ZoneSendAction,
    ) -> Result<(), DriverError> {
        let (cdw10, cdw11) = slba_cdw10_11(zslba);
        let sqe = Sqe {
            opcode: ZonedOpcode::ZONE_MANAGEMENT_SEND.0,
            nsid: 1,
            cdw10,
            cdw11,
            cdw13: ZoneSendCdw13::new().with_zsa(action).into(),
            ..Sqe::default()
        };
        self.queue.run("Zone Management Send", sqe).map(drop)
    }

    /// The zone at that block, and how many zones the drive has from there on.
    pub(crate) fn zone(&mut self, zslba: u64) -> (ZoneDescriptor, u64) {
        const LEN: usize = size_of::<ZoneReportHeader>() + size_of::<ZoneDescriptor>();
        let (cdw10, cdw11) = slba_cdw10_11(zslba);
        let sqe = Sqe {
            opcode: ZonedOpcode::ZONE_MANAGEMENT_RECEIVE.0,
            nsid: 1,
            cdw10,
            cdw11,
            cdw12: LEN as u32 / 4 - 1,
            cdw13: ZoneReceiveCdw13::new()
                .with_zra(ZoneReceiveAction::REPORT)
                .with_zrasf(ReportingOption::ALL)
                .into(),
            ..Sqe::default()
        };
        self.queue
            .run_with("Zone Management Receive", sqe, &self.buffer, LEN as u32)
            .unwrap();
        let mut report = [0; LEN];
        self.buffer.read_into(0, &mut report);
        let (header, rest) = ZoneReportHeader::read_from_prefix(&report).unwrap();
        let zone = ZoneDescriptor::read_from_bytes(rest).unwrap();
        (zone, header.number_of_zones)
    }

    pub(crate) fn flush(&mut self) {
        let flush = Sqe {
            opcode: NvmOpcode::FLUSH.0,
            nsid: 1,
            ..Sqe::default()
        };
        self.queue.run("Flush", flush).unwrap();
    }

    /// The median of some reads of a block, in nanoseconds.
    fn median_read_ns(&mut self) -> u128 {
        let namespace = self.namespace();
        let time = |_| {
            let since = Instant::now();
            self.queue.read(&namespace, 0, 1, &self.buffer).unwrap();
            since.elapsed().as_nanos()
        };
        let mut times: Vec<u128> = (0..51).map(time).collect();
        times.sort_unstable();
        times[times.len() / 2]
    }
}

/// Two blocks that no other drive has.
pub(crate) fn pattern(drive: usize) -> Vec<u8> {
    let byte = |at: usize| (at * 31 + at / 253 + drive * 77) as u8;
    (0..2 * BLOCK).map(byte).collect()
}

#[test]
fn one_process_serves_a_drive_of_each_kind_to_hosts_at_the_same_time() {
    let world = World::new();
    let server = serve(&world);
    let mut drives = Drive::all(&world);
    let inventory = world.inventory();
    let attached = inventory["controllers"].as_array().unwrap();
    assert_eq!(attached.len(), NAMES.len());
    assert!(
        attached.iter().all(|c| c["attached"] == true),
        "{inventory:#}"
    );

    let last = 1 << 16;
    for (number, drive) in drives.iter_mut().enumerate().take(5) {
        drive.write(7, &pattern(number)).unwrap();
        drive.write(last, &pattern(number + 100)).unwrap();
    }
    for (number, name) in NAMES.into_iter().enumerate().take(5) {
        let wanted = if BLOCKS.contains(&name) {
            [pattern(number), pattern(number + 100)]
        } else {
            [vec![0xa5; 2 * BLOCK], vec![0xa5; 2 * BLOCK]]
        };
        let read = [7, last].map(|lba| drives[number].read(lba, 2));
        assert!(read == wanted, "{name} holds something else");
    }
    use_zones(&mut drives[5]);
    use_pairs(&mut drives[6]);
    drop(drives);
    server.stop();
    check_kept(&world);
}

/// After a clean stop files hold what was written, and memory nothing.
fn check_kept(world: &World) {
    let server = serve(world);
    let mut drives = Drive::all(world);
    for (number, name) in NAMES.into_iter().enumerate().take(5) {
        let wanted = match name {
            "disk" | "flash" => pattern(number),
            "nothing" => continue,
            _ => vec![0; 2 * BLOCK],
        };
        assert!(drives[number].read(7, 2) == wanted, "{name}");
    }
    assert!(drives[5].read(3 * ZONE, 2) == pattern(8));
    let zones = [0, 3].map(|zone| drives[5].zone(zone * ZONE).0);
    let states = zones.map(|zone| (zone.wp, zone.state.zs()));
    // A zone that was open is closed.
    let closed = (3 * ZONE + 2, ZoneState::CLOSED);
    assert_eq!(states, [(0, ZoneState::EMPTY), closed]);
    drop(drives);
    server.stop();
}

fn use_zones(drive: &mut Drive) {
    let namespace = drive.namespace();
    assert_eq!(namespace.blocks, ZONES * ZONE);
    let (zone, zones) = drive.zone(0);
    assert_eq!((zones, zone.zcap), (ZONES, ZONE_CAPACITY));
    assert_eq!(zone.state.zs(), ZoneState::EMPTY);
    assert_eq!(drive.append(3 * ZONE, &pattern(5)).unwrap(), 3 * ZONE);
    assert_eq!(drive.append(3 * ZONE, &pattern(6)).unwrap(), 3 * ZONE + 2);
    assert!(drive.read(3 * ZONE, 4) == [pattern(5), pattern(6)].concat());
    let (zone, _) = drive.zone(3 * ZONE);
    assert_eq!(
        (zone.wp, zone.state.zs()),
        (3 * ZONE + 4, ZoneState::IMPLICITLY_OPENED)
    );
    // Not where the write pointer is (ZNS 1.1, 3.1.1.1).
    match drive.write(3 * ZONE + 100, &pattern(5)) {
        Err(DriverError::Status { status, .. }) => assert_eq!(status, Status::ZONE_INVALID_WRITE),
        other => panic!("{other:?}"),
    }
    drive.send(3 * ZONE, ZoneSendAction::FINISH);
    assert_eq!(drive.zone(3 * ZONE).0.state.zs(), ZoneState::FULL);
    drive.send(3 * ZONE, ZoneSendAction::RESET);
    assert_eq!(drive.zone(3 * ZONE).0.state.zs(), ZoneState::EMPTY);
    drive.write(3 * ZONE, &pattern(8)).unwrap();
    assert!(drive.read(3 * ZONE, 2) == pattern(8));
}

fn use_pairs(drive: &mut Drive) {
    let keys = Keys {
        nsid: 1,
        dialect: Dialect::Nvme,
    };
    // blocks mean nothing to it
    let read = Sqe {
        opcode: NvmOpcode::WRITE_ZEROES.0,
        nsid: 1,
        ..Sqe::default()
    };
    drive.queue.run("Write Zeroes", read).unwrap_err();
    for (key, value) in [(&b"colour"[..], &b"blue"[..]), (b"size", b"large")] {
        drive.buffer.write_from(0, value);
        let len = value.len() as u32;
        let stored = drive
            .queue
            .kv_store(&keys, key, &drive.buffer, len, Rule::MustNotExist);
        stored.unwrap();
    }
    let retrieve = |_| {
        let since = Instant::now();
        let len = drive
            .queue
            .kv_retrieve(&keys, b"colour", &drive.buffer, 4096);
        assert_eq!(len.unwrap(), 4);
        since.elapsed().as_nanos()
    };
    let mut times: Vec<u128> = (0..5).map(retrieve).collect();
    times.sort_unstable();
    // 154 us of the paper, less 6.61 of its host and at most a page on one of ten units that share
    // 2.6 GiB/s
    assert!(times[2] > 130_000, "{times:?} ns");
    let mut value = [0; 4];
    drive.buffer.read_into(0, &mut value);
    assert_eq!(&value, b"blue");
    let listed = drive.queue.kv_list(1, b"", &drive.buffer, 4096).unwrap();
    assert_eq!(listed, [&b"colour"[..], b"size"]);
    drive.queue.kv_delete(&keys, b"colour").unwrap();
    assert!(drive.queue.kv_exist(&keys, b"colour").is_err());
}

/// Each modelled drive takes its own time: reads are not faster than the least of its preset. One
/// in many may be: a command arrives with the time of the reactor's turn, which is older where the
/// machine stalled it in the midst.
#[test]
fn each_drive_has_its_own_time() {
    let world = World::new();
    let server = serve(&world);
    let mut drives = Drive::all(&world);
    let [_, _, _, optane, flash, ..] = &mut drives;
    // Optane: 12 us of the paper less 6.61 of its host. 970 PRO: 21.5 us of firmware and 29.76 of
    // the fastest cell.
    flash.write(0, &pattern(0)).unwrap();
    for (drive, least) in [(optane, 5_390), (flash, 51_260)] {
        let median = drive.median_read_ns();
        assert!(median >= least, "{median} ns of at least {least}");
    }
    drop(drives);
    server.stop();
}

#[test]
fn the_example_passes_the_check() {
    assert!(Path::new(EXAMPLE).is_file());
    World::new().ok(&["check", EXAMPLE]);
}

//! One namespace for hosts over vfio-user and over NVMe/TCP at the same time.

use nvme_spec::Status;
use nvme_spec::opcode::NvmOpcode;

use super::{DISK, Port, serve};
use crate::host::Host;
use crate::world::World;

#[test]
fn hosts_over_vfio_user_and_over_tcp_share_data_and_reservations() {
    const REGISTER: NvmOpcode = NvmOpcode::RESERVATION_REGISTER;
    const ACQUIRE: NvmOpcode = NvmOpcode::RESERVATION_ACQUIRE;
    const RELEASE: NvmOpcode = NvmOpcode::RESERVATION_RELEASE;
    const OK: Status = Status::SUCCESSFUL_COMPLETION;
    /// Type Write Exclusive (Base 2.1, 8.1.22.1).
    const EXCLUSIVE: u32 = 1 << 8;
    let world = World::new();
    let port = Port::new();
    let near = format!(
        "[[controller]]\nname = \"near\"\nsubsystem = \"s\"\nnamespaces = [\"data\"]\nlisten = \"{}\"\n",
        world.vfio_user("nvme.sock")
    );
    let config = format!("{DISK}{}{near}", port.controller("subsystem = \"s\"\n"));
    let server = serve(&world, &config, &[]);
    let mut near = Host::attach(&world, "nvme.sock");
    near.identify_as(0x1111);
    let mut far = Host::at(&port.target()).unwrap();
    near.fill(1, 3, 0x5a);
    assert!(far.block(1, 3).iter().all(|byte| *byte == 0x5a));
    far.fill(1, 4, 0xa5);
    assert!(near.block(1, 4).iter().all(|byte| *byte == 0xa5));

    assert_eq!(near.reserve(REGISTER, 0, [0, 7]), OK);
    assert_eq!(near.reserve(ACQUIRE, EXCLUSIVE, [7, 0]), OK);
    assert_eq!(far.write_status(), Status::RESERVATION_CONFLICT);
    assert_eq!(near.write_status(), OK);
    assert_eq!(near.reserve(RELEASE, EXCLUSIVE, [7, 0]), OK);
    assert_eq!(far.reserve(REGISTER, 0, [0, 9]), OK);
    assert_eq!(far.reserve(ACQUIRE, EXCLUSIVE, [9, 0]), OK);
    assert_eq!(near.write_status(), Status::RESERVATION_CONFLICT);
    assert_eq!(far.write_status(), OK);
    // another controller of the same host, as both are of this process
    let mut other = Host::at(&port.target()).unwrap();
    assert_eq!(other.write_status(), OK);
    assert_eq!(far.reserve(RELEASE, EXCLUSIVE, [9, 0]), OK);
    assert_eq!(near.write_status(), OK);
    drop((near, far, other));
    server.stop();
}

//! Configuration space as a bus driver walks it (PCI 3.0, 6; PCIe 6.0, 7.5). Offsets and values are
//! typed again here.

use super::{BAR4_SIZE, CONFIG_SPACE, ConfigEffect, ConfigSpace, Mechanism, bar0_size, messages};
use crate::config::{ControllerConfig, DoorbellMode, Interface};

/// A function with so many vectors, and a pin or none.
fn with_vectors(vectors: u16, intx: bool) -> ConfigSpace {
    of(vectors, intx, true)
}

fn of(vectors: u16, intx: bool, msix: bool) -> ConfigSpace {
    let config = ControllerConfig {
        name: "c".to_owned(),
        vendor_id: 0x4e56,
        device_id: 0x0001,
        serial: "S".to_owned(),
        model_number: "M".to_owned(),
        firmware_revision: "1".to_owned(),
        subnqn: "nqn.2014-08.org.example:c".to_owned(),
        queues: vectors - 1,
        queue_depth: 64,
        max_transfer: 1 << 20,
        doorbells: DoorbellMode::Mapped,
        msix,
        intx,
        interface: Interface::Pcie,
    };
    ConfigSpace::new(&config, 0x4000)
}

fn space() -> ConfigSpace {
    with_vectors(65, false)
}

fn read(space: &ConfigSpace, at: u64, len: usize) -> u32 {
    let mut bytes = [0; 4];
    space.read(at, &mut bytes[..len]);
    u32::from_le_bytes(bytes)
}

/// Where the capability with this id is.
fn capability(space: &ConfigSpace, id: u32) -> u64 {
    let mut at = u64::from(read(space, 0x34, 1));
    for _ in 0..48 {
        assert!(at >= 0x40 && at.is_multiple_of(4), "{at:#x}");
        if read(space, at, 1) == id {
            return at;
        }
        at = u64::from(read(space, at + 1, 1));
    }
    panic!("no capability {id:#x}");
}

#[test]
fn class_is_an_nvme_io_controller_and_the_header_is_type_0() {
    let space = space();
    assert_eq!(read(&space, 0x00, 4), 0x0001_4e56);
    assert_eq!(read(&space, 0x09, 3), 0x01_08_02);
    assert_eq!(read(&space, 0x0a, 2), 0x0108);
    assert_eq!(read(&space, 0x0e, 1), 0);
    assert_eq!(read(&space, 0x2c, 4), 0x0001_4e56);
    assert_eq!(
        read(&space, 0x06, 2) & 1 << 4,
        1 << 4,
        "there is a capability list"
    );
    assert_eq!(read(&space, 0x3d, 1), 0, "no interrupt pin");
    assert_eq!(read(&space, 0x30, 4), 0, "no ROM");
}

#[test]
fn default_ids_are_in_no_table_of_defects() {
    // 1b36:0010 (QEMU's) and 8086:5845 make Linux ignore NGUID and EUI-64.
    let ids = (
        crate::config::DEFAULT_VENDOR_ID,
        crate::config::DEFAULT_DEVICE_ID,
    );
    assert_eq!(ids, (0x4e56, 0x0001));
}

#[test]
fn bars_are_sized_by_writing_ones() {
    let mut space = space();
    assert_eq!(read(&space, 0x10, 4), 0b100, "64-bit memory");
    for at in (0x10..0x28).step_by(4) {
        space.write(at, &[0xff; 4]);
    }
    let sized: Vec<u32> = (0x10..0x28)
        .step_by(4)
        .map(|at| read(&space, at, 4))
        .collect();
    assert_eq!(sized, [0xffff_c004, 0xffff_ffff, 0, 0, 0xffff_e000, 0]);
    // As SeaBIOS places them.
    space.write(0x10, &0xfebf_8000u32.to_le_bytes());
    space.write(0x14, &0u32.to_le_bytes());
    space.write(0x20, &0xfebf_c000u32.to_le_bytes());
    assert_eq!(read(&space, 0x10, 4), 0xfebf_8004);
    assert_eq!(read(&space, 0x20, 4), 0xfebf_c000);
}

#[test]
fn bar0_holds_the_registers_and_every_doorbell() {
    assert_eq!(bar0_size(4096), 0x4000);
    assert_eq!(bar0_size(0x3000), 0x4000);
    assert_eq!(bar0_size(0x3001), 0x8000);
    assert_eq!(BAR4_SIZE, 0x2000);
}

#[test]
fn every_capability_is_in_the_list_once() {
    let space = space();
    let mut at = u64::from(read(&space, 0x34, 1));
    let mut ids = Vec::new();
    while at != 0 {
        ids.push(read(&space, at, 1));
        at = u64::from(read(&space, at + 1, 1));
        assert!(ids.len() <= 4);
    }
    assert_eq!(ids, [0x01, 0x05, 0x10, 0x11]);
    assert_eq!(read(&space, 0x100, 4), 0, "no extended capability");
}

#[test]
fn command_keeps_what_a_host_may_set() {
    let mut space = space();
    space.write(0x04, &0x0107u16.to_le_bytes());
    assert_eq!(read(&space, 0x04, 2), 0x0106, "I/O space cannot be enabled");
    space.write(0x04, &[0xff; 4]);
    assert_eq!(read(&space, 0x04, 4), 0x0010_0546, "status is read-only");
}

#[test]
fn msi_has_a_64_bit_address_and_32_messages() {
    let mut space = space();
    let msi = capability(&space, 0x05);
    // Multiple Message Capable is 101b (PCI 3.0, 6.8.1.3).
    assert_eq!(read(&space, msi + 2, 2), 0x008a);
    space.write(msi + 2, &[0xff; 12]);
    assert_eq!(read(&space, msi + 2, 2), 0x00fb);
    assert_eq!(read(&space, msi + 4, 4), 0xffff_fffc);
    assert_eq!(read(&space, msi + 8, 4), 0xffff_ffff);
    assert_eq!(read(&space, msi + 12, 2), 0xffff);
}

#[test]
fn msix_offers_a_vector_per_queue_in_a_bar_of_its_own() {
    let mut space = space();
    let msix = capability(&space, 0x11);
    assert_eq!(read(&space, msix + 2, 2), 64, "the table size is 0's based");
    assert_eq!(
        read(&space, msix + 4, 4),
        4,
        "the table is at the start of BAR4"
    );
    assert_eq!(
        read(&space, msix + 8, 4),
        0x1000 | 4,
        "the pending bits are in its second page"
    );
    assert!(!space.msix_enabled());
    space.write(msix + 2, &[0xff, 0xff]);
    assert_eq!(read(&space, msix + 2, 2), 0xc040);
    assert!(space.msix_enabled());
}

#[test]
fn the_express_capability_offers_a_function_level_reset() {
    let mut space = space();
    let pcie = capability(&space, 0x10);
    assert_eq!(read(&space, pcie + 2, 2), 0x0002, "version 2, endpoint");
    assert_eq!(read(&space, pcie + 4, 4) & 1 << 28, 1 << 28);
    assert_eq!(space.write(pcie + 8, &[0x10, 0x28]), ConfigEffect::None);
    assert_eq!(
        space.write(pcie + 8, &[0x10, 0xa8]),
        ConfigEffect::FunctionReset
    );
    assert_eq!(read(&space, pcie + 8, 2), 0x2810, "the bit reads as zero");
    assert_eq!(space.write(pcie + 9, &[0x80]), ConfigEffect::FunctionReset);
    assert_eq!(space.write(pcie + 8, &[0x80]), ConfigEffect::None);
}

#[test]
fn power_states_are_kept_and_reset_nothing() {
    let mut space = space();
    let pm = capability(&space, 0x01);
    assert_eq!(read(&space, pm + 2, 2), 3);
    assert_eq!(space.write(pm + 4, &[0x03, 0]), ConfigEffect::None);
    assert_eq!(read(&space, pm + 4, 2), 0x000b, "D3hot; No_Soft_Reset");
}

#[test]
fn reset_puts_everything_back() {
    let mut space = space();
    let mut before = [0; CONFIG_SPACE];
    space.read(0, &mut before);
    for at in 0..CONFIG_SPACE as u64 {
        space.write(at, &[0x7f]);
    }
    let mut after = [0; CONFIG_SPACE];
    space.read(0, &mut after);
    assert_ne!(before, after);
    space.reset();
    space.read(0, &mut after);
    assert_eq!(before, after);
}

#[test]
fn what_lies_past_the_end_reads_zero_and_is_not_written() {
    let mut space = space();
    let mut bytes = [0xaa; 8];
    space.read(4092, &mut bytes);
    assert_eq!(bytes, [0; 8]);
    space.read(u64::MAX - 2, &mut bytes);
    assert_eq!(space.write(4095, &[1; 64]), ConfigEffect::None);
    assert_eq!(space.write(u64::MAX - 2, &[1; 64]), ConfigEffect::None);
}

#[test]
fn messages_are_a_power_of_two_and_32_at_most() {
    assert_eq!(
        [1, 2, 3, 5, 32, 33, 65].map(messages),
        [1, 2, 4, 8, 32, 32, 32]
    );
    // Multiple Message Capable: bits 3:1.
    let space = with_vectors(3, false);
    assert_eq!(read(&space, capability(&space, 0x05) + 2, 2), 0x0084);
}

#[test]
fn the_pin_is_a_where_there_is_one() {
    let mut space = with_vectors(5, true);
    assert_eq!(read(&space, 0x3d, 1), 1, "INTA#");
    space.write(0x3c, &[0x0b, 0xff]);
    assert_eq!(read(&space, 0x3c, 2), 0x010b, "only the line is the host's");
    space.reset();
    assert_eq!(read(&space, 0x3d, 1), 1);
}

#[test]
fn the_way_of_interrupts_is_msix_then_msi_then_the_pin() {
    for pin in [false, true] {
        let mut space = with_vectors(5, pin);
        let (msi, msix) = (capability(&space, 0x05) + 2, capability(&space, 0x11) + 2);
        let by_pin = |way| if pin { way } else { Mechanism::Vectors };
        assert_eq!(space.mechanism(), by_pin(Mechanism::Pin));
        // Command: Interrupt Disable is bit 10.
        space.write(0x04, &0x0400u16.to_le_bytes());
        assert_eq!(space.mechanism(), by_pin(Mechanism::Silent));
        // Enable, and no more than the 8 messages on offer.
        for (allocated, count) in [(0, 1), (2, 4), (3, 8), (5, 8), (7, 8)] {
            space.write(msi, &(allocated << 4 | 1u16).to_le_bytes());
            assert_eq!(space.mechanism(), Mechanism::Messages { count });
        }
        space.write(msix, &0xc000u16.to_le_bytes());
        assert_eq!(space.mechanism(), Mechanism::Vectors);
        assert!(space.msix_masked());
        space.write(msix, &0x4000u16.to_le_bytes());
        assert!(!space.msix_masked(), "it is not enabled");
        assert_eq!(space.mechanism(), Mechanism::Messages { count: 8 });
        space.write(msi, &0x0030u16.to_le_bytes());
        space.write(0x04, &0u16.to_le_bytes());
        assert_eq!(space.mechanism(), by_pin(Mechanism::Pin));
    }
}

#[test]
fn interrupt_status_is_bit_3_and_not_the_hosts() {
    let mut space = space();
    space.set_interrupt_status(true);
    assert_eq!(read(&space, 0x06, 2), 0x0018);
    space.write(0x06, &[0xff, 0xff]);
    space.set_interrupt_status(false);
    assert_eq!(read(&space, 0x06, 2), 0x0010);
}

#[test]
fn without_msix_there_is_neither_its_capability_nor_its_bar_and_msi_carries_the_interrupts() {
    let mut space = of(5, false, false);
    let mut at = u64::from(read(&space, 0x34, 1));
    let mut found = Vec::new();
    while at != 0 {
        found.push(read(&space, at, 1));
        at = u64::from(read(&space, at + 1, 1));
    }
    assert_eq!(found, [0x01, 0x05, 0x10], "power management, MSI, Express");
    space.write(0x20, &[0xff; 4]);
    assert_eq!(read(&space, 0x20, 4), 0, "no BAR4");
    // Nothing is enabled, and a client assigned eventfds to messages.
    assert_eq!(space.mechanism(), Mechanism::Messages { count: 8 });
    let msi = capability(&space, 0x05) + 2;
    space.write(msi, &(1u16 << 4 | 1).to_le_bytes());
    assert_eq!(space.mechanism(), Mechanism::Messages { count: 2 });
    // Where it was is nothing to be enabled.
    space.write(0xb2, &0x8000u16.to_le_bytes());
    assert_eq!(space.mechanism(), Mechanism::Messages { count: 2 });
    assert!(!space.msix_enabled() && !space.has_msix());
    assert_eq!(of(5, true, false).mechanism(), Mechanism::Pin);
}

#[test]
fn bus_mastering_follows_the_bit_once_it_was_set_and_the_power_state() {
    let mut space = space();
    let set = |space: &mut ConfigSpace, at: u64, value: u16| {
        space.write(at, &value.to_le_bytes());
    };
    assert!(space.may_master(), "nobody has set it");
    set(&mut space, 0x04, 0x0002);
    assert!(space.may_master());
    set(&mut space, 0x04, 0x0506);
    assert!(space.may_master());
    set(&mut space, 0x04, 0x0502);
    assert!(!space.may_master());
    // By a byte, and by a dword that goes beyond the register.
    space.write(0x04, &[0x06]);
    assert!(space.may_master());
    space.write(0x04, &[0x02, 0x04, 0, 0]);
    assert!(!space.may_master());
    space.reset();
    assert!(space.may_master());
    let power = capability(&space, 0x01) + 4;
    set(&mut space, power, 3);
    assert!(!space.may_master(), "D3hot");
    set(&mut space, power, 0);
    assert!(space.may_master());
}

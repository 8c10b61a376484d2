//! Registers (Base 2.1, 3.1.4), as a host reads and writes them.

use super::rig::*;

#[test]
fn cap_reads_the_same_as_two_dwords_and_as_a_qword() {
    let rig = Rig::new();
    // MQES 63 (64 entries), CQR, AMS bit 0, TO 20 x 500 ms, NSSRS, NVM command set and others,
    // CRWMS; DSTRD, MPSMIN and MPSMAX 0.
    let low = 63 | 1 << 16 | 1 << 17 | 20 << 24;
    let high = 1 << (36 - 32) | 1 << (37 - 32) | 1 << (43 - 32) | 1 << (59 - 32);
    assert_eq!(rig.read32(CAP), low);
    assert_eq!(rig.read32(CAP + 4), high);
    assert_eq!(rig.read64(CAP), u64::from(high) << 32 | u64::from(low));
}

#[test]
fn version_is_2_1_and_crto_tells_ten_seconds() {
    let rig = Rig::new();
    assert_eq!(rig.read32(VS), 0x0002_0100);
    assert_eq!(rig.read32(CRTO), 20);
}

#[test]
fn at_power_on_everything_else_is_zero() {
    let rig = Rig::new();
    for offset in (0x0c..0x1000).step_by(4).filter(|offset| *offset != CRTO) {
        assert_eq!(rig.read32(offset), 0, "{offset:#x}");
    }
}

#[test]
fn windows_reads_back_aqa_asq_and_acq_while_enabled() {
    let mut rig = Rig::new();
    rig.set_admin_queues(32);
    let before = (rig.read32(AQA), rig.read64(ASQ), rig.read64(ACQ));
    assert_eq!(before.0, 0x001f_001f);
    rig.write32(CC, CC_ENABLE);
    rig.turns(2);
    assert_eq!(rig.read32(CC), CC_ENABLE);
    assert_eq!((rig.read32(AQA), rig.read64(ASQ), rig.read64(ACQ)), before);
    assert_eq!(u64::from(rig.read32(ASQ)), before.1 & 0xffff_ffff);
    // They cannot be changed under the queues in use.
    rig.write32(AQA, 0);
    rig.write64(ASQ, 0x1000);
    rig.write32(ACQ + 4, 7);
    assert_eq!((rig.read32(AQA), rig.read64(ASQ), rig.read64(ACQ)), before);
}

#[test]
fn asq_is_written_in_halves_in_any_order() {
    let mut rig = Rig::new();
    rig.write32(ASQ + 4, 0x1234);
    rig.write32(ASQ, 0x5678_9000);
    assert_eq!(rig.read64(ASQ), 0x1234_5678_9000);
    rig.write32(ACQ, 0xabcd_e000);
    rig.write32(ACQ + 4, 0x1);
    assert_eq!(rig.read64(ACQ), 0x1_abcd_e000);
}

#[test]
fn freebsd_masks_by_intms_and_clears_by_intmc() {
    let mut rig = Rig::enabled();
    rig.write32(INTMS, 0b101);
    assert_eq!((rig.read32(INTMS), rig.read32(INTMC)), (0b101, 0b101));
    rig.write32(INTMS, 0b010);
    rig.write32(INTMC, 0b001);
    assert_eq!(rig.read32(INTMS), 0b110);
}

#[test]
fn read_only_registers_stay() {
    let mut rig = Rig::new();
    for offset in [CAP, CAP + 4, VS, CSTS, CRTO, 0x38, 0x3c, 0x40, 0x64, 0x800] {
        let before = rig.read32(offset);
        rig.write32(offset, !0);
        assert_eq!(rig.read32(offset), before, "{offset:#x}");
    }
}

#[test]
fn reserved_bits_of_cc_and_aqa_read_zero() {
    let mut rig = Rig::new();
    rig.write32(AQA, !0);
    assert_eq!(rig.read32(AQA), 0x0fff_0fff);
    // All but EN: bits 3:1 and 31:25 are reserved; CRIME (24) is read-only as CAP.CRIMS is 0.
    rig.write32(CC, !1);
    assert_eq!(rig.read32(CC), 0x00ff_fff0);
}

#[test]
fn a_part_of_a_dword_reads_and_does_not_write() {
    let mut rig = Rig::new();
    rig.write32(AQA, 0x0abc_0def);
    let mut bytes = [0; 3];
    rig.controller.bar_read(0, AQA + 1, &mut bytes);
    assert_eq!(bytes, [0x0d, 0xbc, 0x0a]);
    rig.controller.bar_write(0, AQA, &[1, 2]);
    rig.controller.bar_write(0, AQA + 2, &[1, 2]);
    rig.controller.bar_write(0, AQA + 3, &[1, 2, 3, 4]);
    assert_eq!(rig.read32(AQA), 0x0abc_0def);
    // Of an access that is not aligned, the whole dwords in it count.
    rig.controller
        .bar_write(0, AQA - 2, &[9, 9, 0x11, 0x02, 0x33, 0x04, 9]);
    assert_eq!(rig.read32(AQA), 0x0433_0211);
    assert_eq!(rig.read32(CSTS), 0);
}

#[test]
fn nssr_resets_the_subsystem_and_leaves_its_mark() {
    let mut rig = Rig::enabled();
    rig.write32(NSSR, 0x1234_5678);
    rig.turns(4);
    assert_eq!(rig.csts(), RDY, "only the magic number resets");
    rig.create_pair(1, 8);
    rig.write32(NSSR, 0x4e56_4d65);
    rig.turns(8);
    assert_eq!(rig.csts(), NSSRO);
    assert_eq!(
        (rig.read32(CC), rig.read32(AQA), rig.read64(ASQ)),
        (0, 0, 0)
    );
    assert_eq!(rig.read32(NSSR), 0);
    assert_eq!(rig.lanes.live(), 0);
    // The mark survives a controller reset and is cleared by writing one.
    rig.set_admin_queues(32);
    rig.write32(CC, CC_ENABLE);
    rig.turns(4);
    rig.write32(CC, CC_ENABLE & !1);
    rig.turns(4);
    assert_eq!(rig.csts(), NSSRO);
    rig.write32(CSTS, NSSRO);
    assert_eq!(rig.csts(), 0);
}

#[test]
fn msix_table_and_pending_bits_are_bar4() {
    let mut rig = Rig::new();
    assert_eq!(rig.controller.vectors(), 5);
    let sizes = rig.controller.bar_sizes();
    assert_eq!((sizes[0], sizes[4]), (0x4000, 0x2000));
    let mut entry = [0; 16];
    rig.controller.bar_read(4, 4 * 16, &mut entry);
    assert_eq!(
        entry,
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
        "masked at reset"
    );
    rig.controller.bar_write(4, 4 * 16, &[0xff; 16]);
    rig.controller.bar_read(4, 4 * 16, &mut entry);
    assert_eq!(entry[0], 0xfc, "the low bits of the address are zero");
    assert_eq!(
        entry[12..],
        [1, 0, 0, 0],
        "of vector control only the mask bit is kept"
    );
    // Pending bits are ours to set.
    rig.controller.bar_write(4, 0x1000, &[0xff; 8]);
    let mut pending = [0xff; 8];
    rig.controller.bar_read(4, 0x1000, &mut pending);
    assert_eq!(pending, [0; 8]);
    rig.controller.set_pending(4, true);
    rig.controller.bar_read(4, 0x1000, &mut pending);
    assert_eq!(pending, [0x10, 0, 0, 0, 0, 0, 0, 0]);
    rig.controller.function_reset();
    rig.controller.bar_read(4, 0x1000, &mut pending);
    assert_eq!(pending, [0; 8]);
}

#[test]
fn the_doorbell_page_is_behind_the_registers() {
    let mut config = config();
    config.queues = 64;
    let rig = Rig::with(config);
    // 65 pairs of doorbells fit one page: 16 KiB, the least there is (PCIe Transport 1.1, 3.1.1).
    assert_eq!(rig.controller.bar_sizes()[0], 0x4000);
    assert_eq!(rig.controller.vectors(), 65);
    assert_eq!(rig.read32(0x1000), 0);
}

use zerocopy::IntoBytes;

use super::*;
use crate::opcode::{AdminOpcode, NvmOpcode};
use crate::sqe::CommandFlags;

/// A command as 16 dwords, from its bytes.
fn dwords(sqe: &Sqe) -> [u32; 16] {
    let mut dwords = [0; 16];
    for (dword, bytes) in dwords.iter_mut().zip(sqe.as_bytes().chunks_exact(4)) {
        *dword = u32::from_le_bytes(bytes.try_into().unwrap());
    }
    dwords
}

#[test]
fn golden_create_io_completion_queue() {
    // Queue 3 with 1024 entries at 0x1_2345_6000, contiguous, interrupts on vector 3.
    let sqe = Sqe {
        opcode: AdminOpcode::CREATE_IO_COMPLETION_QUEUE.0,
        cid: 0x0011,
        prp1: 0x1_2345_6000,
        cdw10: CreateIoQueueCdw10::new()
            .with_qid(3)
            .with_qsize_z(1023)
            .into(),
        cdw11: CreateIoCqCdw11::new()
            .with_pc(true)
            .with_ien(true)
            .with_iv(3)
            .into(),
        ..Sqe::default()
    };
    assert_eq!(
        dwords(&sqe),
        [
            0x0011_0005,
            0,
            0,
            0,
            0,
            0,
            0x2345_6000,
            1,
            0,
            0,
            0x03ff_0003,
            0x0003_0003,
            0,
            0,
            0,
            0
        ]
    );
}

#[test]
fn golden_create_io_submission_queue() {
    // Queue 4 with 2 entries, medium priority, completing into queue 3.
    let cdw10 = CreateIoQueueCdw10::new().with_qid(4).with_qsize_z(1);
    let cdw11 = CreateIoSqCdw11::new()
        .with_pc(true)
        .with_qprio(QueuePriority::MEDIUM)
        .with_cqid(3);
    assert_eq!(u32::from(cdw10), 0x0001_0004);
    assert_eq!(u32::from(cdw11), 0x0003_0005);
    assert_eq!(DeleteIoQueueCdw10::from(0xffff_0004).qid(), 4);
}

#[test]
fn golden_identify_and_abort() {
    let cdw10 = IdentifyCdw10::new().with_cns(Cns::CONTROLLER);
    assert_eq!(u32::from(cdw10), 0x0000_0001);
    let cdw10 = IdentifyCdw10::from(0x0007_0013);
    assert_eq!((cdw10.cns(), cdw10.cntid()), (Cns::CONTROLLER_LIST, 7));
    let cdw11 = IdentifyCdw11::from(0x0200_0009);
    assert_eq!((cdw11.csi(), cdw11.cnssid()), (Csi::ZONED_NAMESPACE, 9));
    assert_eq!(UuidIndexCdw14::from(0xffff_ff81).uidx(), 1);
    let abort = AbortCdw10::from(0x1234_0002);
    assert_eq!((abort.sqid(), abort.cid()), (2, 0x1234));
    assert_eq!(u32::from(AbortDw0::new().with_ianp(true)), 1);
}

#[test]
fn golden_get_log_page() {
    // The 512 bytes of SMART / Health Information of the controller, as nvme-cli asks for them.
    let cdw10 = GetLogPageCdw10::new()
        .with_lid(LogPageId::SMART_HEALTH_INFORMATION)
        .with_numdl(127);
    assert_eq!(u32::from(cdw10), 0x007f_0002);
    assert_eq!(
        u32::from(GetLogPageCdw10::new().with_lsp(0x7f).with_rae(true)),
        0xff00
    );
    let sqe = Sqe {
        cdw10: 0x5678_0001,
        cdw11: 0xabcd_1234,
        cdw12: 0x0000_1000,
        cdw13: 0x0000_0002,
        cdw14: 0x0180_0003,
        ..Sqe::default()
    };
    assert_eq!(get_log_page_numd_z(&sqe), 0x1234_5678);
    assert_eq!(get_log_page_offset(&sqe), 0x2_0000_1000);
    assert_eq!(GetLogPageCdw11::from(sqe.cdw11).lsi(), 0xabcd);
    let cdw14 = GetLogPageCdw14::from(sqe.cdw14);
    assert_eq!((cdw14.uidx(), cdw14.ot()), (3, true));
    assert_eq!(cdw14.csi(), Csi::KEY_VALUE);
}

#[test]
fn golden_features() {
    let get = GetFeaturesCdw10::from(0x0000_0306);
    assert_eq!(get.fid(), FeatureId::VOLATILE_WRITE_CACHE);
    assert_eq!(get.sel(), Select::SUPPORTED_CAPABILITIES);
    let set = SetFeaturesCdw10::from(0x8000_0007);
    assert_eq!(set.fid(), FeatureId::NUMBER_OF_QUEUES);
    assert!(set.sv());
}

#[test]
fn golden_write() {
    // 8 blocks from LBA 0x1_0000_0002 of namespace 1, force unit access.
    let (cdw10, cdw11) = slba_cdw10_11(0x1_0000_0002);
    let sqe = Sqe {
        opcode: NvmOpcode::WRITE.0,
        flags: CommandFlags::new(),
        cid: 0xbeef,
        nsid: 1,
        prp1: 0x1000,
        prp2: 0x2000,
        cdw10,
        cdw11,
        cdw12: ReadWriteCdw12::new().with_nlb_z(7).with_fua(true).into(),
        ..Sqe::default()
    };
    assert_eq!(
        dwords(&sqe),
        [
            0xbeef_0001,
            1,
            0,
            0,
            0,
            0,
            0x1000,
            0,
            0x2000,
            0,
            2,
            1,
            0x4000_0007,
            0,
            0,
            0
        ]
    );
    assert_eq!(slba(&sqe), 0x1_0000_0002);
}

#[test]
fn read_write_and_write_zeroes_dwords() {
    let bit = |cdw12: ReadWriteCdw12| u32::from(cdw12);
    assert_eq!(bit(ReadWriteCdw12::new().with_lr(true)), 1 << 31);
    assert_eq!(bit(ReadWriteCdw12::new().with_fua(true)), 1 << 30);
    assert_eq!(
        bit(ReadWriteCdw12::new().with_prinfo(Prinfo::new().with_pract(true))),
        1 << 29
    );
    assert_eq!(
        bit(ReadWriteCdw12::new().with_prinfo(Prinfo::new().with_prchk(7))),
        7 << 26
    );
    assert_eq!(bit(ReadWriteCdw12::new().with_stc(true)), 1 << 24);
    assert_eq!(bit(ReadWriteCdw12::new().with_dtype(0xf)), 0xf << 20);
    assert_eq!(bit(ReadWriteCdw12::new().with_cetype(0xf)), 0xf << 16);

    let bit = |cdw12: WriteZeroesCdw12| u32::from(cdw12);
    assert_eq!(bit(WriteZeroesCdw12::new().with_lr(true)), 1 << 31);
    assert_eq!(bit(WriteZeroesCdw12::new().with_fua(true)), 1 << 30);
    assert_eq!(bit(WriteZeroesCdw12::new().with_deac(true)), 1 << 25);
    assert_eq!(bit(WriteZeroesCdw12::new().with_stc(true)), 1 << 24);
    assert_eq!(bit(WriteZeroesCdw12::new().with_nsz(true)), 1 << 23);
    assert_eq!(bit(WriteZeroesCdw12::new().with_nlb_z(0xffff)), 0xffff);
}

#[test]
fn verify_and_write_uncorrectable_dwords() {
    let bit = |cdw12: VerifyCdw12| u32::from(cdw12);
    assert_eq!(bit(VerifyCdw12::new().with_nlb_z(0xffff)), 0xffff);
    assert_eq!(bit(VerifyCdw12::new().with_cetype(0xf)), 0xf << 16);
    assert_eq!(bit(VerifyCdw12::new().with_stc(true)), 1 << 24);
    assert_eq!(
        bit(VerifyCdw12::new().with_prinfo(Prinfo::new().with_prchk(7))),
        7 << 26
    );
    assert_eq!(bit(VerifyCdw12::new().with_fua(true)), 1 << 30);
    assert_eq!(bit(VerifyCdw12::new().with_lr(true)), 1 << 31);

    let uncorrectable = WriteUncorrectableCdw12::from(0xff0f_0007);
    assert_eq!((uncorrectable.nlb_z(), uncorrectable.dtype()), (7, 0));
    assert_eq!(u32::from(uncorrectable), 0xff0f_0007);
    assert_eq!(
        u32::from(WriteUncorrectableCdw12::new().with_dtype(0xf)),
        0xf << 20
    );
}

#[test]
fn golden_dataset_management() {
    assert_eq!(u32::from(DsmCdw10::new().with_nr_z(255)), 255);
    assert_eq!(u32::from(DsmCdw11::new().with_ad(true)), 4);
    assert_eq!(u32::from(DsmCdw11::new().with_idw(true)), 2);
    let range = DsmRange {
        cattr: 0,
        nlb: 0x0403_0201,
        slba: 0x0c0b_0a09_0807_0605,
    };
    assert_eq!(
        range.as_bytes(),
        [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    );
}

#[test]
fn doorbell_buffers_are_prp1_and_prp2() {
    let sqe = Sqe {
        prp1: 0x1000,
        prp2: 0x2000,
        ..Sqe::default()
    };
    let config = DoorbellBufferConfig::from(&sqe);
    assert_eq!((config.shadow, config.event_idx), (0x1000, 0x2000));
}

#[test]
fn reserved_bits_survive() {
    assert_eq!(u32::from(IdentifyCdw10::from(0xffff_ffff)), 0xffff_ffff);
    assert_eq!(u32::from(DsmCdw11::from(0xffff_fff8)), 0xffff_fff8);
    assert_eq!(u32::from(ReadWriteCdw12::from(0x0200_0000)), 0x0200_0000);
}

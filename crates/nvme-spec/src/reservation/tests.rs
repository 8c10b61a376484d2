use zerocopy::transmute;

use super::*;

#[test]
fn register_lies_where_base_2_1_7_6_says() {
    let cdw10 = ReservationRegisterCdw10::from(0xc000_000a);
    assert_eq!(cdw10.rrega(), RegisterAction::REPLACE);
    assert!(cdw10.iekey() && !cdw10.disnsrs());
    assert_eq!(cdw10.cptpl(), ChangePtpl::SET);
    assert_eq!(
        u32::from(ReservationRegisterCdw10::new().with_disnsrs(true)),
        1 << 4
    );
    assert_eq!(
        u32::from(ReservationRegisterCdw10::new().with_cptpl(ChangePtpl::CLEAR)),
        0x8000_0000
    );
    assert_eq!(
        (RegisterAction::REGISTER.0, RegisterAction::UNREGISTER.0),
        (0, 1)
    );
    let data: ReservationRegisterData =
        transmute!([1u8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((data.crkey, data.nrkey), (1, 2));
}

#[test]
fn acquire_and_release_lie_where_base_2_1_7_5_and_7_7_say() {
    // nvme resv-acquire --racqa=2 --rtype=3 --iekey.
    let acquire = ReservationAcquireCdw10::from(0x0000_030a);
    assert_eq!(acquire.racqa(), AcquireAction::PREEMPT_AND_ABORT);
    assert!(acquire.iekey());
    assert_eq!(
        acquire.rtype(),
        ReservationType::WRITE_EXCLUSIVE_REGISTRANTS_ONLY
    );
    assert_eq!(u32::from(acquire.with_disnsrs(true)), 0x0000_031a);
    assert_eq!(AcquireAction::PREEMPT.0, 1);
    let data: ReservationAcquireData =
        transmute!([1u8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((data.crkey, data.prkey), (1, 2));

    let release = ReservationReleaseCdw10::from(0x0000_0611);
    assert_eq!(release.rrela(), ReleaseAction::CLEAR);
    assert!(release.disnsrs() && !release.iekey());
    assert_eq!(
        release.rtype(),
        ReservationType::EXCLUSIVE_ACCESS_ALL_REGISTRANTS
    );
    assert_eq!(
        u32::from(ReservationReleaseCdw10::new().with_iekey(true)),
        1 << 3
    );
    let data: ReservationReleaseData = transmute!([1u8, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(data.crkey, 0x0100_0000_0000_0001);
}

#[test]
fn types_are_those_of_base_2_1() {
    for (kind, number) in [
        (ReservationType::WRITE_EXCLUSIVE, 1),
        (ReservationType::EXCLUSIVE_ACCESS, 2),
        (ReservationType::WRITE_EXCLUSIVE_REGISTRANTS_ONLY, 3),
        (ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS_ONLY, 4),
        (ReservationType::WRITE_EXCLUSIVE_ALL_REGISTRANTS, 5),
        (ReservationType::EXCLUSIVE_ACCESS_ALL_REGISTRANTS, 6),
    ] {
        assert_eq!(kind.0, number, "{kind:?}");
    }
}

#[test]
fn a_report_of_one_holder_decodes() {
    let cdw10 = ReservationReportCdw10::from(0x0000_000b);
    assert_eq!(cdw10.numd_z(), 11);
    assert!(ReservationReportCdw11::from(1).eds());
    assert!(ReservationReportCdw11::from(2).disnsrs());

    let mut bytes = [0u8; 48];
    bytes[0] = 7;
    bytes[4] = 1;
    bytes[5..7].copy_from_slice(&[1, 2]);
    bytes[9] = 1;
    bytes[24..26].copy_from_slice(&[3, 4]);
    bytes[26] = 1;
    bytes[32] = 0xaa;
    bytes[40] = 0xbb;
    let (header, rest) = ReservationStatusHeader::read_from_prefix(&bytes).unwrap();
    assert_eq!(header.generation, 7);
    assert_eq!(header.rtype, ReservationType::WRITE_EXCLUSIVE);
    assert_eq!((header.regstrnt.get(), header.ptpls), (0x0201, 1));
    let registrant = RegisteredController::read_from_bytes(rest).unwrap();
    assert_eq!(registrant.cntlid, 0x0403);
    assert!(registrant.rcsts.ahhr());
    assert_eq!(registrant.hostid, [0xaa, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(registrant.rkey, 0xbb);
}

#[test]
fn extended_registrants_have_the_key_first() {
    let mut bytes = [0u8; 64];
    bytes[0] = 1;
    bytes[2] = 1;
    bytes[8] = 0xcc;
    bytes[16] = 0xdd;
    bytes[31] = 0xee;
    let registrant: RegisteredControllerExtended = transmute!(bytes);
    assert_eq!((registrant.cntlid, registrant.rkey), (1, 0xcc));
    assert!(registrant.rcsts.ahhr());
    assert_eq!((registrant.hostid[0], registrant.hostid[15]), (0xdd, 0xee));
    assert_eq!(EXTENDED_HEADER_SIZE, 64);
}

#[test]
fn notifications_and_features() {
    let mut bytes = [0u8; 64];
    bytes[0] = 1;
    bytes[8] = 2;
    bytes[9] = 3;
    bytes[12] = 4;
    let log: ReservationNotificationLog = transmute!(bytes);
    assert_eq!((log.lpc, log.nalp, log.nsid), (1, 3, 4));
    assert_eq!(log.rnlpt, ReservationNotificationType::RESERVATION_RELEASED);
    assert_eq!(ReservationNotificationType::REGISTRATION_PREEMPTED.0, 1);
    assert_eq!(ReservationNotificationType::RESERVATION_PREEMPTED.0, 3);
    let bits = |mask: ReservationNotificationMask| u32::from(mask);
    assert_eq!(
        bits(ReservationNotificationMask::new().with_regpre(true)),
        2
    );
    assert_eq!(
        bits(ReservationNotificationMask::new().with_resrel(true)),
        4
    );
    assert_eq!(
        bits(ReservationNotificationMask::new().with_respre(true)),
        8
    );
    assert_eq!(u32::from(ReservationPersistence::new().with_ptpl(true)), 1);
}

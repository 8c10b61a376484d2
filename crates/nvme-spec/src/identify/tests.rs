use core::mem::offset_of;

use zerocopy::{FromBytes, FromZeros, IntoBytes, transmute};

use super::controller::*;
use super::granularity::*;
use super::lists::*;
use super::namespace::*;
use super::nvm_controller::*;
use super::power_state::*;
use super::*;
use crate::registers::Version;

/// Asserts that each field lies at the byte that the specification's figure gives.
macro_rules! assert_offsets {
    ($type:ty: $($field:ident $offset:literal),* $(,)?) => {
        $(assert_eq!(offset_of!($type, $field), $offset, stringify!($field));)*
    };
}

#[test]
fn controller_fields_lie_where_figure_312_says() {
    assert_offsets!(IdentifyController:
        vid 0, ssvid 2, sn 4, mn 24, fr 64, rab 72, ieee 73, cmic 76, mdts 77, cntlid 78, ver 80,
        rtd3r 84, rtd3e 88, oaes 92, ctratt 96, rrls 100, bpcap 102, nssl 104, plsi 110,
        cntrltype 111, fguid 112, crdt 128, crcap 134, nvmsr 253, vwci 254, mec 255,
        oacs 256, acl_z 258, aerl_z 259, frmw 260, lpa 261, elpe_z 262, npss_z 263, avscc 264,
        apsta 265, wctemp 266, cctemp 268, mtfa 270, hmpre 272, hmmin 276, tnvmcap 280, unvmcap 296,
        rpmbs 312, edstt 316, dsto 318, fwug 319, kas 320, hctma 322, mntmt 324, mxtmt 326,
        sanicap 328, hmminds 332, hmmaxd 336, nsetidmax 338, endgidmax 340, anatt 342, anacap 343,
        anagrpmax 344, nanagrpid 348, pels 352, did 356, kpioc 358, mptfawr 360, megcap 368,
        tmpthha 384, cqt 386,
        sqes 512, cqes 513, maxcmd 514, nn 516, oncs 520, fuses 522, fna 524, vwc 525, awun_z 526,
        awupf_z 528, icsvscc 530, nwpc 531, acwu_z 532, cdfs 534, sgls 536, mnan 540, maxdna 544,
        maxcna 560, oaqd 564, rhiri 568, hirt 569, cmmrtd 570, nmmrtd 572, minmrtg 574, maxmrtg 575,
        trattr 576, mcudmq 578, mnsudmq 580, mcmr 582, nmcmr 584, mcdqpc 586,
        subnqn 768, fabrics 1792, psd 2048, vendor_specific 3072,
    );
}

#[test]
fn power_state_and_nvm_controller_offsets() {
    assert_offsets!(PowerState:
        mp 0, flags 3, enlat 4, exlat 8, rrt 12, rrl 13, rwt 14, rwl 15, idlp 16, ips 18, actp 20,
        apw_aps 22, epfrt 23, fqvt 24, epfvt 25, epfrts_fqvts 26, epfvts 27,
    );
    assert_offsets!(IdentifyNvmController:
        vsl 0, wzsl 1, wusl 2, dmrl 3, dmrsl 4, dmsl 8, kpiocap 16, wzdsl 17, aocs 18, ver 20,
        lbamqf 24,
    );
    assert_eq!(u8::from(PowerStateFlags::new().with_nops(true)), 2);
}

#[test]
fn namespace_fields_lie_where_nvm_1_1_says() {
    assert_offsets!(IdentifyNamespace:
        nsze 0, ncap 8, nuse 16, nsfeat 24, nlbaf_z 25, flbas 26, mc 27, dpc 28, dps 29, nmic 30,
        rescap 31, fpi 32, dlfeat 33, nawun_z 34, nawupf_z 36, nacwu_z 38, nabsn_z 40, nabo 42,
        nabspf_z 44, noiob 46, nvmcap 48, npwg_z 64, npwa_z 66, npdg_z 68, npda_z 70, nows_z 72,
        mssrl 74, mcl 76, msrc_z 80, kpios 81, nulbaf 82, kpiodaag 84, anagrpid 92, nsattr 99,
        nvmsetid 100, endgid 102, nguid 104, eui64 120, lbaf 128, vendor_specific 384,
    );
    assert_offsets!(IdentifyNvmNamespace:
        lbstm 0, pic 8, pifa 9, elbaf 12, npdgl 268, nprg_z 272, npra_z 276, nors_z 280, npdal 284,
        lbapss 288, tlbaag 292,
    );
    assert_offsets!(IdentifyNamespaceIndependent:
        nsfeat 0, nmic 1, rescap 2, fpi 3, anagrpid 4, nsattr 8, nvmsetid 10, endgid 12, nstat 14,
        kpios 15, maxkt 16, rgrpid 20,
    );
}

/// Identify Controller typed byte by byte, not made by the type under test.
fn controller_bytes() -> [u8; IDENTIFY_SIZE] {
    let mut bytes = [0; IDENTIFY_SIZE];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &[0xf4, 0x1a, 0x00, 0x11]);
    put(4, b"S1234               ");
    put(24, b"A model drive                           ");
    put(64, b"0.1.0   ");
    put(72, &[6, 0x56, 0x34, 0x12, 0b0000_0010, 5, 0x01, 0x00]);
    put(80, &[0x00, 0x01, 0x02, 0x00]);
    put(92, &[0x00, 0x01, 0x00, 0x00]);
    put(96, &[0x01, 0x80, 0x00, 0x00]);
    put(111, &[1]);
    put(256, &[0x00, 0x01, 3, 7, 0x03, 0x0e, 63, 0]);
    put(266, &[0x57, 0x01, 0x61, 0x01]);
    put(280, &[0, 0, 0, 0, 0, 0, 0, 0, 1]);
    put(512, &[0x66, 0x44, 0, 0, 0x00, 0x01, 0, 0]);
    put(
        520,
        &[0x4d, 0x00, 0x00, 0x00, 0x00, 0x07, 0x07, 0x00, 0x03, 0x00],
    );
    put(536, &[0x01, 0x00, 0x03, 0x00]);
    put(564, &[0x00, 0x04, 0x00, 0x00]);
    put(768, b"nqn.2014-08.org.nvmexpress:uuid:x\0");
    put(2048, &[0xc4, 0x09]);
    bytes
}

#[test]
fn a_typed_identify_controller_decodes() {
    let bytes = controller_bytes();
    let controller = IdentifyController::read_from_bytes(&bytes).unwrap();
    assert_eq!((controller.vid, controller.ssvid), (0x1af4, 0x1100));
    assert_eq!(ascii_text(&controller.sn), "S1234");
    assert_eq!(ascii_text(&controller.mn), "A model drive");
    assert_eq!(ascii_text(&controller.fr), "0.1.0");
    assert_eq!(controller.rab, 6);
    assert_eq!(controller.ieee, [0x56, 0x34, 0x12]);
    assert!(controller.cmic.mctrs() && !controller.cmic.mports());
    assert_eq!((controller.mdts, controller.cntlid), (5, 1));
    assert_eq!(controller.ver, Version::V2_1);
    assert!(controller.oaes.nsan() && !controller.oaes.fan());
    assert!(controller.ctratt.hids() && controller.ctratt.elbas());
    assert_eq!(controller.cntrltype, ControllerType::IO);
    assert!(controller.oacs.dbcs() && !controller.oacs.fnvms());
    assert_eq!((controller.acl_z, controller.aerl_z), (3, 7));
    assert!(controller.frmw.ffsro());
    assert_eq!(controller.frmw.nofs(), 1);
    assert!(controller.lpa.cses() && controller.lpa.lpeds() && !controller.lpa.smarts());
    assert_eq!((controller.elpe_z, controller.npss_z), (63, 0));
    assert_eq!((controller.wctemp, controller.cctemp), (343, 353));
    assert_eq!(controller.tnvmcap.get(), 1 << 64);
    assert_eq!((controller.sqes.min(), controller.sqes.max()), (6, 6));
    assert_eq!((controller.cqes.min(), controller.cqes.max()), (4, 4));
    assert_eq!(controller.nn, 256);
    assert!(controller.oncs.nvmcmps() && controller.oncs.nvmdsmsv() && controller.oncs.nvmwzsv());
    assert!(controller.oncs.tss() && !controller.oncs.nvmwusv() && !controller.oncs.ssfs());
    assert!(controller.vwc.vwcp());
    assert_eq!(controller.vwc.fb(), FlushBehavior::ALL_NAMESPACES);
    assert_eq!((controller.awun_z, controller.awupf_z), (7, 3));
    assert_eq!(controller.sgls.sglsupp(), 1);
    assert!(controller.sgls.sbbds() && controller.sgls.mcba());
    assert_eq!(controller.oaqd, 1024);
    assert!(controller.subnqn.starts_with(b"nqn.2014-08.org"));
    assert_eq!(controller.psd[0].mp, 2500);
    assert_eq!(controller.as_bytes(), bytes);
}

#[test]
fn attribute_bits_lie_where_figure_312_says() {
    assert_eq!(u16::from(Oacs::new().with_nms(true)), 1 << 3);
    assert_eq!(u16::from(Oacs::new().with_dbcs(true)), 1 << 8);
    assert_eq!(u16::from(Oacs::new().with_hmlms(true)), 1 << 11);
    assert_eq!(u16::from(Oncs::new().with_reservs(true)), 1 << 5);
    assert_eq!(u16::from(Oncs::new().with_nvmcpys(true)), 1 << 8);
    assert_eq!(u16::from(Oncs::new().with_nszs(true)), 1 << 12);
    assert_eq!(u32::from(Oaes::new().with_fan(true)), 1 << 9);
    assert_eq!(u32::from(Ctratt::new().with_ng(true)), 1 << 7);
    assert_eq!(u32::from(Ctratt::new().with_fdps(true)), 1 << 19);
    assert_eq!(u8::from(Lpa::new().with_mlps(true)), 1 << 5);
    assert_eq!(u32::from(Sgls::new().with_ksdbds(true)), 1 << 2);
    assert_eq!(u32::from(Sgls::new().with_sdt(0xff)), 0xff << 8);
    assert_eq!(u32::from(Sgls::new().with_sglsupp(2)), 2);
    assert_eq!(u32::from(Sgls::new().with_sbbds(true)), 1 << 16);
    assert_eq!(u32::from(Sgls::new().with_mcba(true)), 1 << 17);
    assert_eq!(u32::from(Sgls::new().with_slldts(true)), 1 << 18);
    assert_eq!(u32::from(Sgls::new().with_mptrsgl(true)), 1 << 19);
    assert_eq!(u32::from(Sgls::new().with_saos(true)), 1 << 20);
    assert_eq!(u32::from(Sgls::new().with_tsdbd(true)), 1 << 21);
    assert_eq!(u8::from(Cmic::new().with_anars(true)), 1 << 3);

    assert_eq!(u16::from(Oacs::new().with_ssrs(true)), 1);
    assert_eq!(u16::from(Oacs::new().with_fnvms(true)), 1 << 1);
    assert_eq!(u16::from(Oacs::new().with_fwds(true)), 1 << 2);
    assert_eq!(u16::from(Oacs::new().with_glss(true)), 1 << 9);
    assert_eq!(u16::from(Oncs::new().with_nvmwusv(true)), 1 << 1);
    assert_eq!(u16::from(Oncs::new().with_ssfs(true)), 1 << 4);
    assert_eq!(u16::from(Oncs::new().with_tss(true)), 1 << 6);
    assert_eq!(u16::from(Oncs::new().with_nvmvfys(true)), 1 << 7);
    assert_eq!(u16::from(Oncs::new().with_nvmcsa(true)), 1 << 9);
    assert_eq!(u16::from(Oncs::new().with_nvmafc(true)), 1 << 10);
    assert_eq!(u16::from(Oncs::new().with_maxwzd(true)), 1 << 11);
    assert_eq!(u16::from(Fuses::new().with_fcws(true)), 1);
    assert_eq!(u8::from(Nwpc::new().with_nwpwps(true)), 1);
    assert_eq!(u8::from(Nwpc::new().with_wpupcs(true)), 1 << 1);
    assert_eq!(u8::from(Nwpc::new().with_pwps(true)), 1 << 2);
    assert_eq!(u16::from(Aocs::new().with_ralbas(true)), 1);
    assert_eq!(u32::from(Ctratt::new().with_rhii(true)), 1 << 18);
    assert_eq!(u32::from(Ctratt::new().with_tbkas(true)), 1 << 6);
    assert_eq!(u32::from(Ctratt::new().with_elbas(true)), 1 << 15);
}

#[test]
fn optional_events_lie_where_figure_312_says() {
    let bits = |oaes: Oaes| u32::from(oaes);
    assert_eq!(bits(Oaes::new().with_nsan(true)), 1 << 8);
    assert_eq!(bits(Oaes::new().with_anacn(true)), 1 << 11);
    assert_eq!(bits(Oaes::new().with_plealcn(true)), 1 << 12);
    assert_eq!(bits(Oaes::new().with_lsian(true)), 1 << 13);
    assert_eq!(bits(Oaes::new().with_egean(true)), 1 << 14);
    assert_eq!(bits(Oaes::new().with_nnss(true)), 1 << 15);
    assert_eq!(bits(Oaes::new().with_tthr(true)), 1 << 16);
    assert_eq!(bits(Oaes::new().with_rgcns(true)), 1 << 17);
    assert_eq!(bits(Oaes::new().with_ansan(true)), 1 << 19);
    assert_eq!(bits(Oaes::new().with_zdcn(true)), 1 << 27);
    assert_eq!(bits(Oaes::new().with_dlpcn(true)), 1 << 31);
}

#[test]
fn a_typed_identify_namespace_decodes() {
    let mut bytes = [0u8; IDENTIFY_SIZE];
    bytes[0..8].copy_from_slice(&0x0100_0000u64.to_le_bytes());
    bytes[24..27].copy_from_slice(&[0b0001_1100, 1, 0b0010_0001]);
    bytes[30] = 1;
    bytes[32..34].copy_from_slice(&[0x80, 0b0000_1001]);
    bytes[104] = 0xaa;
    bytes[120] = 0xbb;
    // Format 0: 512 bytes. Format 1: 4096 bytes with 8 bytes of metadata, best performance.
    bytes[128..136].copy_from_slice(&[0, 0, 9, 2, 8, 0, 12, 0]);
    let namespace = IdentifyNamespace::read_from_bytes(&bytes).unwrap();
    assert_eq!(namespace.nsze, 0x0100_0000);
    assert!(namespace.nsfeat.dae() && namespace.nsfeat.uidreuse() && !namespace.nsfeat.thinp());
    assert_eq!(namespace.nsfeat.optperf(), 1);
    assert_eq!(namespace.nlbaf_z, 1);
    assert_eq!(namespace.flbas.format_index(), 0x11);
    assert!(namespace.nmic.shrns() && namespace.fpi.fpis());
    assert_eq!(namespace.dlfeat.drb(), DeallocatedReads::ZEROES);
    assert!(namespace.dlfeat.wzds());
    assert_eq!((namespace.nguid[0], namespace.eui64[0]), (0xaa, 0xbb));
    assert_eq!((namespace.lbaf[0].lbads(), namespace.lbaf[0].rp()), (9, 2));
    assert_eq!((namespace.lbaf[1].lbads(), namespace.lbaf[1].ms()), (12, 8));
    assert_eq!(namespace.as_bytes(), bytes);
}

#[test]
fn namespace_bits_lie_where_the_figures_say() {
    assert_eq!(u8::from(Nsfeat::new().with_mam(true)), 1 << 6);
    assert_eq!(u8::from(Nsfeat::new().with_optrperf(true)), 1 << 7);
    assert_eq!(u8::from(Flbas::new().with_mtelba(true)), 1 << 4);
    assert_eq!(u8::from(NsfeatIndependent::new().with_uidreuse(true)), 8);
    assert_eq!(u8::from(NsfeatIndependent::new().with_vwcnp(true)), 32);
    assert_eq!(u8::from(Nstat::new().with_nrdy(true)), 1);
    assert_eq!(u8::from(Nsattr::new().with_cwp(true)), 1);
    assert_eq!(u8::from(Nsfeat::new().with_thinp(true)), 1);
    assert_eq!(u8::from(Nsfeat::new().with_nsabp(true)), 1 << 1);
    assert_eq!(u8::from(Nmic::new().with_disns(true)), 1 << 1);
    assert_eq!(u8::from(Dps::new().with_pit(7)), 7);
    assert_eq!(u8::from(Dps::new().with_pip(true)), 1 << 3);
    assert_eq!(u8::from(Fpi::new().with_rfnvm(0x7f)), 0x7f);
    assert_eq!(u8::from(NsfeatIndependent::new().with_rmedia(true)), 16);
    let format = ExtendedLbaFormat::from(0x0000_1f90);
    assert_eq!((format.sts(), format.qpif()), (0x10, 0xf));
    assert_eq!(format.pif(), ProtectionFormat::QUALIFIED);
}

#[test]
fn reservation_capabilities_lie_where_base_2_1_says() {
    let bits = |rescap: Rescap| u8::from(rescap);
    assert_eq!(bits(Rescap::new().with_ptpls(true)), 1);
    assert_eq!(bits(Rescap::new().with_wes(true)), 1 << 1);
    assert_eq!(bits(Rescap::new().with_eas(true)), 1 << 2);
    assert_eq!(bits(Rescap::new().with_weros(true)), 1 << 3);
    assert_eq!(bits(Rescap::new().with_earos(true)), 1 << 4);
    assert_eq!(bits(Rescap::new().with_wears(true)), 1 << 5);
    assert_eq!(bits(Rescap::new().with_eaars(true)), 1 << 6);
    assert_eq!(bits(Rescap::new().with_iekr13(true)), 1 << 7);
}

#[test]
fn a_granularity_list_is_a_head_and_descriptors() {
    let mut list = NamespaceGranularityList::new_zeroed();
    list.nga = GranularityAttributes::new().with_gdm(true);
    list.nd_z = 1;
    list.descriptors[1] = GranularityDescriptor { nsg: 2, ncg: 3 };
    let bytes = list.as_bytes();
    assert_eq!(bytes[..5], [1, 0, 0, 0, 1]);
    assert_eq!((bytes[48], bytes[56]), (2, 3));
    assert_eq!(offset_of!(NamespaceGranularityList, reserved_1056), 1056);
    assert_eq!(bytes.len(), 4096);
}

#[test]
fn identification_descriptors() {
    let header = NamespaceIdentificationHeader {
        nidt: NamespaceIdentifierType::UUID,
        nidl: 16,
        reserved_2: [0; 2],
    };
    assert_eq!(header.as_bytes(), [3, 16, 0, 0]);
    assert_eq!(NamespaceIdentifierType::EUI64.identifier_length(), Some(8));
    assert_eq!(NamespaceIdentifierType::NGUID.identifier_length(), Some(16));
    assert_eq!(NamespaceIdentifierType::UUID.identifier_length(), Some(16));
    assert_eq!(NamespaceIdentifierType::CSI.identifier_length(), Some(1));
    assert_eq!(NamespaceIdentifierType(9).identifier_length(), None);
    let unknown: NamespaceIdentificationHeader = transmute!([9u8, 4, 0, 0]);
    assert_eq!(unknown.nidt.name(), "reserved or vendor specific");
}

#[test]
fn lists_lie_where_base_2_1_5_1_13_says() {
    let mut list = ControllerList::new_zeroed();
    list.numids = 1;
    list.cntlids[0] = 0x0102;
    assert_eq!(list.as_bytes()[..4], [1, 0, 2, 1]);
    let vector = IoCommandSetVector::new().with_nvm(true).with_zns(true);
    assert_eq!(u64::from(vector), 0b101);
}

#[test]
fn cns_values_are_those_of_base_2_1() {
    for (cns, number) in [
        (Cns::NAMESPACE, 0x00),
        (Cns::CONTROLLER, 0x01),
        (Cns::ACTIVE_NAMESPACE_ID_LIST, 0x02),
        (Cns::NAMESPACE_IDENTIFICATION_DESCRIPTOR_LIST, 0x03),
        (Cns::NVM_SET_LIST, 0x04),
        (Cns::IO_COMMAND_SET_NAMESPACE, 0x05),
        (Cns::IO_COMMAND_SET_CONTROLLER, 0x06),
        (Cns::IO_COMMAND_SET_ACTIVE_NAMESPACE_ID_LIST, 0x07),
        (Cns::NAMESPACE_INDEPENDENT, 0x08),
        (Cns::NAMESPACE_USER_DATA_FORMAT, 0x09),
        (Cns::IO_COMMAND_SET_NAMESPACE_USER_DATA_FORMAT, 0x0a),
        (Cns::ALLOCATED_NAMESPACE_ID_LIST, 0x10),
        (Cns::ALLOCATED_NAMESPACE, 0x11),
        (Cns::NAMESPACE_CONTROLLER_LIST, 0x12),
        (Cns::CONTROLLER_LIST, 0x13),
        (Cns::PRIMARY_CONTROLLER_CAPABILITIES, 0x14),
        (Cns::SECONDARY_CONTROLLER_LIST, 0x15),
        (Cns::NAMESPACE_GRANULARITY_LIST, 0x16),
        (Cns::UUID_LIST, 0x17),
        (Cns::DOMAIN_LIST, 0x18),
        (Cns::ENDURANCE_GROUP_LIST, 0x19),
        (Cns::IO_COMMAND_SET_ALLOCATED_NAMESPACE_ID_LIST, 0x1a),
        (Cns::IO_COMMAND_SET_ALLOCATED_NAMESPACE, 0x1b),
        (Cns::IO_COMMAND_SET, 0x1c),
        (Cns::ALLOCATED_NAMESPACE_INDEPENDENT, 0x1f),
    ] {
        assert_eq!(cns.0, number, "{cns:?}");
    }
}

#[test]
fn ascii_fields_are_padded_and_cut() {
    assert_eq!(ascii_field::<4>("ab"), *b"ab  ");
    assert_eq!(ascii_field::<2>("abc"), *b"ab");
    assert_eq!(ascii_field::<3>("a\u{e9}"), *b"a??");
    assert_eq!(ascii_text(b"  ab  "), "ab");
    assert_eq!(ascii_text(b"ab\0\0"), "ab");
    assert_eq!(ascii_text(&[0xff, b'a']), "");
}

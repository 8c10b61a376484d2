use super::*;

/// Capsule of Linux 7.3 when it connected: an Admin Queue of 32 entries, with a keep-alive of 5 s.
/// The capsule's bytes 0 to 63, of a recorded session.
const ADMIN_CONNECT: [u32; 16] = [
    0x0000_407f,
    0x0000_0001,
    0,
    0,
    0,
    0,
    0,
    0,
    0x0000_0400,
    0x0100_0000,
    0,
    31,
    5000,
    0,
    0,
    0,
];

fn sqe_of(dwords: [u32; 16]) -> Sqe {
    zerocopy::transmute!(dwords)
}

#[test]
fn a_recorded_connect_reads_as_its_fields() {
    let sqe = sqe_of(ADMIN_CONNECT);
    assert_eq!(sqe.admin_opcode(), AdminOpcode::FABRICS);
    assert_eq!(sqe.fabrics_type(), FabricsType::CONNECT);
    let cdw10 = ConnectCdw10::from(sqe.cdw10);
    assert_eq!((cdw10.recfmt(), cdw10.qid()), (0, 0));
    let cdw11 = ConnectCdw11::from(sqe.cdw11);
    assert_eq!(cdw11.sqsize_z(), 31);
    assert!(!cdw11.cattr().disable_sq_flow_control());
    assert_eq!(sqe.cdw12, 5000);
}

#[test]
fn fields_of_connect_lie_at_the_offsets_that_errors_name() {
    // Base 2.1, 6.3: RECFMT 41:40, QID 43:42, SQSIZE 45:44, CATTR 46, KATO 51:48.
    let mut sqe = Sqe::fabrics(FabricsType::CONNECT);
    sqe.cdw10 = ConnectCdw10::new()
        .with_recfmt(0x1211)
        .with_qid(0x1413)
        .into();
    let attributes = ConnectAttributes::from(0x17);
    sqe.cdw11 = ConnectCdw11::new()
        .with_sqsize_z(0x1615)
        .with_cattr(attributes)
        .into();
    sqe.cdw12 = 0x1b1a_1918;
    let bytes = sqe.as_bytes();
    assert_eq!(bytes[0], 0x7f);
    assert_eq!(bytes[4], 0x01);
    let at = |offset: u16| bytes[usize::from(offset)];
    assert_eq!(at(CONNECT_RECFMT_OFFSET), 0x11);
    assert_eq!(at(CONNECT_QID_OFFSET), 0x13);
    assert_eq!(at(CONNECT_SQSIZE_OFFSET), 0x15);
    assert_eq!(at(CONNECT_CATTR_OFFSET), 0x17);
    assert_eq!(at(CONNECT_KATO_OFFSET), 0x18);
    assert!(attributes.disable_sq_flow_control());
    assert_eq!(attributes.priority_class(), 3);
}

#[test]
fn an_answer_of_connect_is_what_linux_reads() {
    // "include/linux/nvme.h": the two bits for authentication are 1 << 17 and 1 << 18.
    let dw0 = u32::from(ConnectDw0::new().with_cntlid(7).with_atr(true));
    assert_eq!(dw0, 1 << 17 | 7);
    assert_eq!(u32::from(ConnectDw0::new().with_ascr(true)), 1 << 18);
    // A host that is not allowed, recorded: the offset of HOSTNQN in the data.
    let parameter = InvalidParameterDw0::from(0x1_0200);
    assert_eq!(parameter.ipo(), 512);
    assert!(parameter.iattr());
}

#[test]
fn properties_travel_in_two_dwords() {
    let cqe = Cqe::default().with_property(0x0123_4567_89ab_cdef);
    assert_eq!((cqe.dw0, cqe.dw1), (0x89ab_cdef, 0x0123_4567));
    assert_eq!(cqe.property(), 0x0123_4567_89ab_cdef);
    let sqe = Sqe::fabrics(FabricsType::PROPERTY_SET).with_property(0x0046_0061);
    assert_eq!(sqe.as_bytes()[48..56], [0x61, 0, 0x46, 0, 0, 0, 0, 0]);
    assert_eq!(sqe.property(), 0x0046_0061);
    let cdw10 = PropertyCdw10::from(1);
    assert_eq!(cdw10.size(), PropertySize::BYTES_8);
}

#[test]
fn authentication_names_its_protocol_in_the_topmost_byte() {
    // Recorded: SPSP0 1, SPSP1 1, SECP E9h at bytes 41 to 43.
    let cdw10 = AuthenticationCdw10::from(0xe901_0100);
    assert_eq!((cdw10.spsp0(), cdw10.spsp1()), (1, 1));
    assert_eq!(cdw10.secp(), SECP_NVME);
}

#[test]
fn a_name_ends_with_a_zero_and_is_text() {
    let mut field = [0; NQN_SIZE];
    field[..3].copy_from_slice(b"nqn");
    assert_eq!(text_of(&field), Some("nqn"));
    assert_eq!(text_of(&[b'a'; NQN_SIZE]), None);
    field[1] = 0xff;
    assert_eq!(text_of(&field), None);
    assert_eq!(text_of(&[]), None);
    assert_eq!(text_of(&[0]), Some(""));
}

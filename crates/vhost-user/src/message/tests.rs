//! Bodies as "Message Specification" of the protocol's document draws them.

use proptest::prelude::*;

use super::*;

/// A body of these words, each with its number of bytes.
fn body(words: &[(u64, usize)]) -> Vec<u8> {
    let bytes = words
        .iter()
        .map(|(word, len)| word.to_le_bytes()[..*len].to_vec());
    bytes.flatten().collect()
}

/// Messages with the body and the number of descriptors that they have.
fn right() -> Vec<(Request, Vec<u8>, usize, Message<'static>)> {
    let region = |at: u64| Region {
        guest: at,
        len: at + 1,
        user: at + 2,
        offset: at + 3,
    };
    let region_words = |at: u64| [(at, 8), (at + 1, 8), (at + 2, 8), (at + 3, 8)];
    let number = body(&[(0x0102_0304_0506_0708, 8)]);
    let state = body(&[(3, 4), (0x8001_8001, 4)]);
    let is_state = VringState {
        index: 3,
        num: 0x8001_8001,
    };
    let [two, with_fd, without_fd] = [
        [
            vec![(2, 4), (0, 4)],
            region_words(16).to_vec(),
            region_words(32).to_vec(),
        ]
        .concat(),
        vec![(7, 8)],
        vec![(7 | 1 << 8, 8)],
    ];
    let one = [vec![(0, 8)], region_words(16).to_vec()].concat();
    let ring_fd = |has_fd| VringFd { index: 7, has_fd };
    let inflight = Inflight {
        len: 0x3000,
        offset: 0x1000,
        queues: 2,
        queue_size: 128,
    };
    let description = body(&[(0x3000, 8), (0x1000, 8), (2, 2), (128, 2), (0, 4)]);
    assert_eq!(inflight.encode()[..], description);
    vec![
        (Request(1), vec![], 0, Message::GetFeatures),
        (
            Request(2),
            number.clone(),
            0,
            Message::SetFeatures(0x0102_0304_0506_0708),
        ),
        (Request(3), vec![], 0, Message::SetOwner),
        (Request(4), vec![], 0, Message::ResetOwner),
        (
            Request(5),
            body(&two),
            2,
            Message::SetMemTable([region(16), region(32)].into_iter().collect()),
        ),
        (Request(8), state.clone(), 0, Message::SetVringNum(is_state)),
        (
            Request(9),
            body(&[(1, 4), (1, 4), (0x10, 8), (0x20, 8), (0x30, 8), (0x40, 8)]),
            0,
            Message::SetVringAddr(VringAddr {
                index: 1,
                flags: 1,
                descriptors: 0x10,
                used: 0x20,
                available: 0x30,
            }),
        ),
        (
            Request(10),
            state.clone(),
            0,
            Message::SetVringBase(is_state),
        ),
        (
            Request(11),
            state.clone(),
            0,
            Message::GetVringBase(is_state),
        ),
        (
            Request(12),
            body(&with_fd),
            1,
            Message::SetVringKick(ring_fd(true)),
        ),
        (
            Request(13),
            body(&without_fd),
            0,
            Message::SetVringCall(ring_fd(false)),
        ),
        (
            Request(14),
            body(&with_fd),
            1,
            Message::SetVringErr(ring_fd(true)),
        ),
        (Request(15), vec![], 0, Message::GetProtocolFeatures),
        (
            Request(16),
            number.clone(),
            0,
            Message::SetProtocolFeatures(0x0102_0304_0506_0708),
        ),
        (Request(17), vec![], 0, Message::GetQueueNum),
        (Request(18), state, 0, Message::SetVringEnable(is_state)),
        (Request(21), vec![], 1, Message::SetBackendReqFd),
        (
            Request(24),
            body(&[(32, 4), (2, 4), (1, 4), (0x0807, 2)]),
            0,
            Message::GetConfig(ConfigAccess {
                offset: 32,
                flags: 1,
                bytes: &[7, 8],
            }),
        ),
        (
            Request(25),
            body(&[(32, 4), (1, 4), (0, 4), (1, 1)]),
            0,
            Message::SetConfig(ConfigAccess {
                offset: 32,
                flags: 0,
                bytes: &[1],
            }),
        ),
        (
            Request(31),
            description.clone(),
            0,
            Message::GetInflightFd(inflight),
        ),
        (
            Request(32),
            description,
            1,
            Message::SetInflightFd(inflight),
        ),
        (Request(34), vec![], 0, Message::ResetDevice),
        (Request(36), vec![], 0, Message::GetMaxMemSlots),
        (Request(37), body(&one), 1, Message::AddMemReg(region(16))),
        (Request(38), body(&one), 0, Message::RemMemReg(region(16))),
        (Request(39), body(&[(0xf, 8)]), 0, Message::SetStatus(0xf)),
        (Request(40), vec![], 0, Message::GetStatus),
    ]
}

#[test]
fn bodies_mean_what_the_document_says() {
    for (request, body, fds, expected) in right() {
        assert_eq!(
            Message::parse(request, &body, fds),
            Ok(expected),
            "{request}"
        );
    }
    for request in [0, 6, 7, 19, 20, 22, 23, 26, 30, 33, 35, 41, u32::MAX] {
        let parsed = Message::parse(Request(request), &[1, 2, 3], 2);
        assert_eq!(parsed, Ok(Message::Unknown), "{request}");
    }
}

#[test]
fn another_length_is_a_fault() {
    for (request, body, fds, _) in right() {
        let parse = |body: &[u8]| Message::parse(request, body, fds).map(|_| ());
        let longer = [&body[..], &[0]].concat();
        let fault = |len: usize| Err(Fault::Length(request, len as u32));
        // A table may have room for all regions.
        if request != Request::SET_MEM_TABLE {
            assert_eq!(parse(&longer), fault(longer.len()), "{request}");
        }
        if let Some((_, shorter)) = body.split_last() {
            assert_eq!(parse(shorter), fault(shorter.len()), "{request}");
        }
    }
    // The padding of an inflight description may be missing.
    let description = right()
        .into_iter()
        .find(|it| it.0 == Request::GET_INFLIGHT_FD);
    let (request, body, fds, expected) = description.unwrap();
    assert_eq!(Message::parse(request, &body[..20], fds), Ok(expected));
}

#[test]
fn another_number_of_descriptors_is_a_fault() {
    for (request, body, fds, _) in right() {
        for found in [fds.wrapping_sub(1), fds + 1, MAX_FDS] {
            // Some send the descriptor of a region that they remove.
            let is_allowed = found == fds || request == Request::REM_MEM_REG && found == 1;
            if found > MAX_FDS || is_allowed {
                continue;
            }
            let parsed = Message::parse(request, &body, found);
            assert!(
                matches!(parsed, Err(Fault::Descriptors { .. })),
                "{request} with {found}: {parsed:?}"
            );
        }
    }
}

#[test]
fn a_table_has_up_to_eight_regions() {
    let table = |count: u64, regions: usize| {
        let bytes = [body(&[(count, 4), (0, 4)]), vec![1; regions * 32]].concat();
        let fds = (count as usize).min(MAX_FDS);
        Message::parse(Request::SET_MEM_TABLE, &bytes, fds).map(|_| ())
    };
    assert_eq!(table(0, 0), Ok(()));
    assert_eq!(table(8, 8), Ok(()));
    assert_eq!(table(1, 8), Ok(()), "with room for all");
    assert_eq!(table(9, 8), Err(Fault::Regions(9)));
    assert_eq!(table(u64::from(u32::MAX), 8), Err(Fault::Regions(u32::MAX)));
    let length = |len| Err(Fault::Length(Request::SET_MEM_TABLE, len));
    assert_eq!(table(2, 1), length(8 + 32));
    assert_eq!(table(1, 9), length(8 + 9 * 32));
}

#[test]
fn a_part_of_the_configuration_space_has_a_bound() {
    let config = |len: usize, bytes: usize| {
        let body = [body(&[(0, 4), (len as u64, 4), (0, 4)]), vec![0; bytes]].concat();
        Message::parse(Request::GET_CONFIG, &body, 0).map(|_| ())
    };
    assert_eq!(config(MAX_CONFIG, MAX_CONFIG), Ok(()));
    let length = |bytes: usize| Err(Fault::Length(Request::GET_CONFIG, 12 + bytes as u32));
    assert_eq!(
        config(MAX_CONFIG + 1, MAX_CONFIG + 1),
        length(MAX_CONFIG + 1)
    );
    assert_eq!(config(4, 3), length(3));
    assert_eq!(config(3, 4), length(4));
}

proptest! {
    #[test]
    fn any_body_is_a_message_or_a_fault(
        request in 0..64u32,
        body in prop::collection::vec(any::<u8>(), 0..400),
        fds in 0..=MAX_FDS,
    ) {
        let request = Request(request);
        match Message::parse(request, &body, fds) {
            Ok(Message::SetMemTable(table)) => prop_assert_eq!(table.len(), fds),
            Ok(Message::GetConfig(access) | Message::SetConfig(access)) => {
                prop_assert!(access.bytes.len() <= MAX_CONFIG);
            }
            Ok(_) => {}
            Err(fault) => prop_assert!(fault.to_string().contains(' ')),
        }
    }
}

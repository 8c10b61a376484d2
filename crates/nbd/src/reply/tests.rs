use super::*;

const COOKIE: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
const OFFSET: [u8; 8] = [0, 0, 0, 0, 0, 0, 0x10, 0];

fn reply(style: Style) -> Reply {
    Reply {
        style,
        cookie: u64::from_be_bytes(COOKIE),
        offset: 0x1000,
    }
}

/// The header of a chunk, from the layouts of the specification.
fn chunk(style: Style, flags: u8, kind: [u8; 2], len: u8) -> Vec<u8> {
    let (flags, kind) = (&[0, flags][..], &kind[..]);
    if style == Style::Extended {
        let len = [0, 0, 0, 0, 0, 0, 0, len];
        [
            &[0x6e, 0x8a, 0x27, 0x8c],
            flags,
            kind,
            &COOKIE,
            &OFFSET,
            &len,
        ]
        .concat()
    } else {
        let len = [0, 0, 0, len];
        [&[0x66, 0x8e, 0x33, 0xef], flags, kind, &COOKIE, &len].concat()
    }
}

fn simple(error: u8) -> Vec<u8> {
    [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, error], &COOKIE[..]].concat()
}

const CHUNKS: [Style; 2] = [Style::Structured, Style::Extended];

#[test]
fn simple_replies_have_sixteen_bytes() {
    let reply = reply(Style::Simple);
    assert_eq!(reply.done()[..], simple(0));
    assert_eq!(reply.data(0x1200, 512, true)[..], simple(0));
    let failed = reply.failed(Errno::INVALID, Some(0x1000), "unaligned");
    assert_eq!(failed[..], simple(22));
}

#[test]
fn success_is_a_last_chunk_without_payload() {
    for style in CHUNKS {
        let expected = chunk(style, 1, [0, 0], 0);
        assert_eq!(reply(style).done()[..], expected);
    }
    assert_eq!(reply(Style::Structured).done().len(), 20);
    assert_eq!(reply(Style::Extended).done().len(), 32);
}

#[test]
fn data_lie_behind_their_offset() {
    for style in CHUNKS {
        for last in [false, true] {
            let mut expected = chunk(style, u8::from(last), [0, 1], 8 + 64);
            expected.extend([0, 0, 0, 0, 0, 0, 0x12, 0]);
            assert_eq!(reply(style).data(0x1200, 64, last)[..], expected);
        }
    }
}

#[test]
fn an_error_has_a_message_and_may_have_an_offset() {
    for style in CHUNKS {
        let mut expected = chunk(style, 1, [0x80, 1], 6 + 4);
        expected.extend(b"\0\0\0\x05\0\x04lost");
        let failed = reply(style).failed(Errno::IO, None, "lost");
        assert_eq!(failed[..], expected);

        let mut expected = chunk(style, 1, [0x80, 2], 14 + 4);
        expected.extend(b"\0\0\0\x05\0\x04lost");
        expected.extend([0, 0, 0, 0, 0, 0, 0x12, 0]);
        let failed = reply(style).failed(Errno::IO, Some(0x1200), "lost");
        assert_eq!(failed[..], expected);
    }
}

#[test]
fn a_message_is_cut_between_characters() {
    for (message, len) in [
        ("x".repeat(82), 82),
        ("x".repeat(83), 82),
        (format!("{}é", "x".repeat(81)), 81),
        ("€".repeat(1000), 81),
    ] {
        let head = reply(Style::Extended).failed(Errno::IO, Some(0), &message);
        assert_eq!(head.len(), 32 + 4 + 2 + len + 8);
        assert_eq!(usize::from(head[31]), 14 + len);
        assert_eq!(usize::from(head[37]), len);
        assert_eq!(head[38..38 + len], message.as_bytes()[..len]);
    }
    assert!(reply(Style::Structured).failed(Errno::IO, None, "").len() == 26);
}

/// Layouts of `NBD_REPLY_TYPE_BLOCK_STATUS` (5) and `NBD_REPLY_TYPE_BLOCK_STATUS_EXT` (6).
#[test]
fn extents_lie_behind_the_context() {
    let head = reply(Style::Structured).block_status(2);
    let context = [0, 0, 0, 1];
    let expected = [
        &chunk(Style::Structured, 1, [0, 5], 4 + 2 * 8)[..],
        &context,
    ];
    assert_eq!(head[..], expected.concat());
    let head = reply(Style::Extended).block_status(2);
    let expected = [
        &chunk(Style::Extended, 1, [0, 6], 8 + 2 * 16)[..],
        &context,
        &[0, 0, 0, 2],
    ];
    assert_eq!(head[..], expected.concat());
}

#[test]
fn an_extent_is_its_length_and_its_state() {
    let hole = ExtentState::new().with_hole(true).with_zero(true);
    let extent = Style::Structured.extent(0x0102_0304, hole);
    assert_eq!(extent[..], [1, 2, 3, 4, 0, 0, 0, 3]);
    let extent = Style::Structured.extent(512, ExtentState::new());
    assert_eq!(extent[..], [0, 0, 2, 0, 0, 0, 0, 0]);
    let extent = Style::Extended.extent(0x0102_0304_0506_0708, ExtentState::new().with_zero(true));
    let state = [0, 0, 0, 0, 0, 0, 0, 2];
    assert_eq!(extent[..], [&COOKIE[..], &state].concat());
    assert_eq!(ExtentState::new().with_hole(true).into_bits(), 1);
    for style in CHUNKS {
        let len = style.extent(1, hole).len();
        assert_eq!(len, style.extent_len() as usize);
    }
}

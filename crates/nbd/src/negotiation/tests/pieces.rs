//! Streams of anything, in any pieces.

use proptest::prelude::*;

use super::*;

/// Outcome of a stream in pieces of these lengths, again and again: the bytes sent, the end, and
/// the number of bytes left.
fn cut(stream: &[u8], cuts: &[usize]) -> (Vec<u8>, Result<Option<Outcome>, Fault>, usize) {
    let exports = [export("a"), sparse(""), export("ab")];
    let mut negotiation = Negotiation::new(Tls::Done);
    let mut out = Vec::new();
    let mut come = 0;
    let mut cuts = cuts.iter().cycle();
    let mut held = Vec::new();
    loop {
        let before = held.len();
        let mut input = &held[..];
        let sent = out.len();
        let end = negotiation.step(&mut input, &exports, &mut out);
        // The answer is in proportion to the bytes that have come.
        assert!(out.len() - sent <= 4096, "{}", out.len() - sent);
        assert!(negotiation.held.len() <= MAX_OPTION);
        held = input.to_vec();
        if end != Ok(None) {
            return (out, end, held.len() + stream.len() - come);
        }
        if held.len() == before {
            assert_eq!(before, 0, "all is taken before an outcome");
            if come == stream.len() {
                return (out, end, 0);
            }
            let next = (*cuts.next().unwrap()).clamp(1, stream.len() - come);
            held.extend(&stream[come..come + next]);
            come += next;
        }
    }
}

/// Options that may mean something.
fn meant() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![Just(""), Just("a"), Just("ab"), Just("abc")];
    let query = prop_oneof![
        Just("base:"),
        Just("base:allocation"),
        Just("qemu:x"),
        Just("")
    ];
    prop_oneof![
        (0_u32..14).prop_map(|number| option(number, &[])),
        (
            6_u32..8,
            name.clone(),
            prop::collection::vec(0_u16..5, 0..4)
        )
            .prop_map(|(number, name, requests)| option(number, &info(name, &requests))),
        (9_u32..11, name, prop::collection::vec(query, 0..4))
            .prop_map(|(number, name, queries)| option(number, &contexts(name, &queries))),
        (0_u32..14, 0_usize..20_000).prop_map(|(number, len)| option(number, &vec![1; len])),
        (0_u32..14, any::<Vec<u8>>()).prop_map(|(number, data)| option(number, &data)),
    ]
}

proptest! {
    #[test]
    fn pieces_change_nothing(
        options in prop::collection::vec(meant(), 0..8),
        rest in any::<Vec<u8>>(),
        cuts in prop::collection::vec(1_usize..5000, 1..8),
        change in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut stream = FIXED.to_vec();
        stream.extend(options.concat());
        stream.extend(rest);
        if let Some((at, to)) = change {
            let at = at.index(stream.len());
            stream[at] = to;
        }
        prop_assert_eq!(cut(&stream, &cuts), cut(&stream, &[usize::MAX]));
    }

    #[test]
    fn any_bytes_are_taken(stream in any::<Vec<u8>>(), cuts in prop::collection::vec(1_usize..40, 1..8)) {
        prop_assert_eq!(cut(&stream, &cuts), cut(&stream, &[1]));
    }
}

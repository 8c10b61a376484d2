//! Metadata contexts.

use super::*;

#[test]
fn a_filter_of_contexts_is_offered_with_extended_headers_and_a_context() {
    let mut filtered = sparse("a");
    filtered.flags.set_block_status_payload(true);
    let flags = |server: &mut Server| {
        let replies = server.ask(INFO, &info("a", &[]));
        replies[0].2[10] & 0x10 != 0
    };
    let mut server = server(&[filtered]);
    let set = contexts("a", &["base:allocation"]);
    assert_eq!(server.only(STRUCTURED_REPLY, &[]), ACK);
    assert_eq!(server.ask(SET_META_CONTEXT, &set).len(), 2);
    assert!(!flags(&mut server));
    assert_eq!(server.only(EXTENDED_HEADERS, &[]), ACK);
    assert!(flags(&mut server));
    assert_eq!(server.only(SET_META_CONTEXT, &contexts("a", &[])), ACK);
    assert!(!flags(&mut server));
}

#[test]
fn contexts_are_listed() {
    let mut server = server(&[export("a"), sparse("b")]);
    let context = (
        LIST_META_CONTEXT,
        REP_META_CONTEXT,
        b"\0\0\0\0base:allocation".to_vec(),
    );
    let ack = (LIST_META_CONTEXT, ACK, Vec::new());
    let mut list = |name, queries: &[&str]| server.ask(LIST_META_CONTEXT, &contexts(name, queries));
    for queries in [
        &[][..],
        &["base:"],
        &["base:allocation"],
        &["base:", "base:allocation", "base:"],
        &["qemu:dirty-bitmap:b", "base:"],
    ] {
        assert_eq!(list("b", queries), [context.clone(), ack.clone()]);
        assert_eq!(list("a", queries), std::slice::from_ref(&ack));
    }
    for queries in [&["base:other"][..], &["qemu:"], &["base"], &[""]] {
        assert_eq!(list("b", queries), std::slice::from_ref(&ack));
    }
    assert_eq!(list("c", &[])[0].1, UNKNOWN);
}

#[test]
fn contexts_are_set_behind_structured_replies() {
    let set = contexts("b", &["x-other:y", "base:allocation", "base:allocation"]);
    let mut server = server(&[export("a"), sparse("b"), sparse("c")]);
    assert_eq!(server.only(SET_META_CONTEXT, &set), INVALID);
    assert_eq!(server.only(STRUCTURED_REPLY, &[]), ACK);
    let replies = server.ask(SET_META_CONTEXT, &set);
    let context = b"\0\0\0\x01base:allocation".to_vec();
    assert_eq!(
        replies,
        [
            (SET_META_CONTEXT, REP_META_CONTEXT, context),
            (SET_META_CONTEXT, ACK, Vec::new())
        ]
    );
    assert!(server.go("b").allocation);
}

#[test]
fn contexts_hold_for_their_export_and_until_they_are_set_again() {
    let set = contexts("b", &["base:allocation"]);
    let prepared = || {
        let mut server = server(&[sparse("a"), sparse("b")]);
        assert_eq!(server.only(STRUCTURED_REPLY, &[]), ACK);
        assert_eq!(server.ask(SET_META_CONTEXT, &set).len(), 2);
        server
    };
    assert!(prepared().go("b").allocation);
    assert!(!prepared().go("a").allocation);
    // No query, the wildcard, another context, and options that fail.
    let long = vec![0; MAX_OPTION + 1];
    for (again, reply) in [
        (contexts("b", &[]), ACK),
        (contexts("b", &["base:"]), ACK),
        (contexts("b", &["qemu:allocation-depth"]), ACK),
        (contexts("d", &["base:allocation"]), UNKNOWN),
        (set[..set.len() - 1].to_vec(), INVALID),
        (long, TOO_BIG),
    ] {
        let mut server = prepared();
        assert_eq!(server.only(SET_META_CONTEXT, &again), reply);
        assert!(!server.go("b").allocation);
    }
    // LIST_META_CONTEXT changes nothing.
    let mut server = prepared();
    server.ask(LIST_META_CONTEXT, &contexts("a", &[]));
    assert!(server.go("b").allocation);
    // The export has changed since.
    let mut server = prepared();
    server.exports[1].allocation = false;
    assert!(!server.go("b").allocation);
}

#[test]
fn the_lengths_of_contexts_add_up() {
    let mut server = server(&[sparse("a")]);
    assert_eq!(server.only(STRUCTURED_REPLY, &[]), ACK);
    let right = contexts("a", &["base:", "base:allocation"]);
    for number in [LIST_META_CONTEXT, SET_META_CONTEXT] {
        for len in 0..right.len() {
            assert_eq!(server.only(number, &right[..len]), INVALID, "{len}");
        }
        assert_eq!(server.only(number, &[&right[..], b"x"].concat()), INVALID);
        assert_eq!(server.only(number, &[0xff; 20]), INVALID);
        let long = contexts("a", &[&"a".repeat(4097)]);
        assert_eq!(server.only(number, &long), INVALID);
    }
}

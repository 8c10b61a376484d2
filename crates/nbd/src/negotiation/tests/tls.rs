//! `NBD_OPT_STARTTLS`, and what TLS changes.

use super::*;

#[test]
fn starttls_depends_on_the_connection() {
    assert_eq!(server(&[]).only(STARTTLS, &[]), POLICY);
    let mut done = Server::new(Tls::Done, &[]);
    assert_eq!(done.only(STARTTLS, &[]), INVALID);
    for tls in [Tls::Offered, Tls::Required] {
        let mut server = Server::new(tls, &[]);
        assert_eq!(server.only(STARTTLS, b"x"), INVALID);
        let (out, end) = server.send(&option(STARTTLS, &[]));
        assert_eq!(replies(&out), [(STARTTLS, ACK, Vec::new())]);
        assert_eq!(end, Ok(Some(Outcome::StartTls)));
    }
}

#[test]
fn bytes_in_clear_behind_starttls_end_the_connection() {
    for tls in [Tls::Offered, Tls::Required] {
        let bytes = [option(STARTTLS, &[]), option(LIST, &[])].concat();
        let (out, end) = Server::new(tls, &[]).send(&bytes);
        assert_eq!((out, end), (Vec::new(), Err(Fault::ClearBytes)));
        // Where they come later, too.
        let mut server = Server::new(tls, &[]);
        assert_eq!(server.end(STARTTLS, &[]), Ok(Some(Outcome::StartTls)));
        assert_eq!(server.send(b""), (Vec::new(), Ok(None)));
        assert_eq!(server.send(b"I").1, Err(Fault::ClearBytes));
    }
}

#[test]
fn tls_forgets_what_was_negotiated_in_clear() {
    let mut server = Server::new(Tls::Offered, &[sparse("a")]);
    assert_eq!(server.only(EXTENDED_HEADERS, &[]), ACK);
    let set = contexts("a", &["base:allocation"]);
    assert_eq!(server.ask(SET_META_CONTEXT, &set).len(), 2);
    assert_eq!(server.end(STARTTLS, &[]), Ok(Some(Outcome::StartTls)));
    server.negotiation = server.negotiation.through_tls();
    assert_eq!(server.only(STARTTLS, &[]), INVALID);
    let agreed = server.go("a");
    assert!(!agreed.structured && !agreed.extended && !agreed.allocation);
}

#[test]
fn client_flags_hold_behind_tls() {
    let mut server = Server {
        exports: vec![export("a")],
        negotiation: Negotiation::new(Tls::Required),
    };
    let bytes = [&FIXED_NO_ZEROES[..], &option(STARTTLS, &[])].concat();
    assert_eq!(server.send(&bytes).1, Ok(Some(Outcome::StartTls)));
    server.negotiation = server.negotiation.through_tls();
    assert_eq!(server.send(&option(EXPORT_NAME, b"a")).0.len(), 10);
}

#[test]
fn where_tls_is_required_only_starttls_and_abort_are_answered() {
    let mut server = Server::new(Tls::Required, &[sparse("a")]);
    for number in (3..20).filter(|number| *number != STARTTLS) {
        assert_eq!(server.only(number, &[]), TLS_REQD, "{number}");
    }
    assert_eq!(server.only(GO, &info("a", &[])), TLS_REQD);
    assert_eq!(server.only(GO, &[0; MAX_OPTION + 1]), TLS_REQD);
    assert_eq!(server.end(ABORT, &[]), Ok(Some(Outcome::Abort)));
}

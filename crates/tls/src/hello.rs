//! The pre-shared keys that a ClientHello offers (RFC 8446, 4.1.2 and 4.2.11).

/// Extension type of pre_shared_key.
const PRE_SHARED_KEY: u16 = 41;
/// Message type of a ClientHello.
const CLIENT_HELLO: u8 = 1;
/// Names that are looked at: hosts send one.
const OFFERS_MAX: usize = 8;

/// A key that a client offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<'a> {
    /// Its name.
    pub identity: &'a [u8],
    /// The message up to its list of binders, which the binder is of.
    pub hello: &'a [u8],
    /// The proof that the client has the key.
    pub binder: &'a [u8],
}

/// Takes a number of `len` bytes.
fn number(bytes: &mut &[u8], len: usize) -> Option<usize> {
    let (number, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(
        number
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
    )
}

/// Takes a vector behind its length of `len` bytes.
fn vector<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let count = number(bytes, len)?;
    let (vector, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(vector)
}

/// The first keys that a message of a handshake offers. `None`: it is no ClientHello that offers
/// keys.
#[must_use]
pub fn offers(message: &[u8]) -> Option<Vec<Offer<'_>>> {
    let mut rest = message;
    if number(&mut rest, 1)? != usize::from(CLIENT_HELLO) {
        return None;
    }
    let mut body = vector(&mut rest, 3)?;
    // legacy_version and random; legacy_session_id, cipher_suites, legacy_compression_methods.
    body = body.get(2 + 32..)?;
    vector(&mut body, 1)?;
    vector(&mut body, 2)?;
    vector(&mut body, 1)?;
    let mut extensions = vector(&mut body, 2)?;
    // pre_shared_key is the last one.
    while !extensions.is_empty() {
        let kind = number(&mut extensions, 2)?;
        let mut data = vector(&mut extensions, 2)?;
        if kind != usize::from(PRE_SHARED_KEY) {
            continue;
        }
        let mut identities = vector(&mut data, 2)?;
        // The binders end the message.
        let hello = message.get(..message.len() - data.len())?;
        let mut binders = vector(&mut data, 2)?;
        let is_last = extensions.is_empty() && body.is_empty() && rest.is_empty();
        if !is_last || !data.is_empty() {
            return None;
        }
        let mut offers = Vec::new();
        while !identities.is_empty() && offers.len() < OFFERS_MAX {
            let identity = vector(&mut identities, 2)?;
            // obfuscated_ticket_age
            number(&mut identities, 4)?;
            let binder = vector(&mut binders, 1)?;
            offers.push(Offer {
                identity,
                hello,
                binder,
            });
        }
        return Some(offers);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ClientHello with an extension that offers these keys, and their binders behind `hello`.
    fn hello(keys: &[(&[u8], u8)]) -> Vec<u8> {
        let two = |len: usize| u16::try_from(len).unwrap().to_be_bytes();
        let (mut identities, mut binders) = (Vec::new(), Vec::new());
        for (name, byte) in keys {
            identities.extend(two(name.len()));
            identities.extend(*name);
            identities.extend([0; 4]);
            binders.extend([&[32][..], &[*byte; 32]].concat());
        }
        let psk = [
            &two(identities.len())[..],
            &identities,
            &two(binders.len()),
            &binders,
        ]
        .concat();
        let groups = [&two(10)[..], &two(4), &[0, 2, 0, 29]].concat();
        let extensions = [&groups[..], &two(41), &two(psk.len()), &psk].concat();
        let start = [&[3, 3][..], &[7; 32], &[0], &two(2), &[0x13, 1], &[1, 0]].concat();
        let body = [&start[..], &two(extensions.len()), &extensions].concat();
        [&[1, 0][..], &two(body.len()), &body].concat()
    }

    #[test]
    fn names_and_binders_of_a_hello_are_found() {
        let message = hello(&[(b"first", 1), (b"second", 2)]);
        let offers = offers(&message).unwrap();
        let found: Vec<_> = offers
            .iter()
            .map(|offer| (offer.identity, offer.binder))
            .collect();
        assert_eq!(
            found,
            [(&b"first"[..], &[1; 32][..]), (b"second", &[2; 32])]
        );
        // The binders with their lengths are the end of the message.
        let expected = &message[..message.len() - 2 - 2 * 33];
        assert!(offers.iter().all(|offer| offer.hello == expected));
        let many = vec![(&b"x"[..], 0); 100];
        assert_eq!(super::offers(&hello(&many)).unwrap().len(), OFFERS_MAX);
    }

    #[test]
    fn pieces_and_other_bytes_are_no_hello() {
        let message = hello(&[(b"first", 1)]);
        for len in 0..message.len() {
            assert_eq!(offers(&message[..len]), None, "{len}");
        }
        for at in 0..message.len() {
            let mut other = message.clone();
            other[at] ^= 0xff;
            // Whatever it finds, it reads no byte that is not there.
            let _ = offers(&other);
        }
        let longer = [&message[..], &[0]].concat();
        assert_eq!(offers(&longer), None);
    }
}

//! Common state of the sessions of one side, and the calls that the library makes during a
//! handshake.

use std::ffi::{CStr, c_int, c_long, c_uchar, c_void};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::hello::{Offer, offers};
use crate::library::{Library, RawContext, RawKey, RawSession, library};

// Constants of <openssl/ssl.h>, and of RFC 8446.
const CTRL_MODE: c_int = 33;
const CTRL_CLEAR_MODE: c_int = 78;
const CTRL_SET_SESS_CACHE_MODE: c_int = 44;
const CTRL_SET_GROUPS_LIST: c_int = 92;
const CTRL_SET_MIN_PROTO_VERSION: c_int = 123;
const CTRL_SET_MAX_PROTO_VERSION: c_int = 124;
const MODE_ENABLE_PARTIAL_WRITE: c_long = 1;
const MODE_ACCEPT_MOVING_WRITE_BUFFER: c_long = 2;
const MODE_AUTO_RETRY: c_long = 4;
const OP_ENABLE_KTLS: u64 = 1 << 3;
const OP_IGNORE_UNEXPECTED_EOF: u64 = 1 << 7;
const OP_ALLOW_NO_DHE_KEX: u64 = 1 << 10;
const OP_NO_TICKET: u64 = 1 << 14;
const OP_ENABLE_MIDDLEBOX_COMPAT: u64 = 1 << 20;
const SESS_CACHE_OFF: c_long = 0;
const VERIFY_PEER: c_int = 1;
const CLIENT_HELLO_SUCCESS: c_int = 1;
const CLIENT_HELLO_ERROR: c_int = 0;
const TLS_1_3: c_int = 0x0304;
const CONTENT_HANDSHAKE: c_int = 22;
const MESSAGE_CLIENT_HELLO: u8 = 1;
const ALERT_DECRYPT_ERROR: c_int = 51;
const ALERT_INTERNAL_ERROR: c_int = 80;
const ALERT_UNKNOWN_PSK_IDENTITY: c_int = 115;
/// Bytes of a ClientHello at most.
const HELLO_MAX: usize = 64 << 10;

/// Place of a session's [`Side`] among its data.
const SIDE: c_int = 0;

/// A pre-shared key, and the hash function that it is for: SHA-384, or SHA-256.
#[derive(Clone)]
pub struct Psk {
    /// Its bytes, which are cleared when it is dropped.
    pub key: Zeroizing<Vec<u8>>,
    /// It is for SHA-384.
    pub is_sha384: bool,
}

impl Psk {
    fn suite(&self) -> (&'static CStr, [u8; 2]) {
        if self.is_sha384 {
            (c"TLS_AES_256_GCM_SHA384", [0x13, 2])
        } else {
            (c"TLS_AES_128_GCM_SHA256", [0x13, 1])
        }
    }
}

impl std::fmt::Debug for Psk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Psk")
    }
}

/// Result of a server's look for a name.
#[derive(Debug)]
pub enum Found {
    /// The key that the client has.
    Psk(Psk),
    /// The client has another key than the one of that name.
    AnotherKey,
    /// No key has that name.
    Nothing,
}

/// Finds the key that a client offers.
pub type Lookup = Arc<dyn Fn(&Offer<'_>) -> Found + Send + Sync>;

/// Why the other side was refused during a handshake, where that was this side's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Unknown,
    AnotherKey,
    /// The search for its key has panicked.
    Fault,
}

/// Data for the calls of the library during the handshake of one session.
pub(crate) struct Side {
    /// Of a server.
    lookup: Option<Lookup>,
    /// A session without a pre-shared key is one: there is a certificate.
    pub(crate) may_have_no_key: bool,
    /// The ClientHello of this handshake.
    hello: Vec<u8>,
    /// Name and key.
    pub(crate) agreed: Option<(Vec<u8>, Psk)>,
    pub(crate) refused: Option<Refused>,
    /// The first name that was offered, where it was refused.
    pub(crate) offered: Vec<u8>,
}

/// `SSL_CTX`.
pub(crate) struct Context {
    library: &'static Library,
    raw: *mut RawContext,
}

// SAFETY: the library counts references to a context with atomic operations, and it is not changed
// after `Context::new`.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was made by SSL_CTX_new, and this reference ends here.
        unsafe { (self.library.SSL_CTX_free)(self.raw) }
    }
}

impl Context {
    pub(crate) fn new(is_server: bool) -> io::Result<Self> {
        let library = library().map_err(io::Error::other)?;
        // SAFETY: a method is a constant; the context is checked below.
        let raw = unsafe {
            let method = if is_server {
                (library.TLS_server_method)()
            } else {
                (library.TLS_client_method)()
            };
            (library.SSL_CTX_new)(method)
        };
        if raw.is_null() {
            return Err(io::Error::other(library.reason()));
        }
        let context = Self { library, raw };
        if context.configure(is_server) {
            Ok(context)
        } else {
            let reason = library.reason();
            Err(io::Error::other(format!(
                "OpenSSL cannot be set up: {reason}"
            )))
        }
    }

    /// TLS 1.3 with Diffie-Hellman, without tickets and early data, and nothing else.
    fn configure(&self, is_server: bool) -> bool {
        let Self { library, raw } = *self;
        let none = std::ptr::null_mut::<c_void>();
        let suites = c"TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256";
        let groups = c"X25519:P-256:P-384".as_ptr().cast_mut().cast();
        let modes = MODE_ENABLE_PARTIAL_WRITE | MODE_ACCEPT_MOVING_WRITE_BUFFER;
        // SAFETY: the context is valid; each control takes the argument that it is given, of which
        // the library keeps no pointer; and the functions stay for as long as the process lives.
        unsafe {
            let control = |command, number| (library.SSL_CTX_ctrl)(raw, command, number, none);
            let version = c_long::from(TLS_1_3);
            // A stream that ends without an alert ends: PDUs have their lengths.
            (library.SSL_CTX_set_options)(raw, OP_IGNORE_UNEXPECTED_EOF | OP_NO_TICKET);
            // Of these the system's configuration may have set some.
            let unset = OP_ENABLE_KTLS | OP_ALLOW_NO_DHE_KEX | OP_ENABLE_MIDDLEBOX_COMPAT;
            (library.SSL_CTX_clear_options)(raw, unset);
            // One call reads one record, so that it ends whatever the other side sends.
            control(CTRL_CLEAR_MODE, MODE_AUTO_RETRY);
            control(CTRL_MODE, modes);
            control(CTRL_SET_SESS_CACHE_MODE, SESS_CACHE_OFF);
            let mut is_named = true;
            if is_server {
                // A key is refused without it where clients need certificates.
                let name = [1];
                is_named = (library.SSL_CTX_set_session_id_context)(raw, name.as_ptr(), 1) == 1;
                (library.SSL_CTX_set_msg_callback)(raw, on_message);
                (library.SSL_CTX_set_client_hello_cb)(raw, on_hello, none);
                (library.SSL_CTX_set_psk_find_session_callback)(raw, find_key);
            } else {
                // A server with a certificate is none that has the key.
                (library.SSL_CTX_set_verify)(raw, VERIFY_PEER, std::ptr::null());
                (library.SSL_CTX_set_psk_use_session_callback)(raw, use_key);
            }
            is_named
                && control(CTRL_SET_MIN_PROTO_VERSION, version) == 1
                && control(CTRL_SET_MAX_PROTO_VERSION, version) == 1
                && (library.SSL_CTX_ctrl)(raw, CTRL_SET_GROUPS_LIST, 0, groups) == 1
                && (library.SSL_CTX_set_ciphersuites)(raw, suites.as_ptr()) == 1
                && (library.SSL_CTX_set_num_tickets)(raw, 0) == 1
        }
    }

    pub(crate) fn raw(&self) -> *mut RawContext {
        self.raw
    }

    pub(crate) fn library(&self) -> &'static Library {
        self.library
    }
}

/// The side of TLS that hosts connect to.
#[derive(Clone)]
pub struct Server {
    pub(crate) context: Arc<Context>,
    pub(crate) lookup: Option<Lookup>,
    /// Clients without a key may come.
    pub(crate) has_certificate: bool,
}

impl Server {
    /// A side that finds the keys of clients in this way.
    ///
    /// # Errors
    /// The system has no OpenSSL 3.
    pub fn new(lookup: Lookup) -> io::Result<Self> {
        let context = Arc::new(Context::new(true)?);
        Ok(Self {
            context,
            lookup: Some(lookup),
            has_certificate: false,
        })
    }

    pub(crate) fn side(&self) -> Side {
        Side {
            lookup: self.lookup.clone(),
            may_have_no_key: self.has_certificate,
            hello: Vec::new(),
            agreed: None,
            refused: None,
            offered: Vec::new(),
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Server")
    }
}

/// The side of TLS that connects.
#[derive(Clone)]
pub struct Client {
    pub(crate) context: Arc<Context>,
    identity: Vec<u8>,
    psk: Psk,
}

impl Client {
    /// A side that offers this key by this name.
    ///
    /// # Errors
    /// The system has no OpenSSL 3.
    pub fn new(identity: &[u8], psk: Psk) -> io::Result<Self> {
        Ok(Self {
            context: Arc::new(Context::new(false)?),
            identity: identity.to_vec(),
            psk,
        })
    }

    pub(crate) fn side(&self) -> Side {
        Side {
            lookup: None,
            may_have_no_key: false,
            hello: Vec::new(),
            agreed: Some((self.identity.clone(), self.psk.clone())),
            refused: None,
            offered: Vec::new(),
        }
    }

    pub(crate) fn suite(&self) -> &'static CStr {
        self.psk.suite().0
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// The side of a session whose handshake calls.
///
/// # Safety
/// The session was made by [`crate::Session`], whose handshake runs on this thread.
unsafe fn side<'a>(library: &Library, session: *mut RawSession) -> Option<&'a mut Side> {
    // SAFETY: the session is valid by the contract, and its data at that place are none or its
    // side, which lives as long as the session and which nothing else uses during its handshake.
    unsafe {
        let side = (library.SSL_get_ex_data)(session, SIDE);
        side.cast::<Side>().as_mut()
    }
}

/// Gives a session its side, which outlives it.
pub(crate) fn set_side(library: &Library, session: *mut RawSession, side: *mut Side) -> bool {
    // SAFETY: the session is valid, and the library only keeps the pointer.
    unsafe { (library.SSL_set_ex_data)(session, SIDE, side.cast()) == 1 }
}

/// Keeps a ClientHello as it came.
unsafe extern "C" fn on_message(
    is_sent: c_int,
    _version: c_int,
    content: c_int,
    bytes: *const c_void,
    len: usize,
    session: *mut RawSession,
    _argument: *mut c_void,
) {
    if is_sent != 0 || content != CONTENT_HANDSHAKE || len == 0 || len > HELLO_MAX {
        return;
    }
    let Ok(library) = library() else {
        return;
    };
    // SAFETY: the library calls it with a message of this length, which stays during the call, and
    // with the session whose handshake runs.
    let (bytes, side) = unsafe {
        let bytes = std::slice::from_raw_parts(bytes.cast::<u8>(), len);
        (bytes, side(library, session))
    };
    if let Some(side) = side
        && bytes[0] == MESSAGE_CLIENT_HELLO
    {
        side.hello.clear();
        side.hello.extend_from_slice(bytes);
    }
}

/// Finds the key of a client, before the library chooses a cipher suite: the key's.
unsafe extern "C" fn on_hello(
    session: *mut RawSession,
    alert: *mut c_int,
    _argument: *mut c_void,
) -> c_int {
    let Ok(library) = library() else {
        return CLIENT_HELLO_ERROR;
    };
    // SAFETY: the library calls it with the session whose handshake runs.
    let Some(side) = (unsafe { side(library, session) }) else {
        return CLIENT_HELLO_ERROR;
    };
    if side.agreed.is_none() {
        side.find();
    }
    let code = match (&side.agreed, side.refused) {
        (Some((_, psk)), _) => {
            let suite = psk.suite().0;
            // SAFETY: the session is valid, and the library copies the string.
            let is_set = unsafe { (library.SSL_set_ciphersuites)(session, suite.as_ptr()) } == 1;
            if is_set {
                return CLIENT_HELLO_SUCCESS;
            }
            ALERT_DECRYPT_ERROR
        }
        // It offers no key, as before TLS 1.3: the library finds why it cannot go on.
        (None, None) => return CLIENT_HELLO_SUCCESS,
        (None, Some(Refused::AnotherKey)) => ALERT_DECRYPT_ERROR,
        (None, Some(Refused::Unknown)) => ALERT_UNKNOWN_PSK_IDENTITY,
        (None, Some(Refused::Fault)) => ALERT_INTERNAL_ERROR,
    };
    // SAFETY: the library gives a place for the alert.
    unsafe { *alert = code };
    CLIENT_HELLO_ERROR
}

impl Side {
    /// Finds the key of the client among those that it offers.
    fn find(&mut self) {
        let Some(lookup) = &self.lookup else {
            return;
        };
        let Some(offers) = offers(&self.hello) else {
            return;
        };
        self.refused = Some(Refused::Unknown);
        for offer in offers {
            // No panic goes through the library.
            let found = catch_unwind(AssertUnwindSafe(|| lookup(&offer)));
            match found {
                Ok(Found::Psk(psk)) => {
                    self.agreed = Some((offer.identity.to_vec(), psk));
                    self.refused = None;
                    return;
                }
                Ok(Found::AnotherKey) => self.refused = Some(Refused::AnotherKey),
                Ok(Found::Nothing) => {}
                Err(_) => {
                    self.refused = Some(Refused::Fault);
                    return;
                }
            }
            if self.offered.is_empty() {
                self.offered = offer.identity.to_vec();
            }
        }
    }

    /// The handshake is over: releases what was for it alone.
    pub(crate) fn end(&mut self) {
        self.lookup = None;
        self.hello = Vec::new();
    }
}

/// A key in the library's form; null where it has no memory.
fn raw_key(library: &Library, session: *mut RawSession, psk: &Psk) -> *mut RawKey {
    // SAFETY: the session is valid; the new key is freed if a step fails; the library copies the
    // bytes, and the cipher is a constant.
    unsafe {
        let key = (library.SSL_SESSION_new)();
        if key.is_null() {
            return key;
        }
        let cipher = (library.SSL_CIPHER_find)(session, psk.suite().1.as_ptr());
        let is_set = !cipher.is_null()
            && (library.SSL_SESSION_set1_master_key)(key, psk.key.as_ptr(), psk.key.len()) == 1
            && (library.SSL_SESSION_set_cipher)(key, cipher) == 1
            && (library.SSL_SESSION_set_protocol_version)(key, TLS_1_3) == 1;
        if is_set {
            key
        } else {
            (library.SSL_SESSION_free)(key);
            std::ptr::null_mut()
        }
    }
}

/// Gives the key that [`on_hello`] has found, for its name.
unsafe extern "C" fn find_key(
    session: *mut RawSession,
    identity: *const c_uchar,
    len: usize,
    key: *mut *mut RawKey,
) -> c_int {
    // SAFETY: the library calls it with the session whose handshake runs, a name of this length,
    // and a place for the key, which it frees.
    unsafe {
        *key = std::ptr::null_mut();
        let Ok(library) = library() else {
            return 0;
        };
        let identity = std::slice::from_raw_parts(identity, len);
        if let Some(Side {
            agreed: Some((name, psk)),
            ..
        }) = side(library, session)
            && name == identity
        {
            *key = raw_key(library, session, psk);
        }
    }
    1
}

/// Gives a client's key and its name.
unsafe extern "C" fn use_key(
    session: *mut RawSession,
    _hash: *const c_void,
    identity: *mut *const c_uchar,
    len: *mut usize,
    key: *mut *mut RawKey,
) -> c_int {
    // SAFETY: the library calls it with the session whose handshake runs, and with places for what
    // it takes: it copies the name, which lives as long as the session, and frees the key.
    unsafe {
        *key = std::ptr::null_mut();
        let Ok(library) = library() else {
            return 0;
        };
        if let Some(Side {
            agreed: Some((name, psk)),
            ..
        }) = side(library, session)
        {
            *key = raw_key(library, session, psk);
            (*identity, *len) = (name.as_ptr(), name.len());
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_system_do_not_weaken_a_context() {
        for is_server in [false, true] {
            let context = Context::new(is_server).unwrap();
            let (library, raw) = (context.library, context.raw);
            let weak = OP_ENABLE_KTLS | OP_ALLOW_NO_DHE_KEX;
            // SAFETY: the context is valid.
            let before = unsafe { (library.SSL_CTX_set_options)(raw, weak) };
            assert_eq!(before & weak, weak);
            assert!(context.configure(is_server));
            // SAFETY: as above. The result is what is set.
            let after = unsafe { (library.SSL_CTX_clear_options)(raw, 0) };
            assert_eq!(after & weak, 0);
            assert_ne!(after & OP_NO_TICKET, 0);
        }
    }
}

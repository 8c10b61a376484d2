//! The functions of the system's OpenSSL 3, found at run time.
//!
//! The declarations are those of OpenSSL 3.0, whose interface later releases with the same file
//! name keep.

use std::ffi::{CStr, c_char, c_int, c_long, c_uchar, c_uint, c_ulong, c_void};
use std::sync::OnceLock;

/// `SSL_CTX`.
#[repr(C)]
pub(crate) struct RawContext(c_void);
/// `SSL`.
#[repr(C)]
pub(crate) struct RawSession(c_void);
/// `SSL_SESSION`, which holds a pre-shared key.
#[repr(C)]
pub(crate) struct RawKey(c_void);

/// `X509`.
#[repr(C)]
pub(crate) struct RawCertificate(c_void);

type Passphrase = unsafe extern "C" fn(*mut c_char, c_int, c_int, *mut c_void) -> c_int;
type FindKey =
    unsafe extern "C" fn(*mut RawSession, *const c_uchar, usize, *mut *mut RawKey) -> c_int;
type UseKey = unsafe extern "C" fn(
    *mut RawSession,
    *const c_void,
    *mut *const c_uchar,
    *mut usize,
    *mut *mut RawKey,
) -> c_int;
type OnHello = unsafe extern "C" fn(*mut RawSession, *mut c_int, *mut c_void) -> c_int;
type OnMessage =
    unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, usize, *mut RawSession, *mut c_void);

/// Files of the libraries, and the package of Debian that has them.
const CRYPTO: &CStr = c"libcrypto.so.3";
const SSL: &CStr = c"libssl.so.3";
/// Of `OPENSSL_init_ssl`: nothing is cleaned up at the end of the process, while threads may still
/// use it.
const INIT_NO_ATEXIT: u64 = 0x0008_0000;

/// Library of an error: TLS (`<openssl/err.h>`).
const LIB_SSL: c_ulong = 20;

/// Why the libraries cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "TLS needs OpenSSL 3, and {0}: install the package that has libssl.so.3 (Debian: libssl3t64, or libssl3 before 13)"
)]
pub(crate) struct Missing(String);

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions.
        #[expect(non_snake_case, reason = "the names of the C interface")]
        pub(crate) struct Library {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn load() -> Result<Self, Missing> {
                let libraries = [open(CRYPTO)?, open(SSL)?];
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        let found = find(&libraries, name)?;
                        // SAFETY: the function of that name has this type in all releases of the
                        // library with that file name, and the library is never closed.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(found)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    ERR_clear_error: fn();
    ERR_peek_last_error: fn() -> c_ulong;
    ERR_reason_error_string: fn(c_ulong) -> *const c_char;
    BIO_new_mem_buf: fn(*const c_void, c_int) -> *mut c_void;
    BIO_free: fn(*mut c_void) -> c_int;
    PEM_read_bio_X509:
        fn(*mut c_void, *mut *mut RawCertificate, Passphrase, *mut c_void) -> *mut RawCertificate;
    PEM_read_bio_PrivateKey:
        fn(*mut c_void, *mut *mut c_void, Passphrase, *mut c_void) -> *mut c_void;
    EVP_PKEY_free: fn(*mut c_void);
    X509_free: fn(*mut RawCertificate);
    X509_STORE_add_cert: fn(*mut c_void, *mut RawCertificate) -> c_int;
    X509_verify_cert_error_string: fn(c_long) -> *const c_char;
    OPENSSL_init_ssl: fn(u64, *const c_void) -> c_int;
    TLS_client_method: fn() -> *const c_void;
    TLS_server_method: fn() -> *const c_void;
    SSL_CTX_new: fn(*const c_void) -> *mut RawContext;
    SSL_CTX_free: fn(*mut RawContext);
    SSL_CTX_ctrl: fn(*mut RawContext, c_int, c_long, *mut c_void) -> c_long;
    SSL_CTX_set_options: fn(*mut RawContext, u64) -> u64;
    SSL_CTX_clear_options: fn(*mut RawContext, u64) -> u64;
    SSL_CTX_set_ciphersuites: fn(*mut RawContext, *const c_char) -> c_int;
    SSL_CTX_set_client_hello_cb: fn(*mut RawContext, OnHello, *mut c_void);
    SSL_CTX_set_msg_callback: fn(*mut RawContext, OnMessage);
    SSL_CTX_set_num_tickets: fn(*mut RawContext, usize) -> c_int;
    SSL_CTX_set_psk_find_session_callback: fn(*mut RawContext, FindKey);
    SSL_CTX_set_psk_use_session_callback: fn(*mut RawContext, UseKey);
    SSL_CTX_set_verify: fn(*mut RawContext, c_int, *const c_void);
    SSL_CTX_set_session_id_context: fn(*mut RawContext, *const c_uchar, c_uint) -> c_int;
    SSL_CTX_use_certificate: fn(*mut RawContext, *mut RawCertificate) -> c_int;
    SSL_CTX_use_PrivateKey: fn(*mut RawContext, *mut c_void) -> c_int;
    SSL_CTX_check_private_key: fn(*const RawContext) -> c_int;
    SSL_CTX_get_cert_store: fn(*const RawContext) -> *mut c_void;
    SSL_CTX_add_client_CA: fn(*mut RawContext, *mut RawCertificate) -> c_int;
    SSL_get_verify_result: fn(*const RawSession) -> c_long;
    SSL_new: fn(*mut RawContext) -> *mut RawSession;
    SSL_free: fn(*mut RawSession);
    SSL_set_fd: fn(*mut RawSession, c_int) -> c_int;
    SSL_set_ciphersuites: fn(*mut RawSession, *const c_char) -> c_int;
    SSL_set_ex_data: fn(*mut RawSession, c_int, *mut c_void) -> c_int;
    SSL_get_ex_data: fn(*const RawSession, c_int) -> *mut c_void;
    SSL_set_accept_state: fn(*mut RawSession);
    SSL_set_connect_state: fn(*mut RawSession);
    SSL_do_handshake: fn(*mut RawSession) -> c_int;
    SSL_session_reused: fn(*const RawSession) -> c_int;
    SSL_read: fn(*mut RawSession, *mut c_void, c_int) -> c_int;
    SSL_write: fn(*mut RawSession, *const c_void, c_int) -> c_int;
    SSL_pending: fn(*const RawSession) -> c_int;
    SSL_shutdown: fn(*mut RawSession) -> c_int;
    SSL_get_error: fn(*const RawSession, c_int) -> c_int;
    SSL_CIPHER_find: fn(*mut RawSession, *const c_uchar) -> *const c_void;
    SSL_SESSION_new: fn() -> *mut RawKey;
    SSL_SESSION_free: fn(*mut RawKey);
    SSL_SESSION_set1_master_key: fn(*mut RawKey, *const c_uchar, usize) -> c_int;
    SSL_SESSION_set_cipher: fn(*mut RawKey, *const c_void) -> c_int;
    SSL_SESSION_set_protocol_version: fn(*mut RawKey, c_int) -> c_int;
}

/// Opens a library for as long as the process lives.
fn open(name: &CStr) -> Result<*mut c_void, Missing> {
    // SAFETY: the name ends with a zero. The library's constructors run, which is what its users
    // expect.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        // SAFETY: the string is valid until this thread's next call of these functions.
        let reason = unsafe {
            let reason = libc::dlerror();
            (!reason.is_null()).then(|| CStr::from_ptr(reason).to_string_lossy().into_owned())
        };
        let reason = reason.unwrap_or_else(|| name.to_string_lossy().into_owned());
        return Err(Missing(format!("it cannot be loaded ({reason})")));
    }
    Ok(library)
}

fn find(libraries: &[*mut c_void], name: &str) -> Result<*mut c_void, Missing> {
    for library in libraries {
        // SAFETY: the library was opened, and the name ends with a zero.
        let found = unsafe { libc::dlsym(*library, name.as_ptr().cast()) };
        if !found.is_null() {
            return Ok(found);
        }
    }
    let name = name.trim_end_matches('\0');
    Err(Missing(format!("the one that is there has no {name}")))
}

/// The functions, which are looked for at the first call.
///
/// # Errors
/// There is no such library.
pub(crate) fn library() -> Result<&'static Library, Missing> {
    static LIBRARY: OnceLock<Result<Library, Missing>> = OnceLock::new();
    let loaded = LIBRARY.get_or_init(|| {
        let library = Library::load()?;
        // SAFETY: no settings are given. It is called before all others.
        let ready = unsafe { (library.OPENSSL_init_ssl)(INIT_NO_ATEXIT, std::ptr::null()) };
        if ready == 1 {
            Ok(library)
        } else {
            Err(Missing("the one that is there does not start".into()))
        }
    });
    loaded.as_ref().map_err(Clone::clone)
}

/// Whether the system has OpenSSL 3, which is looked for at the first call.
///
/// # Errors
/// It has none.
pub fn available() -> std::io::Result<()> {
    library().map(drop).map_err(std::io::Error::other)
}

impl Library {
    /// The reason of the last error of this thread, in the library's words.
    pub(crate) fn reason(&self) -> String {
        // SAFETY: the string, if there is one, is constant.
        let reason = unsafe {
            let reason = (self.ERR_reason_error_string)((self.ERR_peek_last_error)());
            (!reason.is_null()).then(|| CStr::from_ptr(reason))
        };
        match reason {
            Some(reason) => reason.to_string_lossy().into_owned(),
            None => "unknown reason".into(),
        }
    }

    /// The number of that reason, where it is one of TLS.
    pub(crate) fn reason_of_tls(&self) -> Option<c_ulong> {
        // SAFETY: it only reads this thread's errors.
        let error = unsafe { (self.ERR_peek_last_error)() };
        (error >> 23 == LIB_SSL).then_some(error & 0x7f_ffff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_the_loader_says() {
        let error = open(c"libnone-of-ours.so.3").unwrap_err().to_string();
        assert!(error.contains("libnone-of-ours.so.3: "), "{error}");
        assert!(error.contains("install the package"), "{error}");
        // A file that is there, and is no library.
        let error = open(c"/proc/self/status").unwrap_err().to_string();
        assert!(error.contains("/proc/self/status: "), "{error}");
    }
}

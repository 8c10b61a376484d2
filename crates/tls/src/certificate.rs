//! The certificate of a server, and the authorities that its clients' certificates are of, as PEM.

use std::ffi::{c_char, c_int, c_long, c_ulong, c_void};
use std::io;
use std::sync::Arc;

use crate::context::{Context, Lookup, Server};
use crate::library::{Library, RawCertificate};

// Constants of <openssl/ssl.h>, <openssl/pemerr.h> and <openssl/err.h>.
const CTRL_CHAIN_CERT: c_int = 89;
const VERIFY_PEER: c_int = 1;
const VERIFY_FAIL_IF_NO_PEER_CERT: c_int = 2;
const LIB_PEM: c_ulong = 9;
const PEM_NO_START_LINE: c_ulong = 108;
/// Certificates in one text.
const CERTIFICATES_MAX: usize = 256;

/// The certificate of a server, as PEM.
#[derive(Clone, Copy)]
pub struct Certificate<'a> {
    /// Its certificate, and those between it and its authority, in order.
    pub chain: &'a [u8],
    /// Its private key, which has no passphrase.
    pub key: &'a [u8],
    /// Authorities of which a client needs a certificate. `None`: clients need none.
    pub clients: Option<&'a [u8]>,
}

impl std::fmt::Debug for Certificate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificate")
    }
}

/// Bytes that the library reads.
struct Bytes<'a> {
    library: &'static Library,
    raw: *mut c_void,
    _of: std::marker::PhantomData<&'a [u8]>,
}

impl<'a> Bytes<'a> {
    fn new(library: &'static Library, bytes: &'a [u8]) -> io::Result<Self> {
        let len = c_int::try_from(bytes.len()).map_err(io::Error::other)?;
        // SAFETY: the library reads `len` bytes of it, which live as long as the new object.
        let raw = unsafe { (library.BIO_new_mem_buf)(bytes.as_ptr().cast(), len) };
        if raw.is_null() {
            return Err(io::Error::other(library.reason()));
        }
        Ok(Self {
            library,
            raw,
            _of: std::marker::PhantomData,
        })
    }
}

impl Drop for Bytes<'_> {
    fn drop(&mut self) {
        // SAFETY: it was made by BIO_new_mem_buf and is not used again.
        unsafe { (self.library.BIO_free)(self.raw) };
    }
}

/// A certificate in the library's form.
struct Parsed {
    library: &'static Library,
    raw: *mut RawCertificate,
}

impl Drop for Parsed {
    fn drop(&mut self) {
        // SAFETY: it was made by PEM_read_bio_X509, and this reference ends here.
        unsafe { (self.library.X509_free)(self.raw) }
    }
}

/// There is no passphrase: the library would ask for it at the terminal.
unsafe extern "C" fn no_passphrase(
    _room: *mut c_char,
    _len: c_int,
    _is_written: c_int,
    _argument: *mut c_void,
) -> c_int {
    -1
}

/// The certificates in a text: one or more.
fn certificates(library: &'static Library, text: &[u8]) -> io::Result<Vec<Parsed>> {
    let (bytes, mut all) = (Bytes::new(library, text)?, Vec::new());
    loop {
        let none = std::ptr::null_mut();
        // SAFETY: the bytes are valid, no object is given to be filled, and the callback stays for
        // as long as the process lives.
        let (raw, error) = unsafe {
            (library.ERR_clear_error)();
            let raw = (library.PEM_read_bio_X509)(bytes.raw, none, no_passphrase, none.cast());
            (raw, (library.ERR_peek_last_error)())
        };
        if !raw.is_null() {
            all.push(Parsed { library, raw });
            if all.len() > CERTIFICATES_MAX {
                return Err(io::Error::other("too many certificates"));
            }
            continue;
        }
        let is_end = (error >> 23, error & 0x7f_ffff) == (LIB_PEM, PEM_NO_START_LINE);
        return match (is_end, all.is_empty()) {
            (true, false) => Ok(all),
            (true, true) => Err(io::Error::other("there is none in PEM (BEGIN CERTIFICATE)")),
            (false, _) => Err(io::Error::other(library.reason())),
        };
    }
}

impl Server {
    /// A side that has a certificate, and finds the keys of clients that offer one where there is
    /// `lookup`.
    ///
    /// # Errors
    /// The system has no OpenSSL 3. A text of the certificate is none, or they do not belong
    /// together.
    pub fn with_certificate(
        certificate: &Certificate<'_>,
        lookup: Option<Lookup>,
    ) -> io::Result<Self> {
        let context = Context::new(true)?;
        context.certify(certificate)?;
        Ok(Self {
            context: Arc::new(context),
            lookup,
            has_certificate: true,
        })
    }
}

impl Context {
    /// Has a server show this certificate, and demand those of its clients where it is to. Before
    /// the first session.
    ///
    /// # Errors
    /// A text has no certificate or no key, or they do not belong together.
    fn certify(&self, certificate: &Certificate<'_>) -> io::Result<()> {
        let named = |what: &str, error: io::Error| io::Error::other(format!("{what}: {error}"));
        self.show(certificate.chain)
            .map_err(|error| named("the certificate", error))?;
        self.sign_with(certificate.key)
            .map_err(|error| named("the private key", error))?;
        if let Some(clients) = certificate.clients {
            self.demand(clients)
                .map_err(|error| named("the certificates of the clients' authorities", error))?;
        }
        Ok(())
    }

    fn done(&self, is_done: bool) -> io::Result<()> {
        if is_done {
            return Ok(());
        }
        Err(io::Error::other(self.library().reason()))
    }

    fn show(&self, text: &[u8]) -> io::Result<()> {
        let (library, raw) = (self.library(), self.raw());
        let all = certificates(library, text)?;
        for (index, one) in all.iter().enumerate() {
            // SAFETY: the context and the certificate are valid; the context takes a reference of
            // its own to it.
            let is_set = unsafe {
                (library.ERR_clear_error)();
                if index == 0 {
                    (library.SSL_CTX_use_certificate)(raw, one.raw) == 1
                } else {
                    let own: c_long = 1;
                    (library.SSL_CTX_ctrl)(raw, CTRL_CHAIN_CERT, own, one.raw.cast()) == 1
                }
            };
            self.done(is_set)?;
        }
        Ok(())
    }

    fn sign_with(&self, text: &[u8]) -> io::Result<()> {
        let (library, raw) = (self.library(), self.raw());
        let bytes = Bytes::new(library, text)?;
        let none = std::ptr::null_mut::<c_void>();
        // SAFETY: the bytes and the context are valid, no object is given to be filled, and the
        // context takes a reference of its own to the key, which is freed here.
        let is_set = unsafe {
            (library.ERR_clear_error)();
            let key =
                (library.PEM_read_bio_PrivateKey)(bytes.raw, none.cast(), no_passphrase, none);
            if key.is_null() {
                return Err(io::Error::other(format!(
                    "there is none in PEM (BEGIN PRIVATE KEY) without a passphrase: {}",
                    library.reason()
                )));
            }
            let is_set = (library.SSL_CTX_use_PrivateKey)(raw, key) == 1
                && (library.SSL_CTX_check_private_key)(raw) == 1;
            (library.EVP_PKEY_free)(key);
            is_set
        };
        self.done(is_set)
    }

    fn demand(&self, text: &[u8]) -> io::Result<()> {
        let (library, raw) = (self.library(), self.raw());
        for one in certificates(library, text)? {
            // SAFETY: the context and the certificate are valid; the store of the context takes a
            // reference of its own to it, and the name is copied.
            let is_set = unsafe {
                (library.ERR_clear_error)();
                let store = (library.SSL_CTX_get_cert_store)(raw);
                (library.X509_STORE_add_cert)(store, one.raw) == 1
                    && (library.SSL_CTX_add_client_CA)(raw, one.raw) == 1
            };
            self.done(is_set)?;
        }
        let mode = VERIFY_PEER | VERIFY_FAIL_IF_NO_PEER_CERT;
        // SAFETY: the context is valid, and no callback is given.
        unsafe { (library.SSL_CTX_set_verify)(raw, mode, std::ptr::null()) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use std::{fs, thread};

    use guest_rig::certificates;
    use tempfile::TempDir;
    use zeroize::Zeroizing;

    use crate::{
        Certificate, Client, Failed, Found, Lookup, Offer, Progress, Psk, Server, Session,
    };

    const BOUND: Duration = Duration::from_secs(60);

    fn folder() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        certificates::write(folder.path()).unwrap();
        folder
    }

    /// A server of the files in a folder, which may demand certificates of this authority.
    fn server(folder: &Path, clients: Option<&Path>, lookup: Option<Lookup>) -> Server {
        let [chain, key] =
            ["server-cert.pem", "server-key.pem"].map(|name| fs::read(folder.join(name)).unwrap());
        let clients = clients.map(|folder| fs::read(folder.join("ca-cert.pem")).unwrap());
        let certificate = Certificate {
            chain: &chain,
            key: &key,
            clients: clients.as_deref(),
        };
        Server::with_certificate(&certificate, lookup).unwrap()
    }

    /// OpenSSL's own client, which sends a line, trusts the authority in a folder and may have the
    /// client's certificate of another one.
    fn s_client(socket: &Path, trusts: &Path, has: Option<&Path>, more: &[&str]) -> Child {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-quiet", "-verify_return_error", "-unix"]);
        command.arg(socket).arg("-CAfile");
        command.arg(trusts.join("ca-cert.pem"));
        if let Some(folder) = has {
            command.arg("-cert").arg(folder.join("client-cert.pem"));
            command.arg("-key").arg(folder.join("client-key.pem"));
        }
        let command = command.args(more).stdin(Stdio::piped());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"a line\n").unwrap();
        child
    }

    /// Repeats until it is done.
    fn until<T>(mut step: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(done) = step() {
                return done;
            }
            assert!(begun.elapsed() < BOUND, "it takes too long");
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn accept(server: &Server, socket: UnixStream) -> Result<Session, Failed> {
        socket.set_nonblocking(true).unwrap();
        let mut session = Session::accept(server, socket.into()).unwrap();
        until(|| match session.handshake() {
            Ok(Progress::Done) => Some(Ok(())),
            Ok(_) => None,
            Err(failed) => Some(Err(failed)),
        })
        .map(|()| session)
    }

    /// Outcome of a client: its line, or the reason for which there is no session.
    fn line(
        server: &Server,
        trusts: &Path,
        has: Option<&Path>,
        more: &[&str],
    ) -> Result<String, Failed> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut child = s_client(&path, trusts, has, more);
        let (socket, _) = listener.accept().unwrap();
        let line = accept(server, socket).map(|mut session| {
            let mut bytes = [0; 100];
            let read = until(|| match session.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                read => Some(read.unwrap()),
            });
            session.write(b"an answer").unwrap();
            session.close();
            String::from_utf8_lossy(&bytes[..read]).into_owned()
        });
        let mut said = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        child.wait().unwrap();
        assert_eq!(said == "an answer", line.is_ok(), "{said}");
        line
    }

    #[test]
    fn a_client_verifies_the_certificate_of_a_server() {
        let (ours, other) = (folder(), folder());
        let server = server(ours.path(), None, None);
        assert_eq!(line(&server, ours.path(), None, &[]).unwrap(), "a line\n");
        // The client does not know its authority.
        let ended = line(&server, other.path(), None, &[]);
        assert!(matches!(ended, Err(Failed::Protocol(_))), "{ended:?}");
        // No other version.
        let ended = line(&server, ours.path(), None, &["-tls1_2"]);
        assert!(matches!(ended, Err(Failed::Protocol(_))), "{ended:?}");
    }

    #[test]
    fn clients_need_a_certificate_of_the_authority() {
        let (ours, other) = (folder(), folder());
        let server = server(ours.path(), Some(ours.path()), None);
        let has = Some(ours.path());
        assert_eq!(line(&server, ours.path(), has, &[]).unwrap(), "a line\n");
        for has in [None, Some(other.path())] {
            let ended = line(&server, ours.path(), has, &[]);
            assert!(matches!(ended, Err(Failed::Certificate(_))), "{ended:?}");
        }
        // Certificates of servers are for servers.
        for end in ["cert", "key"] {
            let [from, to] =
                ["server", "client"].map(|who| ours.path().join(format!("{who}-{end}.pem")));
            fs::copy(from, to).unwrap();
        }
        let ended = line(&server, ours.path(), has, &[]);
        assert!(matches!(ended, Err(Failed::Certificate(_))), "{ended:?}");
    }

    #[test]
    fn a_key_is_enough_where_clients_need_certificates() {
        let ours = folder();
        let psk = |byte| Psk {
            key: Zeroizing::new(vec![byte; 16]),
            is_sha384: false,
        };
        let lookup = move |offer: &Offer<'_>| match offer.identity {
            b"alice" => Found::Psk(psk(7)),
            _ => Found::Nothing,
        };
        let server = server(ours.path(), Some(ours.path()), Some(Arc::new(lookup)));
        for (name, byte, expected) in [
            (&b"alice"[..], 7, "alice"),
            (b"alice", 8, "the other side has another key"),
            (b"bob", 7, "no key of that name is configured"),
        ] {
            let (here, there) = UnixStream::pair().unwrap();
            there.set_nonblocking(true).unwrap();
            let client = Client::new(name, psk(byte)).unwrap();
            let mut theirs = Session::connect(&client, there.into()).unwrap();
            let host = thread::spawn(move || {
                until(|| match theirs.handshake() {
                    Ok(Progress::Done) => Some(true),
                    Ok(_) => None,
                    Err(_) => Some(false),
                })
            });
            let came = match accept(&server, here) {
                Ok(session) => String::from_utf8_lossy(session.identity()).into_owned(),
                Err(failed) => failed.to_string(),
            };
            assert_eq!(came, expected);
            assert_eq!(host.join().unwrap(), expected == "alice");
        }
        // One with a certificate comes as well, and one with nothing does not.
        let has = Some(ours.path());
        assert_eq!(line(&server, ours.path(), has, &[]).unwrap(), "a line\n");
        let ended = line(&server, ours.path(), None, &[]);
        assert!(matches!(ended, Err(Failed::Certificate(_))), "{ended:?}");
    }

    #[test]
    fn texts_that_are_no_certificate_are_named() {
        let (ours, other) = (folder(), folder());
        let read = |folder: &TempDir, name: &str| fs::read(folder.path().join(name)).unwrap();
        let chain = read(&ours, "server-cert.pem");
        let key = read(&ours, "server-key.pem");
        let error = |chain: &[u8], key: &[u8], clients: Option<&[u8]>| {
            let certificate = Certificate {
                chain,
                key,
                clients,
            };
            assert_eq!(format!("{certificate:?}"), "Certificate");
            Server::with_certificate(&certificate, None)
                .unwrap_err()
                .to_string()
        };
        for (said, expected) in [
            (error(b"", &key, None), "the certificate: there is none"),
            (error(&key, &key, None), "the certificate: there is none"),
            (error(&chain, b"x", None), "the private key: there is none"),
            (
                error(&chain, &chain, None),
                "the private key: there is none",
            ),
            (
                error(&chain, &read(&other, "server-key.pem"), None),
                "the private key: ",
            ),
            (
                error(&chain, &key, Some(b"")),
                "the certificates of the clients' authorities: there is none",
            ),
        ] {
            assert!(said.starts_with(expected), "{said}");
        }
        let cut = [&chain[..], &chain[..chain.len() / 2]].concat();
        assert!(error(&cut, &key, None).starts_with("the certificate: "));
        // A key with a passphrase is refused, and nothing asks for it.
        let mut command = Command::new("openssl");
        command.args([
            "pkey",
            "-aes256",
            "-passout",
            "pass:x",
            "-in",
            "server-key.pem",
        ]);
        let output = command.current_dir(ours.path()).output().unwrap();
        assert!(output.status.success());
        let said = error(&chain, &output.stdout, None);
        assert!(said.contains("without a passphrase"), "{said}");
        // A chain is one.
        let both = [chain, read(&ours, "ca-cert.pem")].concat();
        let certificate = Certificate {
            chain: &both,
            key: &key,
            clients: None,
        };
        assert!(Server::with_certificate(&certificate, None).is_ok());
    }
}

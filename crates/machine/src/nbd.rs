//! Ways to an NBD export, as its clients write them: the URI, and the command lines of usual
//! clients. URIs are those of the NBD project's `doc/uri.md`.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::initiator::traddr;
use crate::qemu::{in_one_line, in_option, program_name, shell_quoted};

/// Placeholder for an address of a server that listens on all of its addresses.
const ANY: &str = "ADDRESS";
/// Seconds for which QEMU tries to connect again, and keeps the guest's requests meanwhile.
const RECONNECT_S: u32 = 60;

/// Where a server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At<'a> {
    /// At a UNIX socket.
    Unix(&'a str),
    /// At a TCP address.
    Tcp(SocketAddr),
}

impl At<'_> {
    /// Host that a client names for a TCP address.
    fn host(address: SocketAddr) -> String {
        traddr(address).unwrap_or(ANY.to_owned())
    }
}

/// A client's means to authenticate the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// Certificates.
    Certificates,
    /// A pre-shared key.
    Key,
}

/// Identifier of the credentials among the objects of QEMU.
const CREDENTIALS: &str = "tls0";

impl Credentials {
    /// The QEMU option for them. `DIR` stands for a folder of the client, `USER` for a name in its
    /// file: see [`Self::note`].
    pub fn qemu_option(self) -> [String; 2] {
        let object = match self {
            Self::Certificates => {
                format!("tls-creds-x509,id={CREDENTIALS},endpoint=client,dir=DIR")
            }
            Self::Key => {
                format!("tls-creds-psk,id={CREDENTIALS},endpoint=client,dir=DIR,username=USER")
            }
        };
        ["-object".to_owned(), object]
    }

    /// Explanation of the placeholders.
    pub const fn note(self) -> &'static str {
        match self {
            Self::Certificates => {
                "write for DIR the folder with ca-cert.pem, and with client-cert.pem and client-key.pem where the server needs them"
            }
            Self::Key => {
                "write for DIR the folder with keys.psk, which has a line of the server's tls_psk, and for USER its name"
            }
        }
    }
}

/// The URI of an export. Where the server listens on all addresses, it has `ADDRESS` in their
/// place. With `tls` it is one of TLS, without what a client needs for that.
pub fn uri(at: At<'_>, export: &str, tls: bool) -> String {
    let scheme = if tls { "nbds" } else { "nbd" };
    match at {
        At::Unix(path) => {
            let (export, path) = (encoded(export, ""), encoded(path, "/"));
            format!("{scheme}+unix:///{export}?socket={path}")
        }
        At::Tcp(address) => {
            let host = At::host(address);
            let host = if host.contains(':') {
                // a zone of a link-local address has its own form in a URI (RFC 6874)
                format!("[{}]", host.replace('%', "%25"))
            } else {
                host
            };
            format!(
                "{scheme}://{host}:{}/{}",
                address.port(),
                encoded(export, "")
            )
        }
    }
}

/// The command that makes an export a block device of a Linux machine.
pub fn nbd_client(at: At<'_>, export: &str) -> String {
    let export = shell_quoted(export);
    match at {
        At::Unix(path) => {
            let path = shell_quoted(path);
            format!("nbd-client -unix {path} /dev/nbd0 -N {export}")
        }
        At::Tcp(address) => {
            let (host, port) = (At::host(address), address.port());
            format!("nbd-client {host} {port} /dev/nbd0 -N {export}")
        }
    }
}

/// The QEMU options that give a guest an export as its block device number `index`. With `tls` they
/// use the credentials of [`Credentials::qemu_option`].
pub fn qemu_options(at: At<'_>, export: &str, index: usize, tls: bool) -> Vec<[String; 2]> {
    let server = match at {
        At::Unix(path) => format!("server.type=unix,server.path={}", in_option(path)),
        At::Tcp(address) => format!(
            "server.type=inet,server.host={},server.port={}",
            At::host(address),
            address.port()
        ),
    };
    let tls = if tls {
        format!(",tls-creds={CREDENTIALS}")
    } else {
        String::new()
    };
    let node = format!(
        "driver=nbd,node-name=nbd{index},{server},export={},reconnect-delay={RECONNECT_S}{tls}",
        in_option(export)
    );
    let device = format!("virtio-blk-pci,drive=nbd{index}");
    vec![
        ["-blockdev".to_owned(), node],
        ["-device".to_owned(), device],
    ]
}

/// The URI of an export, and a line for each usual client.
pub fn lines(at: At<'_>, export: &str) -> Vec<String> {
    let uri = uri(at, export, false);
    let quoted = shell_quoted(&uri);
    let options = qemu_options(at, export, 0, false);
    vec![
        format!("qemu-img info {quoted}"),
        format!(
            "nbdcopy {quoted} {}",
            shell_quoted(&format!("{export}.img"))
        ),
        nbd_client(at, export),
        format!("{} … {}", program_name(), in_one_line(&options)),
    ]
}

/// Text in a URI: all bytes except unreserved ones (RFC 3986, 2.3) and those of `also` are
/// percent-encoded.
fn encoded(text: &str, also: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        let is_plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if is_plain || also.as_bytes().contains(&byte) {
            encoded.push(byte.into());
        } else {
            // a String takes everything
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_those_of_the_specification() {
        let unix = At::Unix("/run/my disks/x.sock");
        for (at, export, expected) in [
            (
                At::Unix("/tmp/x.sock"),
                "nvme0",
                "nbd+unix:///nvme0?socket=/tmp/x.sock",
            ),
            (
                unix,
                "a b",
                "nbd+unix:///a%20b?socket=/run/my%20disks/x.sock",
            ),
            (At::Unix("/ä&?"), "n", "nbd+unix:///n?socket=/%C3%A4%26%3F"),
            (
                tcp("127.0.0.1:10809"),
                "nvme0",
                "nbd://127.0.0.1:10809/nvme0",
            ),
            (tcp("[::1]:1"), "a/b", "nbd://[::1]:1/a%2Fb"),
            (tcp("[fe80::1%2]:1"), "n", "nbd://[fe80::1%252]:1/n"),
            (tcp("[::ffff:10.0.0.1]:1"), "n", "nbd://10.0.0.1:1/n"),
            (tcp("0.0.0.0:10809"), "n", "nbd://ADDRESS:10809/n"),
            (tcp("[::]:10809"), "n", "nbd://ADDRESS:10809/n"),
        ] {
            assert_eq!(uri(at, export, false), expected);
            let secured = expected.replacen("nbd", "nbds", 1);
            assert_eq!(uri(at, export, true), secured);
        }
    }

    fn tcp(address: &str) -> At<'static> {
        At::Tcp(address.parse().unwrap())
    }

    #[test]
    fn lines_of_clients_name_the_export_and_the_socket() {
        let at = At::Unix("/run/a,b.sock");
        assert_eq!(
            nbd_client(at, "n"),
            "nbd-client -unix /run/a,b.sock /dev/nbd0 -N n"
        );
        let [node, device] = &qemu_options(at, "n", 3, false)[..] else {
            panic!()
        };
        let expected = "driver=nbd,node-name=nbd3,server.type=unix,server.path=/run/a,,b.sock,export=n,reconnect-delay=60";
        assert_eq!(node, &["-blockdev", expected]);
        assert_eq!(device, &["-device", "virtio-blk-pci,drive=nbd3"]);
        let at = tcp("[::1]:10809");
        assert_eq!(nbd_client(at, "n"), "nbd-client ::1 10809 /dev/nbd0 -N n");
        let options = qemu_options(at, "n", 0, true);
        assert!(options[0][1].ends_with("reconnect-delay=60,tls-creds=tls0"));
        let server = "server.type=inet,server.host=::1,server.port=10809,export=n";
        assert!(options[0][1].contains(server), "{options:?}");
        let all = lines(at, "n");
        assert_eq!(all[0], "qemu-img info 'nbd://[::1]:10809/n'");
        assert_eq!(all[1], "nbdcopy 'nbd://[::1]:10809/n' n.img");
        assert!(all[3].starts_with("qemu-system-") && all[3].contains("-blockdev driver=nbd,"));
    }
}

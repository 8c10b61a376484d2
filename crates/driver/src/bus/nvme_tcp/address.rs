//! The address of an NVM subsystem over TCP as text: `HOST:PORT/NQN`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::str::FromStr;
use std::{fmt, io};

/// Bytes of an NQN at most (Base 2.1, 4.7).
const NQN_LEN_MAX: usize = 223;
/// The form of an address, for errors.
const FORM: &str = "write nvme-tcp:HOST:PORT/NQN, with an IPv6 address in brackets";

/// Where an NVM subsystem listens, and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TcpAddress {
    /// A name or an address, an IPv6 address without its brackets.
    host: String,
    port: u16,
    nqn: String,
}

impl TcpAddress {
    /// The subsystem's NVMe Qualified Name.
    #[must_use]
    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    /// Whether it is that of a subsystem which listens at this address of this machine. Names other
    /// than `localhost` are resolved, as for a connection; one that cannot be is another machine's.
    #[must_use]
    pub fn is_of(&self, listens: SocketAddr, nqn: &str) -> bool {
        if self.port != listens.port() || self.nqn != nqn {
            return false;
        }
        let at = listens.ip().to_canonical();
        if self.host == "localhost" {
            return at.is_loopback() || at.is_unspecified();
        }
        let addresses = self.resolve().unwrap_or_default();
        addresses.into_iter().any(|mut address| {
            address.set_ip(address.ip().to_canonical());
            let ip = address.ip();
            // A listener at all addresses: those of IPv4, or of both (ipv6(7)).
            let includes = at.is_unspecified() && (at.is_ipv6() || ip.is_ipv4());
            ip == at || includes && is_here(address)
        })
    }

    /// The addresses that the host's name stands for.
    pub(super) fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }
}

/// Whether this machine has this address: what it sends there has that address as its source, too.
/// Nothing is sent. (Where `ip_nonlocal_bind` is set, other addresses can be bound to as well.)
fn is_here(at: SocketAddr) -> bool {
    let unspecified: IpAddr = match at {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = || {
        let socket = UdpSocket::bind((unspecified, 0))?;
        socket.connect(at)?;
        socket.local_addr()
    };
    let ip = at.ip();
    ip.is_loopback() || ip.is_unspecified() || source().is_ok_and(|source| source.ip() == ip)
}

impl FromStr for TcpAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (at, nqn) = text
            .split_once('/')
            .ok_or_else(|| format!("`{text}` does not name a subsystem: {FORM}"))?;
        if !nqn.starts_with("nqn.") || nqn.len() > NQN_LEN_MAX || nqn.contains('\0') {
            return Err(format!(
                "`{nqn}` is not an NQN, which begins with `nqn.` and has at most {NQN_LEN_MAX} bytes: {FORM}"
            ));
        }
        let (host, port) = match at.strip_prefix('[') {
            Some(rest) => rest.split_once("]:"),
            None => at.rsplit_once(':').filter(|(host, _)| !host.contains(':')),
        }
        .filter(|(host, _)| !host.is_empty())
        .ok_or_else(|| format!("`{at}` does not name a host and a port: {FORM}"))?;
        let port = port
            .parse()
            .ok()
            .filter(|&port| port != 0)
            .ok_or_else(|| format!("`{port}` is not a port, 1 to 65535: {FORM}"))?;
        Ok(Self {
            host: host.to_owned(),
            port,
            nqn: nqn.to_owned(),
        })
    }
}

impl fmt::Display for TcpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') {
            ("[", "]")
        } else {
            ("", "")
        };
        write!(f, "{open}{}{close}:{}/{}", self.host, self.port, self.nqn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_it_is_read() {
        for text in [
            "storage:4420/nqn.2026-11.t:s0",
            "127.0.0.1:4420/nqn.2014-08.org.nvmexpress:uuid:1/2",
            "[::1]:8009/nqn.2014-08.org.nvmexpress.discovery",
        ] {
            let address: TcpAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        let address: TcpAddress = "[::1]:4420/nqn.x".parse().unwrap();
        let resolved = address.resolve().unwrap();
        assert_eq!(
            resolved,
            [SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 4420))]
        );
        assert_eq!(address.nqn(), "nqn.x");
    }

    #[test]
    fn a_subsystem_of_this_machine_is_known_by_its_address() {
        let listens = SocketAddr::from(([10, 0, 0, 1], 4420));
        for (text, is_it) in [
            ("10.0.0.1:4420/nqn.a", true),
            ("[::ffff:10.0.0.1]:4420/nqn.a", true),
            ("127.0.0.1:4420/nqn.a", false),
            ("[::1]:4420/nqn.a", false),
            ("localhost:4420/nqn.a", false),
            ("10.0.0.2:4420/nqn.a", false),
            // Resolved without a name server.
            ("10.1:4420/nqn.a", true),
            ("10.2:4420/nqn.a", false),
            ("10.0.0.1:4421/nqn.a", false),
            ("10.0.0.1:4420/nqn.b", false),
        ] {
            let address: TcpAddress = text.parse().unwrap();
            assert_eq!(address.is_of(listens, "nqn.a"), is_it, "{text}");
        }
        // A listener at all addresses, of IPv4 or of both. 192.0.2.0/24 and 2001:db8::/32 are no
        // machine's (RFC 5737, RFC 3849).
        for listens in ["0.0.0.0:4420", "[::]:4420"] {
            let listens = listens.parse().unwrap();
            for (text, is_it) in [
                ("127.0.0.1:4420/nqn.a", true),
                ("127.1.2.3:4420/nqn.a", true),
                ("[::ffff:127.0.0.1]:4420/nqn.a", true),
                ("0.0.0.0:4420/nqn.a", true),
                ("localhost:4420/nqn.a", true),
                ("192.0.2.1:4420/nqn.a", false),
                ("[2001:db8::1]:4420/nqn.a", false),
                ("127.1:4420/nqn.a", true),
                ("192.0.513:4420/nqn.a", false),
                ("127.0.0.1:4421/nqn.a", false),
                ("127.0.0.1:4420/nqn.b", false),
            ] {
                let address: TcpAddress = text.parse().unwrap();
                assert_eq!(address.is_of(listens, "nqn.a"), is_it, "{text} {listens}");
            }
        }
        for (listens, text, is_it) in [
            ("127.0.0.1:4420", "localhost:4420/nqn.a", true),
            ("127.0.0.1:4420", "127.0.0.2:4420/nqn.a", false),
            ("[::1]:4420", "localhost:4420/nqn.a", true),
            ("0.0.0.0:4420", "[::1]:4420/nqn.a", false),
            ("[fe80::1%1]:4420", "[fe80::1%1]:4420/nqn.a", true),
            ("[fe80::1%1]:4420", "[fe80::2%1]:4420/nqn.a", false),
        ] {
            let address: TcpAddress = text.parse().unwrap();
            let listens = listens.parse().unwrap();
            assert_eq!(address.is_of(listens, "nqn.a"), is_it, "{text} {listens}");
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        let long = format!("h:1/nqn.{}", "x".repeat(NQN_LEN_MAX));
        for (text, why) in [
            ("", "does not name a subsystem"),
            ("storage:4420", "does not name a subsystem"),
            ("storage:4420/", "is not an NQN"),
            ("storage:4420/drive", "is not an NQN"),
            (long.as_str(), "is not an NQN"),
            ("storage/nqn.x", "does not name a host and a port"),
            (":4420/nqn.x", "does not name a host and a port"),
            ("::1:4420/nqn.x", "does not name a host and a port"),
            ("[::1]/nqn.x", "does not name a host and a port"),
            ("storage:0/nqn.x", "`0` is not a port"),
            ("storage:65536/nqn.x", "`65536` is not a port"),
            ("storage:nvme/nqn.x", "`nvme` is not a port"),
        ] {
            let error = text.parse::<TcpAddress>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
            assert!(error.contains("nvme-tcp:HOST:PORT/NQN"), "{text}: {error}");
        }
    }
}

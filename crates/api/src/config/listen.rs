//! Addresses with a scheme, as in `vfio-user:PATH`.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use super::size::serde_as_text;

/// Address with its scheme.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Listen {
    /// `vfio-user:PATH`: vfio-user server on a UNIX socket.
    VfioUser(PathBuf),
    /// `fuse:FOLDER`: files in a folder of this machine.
    Fuse(PathBuf),
    /// `nvme-tcp:ADDRESS:PORT`: NVMe over TCP.
    NvmeTcp(SocketAddr),
    /// `unix:PATH`: HTTP on a UNIX socket.
    Unix(PathBuf),
}

/// Longest path of a UNIX socket: `sun_path` holds 108 bytes, the last of them NUL (unix(7)).
const MAX_SOCKET_PATH_LEN: usize = 107;
/// The addresses there are.
const SCHEMES: &str = "vfio-user:PATH, fuse:FOLDER or nvme-tcp:ADDRESS:PORT for a controller, unix:PATH for a control socket";

impl Listen {
    /// The path of the socket or the folder; `None` for a TCP address.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Listen::VfioUser(path) | Listen::Fuse(path) | Listen::Unix(path) => Some(path),
            Listen::NvmeTcp(_) => None,
        }
    }

    /// The same address in every folder, by a function that makes a path absolute.
    ///
    /// # Errors
    /// Those of the function.
    pub fn absolute<E>(
        self,
        absolute: impl FnOnce(PathBuf) -> Result<PathBuf, E>,
    ) -> Result<Self, E> {
        Ok(match self {
            Listen::VfioUser(path) => Listen::VfioUser(absolute(path)?),
            Listen::Fuse(path) => Listen::Fuse(absolute(path)?),
            Listen::Unix(path) => Listen::Unix(absolute(path)?),
            tcp @ Listen::NvmeTcp(_) => tcp,
        })
    }

    /// Whether a server cannot listen on both: they are the same, or one of them includes all
    /// addresses of the machine. `[::]` includes those of IPv4 (ipv6(7)).
    pub fn overlaps(&self, other: &Listen) -> bool {
        let (Listen::NvmeTcp(one), Listen::NvmeTcp(another)) = (self, other) else {
            return self == other;
        };
        let includes = |all: IpAddr, ip: IpAddr| {
            all == ip || all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4())
        };
        let (a, b) = (one.ip().to_canonical(), another.ip().to_canonical());
        one.port() == another.port() && (includes(a, b) || includes(b, a))
    }
}

/// Reads `ADDRESS:PORT`. Names are not resolved: an address that depends on the machine's
/// resolver could open a server to others.
fn socket_address(text: &str, whole: &str) -> Result<SocketAddr, String> {
    let form = "write nvme-tcp:ADDRESS:PORT, as in nvme-tcp:127.0.0.1:4420 or nvme-tcp:[::1]:4420";
    if let Ok(address) = text.parse::<SocketAddr>() {
        return match address.port() {
            0 => Err(format!(
                "`{whole}`: port 0 is no port: write 1 to 65535; 4420 is the usual one"
            )),
            _ => Ok(address),
        };
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<IpAddr>().is_ok() {
        return Err(format!(
            "`{whole}` has no port, or an IPv6 address without brackets: {form}"
        ));
    }
    match text.rsplit_once(':') {
        Some((ip, _))
            if ip
                .trim_start_matches('[')
                .trim_end_matches(']')
                .parse::<IpAddr>()
                .is_ok() =>
        {
            Err(format!(
                "`{whole}`: the port is a number, 1 to 65535: {form}"
            ))
        }
        Some((name, _)) if !name.is_empty() => Err(format!(
            "`{whole}`: `{name}` is no IP address, and names are not resolved: {form}"
        )),
        _ => Err(format!("`{whole}` has no address or no port: {form}")),
    }
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, path) = text
            .split_once(':')
            .ok_or_else(|| format!("`{text}` has no scheme: write {SCHEMES}"))?;
        if scheme == "nvme-tcp" {
            return socket_address(path, text).map(Listen::NvmeTcp);
        }
        if scheme == "fuse" {
            return match path {
                "" => Err(format!("`{text}`: name a folder")),
                path => Ok(Listen::Fuse(path.into())),
            };
        }
        if path.is_empty() {
            return Err(format!("`{text}`: name a socket"));
        }
        if path.len() > MAX_SOCKET_PATH_LEN {
            return Err(format!(
                "`{text}`: a socket path has 1 to {MAX_SOCKET_PATH_LEN} bytes; shorten it"
            ));
        }
        match scheme {
            "vfio-user" => Ok(Listen::VfioUser(path.into())),
            "unix" => Ok(Listen::Unix(path.into())),
            _ => Err(format!(
                "`{text}` has an unknown scheme `{scheme}`: write {SCHEMES}"
            )),
        }
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Listen::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
            Listen::Fuse(path) => write!(f, "fuse:{}", path.display()),
            Listen::NvmeTcp(address) => write!(f, "nvme-tcp:{address}"),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

serde_as_text!(Listen => "an address in quotes, as in \"vfio-user:/run/nvmirage/vm1.sock\"");

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(text: &str) -> Listen {
        text.parse().unwrap()
    }

    #[test]
    fn tcp_addresses_have_an_ip_address_and_a_port() {
        for text in [
            "nvme-tcp:127.0.0.1:4420",
            "nvme-tcp:[::1]:1",
            "nvme-tcp:0.0.0.0:65535",
        ] {
            let read = listen(text);
            assert_eq!(read.to_string(), text);
            assert_eq!(read.path(), None);
            let absolute = read.clone().absolute(|_| Err("it has no path"));
            assert_eq!(absolute.unwrap(), read);
        }
        for (wrong, why) in [
            ("nvme-tcp:", "no address or no port"),
            ("nvme-tcp:127.0.0.1", "no port"),
            ("nvme-tcp:::1", "without brackets"),
            ("nvme-tcp:[::1]", "no port"),
            ("nvme-tcp:127.0.0.1:0", "port 0"),
            ("nvme-tcp:127.0.0.1:65536", "the port is a number"),
            ("nvme-tcp:127.0.0.1:http", "the port is a number"),
            ("nvme-tcp::4420", "no address"),
            ("nvme-tcp:localhost:4420", "`localhost` is no IP address"),
            ("nvme-tcp:store.example:4420", "names are not resolved"),
            ("nvme-tcp:4420", "no address or no port"),
        ] {
            let error = wrong.parse::<Listen>().unwrap_err();
            assert!(error.contains(why) && error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn an_address_of_all_interfaces_overlaps_the_others_of_its_port() {
        let overlap = |a: &str, b: &str| {
            let (a, b) = (listen(a), listen(b));
            assert_eq!(a.overlaps(&b), b.overlaps(&a));
            a.overlaps(&b)
        };
        assert!(overlap("nvme-tcp:127.0.0.1:1", "nvme-tcp:127.0.0.1:1"));
        assert!(overlap("nvme-tcp:0.0.0.0:1", "nvme-tcp:10.0.0.1:1"));
        assert!(overlap("nvme-tcp:[::]:1", "nvme-tcp:10.0.0.1:1"));
        assert!(overlap("nvme-tcp:[::]:1", "nvme-tcp:0.0.0.0:1"));
        assert!(overlap(
            "nvme-tcp:[::ffff:10.0.0.1]:1",
            "nvme-tcp:10.0.0.1:1"
        ));
        assert!(!overlap("nvme-tcp:0.0.0.0:1", "nvme-tcp:[::1]:1"));
        assert!(!overlap("nvme-tcp:0.0.0.0:1", "nvme-tcp:0.0.0.0:2"));
        assert!(!overlap("nvme-tcp:10.0.0.1:1", "nvme-tcp:10.0.0.2:1"));
        assert!(overlap("vfio-user:/a", "vfio-user:/a"));
        assert!(!overlap("vfio-user:/a", "fuse:/a"));
    }
}

//! Addresses with a scheme, as in `vfio-user:PATH`.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use super::nbd_address::NbdAddress;
use super::size::serde_as_text;
use super::socket_address::{check_socket_path, socket_address};

/// Address with its scheme.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Listen {
    /// `vfio-user:PATH`: vfio-user server on a UNIX socket.
    VfioUser(PathBuf),
    /// `fuse:FOLDER`: files in a folder of this machine.
    Fuse(PathBuf),
    /// `nvme-tcp:ADDRESS:PORT`: NVMe over TCP.
    NvmeTcp(SocketAddr),
    /// `nbd:PATH` or `nbd:ADDRESS:PORT`: NBD on a UNIX socket or over TCP.
    Nbd(NbdAddress),
    /// `vhost-user-blk:PATH`: vhost-user back end of a virtio block device on a UNIX socket.
    VhostUserBlk(PathBuf),
    /// `ublk:` or `ublk:ID`: block device `/dev/ublkbID` of this machine, by Linux's ublk driver,
    /// which chooses an unused ID where none is written.
    Ublk(Option<u32>),
    /// `unix:PATH`: HTTP on a UNIX socket.
    Unix(PathBuf),
}

/// Maximum ID of a block device of ublk: the driver has 2^20 minor numbers.
const MAX_UBLK_ID: u32 = (1 << 20) - 1;

/// The addresses there are.
const SCHEMES: &str = "vfio-user:PATH, fuse:FOLDER, nvme-tcp:ADDRESS:PORT, nbd:PATH, nbd:ADDRESS:PORT, vhost-user-blk:PATH, ublk: or ublk:ID for a controller, unix:PATH for a control socket";

impl Listen {
    /// The path of the socket or the folder; `None` for a TCP address or a block device.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Listen::VfioUser(path)
            | Listen::Fuse(path)
            | Listen::VhostUserBlk(path)
            | Listen::Unix(path)
            | Listen::Nbd(NbdAddress::Unix(path)) => Some(path),
            Listen::NvmeTcp(_) | Listen::Nbd(NbdAddress::Tcp(_)) | Listen::Ublk(_) => None,
        }
    }

    /// The path of its socket; `None` for a folder, a TCP address or a block device.
    pub fn socket(&self) -> Option<&Path> {
        match self {
            Listen::Fuse(_) => None,
            other => other.path(),
        }
    }

    /// The TCP address that it listens at; `None` for a path or a block device.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Listen::NvmeTcp(address) | Listen::Nbd(NbdAddress::Tcp(address)) => Some(*address),
            _ => None,
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
            Listen::VhostUserBlk(path) => Listen::VhostUserBlk(absolute(path)?),
            Listen::Unix(path) => Listen::Unix(absolute(path)?),
            Listen::Nbd(NbdAddress::Unix(path)) => Listen::Nbd(NbdAddress::Unix(absolute(path)?)),
            other @ (Listen::NvmeTcp(_) | Listen::Nbd(NbdAddress::Tcp(_)) | Listen::Ublk(_)) => {
                other
            }
        })
    }

    /// Whether a server cannot listen on both: they are the same, the same socket by two schemes,
    /// or one of them includes all addresses of the machine. `[::]` includes those of IPv4
    /// (ipv6(7)). Each `ublk:` is another block device.
    pub fn overlaps(&self, other: &Listen) -> bool {
        if let (Listen::Ublk(one), Listen::Ublk(another)) = (self, other) {
            return one.is_some() && one == another;
        }
        let (Some(one), Some(another)) = (self.tcp(), other.tcp()) else {
            let socket = self.socket();
            return self == other || socket.is_some() && socket == other.socket();
        };
        let includes = |all: IpAddr, ip: IpAddr| {
            all == ip || all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4())
        };
        let (a, b) = (one.ip().to_canonical(), another.ip().to_canonical());
        one.port() == another.port() && (includes(a, b) || includes(b, a))
    }
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, path) = text
            .split_once(':')
            .ok_or_else(|| format!("`{text}` has no scheme: write {SCHEMES}"))?;
        if scheme == "nvme-tcp" {
            let form =
                "write nvme-tcp:ADDRESS:PORT, as in nvme-tcp:127.0.0.1:4420 or nvme-tcp:[::1]:4420";
            return socket_address(path, text, 4420, form).map(Listen::NvmeTcp);
        }
        if scheme == "nbd" {
            return NbdAddress::read(path, text).map(Listen::Nbd);
        }
        if scheme == "fuse" {
            return match path {
                "" => Err(format!("`{text}`: name a folder")),
                path => Ok(Listen::Fuse(path.into())),
            };
        }
        if scheme == "ublk" {
            return ublk_id(path, text).map(Listen::Ublk);
        }
        check_socket_path(path, text)?;
        match scheme {
            "vfio-user" => Ok(Listen::VfioUser(path.into())),
            "vhost-user-blk" => Ok(Listen::VhostUserBlk(path.into())),
            "unix" => Ok(Listen::Unix(path.into())),
            _ => Err(format!(
                "`{text}` has an unknown scheme `{scheme}`: write {SCHEMES}"
            )),
        }
    }
}

/// The ID of a block device of ublk; `None` where the driver chooses it.
fn ublk_id(id: &str, text: &str) -> Result<Option<u32>, String> {
    if id.is_empty() {
        return Ok(None);
    }
    let is_digits = id.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_digits.then(|| id.parse().ok()).flatten();
    match number.filter(|id| *id <= MAX_UBLK_ID) {
        Some(id) => Ok(Some(id)),
        None => Err(format!(
            "`{text}`: `{}` is no ID of a block device: write 0 to {MAX_UBLK_ID} for /dev/ublkbID, as in ublk:0, or `ublk:` for an unused ID",
            id.escape_debug()
        )),
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Listen::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
            Listen::Fuse(path) => write!(f, "fuse:{}", path.display()),
            Listen::NvmeTcp(address) => write!(f, "nvme-tcp:{address}"),
            Listen::Nbd(address) => write!(f, "nbd:{address}"),
            Listen::VhostUserBlk(path) => write!(f, "vhost-user-blk:{}", path.display()),
            Listen::Ublk(None) => f.write_str("ublk:"),
            Listen::Ublk(Some(id)) => write!(f, "ublk:{id}"),
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
    fn an_nbd_address_is_a_path_or_an_ip_address_with_a_port() {
        for (text, path) in [
            ("nbd:/run/x.sock", "/run/x.sock"),
            ("nbd:./x.sock", "./x.sock"),
            ("nbd:../127.0.0.1:10809", "../127.0.0.1:10809"),
        ] {
            let read = listen(text);
            assert_eq!(read, Listen::Nbd(NbdAddress::Unix(path.into())));
            assert_eq!(read.to_string(), text);
            assert_eq!(read.socket(), Some(Path::new(path)));
            assert_eq!(read.tcp(), None);
            let absolute = read.absolute(|path| Ok::<_, ()>(Path::new("/f").join(path)));
            let there = Path::new("/f").join(path);
            assert_eq!(absolute.unwrap(), Listen::Nbd(NbdAddress::Unix(there)));
        }
        for text in ["nbd:127.0.0.1:10809", "nbd:[::1]:1", "nbd:0.0.0.0:65535"] {
            let read = listen(text);
            assert_eq!(read.to_string(), text);
            assert_eq!((read.path(), read.socket()), (None, None));
            let address = text.strip_prefix("nbd:").unwrap().parse().unwrap();
            assert_eq!(read.tcp(), Some(address));
            let absolute = read.clone().absolute(|_| Err("it has no path"));
            assert_eq!(absolute.unwrap(), read);
        }
        let long = format!("nbd:/{}", "x".repeat(107));
        assert!(long[..long.len() - 1].parse::<Listen>().is_ok());
        for (wrong, why) in [
            ("nbd:", "no address or no port"),
            ("nbd:x.sock", "no address or no port"),
            ("nbd:127.0.0.1", "no port"),
            ("nbd:::1", "without brackets"),
            (
                "nbd:127.0.0.1:0",
                "port 0 is no port: write 1 to 65535; 10809",
            ),
            ("nbd:127.0.0.1:65536", "the port is a number"),
            ("nbd:localhost:10809", "names are not resolved"),
            ("nbd:10809", "no address or no port"),
            (long.as_str(), "1 to 107 bytes"),
        ] {
            let error = wrong.parse::<Listen>().unwrap_err();
            assert!(error.contains(why) && error.contains(wrong), "{error}");
        }
        let error = "nbd:x.sock".parse::<Listen>().unwrap_err();
        assert!(error.contains("nbd:./PATH"), "{error}");
    }

    #[test]
    fn a_vhost_user_blk_address_is_a_path() {
        for (text, path) in [
            ("vhost-user-blk:/run/x.sock", "/run/x.sock"),
            ("vhost-user-blk:x.sock", "x.sock"),
        ] {
            let read = listen(text);
            assert_eq!(read, Listen::VhostUserBlk(path.into()));
            assert_eq!(read.to_string(), text);
            assert_eq!(read.path(), Some(Path::new(path)));
            assert_eq!((read.socket(), read.tcp()), (Some(Path::new(path)), None));
            let absolute = read.absolute(|path| Ok::<_, ()>(Path::new("/f").join(path)));
            let there = Path::new("/f").join(path);
            assert_eq!(absolute.unwrap(), Listen::VhostUserBlk(there));
        }
        // sun_path of unix(7)
        let long = format!("vhost-user-blk:/{}", "x".repeat(107));
        assert!(long[..long.len() - 1].parse::<Listen>().is_ok());
        for (wrong, why) in [
            ("vhost-user-blk:", "name a socket"),
            (long.as_str(), "1 to 107 bytes"),
            ("vhost-user:/x", "write vfio-user:PATH, "),
        ] {
            let error = wrong.parse::<Listen>().unwrap_err();
            assert!(error.contains(why) && error.contains(wrong), "{error}");
        }
        let error = "vhost-user:/x".parse::<Listen>().unwrap_err();
        assert!(error.contains("vhost-user-blk:PATH"), "{error}");
    }

    #[test]
    fn a_ublk_address_is_an_id_or_none() {
        for (text, id) in [
            ("ublk:", None),
            ("ublk:0", Some(0)),
            ("ublk:7", Some(7)),
            // MINORBITS of the kernel's include/linux/kdev_t.h is 20
            ("ublk:1048575", Some(1_048_575)),
        ] {
            let read = listen(text);
            assert_eq!(read, Listen::Ublk(id));
            assert_eq!(read.to_string(), text);
            assert_eq!((read.path(), read.socket(), read.tcp()), (None, None, None));
            let absolute = read.clone().absolute(|_| Err("it has no path"));
            assert_eq!(absolute.unwrap(), read);
        }
        assert_eq!(listen("ublk:007"), Listen::Ublk(Some(7)));
        for wrong in [
            "ublk:x",
            "ublk:-1",
            "ublk:+1",
            "ublk: 1",
            "ublk:1.0",
            "ublk:1048576",
            "ublk:4294967296",
            "ublk:99999999999999999999",
            "ublk:/dev/ublkb0",
        ] {
            let error = wrong.parse::<Listen>().unwrap_err();
            for part in [wrong, "no ID", "0 to 1048575", "ublk:0", "`ublk:`"] {
                assert!(error.contains(part), "{error}");
            }
        }
        for wrong in ["ublkb:0", "ublk"] {
            let error = wrong.parse::<Listen>().unwrap_err();
            assert!(error.contains("ublk: or ublk:ID"), "{error}");
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
        assert!(overlap("nbd:/a", "vfio-user:/a"));
        assert!(overlap("nbd:/a", "nbd:/a"));
        assert!(!overlap("nbd:/a", "nbd:/b"));
        assert!(!overlap("nbd:/a", "fuse:/a"));
        assert!(overlap("vhost-user-blk:/a", "vhost-user-blk:/a"));
        assert!(overlap("vhost-user-blk:/a", "vfio-user:/a"));
        assert!(overlap("vhost-user-blk:/a", "nbd:/a"));
        assert!(!overlap("vhost-user-blk:/a", "vhost-user-blk:/b"));
        assert!(!overlap("vhost-user-blk:/a", "fuse:/a"));
        assert!(overlap("ublk:1", "ublk:1"));
        assert!(!overlap("ublk:1", "ublk:2"));
        assert!(!overlap("ublk:", "ublk:"));
        assert!(!overlap("ublk:", "ublk:0"));
        assert!(!overlap("ublk:1", "nbd:127.0.0.1:1"));
        assert!(overlap("nbd:0.0.0.0:1", "nvme-tcp:10.0.0.1:1"));
        assert!(!overlap("nbd:127.0.0.1:1", "nbd:127.0.0.1:2"));
        assert!(!overlap("nbd:127.0.0.1:1", "nbd:/a"));
    }
}

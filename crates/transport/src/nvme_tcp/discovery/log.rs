//! The Discovery log page: which subsystems hosts can reach, and where.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use nvme_spec::discovery::{
    AddressFamily, DiscoveryEntry, DiscoveryEntryFlags, DiscoveryLogHead, SecureChannel,
    SubsystemType, TcpSecurityType, TransportRequirements, TransportType, WELL_KNOWN_DISCOVERY_NQN,
};
use nvme_spec::fabrics::CNTLID_DYNAMIC;
use zerocopy::{FromZeros, IntoBytes};

/// Entries of an admin submission queue that every controller has at least (Base 2.1, figure 294).
const ASQSZ: u16 = 32;

/// How a host comes to its secure channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// It has a key of TLS.
    Key,
    /// It makes one by DH-HMAC-CHAP: its first connection is in clear.
    Concatenation,
}

/// An entrance: a subsystem at an address, and what it tells its own hosts beside that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name of the entrance.
    pub entrance: String,
    /// Name of the subsystem.
    pub subnqn: String,
    /// Address and port of its listening socket.
    pub address: SocketAddr,
    /// Address and port at which hosts reach that, where the operator says so.
    pub advertised: Option<SocketAddr>,
    /// Discovery services of other machines.
    pub referrals: Vec<SocketAddr>,
    /// NQNs of the hosts that may connect; `None`: all hosts.
    pub allowed: Option<Arc<BTreeSet<String>>>,
    /// NQNs of the hosts that come through TLS, each with the way to its key.
    pub secured: Arc<BTreeMap<String, Channel>>,
}

impl Listed {
    /// An entrance for all hosts, at the address of its socket.
    #[must_use]
    pub fn new(entrance: String, subnqn: String, address: SocketAddr) -> Self {
        Self {
            entrance,
            subnqn,
            address,
            advertised: None,
            referrals: Vec::new(),
            allowed: None,
            secured: Arc::default(),
        }
    }

    /// Whether a host may connect.
    fn admits(&self, hostnqn: &str) -> bool {
        let mut allowed = self.allowed.iter();
        allowed.all(|allowed| allowed.contains(hostnqn))
    }

    /// Where a host that has reached the address `here` of this machine finds the entrance.
    ///
    /// A socket for all addresses is at that one as well, if it is of a family that the socket
    /// takes. The machine's loopback addresses are others on the host's machine, so only hosts that
    /// have come by one read of them.
    fn at(&self, here: IpAddr) -> Option<SocketAddr> {
        if self.advertised.is_some() {
            return self.advertised;
        }
        let (ip, here) = (self.address.ip().to_canonical(), here.to_canonical());
        let ip = match ip {
            _ if ip.is_unspecified() && (ip.is_ipv6() || here.is_ipv4()) => here,
            _ if ip.is_unspecified() || (ip.is_loopback() && !here.is_loopback()) => return None,
            ip => ip,
        };
        Some(SocketAddr::new(ip, self.address.port()))
    }
}

/// A server's report of its subsystems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryLog {
    /// Changes with each change of the list.
    pub generation: u64,
    /// The subsystems, in a fixed order.
    pub subsystems: Vec<Listed>,
}

/// A host that reads the log, and the place where it does so.
#[derive(Clone, Debug)]
pub(in crate::nvme_tcp) struct Reader {
    /// Name of the entrance.
    pub entrance: String,
    /// Address that the host has connected to.
    pub here: SocketAddr,
    /// Name of this discovery subsystem.
    pub subnqn: String,
    /// Name of the host.
    pub hostnqn: String,
}

impl DiscoveryLog {
    /// The log page for a host: a head, this discovery subsystem, the subsystems that it may
    /// connect to, and the referrals of the entrance. Each entry says how this host connects:
    /// programs do not connect by an entry that leaves a choice.
    pub(super) fn page(&self, reader: &Reader, generation: u64) -> Vec<u8> {
        let mut own = self.subsystems.iter();
        let own = own.find(|listed| listed.entrance == reader.entrance);
        let here = own.and_then(|own| own.advertised).unwrap_or(reader.here);
        let current = SubsystemType::CURRENT_DISCOVERY;
        let mut current = entry(current, &reader.subnqn, here, 0, None);
        current.eflags = DiscoveryEntryFlags::new()
            .with_dupretinfo(true)
            .with_epcsd(true);
        let subsystems = self.subsystems.iter().enumerate();
        let subsystems = subsystems.filter_map(|(index, listed)| {
            let at = listed.at(reader.here.ip())?;
            let port = u16::try_from(index + 1).unwrap_or(u16::MAX);
            let channel = listed.secured.get(&reader.hostnqn).copied();
            let is_seen = listed.admits(&reader.hostnqn);
            is_seen.then(|| entry(SubsystemType::NVM, &listed.subnqn, at, port, channel))
        });
        let referrals = own.map_or(&[][..], |own| &own.referrals);
        let referrals = referrals.iter().map(|at| {
            // Its own name is known there; every discovery subsystem has this one as well.
            let nqn = WELL_KNOWN_DISCOVERY_NQN;
            entry(SubsystemType::REFERRAL, nqn, *at, 0, None)
        });
        let entries: Vec<_> = [current]
            .into_iter()
            .chain(subsystems)
            .chain(referrals)
            .collect();
        let mut head = DiscoveryLogHead::new_zeroed();
        head.genctr = generation;
        head.numrec = entries.len() as u64;
        [head.as_bytes(), entries.as_bytes()].concat()
    }
}

fn entry(
    subtype: SubsystemType,
    subnqn: &str,
    at: SocketAddr,
    portid: u16,
    channel: Option<Channel>,
) -> DiscoveryEntry {
    let mut entry = DiscoveryEntry::new_zeroed();
    // A socket for both families shows an IPv4 host's address in the form of IPv6.
    let ip = at.ip().to_canonical();
    entry.trtype = TransportType::TCP;
    entry.adrfam = match ip {
        IpAddr::V4(_) => AddressFamily::IPV4,
        IpAddr::V6(_) => AddressFamily::IPV6,
    };
    entry.subtype = subtype;
    entry.treq = TransportRequirements::new()
        .with_secure_channel(if channel == Some(Channel::Key) {
            SecureChannel::REQUIRED
        } else {
            SecureChannel::NOT_REQUIRED
        })
        .with_sq_flow_control_disable(true);
    // With a channel that is not required programs concatenate.
    if channel.is_some() {
        entry.sectype = TcpSecurityType::TLS_1_3;
    }
    entry.portid = portid;
    entry.cntlid = CNTLID_DYNAMIC;
    entry.asqsz = ASQSZ;
    put(&mut entry.trsvcid, &at.port().to_string());
    put(&mut entry.subnqn, subnqn);
    put(&mut entry.traddr, &ip.to_string());
    entry
}

/// Text, with zeros behind it. Names have their length checked where they come from.
fn put(field: &mut [u8], text: &str) {
    let len = text.len().min(field.len());
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
}

#[cfg(test)]
mod tests {
    use nvme_spec::discovery::DISCOVERY_ENTRY_SIZE;
    use nvme_spec::fabrics::text_of;
    use zerocopy::FromBytes;

    use super::*;

    /// An entrance whose name is the subsystem's.
    fn listed(subnqn: &str, address: &str) -> Listed {
        Listed::new(
            subnqn.to_owned(),
            subnqn.to_owned(),
            address.parse().unwrap(),
        )
    }

    fn reader(entrance: &str, here: &str, hostnqn: &str) -> Reader {
        Reader {
            entrance: entrance.to_owned(),
            here: here.parse().unwrap(),
            subnqn: "nqn.2014-08.org.example:discovery".to_owned(),
            hostnqn: hostnqn.to_owned(),
        }
    }

    fn read(log: &DiscoveryLog, reader: &Reader) -> (DiscoveryLogHead, Vec<DiscoveryEntry>) {
        let page = log.page(reader, log.generation);
        let (head, entries) = DiscoveryLogHead::read_from_prefix(&page).unwrap();
        let entries = entries.chunks(DISCOVERY_ENTRY_SIZE);
        let entries = entries.map(|bytes| DiscoveryEntry::read_from_bytes(bytes).unwrap());
        (head, entries.collect())
    }

    /// SUBTYPE, TRADDR and TRSVCID of each entry behind the first (Base 2.1, figure 294).
    fn places(log: &DiscoveryLog, reader: &Reader) -> Vec<(u8, String)> {
        let entries = read(log, reader).1;
        let of = |entry: &DiscoveryEntry| {
            let (ip, port) = (text_of(&entry.traddr), text_of(&entry.trsvcid));
            let at = format!("{} {}", ip.unwrap(), port.unwrap());
            (entry.subtype.0, at)
        };
        entries[1..].iter().map(of).collect()
    }

    fn log(subsystems: Vec<Listed>) -> DiscoveryLog {
        DiscoveryLog {
            generation: 1,
            subsystems,
        }
    }

    #[test]
    fn a_host_reads_only_addresses_that_it_can_reach() {
        let one = |address: &str, here: &str| {
            let places = places(
                &log(vec![listed("nqn.s", address)]),
                &reader("-", here, "nqn.h"),
            );
            places.into_iter().map(|(_, at)| at).next()
        };
        let some = |at: &str| Some(at.to_owned());
        let (outside, inside) = ("192.0.2.1:8009", "127.0.0.1:8009");
        assert_eq!(one("0.0.0.0:1", outside), some("192.0.2.1 1"));
        assert_eq!(one("[::]:1", outside), some("192.0.2.1 1"));
        assert_eq!(one("[::]:1", "[2001:db8::1]:8009"), some("2001:db8::1 1"));
        assert_eq!(
            one("0.0.0.0:1", "[::ffff:192.0.2.1]:8009"),
            some("192.0.2.1 1")
        );
        assert_eq!(one("0.0.0.0:1", "[2001:db8::1]:8009"), None);
        // An address of one interface may be reached by a router.
        assert_eq!(one("198.51.100.1:1", outside), some("198.51.100.1 1"));
        assert_eq!(one("127.0.0.1:1", inside), some("127.0.0.1 1"));
        assert_eq!(one("127.0.0.1:1", "[::1]:8009"), some("127.0.0.1 1"));
        assert_eq!(one("127.0.0.1:1", outside), None);
        assert_eq!(one("[::1]:1", outside), None);
    }

    #[test]
    fn an_advertised_address_is_that_of_the_entrance_and_of_its_discovery_service() {
        let nat = Listed {
            advertised: Some("10.0.2.2:5000".parse().unwrap()),
            ..listed("nqn.s", "127.0.0.1:4420")
        };
        let log = log(vec![nat, listed("nqn.t", "127.0.0.1:4421")]);
        let first = |entrance| {
            let entries = read(&log, &reader(entrance, "127.0.0.1:4420", "nqn.h")).1;
            let texts = [&entries[0].traddr[..], &entries[0].trsvcid];
            texts.map(|field| text_of(field).unwrap().to_owned())
        };
        assert_eq!(first("nqn.s"), ["10.0.2.2", "5000"]);
        assert_eq!(first("nqn.t"), ["127.0.0.1", "4420"]);
        for here in ["127.0.0.1:4420", "192.0.2.1:4420", "[2001:db8::1]:4420"] {
            let places = places(&log, &reader("nqn.t", here, "nqn.h"));
            assert_eq!(places[0], (2, "10.0.2.2 5000".to_owned()), "{here}");
        }
    }

    #[test]
    fn referrals_are_those_of_the_entrance() {
        let refers = Listed {
            referrals: vec![
                "192.0.2.9:8009".parse().unwrap(),
                "[2001:db8::9]:4420".parse().unwrap(),
            ],
            ..listed("nqn.s", "0.0.0.0:4420")
        };
        let log = log(vec![refers, listed("nqn.t", "0.0.0.0:4421")]);
        let subtypes = |entrance| {
            let places = places(&log, &reader(entrance, "192.0.2.1:1", "nqn.h"));
            places
                .into_iter()
                .map(|(subtype, _)| subtype)
                .collect::<Vec<_>>()
        };
        assert_eq!(subtypes("nqn.t"), [2, 2]);
        assert_eq!(subtypes("nqn.s"), [2, 2, 1, 1]);
        let (head, entries) = read(&log, &reader("nqn.s", "192.0.2.1:1", "nqn.h"));
        assert_eq!(head.numrec, 5);
        let last = &entries[4];
        assert_eq!((last.trtype.0, last.adrfam.0), (3, 2), "TCP, IPv6");
        assert_eq!(text_of(&last.traddr), Some("2001:db8::9"));
        assert_eq!(text_of(&last.trsvcid), Some("4420"));
        let well_known = "nqn.2014-08.org.nvmexpress.discovery";
        assert_eq!(text_of(&last.subnqn), Some(well_known));
        assert_eq!((last.cntlid, last.asqsz), (0xffff, 32));
    }

    #[test]
    fn a_host_reads_only_of_entrances_that_admit_it() {
        let allowed = BTreeSet::from(["nqn.a".to_owned()]);
        let mine = Listed {
            allowed: Some(Arc::new(allowed)),
            ..listed("nqn.s", "0.0.0.0:4420")
        };
        let log = log(vec![mine, listed("nqn.t", "0.0.0.0:4421")]);
        let names = |hostnqn| {
            let (head, entries) = read(&log, &reader("nqn.s", "192.0.2.1:1", hostnqn));
            assert_eq!(head.numrec, entries.len() as u64);
            let names = entries[1..]
                .iter()
                .map(|entry| text_of(&entry.subnqn).unwrap().to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names("nqn.a"), ["nqn.s", "nqn.t"]);
        assert_eq!(names("nqn.b"), ["nqn.t"]);
    }

    #[test]
    fn a_page_lists_itself_and_each_subsystem_at_its_address() {
        let log = DiscoveryLog {
            generation: 7,
            subsystems: vec![
                listed("nqn.2014-08.org.example:a", "192.0.2.7:4420"),
                listed("nqn.2014-08.org.example:b", "[::]:4421"),
            ],
        };
        let here = "[::ffff:192.0.2.1]:8009";
        let (head, entries) = read(&log, &reader("-", here, "nqn.a"));
        assert_eq!((head.genctr, head.numrec, head.recfmt), (7, 3, 0));
        let of = |entry: &DiscoveryEntry| {
            let text = |field: &[u8]| text_of(field).unwrap().to_owned();
            (
                entry.subtype,
                entry.adrfam,
                text(&entry.subnqn),
                text(&entry.traddr),
                text(&entry.trsvcid),
            )
        };
        let expected = |subtype, subnqn: &str, traddr: &str, trsvcid: &str| {
            let family = AddressFamily::IPV4;
            let text = str::to_owned;
            (subtype, family, text(subnqn), text(traddr), text(trsvcid))
        };
        assert_eq!(
            entries.iter().map(of).collect::<Vec<_>>(),
            [
                expected(
                    SubsystemType::CURRENT_DISCOVERY,
                    "nqn.2014-08.org.example:discovery",
                    "192.0.2.1",
                    "8009"
                ),
                expected(
                    SubsystemType::NVM,
                    "nqn.2014-08.org.example:a",
                    "192.0.2.7",
                    "4420"
                ),
                expected(
                    SubsystemType::NVM,
                    "nqn.2014-08.org.example:b",
                    "192.0.2.1",
                    "4421"
                ),
            ]
        );
        // TREQ: bit 2 is for SQ flow control, bits 1:0 are for the channel. TSAS begins with
        // SECTYPE.
        let security = |entry: &DiscoveryEntry| (u8::from(entry.treq), entry.sectype.0);
        assert!(entries.iter().all(|entry| security(entry) == (0b110, 0)));
        // Each host reads of what it needs itself.
        let secured = Listed {
            secured: Arc::new(BTreeMap::from([
                ("nqn.a".to_owned(), Channel::Key),
                ("nqn.c".to_owned(), Channel::Concatenation),
            ])),
            ..log.subsystems[0].clone()
        };
        let log = self::log(vec![secured]);
        let of = |hostnqn| security(&read(&log, &reader("-", here, hostnqn)).1[1]);
        assert_eq!(of("nqn.a"), (0b101, 2));
        assert_eq!(of("nqn.b"), (0b110, 0));
        assert_eq!(of("nqn.c"), (0b110, 2));
        // Base 2.1, figure 294: FFFFh is the dynamic model, 32 entries the least.
        assert!(entries.iter().all(|entry| entry.cntlid == 0xffff));
        assert!(entries.iter().all(|entry| entry.asqsz == 32));
        assert_eq!(u16::from(entries[0].eflags), 0b11);
        assert_eq!(u16::from(entries[1].eflags), 0);
    }
}

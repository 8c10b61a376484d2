//! The Discovery log page: which subsystems hosts can reach, and where.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use nvme_spec::discovery::{
    AddressFamily, DISCOVERY_ENTRY_SIZE, DiscoveryEntry, DiscoveryEntryFlags, DiscoveryLogHead,
    SecureChannel, SubsystemType, TcpSecurityType, TransportRequirements, TransportType,
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

/// A subsystem at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name of the subsystem.
    pub subnqn: String,
    /// Address and port. An unspecified address stands for the one that a host has connected to.
    pub address: SocketAddr,
    /// NQNs of the hosts that come through TLS, each with the way to its key.
    pub secured: Arc<BTreeMap<String, Channel>>,
}

/// What a server tells of its subsystems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryLog {
    /// Changes with each change of the list.
    pub generation: u64,
    /// The subsystems, in a fixed order.
    pub subsystems: Vec<Listed>,
}

impl DiscoveryLog {
    /// The log page for the host `hostnqn` that has connected to `here`, and knows this discovery
    /// subsystem by `subnqn`: a head, this discovery subsystem, and the subsystems. Each entry says
    /// how this host connects: programs do not connect by an entry that leaves a choice.
    pub(super) fn page(&self, here: SocketAddr, subnqn: &str, hostnqn: &str) -> Vec<u8> {
        let mut head = DiscoveryLogHead::new_zeroed();
        head.genctr = self.generation;
        head.numrec = self.subsystems.len() as u64 + 1;
        let mut page = head.as_bytes().to_vec();
        page.reserve_exact((self.subsystems.len() + 1) * DISCOVERY_ENTRY_SIZE);
        let mut own = entry(SubsystemType::CURRENT_DISCOVERY, subnqn, here, 0, None);
        own.eflags = DiscoveryEntryFlags::new()
            .with_dupretinfo(true)
            .with_epcsd(true);
        page.extend_from_slice(own.as_bytes());
        for (index, listed) in self.subsystems.iter().enumerate() {
            let address = at(listed.address, here.ip());
            let port = u16::try_from(index + 1).unwrap_or(u16::MAX);
            let entry = entry(
                SubsystemType::NVM,
                &listed.subnqn,
                address,
                port,
                listed.secured.get(hostnqn).copied(),
            );
            page.extend_from_slice(entry.as_bytes());
        }
        page
    }
}

/// The address at which a host that has reached `here` finds a listening socket.
fn at(address: SocketAddr, here: IpAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        SocketAddr::new(here, address.port())
    } else {
        address
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
    use nvme_spec::fabrics::text_of;
    use zerocopy::FromBytes;

    use super::*;

    #[test]
    fn a_page_lists_itself_and_each_subsystem_at_its_address() {
        let listed = |subnqn: &str, address: &str| Listed {
            subnqn: subnqn.to_owned(),
            address: address.parse().unwrap(),
            secured: Arc::default(),
        };
        let log = DiscoveryLog {
            generation: 7,
            subsystems: vec![
                listed("nqn.2014-08.org.example:a", "127.0.0.1:4420"),
                listed("nqn.2014-08.org.example:b", "[::]:4421"),
            ],
        };
        let here = "[::ffff:192.0.2.1]:8009".parse().unwrap();
        let page = log.page(here, "nqn.2014-08.org.example:discovery", "nqn.a");
        let (head, entries) = DiscoveryLogHead::read_from_prefix(&page).unwrap();
        assert_eq!((head.genctr, head.numrec, head.recfmt), (7, 3, 0));
        let entries: Vec<_> = entries
            .chunks(DISCOVERY_ENTRY_SIZE)
            .map(|bytes| DiscoveryEntry::read_from_bytes(bytes).unwrap())
            .collect();
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
                    "127.0.0.1",
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
        let log = DiscoveryLog {
            generation: 1,
            subsystems: vec![secured],
        };
        let of = |hostnqn| {
            let page = log.page(here, "nqn.d", hostnqn);
            let entry = &page[page.len() - DISCOVERY_ENTRY_SIZE..];
            security(&DiscoveryEntry::read_from_bytes(entry).unwrap())
        };
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

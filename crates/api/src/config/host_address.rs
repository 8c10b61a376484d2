//! Addresses that hosts over NVMe/TCP read in a discovery log page: `ADDRESS` or `ADDRESS:PORT`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use super::problem::Place;
use super::size::serde_as_text;

/// Port of discovery services (IANA).
pub const DISCOVERY_PORT: u16 = 8009;
/// Most referrals of a controller: each is an entry of 1 KiB in a page that is made for each host.
const MAX_REFERRALS: usize = 16;

/// An IP address, and a port where it is not the usual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// Address.
    pub ip: IpAddr,
    /// Port, if it is written.
    pub port: Option<u16>,
}

impl HostAddress {
    /// The address, with this port if none is written.
    #[must_use]
    pub fn or_port(self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, self.port.unwrap_or(port))
    }
}

impl FromStr for HostAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form =
            "write ADDRESS or ADDRESS:PORT, as in 192.0.2.1, 192.0.2.1:4420 or [2001:db8::1]:4420";
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        let mut scope = 0;
        let address = if let Ok(ip) = inner.unwrap_or(text).parse() {
            HostAddress { ip, port: None }
        } else if let Ok(both) = text.parse::<SocketAddr>() {
            if let SocketAddr::V6(six) = both {
                scope = six.scope_id();
            }
            HostAddress {
                ip: both.ip(),
                port: Some(both.port()),
            }
        } else {
            return Err(format!(
                "`{text}` is no IP address, and names are not resolved: {form}"
            ));
        };
        // A log page has no place for the interface of a host, which a link-local address needs.
        let is_for_no_host = scope != 0
            || match address.ip.to_canonical() {
                IpAddr::V4(ip) => ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast(),
                IpAddr::V6(ip) => {
                    ip.is_unspecified() || ip.is_multicast() || ip.is_unicast_link_local()
                }
            };
        if is_for_no_host || address.port == Some(0) {
            return Err(format!("`{text}`: no host can connect to it: {form}"));
        }
        Ok(address)
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => SocketAddr::new(self.ip, port).fmt(f),
            None => self.ip.fmt(f),
        }
    }
}

serde_as_text!(HostAddress => "an IP address in quotes, with or without a port, as in \"192.0.2.1:4420\"");

/// Appends what is wrong with a list of referrals.
pub(super) fn validate(referrals: &[HostAddress], place: &mut Place<'_>) {
    place.require(referrals.len() <= MAX_REFERRALS, || {
        format!(
            "referrals: {} addresses, more than the maximum of {MAX_REFERRALS}: remove some",
            referrals.len()
        )
    });
    let at = |address: &HostAddress| {
        let ip = address.ip.to_canonical();
        SocketAddr::new(ip, address.or_port(DISCOVERY_PORT).port())
    };
    for (index, address) in referrals.iter().enumerate() {
        let mut before = referrals[..index].iter();
        place.require(before.all(|other| at(other) != at(address)), || {
            format!("referrals: \"{address}\" is listed twice")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port_or_not() {
        for (text, at) in [
            ("192.0.2.1", "192.0.2.1:8009"),
            ("192.0.2.1:4420", "192.0.2.1:4420"),
            ("2001:db8::1", "[2001:db8::1]:8009"),
            ("[2001:db8::1]", "[2001:db8::1]:8009"),
            ("[2001:db8::1]:4420", "[2001:db8::1]:4420"),
            ("127.0.0.1", "127.0.0.1:8009"),
        ] {
            let read: HostAddress = text.parse().unwrap();
            assert_eq!(read.or_port(DISCOVERY_PORT), at.parse().unwrap());
            assert_eq!(read.to_string().parse(), Ok(read));
        }
        for (text, says) in [
            ("", "no IP address"),
            ("store.example", "names are not resolved"),
            ("192.0.2.1:", "no IP address"),
            ("192.0.2.1:65536", "no IP address"),
            ("192.0.2.1:0", "no host can connect"),
            ("0.0.0.0", "no host can connect"),
            ("[::]:4420", "no host can connect"),
            ("::ffff:0.0.0.0", "no host can connect"),
            ("224.0.0.251", "no host can connect"),
            ("255.255.255.255", "no host can connect"),
            ("fe80::1", "no host can connect"),
            ("[fe80::1]:4420", "no host can connect"),
            ("[2001:db8::1%2]:4420", "no host can connect"),
            ("fe80::1%eth0", "no IP address"),
        ] {
            let error = text.parse::<HostAddress>().unwrap_err();
            assert!(error.contains(says) && error.contains(text), "{error}");
        }
    }
}

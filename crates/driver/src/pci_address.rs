//! The address of a function on the machine's PCI buses.

use std::fmt;
use std::str::FromStr;

/// A function's address as Linux writes it: `0000:01:00.0`, domain, bus,
/// device, function. The domain may be left out when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    /// Five bits.
    device: u8,
    /// Three bits.
    function: u8,
}

/// A text is no PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a PCI address: write DOMAIN:BUS:DEVICE.FUNCTION, for example 0000:01:00.0")]
pub struct NoPciAddress(String);

impl FromStr for PciAddress {
    type Err = NoPciAddress;

    fn from_str(text: &str) -> Result<Self, NoPciAddress> {
        parse(text).ok_or_else(|| NoPciAddress(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (place, function) = text.split_once('.')?;
    let (place, device) = place.rsplit_once(':')?;
    let (domain, bus) = place.rsplit_once(':').unwrap_or(("0000", place));
    Some(PciAddress {
        // More than four digits are for domains that firmware does not know of.
        domain: hex(domain, 4..=8)?,
        bus: u8::try_from(hex(bus, 2..=2)?).ok()?,
        device: u8::try_from(hex(device, 2..=2)?)
            .ok()
            .filter(|device| *device < 32)?,
        function: u8::try_from(hex(function, 1..=1)?)
            .ok()
            .filter(|function| *function < 8)?,
    })
}

/// Hexadecimal digits, as many as `digits` allows, and nothing else.
fn hex(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (plain && digits.contains(&text.len()))
        .then(|| u32::from_str_radix(text, 16).ok())
        .flatten()
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_linux_does() {
        let text = |text: &str| {
            text.parse::<PciAddress>()
                .map(|address| address.to_string())
        };
        assert_eq!(text("0000:01:00.0").unwrap(), "0000:01:00.0");
        assert_eq!(text("C1:1F.7").unwrap(), "0000:c1:1f.7");
        assert_eq!(text("10000:e1:00.0").unwrap(), "10000:e1:00.0");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "0000:01:00",
            "01.0",
            "0000:01:20.0",
            "0000:01:00.8",
            "0000:01:00.00",
            "000:01:00.0",
            "0000:1:00.0",
            "0000:01:00.0 ",
            "+000:01:00.0",
            "0000:01:00.0/../x",
            "123456789:01:00.0",
        ] {
            assert!(text.parse::<PciAddress>().is_err(), "{text:?}");
        }
    }
}

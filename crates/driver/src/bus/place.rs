//! The address of a drive as text, and the bus that leads to it.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use memory::vfio::Descriptors;
use memory::{EventFd, HostMemory, Iova, Lent};
use nvme_spec::identify::IdentifyController;

use super::nvme_tcp::{Identity, NvmeTcp, TcpAddress};
use super::vfio::Vfio;
use super::vfio_user::VfioUser;
use super::{Bus, Fabrics, MappedDoorbells, PciAddress};
use crate::DriverError;

/// The address of a drive: `vfio-user:PATH`, `nvme-tcp:HOST:PORT/NQN` or `pci:ADDRESS`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A socket of a vfio-user server.
    VfioUser(PathBuf),
    /// A subsystem behind a target of NVMe over TCP.
    NvmeTcp(TcpAddress),
    /// A PCI function of this machine that is bound to vfio-pci.
    Pci(PciAddress),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = "write vfio-user:PATH for a server, nvme-tcp:HOST:PORT/NQN for a target, or pci:0000:01:00.0 for a drive in this machine";
        match text.split_once(':') {
            Some(("vfio-user", "")) => Err(format!("`{text}` does not name a socket: {known}")),
            Some(("vfio-user", path)) => Ok(Self::VfioUser(path.into())),
            Some(("nvme-tcp", address)) => Ok(Self::NvmeTcp(address.parse()?)),
            Some(("pci", address)) => Ok(Self::Pci(
                address.parse().map_err(|error| format!("{error}"))?,
            )),
            _ => Err(format!("`{text}` is not the address of a drive: {known}")),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
            Self::NvmeTcp(address) => write!(f, "nvme-tcp:{address}"),
            Self::Pci(address) => write!(f, "pci:{address}"),
        }
    }
}

impl Place {
    /// The bus to the drive there. Each request to a server is bounded by
    /// `timeout`.
    ///
    /// # Errors
    /// Those of [`VfioUser::connect`], [`NvmeTcp::connect`] and [`Vfio::open`].
    pub fn open(&self, timeout: Duration) -> Result<AnyBus, DriverError> {
        self.open_as(None, timeout)
    }

    /// As [`Self::open`], as another host of a target than that of the process.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn open_as(
        &self,
        host: Option<&Identity>,
        timeout: Duration,
    ) -> Result<AnyBus, DriverError> {
        match self {
            Self::VfioUser(path) => VfioUser::connect(path, timeout).map(AnyBus::VfioUser),
            Self::NvmeTcp(address) => match host {
                None => NvmeTcp::connect(address, timeout),
                Some(host) => NvmeTcp::connect_as(host, address, timeout),
            }
            .map(|bus| AnyBus::NvmeTcp(Box::new(bus))),
            Self::Pci(address) => Vfio::open(*address).map(AnyBus::Vfio),
        }
    }
}

impl Place {
    /// The bus to the PCI function there, which a former process had opened: `fds` are its
    /// descriptors.
    ///
    /// # Errors
    /// Those of [`Vfio::adopt`]; [`DriverError::Unsupported`] for a server.
    pub fn adopt(&self, fds: Descriptors) -> Result<AnyBus, DriverError> {
        match self {
            Self::VfioUser(_) | Self::NvmeTcp(_) => Err(DriverError::Unsupported(
                "a server is connected to again, and not taken over".to_owned(),
            )),
            Self::Pci(address) => Vfio::adopt(*address, fds).map(AnyBus::Vfio),
        }
    }

    /// [`Bus::can_revoke`] of its bus.
    #[must_use]
    pub fn can_revoke(&self) -> bool {
        matches!(self, Self::Pci(_) | Self::NvmeTcp(_))
    }
}

/// The bus to a drive at any [`Place`].
pub enum AnyBus {
    /// To a server.
    VfioUser(VfioUser),
    /// To a target.
    NvmeTcp(Box<NvmeTcp>),
    /// To a PCI function.
    Vfio(Vfio),
}

impl AnyBus {
    /// The descriptors with which another process can continue with the drive; `None` for a server.
    #[must_use]
    pub fn descriptors(&self) -> Option<Descriptors<BorrowedFd<'_>>> {
        match self {
            Self::VfioUser(_) | Self::NvmeTcp(_) => None,
            Self::Vfio(bus) => Some(bus.descriptors()),
        }
    }
}

/// Asks the bus that there is.
macro_rules! either {
    ($self:ident, $bus:ident => $ask:expr) => {
        match $self {
            AnyBus::VfioUser($bus) => $ask,
            AnyBus::NvmeTcp($bus) => $ask,
            AnyBus::Vfio($bus) => $ask,
        }
    };
}

impl Bus for AnyBus {
    fn read32(&self, offset: u64) -> Result<u32, DriverError> {
        either!(self, bus => bus.read32(offset))
    }

    fn read64(&self, offset: u64) -> Result<u64, DriverError> {
        either!(self, bus => bus.read64(offset))
    }

    fn write32(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        either!(self, bus => bus.write32(offset, value))
    }

    fn write64(&self, offset: u64, value: u64) -> Result<(), DriverError> {
        either!(self, bus => bus.write64(offset, value))
    }

    fn ring(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        either!(self, bus => bus.ring(offset, value))
    }

    fn try_ring(&self, offset: u64, value: u32) -> Result<bool, DriverError> {
        either!(self, bus => bus.try_ring(offset, value))
    }

    fn config_read(&self, offset: u64, out: &mut [u8]) -> Result<(), DriverError> {
        either!(self, bus => bus.config_read(offset, out))
    }

    fn config_write(&self, offset: u64, data: &[u8]) -> Result<(), DriverError> {
        either!(self, bus => bus.config_write(offset, data))
    }

    fn bar_len(&self, bar: u8) -> Result<u64, DriverError> {
        either!(self, bus => bus.bar_len(bar))
    }

    fn bar_read(&self, bar: u8, offset: u64, out: &mut [u8]) -> Result<(), DriverError> {
        either!(self, bus => bus.bar_read(bar, offset, out))
    }

    fn bar_write(&self, bar: u8, offset: u64, data: &[u8]) -> Result<(), DriverError> {
        either!(self, bus => bus.bar_write(bar, offset, data))
    }

    fn reset_function(&self) -> Result<(), DriverError> {
        either!(self, bus => bus.reset_function())
    }

    fn doorbells(&self) -> Option<MappedDoorbells> {
        either!(self, bus => bus.doorbells())
    }

    fn share(&self, memory: &HostMemory, base: Iova) -> Result<(), DriverError> {
        either!(self, bus => bus.share(memory, base))
    }

    fn lend(&self, memory: &Lent, base: Iova) -> Result<(), DriverError> {
        either!(self, bus => bus.lend(memory, base))
    }

    fn unshare(&self, base: Iova, len: u64) -> Result<(), DriverError> {
        either!(self, bus => bus.unshare(base, len))
    }

    fn can_revoke(&self) -> bool {
        either!(self, bus => bus.can_revoke())
    }

    fn clear_former(&self) -> Result<(), DriverError> {
        either!(self, bus => bus.clear_former())
    }

    fn fabrics(&self) -> Option<&dyn Fabrics> {
        either!(self, bus => bus.fabrics())
    }

    fn identified(&self, identity: &IdentifyController) {
        either!(self, bus => bus.identified(identity));
    }

    fn vectors(&self) -> u16 {
        either!(self, bus => bus.vectors())
    }

    fn hides_msix(&self) -> bool {
        either!(self, bus => bus.hides_msix())
    }

    fn set_interrupt(&self, vector: u16, eventfd: &EventFd) -> Result<(), DriverError> {
        either!(self, bus => bus.set_interrupt(vector, eventfd))
    }

    fn clear_interrupt(&self, vector: u16) -> Result<(), DriverError> {
        either!(self, bus => bus.clear_interrupt(vector))
    }

    fn set_message_interrupt(&self, message: u16, eventfd: &EventFd) -> Result<(), DriverError> {
        either!(self, bus => bus.set_message_interrupt(message, eventfd))
    }

    #[inline]
    fn turn(&self) {
        either!(self, bus => bus.turn());
    }

    fn relax(&self, empty: u32) {
        either!(self, bus => bus.relax(empty));
    }

    fn pause(&self) {
        either!(self, bus => bus.pause());
    }

    fn wait(&self, eventfd: &EventFd, timeout: Duration) -> Result<bool, DriverError> {
        either!(self, bus => bus.wait(eventfd, timeout))
    }

    fn check_alive(&self) -> Result<(), DriverError> {
        either!(self, bus => bus.check_alive())
    }

    fn now_ns(&self) -> u64 {
        either!(self, bus => bus.now_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_as_it_is_read() {
        for text in [
            "vfio-user:/run/a:b.sock",
            "nvme-tcp:[::1]:4420/nqn.2026-11.t:s0",
            "pci:0000:01:00.0",
        ] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        let short: Place = "pci:81:00.0".parse().unwrap();
        assert_eq!(short.to_string(), "pci:0000:81:00.0");
    }

    #[test]
    fn what_is_no_place_says_what_to_write() {
        for text in [
            "",
            "/run/a.sock",
            "vfio-user:",
            "unix:/run/c.sock",
            "pcie:01:00.0",
        ] {
            let error = text.parse::<Place>().unwrap_err();
            assert!(error.contains("vfio-user:PATH"), "{error}");
        }
        let error = "nvme-tcp:storage".parse::<Place>().unwrap_err();
        assert!(error.contains("nvme-tcp:HOST:PORT/NQN"), "{error}");
        let error = "pci:nvme0".parse::<Place>().unwrap_err();
        assert!(error.contains("`nvme0` is not a PCI address"), "{error}");
    }
}

//! A physical drive, or a function of one, that the kernel assigns to this process: VFIO.
//!
//! Registers are accessed through the kernel, so that a drive that does not respond causes an error
//! and no signal. Doorbells are mapped, so that a command needs no system call. The machine's IOMMU
//! limits the drive to the memory that is shared with it.
//!
//! A function that a former process had is continued with by its descriptors ([`Vfio::adopt`]).
//!
//! Not included: binding to vfio-pci, and the check whether a drive may be taken. One process has a
//! drive at a time, and one container of addresses each.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use memory::vfio::{Descriptors, Function, Interrupt, Space};
use memory::{EventFd, HostMemory, Iova, Lent};
use nvme_spec::registers::DOORBELLS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{Bus, MappedDoorbells, NAP, PciAddress, spin_then_nap};
use crate::DriverError;

/// Bytes of doorbells that are mapped, at most: those of as many queue pairs as
/// the driver asks for, also where they lie 64 bytes apart (CAP.DSTRD 4). Others
/// are rung through the kernel.
const DOORBELLS_LEN: u64 = 64 << 10;

/// The bus to a PCI function that is bound to vfio-pci.
pub struct Vfio {
    function: Function,
    doorbells: Option<MappedDoorbells>,
    vectors: u16,
    /// The kind of interrupts that is enabled.
    enabled: Mutex<Option<Interrupt>>,
    /// Signalled when the kernel wants the function back.
    give_back: EventFd,
    /// Signalled when the kernel has seen an error on the function's bus.
    error: EventFd,
    /// The kernel has requested the function back: it reports this once.
    asked: AtomicBool,
    started: Instant,
}

impl Vfio {
    /// Takes the function at `address`.
    ///
    /// # Errors
    /// [`DriverError::Pci`] for a function that is not there, not bound to
    /// vfio-pci, in use, or without an IOMMU; [`DriverError::Unsupported`] for one
    /// without a BAR0 that holds registers.
    pub fn open(address: PciAddress) -> Result<Self, DriverError> {
        let cannot = |reason: String| DriverError::Pci { address, reason };
        let group = find(Path::new("/sys/bus/pci/devices"), address).map_err(cannot)?;
        let function = Function::open(&address.to_string(), group)
            .map_err(|error| cannot(error.to_string()))?;
        Self::of(address, function)
    }

    /// Continues with the function at `address`, of which a former process has left the
    /// descriptors. The function may be at work: [`Bus::clear_former`].
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn adopt(address: PciAddress, fds: Descriptors) -> Result<Self, DriverError> {
        let function = Function::adopt(fds).map_err(|error| DriverError::Pci {
            address,
            reason: error.to_string(),
        })?;
        Self::of(address, function)
    }

    fn of(address: PciAddress, function: Function) -> Result<Self, DriverError> {
        let cannot = |reason: String| DriverError::Pci { address, reason };
        let len = function.region(Space::Bar(0)).len;
        if len <= DOORBELLS {
            return Err(DriverError::Unsupported(format!(
                "BAR0 of {address} has {len} bytes, too few for doorbells: not an NVMe controller"
            )));
        }
        let doorbells = function
            .map_doorbells(0, DOORBELLS, DOORBELLS_LEN)
            .map_err(|error| cannot(error.to_string()))?
            .map(|pages| MappedDoorbells {
                pages: Arc::new(pages),
                start: DOORBELLS,
            });
        let vectors = function.interrupts(Interrupt::MsiX);
        let eventfd = || EventFd::new().map_err(|source| system("create an eventfd", source));
        let bus = Self {
            function,
            doorbells,
            vectors: u16::try_from(vectors).expect("2048 at most"),
            enabled: Mutex::new(None),
            give_back: eventfd()?,
            error: eventfd()?,
            asked: AtomicBool::new(false),
            started: Instant::now(),
        };
        for (kind, eventfd) in [
            (Interrupt::GiveBack, &bus.give_back),
            (Interrupt::Error, &bus.error),
        ] {
            // A kernel or a function may lack either.
            if bus.function.interrupts(kind) > 0 {
                bus.function
                    .set_interrupts(kind, 0, &[Some(eventfd.as_fd())])
                    .map_err(|source| {
                        system("subscribe to removal and error events of the drive", source)
                    })?;
            }
        }
        Ok(bus)
    }

    /// The descriptors with which another process can continue.
    #[must_use]
    pub fn descriptors(&self) -> Descriptors<BorrowedFd<'_>> {
        self.function.descriptors()
    }

    fn read<const N: usize>(&self, offset: u64) -> Result<[u8; N], DriverError> {
        let mut bytes = [0; N];
        self.read_space(Space::Bar(0), offset, &mut bytes)?;
        Ok(bytes)
    }

    fn read_space(&self, space: Space, offset: u64, out: &mut [u8]) -> Result<(), DriverError> {
        self.function
            .read(space, offset, out)
            .map_err(|source| self.lost_or("read the drive's registers", source))
    }

    fn write_space(&self, space: Space, offset: u64, data: &[u8]) -> Result<(), DriverError> {
        self.function
            .write(space, offset, data)
            .map_err(|source| self.lost_or("write the drive's registers", source))
    }

    /// A function that is gone, or whose memory is off, gives EIO.
    fn lost_or(&self, what: &'static str, source: std::io::Error) -> DriverError {
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NODEV | Errno::NXIO) => DriverError::Gone,
            Some(Errno::IO) if self.is_asked() => DriverError::Gone,
            _ => system(what, source),
        }
    }

    /// Whether the kernel requests the function back. Consumes the signal.
    fn is_asked(&self) -> bool {
        if self.give_back.drain() {
            self.asked.store(true, Ordering::Relaxed);
        }
        // Relaxed: the flag orders no other memory, and is never lowered.
        self.asked.load(Ordering::Relaxed)
    }

    fn interrupt(&self, kind: Interrupt, at: u16, eventfd: &EventFd) -> Result<(), DriverError> {
        let count = self.function.interrupts(kind);
        let at = u32::from(at);
        if at >= count {
            return Err(DriverError::Unsupported(format!(
                "the drive has {count} interrupts of this type: number {at} does not exist"
            )));
        }
        // A panic of another user of the bus leaves a kind enabled, or none.
        let mut enabled = self.enabled.lock().unwrap_or_else(PoisonError::into_inner);
        let result = match *enabled {
            Some(other) if other == kind => {
                self.function
                    .set_interrupts(kind, at, &[Some(eventfd.as_fd())])
            }
            other => {
                let disabled =
                    other.map_or(Ok(()), |other| self.function.disable_interrupts(other));
                *enabled = None;
                disabled.and_then(|()| self.enable(kind, count, at, eventfd))
            }
        };
        result.map_err(|source| system("assign an eventfd to an interrupt", source))?;
        *enabled = Some(kind);
        Ok(())
    }

    /// Enables a kind with all its vectors, because kernels before 6.5 add none
    /// later; with fewer where the machine has no more to give.
    fn enable(
        &self,
        kind: Interrupt,
        count: u32,
        at: u32,
        eventfd: &EventFd,
    ) -> std::io::Result<()> {
        let mut count = count;
        loop {
            let all: Vec<_> = (0..count)
                .map(|vector| (vector == at).then(|| eventfd.as_fd()))
                .collect();
            match self.function.set_interrupts(kind, 0, &all) {
                Err(error) if error.kind() == std::io::ErrorKind::OutOfMemory && count > at + 1 => {
                    count = (count / 2).max(at + 1);
                }
                result => return result,
            }
        }
    }
}

/// The IOMMU group of a function that is bound to vfio-pci; else why it cannot
/// be taken.
fn find(devices: &Path, address: PciAddress) -> Result<u32, String> {
    let folder = devices.join(address.to_string());
    if !folder.is_dir() {
        return Err("there is no such PCI function; `nvmirage drive ls` lists drives".to_owned());
    }
    let target = |link: &str| {
        let path = fs::read_link(folder.join(link)).ok()?;
        Some(path.file_name()?.to_str()?.to_owned())
    };
    match target("driver").as_deref() {
        Some("vfio-pci") => {}
        driver => {
            let whose = driver.map_or("no driver".to_owned(), |name| format!("the driver {name}"));
            return Err(format!(
                "it is bound to {whose}: if it is unused, bind it to vfio-pci with `nvmirage drive bind {address}`"
            ));
        }
    }
    let group = target("iommu_group").and_then(|name| name.parse().ok());
    group.ok_or_else(|| {
        "it is not behind an IOMMU: enable the IOMMU in the firmware, and for Intel boot the kernel with intel_iommu=on"
            .to_owned()
    })
}

fn system(what: &'static str, source: std::io::Error) -> DriverError {
    DriverError::System { what, source }
}

/// The error of a failed share.
fn shared(source: std::io::Error) -> DriverError {
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOMEM) => system(
            "lock memory for the drive (raise RLIMIT_MEMLOCK with `ulimit -l`)",
            source,
        ),
        _ => system("share memory with the drive", source),
    }
}

impl Bus for Vfio {
    fn read32(&self, offset: u64) -> Result<u32, DriverError> {
        Ok(u32::from_le_bytes(self.read(offset)?))
    }

    fn read64(&self, offset: u64) -> Result<u64, DriverError> {
        Ok(u64::from_le_bytes(self.read(offset)?))
    }

    fn write32(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        self.write_space(Space::Bar(0), offset, &value.to_le_bytes())
    }

    fn write64(&self, offset: u64, value: u64) -> Result<(), DriverError> {
        self.write_space(Space::Bar(0), offset, &value.to_le_bytes())
    }

    fn ring(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        self.write32(offset, value)
    }

    fn config_read(&self, offset: u64, out: &mut [u8]) -> Result<(), DriverError> {
        self.read_space(Space::Config, offset, out)
    }

    fn config_write(&self, offset: u64, data: &[u8]) -> Result<(), DriverError> {
        self.write_space(Space::Config, offset, data)
    }

    fn bar_len(&self, bar: u8) -> Result<u64, DriverError> {
        Ok(self.function.region(Space::Bar(bar)).len)
    }

    fn bar_read(&self, bar: u8, offset: u64, out: &mut [u8]) -> Result<(), DriverError> {
        self.read_space(Space::Bar(bar), offset, out)
    }

    fn bar_write(&self, bar: u8, offset: u64, data: &[u8]) -> Result<(), DriverError> {
        self.write_space(Space::Bar(bar), offset, data)
    }

    fn reset_function(&self) -> Result<(), DriverError> {
        self.function
            .reset()
            .map_err(|source| self.lost_or("reset the drive's PCI function", source))
    }

    fn doorbells(&self) -> Option<MappedDoorbells> {
        self.doorbells.clone()
    }

    fn share(&self, memory: &HostMemory, base: Iova) -> Result<(), DriverError> {
        self.function.share(memory, base).map_err(shared)
    }

    fn lend(&self, memory: &Lent, base: Iova) -> Result<(), DriverError> {
        self.function.lend(memory, base).map_err(shared)
    }

    fn unshare(&self, base: Iova, len: u64) -> Result<(), DriverError> {
        self.function
            .unshare(base, len)
            .map_err(|source| system("unmap memory from the drive", source))
    }

    fn can_revoke(&self) -> bool {
        true
    }

    fn clear_former(&self) -> Result<(), DriverError> {
        for kind in [Interrupt::MsiX, Interrupt::Msi] {
            match self.function.disable_interrupts(kind) {
                // The kind was not enabled.
                Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {}
                disabled => {
                    disabled.map_err(|source| system("disable the drive's interrupts", source))?;
                }
            }
        }
        let unshared = self.function.unshare_all();
        let what = "unmap the memory of the former process from the drive";
        match unshared.map_err(|source| system(what, source))? {
            0 => Err(DriverError::Unsupported(
                "the kernel does not unmap the memory that another process has shared with the drive; Linux 6.0 and later do"
                    .to_owned(),
            )),
            _ => Ok(()),
        }
    }

    fn vectors(&self) -> u16 {
        self.vectors
    }

    /// The kernel writes the table itself when it receives eventfds, so that no program can make a
    /// drive signal anything else.
    fn hides_msix(&self) -> bool {
        true
    }

    fn set_interrupt(&self, vector: u16, eventfd: &EventFd) -> Result<(), DriverError> {
        self.interrupt(Interrupt::MsiX, vector, eventfd)
    }

    fn clear_interrupt(&self, vector: u16) -> Result<(), DriverError> {
        // A vector that was never set signals no eventfd, and the kernel refuses kinds that are not
        // enabled.
        let enabled = self.enabled.lock().unwrap_or_else(PoisonError::into_inner);
        match *enabled {
            Some(Interrupt::MsiX) => self
                .function
                .set_interrupts(Interrupt::MsiX, u32::from(vector), &[None])
                .map_err(|source| system("remove the eventfd of an interrupt", source)),
            _ => Ok(()),
        }
    }

    fn set_message_interrupt(&self, message: u16, eventfd: &EventFd) -> Result<(), DriverError> {
        self.interrupt(Interrupt::Msi, message, eventfd)
    }

    fn pause(&self) {
        thread::sleep(NAP);
    }

    fn relax(&self, empty: u32) {
        spin_then_nap(empty);
    }

    fn wait(&self, eventfd: &EventFd, timeout: Duration) -> Result<bool, DriverError> {
        let deadline = Instant::now() + timeout;
        loop {
            self.check_alive()?;
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).expect("a timeout fits in a timespec");
            let mut fds = [
                PollFd::new(eventfd, PollFlags::IN),
                PollFd::new(&self.give_back, PollFlags::IN),
                PollFd::new(&self.error, PollFlags::IN),
            ];
            match poll(&mut fds, Some(&left)) {
                Ok(0) => return Ok(false),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(system("wait for an interrupt", errno.into())),
            }
            if !fds[0].revents().is_empty() && eventfd.drain() {
                return Ok(true);
            }
        }
    }

    fn check_alive(&self) -> Result<(), DriverError> {
        let lost = self.doorbells.as_ref().is_some_and(|d| d.pages.is_lost());
        if lost || self.is_asked() {
            return Err(DriverError::Gone);
        }
        if self.error.drain() {
            return Err(DriverError::Broken(
                "the kernel reported an uncorrectable PCIe error (AER)".to_owned(),
            ));
        }
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_a_function_of_vfio_pci_behind_an_iommu_is_taken() {
        let sys = tempfile::tempdir().unwrap();
        let address: PciAddress = "0000:01:00.0".parse().unwrap();
        let refused = || find(sys.path(), address).unwrap_err();
        assert!(refused().contains("no such PCI function"));

        let folder = sys.path().join("0000:01:00.0");
        fs::create_dir(&folder).unwrap();
        assert!(refused().contains("no driver"));
        symlink("../../bus/pci/drivers/nvme", folder.join("driver")).unwrap();
        assert!(refused().contains("the driver nvme"));
        assert!(refused().contains("nvmirage drive bind 0000:01:00.0"));

        fs::remove_file(folder.join("driver")).unwrap();
        symlink("../../bus/pci/drivers/vfio-pci", folder.join("driver")).unwrap();
        assert!(refused().contains("not behind an IOMMU"));
        symlink("../../kernel/iommu_groups/17", folder.join("iommu_group")).unwrap();
        assert_eq!(find(sys.path(), address), Ok(17));
    }
}

//! Moves a drive from the kernel's NVMe driver to vfio-pci, and back.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, bail, ensure};
use driver::bus::PciAddress;

use super::{Drive, System, VFIO_PCI, line, names, target, users};

/// The kernel's driver for these drives.
const NVME: &str = "nvme";
/// The class of bridges (PCI Code and ID Assignment, 1.7), which may keep their driver.
const BRIDGES: &str = "0x06";
/// Attempts to see the requested driver bound to the function.
const LOOKS: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(20);

impl System {
    /// Binds the drive to vfio-pci, so that it can be opened as `pci:ADDRESS`.
    ///
    /// # Errors
    /// The drive is in use: the message names the user. It is not behind an IOMMU, or shares its
    /// group with a device of the kernel. The system refuses.
    pub(crate) fn bind(&self, address: PciAddress) -> anyhow::Result<Drive> {
        let drive = self.drive(address)?;
        if drive.driver.as_deref() == Some(VFIO_PCI) {
            return Ok(drive);
        }
        refuse_used(&drive)?;
        self.refuse_group(&drive)?;
        self.load_vfio_pci()?;
        let claims = users::claim_all(self, &drive.block_devices);
        let claims = claims.map_err(|name| anyhow::anyhow!("{name} is now in use"))?;
        let moved = self.move_to(&drive, Some(VFIO_PCI), VFIO_PCI);
        drop(claims);
        if let Err(error) = moved {
            // restore the previous driver, and report the original error
            let before = drive.driver.as_deref().unwrap_or(NVME);
            let back = self.move_to(&drive, None, before);
            return Err(match back {
                Ok(()) => error,
                Err(worse) => error.context(format!("{address} has no driver now: {worse:#}")),
            });
        }
        self.drive(address)
    }

    /// Returns the drive to the kernel's driver.
    ///
    /// # Errors
    /// A process has it open: the message names it. It is not bound to vfio-pci. The system
    /// refuses.
    pub(crate) fn unbind(&self, address: PciAddress) -> anyhow::Result<Drive> {
        let drive = self.drive(address)?;
        match drive.driver.as_deref() {
            Some(VFIO_PCI) => {}
            Some(NVME) => return Ok(drive),
            other => bail!(
                "{address} is bound to {}, not to vfio-pci: nothing to return",
                other.unwrap_or("no driver")
            ),
        }
        // The kernel would wait for that process without limit.
        refuse_used(&drive)?;
        self.move_to(&drive, None, NVME)?;
        self.drive(address)
    }

    /// An IOMMU group is assigned as a whole, so the kernel may not drive any other function of it.
    fn refuse_group(&self, drive: &Drive) -> anyhow::Result<()> {
        let address = drive.address;
        let Some(group) = drive.iommu_group else {
            bail!(
                "{address} is not behind an IOMMU, and could access all memory of this machine: enable the IOMMU in \
                 the firmware, and for Intel boot the kernel with intel_iommu=on"
            );
        };
        let devices = self.path("sys/bus/pci/devices");
        for name in names(&self.function(address).join("iommu_group/devices")) {
            let folder = devices.join(&name);
            let driver = target(&folder.join("driver"));
            let is_bridge =
                line(&folder.join("class")).is_some_and(|class| class.starts_with(BRIDGES));
            if name != address.to_string()
                && !is_bridge
                && let Some(driver) = driver.filter(|driver| driver != VFIO_PCI)
            {
                bail!(
                    "{address} shares IOMMU group {group} with {name}, which the driver {driver} has: a group is handed \
                     over as a whole, so put the drive into another slot, or unbind that function first"
                );
            }
        }
        Ok(())
    }

    fn load_vfio_pci(&self) -> anyhow::Result<()> {
        let driver = self.path("sys/bus/pci/drivers").join(VFIO_PCI);
        if driver.is_dir() {
            return Ok(());
        }
        // The check below reports a failure.
        let _ = Command::new("modprobe").arg(VFIO_PCI).output();
        ensure!(
            driver.is_dir(),
            "the kernel has no driver vfio-pci: run `modprobe vfio-pci` as root, or use a kernel with it"
        );
        Ok(())
    }

    /// Unbinds the function and has the kernel probe drivers again, with a preference for `only` if
    /// given. Waits until `wanted` is bound.
    fn move_to(&self, drive: &Drive, only: Option<&str>, wanted: &str) -> anyhow::Result<()> {
        let address = drive.address.to_string();
        let folder = self.function(drive.address);
        // An empty line removes the preference.
        let only = format!("{}\n", only.unwrap_or_default());
        write(&folder.join("driver_override"), &only)?;
        let unbind = folder.join("driver/unbind");
        if unbind.exists() {
            write(&unbind, &address)?;
        }
        write(&self.path("sys/bus/pci/drivers_probe"), &address)?;
        for _ in 0..LOOKS {
            if target(&folder.join("driver")).as_deref() == Some(wanted) {
                return Ok(());
            }
            thread::sleep(BETWEEN);
        }
        bail!("the driver {wanted} did not take {address}; the kernel's log (dmesg) says why")
    }
}

fn refuse_used(drive: &Drive) -> anyhow::Result<()> {
    ensure!(
        drive.in_use_by.is_empty(),
        "{} is in use:\n{}",
        drive.address,
        drive.in_use_by.join("\n")
    );
    Ok(())
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text)
        .with_context(|| format!("cannot write {}; this needs root", file.display()))
}

//! The NVMe drives of this machine, as the system reports them: the drives, their drivers and
//! users, and their assignment to this program and back.
//!
//! All information comes from sysfs and proc below a root folder, so that tests can provide their
//! own machines.
//!
//! Invariant: a drive in use is never taken from the kernel, and a drive that a process has open is
//! never returned to it; the error names the user.
//!
//! This module does not talk to drives. Properties of a drive are shown as far as the kernel's
//! driver reports them.

mod bind;
mod users;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use driver::bus::PciAddress;
use serde::Serialize;

/// The class of NVMe controllers: mass storage, non-volatile memory, NVMe (PCIe Transport 1.1,
/// 3.8.1.4).
const CLASS: &str = "0x010802";
/// The driver that gives functions to programs.
const VFIO_PCI: &str = "vfio-pci";

/// A machine, represented by its files.
pub(crate) struct System {
    root: PathBuf,
}

/// An NVMe controller of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Drive {
    #[serde(serialize_with = "as_text")]
    pub(crate) address: PciAddress,
    /// Vendor and device ID, as lspci -n prints them.
    pub(crate) id: String,
    /// Model number, if the kernel's driver reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) serial: Option<String>,
    /// The driver bound to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) driver: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) iommu_group: Option<u32>,
    /// The block devices of its namespaces on this machine.
    pub(crate) block_devices: Vec<String>,
    /// Users of the drive, in words.
    pub(crate) in_use_by: Vec<String>,
}

fn as_text<S: serde::Serializer>(address: &PciAddress, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(address)
}

impl System {
    /// This machine.
    pub(crate) fn this() -> Self {
        Self::at("/")
    }

    /// The machine whose files lie below `root`.
    fn at(root: impl Into<PathBuf>) -> Self {
        System { root: root.into() }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    /// The folder of a PCI function.
    fn function(&self, address: PciAddress) -> PathBuf {
        self.path("sys/bus/pci/devices").join(address.to_string())
    }

    /// All NVMe controllers on PCI, by address.
    pub(crate) fn drives(&self) -> anyhow::Result<Vec<Drive>> {
        let folder = self.path("sys/bus/pci/devices");
        let mut drives = Vec::new();
        for name in names(&folder) {
            let class = line(&folder.join(&name).join("class"));
            if class.as_deref() == Some(CLASS)
                && let Ok(address) = name.parse()
            {
                drives.push(self.drive(address)?);
            }
        }
        drives.sort_by_key(|drive| drive.address);
        Ok(drives)
    }

    /// The NVMe controller at `address`.
    ///
    /// # Errors
    /// There is no NVMe controller at that address.
    pub(crate) fn drive(&self, address: PciAddress) -> anyhow::Result<Drive> {
        let folder = self.function(address);
        let class = line(&folder.join("class")).with_context(|| {
            format!("there is no PCI function {address}; `nvmirage drive ls` lists drives")
        })?;
        anyhow::ensure!(
            class == CLASS,
            "{address} is not an NVMe controller (its class is {class}); `nvmirage drive ls` lists drives"
        );
        let id = |file: &str| {
            let text = line(&folder.join(file)).unwrap_or_default();
            text.trim_start_matches("0x").to_owned()
        };
        let iommu_group = target(&folder.join("iommu_group")).and_then(|name| name.parse().ok());
        let controllers = names(&folder.join("nvme"));
        let controller = controllers
            .first()
            .map(|name| folder.join("nvme").join(name));
        let says = |file: &str| controller.as_deref().and_then(|at| line(&at.join(file)));
        let block_devices = block_devices(&folder, &controllers);
        let users = users::Users {
            system: self,
            folder: &folder,
            controllers: &controllers,
            block_devices: &block_devices,
            iommu_group,
        };
        Ok(Drive {
            address,
            id: format!("{}:{}", id("vendor"), id("device")),
            model: says("model"),
            serial: says("serial"),
            driver: target(&folder.join("driver")),
            iommu_group,
            in_use_by: users.in_words(),
            block_devices,
        })
    }
}

/// The block devices of a function's namespaces.
fn block_devices(folder: &Path, controllers: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for controller in controllers {
        for name in names(&folder.join("nvme").join(controller)) {
            if let Some(name) = block_device(&name)
                && !found.contains(&name)
            {
                found.push(name);
            }
        }
    }
    found.sort();
    found
}

/// The block device of a namespace's folder: `nvme0n1` for itself, and also for `nvme0c1n1`, which
/// is the path through controller 1 to a namespace that several controllers may have.
fn block_device(folder: &str) -> Option<String> {
    let (subsystem, rest) = digits(folder.strip_prefix("nvme")?)?;
    let rest = match rest.strip_prefix('c') {
        Some(rest) => digits(rest)?.1,
        None => rest,
    };
    let (namespace, rest) = digits(rest.strip_prefix('n')?)?;
    rest.is_empty()
        .then(|| format!("nvme{subsystem}n{namespace}"))
}

/// The digits at the start of a text, at least one, and the rest.
fn digits(text: &str) -> Option<(&str, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// The names in a folder, sorted; empty if it does not exist.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The line in a file of sysfs.
fn line(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The last component of a link's target.
fn target(link: &Path) -> Option<String> {
    let path = fs::read_link(link).ok()?;
    Some(path.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests;

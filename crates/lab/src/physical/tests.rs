//! Machines made of files: discovery, and refusals.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

const ADDRESS: &str = "0000:01:00.0";

/// A machine with one drive, nvme0, of one namespace with one partition, alone in IOMMU group 7.
struct Machine {
    root: TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Machine {
            root: tempfile::tempdir().unwrap(),
        };
        machine.function(ADDRESS, "0x010802", Some("nvme"), 7);
        let controller = format!("sys/bus/pci/devices/{ADDRESS}/nvme/nvme0");
        machine.write(&format!("{controller}/model"), "Slow Drive 9      \n");
        machine.write(&format!("{controller}/serial"), "S123\n");
        machine.write(&format!("{controller}/nvme0n1/size"), "8\n");
        machine.write("sys/class/block/nvme0n1/dev", "259:0\n");
        machine.write("sys/class/block/nvme0n1/nvme0n1p1/partition", "1\n");
        machine.write("sys/class/block/nvme0n1p1/dev", "259:1\n");
        machine.write("dev/nvme0n1", "");
        machine.write("dev/nvme0n1p1", "");
        machine.write("sys/bus/pci/drivers/vfio-pci/module", "");
        machine.write(
            "proc/self/mountinfo",
            "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
        );
        machine.write("proc/swaps", "Filename Type Size Used Priority\n");
        machine
    }

    fn function(&self, address: &str, class: &str, driver: Option<&str>, group: u32) {
        let folder = format!("sys/bus/pci/devices/{address}");
        for (file, text) in [("class", class), ("vendor", "0x1b36"), ("device", "0x0010")] {
            self.write(&format!("{folder}/{file}"), text);
        }
        let groups = format!("sys/kernel/iommu_groups/{group}/devices");
        self.write(&format!("{groups}/{address}"), "");
        let link = |name: &str, to: String| {
            let link = self.root.path().join(&folder).join(name);
            let _ = fs::remove_file(&link);
            symlink(self.root.path().join(to), link).unwrap();
        };
        link("iommu_group", format!("sys/kernel/iommu_groups/{group}"));
        if let Some(driver) = driver {
            link("driver", format!("sys/bus/pci/drivers/{driver}"));
        }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.path().join(path)).ok()
    }

    /// A process that has a file open.
    fn process(&self, pid: u32, name: &str, file: &str) {
        self.write(&format!("proc/{pid}/comm"), name);
        let folder = self.root.path().join(format!("proc/{pid}/fd"));
        fs::create_dir_all(&folder).unwrap();
        symlink(file, folder.join("3")).unwrap();
    }

    fn system(&self) -> System {
        System::at(self.root.path())
    }

    fn drive(&self) -> Drive {
        self.system().drive(ADDRESS.parse().unwrap()).unwrap()
    }

    /// The reason why the drive cannot be bound, after a check that nothing was changed.
    fn refusal(&self) -> String {
        let error = self.system().bind(ADDRESS.parse().unwrap()).unwrap_err();
        let folder = format!("sys/bus/pci/devices/{ADDRESS}");
        assert_eq!(self.read(&format!("{folder}/driver_override")), None);
        assert_eq!(self.read("sys/bus/pci/drivers_probe"), None);
        error.to_string()
    }
}

#[test]
fn drives_are_found_with_what_is_known_of_them() {
    let machine = Machine::new();
    machine.function("0000:00:1f.2", "0x010601", Some("ahci"), 3);
    machine.function("0000:00:04.0", "0x010802", Some("vfio-pci"), 4);
    let drives = machine.system().drives().unwrap();
    let shown = drives.iter().map(|drive| {
        let known = (drive.model.as_deref(), drive.serial.as_deref());
        let driver = drive.driver.as_deref().unwrap();
        (drive.address.to_string(), driver, known, drive.iommu_group)
    });
    let known = (Some("Slow Drive 9"), Some("S123"));
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            ("0000:00:04.0".to_owned(), "vfio-pci", (None, None), Some(4)),
            (ADDRESS.to_owned(), "nvme", known, Some(7)),
        ]
    );
    assert_eq!(drives[1].id, "1b36:0010");
    assert_eq!(drives[1].block_devices, ["nvme0n1"]);
    assert_eq!(drives[1].in_use_by, [""; 0]);
}

#[test]
fn a_namespace_of_several_controllers_is_one_block_device() {
    assert_eq!(block_device("nvme0n1").as_deref(), Some("nvme0n1"));
    assert_eq!(block_device("nvme3c12n4").as_deref(), Some("nvme3n4"));
    for other in [
        "nvme0",
        "nvme0n",
        "nvmen1",
        "nvme0n1p1",
        "ng0n1",
        "nvme0c1",
        "hwmon1",
    ] {
        assert_eq!(block_device(other), None, "{other}");
    }
}

#[test]
fn a_mounted_drive_is_in_use() {
    for (mount, said) in [
        (
            "30 21 259:0 / /srv/my\\040data rw - xfs /dev/x rw",
            "nvme0n1 is mounted at /srv/my data",
        ),
        (
            "30 21 259:1 / /home rw,noatime shared:3 - ext4 /dev/x rw",
            "nvme0n1p1 is mounted at /home",
        ),
        (
            "30 21 0:45 / /pool rw - btrfs /dev/nvme0n1p1 rw",
            "nvme0n1p1 is mounted at /pool",
        ),
    ] {
        let machine = Machine::new();
        machine.write("proc/self/mountinfo", mount);
        assert_eq!(machine.drive().in_use_by, [said]);
        let refusal = machine.refusal();
        assert!(refusal.contains("is in use"), "{refusal}");
        assert!(refusal.contains(said), "{refusal}");
    }
    let machine = Machine::new();
    machine.write(
        "proc/self/mountinfo",
        "30 21 259:10 / /home rw - ext4 /dev/nvme0n1p10 rw\n31 21 0:46 / /x rw - nfs host:/dev/nvme0n1 rw",
    );
    assert_eq!(machine.drive().in_use_by, [""; 0], "that is another drive");
}

#[test]
fn swap_and_volumes_are_in_use() {
    let machine = Machine::new();
    let table = "Filename Type Size Used Priority\n/dev/by-id/a partition 8 0 -2\n";
    machine.write("proc/swaps", table);
    fs::create_dir_all(machine.root.path().join("dev/by-id")).unwrap();
    symlink("../nvme0n1p1", machine.root.path().join("dev/by-id/a")).unwrap();
    machine.write("sys/class/block/nvme0n1/holders/md0", "");
    machine.write("sys/class/block/md0/md/level", "raid1");
    machine.write("sys/class/block/nvme0n1p1/holders/dm-3", "");
    machine.write("sys/class/block/dm-3/dm/name", "vg0-root\n");
    machine.write("sys/class/block/dm-3/dm/uuid", "LVM-abc\n");
    assert_eq!(
        machine.drive().in_use_by,
        [
            "nvme0n1p1 is swap space",
            "nvme0n1 is part of the RAID md0",
            "nvme0n1p1 is part of the LVM volume vg0-root",
        ]
    );
    machine.refusal();
}

#[test]
fn a_drive_that_a_process_has_open_is_in_use() {
    for file in ["/dev/nvme0n1p1", "/dev/nvme0n1", "/dev/nvme0", "/dev/ng0n1"] {
        let machine = Machine::new();
        machine.process(42, "dd", file);
        machine.process(43, "cat", "/dev/nvme0n1p10");
        machine.process(44, "cat", "/dev/nvme10");
        let said = format!("dd (process 42) has {file} open");
        assert_eq!(machine.drive().in_use_by, [said.as_str()]);
        assert!(machine.refusal().contains(&said));
    }
}

#[test]
fn a_group_is_handed_over_whole_and_only_behind_an_iommu() {
    let machine = Machine::new();
    machine.function("0000:01:00.1", "0x020000", Some("e1000e"), 7);
    let refusal = machine.refusal();
    assert!(
        refusal.contains("shares IOMMU group 7 with 0000:01:00.1, which the driver e1000e has"),
        "{refusal}"
    );
    let link = format!("sys/bus/pci/devices/{ADDRESS}/iommu_group");
    fs::remove_file(machine.root.path().join(link)).unwrap();
    assert!(machine.refusal().contains("is not behind an IOMMU"));
}

#[test]
fn what_is_no_drive_is_not_touched() {
    let machine = Machine::new();
    machine.function("0000:00:1f.2", "0x010601", Some("ahci"), 3);
    let bind = |address: &str| machine.system().bind(address.parse().unwrap());
    let error = bind("0000:00:1f.2").unwrap_err().to_string();
    assert!(error.contains("is not an NVMe controller"), "{error}");
    let error = bind("0000:05:00.0").unwrap_err().to_string();
    assert!(error.contains("no PCI function 0000:05:00.0"), "{error}");
}

#[test]
fn a_drive_that_a_process_has_is_not_given_back() {
    let machine = Machine::new();
    machine.function(ADDRESS, "0x010802", Some("vfio-pci"), 7);
    machine.write("sys/bus/pci/drivers/vfio-pci/unbind", "");
    machine.process(77, "nvmirage", "/dev/vfio/7");
    let unbind = || machine.system().unbind(ADDRESS.parse().unwrap());
    let error = unbind().unwrap_err().to_string();
    assert!(
        error.contains("nvmirage (process 77) has /dev/vfio/7 open"),
        "{error}"
    );
    assert_eq!(machine.read("sys/bus/pci/drivers_probe"), None);
    machine.function(ADDRESS, "0x010802", Some("nvme"), 7);
    assert_eq!(unbind().unwrap().driver.as_deref(), Some("nvme"));
    machine.function(ADDRESS, "0x010802", Some("uio"), 7);
    assert!(unbind().unwrap_err().to_string().contains("bound to uio"));
}

/// These files have no driver behind them: the requests are visible, and the lack of a reaction is
/// an error.
#[test]
fn a_driver_that_does_not_come_is_an_error() {
    let machine = Machine::new();
    machine.write("sys/bus/pci/drivers/nvme/unbind", "");
    let error = machine.system().bind(ADDRESS.parse().unwrap()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the driver vfio-pci did not take"),
        "{error}"
    );
    let wish = format!("sys/bus/pci/devices/{ADDRESS}/driver_override");
    assert_eq!(machine.read(&wish).as_deref(), Some("\n"), "taken back");
    let unbound = machine.read("sys/bus/pci/drivers/nvme/unbind");
    assert_eq!(unbound.as_deref(), Some(ADDRESS));
}

//! Checks for controllers with `listen = "ublk:"`: the kernel's driver, who may use it, its
//! version, and io_uring.

use api::config::Config;

use super::checks::{Check, Level, good, io_uring, version_of};
use super::snapshot::{Device, Snapshot};

/// Linux whose driver has the commands that the server gives.
const COMMANDS: (u32, u32) = (6, 4);
/// Linux whose driver has zones.
const ZONES: (u32, u32) = (6, 6);
/// Linux whose driver changes the size of a disk.
const SIZES: (u32, u32) = (6, 16);

/// Appends what block devices of a configuration need; nothing where it has none.
pub(super) fn all(config: &Config, machine: &Snapshot, checks: &mut Vec<Check>) {
    let mut controllers = config.controller.iter();
    if !controllers.any(|controller| controller.ublk_id().is_some()) {
        return;
    }
    checks.push(driver(machine));
    checks.push(privilege(machine.is_admin));
    checks.push(kernel(machine.kernel.as_deref(), has_zones(config)));
    let rings = io_uring(machine.io_uring_disabled.clone(), machine.may_io_uring);
    let found = good("io_uring for block devices", rings.found);
    checks.push(match rings.level {
        Level::Problem => found.but(
            Level::Problem,
            "ublk needs it: set kernel.io_uring_disabled = 0, or kernel.io_uring_group to a group of this user",
        ),
        _ => found,
    });
}

/// Whether a block device of the configuration has zones.
fn has_zones(config: &Config) -> bool {
    let mut on_ublk = config.controller.iter().filter(|c| c.ublk_id().is_some());
    on_ublk.any(|controller| controller.has_zones(config))
}

fn driver(machine: &Snapshot) -> Check {
    let what = "/dev/ublk-control";
    match (&machine.ublk, machine.has_ublk) {
        (Device::Usable, _) => good(what, "usable"),
        (Device::Refused(error), _) => good(what, format!("not usable: {error}")).but(
            Level::Problem,
            "run the server as root, or give its user /dev/ublk-control, /dev/ublkcN and /dev/ublkbN by a udev rule",
        ),
        (Device::Missing, true) => {
            good(what, "not there").but(Level::Problem, "load the driver: modprobe ublk_drv")
        }
        (Device::Missing, false) => good(what, "not there").but(
            Level::Problem,
            "modprobe ublk_drv; where that finds no module, install a kernel with it (CONFIG_BLK_DEV_UBLK)",
        ),
    }
}

/// The driver gives a user without the capability less.
fn privilege(is_admin: bool) -> Check {
    let what = "privilege for block devices";
    if is_admin {
        return good(what, "CAP_SYS_ADMIN");
    }
    good(what, "none").but(
        Level::Advice,
        "disks of a server without CAP_SYS_ADMIN end with it and have no zones: run the server as root",
    )
}

fn kernel(release: Option<&str>, has_zones: bool) -> Check {
    let found = good("kernel for block devices", release.unwrap_or("unknown"));
    match release.and_then(version_of) {
        None => found.but(
            Level::Advice,
            "ublk needs Linux 6.4 or newer; this version is unknown",
        ),
        Some(version) if version < COMMANDS => {
            found.but(Level::Problem, "ublk needs Linux 6.4 or newer")
        }
        Some(version) if version < ZONES && has_zones => found.but(
            Level::Problem,
            "disks with zones need Linux 6.6 or newer: serve the namespace over NVMe",
        ),
        Some(version) if version < SIZES => found.but(
            Level::Advice,
            "a disk keeps its size while it exists, also when its namespace is resized: Linux 6.16 and newer change it",
        ),
        Some(_) => found,
    }
}

#[cfg(test)]
mod tests {
    use api::config::from_toml;

    use super::super::checks::tests::machine;
    use super::*;

    fn config(listen: &str, medium: &str) -> Config {
        let text = format!(
            "[[media]]\nname = \"m\"\nkind = \"ram\"\nsize = \"64MiB\"\n{medium}\n[[namespace]]\nname = \"n\"\nmedia = \"m\"\n[[controller]]\nname = \"c\"\nlisten = \"{listen}\"\nnamespaces = [\"n\"]\n"
        );
        from_toml(&text).unwrap()
    }

    /// Findings on the newest kernel with `change` applied.
    fn amiss(config: &Config, change: impl FnOnce(&mut Snapshot)) -> Vec<(String, Level, String)> {
        let mut machine = machine();
        machine.kernel = Some("7.3.1-custom".into());
        change(&mut machine);
        let mut checks = Vec::new();
        all(config, &machine, &mut checks);
        let amiss = checks.into_iter().filter(|check| check.level != Level::Ok);
        amiss
            .map(|check| (check.what, check.level, check.advice))
            .collect()
    }

    #[test]
    fn only_block_devices_need_the_driver() {
        let missing = |m: &mut Snapshot| m.ublk = Device::Missing;
        for other in ["vfio-user:/tmp/c.sock", "vhost-user-blk:/tmp/c.sock"] {
            assert_eq!(amiss(&config(other, ""), missing), []);
        }
        for listen in ["ublk:", "ublk:7"] {
            let config = config(listen, "");
            assert_eq!(amiss(&config, |_| {}), []);
            let found = amiss(&config, missing);
            assert_eq!(found.len(), 1);
            assert!(found[0].2.contains("modprobe ublk_drv"), "{found:?}");
        }
    }

    #[test]
    fn the_driver_is_loaded_and_given_to_the_server() {
        let config = config("ublk:", "");
        let refused = |m: &mut Snapshot| m.ublk = Device::Refused("permission denied".into());
        let found = amiss(&config, refused);
        assert_eq!((found.len(), found[0].1), (1, Level::Problem));
        assert!(found[0].2.contains("root") && found[0].2.contains("udev"));
        let absent = |m: &mut Snapshot| (m.ublk, m.has_ublk) = (Device::Missing, false);
        let found = amiss(&config, absent);
        assert!(found[0].2.contains("CONFIG_BLK_DEV_UBLK"), "{found:?}");
        let user = amiss(&config, |m| m.is_admin = false);
        assert_eq!((user.len(), user[0].1), (1, Level::Advice));
        assert!(user[0].2.contains("CAP_SYS_ADMIN"), "{user:?}");
    }

    #[test]
    fn the_kernel_has_what_the_disk_uses() {
        let zoned = config("ublk:", "[media.zoned]\nzone_size = \"4MiB\"");
        let plain = config("ublk:", "");
        for (release, of_plain, of_zoned) in [
            (Some("6.16.0"), Level::Ok, Level::Ok),
            (Some("6.15.9-x"), Level::Advice, Level::Advice),
            (Some("6.6.0"), Level::Advice, Level::Advice),
            (Some("6.5.13"), Level::Advice, Level::Problem),
            (Some("6.4.0"), Level::Advice, Level::Problem),
            (Some("6.3.9"), Level::Problem, Level::Problem),
            (Some("5.15.0"), Level::Problem, Level::Problem),
            (Some("odd"), Level::Advice, Level::Advice),
            (None, Level::Advice, Level::Advice),
        ] {
            for (config, expected) in [(&plain, of_plain), (&zoned, of_zoned)] {
                let found = amiss(config, |m| m.kernel = release.map(str::to_owned));
                let level = found.first().map_or(Level::Ok, |found| found.1);
                assert_eq!((found.len() < 2, level), (true, expected), "{release:?}");
            }
        }
    }

    #[test]
    fn block_devices_need_io_uring() {
        let config = config("ublk:", "");
        for (setting, may, expected) in [
            ("0", false, 0),
            ("1", true, 0),
            ("1", false, 1),
            ("2", true, 1),
        ] {
            let found = amiss(&config, |m| {
                (m.io_uring_disabled, m.may_io_uring) = (Some(setting.into()), may);
            });
            assert_eq!(found.len(), expected, "{setting}");
            assert!(found.iter().all(|found| found.1 == Level::Problem));
        }
    }
}

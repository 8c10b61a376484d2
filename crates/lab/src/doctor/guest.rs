//! Checks of a guest's command line.

use super::checks::{Check, Level, good};

/// All checks of a guest with this name and these arguments of QEMU. `survives`: its server is to
/// survive the death of its process.
pub(super) fn all(called: &str, args: &[String], survives: bool) -> Vec<Check> {
    let mut checks = vec![shared(called, args)];
    if args.iter().any(|arg| arg.contains("vfio-user-pci")) {
        checks.extend(survives.then(|| waits(called, args)));
        checks.extend(migrates(called, args));
    }
    checks
}

/// Whether a drive can reach a guest's memory.
fn shared(called: &str, args: &[String]) -> Check {
    let what = format!("guest: {called}");
    let is = |part: &str| args.iter().any(|arg| arg.replace(' ', "").contains(part));
    let on = is("share=on") || is("share=true") || is("\"share\":true");
    let off = is("share=off") || is("share=false") || is("\"share\":false");
    // a memfd is shared unless the options say otherwise (QEMU, Invocation: memory-backend-memfd)
    if on || (is("memory-backend-memfd") && !off) {
        good(what, "its memory is shared")
    } else {
        good(what, "its memory is not shared").but(
        Level::Problem,
        "its drive cannot access it: write -object memory-backend-memfd,id=mem,size=4G,share=on -machine memory-backend=mem; `nvmirage qemu-args` prints all of it",
    )
    }
}

/// Whether QEMU waits for a reply until another process of the server can give one.
fn waits(called: &str, args: &[String]) -> Check {
    let what = format!("guest: {called}");
    if args.iter().any(|arg| arg.contains("x-msg-timeout")) {
        good(what, "it waits for a server that is replaced")
    } else {
        good(what, "it waits 5 s for a reply of the server").but(
            Level::Advice,
            "where storage hangs while the server's process is replaced, it takes its drive for gone: add x-msg-timeout=30000 to its -device vfio-user-pci; `nvmirage qemu-args` prints it",
        )
    }
}

/// A guest that is to migrate. QEMU 11 completes a migration without the state of such a device,
/// and refuses it neither at the start nor then.
fn migrates(called: &str, args: &[String]) -> Option<Check> {
    let asks = |arg: &String| {
        let arg = arg.trim_start_matches('-');
        arg == "only-migratable" || arg == "incoming"
    };
    args.iter().any(asks).then(|| {
        good(format!("guest: {called}"), "it is to migrate").but(
            Level::Advice,
            "QEMU migrates it without the state of its vfio-user drives, and reports success: remove the drives (device_del) before, and add them after",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_guest_of_a_server_that_survives_waits_for_it() {
        let device = r#"-object memory-backend-memfd,id=m -device {"driver":"vfio-user-pci"}"#;
        let levels = |line: &str, survives| {
            let checks = all("x", &words(line), survives);
            checks
                .into_iter()
                .map(|check| check.level)
                .collect::<Vec<_>>()
        };
        assert_eq!(levels(device, false), [Level::Ok]);
        assert_eq!(levels(device, true), [Level::Ok, Level::Advice]);
        let waiting = device.replace("-pci\"", "-pci\",\"x-msg-timeout\":30000");
        assert_eq!(levels(&waiting, true), [Level::Ok, Level::Ok]);
        // Without such a device nothing waits.
        assert_eq!(
            levels("-object memory-backend-memfd,id=m", true),
            [Level::Ok]
        );
    }

    #[test]
    fn a_guest_that_is_to_migrate_loses_its_drive_s_state() {
        let device = "-object memory-backend-memfd,id=m -device vfio-user-pci,socket.path=a";
        let count = |line: &str| all("x", &words(line), false).len();
        assert_eq!(count(device), 1);
        assert_eq!(count(&format!("{device} -incoming tcp:0:4444")), 2);
        assert_eq!(count(&format!("{device} --only-migratable")), 2);
        assert_eq!(
            count("-object memory-backend-memfd,id=m -incoming defer"),
            1
        );
    }

    #[test]
    fn a_guests_memory_is_shared_or_not() {
        let level = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            shared("x", &args).level
        };
        for line in [
            "qemu -object memory-backend-memfd,id=mem,size=1G,share=on",
            "qemu -object memory-backend-memfd,id=mem,size=1G",
            "qemu -object {\"qom-type\":\"memory-backend-file\",\"share\":true}",
        ] {
            assert_eq!(level(line), Level::Ok, "{line}");
        }
        for line in [
            "qemu -m 1G -device vfio-user-pci",
            "qemu -object memory-backend-file,id=mem,mem-path=/dev/shm/x",
            "qemu -object memory-backend-memfd,id=mem,share=off",
        ] {
            assert_eq!(level(line), Level::Problem, "{line}");
        }
    }
}

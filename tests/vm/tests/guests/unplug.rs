//! Drives that are plugged into a running guest and taken out again, and drives whose bus mastering
//! a guest switches off.

use std::time::Duration;

use guest_rig::{Guest, Options};

use crate::served::{Served, finish, wait};

/// QEMU 11.1 aborts when it takes out a vfio-user device with MSI-X.
const CONFIG: &str = r#"
[[media]]
name = "memory"
kind = "ram"
size = "64MiB"

[[namespace]]
name = "root"
media = "memory"

[[controller]]
name = "vm"
namespaces = ["root"]
listen = "vfio-user:DIR/vm.sock"
msix = false
"#;

/// QEMU's monitor answers at once.
const ANSWER: Duration = Duration::from_secs(20);

fn ask(guest: &Guest, command: &str) {
    let done = guest.ask(command, ANSWER);
    done.unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn a_drive_without_msix_is_plugged_in_and_taken_out_twice() {
    let mut served = Served::start(CONFIG);
    let port = ["-device", "pcie-root-port,id=spare,slot=1"];
    let options = Options {
        qemu_args: port.into_iter().map(Into::into).collect(),
        ..Options::default()
    };
    let mut guest = served.boot_on(&[], include_str!("jobs/unplug.sh"), options);
    let socket = served.file("vm.sock");
    let add = format!(
        r#"{{"execute":"device_add","arguments":{{"driver":"vfio-user-pci","id":"hot","bus":"spare","socket":{{"type":"unix","path":"{}"}}}}}}"#,
        socket.display()
    );
    for round in ["one", "two"] {
        wait(&mut guest, round);
        ask(&guest, &add);
        wait(&mut guest, &format!("{round}-used"));
        ask(
            &guest,
            r#"{"execute":"device_del","arguments":{"id":"hot"}}"#,
        );
        wait(&mut guest, &format!("{round}-gone"));
        // The guest sees a device go before QEMU has closed its socket, and QEMU cannot close it
        // while it adds another.
        served.wait_for_line("host detached");
    }
    finish(guest);
    served.stop();
}

#[test]
fn a_drive_whose_bus_mastering_is_off_writes_nothing_and_goes_on_when_it_is_on() {
    let served = Served::start(&CONFIG.replace("msix = false", ""));
    served.run("vm", include_str!("jobs/bus_master.sh"), Options::default());
    served.stop();
}

//! Properties that a controller reports, as nvme-cli decodes them: a feature that it names as
//! supported in one place, it names in all.

use guest_rig::{Options, Report};
use serde_json::Value;

use crate::served::{Served, json, text};

const CONFIG: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "64MiB"

[[namespace]]
name = "root"
media = "disk"

[[controller]]
name = "vm"
namespaces = ["root"]
listen = "vfio-user:DIR/vm.sock"
"#;

#[test]
fn a_controller_says_one_thing_everywhere() {
    let served = Served::start(CONFIG);
    let options = Options {
        // lets nvme-cli map the registers
        kernel_args: vec!["iomem=relaxed".into()],
        ..Options::default()
    };
    let report = served.run("vm", include_str!("jobs/identity.sh"), options);
    let known = served.ask("/v1");
    let served = served.stop().start_again();
    let saved = served.run("vm", include_str!("jobs/saved.sh"), Options::default());
    served.stop();
    check_kept(&report, &saved);
    check_commands(&report);
    check_logs(&report);
    check_registers(&report);
    check_namespace(&report);
    check_known(&report, &known);
}

/// The server names drives as nvme-cli does in their guest.
fn check_known(report: &Report, known: &Value) {
    let word = |value: &Value| value.as_str().expect("a text").trim().to_owned();
    let (controller, namespace) = (json(report, "id-ctrl"), json(report, "id-ns"));
    let identity = &known["controllers"][0]["identity"];
    assert_eq!(word(&identity["serial"]), word(&controller["sn"]));
    assert_eq!(word(&identity["subnqn"]), word(&controller["subnqn"]));
    let identity = &known["namespaces"][0]["identity"];
    for key in ["nguid", "eui64"] {
        assert_eq!(word(&identity[key]), word(&namespace[key]), "{key}");
    }
    let descriptors = json(report, "descriptors").to_string();
    let uuid = word(&identity["uuid"]);
    assert!(descriptors.contains(&uuid), "{uuid}: {descriptors}");
}

/// Counts that a drive keeps while no server serves it.
fn check_kept(report: &Report, saved: &Report) {
    let [before, after] = [report, saved].map(|report| json(report, "smart"));
    let count = |log: &Value, key: &str| {
        let value = log[key].as_u64();
        value.unwrap_or_else(|| panic!("no number {key}: {log}"))
    };
    for key in ["host_write_commands", "data_units_written", "power_cycles"] {
        assert!(count(&before, key) > 0, "{key} is 0: {before}");
        assert!(
            count(&after, key) >= count(&before, key),
            "{key} fell: {before} {after}"
        );
    }
    assert_eq!(count(&after, "unsafe_shutdowns"), 0, "{after}");
}

/// The bits of a field of Identify Controller.
fn bit(controller: &Value, field: &str, bit: u32) -> bool {
    let value = controller[field].as_u64();
    value.unwrap_or_else(|| panic!("no number {field}")) >> bit & 1 == 1
}

/// Log page 05h names the commands that Identify Controller names (Base 2.1, figures 312 and 210),
/// and those that are mandatory for an I/O controller.
fn check_commands(report: &Report) {
    let controller = json(report, "id-ctrl");
    let effects = json(report, "effects").to_string();
    let sanitize = controller["sanicap"]
        .as_u64()
        .is_some_and(|can| can & 7 != 0);
    let keep_alive = controller["kas"] != 0;
    let oacs = |number| bit(&controller, "oacs", number);
    for (opcode, expected, what) in [
        (0x00, true, "Delete I/O Submission Queue"),
        (0x01, true, "Create I/O Submission Queue"),
        (0x02, true, "Get Log Page"),
        (0x04, true, "Delete I/O Completion Queue"),
        (0x05, true, "Create I/O Completion Queue"),
        (0x06, true, "Identify"),
        (0x08, true, "Abort"),
        (0x09, true, "Set Features"),
        (0x0a, true, "Get Features"),
        (0x0c, true, "Asynchronous Event Request"),
        (0x0d, oacs(3), "Namespace Management"),
        (0x10, oacs(2), "Firmware Commit"),
        (0x11, oacs(2), "Firmware Image Download"),
        (0x14, oacs(4), "Device Self-test"),
        (0x15, oacs(3), "Namespace Attachment"),
        (0x18, keep_alive, "Keep Alive"),
        (0x1a, oacs(5), "Directive Receive"),
        (0x7c, oacs(8), "Doorbell Buffer Config"),
        (0x80, oacs(1), "Format NVM"),
        (0x81, oacs(0), "Security Send"),
        (0x84, sanitize, "Sanitize"),
        (0x86, oacs(9), "Get LBA Status"),
    ] {
        let named = effects.contains(&format!("\"ACS_{opcode} ("));
        assert_eq!(named, expected, "the effects of {what}: {effects}");
    }
    let oncs = |number| bit(&controller, "oncs", number);
    for (opcode, expected, what) in [
        (0x00, true, "Flush"),
        (0x01, true, "Write"),
        (0x02, true, "Read"),
        (0x04, oncs(1), "Write Uncorrectable"),
        (0x05, oncs(0), "Compare"),
        (0x08, oncs(3), "Write Zeroes"),
        (0x09, oncs(2), "Dataset Management"),
        (0x0c, oncs(7), "Verify"),
        (0x0d, oncs(5), "Reservation Register"),
        (0x0e, oncs(5), "Reservation Report"),
        (0x11, oncs(5), "Reservation Acquire"),
        (0x15, oncs(5), "Reservation Release"),
        (0x19, oncs(8), "Copy"),
    ] {
        let named = effects.contains(&format!("\"IOCS_{opcode} ("));
        assert_eq!(named, expected, "the effects of {what}: {effects}");
    }
}

/// Log page 00h names the log pages that Identify Controller, and what is mandatory, make a host
/// look for.
fn check_logs(report: &Report) {
    let controller = json(report, "id-ctrl");
    let logs = json(report, "logs").to_string();
    let sanitize = controller["sanicap"]
        .as_u64()
        .is_some_and(|can| can & 7 != 0);
    for (page, expected, what) in [
        ("0x0", true, "Supported Log Pages"),
        ("0x1", true, "Error Information"),
        ("0x2", true, "SMART / Health"),
        ("0x3", true, "Firmware Slot Information"),
        ("0x4", bit(&controller, "oaes", 8), "Changed Namespace List"),
        (
            "0x5",
            bit(&controller, "lpa", 1),
            "Commands Supported and Effects",
        ),
        ("0x6", bit(&controller, "oacs", 4), "Device Self-test"),
        ("0xd", bit(&controller, "lpa", 4), "Persistent Event Log"),
        (
            "0x80",
            bit(&controller, "oncs", 5),
            "Reservation Notification",
        ),
        ("0x81", sanitize, "Sanitize Status"),
    ] {
        let named = logs.contains(&format!("\"lid_{page} \""));
        assert_eq!(named, expected, "log page {what}: {logs}");
    }
}

/// What the registers say, in nvme-cli's words (Base 2.1, 3.1.4).
fn check_registers(report: &Report) {
    let registers = text(report, "registers");
    for line in [
        "NVMe specification 2.1.0",
        "Memory Page Size Minimum         (MPSMIN): 4096 bytes",
        "Doorbell Stride                   (DSTRD): 4 bytes",
        "Contiguous Queues Required          (CQR): Yes",
        "Maximum Queue Entries Supported    (MQES): 1024",
        "NVM command set is Supported",
        "I/O Submission Queue Entry Size (IOSQES): 64 bytes",
        "I/O Completion Queue Entry Size (IOCQES): 16 bytes",
        "Controller Fatal Status        (CFS): False",
        "Ready                          (RDY): Yes",
        "Normal operation (no shutdown has been requested)",
        "Admin Submission Queue Size (ASQS): 32",
        "The Controller Memory Buffer is Not Supported",
        "The Persistent Memory Region is Not Supported",
    ] {
        assert!(registers.contains(line), "{line:?} is not in\n{registers}");
    }
}

/// A namespace has the same identity in each list, and in the kernel's eyes.
fn check_namespace(report: &Report) {
    let namespace = json(report, "id-ns");
    assert_eq!(namespace["nsze"], 16384);
    assert_eq!(namespace["ncap"], 16384);
    assert_eq!(namespace["nvmcap"], 64 << 20);
    assert_eq!(json(report, "active")["nsid_list"][0]["nsid"], 1);
    assert_eq!(json(report, "independent")["nstat"], 1, "ready");
    let descriptors = json(report, "descriptors").to_string();
    let kernel: String = text(report, "sysfs").split(['-', ' ', '\n']).collect();
    for key in ["eui64", "nguid"] {
        let value = namespace[key].as_str().expect("a text");
        assert!(value.bytes().any(|byte| byte != b'0'), "{key} is zero");
        assert!(descriptors.contains(value), "{key} {value}: {descriptors}");
        assert!(kernel.contains(value), "{key} {value}: {kernel}");
    }
}

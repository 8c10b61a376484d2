//! The program inside a guest, on a drive with queues that are asked for completions
//! (`poll_completions`): no other machine of a test has one.

use guest_rig::Options;

use crate::served::{Served, json, number, text};

const CONFIG: &str = r#"
[[media]]
name = "program"
kind = "file"
path = "DIR/program.img"

[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "64MiB"

[[namespace]]
name = "program"
media = "program"

[[namespace]]
name = "disk"
media = "disk"
lba_size = 512

[[controller]]
name = "vm"
namespaces = ["program", "disk"]
listen = "vfio-user:DIR/vm.sock"
"#;

#[test]
fn a_drive_with_polled_queues_is_asked_and_does_not_interrupt() {
    let served = Served::start_with(CONFIG, |dir| {
        let program = guest_rig::server::program().unwrap_or_else(|error| panic!("{error}"));
        let mut bytes = std::fs::read(program).expect("the program is read");
        bytes.resize(bytes.len().next_multiple_of(4096), 0);
        std::fs::write(dir.join("program.img"), bytes).expect("the image is written");
    });
    let options = Options {
        memory_mib: 1024,
        kernel_args: vec!["nvme.poll_queues=1".into()],
        ..Options::default()
    };
    let report = served.run("vm", include_str!("jobs/polled.sh"), options);
    served.stop();
    let opened = text(&report, "log");
    assert!(opened.contains("completions polled for"), "{opened}");
    let mut commands = 0;
    let bench = json(&report, "bench");
    for job in bench["jobs"].as_array().expect("jobs") {
        assert_eq!(job["errors"], 0, "{job}");
        assert!(job["blocks_verified"].as_u64() > Some(0), "{job}");
        commands += job["commands"].as_u64().expect("a number");
    }
    let interrupts = number(&report, "interrupts");
    println!("{interrupts} interrupts for {commands} commands");
    assert!(
        interrupts < commands / 4,
        "{interrupts} interrupts for {commands} commands"
    );
}

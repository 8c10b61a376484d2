//! `nvmirage qemu-args`.

use std::os::unix::fs::PermissionsExt;

use crate::world::World;

/// A program that says it is that version of QEMU.
fn qemu(world: &World, version: &str) -> String {
    let path = world.write(
        &format!("qemu-{version}"),
        &format!("#!/bin/sh\necho 'QEMU emulator version {version} (Debian)'\n"),
    );
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_controller_over_tcp_has_the_command_of_the_kernels_initiator() {
    let world = World::new();
    let config = "[[controller]]\nname = \"store\"\nlisten = \"nvme-tcp:127.0.0.1:4420\"\n";
    world.write("derived.toml", config);
    let derived = world.run(&["qemu-args", "store", "--config", "derived.toml"]);
    assert!(!derived.status.success() && derived.out.is_empty());
    assert!(derived.err.contains("write subnqn"), "{}", derived.err);
    let written = format!("{config}subnqn = \"nqn.2026-01.org.example:a\"\n");
    world.write("written.toml", &written);
    let said = world.run(&["qemu-args", "store", "--config", "written.toml"]);
    assert!(said.status.success(), "{}", said.err);
    assert_eq!(
        said.out,
        "nvme connect -t tcp -a 127.0.0.1 -s 4420 -n nqn.2026-01.org.example:a\n"
    );
    assert!(
        said.err.contains("QEMU has no NVMe/TCP client"),
        "{}",
        said.err
    );
}

#[test]
fn options_of_a_configuration_and_of_a_running_server() {
    let world = World::new();
    let new = qemu(&world, "11.1.3");
    let config = format!(
        "[[controller]]\nname = \"nvme0\"\nlisten = \"{}\"\n",
        world.vfio_user("nvme.sock")
    );
    world.write("config.toml", &config);
    let of_config = world.run(&[
        "qemu-args",
        "nvme0",
        "--config",
        "config.toml",
        "--memory",
        "2GiB",
        "--qemu",
        &new,
    ]);
    assert!(
        of_config.status.success() && of_config.err.is_empty(),
        "{}",
        of_config.err
    );
    // QEMU would not wait long enough for a server that is replaced.
    assert!(!of_config.out.contains("x-msg-timeout"));
    world.write(
        "surviving.toml",
        &format!("{config}[survival]\nenabled = true\n"),
    );
    let args = [
        "qemu-args",
        "nvme0",
        "--config",
        "surviving.toml",
        "--qemu",
        &new,
    ];
    let surviving = world.run(&args).out;
    assert!(surviving.contains("\"x-msg-timeout\":30000"), "{surviving}");
    let server = world.serve_media("ram:size=16MiB");
    let control = world.unix("control");
    let of_server = world.ok(&[
        "qemu-args",
        "nvme0",
        "--control",
        &control,
        "--memory",
        "2GiB",
        "--qemu",
        &new,
    ]);
    assert_eq!(of_config.out, of_server);
    server.stop();

    // a shell reads the words back
    let script = format!(
        "for word in {}; do echo \"$word\"; done",
        of_server.trim_end()
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = text.lines().collect();
    let value = |option: &str| words[words.iter().position(|w| *w == option).unwrap() + 1];
    assert_eq!(value("-m"), "2048M");
    assert_eq!(
        value("-object"),
        "memory-backend-memfd,id=mem,size=2048M,share=on"
    );
    assert_eq!(value("-machine"), "q35,memory-backend=mem");
    let device: serde_json::Value = serde_json::from_str(value("-device")).unwrap();
    assert_eq!(
        device["socket"]["path"],
        world.path("nvme.sock").to_str().unwrap()
    );
}

#[test]
fn a_qemu_that_is_too_old_is_told_with_what_to_do() {
    let world = World::new();
    world.write(
        "config.toml",
        "[[controller]]\nname = \"a\"\nlisten = \"vfio-user:a.sock\"\n",
    );
    let args =
        |qemu: &str| world.run(&["qemu-args", "a", "--config", "config.toml", "--qemu", qemu]);
    for (program, words) in [
        (
            qemu(&world, "7.2.17"),
            "is QEMU 7.2, which has no such device",
        ),
        (
            qemu(&world, "10.0.9"),
            "is QEMU 10.0, which has no such device",
        ),
        ("no-such-qemu".to_owned(), "cannot run"),
        ("/bin/true".to_owned(), "does not identify itself as QEMU"),
    ] {
        let ran = args(&program);
        assert!(ran.status.success());
        assert!(ran.out.contains("vfio-user-pci"), "{}", ran.out);
        assert!(
            ran.err.contains(words) && ran.err.contains("10.1"),
            "{}",
            ran.err
        );
    }
    let ran = args(&qemu(&world, "10.1.0"));
    assert_eq!(ran.err, "");
    // a relative path is made absolute: QEMU may be started elsewhere
    assert!(
        ran.out.contains(world.path("a.sock").to_str().unwrap()),
        "{}",
        ran.out
    );
    let error = world.fails(&["qemu-args", "b", "--config", "config.toml"]);
    assert!(
        error.contains("there is no controller `b`; there are a"),
        "{error}"
    );
}

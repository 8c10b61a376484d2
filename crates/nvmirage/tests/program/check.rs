//! `nvmirage check`.

use crate::world::World;

const GOOD: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "disk.img"
size = "64GiB"
[[namespace]]
name = "root"
media = "disk"
range = "0GiB..16GiB"
[[controller]]
name = "vm1"
namespaces = ["root"]
listen = "vfio-user:/run/nvmirage/vm1.sock"
"#;

#[test]
fn a_good_one_is_printed_with_every_default_and_is_good_again() {
    let world = World::new();
    let first = world.write("good.toml", GOOD);
    let full = world.ok(&["check".as_ref(), first.as_os_str()]);
    for default in [
        "mode = \"adaptive\"",
        "lba_size = 4096",
        "queues = 64",
        "doorbells = \"auto\"",
        "direct = \"auto\"",
    ] {
        assert!(full.contains(default), "{default} is missing in\n{full}");
    }
    let second = world.write("full.toml", &full);
    assert_eq!(world.ok(&["check".as_ref(), second.as_os_str()]), full);
    // checking opens and creates nothing
    assert!(!world.path("disk.img").exists());
}

#[test]
fn a_bad_one_is_told_what_to_write() {
    let world = World::new();
    let cases = [
        ("size = \"64GiB\"", "size = \"64\"", "has no unit"),
        ("kind = \"file\"", "kind = \"fiel\"", "did you mean `file`?"),
        (
            "range = \"0GiB..16GiB\"",
            "range = \"0GiB..65GiB\"",
            "ends beyond the medium's size",
        ),
        (
            "namespaces = [\"root\"]",
            "namespaces = [\"boot\"]",
            "there is no namespace \"boot\"; there are root",
        ),
        (
            "listen = \"vfio-user:/run/nvmirage/vm1.sock\"",
            "listen = \"nvme-tcp:10.0.0.1:4420\"",
            "allow_anonymous = true",
        ),
        (
            "listen = \"vfio-user:",
            "listen = \"tcp:",
            "unknown scheme `tcp`",
        ),
        (
            "media = \"disk\"",
            "media = \"disk\"\nlba_size = 520",
            "write 512 or 4096",
        ),
        ("name = \"vm1\"", "name = \"vm 1\"", "letters, digits"),
    ];
    for (from, to, words) in cases {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD);
        let file = world.write("bad.toml", &text);
        let error = world.fails(&["check".as_ref(), file.as_os_str()]);
        assert!(error.contains(words), "{words} is missing in\n{error}");
        assert!(error.contains("bad.toml cannot be used"), "{error}");
    }
}

#[test]
fn a_missing_one_and_no_toml() {
    let world = World::new();
    assert!(
        world
            .fails(&["check", "nowhere.toml"])
            .contains("cannot read the configuration nowhere.toml")
    );
    world.write("not.toml", "{\"media\": []}");
    assert!(world.fails(&["check", "not.toml"]).contains("line 1"));
    world.write("huge.toml", &"#".repeat(2 << 20));
    assert!(
        world
            .fails(&["check", "huge.toml"])
            .contains("the maximum for a configuration")
    );
}

/// On whatever machine the tests run.
#[test]
fn the_doctor_places_a_guest_on_this_machine() {
    let world = World::new();
    // a machine of tests may have problems, and then the status says so
    let doctor = |args: &[&str]| {
        let ran = world.run(&[&["doctor"], args].concat());
        let problems = ran.out.contains("\"problem\"") || ran.out.contains("  problem: ");
        assert_eq!(
            ran.status.code(),
            Some(i32::from(problems)),
            "{}{}",
            ran.out,
            ran.err
        );
        ran.out
    };
    let report: serde_json::Value =
        serde_json::from_str(&doctor(&["--vcpus", "2", "--json"])).unwrap();
    let cpus = report["topology"]["cpus"].as_array().unwrap();
    let usable: Vec<_> = cpus.iter().filter(|cpu| cpu["usable"] == true).collect();
    assert!(!usable.is_empty());
    let is_usable = |id: &serde_json::Value| usable.iter().any(|cpu| cpu["id"] == *id);
    let plan = &report["plan"];
    for who in ["reactors", "vcpus", "emulator"] {
        let cpus = plan[who].as_array().unwrap();
        assert!(
            !cpus.is_empty() && cpus.iter().all(is_usable),
            "{who}: {plan}"
        );
    }
    // Its text for the configuration is a configuration.
    let file = world.write("doctor.toml", report["configuration"].as_str().unwrap());
    world.ok(&["check", file.to_str().unwrap()]);
    let words = doctor(&[]);
    for word in [
        "kernel",
        "locked memory",
        "clock",
        "QEMU",
        "reactor 0",
        "vcpu 1",
        "<vcpupin vcpu='1'",
        "nvme.poll_queues=2",
    ] {
        assert!(words.contains(word), "{word} is missing in\n{words}");
    }
    // in the light of a configuration, and of a guest's command line
    let nowhere = "[[controller]]\nname = \"c\"\nlisten = \"vfio-user:/there/is/no/c.sock\"\n";
    world.write("bad.toml", nowhere);
    let found = doctor(&["--config", "bad.toml"]);
    assert!(found.contains("there is no folder /there/is/no"), "{found}");
    let guest = "qemu-system-x86_64 -m 1G -device vfio-user-pci";
    let found = doctor(&["--qemu-command-line", guest]);
    assert!(
        found.contains("its memory is not shared") && found.contains("share=on"),
        "{found}"
    );
    let refused = world.run(&["doctor", "--vcpus", "0"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn one_that_needs_tls_is_good_and_may_not_be_served_here() {
    let world = World::new();
    let listen = "listen = \"nvme-tcp:127.0.0.1:4420\"\n";
    let host = "[[host]]\nnqn = \"nqn.2026-11.test:a\"\ndhchap_key = \"a.key\"\n";
    let controller = format!("[[controller]]\nname = \"c\"\n{listen}");
    // A library that is none comes first.
    world.write("libssl.so.3", "none");
    let check = |text: &str| {
        let file = world.write("tls.toml", text);
        let mut command = world.program();
        command.env("LD_LIBRARY_PATH", world.path("."));
        let output = command.arg("check").arg(file).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let drive = "[[media]]\nname = \"m\"\nkind = \"drive\"\ntarget = \"nvme-tcp:127.0.0.1:1/nqn.b\"\n\
                 hostnqn = \"nqn.a\"\ndhchap_key = \"a.key\"\n";
    for text in [
        format!("{host}{controller}"),
        format!("{host}tls_key = \"t.key\"\n"),
        drive.to_owned(),
    ] {
        assert_eq!(check(&text), "", "{text}");
    }
    for text in [
        format!("{host}concatenation = \"required\"\n{controller}"),
        format!("{host}tls_key = \"t.key\"\n{controller}"),
        format!("{drive}concat = true\n"),
    ] {
        let says = check(&text);
        assert!(says.contains("libssl.so.3"), "{text}: {says}");
    }
}

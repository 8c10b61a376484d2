//! Every field of a configuration, wrong: each is refused, and the message says what to write.

use super::{Config, from_toml};

/// A configuration in which everything is right.
const RIGHT: &str = r#"
[[reactor]]
cpu = 0
mode = "adaptive"
[[media]]
name = "disk"
kind = "file"
path = "disk.img"
size = "64GiB"
[[media]]
name = "scratch"
kind = "ram"
size = "1GiB"
[[namespace]]
name = "root"
media = "disk"
range = "0GiB..16GiB"
lba_size = 4096
[[namespace]]
name = "home"
media = "disk"
range = "16GiB..64GiB"
lba_size = 512
[[controller]]
name = "vm1"
namespaces = ["root", "home"]
listen = "vfio-user:/run/nvmirage/vm1.sock"
queues = 64
"#;

fn error_with(from: &str, to: &str) -> String {
    assert!(RIGHT.contains(from), "{from}");
    let text = RIGHT.replacen(from, to, 1);
    match from_toml(&text) {
        Ok(_) => panic!("accepted with {to}"),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn the_example_is_right_and_its_defaults_read_back() {
    let config = from_toml(RIGHT).unwrap();
    let full = config.with_defaults();
    for line in [
        "queue_depth = 1024",
        "doorbells = \"auto\"",
        "intx = false",
        "max_transfer = \"1MiB\"",
        "direct = \"auto\"",
        "spin = \"50us\"",
    ] {
        assert!(full.contains(line), "{line} in\n{full}");
    }
    let again = from_toml(&full).unwrap();
    assert_eq!(again.with_defaults(), full);
}

#[test]
fn an_empty_configuration_is_right_and_shows_the_default_reactor() {
    let config = from_toml("").unwrap();
    assert_eq!(config, Config::default());
    assert!(config.with_defaults().contains("mode = \"adaptive\""));
}

#[test]
fn each_wrong_field_is_refused_with_what_to_write() {
    let wrong = [
        ("cpu = 0", "cpu = 70000", "no such CPU"),
        ("\"adaptive\"", "\"pol\"", "did you mean `poll`?"),
        ("mode = \"adaptive\"", "spin = \"2s\"", "mode = \"poll\""),
        ("path = \"disk.img\"", "", "write path ="),
        ("size = \"64GiB\"", "size = \"64\"", "has no unit"),
        ("size = \"64GiB\"", "size = \"1KiB\"", "at least 64KiB"),
        ("size = \"1GiB\"", "size = \"1000001B\"", "multiple of 512B"),
        ("size = \"1GiB\"", "", "write size ="),
        (
            "size = \"1GiB\"",
            "size = \"1GiB\"\npath = \"a\"",
            "only kind = \"file\" has a path",
        ),
        (
            "size = \"1GiB\"",
            "size = \"1GiB\"\ndirect = \"on\"",
            "only kind = \"file\"",
        ),
        ("name = \"scratch\"", "name = \"disk\"", "used twice"),
        ("name = \"disk\"", "name = \"a b\"", "letters, digits"),
        ("name = \"disk\"", "name = \"\"", "letters, digits"),
        (
            "media = \"disk\"",
            "media = \"dsk\"",
            "there are disk, scratch",
        ),
        ("0GiB..16GiB", "0GiB..65GiB", "ends behind the medium"),
        ("0GiB..16GiB", "0GiB..17GiB", "overlaps namespace root"),
        ("0GiB..16GiB", "16GiB..0GiB", "is empty"),
        ("0GiB..16GiB", "1KiB..16GiB", "multiple of 4KiB"),
        ("range = \"0GiB..16GiB\"", "", "overlaps namespace root"),
        ("lba_size = 4096", "lba_size = 1024", "write 512 or 4096"),
        ("lba_size = 4096", "nguid = \"12\"", "32 hexadecimal digits"),
        (
            "lba_size = 4096",
            "eui64 = \"0000000000000000\"",
            "not all zero",
        ),
        ("\"root\", \"home\"", "\"rot\"", "there are root, home"),
        ("\"root\", \"home\"", "\"root\", \"root\"", "listed twice"),
        ("vfio-user:/run", "vfio:/run", "unknown scheme"),
        ("vfio-user:/run", "unix:/run", "write vfio-user:PATH"),
        (
            "vfio-user:/run/nvmirage/vm1.sock",
            "vfio-user:",
            "1 to 107 bytes",
        ),
        ("queues = 64", "queues = 65", "write 1 to 64"),
        ("queues = 64", "queues = 0", "write 1 to 64"),
        ("queues = 64", "queue_depth = 1", "write 2 to 4096"),
        ("queues = 64", "queue_depth = 5000", "write 2 to 4096"),
        ("queues = 64", "max_transfer = \"3MiB\"", "power of two"),
        ("queues = 64", "max_transfer = \"8MiB\"", "4KiB to 4MiB"),
        ("queues = 64", "reactor = 1", "there are 1, counted from 0"),
        ("queues = 64", "serial = \"\"", "1 to 20 printable"),
        (
            "queues = 64",
            "serial = \"123456789012345678901\"",
            "1 to 20 printable",
        ),
        (
            "queues = 64",
            "model_number = \"gr\u{fc}n\"",
            "1 to 40 printable",
        ),
        (
            "queues = 64",
            "firmware_revision = \"123456789\"",
            "1 to 8 printable",
        ),
        ("queues = 64", "subnqn = \"mine\"", "nqn.YYYY-MM"),
        ("queues = 64", "subnqn = \"nqn.a b\"", "nqn.YYYY-MM"),
        ("queues = 64", "vendor_id = 0", "no device is there"),
        (
            "queues = 64",
            "doorbells = \"mappd\"",
            "did you mean `mapped`?",
        ),
        ("queues = 64", "queues = -1", "invalid value"),
        ("queues = 64", "qeues = 64", "did you mean `queues`?"),
    ];
    for (from, to, says) in wrong {
        let message = error_with(from, to);
        assert!(message.contains(says), "{to}: {message}");
    }
}

#[test]
fn a_namespace_in_two_controllers_is_refused_for_now() {
    let second = "[[controller]]\nname = \"vm2\"\nnamespaces = [\"root\"]\nlisten = \"vfio-user:/run/b.sock\"\n";
    let error = from_toml(&format!("{RIGHT}{second}")).unwrap_err();
    let message = format!("{error:#}");
    assert!(
        message.contains("\"root\" is in controller vm1 already"),
        "{message}"
    );
}

#[test]
fn two_controllers_cannot_listen_on_one_socket() {
    let second = "[[controller]]\nname = \"vm2\"\nlisten = \"vfio-user:/run/nvmirage/vm1.sock\"\n";
    let error = from_toml(&format!("{RIGHT}{second}")).unwrap_err();
    let message = format!("{error:#}");
    assert!(
        message.contains("used by controller vm1 already"),
        "{message}"
    );
}

#[test]
fn all_problems_are_told_at_once() {
    let text = RIGHT
        .replace("queues = 64", "queues = 65")
        .replace("lba_size = 512", "lba_size = 513");
    let message = format!("{:#}", from_toml(&text).unwrap_err());
    assert!(message.contains("controller vm1: queues = 65"), "{message}");
    assert!(
        message.contains("namespace home: lba_size = 513"),
        "{message}"
    );
}

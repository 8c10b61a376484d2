//! Every field of a configuration with an invalid value: each is rejected, and the message says
//! what to write.

use super::{Config, from_toml};

/// A valid configuration.
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
    let full = config.with_defaults(|_| true);
    for line in [
        "queue_depth = 1024",
        "sample = 256",
        "doorbells = \"auto\"",
        "msix = true",
        "intx = false",
        "max_transfer = \"1MiB\"",
        "direct = \"auto\"",
        "poll_submissions = false",
        "poll_completions = false",
        "register_memory = true",
        "read_only = false",
        "spin = \"50us\"",
        "budget = 100",
    ] {
        assert!(full.contains(line), "{line} in\n{full}");
    }
    let again = from_toml(&full).unwrap();
    assert_eq!(again.with_defaults(|_| true), full);
}

#[test]
fn an_empty_configuration_is_right_and_shows_the_default_reactor() {
    let config = from_toml("").unwrap();
    assert_eq!(config, Config::default());
    assert!(
        config
            .with_defaults(|_| true)
            .contains("mode = \"adaptive\"")
    );
}

#[test]
fn each_wrong_field_is_refused_with_what_to_write() {
    let wrong = [
        ("cpu = 0", "cpu = 70000", "no such CPU"),
        ("\"adaptive\"", "\"pol\"", "did you mean `poll`?"),
        ("mode = \"adaptive\"", "spin = \"2s\"", "mode = \"poll\""),
        ("cpu = 0", "budget = 0", "mode = \"interrupt\""),
        ("cpu = 0", "budget = 101", "in percent of a CPU"),
        (
            "vfio-user:/run/nvmirage/vm1.sock\"",
            "fuse:/mnt\"\nsocket_mode = \"0660\"",
            "socket_mode: a mount has no socket",
        ),
        (
            "\"adaptive\"",
            "\"poll\"\nspin = \"20us\"",
            "spin: only mode",
        ),
        (
            "\"adaptive\"",
            "\"interrupt\"\nbudget = 20",
            "budget: only mode",
        ),
        ("path = \"disk.img\"", "", "write path ="),
        ("size = \"64GiB\"", "size = \"64\"", "has no unit"),
        ("size = \"64GiB\"", "size = \"1KiB\"", "at least 64KiB"),
        ("size = \"1GiB\"", "size = \"1000001B\"", "multiple of 512B"),
        ("size = \"1GiB\"", "", "write size ="),
        (
            "size = \"1GiB\"",
            "size = \"1GiB\"\npath = \"a\"",
            "only kind = \"file\" and kind = \"keyvalue\" have a path",
        ),
        (
            "size = \"1GiB\"",
            "size = \"1GiB\"\ndirect = \"on\"",
            "only kind = \"file\"",
        ),
        (
            "size = \"1GiB\"",
            "size = \"1GiB\"\npoll_completions = false",
            "only kind = \"file\" has `poll_completions`",
        ),
        (
            "path = \"disk.img\"",
            "path = \"disk.img\"\ndirect = \"off\"\npoll_completions = true",
            "needs direct I/O",
        ),
        ("name = \"scratch\"", "name = \"disk\"", "used twice"),
        ("name = \"disk\"", "name = \"a b\"", "letters, digits"),
        ("name = \"disk\"", "name = \"\"", "letters, digits"),
        (
            "media = \"disk\"",
            "media = \"dsk\"",
            "there are disk, scratch",
        ),
        (
            "0GiB..16GiB",
            "0GiB..65GiB",
            "ends beyond the medium's size",
        ),
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
            "name a socket",
        ),
        ("queues = 64", "queues = 65", "write 1 to 64"),
        ("queues = 64", "queues = 0", "write 1 to 64"),
        ("queues = 64", "sample = 65537", "0 disables sampling"),
        ("queues = 64", "queue_depth = 1", "write 2 to 4096"),
        ("queues = 64", "queue_depth = 5000", "write 2 to 4096"),
        ("queues = 64", "max_transfer = \"3MiB\"", "power of two"),
        ("queues = 64", "max_transfer = \"8MiB\"", "8KiB to 4MiB"),
        ("queues = 64", "max_transfer = \"4KiB\"", "8KiB to 4MiB"),
        ("queues = 64", "reactor = 1", "there is one reactor, 0"),
        (
            "queues = 64",
            "reactors = [0, 1]",
            "reactors: 1: there is one reactor, 0",
        ),
        ("queues = 64", "reactors = [0, 0]", "0 is listed twice"),
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
        ("queues = 64", "vendor_id = 0", "no device is present"),
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

/// Two controllers of one subsystem that share a namespace; one has a pool.
const PAIR: &str = r#"
[[reactor]]
[[reactor]]
[[media]]
name = "disk"
kind = "ram"
size = "64GiB"
[[media]]
name = "other"
kind = "ram"
size = "1GiB"
[[namespace]]
name = "both"
media = "disk"
range = "0GiB..16GiB"
[[namespace]]
name = "unused"
media = "disk"
range = "16GiB..17GiB"
[[namespace]]
name = "own"
media = "other"
[[controller]]
name = "a"
subsystem = "pair"
namespaces = ["both"]
listen = "vfio-user:/run/a.sock"
[[controller]]
name = "b"
subsystem = "pair"
namespaces = ["both"]
pool = ["disk"]
listen = "vfio-user:/run/b.sock"
[[controller]]
name = "c"
namespaces = ["own"]
listen = "vfio-user:/run/c.sock"
"#;

#[test]
fn controllers_that_name_a_subsystem_share_it() {
    let config = from_toml(PAIR).unwrap();
    assert_eq!(config.subsystems(), ["pair", "c"]);
    assert_eq!(config.pool_of("pair"), ["disk"]);
    assert_eq!(config.pool_owner("disk"), Some("pair"));
    assert_eq!(config.pool_owner("other"), None);
    let names = |subsystem| -> Vec<&str> {
        let all = config.namespaces_of(subsystem);
        all.into_iter().map(|n| n.name.as_str()).collect()
    };
    // namespaces on the pool belong to the subsystem too, after those that its controllers name
    assert_eq!(names("pair"), ["both", "unused"]);
    assert_eq!(names("c"), ["own"]);
    let again = from_toml(&config.with_defaults(|_| true)).unwrap();
    assert_eq!(again, from_toml(&again.with_defaults(|_| true)).unwrap());
    assert_eq!(again.controller, config.controller);
}

#[test]
fn what_controllers_of_a_subsystem_cannot_have_is_refused() {
    let wrong = [
        (
            "subsystem = \"pair\"\n",
            "",
            "\"both\" is in controller a already: to share it, write the same subsystem",
        ),
        (
            "subsystem = \"pair\"",
            "subsystem = \"a b\"",
            "subsystem = \"a b\": write 1 to 64 letters",
        ),
        (
            "subsystem = \"pair\"",
            "subsystem = \"c\"",
            "controller c has its own subsystem of that name",
        ),
        ("name = \"a\"\n", "name = \"a\"\nreactor = 1\n", ""),
        (
            "subsystem = \"pair\"\n",
            "subsystem = \"pair\"\nreactor = 1\nserial = \"X\"\n",
            "",
        ),
        (
            "pool = [\"disk\"]",
            "pool = [\"dsk\"]",
            "there is no medium \"dsk\"; there are disk, other",
        ),
        (
            "pool = [\"disk\"]",
            "pool = [\"disk\", \"disk\"]",
            "pool: \"disk\" is listed twice",
        ),
        (
            "pool = [\"disk\"]",
            "pool = [\"disk\", \"other\"]",
            "\"own\" is on medium other, in the pool of subsystem pair",
        ),
        (
            "namespaces = [\"own\"]",
            "pool = [\"disk\"]",
            "\"disk\" is already in the pool of controller b",
        ),
        (
            "namespaces = [\"own\"]",
            "namespaces = [\"unused\"]",
            "\"unused\" is on medium disk, in the pool of subsystem pair",
        ),
        (
            "pool = [\"disk\"]",
            "pools = [\"disk\"]",
            "did you mean `pool`?",
        ),
    ];
    for (from, to, says) in wrong {
        assert!(PAIR.contains(from), "{from}");
        let result = from_toml(&PAIR.replacen(from, to, 1));
        if says.is_empty() {
            result.unwrap();
            continue;
        }
        let message = format!("{:#}", result.unwrap_err());
        assert!(message.contains(says), "{to}: {message}");
    }
}

#[test]
fn controllers_of_a_subsystem_agree_on_what_they_tell() {
    for (key, first, second) in [
        ("reactor", "0", "1"),
        ("serial", "\"X\"", "\"Y\""),
        (
            "subnqn",
            "\"nqn.2014-08.org.nvmexpress:x\"",
            "\"nqn.2014-08.org.nvmexpress:y\"",
        ),
        ("model_number", "\"X\"", "\"Y\""),
        ("firmware_revision", "\"1\"", "\"2\""),
    ] {
        let with = |a: &str, b: &str| {
            let a_key = format!("subsystem = \"pair\"\n{key} = {a}\nnamespaces");
            let b_key = format!("subsystem = \"pair\"\n{key} = {b}\nnamespaces");
            let text = PAIR.replacen("subsystem = \"pair\"\nnamespaces", &a_key, 1);
            from_toml(&text.replacen("subsystem = \"pair\"\nnamespaces", &b_key, 1))
        };
        with(first, first).unwrap();
        let message = format!("{:#}", with(first, second).unwrap_err());
        let says = format!(
            "controller b: {key} = {}, but controller a of the same subsystem has {}",
            second.trim_matches('"'),
            first.trim_matches('"')
        );
        assert!(message.contains(&says), "{message}");
    }
    // a model number that only one of them sets differs from the other's default
    let one = PAIR.replacen("subsystem", "model_number = \"X\"\nsubsystem", 1);
    let message = format!("{:#}", from_toml(&one).unwrap_err());
    assert!(message.contains("model_number = nvmirage"), "{message}");
}

/// A medium that is early for hosts over a network; a subsystem with such a controller and another.
const EARLY: &str = r#"
[[media]]
name = "m"
kind = "ram"
size = "1GiB"
timing = { preset = "optane-p4800x", transport_allowance = "10us" }
[[media]]
name = "other"
kind = "ram"
size = "1GiB"
[[namespace]]
name = "n"
media = "m"
[[controller]]
name = "far"
subsystem = "s"
namespaces = ["n"]
listen = "nvme-tcp:127.0.0.1:4420"
[[controller]]
name = "near"
subsystem = "s"
listen = "vfio-user:/near"
"#;

#[test]
fn hosts_on_this_machine_reach_no_medium_that_is_early() {
    let far = "listen = \"nvme-tcp:127.0.0.1:4420\"";
    let near = "listen = \"vfio-user:/near\"";
    from_toml(EARLY).unwrap();
    for (at, more) in [
        (near, "namespaces = [\"n\"]"),
        (near, "pool = [\"m\"]"),
        // Hosts of a subsystem with a pool attach its namespaces to any of its controllers.
        (near, "pool = [\"other\"]"),
        (far, "pool = [\"other\"]"),
    ] {
        let text = EARLY.replace(at, &format!("{at}\n{more}"));
        let message = format!("{:#}", from_toml(&text).unwrap_err());
        let says = "timing: transport_allowance is for hosts over NVMe/TCP, and controller near";
        assert!(message.contains(says), "{more}: {message}");
    }
    let pooled = EARLY.replace(far, &format!("{far}\npool = [\"other\"]"));
    let apart = "name = \"near\"\nsubsystem = \"t\"";
    from_toml(&pooled.replace("name = \"near\"\nsubsystem = \"s\"", apart)).unwrap();
}

#[test]
fn a_subsystem_has_limits() {
    let mut text = "[[media]]\nname = \"m\"\nkind = \"ram\"\nsize = \"1GiB\"\n".to_owned();
    for n in 0..33 {
        let range = format!("{}MiB..{}MiB", n, n + 1);
        text += &format!("[[namespace]]\nname = \"n{n}\"\nmedia = \"m\"\nrange = \"{range}\"\n");
    }
    let namespaces = |from: u32, to: u32| {
        let names: Vec<String> = (from..to).map(|n| format!("\"n{n}\"")).collect();
        format!("namespaces = [{}]\n", names.join(", "))
    };
    for (n, from, to) in [(0, 0, 16), (1, 16, 33)] {
        text += &format!(
            "[[controller]]\nname = \"c{n}\"\nsubsystem = \"s\"\nlisten = \"vfio-user:/{n}\"\n{}",
            namespaces(from, to)
        );
    }
    let message = format!("{:#}", from_toml(&text).unwrap_err());
    assert!(
        message.contains("subsystem s: namespaces: 33 namespaces"),
        "{message}"
    );
    let controllers: String = (0..64)
        .map(|n| {
            format!(
                "[[controller]]\nname = \"c{n}\"\nsubsystem = \"s\"\nlisten = \"vfio-user:/{n}\"\n"
            )
        })
        .collect();
    let message = format!("{:#}", from_toml(&controllers).unwrap_err());
    assert!(message.contains("subsystem s: 64 controllers"), "{message}");
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

#[test]
fn a_medium_with_timing_is_one_reactor_s() {
    let config = |first: &str, second: &str| {
        format!(
            "[[reactor]]\n[[reactor]]\n\
             [[media]]\nname = \"m\"\nkind = \"ram\"\nsize = \"1GiB\"\n[media.timing]\npreset = \"optane-p4800x\"\n\
             [[namespace]]\nname = \"n\"\nmedia = \"m\"\nrange = \"0MiB..512MiB\"\n\
             [[namespace]]\nname = \"o\"\nmedia = \"m\"\nrange = \"512MiB..1GiB\"\n\
             [[controller]]\nname = \"a\"\nnamespaces = [\"n\"]\nlisten = \"vfio-user:/tmp/a\"\n{first}\n\
             [[controller]]\nname = \"b\"\nnamespaces = [\"o\"]\nlisten = \"vfio-user:/tmp/b\"\n{second}\n"
        )
    };
    for (first, second) in [
        ("", ""),
        ("reactor = 1", ""),
        ("reactor = 1", "reactor = 1\nreactors = [1]"),
    ] {
        let text = config(first, second);
        assert!(from_toml(&text).is_ok(), "{first} {second}");
    }
    for (first, second) in [
        ("reactor = 0", "reactor = 1"),
        ("reactors = [0, 1]", ""),
        ("reactor = 0", "reactors = [1]"),
    ] {
        let message = format!("{:#}", from_toml(&config(first, second)).unwrap_err());
        assert!(
            message.contains("medium m has timing, so one reactor serves it"),
            "{message}"
        );
    }
}

#[test]
fn zones_are_told_what_is_wrong_with_them() {
    let config = |kind: &str, zones: &str, namespace: &str, controller: &str| {
        format!(
            "[[reactor]]\n[[reactor]]\n\
             [[media]]\nname = \"m\"\n{kind}\nsize = \"1GiB\"\n[media.zoned]\n{zones}\n\
             [[namespace]]\nname = \"n\"\nmedia = \"m\"\n{namespace}\n\
             [[controller]]\nname = \"a\"\nnamespaces = [\"n\"]\nlisten = \"vfio-user:/tmp/a\"\n{controller}\n"
        )
    };
    let (ram, size) = ("kind = \"ram\"", "zone_size = \"128MiB\"");
    let good = format!("{size}\nzone_capacity = \"96MiB\"\nmax_open = 4\nmax_active = 6");
    let parsed = from_toml(&config(ram, &good, "", "reactor = 1")).unwrap();
    let zones = parsed.media[0].zoned().unwrap().spec();
    assert_eq!(
        (zones.zone_size, zones.zone_capacity),
        (128 << 20, 96 << 20)
    );
    assert_eq!((zones.max_open, zones.max_active), (4, 6));
    assert_eq!(zones.random, None);
    let random = format!("{good}\nrandom_area = \"1MiB\"");
    let parsed = from_toml(&config(ram, &random, "", "")).unwrap();
    let areas = parsed.media[0].zoned().unwrap().spec().random;
    let areas = areas.map(|areas| (areas.bytes, areas.granularity, areas.zones));
    assert_eq!(areas, Some((1 << 20, 4096, 6)), "of all that may be active");
    for (text, expected) in [
        (
            config("kind = \"keyvalue\"", size, "", ""),
            "a key-value medium has no zones",
        ),
        (
            config(ram, "zone_size = \"100MiB\"", "", ""),
            "a multiple of the zone size",
        ),
        (
            config(ram, &format!("{size}\nmax_open = 0"), "", ""),
            "zoned.max_open = 0",
        ),
        (
            config(ram, &format!("{size}\nrandom_zones = 2"), "", ""),
            "only with `random_area`",
        ),
        (
            config(ram, &format!("{size}\nrandom_area = \"10KiB\""), "", ""),
            "a multiple of its granularity",
        ),
        (
            config(ram, size, "range = \"0MiB..512MiB\"", ""),
            "one namespace has all of them",
        ),
        (
            config(ram, size, "", "pool = [\"m\"]"),
            "in which hosts cannot create namespaces",
        ),
        (
            config(ram, size, "", "reactors = [0, 1]"),
            "medium m has zones, so one reactor serves it",
        ),
    ] {
        let message = format!("{:#}", from_toml(&text).unwrap_err());
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

#[test]
fn tenants_have_what_they_were_given_and_no_nonsense() {
    let config = |tenant: &str, controller: &str| {
        format!(
            "[[media]]\nname = \"m\"\nkind = \"ram\"\nsize = \"1GiB\"\n\
             [[namespace]]\nname = \"n\"\nmedia = \"m\"\n\
             [[tenant]]\nname = \"t\"\n{tenant}\n\
             [[controller]]\nname = \"a\"\nnamespaces = [\"n\"]\nlisten = \"vfio-user:/tmp/a\"\n{controller}\n"
        )
    };
    let good = "iops = 1000\nbandwidth = \"1MiB\"\nburst = \"1s\"";
    let parsed = from_toml(&config(good, "tenant = \"t\"")).unwrap();
    let cap = |per_second| {
        let burst = per_second;
        Some(engine::tenants::Cap { per_second, burst })
    };
    assert_eq!(parsed.tenant[0].caps(), (cap(1000), cap(1 << 20)));
    for (tenant, controller, expected) in [
        ("weight = 0", "", "weight = 0: write 1 to 10000"),
        ("iops = 0", "", "iops = 0: write at least 1"),
        (
            "bandwidth = \"0B\"",
            "",
            "bandwidth = \"0B\": write more than 0",
        ),
        ("in_flight = 0", "", "in_flight = 0"),
        ("burst = \"2min\"", "", "write up to 60s"),
        ("goal = \"1ms\"", "", "goal is only for class = \"latency\""),
        ("", "tenant = \"x\"", "there is no such tenant"),
    ] {
        let message = format!("{:#}", from_toml(&config(tenant, controller)).unwrap_err());
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

//! The discovery log page for hosts, as the operator sets it.

use super::raw::Discovering;
use super::{DISK, NQN, Port, serve};
use crate::survive::replace;
use crate::world::World;

const HOST: &str = "nqn.2026-11.test:host";
/// Subtypes of entries: a discovery service elsewhere, and an NVM subsystem (Base 2.1, figure 294).
const REFERRAL: u8 = 1;
const NVM: u8 = 2;
/// Notice, Discovery Log Page Change, log page 70h (Base 2.1, figure 152).
const LOG_CHANGE: u32 = 0x0070_f002;

fn entry(subtype: u8, at: &str) -> (u8, String) {
    (subtype, at.to_owned())
}

#[test]
fn an_advertised_address_and_referrals_are_set_while_a_host_is_connected() {
    let world = World::new();
    let port = Port::new();
    let keys = "advertise = \"10.0.2.2\"\nreferrals = [\"192.0.2.9\"]\n";
    let config = format!("{DISK}{}", port.controller(keys));
    let server = serve(&world, &config, &[]);
    let mut host = Discovering::connect(&port, HOST);
    let at = |ip: &str| entry(NVM, &format!("{ip} {}", port.number));
    let elsewhere = entry(REFERRAL, "192.0.2.9 8009");
    assert_eq!(host.entries(), [at("10.0.2.2"), elsewhere.clone()]);

    let set = |change: &str| {
        world.ok(&world.steer(&["set", "controller", "store", change]));
    };
    assert_eq!(
        host.event_of(|| set("advertise=198.51.100.1:5000")),
        LOG_CHANGE
    );
    assert_eq!(host.entries(), [entry(NVM, "198.51.100.1 5000"), elsewhere]);
    let shown = world.ok(&world.steer(&["qemu-args", "store"]));
    assert!(shown.contains("-a 198.51.100.1 -s 5000"), "{shown}");
    let listed = world.ok(&world.steer(&["ls"]));
    let mut rows = listed.lines().map(|line| line.split_whitespace());
    let expected = ["store", "198.51.100.1", "5000", "optimized", NQN];
    assert!(rows.any(|row| row.eq(expected)), "{listed}");
    let shown = world.ok(&world.steer(&["show", "controller", "store"]));
    let mut rows = shown.lines().map(|line| line.split_whitespace());
    assert!(rows.any(|row| row.eq(["identity.subnqn", NQN])), "{shown}");
    set("advertise=none");
    let list = "referrals=192.0.2.10,[2001:db8::1]:4420";
    assert_eq!(host.event_of(|| set(list)), LOG_CHANGE);
    let two = [
        at("127.0.0.1"),
        entry(REFERRAL, "192.0.2.10 8009"),
        entry(REFERRAL, "2001:db8::1 4420"),
    ];
    assert_eq!(host.entries(), two);

    // A reload of a file that has changed; the controller is not created again.
    let reload = || {
        world.write("config.toml", &config.replace("192.0.2.9", "192.0.2.11"));
        world.ok(&world.steer(&["reload"]));
    };
    assert_eq!(host.event_of(reload), LOG_CHANGE);
    assert_eq!(
        host.entries().last(),
        Some(&entry(REFERRAL, "192.0.2.11 8009"))
    );

    for (change, says) in [
        ("advertise=store.example", "names are not resolved"),
        ("advertise=0.0.0.0", "no host can connect"),
        ("advertise=fe80::1", "no host can connect"),
        ("referrals=192.0.2.1:0", "no host can connect"),
        ("referrals=192.0.2.1,192.0.2.1", "listed twice"),
    ] {
        let ran = world.run(&world.steer(&["set", "controller", "store", change]));
        assert!(
            !ran.status.success() && ran.err.contains(says),
            "{}",
            ran.err
        );
    }
    drop(host);
    server.stop();
}

#[test]
fn what_was_set_is_there_after_a_death() {
    let world = World::new();
    let port = Port::new();
    let config = format!("{DISK}{}", port.controller(""));
    let mut server = serve(&world, &config, &["--survive"]);
    for change in ["advertise=10.0.2.2:5000", "referrals=192.0.2.9"] {
        world.ok(&world.steer(&["set", "controller", "store", change]));
    }
    let set = [
        entry(NVM, "10.0.2.2 5000"),
        entry(REFERRAL, "192.0.2.9 8009"),
    ];
    assert_eq!(Discovering::connect(&port, HOST).entries(), set);
    replace(&mut server);
    assert_eq!(Discovering::connect(&port, HOST).entries(), set);
    server.stop();
}

#[test]
fn a_host_reads_only_of_controllers_that_allow_it() {
    let world = World::new();
    let (port, other) = (Port::new(), Port::new());
    let own = format!("subsystem = \"s\"\ntcp = {{ allow = [\"{HOST}\"] }}\n");
    let second = other.controller("subsystem = \"s\"\n");
    let both = format!(
        "{DISK}{}{}",
        port.controller(&own),
        second.replace("\"store\"", "\"second\"")
    );
    let server = serve(&world, &both, &[]);
    let at = |port: &Port| entry(NVM, &format!("127.0.0.1 {}", port.number));
    let entries = |nqn: &str| Discovering::connect(&port, nqn).entries();
    assert_eq!(entries(HOST), [at(&port), at(&other)]);
    assert_eq!(entries("nqn.2026-11.test:other"), [at(&other)]);
    // A host that may connect soon is notified.
    let mut waits = Discovering::connect(&other, "nqn.2026-11.test:other");
    let reload = || {
        world.write("config.toml", &both.replace(&own, "subsystem = \"s\"\n"));
        world.ok(&world.steer(&["reload", "--detach-hosts"]));
    };
    waits.entries();
    assert_eq!(waits.event_of(reload), LOG_CHANGE);
    assert!(waits.entries().contains(&at(&port)));
    drop(waits);
    server.stop();
}

#[test]
fn controllers_come_and_go_for_a_host_as_hosts_are_configured() {
    let world = World::new();
    let (port, other) = (Port::new(), Port::new());
    // The first controller is for the hosts of `[[host]]`, the second one for this host as well.
    let second = other.controller(&format!(
        "subsystem = \"s\"\ntcp = {{ allow = [\"nqn.2026-11.test:a\", \"{HOST}\"] }}\n"
    ));
    let controllers = format!(
        "{DISK}{}{}",
        port.controller("subsystem = \"s\"\n"),
        second.replace("\"store\"", "\"second\"")
    );
    let with = |nqns: &[&str]| {
        let hosts = nqns
            .iter()
            .map(|nqn| format!("[[host]]\nnqn = \"{nqn}\"\n"));
        format!("{controllers}{}", hosts.collect::<String>())
    };
    let (without, with_it) = (
        with(&["nqn.2026-11.test:a"]),
        with(&["nqn.2026-11.test:a", HOST]),
    );
    let server = serve(&world, &without, &[]);
    let at = |port: &Port| entry(NVM, &format!("127.0.0.1 {}", port.number));
    let reload = |config: &str| {
        world.write("config.toml", config);
        world.ok(&world.steer(&["reload", "--detach-hosts"]));
    };
    let mut host = Discovering::connect(&other, HOST);
    let mut always = Discovering::connect(&other, "nqn.2026-11.test:a");
    let both = [at(&port), at(&other)];
    let before = always.page(8);
    assert_eq!(always.entries(), both);
    assert_eq!(host.entries(), [at(&other)]);
    assert_eq!(host.event_of(|| reload(&with_it)), LOG_CHANGE);
    assert_eq!(host.entries(), both);
    assert_eq!(host.event_of(|| reload(&without)), LOG_CHANGE);
    assert_eq!(host.entries(), [at(&other)]);
    // The page of the other host was the same all the time, and so is its generation.
    assert_eq!(always.page(8), before);
    drop((host, always));
    server.stop();
}

//! Two entrances of one subsystem, and the states of their ANA groups.

use std::thread;
use std::time::{Duration, Instant};

use driver::bus::place::AnyBus;
use nvme_spec::Status;
use nvme_spec::features::FeatureId;
use nvme_spec::log::LogPageId;
use nvme_spec::opcode::NvmOpcode;
use serde_json::json;

use super::{DISK, Port, metric, serve};
use crate::host::Host;
use crate::survive::replace;
use crate::world::{BOUND, Server, World};

const OK: Status = Status::SUCCESSFUL_COMPLETION;
const INACCESSIBLE: Status = Status::ASYMMETRIC_ACCESS_INACCESSIBLE;

/// The controllers `store` and `second` over the same namespace, which is in group 3.
fn two(world: &World, keys: &str, more: &[&str]) -> (Server, Port, Port) {
    let (first, second) = (Port::new(), Port::new());
    let config = format!(
        "{DISK}ana_group = 3\n{}{}",
        first.controller(&format!("subsystem = \"s\"\n{keys}")),
        second
            .controller("subsystem = \"s\"\n")
            .replace("\"store\"", "\"second\"")
    );
    (serve(world, &config, more), first, second)
}

fn at(port: &Port) -> Host<AnyBus> {
    Host::at(&port.target()).unwrap()
}

fn set(world: &World, change: &str) -> String {
    world.ok(&world.steer(&["set", "controller", "store", change]))
}

/// Change count, and group, state and namespace of the only descriptor (Base 2.1, 5.1.12.1.13).
fn log(host: &mut Host<AnyBus>) -> (u64, u32, u8, u32) {
    let mut page = [0; 64];
    let lid = LogPageId::ASYMMETRIC_NAMESPACE_ACCESS;
    let read = host.device().get_log_page(lid, u32::MAX, 0, &mut page);
    read.unwrap();
    assert_eq!(page[8..10], [1, 0], "one descriptor");
    let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
    (u64::from(word(0)), word(16), page[32], word(48))
}

fn event(host: &mut Host<AnyBus>) -> u32 {
    let deadline = Instant::now() + BOUND;
    loop {
        if let Some(event) = host.device().poll_event().unwrap() {
            return u32::from(event);
        }
        assert!(Instant::now() < deadline, "no event came");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn two_entrances_are_two_paths_to_the_same_namespace() {
    const REGISTER: NvmOpcode = NvmOpcode::RESERVATION_REGISTER;
    const ACQUIRE: NvmOpcode = NvmOpcode::RESERVATION_ACQUIRE;
    const RELEASE: NvmOpcode = NvmOpcode::RESERVATION_RELEASE;
    /// Type Write Exclusive (Base 2.1, 8.1.22.1).
    const EXCLUSIVE: u32 = 1 << 8;
    let world = World::new();
    let (server, first, second) = two(&world, "", &[]);
    let (mut a, mut b) = (at(&first), at(&second));
    let names = |host: &mut Host<AnyBus>| {
        let id = host.device().identify_namespace(1).unwrap();
        (id.nguid, id.eui64, id.nmic, id.anagrpid)
    };
    assert_eq!(names(&mut a), names(&mut b));
    assert_ne!(names(&mut a).0, [0; 16]);
    a.fill(1, 3, 0x5a);
    assert!(b.block(1, 3).iter().all(|byte| *byte == 0x5a));
    b.fill(1, 3, 0xa5);
    assert!(a.block(1, 3).iter().all(|byte| *byte == 0xa5));
    // Both are of one host: a reservation by one path is the other's, too. Another process is
    // another host, with a Host Identifier of its own.
    let another_writes = || {
        let mut command = world.program();
        command.args(["bench", "--rw", "randwrite", "--time", "100ms"]);
        command.args(["--destroy-data", "--target", &second.target()]);
        let ran = command.output().unwrap();
        ran.status
            .success()
            .then_some(())
            .ok_or_else(|| String::from_utf8_lossy(&ran.stderr).into_owned())
    };
    assert_eq!(a.reserve(REGISTER, 0, [0, 7]), OK);
    assert_eq!(another_writes(), Ok(()));
    assert_eq!(a.reserve(ACQUIRE, EXCLUSIVE, [7, 0]), OK);
    assert_eq!((a.write_status(), b.write_status()), (OK, OK));
    let refused = another_writes().unwrap_err();
    assert!(refused.contains("Reservation Conflict"), "{refused}");
    // By the other path it ends, too.
    assert_eq!(b.reserve(RELEASE, EXCLUSIVE, [7, 0]), OK);
    assert_eq!(another_writes(), Ok(()));
    drop((a, b));
    server.stop();
}

#[test]
fn a_state_is_set_while_hosts_use_the_controller() {
    let world = World::new();
    let (server, first, second) = two(&world, "", &[]);
    let (mut a, mut b) = (at(&first), at(&second));
    for host in [&mut a, &mut b] {
        // Asymmetric Namespace Access Change Notices (Base 2.1, 5.1.25.1.5)
        let config = FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION;
        host.device().set_feature(config, 0, 1 << 11).unwrap();
        host.listen();
        assert_eq!(log(host), (0, 3, 1, 1));
    }
    assert_eq!(a.write_status(), OK);
    assert_eq!(
        set(&world, "ana.3=inaccessible"),
        "changed controller store\n"
    );
    // Notice, Asymmetric Namespace Access Change, log page 0Ch.
    assert_eq!(event(&mut a), 0x000c_0302);
    assert_eq!(log(&mut a), (1, 3, 3, 1));
    assert_eq!((a.write_status(), b.write_status()), (INACCESSIBLE, OK));
    assert_eq!(log(&mut b), (0, 3, 1, 1));
    assert!(b.device().poll_event().unwrap().is_none());
    let sample = |state: &str| {
        let labels = format!("{{controller=\"store\",state=\"{state}\"}}");
        metric(&world, &format!("nvmirage_ana_groups{labels}"))
    };
    assert_eq!((sample("inaccessible"), sample("optimized")), (1.0, 127.0));
    let listed = world.ok(&world.steer(&["ls"]));
    assert!(listed.contains("3=inaccessible"), "{listed}");
    // A group keeps its state where another one is set, and an entrance its own.
    set(&world, "ana.5=change");
    assert_eq!(a.write_status(), INACCESSIBLE);
    let shown = || {
        let shown = world.ask("GET /v1/controllers/store", &[], "").is(200);
        shown.json()["ana"].clone()
    };
    assert_eq!(shown(), json!({"3": "inaccessible", "5": "change"}));
    set(&world, "ana.3=non-optimized");
    assert_eq!(log(&mut a), (2, 3, 2, 1));
    assert_eq!(a.write_status(), OK);
    // The whole key, without group 5, and its default.
    set(&world, "ana=3=persistent-loss");
    assert_eq!(shown(), json!({"3": "persistent-loss"}));
    assert_eq!(a.write_status(), Status::ASYMMETRIC_ACCESS_PERSISTENT_LOSS);
    set(&world, "ana=none");
    assert_eq!((a.write_status(), log(&mut a).2), (OK, 1));
    for (change, says) in [
        ("ana.129=change", "write 1 to 128"),
        ("ana.3=inacessible", "did you mean `inaccessible`"),
        ("ana.=change", "ANA group"),
    ] {
        let ran = world.run(&world.steer(&["set", "controller", "store", change]));
        assert_eq!(ran.status.code(), Some(2), "{change}");
        let error = ran.err;
        assert!(error.contains(says), "{error}");
    }
    let patch = r#"{"ana": {"3": "down"}}"#;
    world.ask("PATCH /v1/controllers/store", &[], patch).is(422);
    assert_eq!(a.write_status(), OK);
    drop((a, b));
    server.stop();
}

#[test]
fn a_set_state_is_there_after_a_death_and_a_reload_and_in_the_exported_configuration() {
    let world = World::new();
    let keys = "ana = { 3 = \"non-optimized\" }\n";
    let (mut server, first, second) = two(&world, keys, &["--survive"]);
    let mut a = at(&first);
    assert_eq!((log(&mut a).2, a.write_status()), (2, OK));
    set(&world, "ana.3=inaccessible");
    assert_eq!(a.write_status(), INACCESSIBLE);
    replace(&mut server);
    let again = |port: &Port| {
        let deadline = Instant::now() + BOUND;
        loop {
            match Host::at(&port.target()) {
                Ok(host) => return host,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        }
    };
    let (mut a, mut b) = (again(&first), again(&second));
    assert_eq!((a.write_status(), b.write_status()), (INACCESSIBLE, OK));
    // A file that has not changed says nothing new, one that has does.
    world.ok(&world.steer(&["reload"]));
    assert_eq!(a.write_status(), INACCESSIBLE);
    let exported = world.ok(&world.steer(&["export"]));
    assert!(exported.contains("inaccessible"), "{exported}");
    let file = std::fs::read_to_string(world.path("config.toml")).unwrap();
    world.write(
        "config.toml",
        &file.replace(keys, "ana = { 3 = \"change\" }\n"),
    );
    world.ok(&world.steer(&["reload"]));
    assert_eq!(a.write_status(), Status::ASYMMETRIC_ACCESS_TRANSITION);
    drop((a, b));
    server.stop();
}

/// A PCI function has no ANA log page and no key with which an operator could open it again.
#[test]
fn a_function_with_the_name_of_a_closed_entrance_is_open() {
    let world = World::new();
    let (server, first, second) = two(&world, "", &[]);
    set(&world, "ana.3=inaccessible");
    assert_eq!(at(&first).write_status(), INACCESSIBLE);
    world.ok(&world.steer(&["delete", "controller", "store"]));
    let listen = world.vfio_user("store.sock");
    let create = ["create", "controller", "store", "--namespaces", "data"];
    let its = ["--subsystem", "s", "--listen", &listen];
    world.ok(&world.steer(&[&create[..], &its].concat()));
    let mut function = Host::attach(&world, "store.sock");
    assert_eq!(function.write_status(), OK);
    assert_eq!(at(&second).write_status(), OK);
    drop(function);
    server.stop();
}

//! Controllers that share a subsystem, and what an operator changes while hosts use it.

use nvme_spec::Status;
use serde_json::Value;

use crate::host::Host;
use crate::world::{Server, World};

/// Two controllers of one subsystem: `both` is shared, `own` is a's; no controller has `spare`.
const PAIR: &str = r#"
[[media]]
name = "disk"
kind = "ram"
size = "64MiB"
[[namespace]]
name = "both"
media = "disk"
range = "0MiB..16MiB"
[[namespace]]
name = "own"
media = "disk"
range = "16MiB..24MiB"
lba_size = 512
[[namespace]]
name = "spare"
media = "disk"
range = "32MiB..40MiB"
[[controller]]
name = "a"
subsystem = "pair"
namespaces = ["both", "own"]
listen = "vfio-user:a.sock"
[[controller]]
name = "b"
subsystem = "pair"
namespaces = ["both"]
listen = "vfio-user:b.sock"
"#;

const MIB: u64 = 1 << 20;

fn serve(world: &World) -> Server {
    let file = world.write("pair.toml", PAIR);
    world.serve(&["--config", file.to_str().unwrap()])
}

/// Entry of a namespace in `ls`: identifier, blocks, who has it.
fn listed(world: &World, name: &str) -> (Value, u64, Vec<String>) {
    let inventory = world.json(&world.steer(&["ls", "--json"]));
    let all = inventory["namespaces"].as_array().unwrap().clone();
    let found = all.into_iter().find(|n| n["name"] == name).unwrap();
    let controllers = found["controllers"].as_array().unwrap().iter();
    let controllers = controllers.map(|c| c.as_str().unwrap().to_owned());
    (
        found["nsid"].clone(),
        found["blocks"].as_u64().unwrap(),
        controllers.collect(),
    )
}

#[test]
fn two_controllers_share_a_namespace() {
    let world = World::new();
    let server = serve(&world);
    let (mut a, mut b) = (
        Host::attach(&world, "a.sock"),
        Host::attach(&world, "b.sock"),
    );
    assert_eq!((a.active(), b.active()), (vec![1, 2], vec![1]));
    let (first, second) = (
        a.device().identify_controller().unwrap(),
        b.device().identify_controller().unwrap(),
    );
    // one subsystem, two controllers of it
    assert_eq!((first.sn, first.subnqn), (second.sn, second.subnqn));
    assert_eq!((first.cntlid, second.cntlid), (1, 2));
    let one = |host: &mut Host| {
        let namespace = host.device().identify_namespace(1).unwrap();
        (namespace.nguid, namespace.nmic)
    };
    assert_eq!(one(&mut a), one(&mut b));

    // what one writes the other reads
    let (namespace, mut queue) = (
        a.device().namespace(1).unwrap(),
        a.device().create_queue_pair(4, false).unwrap(),
    );
    let buffer = a.device().alloc(4096).unwrap();
    buffer.write_from(0, &[0x5a; 4096]);
    queue.write(&namespace, 7, 1, &buffer, false).unwrap();
    let mut queue = b.device().create_queue_pair(4, false).unwrap();
    let buffer = b.device().alloc(4096).unwrap();
    queue.read(&namespace, 7, 1, &buffer).unwrap();
    let mut read = [0; 4096];
    buffer.read_into(0, &mut read);
    assert_eq!(read, [0x5a; 4096]);
    server.stop();
}

#[test]
fn namespaces_come_and_go_while_hosts_are_attached() {
    let world = World::new();
    let server = serve(&world);
    let (mut a, mut b) = (
        Host::attach(&world, "a.sock"),
        Host::attach(&world, "b.sock"),
    );
    b.listen();
    world.ok(&world.steer(&["attach", "own", "b"]));
    assert_eq!(b.changed(), [2]);
    assert_eq!(b.active(), [1, 2]);
    assert_eq!(b.size(2), (8 * MIB, 512));

    // one that no subsystem had yet
    a.listen();
    world.ok(&world.steer(&["attach", "spare", "a"]));
    assert_eq!(a.changed(), [3]);
    assert_eq!(a.active(), [1, 2, 3]);
    assert_eq!(
        listed(&world, "spare"),
        (3.into(), 8 * MIB / 4096, vec!["a".into()])
    );

    // and one that is made now
    let new = [
        "create",
        "namespace",
        "new",
        "--media",
        "disk",
        "--range",
        "40MiB..48MiB",
    ];
    world.ok(&world.steer(&new));
    assert_eq!(listed(&world, "new").0, Value::Null);
    b.listen();
    world.ok(&world.steer(&["attach", "new", "b"]));
    assert_eq!(b.changed(), [4]);
    assert_eq!(b.size(4), (8 * MIB, 4096));

    b.listen();
    let mut queue = b.device().create_queue_pair(4, false).unwrap();
    let both = b.device().namespace(1).unwrap();
    let buffer = b.device().alloc(4096).unwrap();
    queue.read(&both, 0, 1, &buffer).unwrap();
    world.ok(&world.steer(&["detach", "both", "b", "--detach-hosts"]));
    assert_eq!(b.changed(), [1]);
    assert_eq!(b.active(), [2, 4]);
    let error = queue.read(&both, 0, 1, &buffer).unwrap_err();
    let driver::DriverError::Status { status, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(status, Status::INVALID_FIELD_IN_COMMAND);
    // the other has it still
    assert_eq!(a.active(), [1, 2, 3]);
    assert_eq!(listed(&world, "both").2, ["a"]);
    server.stop();
}

#[test]
fn a_namespace_gets_another_size_while_hosts_are_attached() {
    let world = World::new();
    let server = serve(&world);
    let (mut a, mut b) = (
        Host::attach(&world, "a.sock"),
        Host::attach(&world, "b.sock"),
    );
    a.listen();
    world.ok(&world.steer(&["resize", "own", "16MiB"]));
    assert_eq!(a.changed(), [2]);
    assert_eq!(a.size(2), (16 * MIB, 512));
    assert_eq!(listed(&world, "own").1, 16 * MIB / 512);
    b.listen();
    a.listen();
    let error = world.fails(&world.steer(&["resize", "both", "8MiB"]));
    assert!(error.contains("--shrink"), "{error}");
    world.ok(&world.steer(&["resize", "both", "8MiB", "--shrink"]));
    assert_eq!((a.changed(), b.changed()), (vec![1], vec![1]));
    assert_eq!((a.size(1), b.size(1)), ((8 * MIB, 4096), (8 * MIB, 4096)));
    // there is room now where it was
    let new = [
        "create",
        "namespace",
        "new",
        "--media",
        "disk",
        "--range",
        "8MiB..16MiB",
    ];
    world.ok(&world.steer(&new));
    server.stop();
}

#[test]
fn what_cannot_be_changed_says_why() {
    let world = World::new();
    let server = serve(&world);
    let other = [
        "create",
        "controller",
        "c",
        "--listen",
        &world.vfio_user("c.sock"),
    ];
    world.ok(&world.steer(&other));
    let cases: [(&[&str], &str); 20] = [
        (
            &["attach", "nothing", "a"],
            "there is no namespace `nothing`",
        ),
        (
            &["attach", "both", "nobody"],
            "there is no controller `nobody`",
        ),
        (
            &["attach", "both", "a"],
            "is attached to controller `a` already",
        ),
        (&["attach", "both", "c"], "`both` is of subsystem `pair`"),
        (&["attach", "a/b", "a"], "invalid name"),
        (&["attach", "pair:9", "a"], "there is no namespace `pair:9`"),
        (&["detach", "own", "b"], "is not attached to controller `b`"),
        (
            &["detach", "spare", "b"],
            "is not attached to controller `b`",
        ),
        (
            &["detach", "nothing", "b"],
            "there is no namespace `nothing`",
        ),
        (
            &["detach", "own", "nobody"],
            "there is no controller `nobody`",
        ),
        (
            &["resize", "nothing", "1GiB"],
            "there is no namespace `nothing`",
        ),
        (&["resize", "spare", "16MiB"], "is in no subsystem"),
        (&["resize", "own", "24MiB"], "overlap"),
        (&["resize", "own", "64MiB"], "there is no room for 64MiB"),
        (&["resize", "own", "1000B"], "a multiple of that"),
        (&["resize", "own", "0B"], "a multiple of that"),
        (&["resize", "own", "4MiB"], "--shrink"),
        (&["delete", "namespace", "own"], "is in controller `a`"),
        (&["delete", "media", "disk"], "holds namespace `both`"),
        (
            &[
                "create",
                "namespace",
                "x",
                "--media",
                "disk",
                "--range",
                "20MiB..28MiB",
            ],
            "overlaps namespace own",
        ),
    ];
    let before = world.inventory();
    for (args, words) in cases {
        let error = world.fails(&world.steer(args));
        assert!(
            error.contains(words),
            "{args:?}: {words} is missing in\n{error}"
        );
    }
    let joins: [(&[&str], &str); 4] = [
        (
            &["--subsystem", "pair", "--pool", "disk"],
            "already served without \"disk\"",
        ),
        (
            &["--subsystem", "pair", "--serial", "X"],
            "write the same, or remove them",
        ),
        (
            &["--subsystem", "pair", "--model-number", "X"],
            "write the same in both",
        ),
        (
            &["--subsystem", "c"],
            "controller c has its own subsystem of that name",
        ),
    ];
    let listen = world.vfio_user("d.sock");
    for (args, words) in joins {
        let args = [&["create", "controller", "d", "--listen", &listen], args].concat();
        let error = world.fails(&world.steer(&args));
        assert!(
            error.contains(words),
            "{args:?}: {words} is missing in\n{error}"
        );
        assert!(!world.path("d.sock").exists());
    }
    assert_eq!(world.inventory(), before);
    server.stop();
}

#[test]
fn a_namespace_stays_in_its_subsystem_until_it_is_deleted() {
    let world = World::new();
    let server = serve(&world);
    // in no list of the configuration and attached to no controller, but a subsystem has it
    world.ok(&world.steer(&["attach", "spare", "a"]));
    world.ok(&world.steer(&["detach", "spare", "a", "--detach-hosts"]));
    let listen = world.vfio_user("c.sock");
    let other = ["create", "controller", "c", "--listen", &listen];
    let other = [&other[..], &["--namespaces", "spare"]].concat();
    let error = world.fails(&world.steer(&other));
    assert!(
        error.contains("`pair`") || error.contains("another subsystem"),
        "{error}"
    );
    assert!(!world.path("c.sock").exists());
    world.ok(&world.steer(&["delete", "namespace", "spare"]));
    let again = [
        "create",
        "namespace",
        "spare",
        "--media",
        "disk",
        "--range",
        "32MiB..40MiB",
    ];
    world.ok(&world.steer(&again));
    world.ok(&world.steer(&other));
    let error = world.fails(&world.steer(&["attach", "spare", "a"]));
    assert!(error.contains("`spare` is of subsystem `c`"), "{error}");
    server.stop();
}

#[test]
fn controllers_join_and_leave_a_subsystem_that_is_served() {
    let world = World::new();
    let server = serve(&world);
    let listen = world.vfio_user("c.sock");
    let join = [
        "create",
        "controller",
        "c",
        "--subsystem",
        "pair",
        "--listen",
        &listen,
    ];
    let join = [&join[..], &["--namespaces", "both,spare"]].concat();
    world.ok(&world.steer(&join));
    let mut host = Host::attach(&world, "c.sock");
    assert_eq!(host.active(), [1, 3]);
    assert_eq!(host.device().identify_controller().unwrap().cntlid, 3);
    drop(host);
    assert_eq!(listed(&world, "both").2, ["a", "b", "c"]);
    world.ok(&world.steer(&["delete", "controller", "c"]));
    assert_eq!(listed(&world, "both").2, ["a", "b"]);
    // no controller has it, so it can be deleted
    assert_eq!(listed(&world, "spare").2, [""; 0]);
    world.ok(&world.steer(&["delete", "namespace", "spare"]));
    // and the others noticed nothing
    let mut host = Host::attach(&world, "b.sock");
    assert_eq!(host.active(), [1]);
    // the same name is the same controller, with the namespaces it has now
    let join = [
        "create",
        "controller",
        "c",
        "--subsystem",
        "pair",
        "--listen",
        &listen,
    ];
    let join = [&join[..], &["--namespaces", "own"]].concat();
    world.ok(&world.steer(&join));
    let mut host = Host::attach(&world, "c.sock");
    assert_eq!(host.active(), [2]);
    assert_eq!(host.device().identify_controller().unwrap().cntlid, 3);
    server.stop();
}

//! Vendor commands that a configuration adds to a medium, as a host uses them.

use driver::DriverError;
use nvme_spec::log::LogPageId;
use nvme_spec::{Sqe, Status};

use crate::host::Host;
use crate::survive::replace;
use crate::world::{Server, World};

/// Namespaces 1 and 2 with Fetch and Add and a timing model, 3 without.
fn serve(world: &World, more: &[&str]) -> Server {
    let config = format!(
        r#"
[[reactor]]
[[reactor]]
[[media]]
name = "counting"
kind = "ram"
size = "64MiB"
vendor = "fetch_add"
timing = {{ preset = "optane-p4800x" }}
[[media]]
name = "plain"
kind = "ram"
size = "64MiB"
[[namespace]]
name = "first"
media = "counting"
range = "0MiB..32MiB"
[[namespace]]
name = "second"
media = "counting"
range = "32MiB..64MiB"
[[namespace]]
name = "third"
media = "plain"
[[controller]]
name = "vm"
listen = "{}"
namespaces = ["first", "second", "third"]
"#,
        world.vfio_user("nvme.sock"),
    );
    let config = world.write("nvmirage.toml", &config);
    world.serve(&[&["--config", config.to_str().unwrap()], more].concat())
}

/// Adds to the counter of a namespace, and returns its previous value.
fn add(host: &mut Host, nsid: u32, number: u32) -> Result<u64, Status> {
    let mut queue = host.device().create_queue_pair(4, false).unwrap();
    let sqe = Sqe {
        opcode: 0xc0,
        nsid,
        cdw10: number,
        ..Sqe::default()
    };
    let ended = queue.run("Fetch and Add", sqe);
    host.device().delete_queue_pair(queue).unwrap();
    match ended {
        Ok(cqe) => Ok(u64::from(cqe.dw1) << 32 | u64::from(cqe.dw0)),
        Err(DriverError::Status { status, .. }) => Err(status),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_host_has_the_vendor_command_of_the_configuration() {
    let world = World::new();
    let server = serve(&world, &[]);
    let mut host = Host::attach(&world, "nvme.sock");
    assert_eq!(add(&mut host, 1, 2), Ok(0));
    assert_eq!(add(&mut host, 1, u32::MAX), Ok(2));
    assert_eq!(add(&mut host, 1, 0), Ok(0x1_0000_0001));
    // Each namespace has its counter, and one without the commands rejects them.
    assert_eq!(add(&mut host, 2, 7), Ok(0));
    assert_eq!(add(&mut host, 3, 7), Err(Status::INVALID_COMMAND_OPCODE));

    // Commands Supported and Effects: I/O commands begin at byte 1024, 4 bytes each.
    let mut effects = [0; 4096];
    let lid = LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS;
    let device = host.device();
    device.get_log_page(lid, 0, 0, &mut effects).unwrap();
    assert_eq!(effects[1024 + 4 * 0xc0], 1);

    // The commands of NVM are as before, and the counters go along to another reactor.
    host.fill(1, 0, 0x5a);
    host.fill(2, 0, 0xa5);
    let inventory = world.inventory();
    let to = match inventory["controllers"][0]["reactor"].as_u64() {
        Some(0) => "1",
        _ => "0",
    };
    world.ok(&world.steer(&["move", "vm", to]));
    assert_eq!(add(&mut host, 1, 0), Ok(0x1_0000_0001));
    assert_eq!(host.block(1, 0), [0x5a; 4096]);

    // A format resets the bytes and the counter of its namespace.
    host.format(1, 4096);
    assert_eq!(add(&mut host, 1, 0), Ok(0));
    assert_eq!(host.block(1, 0), [0; 4096]);
    assert_eq!(add(&mut host, 2, 0), Ok(7));
    assert_eq!(host.block(2, 0), [0xa5; 4096]);

    // Another namespace in the place of a deleted one has its bytes, and a counter of its own.
    world.ok(&world.steer(&["detach", "second", "vm", "--detach-hosts"]));
    world.ok(&world.steer(&["delete", "namespace", "second"]));
    let again = "create namespace again --media counting --range 32MiB..64MiB";
    world.ok(&world.steer(&again.split(' ').collect::<Vec<_>>()));
    world.ok(&world.steer(&["attach", "again", "vm"]));
    let inventory = world.inventory();
    let namespaces = inventory["namespaces"].as_array().unwrap();
    let again = namespaces.iter().find(|one| one["name"] == "again");
    let nsid = u32::try_from(again.unwrap()["nsid"].as_u64().unwrap()).unwrap();
    assert_eq!(add(&mut host, nsid, 0), Ok(0));
    assert_eq!(host.block(nsid, 0), [0xa5; 4096]);
    server.stop();
}

/// The counters of a drive in memory with a timing model, which both continue, too.
#[test]
fn counters_continue_after_a_death_and_an_upgrade() {
    let world = World::new();
    let mut server = serve(&world, &["--survive"]);
    let mut host = Host::attach(&world, "nvme.sock");
    host.fill(1, 3, 0x5a);
    assert_eq!(add(&mut host, 1, 2), Ok(0));
    assert_eq!(add(&mut host, 2, 7), Ok(0));
    for round in 0..3 {
        if round == 1 {
            world.ok(&world.steer(&["upgrade"]));
        } else {
            replace(&mut server);
        }
        assert_eq!(add(&mut host, 1, 1), Ok(2 + round));
        assert_eq!(add(&mut host, 2, 0), Ok(7));
        assert_eq!(host.block(1, 3), [0x5a; 4096]);
    }
    host.format(2, 4096);
    replace(&mut server);
    assert_eq!(add(&mut host, 2, 0), Ok(0));
    assert_eq!(add(&mut host, 1, 0), Ok(5));
    drop(host);
    server.stop();
}

#[test]
fn vendor_commands_are_for_bytes_without_zones() {
    let world = World::new();
    for (media, wrong) in [
        (
            "kind = \"ram\"\nvendor = \"fetch_add\"\nzoned = { zone_size = \"1MiB\" }",
            "a medium with zones has no vendor commands: remove vendor, or zoned",
        ),
        (
            "kind = \"keyvalue\"\nvendor = \"fetch_add\"",
            "only kind = \"null\" and kind = \"ram\" and kind = \"file\" have `vendor`: remove it",
        ),
        (
            "kind = \"ram\"\nvendor = \"fetch_ad\"",
            "did you mean `fetch_add`",
        ),
    ] {
        let config = format!("[[media]]\nname = \"m\"\nsize = \"64MiB\"\n{media}\n");
        let config = world.write("nvmirage.toml", &config);
        let error = world.fails(&["check", config.to_str().unwrap()]);
        assert!(error.contains(wrong), "{wrong} in {error}");
    }
}

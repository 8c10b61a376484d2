//! Our own controller as the drive of tenants: of every kind of medium, and beside a reactor that
//! sleeps.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use driver::bus::vfio_user::VfioUser;
use driver::io::Namespace;
use driver::{Device, DriverError, Options};
use nvme_spec::Status;

use crate::host::Host;
use crate::world::{Server, World};

const MIB: u64 = 1 << 20;
/// The parts of the tenants, in MiB, and all of the drive that is looked at.
const PARTS: [(&str, u64, u64); 2] = [("a", 4, 8), ("b", 12, 16)];
const LOOKED_AT: u64 = 20;

/// A drive of a medium, and a server of two tenants on it whose reactor waits so.
fn serve(drive: &World, world: &World, medium: &str, mode: &str) -> (Server, Server) {
    let reactors = format!("[[reactor]]\nmode = \"{mode}\"\n");
    serve_split(drive, world, medium, (&reactors, ""))
}

/// The same with these reactors, which the drive of the tenants has these keys for.
fn serve_split(
    drive: &World,
    world: &World,
    medium: &str,
    (reactors, keys): (&str, &str),
) -> (Server, Server) {
    let server = serve_drive(drive, medium);
    let listen = drive.vfio_user("drive.sock");
    let mut text = format!(
        "{reactors}[[media]]\nname = \"drive\"\nkind = \"drive\"\ntarget = \"{listen}\"\n{keys}"
    );
    for (name, from, to) in PARTS {
        write!(
            text,
            "[[namespace]]\nname = \"{name}\"\nmedia = \"drive\"\nrange = \"{from}MiB..{to}MiB\"\nlba_size = 512\n\
             [[controller]]\nname = \"{name}\"\nnamespaces = [\"{name}\"]\nlisten = \"{}\"\n",
            world.vfio_user(name)
        )
        .unwrap();
    }
    let config = world.write("tenants.toml", &text);
    let tenants = world.serve(&["--config", config.to_str().unwrap()]);
    (server, tenants)
}

fn serve_drive(drive: &World, medium: &str) -> Server {
    let listen = drive.vfio_user("drive.sock");
    let text = format!(
        "[[media]]\nname = \"medium\"\n{medium}\n\
         [[namespace]]\nname = \"all\"\nmedia = \"medium\"\nlba_size = 512\n\
         [[controller]]\nname = \"drive\"\nnamespaces = [\"all\"]\nlisten = \"{listen}\"\n\
         doorbells = \"mapped\"\n"
    );
    let config = drive.write("drive.toml", &text);
    drive.serve(&["--config", config.to_str().unwrap()])
}

/// Content of a block: its owner, and its number.
fn block(owner: u8, lba: u64, len: usize) -> Vec<u8> {
    let word = lba.to_le_bytes().map(|byte| byte ^ owner);
    word.iter().copied().cycle().take(len).collect()
}

/// Bytes of one command.
const STEP: u64 = 64 << 10;

fn attach(world: &World, socket: &str) -> (Device<VfioUser>, Namespace) {
    let options = Options {
        memory_len: 16 << 20,
        ..Options::default()
    };
    let mut device = Device::connect(world.path(socket), &options).unwrap();
    device.enable().unwrap();
    let namespace = device.namespace(1).unwrap();
    (device, namespace)
}

/// Reads bytes `from..to` of a controller's namespace.
fn read(world: &World, socket: &str, from: u64, to: u64) -> Vec<u8> {
    let (mut device, namespace) = attach(world, socket);
    let block = u64::from(namespace.block_len);
    let mut queue = device.create_queue_pair(4, false).unwrap();
    let buffer = device.alloc(STEP as usize).unwrap();
    let mut all = Vec::new();
    for at in (from..to).step_by(STEP as usize) {
        let blocks = (STEP / block) as u32;
        queue.read(&namespace, at / block, blocks, &buffer).unwrap();
        let mut bytes = vec![0; STEP as usize];
        buffer.read_into(0, &mut bytes);
        all.extend(bytes);
    }
    all
}

/// A tenant writes all of its namespace.
fn fill(world: &World, socket: &str, owner: u8) {
    let (mut device, namespace) = attach(world, socket);
    let len = namespace.block_len as usize;
    let mut queue = device.create_queue_pair(4, false).unwrap();
    let buffer = device.alloc(STEP as usize).unwrap();
    let blocks = STEP / u64::from(namespace.block_len);
    for lba in (0..namespace.blocks).step_by(blocks as usize) {
        let bytes: Vec<u8> = (lba..lba + blocks)
            .flat_map(|lba| block(owner, lba, len))
            .collect();
        buffer.write_from(0, &bytes);
        queue
            .write(&namespace, lba, blocks as u32, &buffer, false)
            .unwrap();
    }
    queue.flush(1).unwrap();
}

fn expected(owner: u8, bytes: u64) -> Vec<u8> {
    (0..bytes / 512)
        .flat_map(|lba| block(owner, lba, 512))
        .collect()
}

/// The first reactor of a server, as `ls` shows it.
fn reactor(world: &World) -> serde_json::Value {
    world.json(&world.steer(&["ls", "--json"]))["reactors"][0].clone()
}

/// Ticks of a CPU that a process has used: user and system (proc_pid_stat(5)).
fn cpu_ticks(server: &mut Server) -> u64 {
    let stat = format!("/proc/{}/stat", server.child().id());
    let stat = std::fs::read_to_string(stat).unwrap();
    let behind_name = stat.rsplit_once(") ").unwrap().1;
    let field = |at: usize| {
        behind_name
            .split(' ')
            .nth(at)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    field(11) + field(12)
}

/// A drive whose reads take 5 ms: the reactor in front of it is asleep by then, and wakes when one
/// is done. One that polls would not sleep at all, and one that the drive does not wake would sleep
/// for a second.
#[test]
fn a_reactor_sleeps_while_its_drive_works_and_is_woken_by_it() {
    const READS: u64 = 100;
    let (drive, world) = (World::new(), World::new());
    let medium = "kind = \"ram\"\nsize = \"64MiB\"\n[media.timing]\npreset = \"optane-p4800x\"\n\
                  read_latency = \"5ms\"";
    let (server, mut tenants) = serve(&drive, &world, medium, "interrupt");
    let mut host = Host::attach(&world, "a");
    // The first one asks for the interrupt.
    host.time_of_read(1);
    let before = reactor(&world);
    let start = Instant::now();
    let times: Vec<Duration> = (0..READS).map(|_| host.time_of_read(1)).collect();
    let took = start.elapsed();
    let after = reactor(&world);
    let grew = |key: &str| after[key].as_u64().unwrap() - before[key].as_u64().unwrap();
    assert!(grew("sleeps") >= READS, "{} sleeps", grew("sleeps"));
    let slept = Duration::from_nanos(grew("asleep_ns"));
    assert!(slept >= took / 2, "it slept for {slept:?} of {took:?}");
    let mut times = times;
    times.sort_unstable();
    let median = times[times.len() / 2];
    assert!(median < Duration::from_millis(300), "{median:?}");
    // With nothing to do a drive costs nothing either: less than a tenth of a CPU.
    let before = cpu_ticks(&mut tenants);
    thread::sleep(Duration::from_secs(2));
    let used = cpu_ticks(&mut tenants) - before;
    assert!(used <= 20, "{used} ticks of 10 ms in 2 s");
    drop(host);
    tenants.stop();
    server.stop();
}

const RAM: &str = "kind = \"ram\"\nsize = \"64MiB\"";

/// Reactors that wait so, with the completion side of the drive on the second, or on the second and
/// the third.
fn splits(mode: &str) -> [(String, &'static str); 2] {
    let reactors = |count| format!("[[reactor]]\nmode = \"{mode}\"\n").repeat(count);
    [
        (reactors(2), "completions = 1\n"),
        (reactors(3), "completions = 1\nheads = 2\n"),
    ]
}

/// Completions of each reactor, and how often it has slept.
fn reactors(world: &World) -> Vec<(u64, u64)> {
    let all = world.json(&world.steer(&["ls", "--json"]));
    let all = all["reactors"].as_array().unwrap();
    let of = |reactor: &serde_json::Value, key: &str| reactor[key].as_u64().unwrap();
    let each = all
        .iter()
        .map(|r| (of(r, "turns_with_work"), of(r, "sleeps")));
    each.collect()
}

/// Every one that sleeps is woken by the one before: one that is not would sleep for a second.
#[test]
fn reactors_that_sleep_wake_each_other_along_a_command() {
    let medium =
        format!("{RAM}\n[media.timing]\npreset = \"optane-p4800x\"\nread_latency = \"5ms\"");
    for (reactors_of, keys) in splits("interrupt") {
        let (drive, world) = (World::new(), World::new());
        let (server, tenants) = serve_split(&drive, &world, &medium, (&reactors_of, keys));
        let mut host = Host::attach(&world, "a");
        host.time_of_read(1);
        let mut times: Vec<Duration> = (0..30).map(|_| host.time_of_read(1)).collect();
        times.sort_unstable();
        let median = times[times.len() / 2];
        assert!(median < Duration::from_millis(300), "{keys}: {median:?}");
        drop(host);
        tenants.stop();
        server.stop();
    }
}

#[test]
fn reactors_of_completions_are_checked() {
    let world = World::new();
    for (keys, said) in [
        (
            "completions = 2\n",
            "completions = 2: the reactors are 0 to 1",
        ),
        ("heads = 1\n", "write completions = 1, or remove heads"),
        ("completions = 1\nheads = 1\n", "remove heads"),
    ] {
        let text = format!(
            "[[reactor]]\n[[reactor]]\n[[media]]\nname = \"drive\"\nkind = \"drive\"\ntarget = \"vfio-user:/no.sock\"\n{keys}"
        );
        let config = world.write("wrong.toml", &text);
        let error = world.fails(&["serve", "--config", config.to_str().unwrap()]);
        assert!(error.contains(said), "{keys}: {error}");
    }
    let config = world.write(
        "ram.toml",
        "[[media]]\nname = \"ram\"\nkind = \"ram\"\nsize = \"1MiB\"\ncompletions = 0\n",
    );
    let error = world.fails(&["serve", "--config", config.to_str().unwrap()]);
    assert!(
        error.contains("only kind = \"drive\" has `completions`"),
        "{error}"
    );
}

mod slow {
    use super::*;

    #[test]
    fn a_drive_whose_completions_other_reactors_bring_has_the_same_bytes() {
        for mode in ["interrupt", "adaptive"] {
            for (reactors_of, keys) in splits(mode) {
                let (drive, world) = (World::new(), World::new());
                let (server, tenants) = serve_split(&drive, &world, RAM, (&reactors_of, keys));
                let before = reactors(&world);
                thread::scope(|scope| {
                    for (owner, (name, _, _)) in (1..).zip(PARTS) {
                        let world = &world;
                        scope.spawn(move || fill(world, name, owner));
                    }
                });
                for (owner, (name, from, to)) in (1..).zip(PARTS) {
                    let len = (to - from) * MIB;
                    assert!(
                        read(&world, name, 0, len) == expected(owner, len),
                        "{name}, {keys}"
                    );
                }
                // Each did its part, and in interrupt mode slept between.
                for (at, (before, after)) in before.iter().zip(reactors(&world)).enumerate() {
                    assert!(after.0 > before.0, "reactor {at} of {keys} did nothing");
                    assert!(
                        mode != "interrupt" || after.1 > before.1,
                        "reactor {at} of {keys}"
                    );
                }
                tenants.stop();
                server.stop();
            }
        }
    }

    /// The models of drives with blocks, each on memory, and media without time.
    #[test]
    fn tenants_fill_and_verify_their_parts_of_every_drive_of_ours() {
        let timed = |preset, size| {
            format!("kind = \"ram\"\nsize = \"{size}\"\n[media.timing]\npreset = \"{preset}\"")
        };
        for (medium, keeps) in [
            ("kind = \"null\"\nsize = \"64MiB\"".to_owned(), false),
            ("kind = \"ram\"\nsize = \"64MiB\"".to_owned(), true),
            (timed("optane-p4800x", "64MiB"), true),
            (timed("intel-p3600", "64MiB"), true),
            (timed("samsung-970-pro", "5GiB"), true),
        ] {
            let (drive, world) = (World::new(), World::new());
            let (server, tenants) = serve(&drive, &world, &medium, "adaptive");
            thread::scope(|scope| {
                for (owner, (name, _, _)) in (1..).zip(PARTS) {
                    let world = &world;
                    scope.spawn(move || fill(world, name, owner));
                }
            });
            let mut whole = vec![0; (LOOKED_AT * MIB) as usize];
            for (owner, (name, from, to)) in (1..).zip(PARTS) {
                let expected = expected(owner, (to - from) * MIB);
                let read = read(&world, name, 0, (to - from) * MIB);
                assert!(!keeps || read == expected, "{name} of {medium}");
                whole[(from * MIB) as usize..(to * MIB) as usize].copy_from_slice(&expected);
            }
            tenants.stop();
            // The drive holds each tenant's bytes at its place, and nothing anywhere else.
            let raw = read(&drive, "drive.sock", 0, LOOKED_AT * MIB);
            assert!(!keeps || raw == whole, "{medium}");
            server.stop();
        }
    }

    /// The drive's server is killed under load and started again: what was in flight is tried again
    /// by its host, on the same queues.
    #[test]
    fn a_drive_whose_completions_other_reactors_bring_is_lost_and_comes_back() {
        let (reactors_of, keys) = &splits("adaptive")[1];
        let (drive, world) = (World::new(), World::new());
        let (mut server, tenants) = serve_split(&drive, &world, RAM, (reactors_of, keys));
        let (mut device, namespace) = attach(&world, "a");
        let mut queue = device.create_queue_pair(4, false).unwrap();
        let [buffer, back] = [0, 1].map(|_| device.alloc(4096).unwrap());
        buffer.write_from(0, &block(7, 0, 4096));
        // Its queue goes to the reactors that do those parts, and back.
        for (lba, to) in (0..).step_by(8).zip(["1", "2", "0"]) {
            world.ok(&world.steer(&["move", "a", to]));
            queue.write(&namespace, lba, 8, &buffer, false).unwrap();
            queue.read(&namespace, lba, 8, &back).unwrap();
            let mut bytes = vec![0; 4096];
            back.read_into(0, &mut bytes);
            assert_eq!(bytes, block(7, 0, 4096), "on reactor {to}");
            back.zero();
        }
        server.child().kill().unwrap();
        server.end();
        let error = queue.write(&namespace, 0, 8, &buffer, false).unwrap_err();
        // Command Interrupted: to be tried again (Base 2.1, figure 102).
        let interrupted = matches!(&error, DriverError::Status { status, .. } if *status == Status::COMMAND_INTERRUPTED);
        assert!(interrupted, "{error}");
        let server = serve_drive(&drive, RAM);
        let deadline = Instant::now() + Duration::from_secs(30);
        while let Err(error) = queue.write(&namespace, 8, 8, &buffer, false) {
            assert!(Instant::now() < deadline, "it does not come back: {error}");
        }
        drop((queue, device));
        let given_up = || tenants.log().matches("is abandoned").count();
        let before = given_up();
        // It goes in order: no queue has to be abandoned for that.
        let steer = |args: &[&str]| world.steer(args);
        for (name, _, _) in PARTS {
            world.ok(&steer(&["delete", "controller", name]));
            world.ok(&steer(&["delete", "namespace", name]));
        }
        world.ok(&steer(&["delete", "media", "drive"]));
        assert_eq!(given_up(), before, "{}", tenants.log());
        tenants.stop();
        server.stop();
    }
}

//! `migration = true`: a host moves its controller from one server to another over the same file.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use driver::bus::movable::{Movable, MoveError};
use driver::io::Namespace;
use driver::{Device, Options, QueuePair};
use nvme_spec::Sqe;
use nvme_spec::opcode::AdminOpcode;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use vfio_user::message::MigrationState;
use vfio_user::{Client, ClientError};

use crate::survive::replace;
use crate::world::{BOUND, Server, World, ran};

const MIB: u64 = 1 << 20;

/// Differences between the configurations of two servers.
#[derive(Clone)]
struct Keys {
    name: &'static str,
    file: &'static str,
    size: &'static str,
    serial: &'static str,
    migration: bool,
    mode: &'static str,
    /// Whether the I/O queues are on another reactor than the controller.
    apart: bool,
    survive: bool,
    /// Of the medium.
    direct: &'static str,
    doorbells: &'static str,
}

const A: Keys = Keys {
    name: "a",
    file: "disk.img",
    size: "16MiB",
    serial: "S1",
    migration: true,
    mode: "adaptive",
    apart: false,
    survive: false,
    direct: "auto",
    doorbells: "auto",
};
const B: Keys = Keys { name: "b", ..A };

impl Keys {
    fn control(&self, world: &World) -> String {
        world.unix(&format!("{}.control", self.name))
    }

    fn socket(&self) -> String {
        format!("{}.sock", self.name)
    }

    fn path(&self, world: &World) -> PathBuf {
        world.path(&self.socket())
    }

    fn serve(&self, world: &World) -> Server {
        let Keys {
            name,
            file,
            size,
            serial,
            migration,
            mode,
            apart,
            survive,
            direct,
            doorbells,
        } = self;
        let (second, reactors) = if *apart {
            ("[[reactor]]", "reactors = [1]")
        } else {
            ("", "")
        };
        let text = format!(
            r#"
            state_dir = "{}"
            control = "{}"
            [[reactor]]
            mode = "{mode}"
            {second}
            [[media]]
            name = "disk"
            kind = "file"
            path = "{}"
            size = "{size}"
            direct = "{direct}"
            [[namespace]]
            name = "ns"
            media = "disk"
            nguid = "0123456789abcdef0123456789abcdef"
            eui64 = "0123456789abcdef"
            [[controller]]
            name = "{name}"
            namespaces = ["ns"]
            listen = "{}"
            serial = "{serial}"
            subnqn = "nqn.2026-01.org.example:s1"
            queues = 4
            reactor = 0
            {reactors}
            migration = {migration}
            doorbells = "{doorbells}"
            "#,
            world.path(&format!("{name}.state")).display(),
            self.control(world),
            world.path(file).display(),
            world.vfio_user(&self.socket()),
        );
        let config = world.write(&format!("{name}.toml"), &text);
        let mut command = world.program();
        command.arg("serve").arg("--config").arg(config);
        if *survive {
            command.arg("--survive");
        }
        Server::start(command, world.path(&format!("{name}.log")))
    }
}

/// A command line that moves a drive.
fn migrate(world: &World, from: &Keys, to: &Keys, more: &[&str]) -> Vec<String> {
    let (from, to) = (
        world.vfio_user(&from.socket()),
        world.vfio_user(&to.socket()),
    );
    let args = ["migrate", "--from", &from, "--to", &to];
    args.iter()
        .chain(more)
        .map(|arg| (*arg).to_owned())
        .collect()
}

const VERIFY: &[&str] = &["--verify", "--destroy-data", "--size", "16MiB"];

/// A host that may move.
struct Host {
    device: Device<Movable>,
    queue: QueuePair<Movable>,
    namespace: Namespace,
}

impl Host {
    fn attach(world: &World, at: &Keys) -> Self {
        let options = Options::default();
        let bus = Movable::connect(&at.path(world), options.timeout).unwrap();
        let mut device = Device::open(bus, &options).unwrap();
        device.enable().unwrap();
        let namespace = device.namespace(1).unwrap();
        let queue = device.create_queue_pair(16, false).unwrap();
        Host {
            device,
            queue,
            namespace,
        }
    }

    fn write(&mut self, lba: u64, byte: u8) {
        let buffer = self.device.alloc(4096).unwrap();
        buffer.fill(byte);
        let namespace = self.namespace;
        self.queue
            .write(&namespace, lba, 1, &buffer, false)
            .unwrap();
    }

    fn expect(&mut self, lba: u64, byte: u8) {
        let buffer = self.device.alloc(4096).unwrap();
        let namespace = self.namespace;
        self.queue.read(&namespace, lba, 1, &buffer).unwrap();
        let mut bytes = [0; 4096];
        buffer.read_into(0, &mut bytes);
        assert!(bytes == [byte; 4096], "block {lba} is not all {byte:#x}");
    }

    fn move_to(&self, world: &World, to: &Keys) -> Result<(), MoveError> {
        self.device.bus().move_to(&to.path(world)).map(drop)
    }

    /// A move that fails, after which the drive goes on where it is; why.
    fn stays(&mut self, world: &World, to: &Keys) -> String {
        self.write(9, 0x11);
        let refused = self.move_to(world, to).unwrap_err();
        assert!(matches!(refused, MoveError::Stayed(_)), "{refused}");
        self.expect(9, 0x11);
        self.write(9, 0x12);
        self.expect(9, 0x12);
        // The admin queue, too.
        self.device.identify_controller().unwrap();
        refused.to_string()
    }
}

fn wait_for_log(server: &Server, text: &str) {
    let deadline = Instant::now() + BOUND;
    while !server.log().contains(text) {
        assert!(Instant::now() < deadline, "no {text:?}: {}", server.log());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The first events of a server.
fn events(world: &World, of: &Keys, count: usize) -> Vec<String> {
    let (control, count) = (of.control(world), count.to_string());
    let args = ["events", "--since", "0", "--count", &count, "--json"];
    let events = world.ok(&[&args[..], &["--control", &control]].concat());
    let events = events.lines().map(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        event["event"].as_str().unwrap().to_owned()
    });
    events.collect()
}

#[test]
fn a_drive_moves_there_and_back_and_every_byte_is_right() {
    let world = World::new();
    for mode in ["adaptive", "poll"] {
        let (a, b) = (Keys { mode, ..A }, Keys { mode, ..B });
        let (here, there) = (a.serve(&world), b.serve(&world));
        wait_for_log(&there, "another server has its media");
        let moved = world.json(&migrate(&world, &a, &b, &[VERIFY, &["--json"]].concat()));
        let number = |key: &str| moved[key].as_u64().unwrap();
        assert!(
            number("commands_before") > 0 && number("commands_after") > 0,
            "{moved}"
        );
        assert!(number("blocks_verified") > 100, "{moved}");
        assert!(number("state_bytes") > 4096, "{moved}");
        assert!(number("pause_ns") >= number("stop_ns"), "{moved}");
        assert_eq!(number("memory_rounds"), 6, "{moved}");
        let all = (32 << 20) / 4096;
        let pages = number("memory_pages");
        assert!(pages > all && pages < 2 * all, "{moved}");
        let last = number("memory_pages_stopped");
        assert!(last > 0 && last < all, "{moved}");
        let file = fs::read(world.path("disk.img")).unwrap();
        // Without --verify nothing is written.
        let shown = world.ok(&migrate(&world, &b, &a, &[]));
        assert!(
            shown.contains("verified  none") && shown.contains("pause "),
            "{shown}"
        );
        assert!(fs::read(world.path("disk.img")).unwrap() == file);
        here.stop();
        there.stop();
    }
}

#[test]
fn a_copy_begins_again_where_the_process_with_the_log_has_died() {
    let world = World::new();
    let a = Keys { survive: true, ..A };
    let (mut here, there) = (a.serve(&world), B.serve(&world));
    let mut host = Host::attach(&world, &a);
    host.write(1, 0x11);
    host.write(2, 0x22);
    let bus = host.device.shared_bus().clone();
    let mut copy = bus.copy_memory().unwrap();
    let all = copy.last_pages;
    let buffer = host.device.alloc(4096).unwrap();
    let namespace = host.namespace;
    host.queue.read(&namespace, 1, 1, &buffer).unwrap();
    let few = bus.copy_written(&mut copy).unwrap();
    assert!(few > 0 && few < all, "{few}");
    // This read is in the log of a process that dies.
    host.queue.read(&namespace, 2, 1, &buffer).unwrap();
    replace(&mut here);
    assert_eq!(
        bus.copy_written(&mut copy).unwrap(),
        all,
        "all memory again"
    );
    bus.move_copied(&B.path(&world), &mut copy).unwrap();
    let mut bytes = [0; 4096];
    buffer.read_into(0, &mut bytes);
    assert!(bytes == [0x22; 4096], "a page of the copy is missing");
    host.expect(1, 0x11);
    host.write(3, 0x33);
    host.expect(3, 0x33);
    host.device.identify_controller().unwrap();
    drop(host);
    here.stop();
    there.stop();
}

#[test]
fn events_say_who_has_the_medium() {
    let world = World::new();
    let (_here, _there) = (A.serve(&world), B.serve(&world));
    let mut host = Host::attach(&world, &A);
    host.write(1, 1);
    host.move_to(&world, &B).unwrap();
    host.expect(1, 1);
    let here = ["host-attached", "media-released", "host-detached"];
    assert_eq!(events(&world, &A, 3), here);
    assert_eq!(events(&world, &B, 2), ["host-attached", "media-claimed"]);
}

#[test]
fn a_drive_stays_where_the_target_is_another_drive() {
    let world = World::new();
    let here = A.serve(&world);
    let mut host = Host::attach(&world, &A);
    let others = [
        (
            Keys { serial: "S2", ..B },
            "another drive: it has serial S1",
        ),
        (
            Keys {
                file: "larger.img",
                size: "32MiB",
                ..B
            },
            "it has namespace 1 of 4096 blocks",
        ),
        (
            Keys {
                file: "other.img",
                ..B
            },
            "of another medium",
        ),
    ];
    for (other, why) in others {
        let there = other.serve(&world);
        let refused = host.stays(&world, &other);
        assert!(refused.contains("(RUNNING)"), "{refused}");
        wait_for_log(&there, why);
        there.stop();
    }
    let other = Keys {
        migration: false,
        file: "other.img",
        ..B
    };
    let there = other.serve(&world);
    let refused = host.stays(&world, &other);
    assert!(refused.contains("write migration = true"), "{refused}");
    let none = Keys { name: "none", ..A };
    let refused = host.stays(&world, &none);
    assert!(refused.contains("cannot connect"), "{refused}");
    there.stop();
    drop(host);
    here.stop();
}

#[test]
fn the_command_reports_what_it_could_not_do() {
    let world = World::new();
    let (a, b) = (
        Keys {
            migration: false,
            ..A
        },
        Keys { serial: "S2", ..B },
    );
    let here = a.serve(&world);
    let refused = world.fails(&migrate(&world, &a, &b, &[]));
    assert!(refused.contains("write migration = true"), "{refused}");
    here.stop();
    let (here, there) = (A.serve(&world), b.serve(&world));
    // Every byte is checked all the same.
    let refused = world.fails(&migrate(&world, &A, &b, VERIFY));
    assert!(
        refused.contains("the drive stays at its server"),
        "{refused}"
    );
    let refused = world.run(&migrate(&world, &A, &b, &["--verify"]));
    assert_eq!(refused.status.code(), Some(2), "{}", refused.err);
    assert!(refused.err.contains("--destroy-data"), "{}", refused.err);
    let refused = world.fails(&migrate(&world, &A, &A, &[]));
    assert!(refused.contains("the same server"), "{refused}");
    here.stop();
    there.stop();
}

#[test]
fn a_signal_before_the_move_leaves_the_drive_where_it_is() {
    let world = World::new();
    let (here, there) = (A.serve(&world), B.serve(&world));
    let args = migrate(&world, &A, &B, &[VERIFY, &["--runtime", "600"]].concat());
    let mut command = world.program();
    let child = command
        .args(&args)
        .stderr(Stdio::piped())
        .stdout(Stdio::piped());
    let child = child.spawn().unwrap();
    wait_for_log(&here, "host attached");
    std::thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = ran(child.wait_with_output().unwrap());
    assert_eq!(ended.status.code(), Some(130), "{}", ended.err);
    assert!(
        ended.err.contains("interrupted before the move"),
        "{}",
        ended.err
    );
    assert_eq!(ended.out, "");
    let mut host = Host::attach(&world, &A);
    host.write(1, 1);
    host.expect(1, 1);
    drop(host);
    here.stop();
    there.stop();
}

#[test]
fn what_does_not_move_keeps_the_drive_where_it_is() {
    let world = World::new();
    let (here, _there) = (A.serve(&world), B.serve(&world));
    let mut host = Host::attach(&world, &A);
    // Set Features of Reservation Persistence (Base 2.1, 5.1.25.1.30).
    let persist = Sqe {
        opcode: AdminOpcode::SET_FEATURES.0,
        nsid: 1,
        cdw10: 0x83,
        cdw11: 1,
        ..Sqe::default()
    };
    host.device.admin(persist, None).unwrap();
    let refused = host.stays(&world, &B);
    assert!(refused.contains("(STOP_COPY)"), "{refused}");
    wait_for_log(&here, "namespace 1 has, or had, reservations");
}

fn client(world: &World, at: &Keys) -> Client {
    Client::connect(at.path(world), Duration::from_secs(10)).unwrap()
}

const WAIT: Duration = Duration::from_secs(10);

fn set(client: &mut Client, state: MigrationState) -> Result<(), ClientError> {
    client.set_migration_state(state, WAIT)
}

fn read_state(client: &mut Client) -> Vec<u8> {
    let mut state = Vec::new();
    loop {
        let piece = client.read_migration_data(5000, WAIT).unwrap();
        state.extend_from_slice(&piece);
        if piece.len() < 5000 {
            return state;
        }
    }
}

#[test]
fn a_damaged_state_and_a_dead_target_leave_the_drive_to_its_server() {
    let world = World::new();
    let (here, mut there) = (A.serve(&world), B.serve(&world));
    let mut source = client(&world, &A);
    set(&mut source, MigrationState::STOP_COPY).unwrap();
    let state = read_state(&mut source);
    let mut flipped = state.clone();
    flipped[state.len() / 2] ^= 0x10;
    for (wrong, why) in [
        (&state[..state.len() - 1], "the end of the state is missing"),
        (&flipped[..], "its checksum is wrong"),
        (
            b"not a state at all, and still long enough".as_slice(),
            "are not the state",
        ),
    ] {
        let mut target = client(&world, &B);
        set(&mut target, MigrationState::RESUMING).unwrap();
        for piece in wrong.chunks(3000) {
            target.write_migration_data(piece, WAIT).unwrap();
        }
        let refused = set(&mut target, MigrationState::RUNNING).unwrap_err();
        assert!(matches!(refused, ClientError::Refused(22)), "{refused}");
        let now = target.migration_state(WAIT).unwrap();
        assert_eq!(now, MigrationState::ERROR);
        wait_for_log(&there, why);
        set(&mut source, MigrationState::RUNNING).unwrap();
        set(&mut source, MigrationState::STOP_COPY).unwrap();
        assert_eq!(read_state(&mut source).len(), state.len());
    }
    let mut target = client(&world, &B);
    set(&mut target, MigrationState::RESUMING).unwrap();
    target.write_migration_data(&state[..1000], WAIT).unwrap();
    there.signal(Signal::KILL);
    let _ = there.child().wait().unwrap();
    set(&mut source, MigrationState::RUNNING).unwrap();
    drop(source);
    drop(there);
    // The drive works, and moves to a target that lives.
    fs::remove_file(B.path(&world)).unwrap();
    let there = B.serve(&world);
    world.ok(&migrate(&world, &A, &B, VERIFY));
    here.stop();
    there.stop();
}

#[test]
fn a_host_that_leaves_a_stopped_drive_leaves_a_usable_one() {
    let world = World::new();
    let here = A.serve(&world);
    let mut host = Host::attach(&world, &A);
    host.write(3, 0x33);
    drop(host);
    for last in [
        MigrationState::STOP,
        MigrationState::STOP_COPY,
        MigrationState::RESUMING,
    ] {
        let mut source = client(&world, &A);
        set(&mut source, last).unwrap();
        drop(source);
        let mut host = Host::attach(&world, &A);
        host.expect(3, 0x33);
        host.write(4, 0x44);
        host.expect(4, 0x44);
    }
    here.stop();
}

#[test]
fn a_server_without_the_medium_serves_when_the_other_one_has_ended() {
    let world = World::new();
    let (here, there) = (A.serve(&world), B.serve(&world));
    let mut host = Host::attach(&world, &A);
    host.write(3, 0x33);
    let bus = Movable::connect(&B.path(&world), WAIT).unwrap();
    let mut other = Device::open(bus, &Options::default()).unwrap();
    let refused = other.enable().unwrap_err();
    assert!(refused.to_string().contains("fatal"), "{refused}");
    drop(other);
    let control = B.control(&world);
    let listed = world.ok(&["ls", "--control", &control]);
    assert!(listed.contains("in use by another server"), "{listed}");
    let refused = world.fails(&["detach", "ns", "b", "--detach-hosts", "--control", &control]);
    assert!(
        refused.contains("another server has the media"),
        "{refused}"
    );
    drop(host);
    here.stop();
    let mut host = Host::attach(&world, &B);
    host.expect(3, 0x33);
    drop(host);
    there.stop();
}

#[test]
fn a_drive_that_has_moved_survives_the_death_of_its_server_s_process() {
    let world = World::new();
    let (a, b) = (Keys { survive: true, ..A }, Keys { survive: true, ..B });
    let (mut here, mut there) = (a.serve(&world), b.serve(&world));
    let mut host = Host::attach(&world, &a);
    host.write(1, 0x11);
    replace(&mut here);
    host.expect(1, 0x11);
    host.move_to(&world, &b).unwrap();
    host.write(2, 0x22);
    replace(&mut there);
    host.expect(1, 0x11);
    host.expect(2, 0x22);
    host.write(3, 0x33);
    host.device.identify_controller().unwrap();
    host.move_to(&world, &a).unwrap();
    for block in 1..4 {
        host.expect(block, 0x11 * block as u8);
    }
    drop(host);
    there.stop();
    here.stop();
    let file = fs::File::open(world.path("disk.img")).unwrap();
    let mut bytes = [0; 4096];
    file.read_exact_at(&mut bytes, 3 * 4096).unwrap();
    assert!(bytes == [0x33; 4096]);
    assert_eq!(file.metadata().unwrap().len(), 16 * MIB);
}

#[test]
fn a_source_that_dies_without_its_medium_goes_on_with_nothing() {
    let world = World::new();
    let (a, b) = (Keys { survive: true, ..A }, B);
    let (mut here, there) = (a.serve(&world), b.serve(&world));
    let mut source = client(&world, &a);
    set(&mut source, MigrationState::STOP_COPY).unwrap();
    let state = read_state(&mut source);
    let mut target = client(&world, &b);
    set(&mut target, MigrationState::RESUMING).unwrap();
    target.write_migration_data(&state, WAIT).unwrap();
    set(&mut target, MigrationState::RUNNING).unwrap();
    replace(&mut here);
    wait_for_log(&here, "its host finds a fatal status here");
    // CSTS.CFS (Base 2.1, 3.1.4.6)
    let mut status = [0; 4];
    source.region_read(0, 0x1c, &mut status).unwrap();
    assert_eq!(status[0] & 2, 2);
    assert_eq!(
        target.migration_state(WAIT).unwrap(),
        MigrationState::RUNNING
    );
    drop(target);
    there.stop();
    // The medium is free: a reset takes it.
    source.reset().unwrap();
    drop(source);
    let mut host = Host::attach(&world, &a);
    host.write(1, 7);
    host.expect(1, 7);
    drop(host);
    here.stop();
}

mod slow {
    use super::*;

    #[test]
    fn a_copy_of_the_memory_is_complete_however_it_was_written() {
        let world = World::new();
        for (direct, doorbells) in [("on", "mapped"), ("off", "unmapped"), ("on", "trapped")] {
            for apart in [false, true] {
                let keys = |of: Keys| Keys {
                    direct,
                    doorbells,
                    apart,
                    ..of
                };
                let (a, b) = (keys(A), keys(B));
                let (here, there) = (a.serve(&world), b.serve(&world));
                let more = [VERIFY, &["--qd", "64", "--runtime", "1"]].concat();
                world.ok(&migrate(&world, &a, &b, &more));
                world.ok(&migrate(&world, &b, &a, &more));
                here.stop();
                there.stop();
            }
        }
    }

    #[test]
    fn queues_on_another_reactor_move_again_and_again() {
        let world = World::new();
        let mut pair = [Keys { apart: true, ..A }, Keys { apart: true, ..B }];
        let (here, there) = (pair[0].serve(&world), pair[1].serve(&world));
        for _ in 0..8 {
            // A server that let its queues go on before they are gone would take the host's
            // commands.
            let more = [VERIFY, &["--qd", "64", "--runtime", "1"]].concat();
            world.ok(&migrate(&world, &pair[0], &pair[1], &more));
            pair.reverse();
        }
        here.stop();
        there.stop();
    }
}

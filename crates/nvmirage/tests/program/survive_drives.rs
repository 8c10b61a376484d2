//! `serve --survive` over a drive: tenants keep their parts of it when the process between them
//! and the drive dies.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use driver::bus::vfio_user::VfioUser;
use driver::io::{Blocks, Namespace};
use driver::{Device, DriverError, Options, QueuePair};
use memory::Buffer;
use nvme_spec::Status;
use nvme_spec::opcode::NvmOpcode;
use rustix::process::{Signal, kill_process};

use crate::host::Host;
use crate::survive::{replace, wait_for_log, worker};
use crate::world::{BOUND, Server, World};

/// The parts of the tenants, in MiB, and all of the drive that is looked at.
const PARTS: [(&str, u64, u64); 2] = [("a", 4, 12), ("b", 16, 24)];
const LOOKED_AT: u64 = 28;
const MIB: u64 = 1 << 20;
/// Bytes of one command of those that look at a whole part.
const STEP: u64 = 64 << 10;

/// A server with the drive, and one with its tenants.
struct Pair {
    drive: World,
    world: World,
}

impl Pair {
    fn new() -> Pair {
        Pair {
            drive: World::new(),
            world: World::new(),
        }
    }

    fn target(&self) -> String {
        self.drive.vfio_user("drive.sock")
    }

    /// Serves a medium as the drive.
    fn serve_drive(&self, medium: &str, options: &[&str]) -> Server {
        let text = format!(
            "[[media]]\nname = \"medium\"\n{medium}\n\
             [[namespace]]\nname = \"all\"\nmedia = \"medium\"\nlba_size = 512\n\
             [[controller]]\nname = \"drive\"\nnamespaces = [\"all\"]\nlisten = \"{}\"\n\
             doorbells = \"mapped\"\n",
            self.target()
        );
        let config = self.drive.write("drive.toml", &text);
        let config = ["--config", config.to_str().unwrap()];
        self.drive.serve(&[&config[..], options].concat())
    }

    /// Serves the tenants, who survive.
    fn serve_tenants(&self) -> Server {
        let target = self.target();
        let mut text =
            format!("[[media]]\nname = \"drive\"\nkind = \"drive\"\ntarget = \"{target}\"\n");
        for (name, from, to) in PARTS {
            write!(
                text,
                "[[namespace]]\nname = \"{name}\"\nmedia = \"drive\"\nlba_size = 512\n\
                 range = \"{from}MiB..{to}MiB\"\n\
                 [[controller]]\nname = \"{name}\"\nnamespaces = [\"{name}\"]\nlisten = \"{}\"\n",
                self.world.vfio_user(name)
            )
            .unwrap();
        }
        let config = self.world.write("tenants.toml", &text);
        let config = config.to_str().unwrap();
        self.world.serve(&["--survive", "--config", config])
    }

    /// A tenant reads and writes random blocks, and knows what each must hold.
    fn verify(&self, tenant: &str, size: &str, time: &str) {
        let target = self.world.vfio_user(tenant);
        let job = ["bench", "--target", &target, "--destroy-data", "--verify"];
        let load = ["--rw", "randrw", "--bs", size, "--qd", "16", "--time", time];
        self.world.ok(&[&job[..], &load].concat());
    }

    /// Runs both tenants for some seconds, and `meanwhile`.
    fn under_load(&self, time: &str, meanwhile: impl FnOnce()) {
        thread::scope(|scope| {
            let sizes = PARTS.iter().zip(["4KiB", "64KiB"]);
            let hosts: Vec<_> = sizes
                .map(|((name, ..), size)| scope.spawn(move || self.verify(name, size, time)))
                .collect();
            meanwhile();
            let is_over = hosts.iter().any(thread::ScopedJoinHandle::is_finished);
            hosts.into_iter().for_each(|host| host.join().unwrap());
            assert!(
                !is_over,
                "the load ended before what was to happen under it"
            );
        });
    }

    /// Each tenant reads the data at its place in the drive, and nothing is anywhere else.
    /// The tenants' server has ended: a drive has one host.
    fn check(&self, read: &[Vec<u8>]) {
        let raw = read_all(&self.drive, "drive.sock", LOOKED_AT * MIB);
        let mut expected = vec![0; (LOOKED_AT * MIB) as usize];
        for ((_, from, to), bytes) in PARTS.iter().zip(read) {
            expected[(from * MIB) as usize..(to * MIB) as usize].copy_from_slice(bytes);
        }
        let differs = raw.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differs, None, "the first byte that is wrong");
    }

    fn read_parts(&self) -> Vec<Vec<u8>> {
        let parts = PARTS.iter();
        let parts = parts.map(|(name, from, to)| read_all(&self.world, name, (to - from) * MIB));
        parts.collect()
    }
}

/// Replaced processes: how many commands they have executed again, and ended as interrupted.
fn replays(server: &Server) -> Vec<(u64, u64)> {
    let log = server.log();
    let lines = log
        .lines()
        .filter(|line| line.contains("commands of the last process are executed again"));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let before = |word: &str| {
                let at = words.iter().position(|w| *w == word).unwrap();
                words[at - 1].parse().unwrap()
            };
            (before("commands"), before("ended"))
        })
        .collect()
}

/// A host with one queue.
struct Tenant {
    queue: QueuePair<VfioUser>,
    namespace: Namespace,
    buffer: Buffer,
    _device: Device<VfioUser>,
}

impl Tenant {
    fn attach(world: &World, socket: &str) -> Tenant {
        let options = Options {
            memory_len: 16 << 20,
            ..Options::default()
        };
        let mut device = Device::connect(world.path(socket), &options).unwrap();
        device.enable().unwrap();
        let mut queue = device.create_queue_pair(32, false).unwrap();
        queue.set_timeout(BOUND);
        Tenant {
            queue,
            namespace: device.namespace(1).unwrap(),
            buffer: device.alloc(STEP as usize).unwrap(),
            _device: device,
        }
    }

    /// Writes a block of 4 KiB, and waits; what that ended with.
    fn write(&mut self, lba: u64, byte: u8) -> Result<(), Status> {
        self.buffer.write_from(0, &[byte; 4096]);
        let (queue, at) = (&mut self.queue, &self.namespace);
        match queue.write(at, lba, 8, &self.buffer, false) {
            Ok(_) => Ok(()),
            Err(DriverError::Status { status, .. }) => Err(status),
            Err(error) => panic!("{error}"),
        }
    }

    fn read(&mut self, lba: u64) -> Vec<u8> {
        let (queue, at) = (&mut self.queue, &self.namespace);
        queue.read(at, lba, 8, &self.buffer).unwrap();
        let mut bytes = vec![0; 4096];
        self.buffer.read_into(0, &mut bytes);
        bytes
    }

    /// Submits writes of 4 KiB to `count` places, and does not wait.
    fn begin(&mut self, count: u64, byte: u8) {
        self.buffer.write_from(0, &[byte; 4096]);
        for lba in (0..count).map(|at| at * 8) {
            let blocks = Blocks::new(8).unwrap();
            let mut sqe = self
                .namespace
                .transfer(NvmOpcode::WRITE, lba, blocks, false);
            sqe.prp1 = self.queue.iova(&self.buffer).0;
            self.queue.submit(sqe).unwrap();
        }
        self.queue.ring().unwrap();
    }

    /// Waits for the completions of `count` commands.
    fn finish(&mut self, count: u64) -> Vec<Status> {
        let deadline = Instant::now() + BOUND;
        let mut ended = Vec::new();
        while ended.len() < count as usize {
            assert!(Instant::now() < deadline, "{} have ended", ended.len());
            self.queue.poll().unwrap();
            while let Some(cqe) = self.queue.next_completion() {
                ended.push(cqe.status.status());
            }
        }
        ended
    }
}

fn read_all(world: &World, socket: &str, len: u64) -> Vec<u8> {
    let mut host = Tenant::attach(world, socket);
    let block = u64::from(host.namespace.block_len);
    let mut all = Vec::new();
    for at in (0..len).step_by(STEP as usize) {
        let (queue, blocks) = (&mut host.queue, (STEP / block) as u32);
        queue
            .read(&host.namespace, at / block, blocks, &host.buffer)
            .unwrap();
        let mut bytes = vec![0; STEP as usize];
        host.buffer.read_into(0, &mut bytes);
        all.extend(bytes);
    }
    all
}

const RAM: &str = "kind = \"ram\"\nsize = \"64MiB\"";
/// A drive whose writes take long enough that some are always there when their host's server dies.
const SLOW: &str = "kind = \"ram\"\nsize = \"64MiB\"\n[media.timing]\npreset = \"optane-p4800x\"\n\
                    write_latency = \"30ms\"";

#[test]
fn commands_at_a_drive_are_executed_again_after_each_death() {
    for medium in [RAM, SLOW] {
        let pair = Pair::new();
        let drive = pair.serve_drive(medium, &[]);
        let mut tenants = pair.serve_tenants();
        pair.under_load("8s", || (0..3).for_each(|_| replace(&mut tenants)));
        let replays = replays(&tenants);
        assert_eq!(replays.len(), 3);
        assert!(replays.iter().all(|(_, interrupted)| *interrupted == 0));
        let again: u64 = replays.iter().map(|(again, _)| again).sum();
        // Memory may have completed all of them.
        assert!(again > 0 || medium == RAM, "something was in flight");
        assert!(!tenants.log().contains("is lost"), "{}", tenants.log());
        let read = pair.read_parts();
        tenants.stop();
        pair.check(&read);
        drive.stop();
    }
}

/// The fence: a host of a drive of ours is not served before the commands of the one before it
/// have ended, so none of them takes effect after one of its own.
#[test]
fn a_drive_serves_its_next_host_when_the_commands_of_the_last_one_have_ended() {
    const LATENCY: Duration = Duration::from_millis(1500);
    let slow = "kind = \"ram\"\nsize = \"64MiB\"\n[media.timing]\npreset = \"optane-p4800x\"\n\
                write_latency = \"1500ms\"";
    let pair = Pair::new();
    let drive = pair.serve_drive(slow, &[]);
    let mut last = Tenant::attach(&pair.drive, "drive.sock");
    let begun = Instant::now();
    last.begin(8, 1);
    thread::sleep(Duration::from_millis(100));
    // Its socket closes as that of a process that dies.
    drop(last);
    let mut next = Tenant::attach(&pair.drive, "drive.sock");
    let waited = begun.elapsed();
    assert!(waited >= LATENCY, "it is served after {waited:?}");
    assert!(
        waited < LATENCY + BOUND / 3,
        "it is served after {waited:?}"
    );
    for lba in (0..8).map(|at| at * 8) {
        assert_eq!(next.read(lba), [1; 4096], "block {lba}");
    }
    next.begin(8, 2);
    assert_eq!(next.finish(8), [Status::SUCCESSFUL_COMPLETION; 8]);
    for lba in (0..8).map(|at| at * 8) {
        assert_eq!(next.read(lba), [2; 4096], "block {lba}");
    }
    drop(next);
    drive.stop();
}

/// The drive of the next test: its writes take that long.
const HELD: Duration = Duration::from_millis(1500);

/// Nothing is answered before the drive has ended what the dead process has asked it for: not even
/// an unmap of memory that the drive may still write to.
#[test]
fn hosts_continue_when_the_drive_has_ended_the_commands_of_the_dead_process() {
    let slow = SLOW.replace("30ms", &format!("{}ms", HELD.as_millis()));
    let pair = Pair::new();
    let drive = pair.serve_drive(&slow, &[]);
    let mut tenants = pair.serve_tenants();
    let mut host = Tenant::attach(&pair.world, "a");
    host.begin(8, 1);
    thread::sleep(HELD / 5);
    kill_process(worker(&mut tenants, None), Signal::KILL).unwrap();
    wait_for_log(&tenants, "hosts continue after", 1);
    let log = tenants.log();
    let pause = log.split("hosts continue after ").nth(1).unwrap();
    let pause: u64 = pause.split(' ').next().unwrap().parse().unwrap();
    assert!(
        pause >= 1000,
        "{pause} ms: less than the rest of the writes"
    );
    assert_eq!(host.finish(8), [Status::SUCCESSFUL_COMPLETION; 8]);
    assert_eq!(replays(&tenants), [(8, 0)]);
    for lba in (0..8).map(|at| at * 8) {
        assert_eq!(host.read(lba), [1; 4096], "block {lba}");
    }
    drop(host);
    tenants.stop();
    drive.stop();
}

/// The table of partitions is in a file that the next process opens.
#[test]
fn partitions_of_a_drive_are_the_same_after_a_death() {
    let pair = Pair::new();
    let (world, target) = (&pair.world, pair.target());
    let drive = pair.serve_drive(RAM, &[]);
    world.ok(&["partition", "create", &target, "vm1", "8MiB"]);
    let text = format!(
        "[[media]]\nname = \"drive\"\nkind = \"drive\"\ntarget = \"{target}\"\n\
         [[namespace]]\nname = \"vm1\"\nmedia = \"drive\"\npartition = \"vm1\"\nlba_size = 512\n\
         [[controller]]\nname = \"vm1\"\nnamespaces = [\"vm1\"]\nlisten = \"{}\"\n",
        world.vfio_user("vm1")
    );
    let config = world.write("tenants.toml", &text);
    let mut tenants = world.serve(&["--survive", "--config", config.to_str().unwrap()]);
    let mut host = Host::attach(world, "vm1");
    host.fill(1, 3, 0x5a);
    replace(&mut tenants);
    assert_eq!(host.size(1), (8 << 20, 512));
    assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
    world.ok(&world.steer(&["partition", "resize", "drive", "vm1", "16MiB"]));
    replace(&mut tenants);
    assert_eq!(host.size(1), (16 << 20, 512));
    assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
    drop(host);
    tenants.stop();
    drive.stop();
}

mod slow {
    use super::*;

    /// The drive's server dies, and the tenants' process before it could notice: hosts get what
    /// they get when a drive is lost, and the drive is used when it is back.
    #[test]
    fn a_drive_that_is_gone_when_its_host_dies_costs_commands_and_comes_back() {
        let pair = Pair::new();
        let medium = "kind = \"file\"\npath = \"drive.img\"\nsize = \"64MiB\"";
        let mut drive = pair.serve_drive(medium, &[]);
        let mut tenants = pair.serve_tenants();
        let mut host = Tenant::attach(&pair.world, "a");
        assert_eq!(host.write(0, 7), Ok(()));
        drive.child().kill().unwrap();
        drive.end();
        kill_process(worker(&mut tenants, None), Signal::KILL).unwrap();
        wait_for_log(&tenants, "hosts continue after", 1);
        let since = Instant::now();
        host.begin(4, 8);
        assert_eq!(host.finish(4), [Status::COMMAND_INTERRUPTED; 4]);
        let took = since.elapsed();
        assert!(took < Duration::from_secs(10), "{took:?}");
        wait_for_log(&tenants, "a drive that the last process had is lost", 1);
        let said = tenants.log();
        assert!(said.contains("check that the server is running"), "{said}");
        // It dies once more without the drive.
        replace(&mut tenants);
        assert_eq!(host.write(0, 9), Err(Status::COMMAND_INTERRUPTED));
        let drive = pair.serve_drive(medium, &[]);
        wait_for_log(&tenants, "a drive is back", 1);
        let deadline = Instant::now() + BOUND;
        while let Err(status) = host.write(8, 9) {
            assert_eq!(status, Status::COMMAND_INTERRUPTED);
            assert!(Instant::now() < deadline, "it does not come back");
        }
        assert_eq!(host.read(8), [9; 4096]);
        assert_eq!(host.read(0), [7; 4096], "nothing else was written");
        replace(&mut tenants);
        assert_eq!(host.read(8), [9; 4096]);
        drop(host);
        tenants.stop();
        drive.stop();
    }

    #[test]
    fn another_program_takes_over_a_drive_under_load_and_executes_nothing_again() {
        let pair = Pair::new();
        let drive = pair.serve_drive(RAM, &[]);
        let tenants = pair.serve_tenants();
        pair.under_load("8s", || {
            for _ in 0..2 {
                thread::sleep(Duration::from_millis(500));
                let said = pair.world.ok(&pair.world.steer(&["upgrade"]));
                assert!(said.starts_with("upgraded server: "), "{said}");
            }
        });
        assert_eq!(replays(&tenants), [(0, 0); 2]);
        let read = pair.read_parts();
        tenants.stop();
        pair.check(&read);
        drive.stop();
    }

    /// The drive is a server that survives, too, and dies at the same time.
    #[test]
    fn a_drive_whose_own_process_dies_at_the_same_time_is_used_again() {
        let pair = Pair::new();
        let mut drive = pair.serve_drive(RAM, &["--survive"]);
        let mut tenants = pair.serve_tenants();
        pair.under_load("6s", || {
            for round in 1..3 {
                thread::sleep(Duration::from_millis(1100));
                for server in [&mut drive, &mut tenants] {
                    kill_process(worker(server, None), Signal::KILL).unwrap();
                }
                for server in [&drive, &tenants] {
                    wait_for_log(server, "hosts continue after", round);
                }
            }
        });
        let read = pair.read_parts();
        tenants.stop();
        pair.check(&read);
        drive.stop();
    }

    /// The wait has a bound, after which the drive is a lost one.
    #[test]
    fn a_drive_that_stands_still_when_its_host_dies_is_waited_for_with_a_bound() {
        let pair = Pair::new();
        let drive = pair.serve_drive(RAM, &[]);
        let mut tenants = pair.serve_tenants();
        let mut host = Tenant::attach(&pair.world, "a");
        assert_eq!(host.write(0, 7), Ok(()));
        drive.stand_still();
        let since = Instant::now();
        host.begin(4, 8);
        thread::sleep(Duration::from_millis(100));
        kill_process(worker(&mut tenants, None), Signal::KILL).unwrap();
        wait_for_log(&tenants, "hosts continue after", 1);
        let waited = since.elapsed();
        assert!(waited >= Duration::from_secs(4), "{waited:?}");
        assert_eq!(host.finish(4), [Status::COMMAND_INTERRUPTED; 4]);
        let took = since.elapsed();
        assert!(took < Duration::from_secs(15), "{took:?}");
        drive.signal(Signal::CONT);
        let deadline = Instant::now() + BOUND;
        while let Err(status) = host.write(0, 9) {
            assert_eq!(status, Status::COMMAND_INTERRUPTED);
            assert!(Instant::now() < deadline, "it does not come back");
        }
        assert_eq!(
            host.read(0),
            [9; 4096],
            "the write of the dead process did not land later"
        );
        drop(host);
        tenants.stop();
        drive.stop();
    }
}

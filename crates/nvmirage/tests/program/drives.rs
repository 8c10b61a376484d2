//! Mediated pass-through: one server is the drive of another, whose tenants share it.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use driver::bus::Bus as _;
use driver::bus::vfio_user::VfioUser;
use driver::io::Namespace;
use driver::{Device, DriverError, Options, QueuePair};
use memory::{Buffer, HostMemory, Iova};
use nvme_spec::log::LogPageId;
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::{Sqe, Status};
use rustix::process::Signal;

use crate::host::Host;
use crate::world::{BOUND, Server, World};

/// Bytes of the drive, and of each tenant's part.
const DRIVE: usize = 48 << 20;
const PART: usize = 16 << 20;

/// A world with a drive: another server, of a file that shows what the drive holds. It is in
/// memory, so that nothing takes seconds that is not meant to.
pub(crate) struct Drive {
    pub(crate) world: World,
    its: World,
    folder: tempfile::TempDir,
    file: std::fs::File,
}

/// Fill byte of a new drive.
const UNTOUCHED: u8 = 0xA5;

impl Drive {
    pub(crate) fn new() -> (Drive, Server) {
        let its = World::new();
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("drive.img");
        std::fs::write(&path, vec![UNTOUCHED; DRIVE]).unwrap();
        let drive = Drive {
            file: std::fs::File::open(&path).unwrap(),
            world: World::new(),
            its,
            folder,
        };
        let server = drive.start();
        (drive, server)
    }

    /// Starts the drive's server, which maps its doorbells.
    fn start(&self) -> Server {
        let media = format!(
            "file:path={},lba_size=512",
            self.folder.path().join("drive.img").display()
        );
        let listen = self.its.vfio_user("drive.sock");
        self.its.serve(&[
            "--media",
            &media,
            "--listen",
            &listen,
            "--doorbells",
            "mapped",
        ])
    }

    pub(crate) fn target(&self) -> String {
        self.its.vfio_user("drive.sock")
    }

    /// A server of two tenants, with a gap before, between and behind their parts.
    fn tenants(&self) -> Server {
        let text = format!(
            "[[media]]\nname = \"drive\"\nkind = \"drive\"\ntarget = \"{}\"\n{}{}",
            self.target(),
            self.tenant("a", "4MiB..20MiB"),
            self.tenant("b", "24MiB..40MiB"),
        );
        let config = self.world.write("tenants.toml", &text);
        self.world.serve(&["--config", config.to_str().unwrap()])
    }

    fn tenant(&self, name: &str, range: &str) -> String {
        format!(
            "[[namespace]]\nname = \"{name}\"\nmedia = \"drive\"\nrange = \"{range}\"\nlba_size = 512\n\
             [[controller]]\nname = \"{name}\"\nnamespaces = [\"{name}\"]\nlisten = \"{}\"\n",
            self.world.vfio_user(name)
        )
    }

    pub(crate) fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at as u64).unwrap();
        bytes
    }

    /// A tenant writes all of its part and verifies it.
    fn fill(&self, tenant: &str) {
        let target = self.world.vfio_user(tenant);
        self.world.ok(&[
            "bench",
            "--target",
            &target,
            "--destroy-data",
            "--rw",
            "randrw",
            "--bs",
            "512B,4KiB,128KiB",
            "--qd",
            "1,16",
            "--time",
            "1s",
            "--verify",
        ]);
    }
}

pub(crate) fn is_untouched(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == UNTOUCHED)
}

/// Repeats until it succeeds.
fn until(what: &str, reached: impl Fn() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !reached() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A tenant with one command at a time, which reads and writes the same place.
pub(crate) struct Tenant {
    queue: QueuePair<VfioUser>,
    namespace: Namespace,
    buffer: Buffer,
    device: Device<VfioUser>,
}

impl Tenant {
    pub(crate) fn attach(world: &World, name: &str) -> Tenant {
        let device = Device::connect(world.path(name), &Options::default());
        let mut device = device.unwrap();
        device.enable().unwrap();
        let mut queue = device.create_queue_pair(4, false).unwrap();
        queue.set_timeout(BOUND);
        Tenant {
            queue,
            namespace: device.namespace(1).unwrap(),
            buffer: device.alloc(4096).unwrap(),
            device,
        }
    }

    fn command(&mut self, is_write: bool) -> Result<(), Status> {
        let (queue, at) = (&mut self.queue, &self.namespace);
        let ended = if is_write {
            queue.write(at, 0, 8, &self.buffer, false)
        } else {
            queue.read(at, 0, 8, &self.buffer)
        };
        match ended {
            Ok(_) => Ok(()),
            Err(DriverError::Status { status, .. }) => Err(status),
            Err(error) => panic!("{error}"),
        }
    }

    /// Reads what a turn has written.
    pub(crate) fn look(&mut self) -> Result<[u8; 4096], Status> {
        self.command(false)?;
        let mut bytes = [0; 4096];
        self.buffer.read_into(0, &mut bytes);
        Ok(bytes)
    }

    /// Writes some bytes and reads them back: what that ended with, and how long the slower of the
    /// two took.
    pub(crate) fn turn(&mut self, byte: u8) -> (Result<(), Status>, Duration) {
        self.buffer.write_from(0, &[byte; 4096]);
        let start = Instant::now();
        if let Err(status) = self.command(true) {
            return (Err(status), start.elapsed());
        }
        let (wrote, start) = (start.elapsed(), Instant::now());
        let read = self.look();
        let slower = wrote.max(start.elapsed());
        (read.map(|bytes| assert_eq!(bytes, [byte; 4096])), slower)
    }
}

/// A command has 4 s at a drive, and a drive that is lost is waited for as long: what is more is
/// this machine's, and the time of a server that is asked for a register (2 s) while others wait
/// for it.
pub(crate) const SLOWEST: Duration = Duration::from_secs(10);
/// Regions of a host's memory, each large enough to be mapped for a drive: at 2 s each they are
/// more than [`SLOWEST`].
const REGIONS: usize = 12;
const REGION: usize = 2 << 20;
/// Longest wait of another drive's tenant: less than any wait for the drive that stands still.
const PROMPT: Duration = Duration::from_secs(2);

/// A block is written wholly or not at all when the power fails, one at least (AWUPF is 0's based;
/// NVM 1.1, 2.1.4): a drive with blocks of 512 bytes that promises one of its own is none for
/// blocks of 4096, unless its operator knows better.
#[test]
fn blocks_that_a_power_failure_may_tear_are_refused() {
    let (drive, _server) = Drive::new();
    let world = &drive.world;
    let tenant = |key: &str| {
        let text = format!(
            "[[media]]\nname = \"drive\"\nkind = \"drive\"\ntarget = \"{}\"\n{key}{}",
            drive.target(),
            drive.tenant("a", "4MiB..20MiB")
        );
        text.replace("lba_size = 512", "lba_size = 4096")
    };
    let config = world.write("tenants.toml", &tenant(""));
    let error = world.fails(&["serve", "--config", config.to_str().unwrap()]);
    for says in [
        "only 512 bytes atomic",
        "write lba_size = 512",
        "awupf = \"4KiB\"",
    ] {
        assert!(error.contains(says), "{error}");
    }
    let config = world.write("tenants.toml", &tenant("awupf = \"1KiB\"\n"));
    let error = world.run(&["check", config.to_str().unwrap()]).err;
    assert!(error.contains("write 512B or 4KiB"), "{error}");
    let config = world.write("tenants.toml", &tenant("awupf = \"4KiB\"\n"));
    let tenants = world.serve(&["--config", config.to_str().unwrap()]);
    let mut host = Host::attach(world, "a");
    assert_eq!(host.size(1), (16 << 20, 4096));
    // With blocks as the drive's it is promised as much as there is; then the larger ones are no
    // format, either.
    drop(host);
    tenants.stop();
    let config = world.write(
        "tenants.toml",
        &tenant("")
            .replace("name = \"a\"\nmedia", "name = \"a2\"\nmedia")
            .replace("namespaces = [\"a\"]", "namespaces = [\"a2\"]")
            .replace("lba_size = 4096", "lba_size = 512"),
    );
    let tenants = world.serve(&["--config", config.to_str().unwrap()]);
    let mut host = Host::attach(world, "a");
    let formats = host.formats(1);
    assert_eq!(
        formats,
        [512],
        "sizes of blocks that it can be formatted to"
    );
    drop(host);
    tenants.stop();
}

#[test]
fn what_cannot_be_a_drive_says_why() {
    let world = World::new();
    let listen = world.vfio_user("s");
    let error = world
        .run(&["serve", "--media", "drive", "--listen", &listen])
        .err;
    assert!(error.contains("a drive needs a target"), "{error}");
    let nobody = format!("drive:target={}", world.vfio_user("nobody"));
    let error = world.fails(&[
        "serve",
        "--media",
        &nobody,
        "--listen",
        &world.vfio_user("s"),
    ]);
    assert!(
        error.contains("check that the server is running"),
        "{error}"
    );
    assert!(!Path::new(&world.path("s")).exists());
    for (keys, says) in [
        ("target = \"nvme0\"", "vfio-user:PATH"),
        ("target = \"nvme-tcp:127.0.0.1:4420\"", "HOST:PORT/NQN"),
        (
            "target = \"nvme-tcp:h:4420/nqn.x\"\ncompletions = 0",
            "remove completions",
        ),
        (
            "target = \"nvme-tcp:h:4420/nqn.x\"\nhostnqn = \"me\"",
            "write nqn.YYYY-MM",
        ),
        (
            "target = \"nvme-tcp:h:4420/nqn.x\"\ndhchap_key = \"k\"",
            "write hostnqn, too",
        ),
        (
            "target = \"nvme-tcp:h:4420/nqn.x\"\nhostnqn = \"nqn.me\"\ndhchap_ctrl_key = \"k\"",
            "write dhchap_key, too",
        ),
        (
            "target = \"vfio-user:/x\"\nhostnqn = \"nqn.me\"",
            "hostnqn: only for a drive with target = \"nvme-tcp:",
        ),
        (
            "target = \"nvme-tcp:127.0.0.1:4420/nqn.own\"\n\
             [[controller]]\nname = \"c\"\nsubnqn = \"nqn.own\"\nlisten = \"nvme-tcp:0.0.0.0:4420\"\n\
             tcp = { allow_anonymous = true }",
            "that is controller c of this server",
        ),
        (
            "target = \"vfio-user:/x\"\nsize = \"1GiB\"",
            "remove path and size",
        ),
        (
            "target = \"vfio-user:/x\"\ndirect = \"on\"",
            "only kind = \"file\" has `direct`",
        ),
        (
            "target = \"vfio-user:/x\"\nnsid = 0",
            "identifiers of a drive start at 1",
        ),
        (
            "target = \"vfio-user:/x\"\nadmin_allow = [\"get-log-page:0x02\"]",
            "pages below 0xc0",
        ),
        (
            "target = \"vfio-user:/x\"\nadmin_allow = [\"get-log-page:0xc0\", \"get-log-page:0xc0:64\"]",
            "is listed twice",
        ),
        (
            "target = \"vfio-user:/x\"\n[media.zoned]\nzone_size = \"1MiB\"",
            "zoned: zones on a drive",
        ),
    ] {
        let text = format!("[[media]]\nname = \"d\"\nkind = \"drive\"\n{keys}\n");
        let config = world.write("wrong.toml", &text);
        let error = world.run(&["check", config.to_str().unwrap()]).err;
        assert!(error.contains(says), "{error}");
    }
    let text =
        "[[media]]\nname = \"d\"\nkind = \"ram\"\nsize = \"1MiB\"\ntarget = \"vfio-user:/x\"\n";
    let config = world.write("wrong.toml", text);
    let error = world.run(&["check", config.to_str().unwrap()]).err;
    assert!(
        error.contains("only kind = \"drive\" has `target`"),
        "{error}"
    );
}

/// Media errors, host reads and power cycles of SMART / Health Information (Base 2.1, 5.1.12.1.3).
fn smart(host: &mut Host) -> [u64; 3] {
    let mut log = [0; 512];
    let lid = LogPageId::SMART_HEALTH_INFORMATION;
    host.device()
        .get_log_page(lid, u32::MAX, 0, &mut log)
        .unwrap();
    [160, 64, 112].map(|at| u64::from_le_bytes(log[at..at + 8].try_into().unwrap()))
}

#[test]
fn tenants_see_the_drive_s_health_and_their_own_counters() {
    let (drive, _server) = Drive::new();
    // A block that cannot be read, of which the drive's first host learns.
    let device = Device::connect(drive.its.path("drive.sock"), &Options::default());
    let mut device = device.unwrap();
    device.enable().unwrap();
    let mut queue = device.create_queue_pair(4, false).unwrap();
    let namespace = device.namespace(1).unwrap();
    let buffer = device.alloc(512).unwrap();
    let write_uncorrectable = Sqe {
        opcode: NvmOpcode::WRITE_UNCORRECTABLE.0,
        nsid: 1,
        ..Sqe::default()
    };
    queue
        .run("Write Uncorrectable", write_uncorrectable)
        .unwrap();
    for _ in 0..3 {
        queue.read(&namespace, 0, 1, &buffer).unwrap_err();
    }
    queue.read(&namespace, 1, 1, &buffer).unwrap();
    drop((queue, device));
    let text = format!(
        "[[media]]\nname = \"drive\"\nkind = \"drive\"\ntarget = \"{}\"\nadmin_allow = [\"get-log-page:0xc0\"]\n{}",
        drive.target(),
        drive.tenant("a", "4MiB..20MiB"),
    );
    let config = drive.world.write("tenants.toml", &text);
    let tenants = drive.world.serve(&["--config", config.to_str().unwrap()]);
    let mut host = Host::attach(&drive.world, "a");
    let deadline = Instant::now() + BOUND;
    while smart(&mut host)[0] == 0 {
        assert!(Instant::now() < deadline, "the drive's errors do not come");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(smart(&mut host), [3, 0, 1]);
    host.block(1, 5);
    assert_eq!(smart(&mut host), [3, 1, 1]);
    // The drive has no such page, and none of the others is shown.
    for lid in [0xc0, 0xc2, 0x07] {
        let read = host
            .device()
            .get_log_page(LogPageId(lid), u32::MAX, 0, &mut [0; 64]);
        let status = Status::INVALID_LOG_PAGE;
        assert!(
            matches!(read, Err(DriverError::Status { status: s, .. }) if s == status),
            "{lid:#x}: {read:?}"
        );
    }
    drop(host);
    tenants.stop();
}

#[test]
fn blocks_are_as_large_as_the_drive_s_or_larger() {
    let (its, world) = (World::new(), World::new());
    let listen = its.vfio_user("drive.sock");
    let media = "ram:size=16MiB,lba_size=4096";
    let _drive = its.serve(&[
        "--media",
        media,
        "--listen",
        &listen,
        "--doorbells",
        "mapped",
    ]);
    let smaller = format!("drive:target={listen},lba_size=512");
    let nvme = world.vfio_user("nvme.sock");
    let error = world.fails(&["serve", "--media", &smaller, "--listen", &nvme]);
    assert!(error.contains("supports no blocks below 4096"), "{error}");
    let server = world.serve_media(&format!("drive:target={listen}"));
    let mut host = Host::attach(&world, "nvme.sock");
    assert_eq!(host.size(1), (16 << 20, 4096));
    let last = (16 << 20) / 4096 - 1;
    host.fill(1, last, 3);
    assert_eq!(host.block(1, last), [3; 4096]);
    drop(host);
    server.stop();
}

/// Only a part of these run at each commit (CONTRIBUTING.md).
mod slow {
    use super::*;

    #[test]
    fn two_on_a_drive_that_stands_still_are_bounded_and_those_of_another_drive_go_on() {
        let (drive, server) = Drive::new();
        let (other, _others) = Drive::new();
        let text = format!(
            "[[media]]\nname = \"drive\"\nkind = \"drive\"\ntarget = \"{}\"\n{}{}\
             [[media]]\nname = \"other\"\nkind = \"drive\"\ntarget = \"{}\"\n{}",
            drive.target(),
            drive.tenant("a", "4MiB..20MiB"),
            drive.tenant("b", "24MiB..40MiB"),
            other.target(),
            drive
                .tenant("c", "4MiB..20MiB")
                .replace("media = \"drive\"", "media = \"other\""),
        );
        let config = drive.world.write("tenants.toml", &text);
        let tenants = drive.world.serve(&["--config", config.to_str().unwrap()]);
        for tenant in ["a", "b", "c"] {
            drive.fill(tenant);
        }
        server.stand_still();
        let targets = ["a", "b"].map(|tenant| drive.world.vfio_user(tenant));
        thread::scope(|scope| {
            let wait = |target| {
                let args = [
                    "bench", "--target", target, "--bs", "4KiB", "--qd", "4", "--time", "1s",
                ];
                drive.world.run(&args)
            };
            let both = targets
                .each_ref()
                .map(|target| scope.spawn(move || wait(target)));
            until("the queue is given up", || {
                drive.fill("c");
                tenants.log().contains("a drive is lost")
            });
            // Both end with an error.
            for one in both {
                assert!(!one.join().unwrap().status.success());
            }
        });
        server.signal(Signal::CONT);
        until("it comes back", || {
            tenants.log().contains("a drive is back")
        });
        for tenant in ["a", "b", "c"] {
            drive.fill(tenant);
        }
        // Nothing outside of their parts has changed.
        for (start, end) in [(0, 4), (20, 24), (40, 48)] {
            let bytes = drive.read(start << 20, (end - start) << 20);
            assert!(is_untouched(&bytes), "{start} to {end} MiB");
        }
        tenants.stop();
    }

    #[test]
    fn a_drive_that_stands_still_holds_up_its_own_commands_alone() {
        let (drive, server) = Drive::new();
        let text = format!(
            "[[media]]\nname = \"drive\"\nkind = \"drive\"\ntarget = \"{}\"\n\
             [[media]]\nname = \"ram\"\nkind = \"ram\"\nsize = \"16MiB\"\n{}\
             [[namespace]]\nname = \"r\"\nmedia = \"ram\"\nlba_size = 512\n\
             [[controller]]\nname = \"r\"\nnamespaces = [\"r\"]\nlisten = \"{}\"\n",
            drive.target(),
            drive.tenant("a", "4MiB..20MiB"),
            drive.world.vfio_user("r"),
        );
        let config = drive.world.write("tenants.toml", &text);
        let tenants = drive.world.serve(&["--config", config.to_str().unwrap()]);
        drive.fill("a");
        server.stand_still();
        let target = drive.world.vfio_user("a");
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let args = [
                    "bench", "--target", &target, "--bs", "4KiB", "--qd", "4", "--time", "1s",
                ];
                drive.world.run(&args)
            });
            until("the queue is given up", || {
                drive.fill("r");
                tenants.log().contains("a drive is lost")
            });
            let ran = waits.join().unwrap();
            // Its reads end so, or the flush of the shutdown behind them does.
            let says = ["Command Interrupted", "the last writes may not be durable"];
            assert!(
                says.iter().any(|says| ran.err.contains(says)),
                "{}",
                ran.err
            );
        });
        server.signal(Signal::CONT);
        until("it comes back", || {
            tenants.log().contains("a drive is back")
        });
        drive.fill("a");
        tenants.stop();
    }

    #[test]
    fn a_drive_that_dies_and_comes_back_is_used_again() {
        let (drive, mut server) = Drive::new();
        let tenants = drive.tenants();
        drive.fill("a");
        server.child().kill().unwrap();
        server.end();
        until("the loss is noticed", || {
            tenants.log().contains("a drive is lost")
        });
        let server = drive.start();
        until("it comes back", || {
            tenants.log().contains("a drive is back")
        });
        drive.fill("a");
        tenants.stop();
        server.stop();
    }

    /// Two drives of one server, one of which stands still for a while (SIGSTOP). Every answer of
    /// the other one comes in time all the while, down to the slowest; every command to it ends in
    /// time, too, with the status that hosts repeat it after; and when it goes on it is used again.
    #[test]
    fn a_drive_stands_still_and_the_slowest_answer_of_the_other_one_is_prompt() {
        let (still, server) = Drive::new();
        let (other, _others) = Drive::new();
        let text = format!(
            "[[media]]\nname = \"drive\"\nkind = \"drive\"\ntarget = \"{}\"\n{}\
             [[media]]\nname = \"other\"\nkind = \"drive\"\ntarget = \"{}\"\n{}",
            still.target(),
            still.tenant("a", "4MiB..20MiB"),
            other.target(),
            still
                .tenant("b", "4MiB..20MiB")
                .replace("media = \"drive\"", "media = \"other\""),
        );
        let world = &still.world;
        let config = world.write("tenants.toml", &text);
        let tenants = world.serve(&["--config", config.to_str().unwrap()]);
        let [mut a, mut b] = ["a", "b"].map(|name| Tenant::attach(world, name));
        assert_eq!(a.turn(1).0, Ok(()));
        let is_over = AtomicBool::new(false);
        let (turns, slowest) = thread::scope(|scope| {
            let prompt = scope.spawn(|| {
                let (mut turns, mut slowest) = (0u32, Duration::ZERO);
                while !is_over.load(Ordering::Relaxed) {
                    let (ended, took) = b.turn(turns as u8);
                    assert_eq!(ended, Ok(()));
                    (turns, slowest) = (turns + 1, slowest.max(took));
                }
                (turns, slowest)
            });
            server.stand_still();
            // One that the drive has when it stops, one that comes when the queue is abandoned, and
            // one when the drive is lost.
            for _ in 0..3 {
                let (ended, took) = a.turn(2);
                assert_eq!(ended, Err(Status::COMMAND_INTERRUPTED));
                assert!(took < SLOWEST, "{took:?}");
            }
            server.signal(Signal::CONT);
            let deadline = Instant::now() + BOUND;
            while a.turn(3).0.is_err() {
                assert!(Instant::now() < deadline, "it does not come back");
            }
            is_over.store(true, Ordering::Relaxed);
            prompt.join().unwrap()
        });
        println!("{turns} turns beside it, the slowest command in {slowest:?}");
        assert!(turns > 100, "{turns} turns");
        assert!(slowest < PROMPT, "the slowest command took {slowest:?}");
        assert!(tenants.log().contains("a drive is back"));
        drop((a, b));
        tenants.stop();
    }

    /// Memory of a host that attaches is mapped for the drive region by region, and each mapping
    /// has an answer of its own to wait for: of a drive that stands still, the first one ends them
    /// all.
    #[test]
    fn a_host_with_many_regions_does_not_delay_others_of_a_stalled_drive() {
        let (drive, server) = Drive::new();
        let text = format!(
            "[[media]]\nname = \"drive\"\nkind = \"drive\"\ntarget = \"{}\"\n{}{}",
            drive.target(),
            drive.tenant("a", "4MiB..20MiB"),
            drive.tenant("b", "24MiB..40MiB"),
        );
        let world = &drive.world;
        let config = world.write("tenants.toml", &text);
        let tenants = world.serve(&["--config", config.to_str().unwrap()]);
        let mut a = Tenant::attach(world, "a");
        assert_eq!(a.turn(1).0, Ok(()));
        server.stand_still();
        let mut b = Tenant::attach(world, "b");
        let regions: Vec<_> = (0..REGIONS)
            .map(|_| HostMemory::new(REGION).unwrap())
            .collect();
        for (at, region) in (1u64..).zip(&regions) {
            let shared = b.device.shared_bus().share(region, Iova(at << 40));
            shared.unwrap();
        }
        for tenant in [&mut b, &mut a] {
            let (ended, took) = tenant.turn(2);
            assert_eq!(ended, Err(Status::COMMAND_INTERRUPTED));
            assert!(took < SLOWEST, "{took:?}");
        }
        server.signal(Signal::CONT);
        let deadline = Instant::now() + BOUND;
        for tenant in [&mut a, &mut b] {
            while tenant.turn(3).0.is_err() {
                assert!(Instant::now() < deadline, "it does not come back");
            }
        }
        drop((a, b));
        tenants.stop();
    }

    #[test]
    fn each_tenant_has_its_part_of_a_drive_and_nothing_else_changes() {
        let (drive, _server) = Drive::new();
        let tenants = drive.tenants();
        thread::scope(|scope| {
            let both = ["a", "b"].map(|tenant| scope.spawn(|| drive.fill(tenant)));
            both.into_iter().for_each(|one| one.join().unwrap());
        });
        // The bytes that each tenant reads are those at its place in the drive.
        let parts = [("a", 4 << 20), ("b", 24 << 20)];
        for (tenant, at) in parts {
            let target = drive.world.vfio_user(tenant);
            let before = drive.read(at, PART);
            drive.world.ok(&[
                "bench",
                "--target",
                &target,
                "--destroy-data",
                "--rw",
                "write",
                "--bs",
                "64KiB",
                "--qd",
                "4",
                "--time",
                "500ms",
            ]);
            let after = drive.read(at, PART);
            assert_ne!(before, after, "{tenant} writes there");
        }
        tenants.stop();
        for (start, end) in [(0, 4), (20, 24), (40, 48)] {
            let bytes = drive.read(start << 20, (end - start) << 20);
            assert!(is_untouched(&bytes), "{start} to {end} MiB");
        }
    }
}

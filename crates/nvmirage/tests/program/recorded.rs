//! Recordings of drives with zones and with keys under mixed load, played back in virtual time.

use std::time::Instant;

use driver::bus::vfio_user::VfioUser;
use driver::key_value::{Dialect, Keys, Rule};
use driver::program::{self, Command, Pace, Rules, Target, Worker};
use driver::{Device, DriverError, Options, QueuePair};
use nvme_spec::zoned::ZoneSendAction;

use crate::every_kind::{Drive, pattern};
use crate::world::World;

const ZNS: &str = r#"
[[media]]
name = "d"
kind = "ram"
size = "256MiB"
[media.zoned]
zone_size = "32MiB"
zone_capacity = "24MiB"
max_open = 3
max_active = 4
[media.timing]
preset = "zns-prototype"
zone_size = "32MiB"
zone_capacity = "24MiB"
record = "d.trace"
"#;
const KEYS: &str = r#"
[[media]]
name = "d"
kind = "keyvalue"
dialect = "DIALECT"
size = "64MiB"
[media.timing]
preset = "samsung-kvssd"
record = "d.trace"
"#;
const REST: &str = r#"
[[namespace]]
name = "d"
media = "d"
[[controller]]
name = "d"
namespaces = ["d"]
listen = "vfio-user:d.sock"
"#;

/// Time as it is.
struct Clock(Instant);

impl Pace for Clock {
    fn now_ns(&mut self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn pass(&mut self, _: Option<u64>) -> Result<(), DriverError> {
        std::thread::yield_now();
        Ok(())
    }
}

/// Serves a drive, lets `load` have it, stops, and gives what it has recorded.
fn record(world: &World, media: &str, load: impl FnOnce()) -> String {
    let file = world.write("config.toml", &format!("{media}{REST}"));
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    load();
    server.stop();
    std::fs::read_to_string(world.path("d.trace")).unwrap()
}

/// All of it takes the same time again; and a nanosecond in one place is found.
fn takes_the_same_time_again(world: &World, trace: &str, least: u64) {
    let replay = world.json(&["fidelity", "--replay", "d.trace", "--json"]);
    assert_eq!(replay["differing"], 0, "{replay:#}");
    assert!(replay["commands"].as_u64().unwrap() >= least, "{replay:#}");
    let mut lines: Vec<String> = trace.lines().map(str::to_owned).collect();
    let at = lines.len() / 2;
    let (rest, due) = lines[at].rsplit_once(' ').unwrap();
    let due: u64 = due.parse().unwrap();
    lines[at] = format!("{rest} {}", due + 1);
    world.write("late.trace", &lines.join("\n"));
    let ran = world.run(&["fidelity", "--replay", "late.trace"]);
    assert_eq!(ran.status.code(), Some(1), "{}", ran.out);
    let says = format!(
        "was done at {} ns, and in virtual time at {due} ns",
        due + 1
    );
    assert!(ran.err.contains(&says), "{}", ran.err);
    assert!(
        ran.out.contains(": 1 are done at another time"),
        "{}",
        ran.out
    );
}

/// How many lines a trace has of each of these operations.
fn counts<const N: usize>(trace: &str, names: [&str; N]) -> [usize; N] {
    names.map(|name| {
        let is_it = |line: &&str| line.split(' ').nth(1) == Some(name);
        trace.lines().filter(is_it).count()
    })
}

fn connect(world: &World) -> Device<VfioUser> {
    let options = Options {
        memory_len: 32 << 20,
        command_sets: driver::CommandSets::All,
        ..Options::default()
    };
    let mut device = Device::connect(world.path("d.sock"), &options).unwrap();
    device.enable().unwrap();
    device
}

/// Runs a list of commands for each queue, so many of each at a time.
fn run(
    device: &Device<VfioUser>,
    target: &Target,
    depth: u16,
    lists: &[Vec<Command>],
    queues: &mut [QueuePair<VfioUser>],
) {
    let buffer = device.alloc(1 << 18).unwrap();
    let workers = queues.iter_mut().zip(lists);
    let workers = workers.map(|(queue, commands)| Worker {
        queue,
        buffer: &buffer,
        depth,
        commands,
    });
    let mut workers: Vec<_> = workers.collect();
    let mut clock = Clock(Instant::now());
    program::run(&mut workers, target, Rules::default(), &mut clock).unwrap();
}

#[test]
fn zones() {
    let world = World::new();
    let trace = record(&world, ZNS, || {
        let mut device = connect(&world);
        let target = Target::Blocks(device.namespace(1).unwrap());
        let mut queues: Vec<_> = (0..3)
            .map(|_| device.create_queue_pair(64, false).unwrap())
            .collect();
        // Two writers with a zone each, in order, and reads between them; then a reader at depth.
        for round in 0..3 {
            let writes = |zone: u64| -> Vec<Command> {
                let start = zone * (32 << 20);
                let reset = (round > 0).then_some(Command::ResetZone { offset: start });
                let writes = (0..(24 << 20) / 196_608).flat_map(|n: u64| {
                    let offset = start + n * 196_608;
                    let write = Command::Write {
                        offset,
                        len: 196_608,
                    };
                    let read = Command::Read {
                        offset: start + n * 4096,
                        len: 4096,
                    };
                    [write, read]
                });
                reset.into_iter().chain(writes).collect()
            };
            let reads = (0..300).map(|n| Command::Read {
                offset: n * 7 % 6000 * 4096,
                len: 8192,
            });
            let lists = [writes(0), writes(3), reads.collect()];
            run(&device, &target, 1, &lists, &mut queues);
        }
        let reads = (0..2000).map(|n| Command::Read {
            offset: n * 37 % 6000 * 4096,
            len: 4096,
        });
        run(&device, &target, 32, &[reads.collect()], &mut queues);
        drop(queues);
        drop(device);
        // Appends, and what is done to zones; more of them than may be open.
        let mut drive = Drive::attach(&world, "d");
        const ZONE: u64 = 8192;
        for zone in [1, 2, 4, 1, 2, 5] {
            drive.append(zone * ZONE, &pattern(1)).unwrap();
            drive.flush();
            if zone == 2 {
                drive.send(4 * ZONE, ZoneSendAction::RESET);
            }
        }
        drive.send(ZONE, ZoneSendAction::CLOSE);
        drive.send(ZONE, ZoneSendAction::OPEN);
        drive.send(2 * ZONE, ZoneSendAction::FINISH);
        assert_eq!(drive.read(2 * ZONE, 2), pattern(1));
    });
    let counts = counts(&trace, ["R", "W", "F", "Z", "ZF", "ZO", "ZC"]);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    takes_the_same_time_again(&world, &trace, 4000);
}

fn stores(keys: std::ops::Range<u64>) -> Vec<Command> {
    let store = |key| Command::Store {
        key,
        len: 100 + (key % 97) as u32 * 640,
    };
    keys.map(store).collect()
}

#[test]
fn keys_of_both_dialects() {
    for dialect in ["samsung", "nvme"] {
        let world = World::new();
        let trace = record(&world, &KEYS.replace("DIALECT", dialect), || {
            let is_samsung = dialect == "samsung";
            let keys = Keys {
                nsid: 1,
                dialect: if is_samsung {
                    Dialect::Samsung
                } else {
                    Dialect::Nvme
                },
            };
            let mut device = connect(&world);
            let mut queues: Vec<_> = (0..2)
                .map(|_| device.create_queue_pair(64, false).unwrap())
                .collect();
            let target = Target::Keys(keys);
            run(
                &device,
                &target,
                32,
                &[stores(0..500), stores(500..900)],
                &mut queues,
            );
            let retrieves = (0..900).map(|n| n * 31 % 900);
            let retrieves = retrieves.map(|key| Command::Retrieve { key, len: 40_000 });
            let mixed = [retrieves.collect(), stores(400..800)];
            run(&device, &target, 32, &mixed, &mut queues);
            if is_samsung {
                let together = |key| Command::StoreTogether {
                    key,
                    count: 8,
                    len: 4096,
                };
                let together = (0..50).map(|n| together(n * 8)).collect();
                run(
                    &device,
                    &target,
                    1,
                    &[together, stores(0..200)],
                    &mut queues,
                );
            }
            one_by_one(&device, &mut queues[0], &keys);
        });
        let counts = counts(&trace, ["KS", "KR", "KD", "KE", "KL"]);
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
        let compound = trace.lines().filter(|line| line.contains(" KC ")).count();
        assert_eq!(compound, if dialect == "samsung" { 50 } else { 0 });
        takes_the_same_time_again(&world, &trace, 1800);
    }
}

/// Commands that no program sends: some fail, and take their time nevertheless.
fn one_by_one(device: &Device<VfioUser>, queue: &mut QueuePair<VfioUser>, keys: &Keys) {
    let buffer = device.alloc(1 << 16).unwrap();
    for number in 0..20 {
        let key = program::key(number);
        queue.kv_exist(keys, &key).unwrap();
        queue.kv_delete(keys, &key).unwrap();
        queue.kv_exist(keys, &key).unwrap_err();
        queue.kv_delete(keys, &key).unwrap_err();
        queue.kv_retrieve(keys, &key, &buffer, 4096).unwrap_err();
        let must = Rule::MustExist;
        queue.kv_store(keys, &key, &buffer, 4096, must).unwrap_err();
    }
    match keys.dialect {
        Dialect::Nvme => {
            let listed = queue.kv_list(1, b"", &buffer, 4096).unwrap();
            assert!(!listed.is_empty());
        }
        Dialect::Samsung => {
            let iterator = queue.kv_open_iterator(1, b"0000").unwrap();
            while !queue
                .kv_read_iterator(1, iterator, &buffer, 4096)
                .unwrap()
                .1
            {}
            queue.kv_close_iterator(1, iterator).unwrap();
        }
    }
}

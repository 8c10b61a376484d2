//! `serve --survive` with keys and values: a host stores and deletes while the server's processes
//! die, and compares each status and value with those of a ledger.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use driver::bus::vfio_user::VfioUser;
use driver::key_value::{Dialect, Keys, Rule};
use driver::{CommandSets, Device, DriverError, Options, QueuePair};
use memory::Buffer;
use nvme_spec::Status;

use crate::survive::replace;
use crate::world::World;

const CONFIG: &str = r#"
[[media]]
name = "pairs"
kind = "keyvalue"
size = "64MiB"
MEDIUM
[[namespace]]
name = "pairs"
media = "pairs"
[[controller]]
name = "kv"
namespaces = ["pairs"]
listen = "vfio-user:kv.sock"
"#;
const KEYS: Keys = Keys {
    nsid: 1,
    dialect: Dialect::Nvme,
};
/// Keys that the host uses again and again.
const NAMES: u64 = 50;
/// Bytes of the longest value, which the server copies in slices.
const LONG: usize = 200_000;

/// A host, and what its drive has if every command had its effect once.
struct Ledger {
    queue: QueuePair<VfioUser>,
    buffer: Buffer,
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    stored: u64,
    // After its queue and buffer.
    _device: Device<VfioUser>,
}

impl Ledger {
    fn attach(world: &World) -> Ledger {
        let options = Options {
            memory_len: 16 << 20,
            command_sets: CommandSets::All,
            ..Options::default()
        };
        let mut device = Device::connect(world.path("kv.sock"), &options).unwrap();
        device.enable().unwrap();
        Ledger {
            queue: device.create_queue_pair(8, false).unwrap(),
            buffer: device.alloc(1 << 18).unwrap(),
            pairs: BTreeMap::new(),
            stored: 0,
            _device: device,
        }
    }

    /// Stores under a key, which must end as the rule says of the ledger.
    fn store(&mut self, key: &[u8], rule: Rule) {
        self.stored += 1;
        let len = match self.stored % 40 {
            0 => LONG,
            short => 1 + 97 * short as usize,
        };
        let value: Vec<u8> = (0..len as u64)
            .map(|at| (at * 31 + self.stored * 7 + (at >> 8)) as u8)
            .collect();
        self.buffer.write_from(0, &value);
        let stored = self
            .queue
            .kv_store(&KEYS, key, &self.buffer, len as u32, rule);
        let expected = match (rule, self.pairs.contains_key(key)) {
            (Rule::MustExist, false) => Status::KV_KEY_DOES_NOT_EXIST,
            (Rule::MustNotExist, true) => Status::KEY_EXISTS,
            _ => Status::SUCCESSFUL_COMPLETION,
        };
        if let Ok(cqe) = &stored {
            assert_eq!((cqe.dw0, cqe.dw1), (0, 0));
        }
        assert_eq!(status(stored), expected, "store {}, {rule:?}", self.stored);
        if expected.is_success() {
            self.pairs.insert(key.to_vec(), value);
        }
    }

    fn delete(&mut self, key: &[u8]) {
        let deleted = status(self.queue.kv_delete(&KEYS, key));
        let expected = match self.pairs.remove(key) {
            Some(_) => Status::SUCCESSFUL_COMPLETION,
            None => Status::KV_KEY_DOES_NOT_EXIST,
        };
        assert_eq!(deleted, expected, "store {}", self.stored);
    }

    fn compare(&mut self, key: &[u8]) {
        let found = self
            .queue
            .kv_retrieve(&KEYS, key, &self.buffer, LONG as u32);
        let Some(value) = self.pairs.get(key) else {
            assert_eq!(status(found), Status::KV_KEY_DOES_NOT_EXIST);
            return;
        };
        assert_eq!(found.unwrap() as usize, value.len());
        let mut bytes = vec![0; value.len()];
        self.buffer.read_into(0, &mut bytes);
        assert!(bytes == *value, "the value of {key:?}");
    }

    /// Changes pairs until `stop`; how many times.
    fn change_until(&mut self, stop: &AtomicBool) -> u64 {
        let mut rounds = 0;
        while !stop.load(Relaxed) {
            let key = format!("key{}", rounds % NAMES).into_bytes();
            self.delete(&key);
            self.store(&key, Rule::MustExist);
            self.store(&key, Rule::MustNotExist);
            self.store(&key, Rule::MustNotExist);
            self.store(&key, Rule::MustExist);
            self.compare(&key);
            self.delete(&key);
            self.store(&key, Rule::Any);
            rounds += 1;
        }
        rounds
    }

    fn compare_all(&mut self) {
        let listed = self.queue.kv_list(1, b"", &self.buffer, 1 << 16).unwrap();
        let keys: Vec<_> = self.pairs.keys().cloned().collect();
        assert_eq!(listed, keys);
        keys.iter().for_each(|key| self.compare(key));
    }
}

fn status<T>(done: Result<T, DriverError>) -> Status {
    match done {
        Ok(_) => Status::SUCCESSFUL_COMPLETION,
        Err(DriverError::Status { status, .. }) => status,
        Err(error) => panic!("{error}"),
    }
}

/// Ends the host's changes, also where the test fails.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Changes pairs while processes are replaced by `replaces`; how many times.
fn change_while(host: &mut Ledger, replaces: impl FnOnce()) -> u64 {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let changes = scope.spawn(|| host.change_until(&stop));
        let ends = Stop(&stop);
        replaces();
        drop(ends);
        changes.join().unwrap()
    })
}

/// `least`: rounds that a host gets done meanwhile. `upgrades`: processes are replaced, not killed.
fn survives(medium: &str, least: u64, upgrades: bool) {
    let world = World::new();
    let config = world.write("config.toml", &CONFIG.replace("MEDIUM", medium));
    let mut server = world.serve(&["--survive", "--config", config.to_str().unwrap()]);
    let mut host = Ledger::attach(&world);
    let rounds = change_while(&mut host, || {
        for _ in 0..if upgrades { 2 } else { 4 } {
            if upgrades {
                let said = world.ok(&world.steer(&["upgrade"]));
                assert!(said.starts_with("upgraded server: "), "{said}");
            } else {
                replace(&mut server);
            }
        }
    });
    assert!(rounds > least, "{rounds}");
    host.compare_all();
    drop(host);
    server.stop();
}

#[test]
fn keys_in_memory_go_on_when_their_process_dies() {
    survives("", 10, false);
}

#[test]
fn keys_in_a_file_go_on_when_their_process_dies() {
    survives("path = \"pairs.kv\"", 5, false);
}

/// The state file has the pairs of a clean stop, whichever process loaded or saved them.
#[test]
fn keys_in_memory_are_saved_at_a_stop_by_the_process_that_is_there_then() {
    let world = World::new();
    let config = CONFIG.replace("MEDIUM", "state = \"pairs.state\"");
    let config = world.write("config.toml", &config);
    let serve = |more: &[&str]| {
        let config = ["--config", config.to_str().unwrap()];
        world.serve(&[more, &config].concat())
    };
    let mut pairs = BTreeMap::new();
    for key in [b"one", b"two"] {
        let mut server = serve(&["--survive"]);
        replace(&mut server);
        let mut host = Ledger::attach(&world);
        host.pairs = std::mem::take(&mut pairs);
        host.compare_all();
        host.store(key, Rule::MustNotExist);
        replace(&mut server);
        host.compare_all();
        pairs = std::mem::take(&mut host.pairs);
        drop(host);
        server.stop();
    }
    let server = serve(&[]);
    let mut host = Ledger::attach(&world);
    host.pairs = pairs;
    host.compare_all();
    drop(host);
    server.stop();
}

#[test]
fn keys_go_on_with_another_program() {
    survives("", 1, true);
    survives("path = \"pairs.kv\"", 1, true);
}

#[test]
fn keys_with_a_timing_model_go_on_when_their_process_dies() {
    let timing = "[media.timing]\npreset = \"samsung-kvssd\"\n";
    let config = CONFIG.replace("64MiB", "1GiB").replace("MEDIUM\n", timing);
    let world = World::new();
    let config = world.write("config.toml", &config);
    let mut server = world.serve(&["--survive", "--config", config.to_str().unwrap()]);
    let mut host = Ledger::attach(&world);
    let rounds = change_while(&mut host, || (0..4).for_each(|_| replace(&mut server)));
    assert!(rounds > 10, "{rounds}");
    host.compare_all();
    // Its own time goes on, too: it never answers in less than its preset's (154 us of the paper).
    let since = std::time::Instant::now();
    (0..100).for_each(|_| host.compare(b"key0"));
    assert!(since.elapsed().as_micros() > 100 * 100);
    let process = world.ask("GET /v1/process", &[], "").is(200).json();
    assert_eq!(process["before"]["interrupted"], 0, "{process}");
    drop(host);
    server.stop();
}

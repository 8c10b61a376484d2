//! Disks over vhost-user-blk, whose front end is code of the tests' own and of third parties.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use tests_vhost_front::{Disk, Layout, Options, Range, Request, feature};

use crate::survive::worker;
use crate::world::{BOUND, Server, World};

/// Bytes of the namespace.
const LEN: usize = 16 << 20;
/// Bytes of a request.
const BLOCK: usize = 4096;
/// Requests at a time, of two queues.
const DEPTH: usize = 32;

/// A file as medium, of a controller that listens there.
fn config(world: &World, more: &str) -> String {
    format!(
        r#"
        [[media]]
        name = "disk"
        kind = "file"
        path = "{}"
        size = "16MiB"
        [[namespace]]
        name = "data"
        media = "disk"
        [[controller]]
        name = "door"
        serial = "DOOR1"
        namespaces = ["data"]
        listen = "vhost-user-blk:{}"
        queues = 2
        {more}
        "#,
        world.path("disk.img").display(),
        socket(world).display(),
    )
}

fn socket(world: &World) -> PathBuf {
    world.path("disk.sock")
}

fn options(is_packed: bool) -> Options {
    Options {
        queues: 2,
        size: 512,
        is_packed,
        inflight: true,
        bound: BOUND,
        ..Options::default()
    }
}

/// Bytes of block `number` in a round: no two of them are the same.
fn block(number: usize, round: usize) -> Vec<u8> {
    let word = (number as u64) << 32 | round as u64;
    word.to_le_bytes().repeat(BLOCK / 8)
}

/// A guest that writes blocks in rounds, many at a time, and knows what was answered.
struct Guest {
    disk: Disk,
    round: usize,
    /// Of each block, the round in which it was written last.
    written: Vec<usize>,
}

impl Guest {
    fn new(world: &World, is_packed: bool) -> Self {
        let disk = Disk::connect(&socket(world), options(is_packed)).unwrap();
        Self {
            disk,
            round: 0,
            written: vec![0; 512],
        }
    }

    /// Connects again, as soon as there is a server: one that is about to end may accept, too.
    fn reconnect(&mut self) {
        let since = Instant::now();
        while let Err(error) = self.disk.reconnect() {
            assert!(since.elapsed() < BOUND, "{error:#}");
        }
    }

    /// Begins with a write of each of the next blocks, in both queues.
    fn submit(&mut self) -> Vec<Vec<u64>> {
        self.round += 1;
        let mut tokens = vec![Vec::new(); 2];
        for step in 0..2 * DEPTH {
            let number = (self.round * 61 + step) % self.written.len();
            self.written[number] = self.round;
            let request = Request::Write {
                sector: (number * BLOCK / 512) as u64,
                data: block(number, self.round),
            };
            let layout = Layout::pieces(&request, 1000 + step, step % 7);
            let layout = layout.indirect(step % 2 == 0);
            let queue = step % 2;
            let token = self.disk.submit(queue, &request, &layout).unwrap();
            tokens[queue].push(token.expect("the ring has room"));
        }
        tokens
    }

    /// Waits until all of these are answered, each once.
    fn finish(&mut self, mut tokens: Vec<Vec<u64>>) {
        let since = Instant::now();
        for (queue, tokens) in tokens.iter_mut().enumerate() {
            while !tokens.is_empty() {
                assert!(since.elapsed() < BOUND, "{} are missing", tokens.len());
                while let Some(done) = self.disk.poll(queue).unwrap() {
                    assert_eq!(done.status, 0);
                    let at = tokens.iter().position(|token| *token == done.token);
                    tokens.swap_remove(at.expect("it was not answered before"));
                }
                if !tokens.is_empty() {
                    self.disk.wait(queue, Duration::from_millis(100)).unwrap();
                }
            }
        }
    }

    /// Reads every block.
    fn check(&mut self) {
        for (number, round) in self.written.iter().enumerate() {
            let expected = match round {
                0 => vec![0; BLOCK],
                round => block(number, *round),
            };
            let sector = (number * BLOCK / 512) as u64;
            let found = self.disk.read(sector, BLOCK).unwrap();
            assert!(found == expected, "block {number} of round {round}");
        }
    }
}

fn start(world: &World, file: &std::path::Path) -> Server {
    world.serve(&["--config", file.to_str().unwrap()])
}

#[test]
fn a_guest_uses_a_disk() {
    let world = World::new();
    let file = world.write("config.toml", &config(&world, ""));
    let server = start(&world, &file);
    for is_packed in [false, true] {
        let mut guest = Guest::new(&world, is_packed);
        assert_eq!(guest.disk.capacity(), (LEN / 512) as u64);
        assert_eq!(guest.disk.get_id().unwrap()[..6], *b"DOOR1\0");
        let tokens = guest.submit();
        guest.finish(tokens);
        let (offered, disk) = (guest.disk.offered(), &mut guest.disk);
        assert_ne!(
            offered & feature::DISCARD,
            0,
            "the file system punches holes"
        );
        disk.flush().unwrap();
        let range = |sector| Range {
            sector,
            count: 16,
            may_unmap: false,
        };
        disk.write(0, &[7; 3 * 8192]).unwrap();
        disk.discard(&[range(0)]).unwrap();
        disk.write_zeroes(&[range(32)]).unwrap();
        let found = disk.read(0, 3 * 8192).unwrap();
        let expected = [[0; 8192], [7; 8192], [0; 8192]].concat();
        assert!(found == expected);
        let hosts: Value = world.json(&world.steer(&["hosts", "--json"]));
        assert_eq!(hosts[0]["hosts"][0]["export"], "data", "{hosts}");
        let refused = Disk::connect(&socket(&world), options(is_packed));
        assert!(refused.is_err(), "the disk has a guest");
        // The first one has not noticed.
        guest.disk.flush().unwrap();
    }
    server.stop();
    let disk = fs::read(world.path("disk.img")).unwrap();
    assert!(disk[8192..16384].iter().all(|byte| *byte == 7));
}

/// The server is killed again and again, with requests in flight: none is lost.
#[test]
fn a_guest_goes_on_when_the_server_is_killed_and_started_again() {
    for is_packed in [false, true] {
        let world = World::new();
        let file = world.write("config.toml", &config(&world, ""));
        let mut server = start(&world, &file);
        let mut guest = Guest::new(&world, is_packed);
        for _ in 0..20 {
            let tokens = guest.submit();
            server.signal(Signal::KILL);
            server.end();
            server = start(&world, &file);
            guest.reconnect();
            guest.finish(tokens);
        }
        guest.check();
        server.stop();
    }
}

/// The same where only workers die, and the socket stays.
#[test]
fn a_guest_goes_on_when_workers_die() {
    let world = World::new();
    let file = world.write("config.toml", &config(&world, ""));
    let mut server = world.serve(&["--config", file.to_str().unwrap(), "--survive"]);
    let mut guest = Guest::new(&world, false);
    for _ in 0..3 {
        // Three that serve for less than a second would be the last.
        std::thread::sleep(Duration::from_millis(1100));
        let tokens = guest.submit();
        kill_process(worker(&mut server, None), Signal::KILL).unwrap();
        guest.reconnect();
        guest.finish(tokens);
    }
    guest.check();
    server.stop();
}

#[test]
fn the_operator_ends_a_front_end_and_it_comes_back() {
    let world = World::new();
    let file = world.write("config.toml", &config(&world, ""));
    let server = start(&world, &file);
    let mut guest = Guest::new(&world, false);
    for _ in 0..5 {
        let tokens = guest.submit();
        world.ok(&world.steer(&["disconnect", "door", "--export", "data"]));
        guest.reconnect();
        guest.finish(tokens);
    }
    guest.check();
    server.stop();
}

//! `serve --survive` with timing models: they continue with a checkpoint.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use crate::host::Host;
use crate::survive::replace;
use crate::world::{BOUND, Server, World};

/// Blocks that a test writes.
const WRITTEN: u64 = 256;
/// Length of the tail of a checkpoint (`keep::timing::kept`).
const TAIL: u64 = 48;

/// A drive with a timing model, which begins without data.
fn serve(world: &World, backing: &str, timing: &str) -> Server {
    let listen = world.vfio_user("c.sock");
    let state = world.path("kept");
    let config = format!(
        "state_dir = {state:?}\n[[media]]\nname = \"m\"\nsize = \"5GiB\"\n{backing}\n\
         [media.timing]\npreset = \"samsung-970-pro\"\ninitial = \"fresh\"\n{timing}\n\
         [[namespace]]\nname = \"n\"\nmedia = \"m\"\n\
         [[controller]]\nname = \"c\"\nnamespaces = [\"n\"]\nlisten = {listen:?}\n"
    );
    let file = world.write("config.toml", &config);
    world.serve(&["--survive", "--config", file.to_str().unwrap()])
}

fn byte(lba: u64) -> u8 {
    (lba % 251) as u8 + 1
}

/// Writes some blocks twice.
fn write(host: &mut Host) {
    for lba in (0..WRITTEN).chain(0..WRITTEN / 2) {
        host.fill(1, lba, byte(lba));
    }
}

fn assert_whole(host: &mut Host) {
    for lba in 0..WRITTEN {
        assert!(
            host.block(1, lba).iter().all(|it| *it == byte(lba)),
            "{lba}"
        );
    }
}

/// State of the flash: pages, lines and wear, which its counters since the start are no part of.
fn flash(world: &World) -> Vec<Value> {
    let stats = world.ask("GET /v1/stats", &[], "").is(200).json();
    let flash = &stats["media"][0]["model"]["flash"];
    let keys = [
        "host_pages",
        "collected_pages",
        "erased_lines",
        "lines",
        "wear",
        "valid_pages",
    ];
    let state: Vec<Value> = keys.map(|key| flash[key].clone()).into();
    assert!(state.iter().all(|value| !value.is_null()), "{flash}");
    state
}

/// As [`flash`], when all that was written has left the buffer.
fn settled(world: &World) -> Vec<Value> {
    let deadline = Instant::now() + BOUND;
    loop {
        let now = flash(world);
        if now[0] == WRITTEN * 3 / 2 && now[5] == WRITTEN {
            return now;
        }
        assert!(Instant::now() < deadline, "{now:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The holder's file of the checkpoint. `None` also where another one takes its place while the
/// holder's files are listed.
fn find_checkpoint(server: &mut Server) -> Option<PathBuf> {
    let all = fs::read_dir(format!("/proc/{}/fd", server.child().id())).unwrap();
    let mut all = all.map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| {
        fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("memfd:timing m"))
    };
    all.find(is_it)
}

/// Waits for a checkpoint of a state that is as late as now.
fn wait_for_checkpoint(server: &mut Server) {
    let now = clock_gettime(ClockId::Monotonic);
    let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let deadline = Instant::now() + BOUND;
    loop {
        // Another one may take its place meanwhile.
        let mut at = [0; 8];
        let read = find_checkpoint(server).map(|path| {
            let file = File::open(path)?;
            let len = file.metadata()?.len();
            file.read_exact_at(&mut at, len - TAIL + 24)
        });
        if matches!(read, Some(Ok(()))) && u64::from_le_bytes(at) > now {
            return;
        }
        assert!(Instant::now() < deadline, "no checkpoint: {}", server.log());
        thread::sleep(Duration::from_millis(5));
    }
}

/// Age of the model's checkpoint, as the server reports it after a replacement.
fn age_ms(world: &World) -> u64 {
    let process = world.ask("GET /v1/process", &[], "").is(200).json();
    let model = &process["before"]["timing"][0];
    assert_eq!(
        (&model["media"], &model["lost"]),
        (&"m".into(), &false.into()),
        "{process}"
    );
    let age = model["checkpoint_age_ms"].as_u64().unwrap();
    let listed = world.ok(&world.steer(&["ls"]));
    let line = format!("\ntiming model of m: continued with a checkpoint {age} ms old\n");
    assert!(listed.contains(&line), "{listed}");
    let metrics = world.ask("GET /metrics", &[], "").is(200).body;
    assert!(
        metrics.contains("nvmirage_restart_timing_models_lost 0\n"),
        "{metrics}"
    );
    let name = "nvmirage_restart_timing_checkpoint_age_seconds{media=\"m\"} ";
    let value = metrics.lines().find_map(|line| line.strip_prefix(name));
    let value: f64 = value.expect("the age").parse().unwrap();
    assert!((value * 1000.0 - age as f64).abs() < 0.5, "{value} {age}");
    age
}

#[test]
fn a_model_continues_with_its_last_checkpoint() {
    let file = "kind = \"file\"\npath = \"m.img\"";
    for backing in ["kind = \"ram\"", file] {
        let world = World::new();
        let mut server = serve(&world, backing, "state_interval = \"50ms\"");
        let mut host = Host::attach(&world, "c.sock");
        write(&mut host);
        for _ in 0..2 {
            let before = settled(&world);
            wait_for_checkpoint(&mut server);
            replace(&mut server);
            assert_eq!(flash(&world), before);
            assert_whole(&mut host);
            assert!(age_ms(&world) < 10_000);
        }
        drop(host);
        server.stop();
    }
}

/// Writes after the checkpoint are in the data, and not in the model.
#[test]
fn a_model_without_a_later_checkpoint_continues_as_it_began() {
    let world = World::new();
    let mut server = serve(&world, "kind = \"ram\"", "");
    let mut host = Host::attach(&world, "c.sock");
    let begun = flash(&world);
    write(&mut host);
    assert_ne!(settled(&world), begun);
    replace(&mut server);
    assert_eq!(flash(&world), begun);
    assert_whole(&mut host);
    // `replace` has waited for more than a second.
    assert!(age_ms(&world) >= 1000);
    drop(host);
    server.stop();
}

#[test]
fn an_upgrade_carries_the_state_of_a_model_exactly() {
    let file = "kind = \"file\"\npath = \"m.img\"";
    // Without an interval it is saved for the other program only.
    for (backing, interval) in [("kind = \"ram\"", "60s"), (file, "0s")] {
        let world = World::new();
        let interval = format!("state_interval = \"{interval}\"");
        let server = serve(&world, backing, &interval);
        let mut host = Host::attach(&world, "c.sock");
        write(&mut host);
        let before = settled(&world);
        for _ in 0..2 {
            world.ok(&world.steer(&["upgrade"]));
            assert_eq!(flash(&world), before);
            assert_whole(&mut host);
            assert!(age_ms(&world) < 1000);
        }
        drop(host);
        server.stop();
    }
}

#[test]
fn a_model_that_is_lost_is_shown() {
    let world = World::new();
    let mut server = serve(&world, "kind = \"file\"\npath = \"m.img\"", "");
    let host = Host::attach(&world, "c.sock");
    fs::remove_file(world.path("m.img.timing")).unwrap();
    replace(&mut server);
    assert!(
        server.log().contains("its file is gone"),
        "{}",
        server.log()
    );
    let listed = world.ok(&world.steer(&["ls"]));
    let line = "\ntiming model of m: its checkpoint was lost: it began as a new drive\n";
    assert!(listed.contains(line), "{listed}");
    let metrics = world.ask("GET /metrics", &[], "").is(200).body;
    assert!(
        metrics.contains("nvmirage_restart_timing_models_lost 1\n"),
        "{metrics}"
    );
    assert!(!metrics.contains("checkpoint_age_seconds{"), "{metrics}");
    drop(host);
    server.stop();
}

/// A medium that is deleted has no checkpoint, and one of its name is another one.
#[test]
fn a_medium_of_the_same_name_is_a_new_drive() {
    let world = World::new();
    let mut server = serve(&world, "kind = \"ram\"", "state_interval = \"50ms\"");
    let mut host = Host::attach(&world, "c.sock");
    let begun = flash(&world);
    write(&mut host);
    settled(&world);
    wait_for_checkpoint(&mut server);
    drop(host);
    let text = fs::read_to_string(world.path("config.toml")).unwrap();
    world.write("config.toml", &text[..text.find("[[media]]").unwrap()]);
    world.ok(&world.steer(&["reload"]));
    world.write("config.toml", &text);
    world.ok(&world.steer(&["reload"]));
    let host = Host::attach(&world, "c.sock");
    for _ in 0..2 {
        assert_eq!(flash(&world), begun);
        replace(&mut server);
    }
    drop(host);
    server.stop();
}

mod slow {
    use super::*;

    #[test]
    fn a_damaged_checkpoint_begins_a_new_drive_and_is_counted() {
        let file = "kind = \"file\"\npath = \"m.img\"";
        for backing in ["kind = \"ram\"", file] {
            let world = World::new();
            let mut server = serve(&world, backing, "");
            let mut host = Host::attach(&world, "c.sock");
            let begun = flash(&world);
            write(&mut host);
            settled(&world);
            // Saves it.
            world.ok(&world.steer(&["upgrade"]));
            assert_ne!(flash(&world), begun);
            let place = match backing {
                file if file.contains("path") => world.path("m.img.timing"),
                _ => find_checkpoint(&mut server).expect("the holder has a checkpoint"),
            };
            let damaged = OpenOptions::new()
                .read(true)
                .write(true)
                .open(place)
                .unwrap();
            let mut bytes = [0; 8];
            damaged.read_exact_at(&mut bytes, 1024).unwrap();
            damaged
                .write_all_at(&bytes.map(|byte| !byte), 1024)
                .unwrap();
            for _ in 0..2 {
                replace(&mut server);
                assert_eq!(flash(&world), begun);
                assert_whole(&mut host);
                let lost = server.log().matches("its checksum does not match").count();
                assert_eq!(lost, 1, "{}", server.log());
            }
            // The second one has continued with what the first one has begun.
            assert!(age_ms(&world) >= 1000);
            drop(host);
            server.stop();
        }
    }
}

//! A modelled drive over a restart: the state of its timing, and the tools that make and copy it.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
use std::{fs, thread};

use rustix::process::Signal;

use crate::host::Host;
use crate::world::{BOUND, Server, World, names};

/// How long a look at a cell takes here. A page that was never written is sent without one.
const SENSE: Duration = Duration::from_millis(60);

/// A drive in a file, with more about its timing.
fn config(timing: &str) -> String {
    format!(
        r#"
state_dir = "kept"
[[media]]
name = "pro"
kind = "file"
path = "pro.img"
size = "5GiB"
[media.timing]
preset = "samsung-970-pro"
read_4k_cell0 = "60ms"
read_4k_cell1 = "60ms"
{FRESH}{timing}
[[namespace]]
name = "ns"
media = "pro"
[[controller]]
name = "c"
namespaces = ["ns"]
listen = "vfio-user:c.sock"
"#
    )
}

/// Drives of most of these tests begin without data.
const FRESH: &str = "initial = \"fresh\"\n";

fn serve(world: &World, config: &str) -> Server {
    let file = world.write("config.toml", config);
    world.serve(&["--config", file.to_str().unwrap()])
}

/// Error of a server that does not start with this configuration.
fn refuses(world: &World, config: &str) -> String {
    let file = world.write("config.toml", config);
    let control = world.unix("control");
    let file = file.to_str().unwrap();
    world.fails(&["serve", "--config", file, "--control", &control])
}

fn write(world: &World) {
    let mut host = Host::attach(world, "c.sock");
    (0..4).for_each(|lba| host.fill(1, lba, 7));
}

/// Whether pages that [`write`] wrote lie somewhere.
fn is_written(world: &World) -> bool {
    let mut host = Host::attach(world, "c.sock");
    let took = (0..4).map(|lba| {
        let begun = Instant::now();
        host.block(1, lba);
        begun.elapsed()
    });
    took.min().unwrap() >= SENSE
}

#[test]
fn a_drive_in_a_file_goes_on_as_it_was_left() {
    let world = World::new();
    let server = serve(&world, &config(""));
    assert!(server.log().contains("fresh, kept in"), "{}", server.log());
    assert!(!is_written(&world));
    write(&world);
    assert!(is_written(&world));
    server.stop();
    assert!(names(&world.path("")).contains(&"pro.img.timing".to_owned()));

    let server = serve(&world, &config("program = \"1ms\""));
    assert!(
        server.log().contains("as it was left in"),
        "{}",
        server.log()
    );
    assert!(is_written(&world));
    server.stop();

    fs::remove_file(world.path("pro.img.timing")).unwrap();
    let server = serve(&world, &config(""));
    assert!(!is_written(&world), "a fresh drive");
    server.stop();
}

/// Without another word a new drive is one that was written once, and one that was kept is not.
#[test]
fn a_new_drive_is_filled_and_one_that_was_kept_is_as_it_was() {
    let world = World::new();
    let server = serve(&world, &config(""));
    server.stop();
    let by_default = config("").replace(FRESH, "");
    let server = serve(&world, &by_default);
    let log = server.log();
    assert!(log.contains("as it was left in"), "{log}");
    assert!(!is_written(&world));
    server.stop();

    fs::remove_file(world.path("pro.img.timing")).unwrap();
    let server = serve(&world, &by_default);
    assert!(server.log().contains("filled, kept in"), "{}", server.log());
    assert!(is_written(&world));
    server.stop();
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

#[test]
fn after_a_crash_the_last_checkpoint_counts() {
    let world = World::new();
    let timing = "state = \"its.state\"\nstate_interval = \"50ms\"";
    let server = serve(&world, &config(timing));
    let state = world.path("its.state");
    write(&world);
    assert!(is_written(&world));
    let mut host = Host::attach(&world, "c.sock");
    let deadline = Instant::now() + BOUND;
    // State at the first of them is in the second one, which begins after it.
    for _ in 0..2 {
        let before = modified(&state);
        while modified(&state) == before {
            assert!(Instant::now() < deadline, "no checkpoint");
            host.fill(1, 100, 7);
        }
    }
    server.signal(Signal::KILL);
    server.end();
    drop(host);
    assert!(!names(&world.path("")).contains(&"pro.img.timing".to_owned()));

    crate::kept::wait_for_unlock(&world.path("pro.img"));
    let server = serve(&world, &config(timing));
    assert!(is_written(&world));
    let killed = "was killed: flushed data is complete";
    assert!(server.log().contains(killed), "{}", server.log());
    server.stop();
    let server = serve(&world, &config(timing));
    assert!(!server.log().contains(killed), "{}", server.log());
    server.stop();
}

#[test]
fn a_drive_that_rests_is_not_written_again() {
    let world = World::new();
    let server = serve(&world, &config("state_interval = \"20ms\""));
    write(&world);
    let state = world.path("pro.img.timing");
    let mut before = modified(&state);
    // Until nothing has come for as long as many checkpoints would take.
    let rests = (0..60).any(|_| {
        thread::sleep(Duration::from_millis(400));
        let now = modified(&state);
        std::mem::replace(&mut before, now) == now
    });
    assert!(rests, "it is written again and again");
    server.stop();
}

#[test]
fn a_state_that_cannot_be_taken_is_refused_and_left_alone() {
    let world = World::new();
    serve(&world, &config("")).stop();
    let file = world.path("pro.img.timing");
    let whole = fs::read(&file).unwrap();
    let mut newer = whole.clone();
    newer[8] = 99;
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x10;
    for (bytes, timing, says) in [
        (
            &whole,
            "overprovisioning = \"28%\"",
            "from another drive (lines is",
        ),
        (
            &newer,
            "",
            "unsupported state version 99; this program reads",
        ),
        (&damaged, "", "its checksum does not match"),
        (&whole[..whole.len() - 9].to_vec(), "", "damaged"),
        (&Vec::new(), "", "not a state of a timing model"),
        (
            &b"# my notes\n".to_vec(),
            "",
            "not a state of a timing model",
        ),
        (&vec![0; 200 << 20], "", "not a state file of this drive"),
    ] {
        fs::write(&file, bytes).unwrap();
        let error = refuses(&world, &config(timing));
        let place = "media pro";
        assert!(error.contains(says) && error.contains(place), "{error}");
        assert!(error.contains("pro.img.timing"), "{error}");
        assert!(
            fs::read(&file).unwrap() == *bytes,
            "it was written: {error}"
        );
    }
    fs::write(&file, &whole).unwrap();
    serve(&world, &config("")).stop();
}

#[test]
fn what_has_no_state_takes_no_file_and_one_file_is_of_one_drive() {
    let world = World::new();
    let ram = config("state = \"s\"").replace("\"file\"\npath = \"pro.img\"", "\"ram\"");
    let optane = ram.replace("samsung-970-pro", "optane-p4800x");
    let error = refuses(&world, &optane);
    assert!(
        error.contains("is only for presets of kind flash"),
        "{error}"
    );
    let folder = config("state = \"kept\"");
    fs::create_dir_all(world.path("kept")).unwrap();
    assert!(refuses(&world, &folder).contains("kept"));
    let nowhere = config("state = \"no/where\"");
    let error = refuses(&world, &nowhere);
    assert!(error.contains("no/where"), "{error}");

    // In memory only what the model knows is kept, where somebody asks for that.
    let server = serve(&world, &ram);
    write(&world);
    let twice = ram
        .replace("c.sock", "d.sock")
        .replace("\"kept\"", "\"kept2\"");
    let file = world.write("twice.toml", &twice);
    let control = world.unix("another");
    let file = file.to_str().unwrap();
    let error = world.fails(&["serve", "--config", file, "--control", &control]);
    assert!(error.contains("in use by another process"), "{error}");
    server.stop();
    let server = serve(&world, &ram);
    assert!(is_written(&world));
    server.stop();
}

/// The arguments of `precondition` for a drive of these tests.
fn precondition<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let drive = ["--preset", "samsung-970-pro", "--size", "5GiB"];
    let mut all = vec!["precondition", "--json"];
    all.extend(drive);
    all.extend(more);
    all
}

#[test]
fn a_drive_is_prepared_and_served_as_that() {
    let world = World::new();
    let file = world.write("config.toml", &config(""));
    let file = file.to_str().unwrap();
    let words = world.ok(&["precondition", "pro", "--config", file]);
    assert!(words.starts_with("played: "), "{words}");
    assert!(words.contains("write amplification "), "{words}");
    let server = serve(&world, &config(""));
    let log = server.log();
    assert!(log.contains("pro.img.timing, prepared"), "{log}");
    assert!(is_written(&world), "every page lies somewhere");
    let error = world.fails(&["precondition", "pro", "--config", file]);
    assert!(error.contains("'pro.img' is in use"), "{error}");
    server.stop();
    for (args, says) in [
        (&["pro2", "--config", file][..], "has no medium `pro2`"),
        (
            &[
                "--preset",
                "optane-p4800x",
                "--size",
                "5GiB",
                "--state",
                "s",
            ],
            "is not conventional flash",
        ),
    ] {
        let mut all = vec!["precondition"];
        all.extend(args);
        let error = world.fails(&all);
        assert!(error.contains(says), "{error}");
    }
}

/// The least that a drive writes itself at this over-provisioning: 7 % of 5 GiB and what was
/// rounded up are 15 %, of which a few lines are kept free (`nvmirage explain` says the same).
#[test]
fn what_was_played_and_what_was_written_down_are_alike() {
    let world = World::new();
    let state = world.path("state").join("x");
    fs::create_dir_all(state.parent().unwrap()).unwrap();
    let state = state.to_str().unwrap();
    let run = |more: &[&str]| world.json(&precondition(&[&["--state", state], more].concat()));
    let played = run(&[]);
    let bytes = fs::read(state).unwrap();
    assert_eq!(run(&[])["page_operations"], played["page_operations"]);
    assert!(
        fs::read(state).unwrap() == bytes,
        "the same seed, the same drive"
    );
    let seeded = run(&["--seeded"]);
    assert_eq!(
        (&played["method"], &seeded["method"]),
        (&"played".into(), &"seeded".into())
    );
    let amplification =
        |report: &serde_json::Value| report["write_amplification"].as_f64().unwrap();
    let distance = (amplification(&played) / amplification(&seeded) - 1.0).abs();
    assert!(distance < 0.03, "{played:#} {seeded:#}");
    assert!(amplification(&played) > 2.0, "{played:#}");
    // It is read as what it is, and what is something else is left alone.
    fs::write(state, "my notes").unwrap();
    let error = world.fails(&precondition(&["--state", state]));
    assert!(
        error.contains("is not the state of a timing model"),
        "{error}"
    );
    assert_eq!(fs::read(state).unwrap(), b"my notes");
}

#[test]
fn a_clone_has_the_bytes_and_the_past_of_the_other() {
    let world = World::new();
    let server = serve(&world, &config(""));
    write(&world);
    let (source, made) = (world.path("pro.img"), world.path("vm1.img"));
    let clone = ["clone", source.to_str().unwrap(), made.to_str().unwrap()];
    let error = world.fails(&clone);
    assert!(error.contains("in use: stop the server"), "{error}");
    server.stop();
    let words = world.ok(&clone);
    assert!(
        words.contains("vm1.img: ") && words.contains("vm1.img.timing: "),
        "{words}"
    );
    let error = world.fails(&clone);
    assert!(error.contains("already exists"), "{error}");
    let blocks = |path: &Path| std::os::unix::fs::MetadataExt::blocks(&fs::metadata(path).unwrap());
    assert!(blocks(&made) <= blocks(&source) + 64, "holes stay holes");
    let timing = |name| fs::read(world.path(name)).unwrap();
    assert!(timing("vm1.img.timing") == timing("pro.img.timing"));

    let other = config("").replace("pro.img", "vm1.img");
    let server = serve(&world, &other);
    assert!(is_written(&world));
    assert_eq!(Host::attach(&world, "c.sock").block(1, 0), vec![7; 4096]);
    server.stop();
    // Half a clone is none.
    fs::remove_file(world.path("vm1.img")).unwrap();
    let error = world.fails(&clone);
    assert!(error.contains("vm1.img.timing already exists"), "{error}");
    assert!(!made.exists());
}

#[test]
fn a_medium_in_memory_is_kept_over_a_clean_stop_only() {
    let world = World::new();
    let ram = config("").replace("\"file\"\npath = \"pro.img\"", "\"ram\"\nstate = \"bytes\"");
    let ram = ram
        .replace("5GiB", "64MiB")
        .replace("samsung-970-pro", "optane-p4800x");
    let ram: String = ram
        .lines()
        .filter(|line| !line.starts_with("read_4k") && !line.starts_with("initial"))
        .map(|line| format!("{line}\n"))
        .collect();
    let first = |byte| {
        let mut host = Host::attach(&world, "c.sock");
        assert_eq!(host.block(1, 0), vec![byte; 4096]);
        host.fill(1, 0, byte + 1);
    };
    let server = serve(&world, &ram);
    assert!(server.log().contains("empty, saved in"), "{}", server.log());
    first(0);
    server.stop();
    let server = serve(&world, &ram);
    assert!(
        server.log().contains("contents loaded from"),
        "{}",
        server.log()
    );
    first(1);
    server.signal(Signal::KILL);
    server.end();
    let server = serve(&world, &ram);
    assert!(
        server.log().contains("did not stop cleanly"),
        "{}",
        server.log()
    );
    first(0);
    server.stop();
    let whole = fs::read(world.path("bytes")).unwrap();
    let error = refuses(&world, &ram.replace("64MiB", "65MiB"));
    assert!(error.contains("correct the size"), "{error}");
    assert!(fs::read(world.path("bytes")).unwrap() == whole);
    let error = refuses(&world, &ram.replace("\"ram\"", "\"null\""));
    assert!(error.contains("is only for media in memory"), "{error}");
}

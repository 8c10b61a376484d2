//! The configuration file is read again while hosts go on: by command, by request, by signal.

use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::host::Host;
use crate::world::{BOUND, Ran, Server, World, ran};

/// A file with a controller, and a modelled drive.
pub(super) fn text(world: &World) -> String {
    format!(
        "[[media]]\nname = \"file\"\nkind = \"file\"\npath = \"{}\"\nsize = \"64MiB\"\n\
         [[media]]\nname = \"model\"\nkind = \"ram\"\nsize = \"64MiB\"\ntiming.preset = \"optane-p4800x\"\n\
         [[namespace]]\nname = \"a\"\nmedia = \"file\"\nrange = \"0MiB..16MiB\"\n\
         [[namespace]]\nname = \"b\"\nmedia = \"model\"\n\
         [[tenant]]\nname = \"web\"\niops = 100000\n\
         [[controller]]\nname = \"one\"\nnamespaces = [\"a\"]\nlisten = \"{}\"\n\
         [[controller]]\nname = \"two\"\nnamespaces = [\"b\"]\nlisten = \"{}\"\n",
        world.path("disk.img").display(),
        world.vfio_user("one.sock"),
        world.vfio_user("two.sock"),
    )
}

pub(super) fn serve(world: &World, text: &str) -> Server {
    let file = world.write("config.toml", text);
    world.serve(&["--config", file.to_str().unwrap()])
}

pub(super) fn reload(world: &World, more: &[&str]) -> Ran {
    world.run(&world.steer(&[&["reload"], more].concat()))
}

/// The objects, without values that change by themselves.
fn served(world: &World) -> Value {
    let mut inventory = world.inventory();
    for controller in inventory["controllers"].as_array_mut().unwrap() {
        for counted in ["doorbell_messages", "attached", "placement"] {
            controller[counted].take();
        }
    }
    for tenant in inventory["tenants"].as_array_mut().into_iter().flatten() {
        for counted in ["commands", "bytes", "capped", "held", "at_media"] {
            tenant[counted].take();
        }
    }
    for medium in inventory["media"].as_array_mut().unwrap() {
        for counted in ["io", "file", "model", "zones", "pairs", "drive"] {
            medium[counted].take();
        }
    }
    for kind in ["media", "namespaces", "tenants", "controllers"] {
        if let Some(all) = inventory[kind].as_array_mut() {
            all.sort_by_key(|one| one["name"].as_str().unwrap().to_owned());
        }
    }
    inventory
}

/// One object.
pub(super) fn shown(world: &World, kind: &str, name: &str) -> Value {
    world.json(&world.steer(&["show", kind, name, "--json"]))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_edited_file_is_served_while_hosts_go_on_and_after_a_restart() {
    let world = World::new();
    let before = text(&world);
    let server = serve(&world, &before);
    world.ok(&world.steer(&["create", "tenant", "made", "--weight", "9"]));
    let mut bench = world.program();
    bench.args([
        "bench",
        "--target",
        &world.vfio_user("one.sock"),
        "--destroy-data",
        "--rw",
        "randrw",
    ]);
    bench.args(["--time", "4s", "--verify", "--json"]);
    bench.stdout(Stdio::piped()).stderr(Stdio::piped());
    let bench = bench.spawn().unwrap();
    until("the host attaches", || {
        shown(&world, "controller", "one")["attached"] == true
    });

    let after = before
        .replace("0MiB..16MiB\"", "0MiB..32MiB\"\ntenant = \"web\"")
        .replace("iops = 100000", "iops = 1000000")
        .replace(
            "\"optane-p4800x\"",
            "\"optane-p4800x\"\ntiming.read_latency = \"30us\"",
        )
        .replace("[\"a\"]", "[\"a\", \"c\"]")
        + "[[namespace]]\nname = \"c\"\nmedia = \"file\"\nrange = \"32MiB..64MiB\"\n";
    world.write("config.toml", &after);
    let now = served(&world);
    let dry = reload(&world, &["--dry-run", "--json"]);
    assert!(dry.status.success(), "{}", dry.err);
    let plan: Value = serde_json::from_str(&dry.out).unwrap();
    let steps: Vec<String> = plan["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| format!("{} {} {}", s["action"], s["kind"], s["name"]).replace('"', ""))
        .collect();
    let expected = [
        "change namespace a",
        "change tenant web",
        "change media model",
        "change namespace a",
        "create namespace c",
        "attach namespace c",
    ];
    assert_eq!(steps, expected);
    assert_eq!(plan["dry_run"], true);
    assert_eq!(served(&world), now, "nothing has changed");

    let done = reload(&world, &[]);
    assert!(done.status.success(), "{}{}", done.out, done.err);
    assert!(
        done.out.contains("~ tenant web: iops 100000 -> 1000000"),
        "{}",
        done.out
    );
    assert!(
        done.out
            .contains("+ namespace c attached to controller one"),
        "{}",
        done.out
    );
    assert_eq!(
        shown(&world, "media", "model")["timing"]["read_latency"],
        "30us"
    );
    assert_eq!(shown(&world, "namespace", "a")["blocks"], (32 << 20) / 4096);
    assert_eq!(shown(&world, "tenant", "web")["iops"], 1_000_000);
    assert_eq!(shown(&world, "tenant", "made")["weight"], 9);
    let attached = shown(&world, "controller", "one");
    assert_eq!(attached["namespaces"], serde_json::json!(["a", "c"]));
    assert_eq!(attached["attached"], true, "its host is still there");
    let again = reload(&world, &[]);
    assert!(again.out.contains("nothing to do"), "{}", again.out);
    let bench = ran(bench.wait_with_output().unwrap());
    assert!(bench.status.success(), "{}", bench.err);
    let bench: Value = serde_json::from_str(&bench.out).unwrap();
    assert_eq!(bench["jobs"][0]["errors"], 0);

    let now = served(&world);
    server.stop();
    let file = world.path("config.toml");
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    assert_eq!(served(&world), now);
    assert!(reload(&world, &[]).out.contains("nothing to do"));
    // what was taken from it since stays so, and is not given back by the file that gave it
    world.ok(&world.steer(&["detach", "c", "one"]));
    server.stop();
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    assert_eq!(
        shown(&world, "controller", "one")["namespaces"],
        serde_json::json!(["a"])
    );
    server.stop();
}

#[test]
fn a_file_that_cannot_be_used_changes_nothing() {
    let world = World::new();
    let good = text(&world);
    let server = serve(&world, &good);
    let before = served(&world);
    for (bad, words) in [
        (
            format!("{good}[[tenant]]\nname = \"new\"\nwait = 3\n"),
            "did you mean `weight`?",
        ),
        (
            good.replace("16MiB", "96MiB"),
            "ends beyond the medium's size",
        ),
        (
            good.replace("[\"a\"]", "[\"a\", \"x\"]"),
            "there is no namespace \"x\"",
        ),
        ("[[media".to_owned(), "config.toml cannot be used"),
    ] {
        world.write("config.toml", &format!("{bad}\n"));
        let error = world.fails(&world.steer(&["reload"]));
        assert!(error.contains(words), "{error}");
        assert_eq!(served(&world), before);
    }
    std::fs::remove_file(world.path("config.toml")).unwrap();
    let error = world.fails(&world.steer(&["reload", "--dry-run"]));
    assert!(error.contains("cannot read the configuration"), "{error}");
    // as a signal, too: it goes on
    server.signal(Signal::HUP);
    until("it says so", || {
        server
            .log()
            .contains("reloaded configuration is not applied")
    });
    assert_eq!(served(&world), before);
    server.stop();

    let server = world.serve_media("ram:size=1MiB");
    let error = world.fails(&world.steer(&["reload"]));
    assert!(error.contains("started without --config"), "{error}");
    server.stop();
}

#[test]
fn a_host_keeps_its_drive_until_it_is_gone_or_may_lose_it() {
    let world = World::new();
    let before = text(&world);
    let server = serve(&world, &before);
    let mut host = Host::attach(&world, "one.sock");
    let after = before
        .replace("one.sock\"", "one.sock\"\nqueues = 3")
        .replace("two.sock\"", "two.sock\"\nqueues = 5")
        + "[[reactor]]\nmode = \"interrupt\"\n";
    world.write("config.toml", &after);
    let first = reload(&world, &[]);
    assert_eq!(first.status.code(), Some(1), "{}", first.out);
    for line in [
        "- controller two: to be recreated: queues cannot change",
        "+ controller two",
        "! controller one stays as it is: queues cannot change, and a host is attached",
        "! reactor: takes effect at the next start",
    ] {
        assert!(first.out.contains(line), "{line}: {}", first.out);
    }
    assert_eq!(shown(&world, "controller", "two")["queues"], 5);
    assert_eq!(shown(&world, "controller", "one")["queues"], 64);
    assert_eq!(host.active(), [1]);

    // asked for twice, it says the same and does nothing
    let second = reload(&world, &[]);
    assert!(
        second.out.contains("! controller one") && second.out.contains("nothing else to do"),
        "{}",
        second.out
    );
    drop(host);
    until("the host is gone", || {
        shown(&world, "controller", "one")["attached"] == false
    });
    let third = reload(&world, &[]);
    assert!(third.out.contains("+ controller one"), "{}", third.out);
    assert_eq!(shown(&world, "controller", "one")["queues"], 3);

    // one that may be lost
    let host = Host::attach(&world, "one.sock");
    let without = after
        .split("[[controller]]\nname = \"one\"")
        .next()
        .unwrap()
        .to_owned()
        + "[[controller]]\nname = \"two\""
        + after
            .split("[[controller]]\nname = \"two\"")
            .nth(1)
            .unwrap();
    world.write("config.toml", &without);
    assert!(
        reload(&world, &[])
            .out
            .contains("! controller one stays as it is: a host is attached")
    );
    let lost = reload(&world, &["--detach-hosts"]);
    assert!(
        lost.out.contains("- controller one"),
        "{}{}",
        lost.out,
        lost.err
    );
    assert_eq!(
        world.inventory()["controllers"].as_array().unwrap().len(),
        1
    );
    drop(host);
    let now = served(&world);
    server.stop();
    let file = world.path("config.toml");
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    assert_eq!(served(&world), now);
    server.stop();
}

#[test]
fn a_signal_does_the_same_and_the_log_has_the_plan() {
    let world = World::new();
    let before = text(&world);
    let server = serve(&world, &before);
    let after = before.replace("iops = 100000", "iops = 5") + "[log]\nfilter = \"debug\"\n";
    world.write("config.toml", &after);
    server.signal(Signal::HUP);
    until("the tenant changes", || {
        shown(&world, "tenant", "web")["iops"] == 5
    });
    until("the log has it", || {
        server.log().contains("~ tenant web: iops 100000 -> 5")
    });
    let log = || world.ask("GET /v1/log", &[], "").is(200).json();
    until("more is logged", || log()["filter"] == "debug");
    // what the file says no more is as it is by default, and what it does not change stays as it
    // was set
    world.ok(&world.steer(&["set", "tenant", "web", "weight=7"]));
    world.write("config.toml", &after.replace("debug", "warn"));
    server.signal(Signal::HUP);
    until("less is logged", || log()["filter"] == "warn");
    assert_eq!(shown(&world, "tenant", "web")["weight"], 7);
    server.stop();
}

/// A controller that is recreated has what it had: what was taken from it stays so, and what was
/// given to it, too.
#[test]
fn a_recreated_controller_has_what_it_had() {
    let more = "[[namespace]]\nname = \"c\"\nmedia = \"file\"\nrange = \"32MiB..48MiB\"\n\
                [[namespace]]\nname = \"d\"\nmedia = \"file\"\nrange = \"48MiB..64MiB\"\n";
    // another controller keeps the subsystem, or none does
    for shared in [false, true] {
        let world = World::new();
        let mut before = text(&world).replace("[\"a\"]", "[\"a\", \"c\"]") + more;
        if shared {
            before = before.replace("[[controller]]\n", "[[controller]]\nsubsystem = \"s\"\n");
        }
        let server = serve(&world, &before);
        world.ok(&world.steer(&["detach", "a", "one"]));
        world.ok(&world.steer(&["attach", "d", "one"]));
        let has = || shown(&world, "controller", "one")["namespaces"].clone();
        assert_eq!(has(), serde_json::json!(["c", "d"]));
        world.write(
            "config.toml",
            &before.replace("one.sock\"", "one.sock\"\nqueues = 3"),
        );
        let done = reload(&world, &[]);
        assert!(done.status.success(), "{}{}", done.out, done.err);
        assert_eq!(shown(&world, "controller", "one")["queues"], 3);
        assert_eq!(has(), serde_json::json!(["c", "d"]));
        server.stop();
        let file = world.path("config.toml");
        let server = world.serve(&["--config", file.to_str().unwrap()]);
        assert_eq!(has(), serde_json::json!(["c", "d"]));
        server.stop();
    }
}

/// A file that cannot be read again is not taken for an empty one, which would delete every object.
#[test]
fn a_pipe_and_an_empty_file_delete_nothing() {
    let world = World::new();
    let text = text(&world);
    let server = serve(&world, &text);
    let before = served(&world);
    world.write("config.toml", "\n");
    let error = world.fails(&world.steer(&["reload"]));
    assert!(
        error.contains("is empty, which would delete every object"),
        "{error}"
    );
    let file = world.path("config.toml");
    std::fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &file,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let error = world.fails(&world.steer(&["reload"]));
    assert!(
        error.contains("not a regular file, so it cannot be reloaded"),
        "{error}"
    );
    assert_eq!(served(&world), before);
    // on purpose
    std::fs::remove_file(&file).unwrap();
    world.write("config.toml", "# nothing any more\n");
    let done = reload(&world, &[]);
    assert!(done.status.success(), "{}", done.err);
    assert_eq!(world.inventory()["media"], serde_json::json!([]));
    // there is nothing left to lose
    world.write("config.toml", "\n");
    let done = reload(&world, &[]);
    assert!(done.status.success(), "{}", done.err);
    server.stop();
}

/// State of a medium that can no longer be kept is reported, and the medium is gone all the same.
#[test]
fn a_medium_that_closes_with_an_error_is_gone() {
    let world = World::new();
    let folder = world.path("records");
    std::fs::create_dir(&folder).unwrap();
    let record = folder.join("ops.json");
    let timed = format!(
        "[[media]]\nname = \"timed\"\nkind = \"ram\"\nsize = \"16MiB\"\ntiming.preset = \"optane-p4800x\"\ntiming.record = \"{}\"\n",
        record.display()
    );
    let server = serve(&world, &timed);
    std::fs::remove_dir_all(&folder).unwrap();
    let error = world.fails(&world.steer(&["delete", "media", "timed"]));
    assert!(error.contains("media timed"), "{error}");
    assert_eq!(world.inventory()["media"], serde_json::json!([]));
    let create = [
        "create", "media", "timed", "--kind", "ram", "--size", "1MiB",
    ];
    world.ok(&world.steer(&create));
    world.ok(&world.steer(&["delete", "media", "timed"]));
    server.stop();
}

#[test]
fn requests_at_the_same_time_take_turns_with_it() {
    let world = World::new();
    let before = text(&world);
    let server = serve(&world, &before);
    let tag = world.ask("GET /v1/tenants/web", &[], "").is(200);
    let tag = tag.header("etag").unwrap().to_owned();
    thread::scope(|scope| {
        for worker in 0..3 {
            let world = &world;
            scope.spawn(move || {
                for round in 0..4 {
                    let name = format!("t{worker}-{round}");
                    world.ok(&world.steer(&["create", "tenant", &name]));
                    world.ok(&world.steer(&["set", "tenant", &name, "weight=3"]));
                }
            });
        }
        for weight in 1..6 {
            let edited = before.replace("iops = 100000", &format!("iops = {weight}"));
            world.write("config.toml", &edited);
            let done = reload(&world, &[]);
            assert!(done.status.success(), "{}", done.err);
        }
    });
    let tenants = world.inventory()["tenants"].clone();
    assert_eq!(tenants.as_array().unwrap().len(), 13);
    assert_eq!(shown(&world, "tenant", "web")["iops"], 5);
    for made in tenants
        .as_array()
        .unwrap()
        .iter()
        .filter(|t| t["name"] != "web")
    {
        assert_eq!(made["weight"], 3, "{made}");
    }
    // a client that has looked before the file was read again cannot change what it has not seen
    let change = "{\"changes\": {\"iops\": \"9\"}}";
    let late = world.ask("PATCH /v1/tenants/web", &[("If-Match", &tag)], change);
    late.refuses(412, "has changed since it was read");
    world
        .ask("POST /v1/reload", &[], "{\"dry\": true}")
        .refuses(422, "did you mean `dry_run`?");
    let plan = world.ask("POST /v1/reload", &[], "").is(200).json();
    assert_eq!(plan["steps"], serde_json::json!([]));
    server.stop();
}

/// sd_notify(3): `RELOADING=1` with a time of the monotonic clock, then `READY=1`.
#[test]
fn a_manager_hears_that_it_is_read_and_is_ready_again() {
    let world = World::new();
    let path = world.path("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(BOUND)).unwrap();
    let hear = || {
        let mut message = [0; 1024];
        let len = manager.recv(&mut message).expect("it says nothing");
        String::from_utf8(message[..len].to_vec()).unwrap()
    };
    let file = world.write("config.toml", "");
    let mut command = world.program();
    command.args(["serve", "--config", file.to_str().unwrap()]);
    command.args(["--control", &world.unix("control")]);
    command.env("NOTIFY_SOCKET", &path);
    let server = Server::start(command, world.path("server.log"));
    assert!(hear().contains("READY=1"));
    for (text, status) in [
        (
            "[[tenant]]\nname = \"web\"\n",
            "the configuration is applied",
        ),
        ("nonsense = 1\n", "the previous configuration stays in use"),
    ] {
        world.write("config.toml", text);
        let before = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        server.signal(Signal::HUP);
        let begun = hear();
        let line = |key: &str| begun.lines().find_map(|line| line.strip_prefix(key));
        assert_eq!(line("RELOADING="), Some("1"), "{begun}");
        let usec: i64 = line("MONOTONIC_USEC=").unwrap().parse().unwrap();
        assert!(
            usec >= before.tv_sec * 1_000_000 + before.tv_nsec / 1000,
            "{begun}"
        );
        let ended = hear();
        assert!(
            ended.contains("READY=1") && ended.contains(status),
            "{ended}"
        );
    }
    assert_eq!(shown(&world, "tenant", "web")["name"], "web");
    server.stop();
}

/// Whichever says it, and in whatever order.
#[test]
fn what_a_subsystem_is_its_controllers_say_together() {
    let world = World::new();
    let before = text(&world);
    let server = serve(&world, &before);
    let after = |socket: &str| {
        format!(
            "{before}[[media]]\nname = \"first\"\nkind = \"ram\"\nsize = \"16MiB\"\n\
             [[media]]\nname = \"second\"\nkind = \"ram\"\nsize = \"32MiB\"\n\
             [[controller]]\nname = \"x\"\nsubsystem = \"pair\"\npool = [\"first\"]\nlisten = \"{}\"\n\
             [[controller]]\nname = \"y\"\nsubsystem = \"pair\"\npool = [\"second\"]\nserial = \"S7\"\nlisten = \"{}\"\n",
            world.vfio_user("x.sock"),
            world.vfio_user(socket),
        )
    };
    // without the second one, the first one has what both say
    world.write("config.toml", &after("no-folder/y.sock"));
    world.fails(&world.steer(&["reload"]));
    let x = shown(&world, "controller", "x");
    assert_eq!(x["pool"], json!(["first", "second"]));
    assert_eq!(x["serial"], "S7");
    world.write("config.toml", &after("y.sock"));
    world.ok(&world.steer(&["reload"]));
    let mut x = Host::attach(&world, "x.sock");
    let identity = x.device().identify_controller().unwrap();
    assert_eq!(nvme_spec::identify::ascii_text(&identity.sn), "S7");
    // of 32 MiB, which only the second one's has
    let nsid = x.create(8192, false);
    x.delete(nsid);
    drop(x);
    // and each says its own
    assert_eq!(shown(&world, "controller", "x")["pool"], json!(["first"]));
    assert_eq!(shown(&world, "controller", "x")["serial"], Value::Null);
    let again = world.ok(&world.steer(&["reload", "--dry-run"]));
    assert!(again.contains("nothing"), "{again}");
    server.stop();
}

#[test]
fn objects_that_a_reload_removes_come_back_as_the_file_says() {
    let world = World::new();
    let all = text(&world);
    // Medium `file`, namespace `a` and controller `one`: all of a subsystem.
    let rest = all
        .split("[[")
        .filter(|one| !["\"file\"", "\"a\""].iter().any(|name| one.contains(name)))
        .collect::<Vec<_>>()
        .join("[[");
    let server = serve(&world, &all);
    for _ in 0..2 {
        world.write("config.toml", &rest);
        world.ok(&world.steer(&["reload"]));
        let inventory = world.inventory();
        assert_eq!(inventory["controllers"].as_array().map(Vec::len), Some(1));
        world.write("config.toml", &all);
        world.ok(&world.steer(&["reload"]));
        assert_eq!(
            shown(&world, "namespace", "a")["controllers"],
            json!(["one"])
        );
        let again = world.ok(&world.steer(&["reload", "--dry-run"]));
        assert!(!again.contains("namespace"), "{again}");
    }
    server.stop();
    let server = serve(&world, &all);
    assert_eq!(
        shown(&world, "namespace", "a")["controllers"],
        json!(["one"])
    );
    server.stop();
}

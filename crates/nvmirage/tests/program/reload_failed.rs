//! A reload that fails at a step: what is there then, and how it goes on.

use rustix::process::Signal;
use serde_json::json;

use crate::reload::{reload, serve, shown, text};
use crate::world::{Server, World};

#[test]
fn a_step_that_fails_ends_it_and_the_next_reload_goes_on() {
    let world = World::new();
    let before = text(&world);
    let server = serve(&world, &before);
    let folder = world.path("later");
    let after = format!(
        "{}[[media]]\nname = \"new\"\nkind = \"file\"\npath = \"{}/x.img\"\nsize = \"1MiB\"\n[[namespace]]\nname = \"d\"\nmedia = \"new\"\n",
        before.replace("iops = 100000", "iops = 7"),
        folder.display()
    );
    world.write("config.toml", &after);
    let error = world.fails(&world.steer(&["reload"]));
    for words in [
        "stopped at `+ media new",
        "done before: ~ tenant web",
        "reload again",
    ] {
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(shown(&world, "tenant", "web")["iops"], 7);
    std::fs::create_dir(&folder).unwrap();
    let done = reload(&world, &[]);
    assert!(done.status.success(), "{}", done.err);
    assert_eq!(done.out.matches('+').count(), 2, "{}", done.out);
    assert_eq!(shown(&world, "namespace", "d")["media"], "new");
    server.stop();
}

/// The objects served after a step that failed are a configuration that an operator can go on with,
/// and the operator's next change counts.
#[test]
fn after_a_step_that_fails_an_operator_can_go_on() {
    let world = World::new();
    let before = text(&world);
    let server = serve(&world, &before);
    // neither the list of a controller nor its namespace is there in the middle
    world.ok(&world.steer(&["detach", "a", "one"]));
    let missing = world.path("missing");
    let image = world.path("disk.img");
    let after = before.replace(
        image.to_str().unwrap(),
        missing.join("disk.img").to_str().unwrap(),
    );
    world.write("config.toml", &after);
    let error = world.fails(&world.steer(&["reload"]));
    assert!(error.contains("stopped at `+ media file"), "{error}");
    world.ok(&world.steer(&["create", "tenant", "other"]));
    world.ok(&world.steer(&["set", "tenant", "other", "weight=3"]));
    // an operator creates it with another file, which applies from then on
    let other = world.path("other.img");
    let create = [
        "create", "media", "file", "--kind", "file", "--size", "32MiB",
    ];
    world.ok(&world.steer(&[&create[..], &["--path", other.to_str().unwrap()]].concat()));
    world.ok(&world.steer(&["delete", "controller", "two"]));
    let is_so = |world: &World| {
        assert_eq!(
            shown(world, "media", "file")["path"],
            other.to_str().unwrap()
        );
        let all = world.inventory();
        let names = all["controllers"].as_array().unwrap().iter();
        let names: Vec<_> = names.map(|c| c["name"].clone()).collect();
        assert_eq!(names, ["one"]);
    };
    is_so(&world);
    server.stop();
    let file = world.path("config.toml");
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    is_so(&world);
    server.stop();
}

/// How a reload that stopped halfway goes on.
#[derive(Clone, Copy, Debug)]
enum GoesOn {
    ByAReload,
    AfterAStop,
    AfterAKill,
}

/// A server whose reload recreated two controllers of a subsystem and their namespace `a`, and
/// failed at the second one, which cannot listen in place of a folder; and the file with a place
/// where it can.
fn with_half_a_subsystem(world: &World) -> (Server, String) {
    let before = text(world).replace("[[controller]]\n", "[[controller]]\nsubsystem = \"s\"\n");
    let server = serve(world, &before);
    let (disk, moved) = (world.path("disk.img"), world.path("moved.img"));
    std::fs::create_dir(world.path("folder")).unwrap();
    let after = before
        .replace(disk.to_str().unwrap(), moved.to_str().unwrap())
        .replace("one.sock\"", "one.sock\"\npool = [\"other\"]")
        .replace("two.sock", "folder")
        .replace("namespaces = [\"b\"]", "namespaces = [\"b\", \"a\"]")
        + "[[media]]\nname = \"other\"\nkind = \"null\"\nsize = \"1MiB\"\n";
    world.write("config.toml", &after);
    let error = world.fails(&world.steer(&["reload"]));
    assert!(error.contains("stopped at `+ controller two"), "{error}");
    (server, after.replace("folder", "two.sock"))
}

fn has(world: &World, controller: &str) -> serde_json::Value {
    shown(world, "controller", controller)["namespaces"].clone()
}

/// A namespace that has returned is in use before the reload has ended, so a restart takes it as
/// its subsystem left it.
#[test]
fn a_namespace_that_has_returned_is_not_replaced_at_the_next_start() {
    let world = World::new();
    let (server, mended) = with_half_a_subsystem(&world);
    assert_eq!(has(&world, "one"), json!(["a"]));
    world.ok(&world.steer(&["detach", "a", "one"]));
    server.signal(Signal::KILL);
    drop(server);
    let server = serve(&world, &mended);
    assert_eq!(has(&world, "one"), json!([]));
    assert_eq!(has(&world, "two"), json!(["a", "b"]));
    server.stop();
}

/// An operator creates a controller that the reload did not get to: it has what the operator says.
#[test]
fn a_controller_that_is_created_instead_of_the_reload_has_its_own_list() {
    let world = World::new();
    let (server, _) = with_half_a_subsystem(&world);
    let listen = world.vfio_user("two.sock");
    let create = [
        "create",
        "controller",
        "two",
        "--subsystem",
        "s",
        "--listen",
        &listen,
    ];
    world.ok(&world.steer(&[&create[..], &["--namespaces", "b"]].concat()));
    assert_eq!(has(&world, "one"), json!(["a"]));
    assert_eq!(has(&world, "two"), json!(["b"]));
    server.stop();
}

mod slow {
    use super::*;

    /// A reload deletes namespaces and controllers, and then cannot create their medium.
    /// Attachments that hosts and operators had made and removed return with them, however it goes
    /// on.
    #[test]
    fn what_a_reload_has_taken_away_returns_after_a_failed_step_a_stop_or_a_kill() {
        let more = "[[namespace]]\nname = \"c\"\nmedia = \"file\"\nrange = \"32MiB..48MiB\"\n\
                    [[namespace]]\nname = \"d\"\nmedia = \"file\"\nrange = \"48MiB..64MiB\"\n";
        for goes_on in [GoesOn::ByAReload, GoesOn::AfterAStop, GoesOn::AfterAKill] {
            // alone in the subsystem, beside a controller that stays, or beside one that is
            // recreated
            for (shared, others) in [(false, ""), (true, ""), (true, "\npool = [\"other\"]")] {
                let world = World::new();
                let mut before = text(&world).replace("[\"a\"]", "[\"a\", \"c\"]") + more;
                if shared {
                    before =
                        before.replace("[[controller]]\n", "[[controller]]\nsubsystem = \"s\"\n");
                }
                let server = serve(&world, &before);
                world.ok(&world.steer(&["detach", "a", "one"]));
                world.ok(&world.steer(&["attach", "d", "one"]));
                let has = |name: &str| shown(&world, "controller", name)["namespaces"].clone();
                let id = |name: &str| shown(&world, "controller", name)["controller_id"].clone();
                let ids = [id("one"), id("two")];
                let missing = world.path("missing");
                let disk = world.path("disk.img");
                let moved = missing.join("disk.img");
                let after = before
                    .replace(disk.to_str().unwrap(), moved.to_str().unwrap())
                    .replace("one.sock\"", "one.sock\"\nqueues = 3")
                    .replace("two.sock\"", &format!("two.sock\"{others}"))
                    + "[[media]]\nname = \"other\"\nkind = \"null\"\nsize = \"1MiB\"\n";
                world.write("config.toml", &after);
                let error = world.fails(&world.steer(&["reload"]));
                assert!(error.contains("stopped at `+ media file"), "{error}");
                std::fs::create_dir(&missing).unwrap();
                let file = world.path("config.toml");
                let start = || world.serve(&["--config", file.to_str().unwrap()]);
                let server = match goes_on {
                    GoesOn::ByAReload => {
                        let done = reload(&world, &[]);
                        assert!(done.status.success(), "{}{}", done.out, done.err);
                        server
                    }
                    GoesOn::AfterAStop => {
                        server.stop();
                        start()
                    }
                    GoesOn::AfterAKill => {
                        server.signal(Signal::KILL);
                        drop(server);
                        start()
                    }
                };
                let case = format!("{goes_on:?}, {shared}, {others}");
                let is_as_wanted = || {
                    assert_eq!(has("one"), json!(["c", "d"]), "{case}");
                    assert_eq!(has("two"), json!(["b"]), "{case}");
                    assert_eq!([id("one"), id("two")], ids, "{case}");
                    assert_eq!(shown(&world, "controller", "one")["queues"], 3, "{case}");
                    assert_eq!(
                        shown(&world, "media", "file")["path"],
                        moved.to_str().unwrap()
                    );
                };
                is_as_wanted();
                // the plan is at its end, so nothing is left to do
                let again = reload(&world, &[]);
                assert!(again.out.contains("nothing to do"), "{case}: {}", again.out);
                server.signal(Signal::KILL);
                drop(server);
                let server = start();
                is_as_wanted();
                server.stop();
            }
        }
    }
}

//! Which server a command asks, and what it says of that.

use std::path::Path;

use crate::world::{Ran, Server, World, ran};

/// A server of nothing at a control socket of that name.
fn serve(world: &World, name: &str) -> Server {
    let file = world.write(&format!("{name}.toml"), "");
    let mut command = world.program();
    command.args(["serve", "--config", file.to_str().unwrap()]);
    command.args(["--control", &world.unix(name)]);
    Server::start(command, world.path(&format!("{name}.log")))
}

/// Runs the program where the environment names a control socket.
fn with(world: &World, variable: &str, args: &[&str]) -> Ran {
    let mut command = world.program();
    ran(command
        .env("NVMIRAGE_CONTROL", variable)
        .args(args)
        .output()
        .unwrap())
}

fn media_of(world: &World, control: &str) -> Vec<String> {
    let inventory = world.json(&["ls", "--json", "--control", control]);
    let media = inventory["media"].as_array().unwrap().iter();
    media
        .map(|m| m["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_environment_names_a_server_and_the_command_line_another() {
    let world = World::new();
    let (one, two) = (serve(&world, "one"), serve(&world, "two"));
    let (a, b) = (world.unix("one"), world.unix("two"));
    let create = |more: [&[&str]; 2], name| {
        let create = ["create", "media", name, "--kind", "ram", "--size", "1MiB"];
        let ran = with(&world, &a, &[more[0], &create[..], more[1]].concat());
        assert!(ran.status.success(), "{}", ran.err);
        ran.err
    };
    // what acts says where, as the line does not
    let said = create([&[], &[]], "by-variable");
    let path = world.path("one");
    let server = format!("server: {}, which NVMIRAGE_CONTROL names", path.display());
    assert!(said.contains(&server), "{said}");
    let before = create([&["--control", &b], &[]], "before");
    let behind = create([&[], &["--control", &b]], "behind");
    assert_eq!((before.as_str(), behind.as_str()), ("", ""));
    assert_eq!(media_of(&world, &a), ["by-variable"]);
    assert_eq!(media_of(&world, &b), ["before", "behind"]);
    // what reads says nothing: it is the first choice
    let ls = with(&world, &a, &["ls"]);
    assert!(
        ls.status.success() && ls.out.contains("by-variable"),
        "{}",
        ls.err
    );
    assert_eq!(ls.err, "");
    let stop = with(&world, &a, &["stop"]);
    assert!(stop.status.success(), "{}", stop.err);
    assert!(one.end().success());
    two.stop();
}

#[test]
fn an_address_that_is_wrong_is_named_with_where_it_came_from() {
    let world = World::new();
    for (variable, why) in [
        ("control.sock", "has no scheme"),
        ("vfio-user:/a", "write unix:PATH"),
    ] {
        for args in [&["ls"][..], &["stop"], &["delete", "media", "m"]] {
            let ran = with(&world, variable, args);
            assert_eq!(ran.status.code(), Some(2), "{}", ran.err);
            let says = format!("NVMIRAGE_CONTROL={variable}: ");
            assert!(
                ran.err.contains(&says) && ran.err.contains(why),
                "{}",
                ran.err
            );
        }
    }
    let nobody = |ran: Ran, path: &Path, origin: &str| {
        assert_eq!(ran.status.code(), Some(1), "{}", ran.err);
        let says = format!("no server at {} ({origin})", path.display());
        assert!(ran.err.contains(&says), "{}", ran.err);
    };
    let missing = world.unix("missing");
    let path = world.path("missing");
    nobody(with(&world, &missing, &["ls"]), &path, "NVMIRAGE_CONTROL");
    nobody(
        world.run(&["ls", "--control", &missing]),
        &path,
        "--control",
    );
    nobody(
        world.run(&["--control", &missing, "stop"]),
        &path,
        "--control",
    );
    let own = world.path("run/nvmirage/control.sock");
    nobody(
        with(&world, "", &["delete", "media", "m"]),
        &own,
        "the default",
    );
    let usage = world.run(&["--control", &missing, "explain", "samsung-970-pro"]);
    assert_eq!(usage.status.code(), Some(2), "{}", usage.err);
    assert!(
        usage
            .err
            .contains("`nvmirage explain` does not use a server"),
        "{}",
        usage.err
    );
}

#[test]
fn a_server_listens_where_the_environment_says() {
    let world = World::new();
    let control = world.unix("named");
    let mut command = world.program();
    command.env("NVMIRAGE_CONTROL", &control);
    let file = world.write("config.toml", "");
    command.args(["serve", "--config", file.to_str().unwrap()]);
    let server = Server::start(command, world.path("server.log"));
    world.ok(&["ls", "--control", &control]);
    server.stop();
}

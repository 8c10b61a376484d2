//! `nvmirage top` in a real terminal: a pseudoterminal, and a program that understands what is
//! written to it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use vt100::Parser;

use crate::world::{BOUND, World, wait};

const DRIVE: &str = r#"
[[media]]
name = "m"
kind = "ram"
size = "64MiB"
[[namespace]]
name = "n"
media = "m"
[[controller]]
name = "vm1"
namespaces = ["n"]
listen = "vfio-user:vm1.sock"
"#;

/// The program in a terminal.
struct Terminal {
    child: Child,
    /// The program's terminal, kept open to look at its modes.
    slave: OwnedFd,
    master: File,
    screen: Arc<Mutex<Parser>>,
    before: Termios,
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl Terminal {
    fn start(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        tcsetwinsize(&master, size(80, 24)).unwrap();
        let before = tcgetattr(&slave).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        command.env("TERM", "xterm-256color");
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn();
        let screen = Arc::new(Mutex::new(Parser::new(24, 80, 0)));
        let mut from = File::from(master.try_clone().unwrap());
        let parser = screen.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = from.read(&mut bytes) {
                parser.lock().unwrap().process(&bytes[..len]);
            }
        });
        Terminal {
            child: child.unwrap(),
            slave,
            master: File::from(master),
            screen,
            before,
        }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen is so.
    #[track_caller]
    fn until(&self, is_so: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + BOUND;
        loop {
            let text = self.text();
            if is_so(&text) {
                return text;
            }
            assert!(Instant::now() < deadline, "it shows\n{text}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// It ends with success, and the terminal is as it was.
    fn ends(mut self) {
        let status = wait(&mut self.child);
        assert!(status.success(), "{status}: {}", self.text());
        let after = tcgetattr(&self.slave).unwrap();
        let modes = |its: &Termios| {
            let Termios {
                input_modes,
                output_modes,
                control_modes,
                local_modes,
                ..
            } = its.clone();
            (input_modes, output_modes, control_modes, local_modes)
        };
        assert_eq!(modes(&after), modes(&self.before));
        let deadline = Instant::now() + BOUND;
        loop {
            let is_restored = {
                let parser = self.screen.lock().unwrap();
                let screen = parser.screen();
                !screen.alternate_screen() && !screen.hide_cursor()
            };
            if is_restored {
                return;
            }
            assert!(Instant::now() < deadline, "the other screen stays");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(world: &World) -> crate::world::Server {
    let file = world.write("drive.toml", DRIVE);
    world.serve(&["--config", file.to_str().unwrap()])
}

fn top(world: &World, args: &[&str]) -> Terminal {
    let mut all = vec!["top", "--interval", "200ms"];
    all.extend(args);
    let mut command = world.program();
    command.args(world.steer(&all)).env_remove("NO_COLOR");
    Terminal::start(command)
}

/// The IOPS that the line of a controller shows.
fn iops(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("vm1 "))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

#[test]
fn a_terminal_shows_what_a_load_does_and_is_left_as_it_was() {
    let world = World::new();
    let server = serve(&world);
    let target = world.vfio_user("vm1.sock");
    let args = [
        "bench", "--target", &target, "--rw", "randread", "--qd", "8", "--time", "10min",
    ];
    let mut bench = world.program();
    bench.args(args).stdout(Stdio::null()).stderr(Stdio::null());
    let mut bench = bench.spawn().unwrap();

    let mut terminal = top(&world, &[]);
    let text = terminal.until(|text| iops(text).is_some_and(|iops| iops > 0.0));
    assert!(text.starts_with("nvmirage top"), "{text}");
    assert!(
        text.contains("CONTROLLER") && text.contains("reactor 0"),
        "{text}"
    );
    let raw = tcgetattr(&terminal.slave).unwrap().local_modes;
    assert!(!raw.intersects(LocalModes::ICANON | LocalModes::ECHO));
    assert!(terminal.screen.lock().unwrap().screen().alternate_screen());

    // one controller, by an arrow that leads nowhere, and enter
    terminal.press("\x1b[B\r");
    terminal.until(|text| text.contains("p50/p99") && text.contains("SQ 1"));
    terminal.press("?");
    terminal.until(|text| text.contains("choose a line"));
    terminal.press("x\x1b");
    terminal.until(|text| text.contains("CONTROLLER"));
    terminal.press("r");
    terminal.until(|text| text.contains("queues of reactor 0"));

    // another size
    tcsetwinsize(&terminal.master, size(120, 40)).unwrap();
    terminal
        .screen
        .lock()
        .unwrap()
        .screen_mut()
        .set_size(40, 120);
    terminal.signal(Signal::WINCH);
    terminal.until(|text| {
        let first = text.lines().next().unwrap_or_default();
        first.len() > 100 && first.ends_with("every 200 ms")
    });
    terminal.press("q");
    terminal.ends();

    bench.kill().unwrap();
    bench.wait().unwrap();
    server.stop();
}

#[test]
fn a_server_that_goes_is_said_to_be_gone_and_found_again() {
    let world = World::new();
    let server = serve(&world);
    let terminal = top(&world, &["vm1"]);
    terminal.until(|text| text.contains("no host"));
    server.stop();
    terminal.until(|text| text.contains("no answer, trying again"));
    let server = serve(&world);
    terminal.until(|text| !text.contains("no answer") && text.contains("no host"));
    // a signal ends it as a key does
    terminal.signal(Signal::TERM);
    terminal.ends();

    let mut terminal = top(&world, &[]);
    terminal.until(|text| text.contains("vm1"));
    terminal.press("\x03");
    terminal.ends();
    server.stop();
}

#[test]
fn without_a_terminal_it_says_what_to_do_and_prints_frames() {
    let world = World::new();
    let error = world.fails(&world.steer(&["top", "--once"]));
    assert!(error.contains("no server at"), "{error}");
    let server = serve(&world);
    let error = world.fails(&world.steer(&["top"]));
    assert!(
        error.contains("is no terminal: `nvmirage top --once`"),
        "{error}"
    );
    let error = world.fails(&world.steer(&["top", "nobody", "--once"]));
    assert!(error.contains("there is no controller `nobody`"), "{error}");
    let text = world.ok(&world.steer(&["top", "--batch", "2", "--interval", "100ms"]));
    let count = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!((count("nvmirage top"), count("vm1 ")), (2, 2), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let text = world.ok(&world.steer(&["top", "vm1", "--once", "--interval", "100ms"]));
    assert!(
        text.contains("its host has created no I/O queues"),
        "{text}"
    );
    server.stop();
}

#[test]
fn a_log_in_a_terminal_has_colours_unless_the_user_wants_none() {
    // "when present and not an empty string (regardless of its value)": no-color.org
    for (no_color, coloured) in [(None, true), (Some(""), true), (Some("0"), false)] {
        let world = World::new();
        let file = world.write("drive.toml", DRIVE);
        let mut command = world.program();
        command.args(["serve", "--config", file.to_str().unwrap()]);
        match no_color {
            Some(value) => command.env("NO_COLOR", value),
            None => command.env_remove("NO_COLOR"),
        };
        let terminal = Terminal::start(command);
        terminal.until(|text| text.contains("INFO") && text.contains("ready:"));
        let parser = terminal.screen.lock().unwrap();
        let screen = parser.screen();
        let (rows, columns) = screen.size();
        let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        let mut colours =
            cells.filter_map(|(row, column)| Some(screen.cell(row, column)?.fgcolor()));
        let has_colours = colours.any(|colour| colour != vt100::Color::Default);
        assert_eq!(has_colours, coloured, "NO_COLOR={no_color:?}");
    }
}

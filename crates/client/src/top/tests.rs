//! The screen and the keys, with hand-made samples.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Modifier;

use super::app::{App, Asked, Link, Sort, View};
use super::draw::{Theme, draw};
use super::sample::{
    Command, Controller, Inspected, Latency, Queue, Reactor, Ring, Sample, Tenant,
};

const SECOND: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

fn app() -> App {
    App::new("/run/nvmirage/control.sock".into(), Duration::from_secs(1))
}

fn controller(name: &str, seconds: u64) -> Controller {
    Controller {
        name: name.into(),
        attached: true,
        namespaces: vec!["a".into(), "b".into()],
        doorbell_messages: 7 * seconds,
        reads: 12_340 * seconds,
        writes: 60 * seconds,
        read_bytes: 48 * MIB * seconds,
        write_bytes: MIB / 4 * seconds,
        errors: 0,
        queues: vec![Queue {
            queue: 1,
            reactor: 0,
            in_flight: 5 + seconds,
            commands: 12_400 * seconds,
            interrupts: 400 * seconds,
            ..Queue::default()
        }],
        latency: vec![Latency {
            operation: "read".into(),
            // at 12,400 commands a second, a mean of 250 us is 3.1 commands in flight
            count: 100 * seconds,
            sum_ns: 25_000_000 * seconds,
            // of 100 since the first second, 98 of 9,984 ns and 2 of 1 ms
            buckets: vec![(9_984, 98 * seconds), (1_000_000, 2 * seconds)],
        }],
        stages: vec![
            ("ring".into(), 100 * seconds),
            ("medium".into(), 300 * seconds),
        ],
    }
}

/// Counters after so many seconds; they grow equally each second.
fn sample(seconds: u64) -> Sample {
    let idle = Controller {
        name: "idle".into(),
        namespaces: vec!["c".into()],
        ..Controller::default()
    };
    Sample {
        time_ns: 3600 * SECOND + seconds * SECOND,
        reactors: vec![Reactor {
            reactor: 0,
            mode: "adaptive".into(),
            cpu: Some(3),
            commands: 12_400 * seconds,
            turns: 100_000 * seconds,
            turns_with_work: 25_000 * seconds,
            busy_ns: SECOND / 2 * seconds,
            spinning_ns: SECOND / 4 * seconds,
            asleep_ns: SECOND / 4 * seconds,
            stalled_ns: 0,
        }],
        tenants: vec![
            Tenant {
                name: "gold".into(),
                commands: 3000 * seconds,
                bytes: 30 * MIB * seconds,
                capped: 12 * seconds,
                held: 0,
                at_media: 4,
            },
            Tenant {
                name: "rest".into(),
                commands: 1000 * seconds,
                bytes: 10 * MIB * seconds,
                held: 99 * seconds,
                ..Tenant::default()
            },
        ],
        controllers: vec![controller("vm1", seconds), idle],
    }
}

fn inspected() -> Inspected {
    let ring = |name: &str, head, tail| Ring {
        name: name.into(),
        size: 1024,
        head,
        tail,
        doorbell: tail,
        shadow: Some(tail),
        event_idx: Some(head),
        ..Ring::default()
    };
    let command = |cid, age_ns, stuck| Command {
        queue: 1,
        cid,
        command: "Read".into(),
        nsid: 1,
        lba: Some(123_456),
        bytes: Some(4096),
        at: "model".into(),
        age_ns: Some(age_ns),
        stuck,
    };
    Inspected {
        controller: "vm1".into(),
        doorbells: "shadow".into(),
        has_many_hosts: false,
        rings: vec![
            Ring {
                phase: Some(true),
                state: "full".into(),
                ..ring("CQ 1", 10, 9)
            },
            Ring {
                state: "frozen".into(),
                ..ring("SQ 1", 17, 18)
            },
        ],
        commands: vec![command(101, 1_843_200_000, true), command(7, 61_440, false)],
        left_out: 3,
    }
}

/// The screen of that size.
fn screen(app: &mut App, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| {
            let area = frame.area();
            draw(app, Theme::new(true), area, frame.buffer_mut());
        })
        .unwrap();
    terminal
}

fn lines(app: &mut App, width: u16, height: u16) -> Vec<String> {
    let terminal = screen(app, width, height);
    let buffer = terminal.backend().buffer();
    let line = |y| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..height).map(line).collect()
}

fn press(app: &mut App, code: KeyCode) -> Asked {
    app.key(KeyEvent::new(code, KeyModifiers::NONE))
}

/// Compares the screen with the expected one.
#[track_caller]
fn assert_frame(app: &mut App, expected: &str) {
    let shown = lines(app, 80, 24);
    let (last, above) = shown.split_last().unwrap();
    assert!(last.starts_with(' '), "{last}");
    let expected: Vec<&str> = expected.trim_matches('\n').lines().collect();
    let shown = above.join("\n");
    assert_eq!(shown.trim_end(), expected.join("\n"));
}

fn two_samples() -> App {
    let mut app = app();
    app.take(sample(1), None);
    app.take(sample(2), None);
    app
}

#[test]
fn all_controllers_at_80_by_24() {
    let mut app = two_samples();
    assert_frame(
        &mut app,
        "
nvmirage top  /run/nvmirage/control.sock                up 1 h 00 min  every 1 s
2 controllers, 1 host  IOPS 12.4 K  r/w 48.0/0.25 MiB/s  depth 3.1
reactor 0  adaptive  [####==..] busy  50% spinning  25% asleep  25% stalled   0%

CONTROLLER       HOST   IOPS READ MiB/s WRITE MiB/s     p50     p99 DEPTH  ERR/s
vm1              yes  12.4 K       48.0        0.25 9.98 us 1.00 ms   3.1      0
idle             no        0          0           0       -       -     0      0
",
    );
    // the selected line and the last one are styled to their ends
    let terminal = screen(&mut app, 80, 24);
    for line in [5, 23] {
        let cell = &terminal.backend().buffer()[(79, line)];
        assert!(cell.modifier.contains(Modifier::REVERSED), "{line}");
    }
}

#[test]
fn reactors_at_80_by_24() {
    let mut app = two_samples();
    press(&mut app, KeyCode::Char('r'));
    assert_frame(
        &mut app,
        "
nvmirage top  /run/nvmirage/control.sock                up 1 h 00 min  every 1 s
REACTOR MODE       CPU CMDS/s TURNS/s FOUND  BUSY SPINNING ASLEEP STALLED QUEUES
0       adaptive     3 12.4 K   100 K   25%   50%      25%    25%      0%      1

queues of reactor 0
CONTROLLER                          CQ CMDS/s DEPTH INTERRUPTS/s SPARED/s  ERR/s
vm1                                  1 12.4 K     7          400        0      0
",
    );
}

#[test]
fn tenants_at_80_by_24() {
    let mut app = two_samples();
    press(&mut app, KeyCode::Char('t'));
    assert_frame(
        &mut app,
        "
nvmirage top  /run/nvmirage/control.sock                up 1 h 00 min  every 1 s
TENANT                          CMDS/s   MiB/s CAPPED/s WAITED/s AT MEDIA  SHARE
gold                            3.00 K    30.0       12        0        4    75%
rest                            1.00 K    10.0        0       99        0    25%
CAPPED waited for a cap, WAITED for their turn; SHARE is of all tenants' bytes
",
    );
}

#[test]
fn a_controller_at_80_by_24() {
    let mut app = two_samples();
    press(&mut app, KeyCode::Enter);
    assert_eq!(app.inspects(), Some("vm1"));
    app.take(sample(3), Some(inspected()));
    // 6 at the moment of the first sample, then 3.1 by Little's law, rounded up: of 24 eighths 24,
    // 16 and 16
    assert_frame(
        &mut app,
        "
nvmirage top  /run/nvmirage/control.sock                up 1 h 00 min  every 1 s
vm1   host attached, doorbells shadow, 7 exits/s   namespaces a, b
read 12.3 K/s 48.0 MiB/s  write 60/s 0.25 MiB/s  errors 0/s
p50/p99/max  read 9.98 us/1.00 ms/1.00 ms
ring 25%, medium 75%
    6 █
depth ███
    0 ███
QUEUE ON CMDS/s DEPTH  INT/s  SIZE  HEAD  TAIL PH DOORBELL SHADOW EVENT STATE
CQ 1   0 12.4 K     8    400  1024    10     9  1        9      9    10 full
SQ 1                          1024    17    18          18     18    17 frozen
5 commands in flight, 1 STUCK
COMMAND              SQ   CID NSID          LBA   BYTES AT             AGE
Read                  1   101    1       123456   4 KiB model       1.84 s STUCK
Read                  1     7    1       123456   4 KiB model      61.4 us
",
    );
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.view, View::Overview);
}

#[test]
fn more_room_is_used_and_nothing_is_cut() {
    let mut app = two_samples();
    app.course.take(sample(3));
    for (width, height) in [(80, 24), (120, 40)] {
        for view in ['o', 'r', 't', '?'] {
            press(&mut app, KeyCode::Char(view));
            let shown = lines(&mut app, width, height);
            assert!(shown.iter().all(|line| !line.contains('~')), "{shown:#?}");
            press(&mut app, KeyCode::Char('z'));
        }
        press(&mut app, KeyCode::Char('o'));
        let shown = lines(&mut app, width, height);
        assert!(shown[4].ends_with("ERR/s"), "{shown:#?}");
        assert!(shown[0].ends_with("every 1 s"), "{shown:#?}");
        app.open_controller("vm1");
        app.inspected = Some(inspected());
        let shown = lines(&mut app, width, height).join("\n");
        for word in ["STATE", "frozen", "STUCK", "medium 75%"] {
            assert!(shown.contains(word), "{word} is missing in\n{shown}");
        }
        press(&mut app, KeyCode::Esc);
    }
    // the largest numbers that occur fit, too
    let mut app = super::tests::app();
    for seconds in 1..=2 {
        let mut sample = sample(seconds);
        let its = &mut sample.controllers[0];
        its.reads = 99_900_000 * seconds;
        its.read_bytes = 99_999 * MIB * seconds;
        its.write_bytes = 99_999 * MIB * seconds;
        its.errors = 999_000 * seconds;
        // without sampled commands, the count of the moment
        its.latency[0].count = 0;
        its.queues[0].in_flight = 65_535;
        its.stages = [
            "ring",
            "fairness",
            "translation",
            "medium",
            "model",
            "interrupt",
        ]
        .map(|stage| (stage.to_owned(), 1000 * seconds))
        .into();
        for operation in ["write", "other"] {
            its.latency.push(Latency {
                operation: operation.into(),
                buckets: vec![(123_000_000, 100 * seconds)],
                ..Latency::default()
            });
        }
        sample.controllers.extend((0..198).map(|at| Controller {
            name: format!("drive-{at:09}"),
            attached: true,
            ..Controller::default()
        }));
        app.take(sample, None);
    }
    let shown = lines(&mut app, 80, 24);
    assert!(shown[1].ends_with("depth 65535"), "{shown:#?}");
    app.open_controller("vm1");
    let shown = lines(&mut app, 80, 24);
    assert!(shown[2].ends_with("errors 999 K/s"), "{shown:#?}");
    assert!(shown[3].ends_with("other 123 ms/123 ms"), "{shown:#?}");
    assert!(shown[4].ends_with("interrupt 17%"), "{shown:#?}");
}

#[test]
fn rates_are_differences_over_the_servers_time() {
    let mut app = app();
    app.take(sample(1), None);
    let shown = lines(&mut app, 80, 24);
    assert!(
        shown[5].starts_with("vm1              yes       -          -"),
        "{shown:#?}"
    );
    // twice the growth of a second, in four seconds: half the rates
    let mut later = sample(3);
    later.time_ns += 2 * SECOND;
    app.take(later, None);
    let rates = app.course.rates().unwrap();
    let per_s = rates.controllers[0].per_s.unwrap();
    assert_eq!((per_s.reads, per_s.writes), (6170.0, 30.0));
    assert_eq!(per_s.read_bytes, (24 * MIB) as f64);
    let reactor = rates.reactors[0].per_s.unwrap();
    // of four seconds, one was busy, half were spinning, and the rest was sleep, counted or not yet
    assert_eq!(
        (reactor.busy, reactor.spinning, reactor.asleep),
        (0.25, 0.125, 0.625)
    );
    assert_eq!(
        rates.tenants[0].per_s,
        Some([1500.0, (15 * MIB) as f64, 6.0, 0.0])
    );
}

#[test]
fn a_restarted_server_is_not_compared_with_the_one_before() {
    let mut app = two_samples();
    let mut first = sample(1);
    first.time_ns = SECOND;
    app.take(first.clone(), None);
    let rates = app.course.rates().unwrap();
    assert_eq!(rates.controllers[0].per_s, None);
    assert_eq!(
        (
            rates.controllers[0].latency,
            rates.reactors[0].per_s.is_none()
        ),
        (None, true)
    );
    assert_eq!(app.course.depths("vm1"), [6]);
    // also if the new server's clock has overtaken the old one, because the view was paused for
    // long
    app.lose("gone".into());
    app.take(sample(9), None);
    let rates = app.course.rates().unwrap();
    assert_eq!(rates.controllers[0].per_s, None);
    // a recreated controller of the same name counts from 0
    let mut anew = sample(10);
    anew.controllers[0] = controller("vm1", 2);
    app.take(anew, None);
    let rates = app.course.rates().unwrap();
    assert_eq!(rates.controllers[0].per_s.unwrap().reads, 24_680.0);
}

#[test]
fn latencies_are_of_the_last_ten_seconds() {
    let mut app = app();
    for seconds in 0..30 {
        let mut sample = sample(seconds);
        // slow until the 15th second, fast from then on
        let [slow, fast] = [seconds.min(15), seconds.saturating_sub(15)];
        sample.controllers[0].latency[0].buckets = vec![(100, 10 * fast), (9_000_000, 10 * slow)];
        app.take(sample, None);
    }
    let latency = app.course.rates().unwrap().controllers[0].latency.unwrap();
    assert_eq!((latency.p50, latency.p99, latency.max), (100, 100, 100));
    assert_eq!(latency.count, 100);
}

#[test]
fn what_was_seen_stays_while_the_server_is_gone() {
    let mut app = two_samples();
    app.lose("no server at /run/x".into());
    let shown = lines(&mut app, 80, 24);
    assert_eq!(shown[1], "no answer, trying again: no server at /run/x");
    assert!(shown[6].starts_with("vm1 "), "{shown:#?}");
    app.take(sample(9), None);
    assert_eq!(app.link, Link::Up);
    assert!(!lines(&mut app, 80, 24).join("\n").contains("trying"));
    let mut nothing = super::tests::app();
    nothing.lose("no server".into());
    assert!(lines(&mut nothing, 80, 24)[1].contains("trying again: no server"));
}

fn many() -> App {
    let mut app = app();
    for seconds in 1..=2 {
        let mut sample = sample(seconds);
        sample.controllers = (0..200)
            .map(|at| {
                let mut controller = controller(&format!("c{at:03}"), seconds);
                controller.reads = at * seconds;
                controller
            })
            .collect();
        app.take(sample, None);
    }
    app
}

#[test]
fn two_hundred_controllers_are_scrolled() {
    let mut app = many();
    let shown = lines(&mut app, 80, 24);
    // of 24 lines six are above and two below
    assert_eq!(shown[22], "1 to 17 of 200");
    assert_eq!(app.page, 17);
    press(&mut app, KeyCode::End);
    let shown = lines(&mut app, 80, 24);
    assert!(shown[21].starts_with("c199 "), "{shown:#?}");
    assert_eq!(shown[22], "184 to 200 of 200");
    press(&mut app, KeyCode::PageUp);
    assert_eq!(app.selected, 182);
    assert!(
        lines(&mut app, 80, 24)
            .iter()
            .any(|line| line.starts_with("c182 "))
    );
    press(&mut app, KeyCode::Home);
    press(&mut app, KeyCode::Up);
    assert_eq!(app.selected, 0);
}

#[test]
fn the_controller_that_is_chosen_stays_chosen() {
    let mut app = many();
    for _ in 0..7 {
        press(&mut app, KeyCode::Down);
    }
    for (sort, at) in [(Sort::Name, 7), (Sort::Iops, 192)] {
        press(&mut app, KeyCode::Char('s'));
        assert_eq!((app.sort, app.selected), (sort, at));
    }
    assert_eq!(lines(&mut app, 80, 24)[3], "sorted by IOPS");
    // it overtakes all others
    let mut next = sample(3);
    next.controllers = (0..200u64)
        .map(|at| {
            let mut controller = controller(&format!("c{at:03}"), 3);
            controller.reads = if at == 7 { 99_999 } else { at * 3 };
            controller
        })
        .collect();
    app.take(next, None);
    assert_eq!(app.selected, 0);
    press(&mut app, KeyCode::Enter);
    assert_eq!(app.view, View::Controller("c007".into()));
    // by IOPS the next one is the fastest of the others
    press(&mut app, KeyCode::Right);
    assert_eq!(app.view, View::Controller("c199".into()));
    press(&mut app, KeyCode::Left);
    press(&mut app, KeyCode::Esc);
    assert_eq!((&app.view, app.selected), (&View::Overview, 0));
}

#[test]
fn keys_do_what_the_help_says() {
    let mut app = two_samples();
    press(&mut app, KeyCode::Char('?'));
    assert!(app.shows_help);
    let help = lines(&mut app, 80, 24).join("\n");
    for word in ["enter", "esc", "sort", "pause", "quit", "stuck"] {
        assert!(help.contains(word), "{word} is missing in\n{help}");
    }
    // any key closes the help, and does nothing else
    assert_eq!(press(&mut app, KeyCode::Char('q')), Asked::Nothing);
    assert!(!app.shows_help);
    press(&mut app, KeyCode::Char('p'));
    assert!(app.is_paused && lines(&mut app, 80, 24)[0].contains("PAUSED"));
    press(&mut app, KeyCode::Char('p'));
    assert!(!app.is_paused);
    for _ in 0..9 {
        press(&mut app, KeyCode::Char('+'));
    }
    assert_eq!(app.interval, Duration::from_secs(10));
    for _ in 0..9 {
        press(&mut app, KeyCode::Char('-'));
    }
    assert_eq!(app.interval, Duration::from_millis(100));
    assert!(lines(&mut app, 80, 24)[0].ends_with("every 100 ms"));
    assert_eq!(press(&mut app, KeyCode::Char('q')), Asked::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(app.key(interrupt), Asked::Quit);
}

#[test]
fn any_size_can_be_drawn() {
    let mut app = many();
    for view in ['o', 'r', 't'] {
        press(&mut app, KeyCode::Char(view));
        for (width, height) in [(1, 1), (1, 24), (80, 2), (80, 3), (39, 8), (300, 100)] {
            lines(&mut app, width, height);
        }
    }
    app.open_controller("c001");
    app.inspected = Some(Inspected {
        controller: "c001".into(),
        ..inspected()
    });
    for height in 1..40 {
        lines(&mut app, 60, height);
    }
}

#[test]
fn without_colours_words_tell() {
    let mut app = two_samples();
    app.open_controller("vm1");
    app.take(sample(3), Some(inspected()));
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    for is_colored in [true, false] {
        terminal
            .draw(|frame| {
                let area = frame.area();
                draw(&mut app, Theme::new(is_colored), area, frame.buffer_mut());
            })
            .unwrap();
        let cells = &terminal.backend().buffer().content;
        let has_color = cells
            .iter()
            .any(|cell| cell.fg != ratatui::style::Color::Reset);
        assert_eq!(has_color, is_colored);
    }
}

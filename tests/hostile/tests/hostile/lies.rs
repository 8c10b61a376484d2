//! Drives that lie, hang, or fail: their hosts' commands end, our code does not panic, and a drive
//! that is in order again is used again.

use media::drive::Duty;
use tests_hostile::{Identity, Lie, Tenant, Witness, World, command, size_of};

/// Quarters of a second in which every command that hangs has ended, and a drive that is lost has
/// been opened again.
const LONG: u32 = 60;

/// Command Interrupted, Unrecovered Read Error (Base 2.1, 4.2.3).
const INTERRUPTED: u16 = 0x021;
const UNRECOVERED_READ: u16 = 0x281;

fn world() -> World {
    World::new(Witness::default()).expect("the drive is as it should be")
}

#[test]
fn a_drive_that_lies_is_used_again_when_it_does_not() {
    lies(&[]);
}

#[test]
fn a_drive_that_lies_to_who_brings_its_completions_is_used_again_when_it_does_not() {
    lies(&[Duty::Entries]);
    lies(&[Duty::Entries, Duty::Heads]);
}

fn lies(duties: &[Duty]) {
    for lie in [
        Lie::OtherCommand,
        Lie::Twice,
        Lie::OtherQueue,
        Lie::Head,
        Lie::Phase,
        Lie::Hangs,
        Lie::Dead,
        Lie::Fatal,
        Lie::Ones,
        Lie::Status(0x7c0),
        Lie::Status(0x007),
        Lie::Status(0x281),
        Lie::Status(0x371),
        Lie::Status(0x7ff),
    ] {
        let mut world =
            World::split(Witness::default(), duties).expect("the drive is as it should be");
        world.witness.lie(Some(lie));
        let page = world.hosts[0].page(0);
        let host = world.host(Tenant::Hostile);
        for number in 0..8 {
            host.put(1, number, command(2, number.into(), 1, [page, 0]));
        }
        host.ring(1);
        let ended = world.try_honest();
        world.tick(LONG);
        let done = world.host(Tenant::Hostile).reap(1);
        assert_eq!(done.len(), 8, "{lie:?}: each ends once");
        // It does what it is asked for where it only counts wrongly, or complains.
        let is_harmless = matches!(lie, Lie::Head | Lie::Fatal);
        assert_eq!(ended.is_ok(), is_harmless, "{lie:?}: {ended:?}");
        let status = match lie {
            _ if is_harmless => 0,
            // Of its media, as it is; of what a host cannot have done wrong, that its bytes cannot
            // be had.
            Lie::Status(0x007) => INTERRUPTED,
            Lie::Status(_) => UNRECOVERED_READ,
            _ => INTERRUPTED,
        };
        assert!(
            done.iter().all(|done| done.status == status),
            "{lie:?}: {done:x?}"
        );
        world.witness.lie(None);
        world.tick(LONG);
        for _ in 0..4 {
            world.honest();
        }
        world.check();
    }
}

/// Quarters of a second after which a host that takes memory back has its answer in any case.
const ANSWER: u32 = 16;

#[test]
fn memory_that_is_taken_back_is_out_of_a_hanging_drives_reach_in_time() {
    let duties: [&[Duty]; 3] = [&[], &[Duty::Entries], &[Duty::Entries, Duty::Heads]];
    let lies = [Lie::Hangs, Lie::Dead, Lie::Ones].into_iter();
    for (lie, duties) in lies.flat_map(|lie| duties.map(|duties| (lie, duties))) {
        let mut world =
            World::split(Witness::default(), duties).expect("the drive is as it should be");
        assert_eq!(world.witness.reaches(), 8 << 20);
        world.witness.lie(Some(lie));
        let page = world.hosts[0].page(0);
        let host = world.host(Tenant::Hostile);
        host.put(1, 1, command(2, 0, 1, [page, 0]));
        host.ring(1);
        world.turns(4);
        world.map(Tenant::Hostile, false);
        world.tick(ANSWER - 2);
        let reaches = world.witness.reaches();
        assert!(reaches <= 4 << 20, "{lie:?}: {reaches}");
        world.witness.lie(None);
        world.tick(LONG);
        world.honest();
        world.check();
    }
}

#[test]
fn what_a_drive_says_of_itself_is_looked_at() {
    let usual = Identity::default;
    let cases = [
        Identity {
            filler: 0xff,
            ..usual()
        },
        Identity {
            filler: 0x55,
            ..usual()
        },
        Identity {
            blocks: u64::MAX,
            ..usual()
        },
        Identity {
            blocks: 1 << 55,
            ..usual()
        },
        Identity {
            blocks: 1 << 54,
            shift: 12,
            ..usual()
        },
        Identity {
            blocks: 0,
            ..usual()
        },
        Identity {
            shift: 0,
            ..usual()
        },
        Identity {
            shift: 8,
            ..usual()
        },
        Identity {
            shift: 13,
            ..usual()
        },
        Identity {
            shift: 63,
            ..usual()
        },
        Identity {
            shift: 255,
            ..usual()
        },
        Identity {
            mdts: 255,
            ..usual()
        },
        Identity {
            mdts: 20,
            ..usual()
        },
        Identity {
            wzsl: 255,
            ..usual()
        },
        Identity {
            wzsl: 63,
            ..usual()
        },
        Identity {
            format: 15,
            ..usual()
        },
        Identity {
            format: 255,
            ..usual()
        },
        Identity {
            namespaces: vec![],
            ..usual()
        },
        Identity {
            namespaces: vec![5],
            ..usual()
        },
        Identity {
            namespaces: vec![5, 3, 5],
            ..usual()
        },
        Identity {
            namespaces: vec![u32::MAX],
            ..usual()
        },
    ];
    for identity in cases {
        let size = size_of(&Witness::new(identity.clone()));
        let bytes = u128::from(identity.blocks) << identity.shift.min(63);
        match size {
            // As it says, or not at all.
            Ok(size) => assert_eq!(u128::from(size), bytes, "{identity:?}"),
            Err(error) => println!("{identity:?}: {error}"),
        }
    }
}

#[test]
fn another_drive_in_its_place_is_not_used() {
    let mut world = world();
    world.witness.say(Identity {
        blocks: 1 << 20,
        ..Identity::default()
    });
    world.witness.lie(Some(Lie::Ones));
    assert!(world.try_honest().is_err());
    world.tick(LONG);
    world.witness.lie(None);
    world.tick(LONG);
    let before = world.witness.commands();
    assert!(world.try_honest().is_err());
    world.tick(LONG);
    assert_eq!(world.witness.commands(), before, "it is asked for nothing");
    world.witness.say(Identity::default());
    world.tick(LONG);
    world.honest();
    world.check();
}

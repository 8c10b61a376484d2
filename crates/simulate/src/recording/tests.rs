//! Models recorded under random commands, and replayed.

use model::preset::preset;
use model::{KvKind, Model, Moment, Timing as _};

use super::*;

const SIZE: u64 = 1 << 30;

struct Chance(u64);

impl Chance {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % below
    }
}

fn parameters(name: &str, changes: &[(&str, &str)]) -> Parameters {
    let mut parameters = preset(name).unwrap().parameters(SIZE, None).unwrap();
    for (name, value) in changes {
        parameters.set(name, value, Moment::Creation).unwrap();
    }
    parameters.check().unwrap();
    parameters
}

/// A recording of `count` commands at times of chance, that are on average half so far apart; and
/// the model that was told.
fn recorded(
    parameters: &Parameters,
    (count, apart_ns): (u64, u64),
    mut each: impl FnMut(&mut Chance, u64, &mut dyn FnMut(&ModelOp<'_>)),
) -> (String, Model) {
    let mut model = Model::new(parameters).unwrap().recorded(2 * count as usize);
    let (mut now, mut chance, mut done) = (777_777_777, Chance(1), Vec::new());
    for number in 0..count {
        now += chance.below(apart_ns);
        each(&mut chance, number, &mut |op| {
            while !model.has_room(op) {
                now = model.next_event().unwrap().max(now);
                model.advance(now, &mut done);
            }
            model.submit(now, number, op);
        });
    }
    while let Some(event) = model.next_event() {
        model.advance(event, &mut done);
    }
    let recording = model.take_recording().unwrap();
    assert_eq!((recording.left_out(), done.len()), (0, recording.len()));
    let mut text = Vec::new();
    write(&mut text, ("words", parameters), SIZE, &recording).unwrap();
    (String::from_utf8(text).unwrap(), model)
}

/// Played back it takes the same time to the nanosecond; a nanosecond in one place is found, and so
/// is another drive.
fn takes_the_same_time_again(text: &str, parameters: &Parameters, count: u64, other: &Parameters) {
    let recording = read(text).unwrap();
    assert_eq!((recording.drive.as_str(), recording.size), ("words", SIZE));
    let replayed = replay(parameters, Initial::Fresh, &recording).unwrap();
    assert_eq!((replayed.first, replayed.differing), (None, 0));
    assert_eq!(replayed.commands, count);
    let mut late = recording.clone();
    let at = count as usize / 2;
    late.due[at] += 1;
    let found = replay(parameters, Initial::Fresh, &late).unwrap();
    let due = late.due[at];
    assert_eq!(
        (found.differing, found.first),
        (1, Some((at, due, due - 1)))
    );
    assert!(replay(other, Initial::Fresh, &recording).unwrap().differing > count / 100);
    // Any trace reader takes it, too.
    assert_eq!(trace::parse(text).unwrap().arrivals.len() as u64, count);
}

/// A drive so small that it collects, under reads, writes, deallocations and flushes.
#[test]
fn flash() {
    let small = parameters("samsung-970-pro", &[("block", "256KiB")]);
    let (text, model) = recorded(&small, (50_000, 20_000), |chance, number, tell| {
        let offset = chance.below(SIZE / 65_536) * 65_536;
        let len = 65_536;
        tell(&match chance.below(20) {
            0..4 => ModelOp::Read { offset, len: 4096 },
            4 => ModelOp::Deallocate {
                offset,
                len: len.into(),
            },
            5 if number % 100 == 0 => ModelOp::Flush,
            _ => ModelOp::Write {
                offset,
                len,
                fua: chance.below(10) == 0,
            },
        });
    });
    let counters = model.flash().unwrap().counters();
    assert!(counters.collected_pages > 0, "{counters:?}");
    let changes = [("block", "256KiB"), ("program", "185001ns")];
    let other = parameters("samsung-970-pro", &changes);
    takes_the_same_time_again(&text, &small, 50_000, &other);
}

/// Zones that are written in order, read, filled up, reset and written again; some of it where no
/// host could write.
#[test]
fn zones() {
    for arithmetic in ["exact", "code"] {
        let changes = [
            ("arithmetic", arithmetic),
            ("zone_size", "4MiB"),
            ("zone_capacity", "3MiB"),
        ];
        let zoned = parameters("zns-prototype", &changes);
        let (zone_size, capacity) = (4 << 20, 3 << 20);
        let mut written = [0u64; 8];
        let (text, _) = recorded(&zoned, (20_000, 100_000), |chance, _, tell| {
            let zone = chance.below(8) as u32;
            let fill = &mut written[zone as usize];
            let start = u64::from(zone) * zone_size;
            let left = capacity - *fill;
            tell(&match chance.below(40) {
                0 => ModelOp::Flush,
                1 => ModelOp::Zone(ZoneOp::Open { zone }),
                2 => ModelOp::Zone(ZoneOp::Close { zone }),
                3 if left < 1 << 20 => {
                    *fill = capacity;
                    ModelOp::Zone(ZoneOp::Finish { zone })
                }
                4 if left == 0 => {
                    *fill = 0;
                    ModelOp::Zone(ZoneOp::Reset { zone })
                }
                // Larger than a plain deallocation that is submitted at once.
                5 => ModelOp::Deallocate {
                    offset: start,
                    len: 2 * zone_size,
                },
                6..25 if left > 0 => {
                    let len = left.min(4096 << chance.below(6));
                    *fill += len;
                    ModelOp::Write {
                        offset: start + *fill - len,
                        len: len as u32,
                        fua: chance.below(20) == 0,
                    }
                }
                _ => ModelOp::Read {
                    offset: start + chance.below(768) * 4096,
                    len: 4096,
                },
            });
        });
        let changes = [&changes[..], &[("program", "1ms")]].concat();
        let other = parameters("zns-prototype", &changes);
        takes_the_same_time_again(&text, &zoned, 20_000, &other);
    }
}

/// Commands of all kinds, and compound ones by both rules, also some at the same time.
#[test]
fn keys() {
    for (arithmetic, compound) in [
        ("exact", "together"),
        ("exact", "in_order"),
        ("code", "together"),
    ] {
        let changes = [("arithmetic", arithmetic), ("compound", compound)];
        let keyed = parameters("samsung-kvssd", &changes);
        let (text, _) = recorded(&keyed, (20_000, 200_000), |chance, number, tell| {
            let mut one = |kinds: &[KvKind]| {
                let kind = kinds[chance.below(kinds.len() as u64) as usize];
                let hash = chance.below(1 << 32) as u32;
                let len = chance.below(100_000) as u32;
                match kind {
                    KvKind::Delete | KvKind::Exist => KvOp { kind, hash, len: 0 },
                    KvKind::List => KvOp { kind, hash: 0, len },
                    _ => KvOp { kind, hash, len },
                }
            };
            use KvKind::{Append, Delete, Exist, List, Retrieve, Store};
            let all = [Store, Append, Retrieve, Delete, Exist, List];
            match number % 10 {
                0 => tell(&ModelOp::Compound(&[(); 8].map(|()| one(&[Store, Delete])))),
                1 => tell(&ModelOp::Compound(&[one(&[Delete])])),
                2 if number % 100 == 2 => tell(&ModelOp::Flush),
                _ => tell(&ModelOp::Kv(one(&all))),
            }
        });
        let changes = [&changes[..], &[("write_latency", "60us")]].concat();
        let other = parameters("samsung-kvssd", &changes);
        takes_the_same_time_again(&text, &keyed, 20_000, &other);
    }
}

#[test]
fn what_is_no_recording_is_refused() {
    let header = "nvmirage-trace 2\n# drive optane-p4800x\n# size 4096\n";
    for (text, line, says) in [
        ("nvmirage-trace 3\n".to_owned(), 1, "version"),
        ("nvmirage-trace 1\n5 R 0 512 0 9\n".to_owned(), 1, "# drive"),
        (header.to_owned(), 3, "no command"),
        (format!("{header}5 R 0 512\n"), 1, "DUE"),
        (format!("{header}5 X 0 512 0 9\n"), 4, "no operation"),
        (
            format!("{header}5 R 0 512 0 9\n4 R 0 512 0 9\n"),
            5,
            "falls",
        ),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.line == line && error.why.contains(says), "{error}");
    }
    // Version 1 is read as it was.
    let old = header.replace("trace 2", "trace 1");
    assert_eq!(read(&format!("{old}5 R 0 512 0 9\n")).unwrap().due, [9]);
}

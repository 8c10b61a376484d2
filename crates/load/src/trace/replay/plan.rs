//! The commands of a replay, before the first is submitted.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};
use nvme_spec::Sqe;
use trace_file::export::{LeftOut, leave_out_further_ranges};
use trace_file::{Asked, Record};

use super::Settings;
use super::make::{Data, Held, Made, make};

/// Properties of the drive.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its namespaces.
    pub namespaces: Vec<Held>,
    /// Maximum transfer of one command, limited by the drive and by the available memory.
    pub transfer_len: u32,
    /// Number of its I/O queue pairs.
    pub queues: u16,
}

/// A command to submit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Submission time, in nanoseconds from the start.
    pub(super) due_ns: u64,
    /// Index of the queue pair.
    pub(super) queue: u16,
    /// Index of the command name.
    pub(super) kind: u16,
    pub(super) data: Data,
    pub(super) sqe: Sqe,
    /// Recorded latency.
    pub(super) recorded_ns: u64,
}

/// All commands to submit.
#[derive(Debug)]
pub struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) kinds: Vec<String>,
    pub(super) left_out: LeftOut,
    /// Number of queue pairs.
    pub queues: u16,
    /// The maximum transfer.
    pub transfer_len: u32,
    /// Nanoseconds between the first and the last command.
    pub(super) recorded_ns: u64,
    pub(super) speed: super::Speed,
}

impl Plan {
    /// Number of commands to submit.
    pub fn commands(&self) -> usize {
        self.steps.len()
    }
}

/// Bytes of the largest transfer in the records, up to `most`; at least a page.
pub fn transfer_len(records: &[Record], most: u32) -> u32 {
    let moved = |record: &Record| match record.asked() {
        Ok(Asked::Read { len, .. } | Asked::Write { len, .. } | Asked::Append { len, .. }) => {
            u32::try_from(len).ok()
        }
        Ok(Asked::Key { len, .. }) => Some(len),
        _ => None,
    };
    let all = records.iter().filter_map(moved);
    let largest = all.filter(|len| *len <= most).max();
    largest.unwrap_or(0).max(4096)
}

/// Plans the commands of records, which are sorted by time.
///
/// # Errors
/// The drive lacks what they name, or the settings do not allow changes of its data.
pub fn plan(records: &[Record], target: &Target, settings: &Settings) -> anyhow::Result<Plan> {
    refuse_changes(records, settings)?;
    let namespaces = namespaces(records, target, settings)?;
    let mut queues = Numbers::default();
    let mut kinds = Numbers::default();
    let mut left_out = LeftOut::new();
    let mut steps = Vec::with_capacity(records.len());
    let first = records.first().map_or(0, |record| record.at_ns);
    let most = target.queues.max(1);
    let mut largest = 4096;
    for record in records {
        let asked = record.asked().and_then(|asked| {
            let is_left_out = settings.reads_only && asked.changes();
            if is_left_out {
                Err("change data")
            } else {
                Ok(asked)
            }
        });
        let made = asked.map(|asked| {
            let held = &namespaces[&record.nsid];
            make(&asked, held, target.transfer_len, settings.wrap)
        });
        let (sqe, data) = match made {
            Ok(Ok(Made::Command(sqe, data))) => (sqe, data),
            Ok(Ok(Made::LeftOut(why))) | Err(why) => {
                *left_out.entry(why).or_default() += 1;
                continue;
            }
            Ok(Err(error)) => return Err(error),
        };
        if let Ok(asked) = asked {
            leave_out_further_ranges(&mut left_out, &asked);
        }
        if let Data::ToHost(len) | Data::FromHost { len, .. } | Data::Value(len) = data {
            largest = largest.max(len);
        }
        steps.push(Step {
            due_ns: settings.speed.due(record.at_ns - first),
            queue: queues.of(record.sqid) % most,
            kind: kinds.of(record.name()),
            data,
            sqe,
            recorded_ns: record.latency_ns(),
        });
    }
    ensure!(
        !steps.is_empty(),
        "no command to submit{}",
        crate::trace::reading::said(&left_out).map_or(String::new(), |said| format!(": {said}"))
    );
    let last = records.last().map_or(0, |record| record.at_ns);
    Ok(Plan {
        steps,
        queues: queues.0.len().clamp(1, most.into()) as u16,
        kinds: kinds.into_names(),
        left_out,
        transfer_len: largest,
        recorded_ns: last - first,
        speed: settings.speed,
    })
}

/// Assigns numbers from 0 in order of appearance.
#[derive(Debug)]
struct Numbers<T>(BTreeMap<T, u16>);

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Numbers(BTreeMap::new())
    }
}

impl<T: Ord> Numbers<T> {
    fn of(&mut self, thing: T) -> u16 {
        let next = self.0.len() as u16;
        *self.0.entry(thing).or_insert(next)
    }
}

impl Numbers<String> {
    fn into_names(self) -> Vec<String> {
        let mut names: Vec<_> = self.0.into_iter().collect();
        names.sort_by_key(|(_, number)| *number);
        names.into_iter().map(|(name, _)| name).collect()
    }
}

/// Rejects changes of a drive unless the settings allow them.
fn refuse_changes(records: &[Record], settings: &Settings) -> anyhow::Result<()> {
    let changes = |record: &&Record| record.asked().is_ok_and(|asked| asked.changes());
    let count = records.iter().filter(changes).count();
    ensure!(
        count == 0 || settings.write || settings.reads_only,
        "{count} commands of the trace overwrite data on the drive: add --destroy-data to allow that, or --reads-only to skip them"
    );
    Ok(())
}

/// Maps each namespace of the trace to one of the drive.
fn namespaces(
    records: &[Record],
    target: &Target,
    settings: &Settings,
) -> anyhow::Result<BTreeMap<u32, Held>> {
    let named = records.iter().filter(|record| record.asked().is_ok());
    let recorded: BTreeSet<u32> = named.map(|record| record.nsid).collect();
    let count = recorded
        .iter()
        .filter(|nsid| **nsid != nvme_spec::NSID_ALL)
        .count();
    let of = |nsid: u32| {
        let mut all = target.namespaces.iter();
        all.find(|held| held.nsid() == nsid).copied()
    };
    let there = || {
        let all = target.namespaces.iter();
        let all: Vec<_> = all.map(|held| held.nsid().to_string()).collect();
        all.join(", ")
    };
    let only = match &target.namespaces[..] {
        [only] => Some(*only),
        _ => None,
    };
    let mut all = BTreeMap::new();
    for nsid in &recorded {
        let found = match settings.nsid {
            Some(wanted) => of(wanted),
            // A flush of all namespaces, which sorts last, maps to the first namespace of the other
            // commands.
            None if *nsid == nvme_spec::NSID_ALL => {
                let first = all.values().next().copied();
                first.or(target.namespaces.first().copied())
            }
            None => of(*nsid).or(only.filter(|_| count == 1)),
        };
        let found = found.with_context(|| {
            format!(
                "the trace has commands to namespace {}, and the drive has {}: select the target namespace with --to-nsid",
                settings.nsid.unwrap_or(*nsid),
                there()
            )
        })?;
        all.insert(*nsid, found);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use driver::io::Namespace;
    use driver::key_value::{Dialect, Keys};

    use super::super::Speed;
    use super::*;

    fn record(opcode: u8, slba: u64, blocks: u32) -> Record {
        Record {
            at_ns: 1000 + slba,
            sqid: 3 + slba as u16 % 2,
            opcode,
            lba_shift: 9,
            nsid: 1,
            slba,
            blocks,
            bytes: blocks * 512,
            ..Record::default()
        }
    }

    fn target(blocks: u64, block_len: u32) -> Target {
        let namespace = Namespace {
            nsid: 1,
            blocks,
            block_len,
        };
        Target {
            namespaces: vec![Held::Blocks(namespace)],
            transfer_len: 8192,
            queues: 1,
        }
    }

    /// The same, in zones.
    fn zoned(mut target: Target) -> Target {
        for held in &mut target.namespaces {
            if let Held::Blocks(namespace) = *held {
                *held = Held::Zones(namespace);
            }
        }
        target
    }

    const SETTINGS: Settings = Settings {
        speed: Speed::Times(2.0),
        write: true,
        reads_only: false,
        wrap: false,
        nsid: None,
    };

    #[test]
    fn nothing_is_changed_unless_that_is_meant() {
        let records = [record(2, 0, 1), record(1, 8, 1), record(9, 8, 1)];
        let target = target(100, 512);
        let careful = Settings {
            write: false,
            ..SETTINGS
        };
        let error = plan(&records, &target, &careful).unwrap_err().to_string();
        assert!(
            error.starts_with("2 commands") && error.contains("--destroy-data"),
            "{error}"
        );
        let reads = Settings {
            reads_only: true,
            ..careful
        };
        let plan = plan(&records, &target, &reads).unwrap();
        assert_eq!(plan.steps.len(), 1);
        assert_eq!(plan.steps[0].sqe.opcode, 2);
        assert_eq!(plan.left_out["change data"], 2);
    }

    #[test]
    fn what_the_drive_has_not_is_refused_before_anything_is_done() {
        let beyond = [record(2, 0, 1), record(2, 100, 1)];
        let error = plan(&beyond, &target(100, 512), &SETTINGS).unwrap_err();
        assert!(error.to_string().contains("--wrap"), "{error}");
        let wrap = Settings {
            wrap: true,
            ..SETTINGS
        };
        let plan_of = |records: &[Record], target: &Target| plan(records, target, &wrap);
        let around = plan_of(&beyond, &target(100, 512)).unwrap();
        assert_eq!(around.steps[1].sqe.cdw10, 0);
        let error = plan_of(&beyond, &target(100, 4096)).unwrap_err();
        assert!(error.to_string().contains("smaller blocks"), "{error}");
        let other = Settings {
            nsid: Some(7),
            ..wrap
        };
        let error = plan(&beyond, &target(100, 512), &other).unwrap_err();
        assert!(
            error.to_string().contains(
                "namespace 7, and the drive has 1: select the target namespace with --to-nsid"
            ),
            "{error}"
        );
    }

    #[test]
    fn zones_are_appended_to_and_opened_closed_finished_and_reset() {
        let append = Record {
            csi: 2,
            fua: true,
            ..record(0x7d, 16, 8)
        };
        let send = |detail| Record {
            csi: 2,
            detail,
            ..record(0x79, 16, 0)
        };
        // Zone Send Actions of ZNS 1.1, figure "Zone Management Send - Command Dword 13"; 100h is
        // Select All
        let taken = [1, 2, 3, 4, 0x104].map(send);
        // Offline, Set Zone Descriptor Extension, Flush Explicit ZRWA Range, what is reserved
        let left_out = [5, 0x10, 0x11, 0, 6, 0x105].map(send);
        let records = [&[append][..], &taken, &left_out].concat();
        let target = zoned(target(100, 512));
        let plan = plan(&records, &target, &SETTINGS).unwrap();
        let told = |step: &Step| (step.sqe.opcode, step.sqe.cdw10, step.sqe.cdw13);
        let told: Vec<_> = plan.steps.iter().map(told).collect();
        let send = |zone, action| (0x79, zone, action);
        assert_eq!(
            told,
            [
                (0x7d, 16, 0),
                send(16, 1),
                send(16, 2),
                send(16, 3),
                send(16, 4),
                send(0, 0x104)
            ]
        );
        let left_out: Vec<_> = plan.left_out.into_iter().collect();
        assert_eq!(left_out, [("change zones in another way", 6)]);
    }

    /// Store, Retrieve, Delete and Exist of KV 1.1: the value's size in CDW10, the key's length and
    /// options in CDW11, the key in CDW2, 3, 14 and 15.
    #[test]
    fn keys_are_asked_for_with_their_options() {
        let with_key = |opcode, blocks, detail| Record {
            csi: 1,
            detail,
            key: *b"colour\0\0\0\0\0\0\0\0\0\0",
            ..record(opcode, 0, blocks)
        };
        let records = [
            with_key(1, 100, 2 << 8 | 6),
            with_key(2, 4096, 1 << 8 | 6),
            with_key(0x14, 0, 6),
            with_key(0x10, 0, 6),
            // Flush; List; Store of more than there is room for; without a key; in a namespace of
            // blocks
            with_key(0, 0, 0),
            with_key(6, 4096, 6),
            with_key(1, 1 << 20, 6),
            with_key(1, 100, 0),
            record(2, 0, 1),
        ];
        let keys = Keys {
            nsid: 1,
            dialect: Dialect::Nvme,
        };
        let target = Target {
            namespaces: vec![Held::Keys(keys)],
            ..target(1, 512)
        };
        let made = plan(&records, &target, &SETTINGS).unwrap();
        let told = |step: &Step| (step.sqe.opcode, step.sqe.cdw10, step.sqe.cdw11, step.data);
        let told: Vec<_> = made.steps.iter().map(told).collect();
        assert_eq!(
            told,
            [
                (1, 100, 0x206, Data::Value(100)),
                (2, 4096, 0x106, Data::ToHost(4096)),
                (0x14, 0, 6, Data::Nothing),
                (0x10, 0, 6, Data::Nothing),
                (0, 0, 0, Data::Nothing),
            ]
        );
        let sqe = &made.steps[0].sqe;
        let key = [sqe.cdw2, sqe.cdw3, sqe.cdw14, sqe.cdw15].map(u32::to_le_bytes);
        assert_eq!(key.concat()[..8], *b"colour\0\0");
        let left_out: Vec<_> = made.left_out.into_iter().collect();
        assert_eq!(
            left_out,
            [
                ("are of blocks, and the drive has keys", 1),
                ("have larger values than are asked for at once", 1),
                ("list keys", 1),
                ("name no key", 1),
            ]
        );
        // a drive of blocks has no keys
        let error = plan(&records[..4], &self::target(100, 512), &SETTINGS).unwrap_err();
        assert!(error.to_string().contains("4 that are of keys"), "{error}");
        let careful = Settings {
            write: false,
            ..SETTINGS
        };
        let error = plan(&records[..4], &target, &careful).unwrap_err();
        assert!(error.to_string().starts_with("2 commands"), "{error}");
    }

    #[test]
    fn what_was_durable_when_it_was_done_is_asked_for_so() {
        for (opcode, csi) in [(1, 0), (2, 0), (8, 0), (0x7d, 2)] {
            for fua in [false, true] {
                let record = Record {
                    csi,
                    fua,
                    ..record(opcode, 0, 1)
                };
                let blocks = target(100, 512);
                let target = if csi == 2 { zoned(blocks) } else { blocks };
                let plan = plan(&[record], &target, &SETTINGS).unwrap();
                // FUA is bit 30 of CDW12 of each
                let bit = plan.steps[0].sqe.cdw12 >> 30 & 1;
                assert_eq!((plan.steps[0].sqe.opcode, bit), (opcode, u32::from(fua)));
            }
        }
    }

    /// A flush of all namespaces does not count as a second namespace, and goes to that of the
    /// other commands.
    #[test]
    fn a_flush_of_all_goes_where_other_commands_do() {
        let flush = Record {
            nsid: u32::MAX,
            ..record(0, 0, 0)
        };
        let read = Record {
            nsid: 5,
            ..record(2, 0, 1)
        };
        let nsids = |target: &Target, records: &[Record]| -> Vec<u32> {
            let plan = plan(records, target, &SETTINGS).unwrap();
            plan.steps.iter().map(|step| step.sqe.nsid).collect()
        };
        let one = target(100, 512);
        assert_eq!(nsids(&one, &[flush, read]), [1, 1]);
        let mut two = one.clone();
        let Held::Blocks(mut other) = one.namespaces[0] else {
            panic!("it has blocks");
        };
        other.nsid = 5;
        two.namespaces.push(Held::Blocks(other));
        assert_eq!(nsids(&two, &[flush, read]), [5, 5]);
        assert_eq!(nsids(&two, &[flush]), [1]);
    }

    #[test]
    fn as_many_queues_as_there_can_be_are_as_many_pairs_as_the_drive_has() {
        let of = |sqid| Record {
            sqid,
            ..record(2, 0, 1)
        };
        let records: Vec<_> = (0..=u16::MAX).map(of).collect();
        let target = Target {
            queues: 4,
            ..target(100, 512)
        };
        let plan = plan(&records, &target, &SETTINGS).unwrap();
        assert_eq!(plan.queues, 4);
        assert!(plan.steps.iter().all(|step| step.queue < plan.queues));
    }

    #[test]
    fn memory_is_for_what_is_asked_for_and_no_more_than_there_is() {
        let failed = Record {
            status: 0x80,
            ..record(2, 0, 64)
        };
        // a file may say anything
        let more = Record {
            bytes: u32::MAX,
            ..record(2, 0, 16)
        };
        let huge = record(2, 0, 1 << 16);
        assert_eq!(transfer_len(&[failed], 1 << 20), 4096);
        assert_eq!(transfer_len(&[failed, more, huge], 1 << 20), 8192);
        assert_eq!(transfer_len(&[failed, more, huge], 1 << 26), 1 << 25);
    }

    #[test]
    fn commands_are_those_of_the_trace_in_the_drives_blocks() {
        let mut records = [
            record(1, 16, 8),
            record(8, 24, 16),
            record(9, 32, 8),
            record(2, 0, 32),
            Record {
                csi: 2,
                ..record(0x7d, 0, 8)
            },
            Record {
                status: 0x80,
                ..record(2, 0, 8)
            },
        ];
        for (at, record) in (1000..).step_by(8).zip(&mut records) {
            record.at_ns = at;
        }
        let plan = plan(&records, &target(100, 4096), &SETTINGS).unwrap();
        let told = |step: &Step| (step.sqe.opcode, step.sqe.cdw10, step.sqe.cdw12 & 0xffff);
        let told: Vec<_> = plan.steps.iter().map(told).collect();
        assert_eq!(told, [(1, 2, 0), (8, 3, 1), (9, 0, 0)]);
        let data: Vec<_> = plan.steps.iter().map(|step| step.data).collect();
        let write = Data::FromHost {
            len: 4096,
            block_len: 4096,
            lba: 2,
        };
        assert_eq!(
            data,
            [write, Data::Nothing, Data::Range { lba: 4, blocks: 1 }]
        );
        // twice as fast, and on the only queue
        assert_eq!((plan.steps[2].due_ns, plan.queues), (8, 1));
        let left_out: Vec<_> = plan.left_out.iter().map(|(why, n)| (*why, *n)).collect();
        let expected = [
            ("are of zones, and the drive has none", 1),
            ("ended with an error", 1),
            ("have more blocks than are asked for at once", 1),
        ];
        assert_eq!(left_out, expected);
    }

    #[test]
    fn speeds_are_what_they_say() {
        assert_eq!("max".parse(), Ok(Speed::Max));
        assert_eq!("0.5".parse(), Ok(Speed::Times(0.5)));
        assert_eq!(Speed::Times(0.5).due(100), 200);
        for wrong in ["0", "-1", "1001", "fast", "NaN"] {
            assert!(wrong.parse::<Speed>().is_err(), "{wrong}");
        }
    }
}

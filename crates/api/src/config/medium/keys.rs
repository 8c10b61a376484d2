//! A medium as it is written: the keys of all kinds in one table.

use std::path::PathBuf;

use driver::bus::place::Place as Target;
use serde_json::Value;

use super::{Backing, Dialect, Direct, Drive, File, Kept, KeyValue, Medium, Vendor};
use crate::config::object::{Bounds, Key, Names, Object, json, object};
use crate::config::{AdminAllow, MediumKind, Size, Timing, Zoned};

/// Smallest medium.
const MIN_MEDIUM_LEN: u64 = 64 << 10;
/// Offsets of files are signed numbers of 64 bits.
const MEDIUM_LEN_END: u64 = 1 << 63;

object! {
    /// Medium: storage behind namespaces.
    #[schema(as = Medium)]
    pub struct MediumKeys(MediumWritten, "medium") {
        /// Name of the medium.
        name: String => Fixed { bounds: Bounds::Name };
        /// Kind of the medium: `null` discards writes, `ram` is memory of the server process,
        /// `file` is a regular file or a block device, `drive` is a namespace of an NVMe drive,
        /// `keyvalue` stores keys and values.
        kind: MediumKind => Fixed;
        /// File or block device of a `file` medium, which requires it; or regular file in which a
        /// `keyvalue` medium logs its pairs.
        #[schema(value_type = Option<String>)]
        path: Option<PathBuf> | unset => Fixed {
            kinds: &[MediumKind::File, MediumKind::KeyValue],
            value: "FILE",
            names: Names::Files,
        };
        /// Size of the medium. Required for `null`, `ram` and `keyvalue` (up to 1TiB), and for a
        /// file that does not exist.
        size: Option<Size> | unset => Fixed {
            bounds: Bounds::MultipleOf(512, MIN_MEDIUM_LEN, MEDIUM_LEN_END),
            kinds: &[MediumKind::Null, MediumKind::Ram, MediumKind::File, MediumKind::KeyValue],
            unset: "the size of the existing file",
        };
        /// Address of the drive: `vfio-user:PATH`, `nvme-tcp:HOST:PORT/NQN` or `pci:ADDRESS`.
        target: Option<String> | unset => Fixed {
            kinds: DRIVE,
            needed: true,
            value: "vfio-user:PATH|nvme-tcp:HOST:PORT/NQN|pci:ADDRESS",
        };
        /// Host NQN of the server for a drive over NVMe/TCP.
        hostnqn: Option<String> | unset => Fixed {
            bounds: Bounds::Ascii(MAX_NQN_LEN),
            kinds: DRIVE,
            unset: "a random one",
            value: "NQN",
        };
        /// File with the secret of that host, as `nvme gen-dhchap-key` prints it, for a drive over
        /// NVMe/TCP that authenticates hosts by DH-HMAC-CHAP. A regular file that only its owner
        /// can read, or `credential:NAME` for a systemd credential. Needs `hostnqn`.
        #[schema(value_type = Option<String>)]
        dhchap_key: Option<PathBuf> | unset => Fixed {
            kinds: DRIVE,
            unset: "the server does not authenticate itself",
            value: "FILE",
            names: Names::Files,
        };
        /// File with the secret of the drive's controller, as `dhchap_key`, which it needs: the
        /// controller has to authenticate itself.
        #[schema(value_type = Option<String>)]
        dhchap_ctrl_key: Option<PathBuf> | unset => Fixed {
            kinds: DRIVE,
            unset: "the controller is not authenticated",
            value: "FILE",
            names: Names::Files,
        };
        /// File with the pre-shared key of that host for TLS 1.3, as `nvme gen-tls-key` prints it,
        /// for a drive over NVMe/TCP. A regular file that only its owner can read, or
        /// `credential:NAME` for a systemd credential. Needs `hostnqn`.
        #[schema(value_type = Option<String>)]
        tls_key: Option<PathBuf> | unset => Fixed {
            kinds: DRIVE,
            unset: "the server connects without TLS",
            value: "FILE",
            names: Names::Files,
        };
        /// Encrypt by TLS with a key that both sides make by DH-HMAC-CHAP (secure channel
        /// concatenation), for a drive over NVMe/TCP. Needs `dhchap_key`.
        concat: Option<bool> | unset => Fixed { kinds: DRIVE, unset: "false" };
        /// Protect headers of NVMe/TCP by digests (CRC32C).
        header_digest: Option<bool> | unset => Fixed { kinds: DRIVE, unset: "false" };
        /// Protect data of NVMe/TCP by digests (CRC32C).
        data_digest: Option<bool> | unset => Fixed { kinds: DRIVE, unset: "false" };
        /// Identifier of the namespace on the drive.
        nsid: Option<u32> | unset => Fixed {
            bounds: Bounds::Whole(1, u32::MAX as u64 - 1),
            hint: "namespace identifiers of a drive start at 1",
            kinds: DRIVE,
            unset: "the first active namespace",
            value: "N",
        };
        /// Vendor log pages of the drive that hosts may read, up to 16, as in `get-log-page:0xc0`
        /// or `get-log-page:0xc0:BYTES`. A page has an LID of 0xc0 to 0xff, except 0xc1, and 4 to
        /// 4096 bytes.
        admin_allow: Vec<AdminAllow> | unset => Fixed {
            kinds: DRIVE,
            value: "get-log-page:LID[:BYTES]",
        };
        /// Size of the writes that the drive keeps atomic across a power failure; for a drive that
        /// reports less than it keeps (AWUPF, NAWUPF).
        awupf: Option<Size> | unset => Fixed {
            bounds: Bounds::OneSizeOf(&[512, 4096]),
            hint: "the sizes of a block",
            kinds: DRIVE,
            unset: "the size that the drive reports",
            value: "SIZE",
        };
        /// Reactor that polls all completion queues of the drive, and passes completions to the
        /// reactors that submitted the commands.
        completions: Option<usize> | unset => Fixed {
            kinds: DRIVE,
            unset: "each reactor polls its own completion queue",
            value: "REACTOR",
            names: Names::Reactors,
        };
        /// Reactor that writes the drive's completion queue head doorbells. Only with
        /// `completions`, and another reactor than that one.
        heads: Option<usize> | unset => Fixed {
            kinds: DRIVE,
            unset: "the reactor in `completions`",
            value: "REACTOR",
            names: Names::Reactors,
        };
        /// Direct I/O (`O_DIRECT`): `auto` uses it where it serves blocks of 512 bytes, `on`
        /// requires it, `off` uses the page cache.
        direct: Option<Direct> | unset => Fixed { kinds: FILE, unset: "`auto`" };
        /// Submit through a polling kernel thread (`IORING_SETUP_SQPOLL`), which occupies a CPU
        /// while there is work.
        poll_submissions: Option<bool> | unset => Fixed { kinds: FILE, unset: "false" };
        /// Poll the device for completions instead of taking interrupts (`IORING_SETUP_IOPOLL`).
        /// Needs direct I/O and a device with polled queues.
        poll_completions: Option<bool> | unset => Fixed { kinds: FILE, unset: "false" };
        /// Register hosts' memory with the kernel, up to the limit of locked memory
        /// (`RLIMIT_MEMLOCK`).
        register_memory: Option<bool> | unset => Fixed { kinds: FILE, unset: "true" };
        /// Open the file or device read-only, and serve its namespaces write protected. Without it,
        /// the server rejects a file or device that it cannot write.
        read_only: Option<bool> | unset => Fixed { kinds: FILE, unset: "false" };
        /// Command set: `nvme` is the Key Value command set, `samsung` the vendor commands of
        /// Samsung's key-value drives.
        dialect: Option<Dialect> | unset => Fixed { kinds: KEY_VALUE, unset: "`nvme`" };
        /// Maximum number of keys.
        max_keys: Option<u32> | unset => Fixed {
            bounds: Bounds::Whole(1, u32::MAX as u64 - 1),
            kinds: KEY_VALUE,
            unset: "one for each 512 bytes of `size`",
            value: "N",
        };
        /// File in which a medium in memory, with its zones, is saved when the server stops. A
        /// `keyvalue` medium has it only without `path`.
        #[schema(value_type = Option<String>)]
        state: Option<PathBuf> | unset => Fixed {
            kinds: &[MediumKind::Ram, MediumKind::KeyValue],
            unset: "none; the contents are not persistent",
            value: "FILE",
            names: Names::Files,
        };
        /// Allocate all memory when the medium is made, in the background: a first write takes no
        /// longer than others. Blocks that hosts deallocate are freed again.
        preallocate: Option<bool> | unset => Fixed {
            kinds: &[MediumKind::Ram],
            unset: "false; memory is allocated as it is written",
        };
        /// Timing model that delays the completion of commands: a preset, and parameters that
        /// differ from it. Parameters that `nvmirage explain PRESET` lists as live change while
        /// hosts use the medium.
        timing: Option<Timing> | unset => Live {
            unset: "none; commands complete as soon as they are done",
            value: "PRESET[,NAME=VALUE...]",
        };
        /// Vendor commands of its namespaces, in addition to the NVM command set: `fetch_add` adds
        /// to a counter. Not with zones.
        vendor: Option<Vendor> | unset => Fixed { kinds: BYTES, unset: "none" };
        /// Zones, which hosts write sequentially and reset as a whole. A `file` has to be a regular
        /// one.
        zoned: Option<Zoned> | unset => Fixed {
            kinds: BYTES,
            table: Zoned::KEYS,
            unset: "none",
        };
    }
}

/// Longest NQN (Base 2.1, 4.7).
const MAX_NQN_LEN: usize = 223;
const BYTES: &[MediumKind] = &[MediumKind::Null, MediumKind::Ram, MediumKind::File];
const FILE: &[MediumKind] = &[MediumKind::File];
const DRIVE: &[MediumKind] = &[MediumKind::Drive];
const KEY_VALUE: &[MediumKind] = &[MediumKind::KeyValue];

impl MediumKeys {
    /// The keys of a medium with everything else left out.
    pub fn new(name: String, kind: MediumKind) -> Self {
        let written = MediumWritten {
            name: Some(name),
            kind: Some(kind),
            ..MediumWritten::default()
        };
        written.complete().expect("no other key is required")
    }
}

impl From<Medium> for MediumKeys {
    fn from(medium: Medium) -> Self {
        /// The value, unless it is the default and those are left out.
        fn written<T: PartialEq>(value: T, default: T, in_full: bool) -> Option<T> {
            (in_full || value != default).then_some(value)
        }
        let (kind, in_full) = (medium.kind(), medium.in_full);
        let mut keys = MediumKeys::new(medium.name, kind);
        (keys.timing, keys.vendor) = (medium.timing, medium.vendor);
        let unless = |value, default| written(value, default, in_full);
        match medium.backing {
            Backing::Null { size, zoned } => (keys.size, keys.zoned) = (Some(size), zoned),
            Backing::Ram {
                size,
                state,
                preallocate,
                zoned,
            } => {
                (keys.size, keys.state, keys.zoned) = (Some(size), state, zoned);
                keys.preallocate = unless(preallocate, false);
            }
            Backing::File(file) => {
                keys.path = Some(file.path);
                keys.size = file.size;
                keys.direct = written(file.direct, Direct::default(), in_full);
                keys.poll_submissions = unless(file.poll_submissions, false);
                keys.poll_completions = unless(file.poll_completions, false);
                keys.register_memory = unless(file.register_memory, true);
                keys.read_only = unless(file.read_only, false);
                keys.zoned = file.zoned;
            }
            Backing::Drive(drive) => {
                keys.target = Some(drive.target.to_string());
                keys.hostnqn = drive.hostnqn;
                keys.dhchap_key = drive.dhchap_key;
                keys.dhchap_ctrl_key = drive.dhchap_ctrl_key;
                keys.tls_key = drive.tls_key;
                keys.concat = unless(drive.concat, false);
                keys.header_digest = unless(drive.header_digest, false);
                keys.data_digest = unless(drive.data_digest, false);
                keys.nsid = drive.nsid;
                keys.admin_allow = drive.admin_allow;
                keys.awupf = drive.awupf;
                keys.completions = drive.completions;
                keys.heads = drive.heads;
            }
            Backing::KeyValue(pairs) => {
                keys.size = Some(pairs.size);
                keys.max_keys = pairs.max_keys;
                keys.dialect = written(pairs.dialect, Dialect::default(), in_full);
                match pairs.kept {
                    Kept::No => {}
                    Kept::Image(path) => keys.state = Some(path),
                    Kept::Log(path) => keys.path = Some(path),
                }
            }
        }
        keys
    }
}

impl From<MediumKeys> for Medium {
    fn from(mut keys: MediumKeys) -> Self {
        let mut faults = keys.misplaced();
        let mut required = |size: Option<Size>| {
            size.unwrap_or_else(|| {
                faults.push("it needs a size: write size = \"8GiB\"".into());
                Size(0)
            })
        };
        let backing = match keys.kind {
            MediumKind::Null => Backing::Null {
                size: required(keys.size),
                zoned: keys.zoned,
            },
            MediumKind::Ram => Backing::Ram {
                size: required(keys.size),
                state: keys.state,
                preallocate: keys.preallocate.unwrap_or(false),
                zoned: keys.zoned,
            },
            MediumKind::KeyValue => Backing::KeyValue(KeyValue {
                size: required(keys.size),
                max_keys: keys.max_keys,
                dialect: keys.dialect.unwrap_or_default(),
                kept: match (keys.path, keys.state) {
                    (Some(path), _) => Kept::Log(path),
                    (None, Some(state)) => Kept::Image(state),
                    (None, None) => Kept::No,
                },
            }),
            MediumKind::File => Backing::File(File {
                path: keys.path.take().unwrap_or_else(|| {
                    faults.push("a file needs a path: write path = \"disk.img\"".into());
                    PathBuf::new()
                }),
                size: keys.size,
                direct: keys.direct.unwrap_or_default(),
                poll_submissions: keys.poll_submissions.unwrap_or(false),
                poll_completions: keys.poll_completions.unwrap_or(false),
                register_memory: keys.register_memory.unwrap_or(true),
                read_only: keys.read_only.unwrap_or(false),
                zoned: keys.zoned,
            }),
            MediumKind::Drive => Backing::Drive(Drive {
                target: target(keys.target, &mut faults),
                hostnqn: keys.hostnqn,
                dhchap_key: keys.dhchap_key,
                dhchap_ctrl_key: keys.dhchap_ctrl_key,
                tls_key: keys.tls_key,
                concat: keys.concat.unwrap_or(false),
                header_digest: keys.header_digest.unwrap_or(false),
                data_digest: keys.data_digest.unwrap_or(false),
                nsid: keys.nsid,
                admin_allow: keys.admin_allow,
                awupf: keys.awupf,
                completions: keys.completions,
                heads: keys.heads,
            }),
        };
        Medium {
            name: keys.name,
            timing: keys.timing,
            vendor: keys.vendor,
            backing,
            faults,
            in_full: false,
        }
    }
}

/// The address of a drive; where it is missing or invalid, appends the fault and returns an empty
/// one, which is never opened.
fn target(text: Option<String>, faults: &mut Vec<String>) -> Target {
    let wrong = match text.as_deref().map(str::parse) {
        Some(Ok(target)) => return target,
        Some(Err(error)) => {
            let error: String = error;
            format!("target = \"{}\": {error}", text.unwrap_or_default())
        }
        None => "a drive needs a target: write target = \"vfio-user:/run/drive.sock\", \"nvme-tcp:10.0.0.1:4420/NQN\", or \"pci:0000:01:00.0\"".into(),
    };
    faults.push(wrong);
    Target::VfioUser(PathBuf::new())
}

impl MediumKeys {
    /// The keys in JSON, without the content of those that have no bounds: a path need not be text.
    pub(super) fn values(&self) -> Value {
        let there = |path: &Option<PathBuf>| path.as_ref().map(|_| "path".into());
        json(&MediumKeys {
            path: there(&self.path),
            state: there(&self.state),
            dhchap_key: there(&self.dhchap_key),
            dhchap_ctrl_key: there(&self.dhchap_ctrl_key),
            tls_key: there(&self.tls_key),
            timing: None,
            ..self.clone()
        })
    }

    /// Errors for keys that its kind does not have.
    fn misplaced(&self) -> Vec<String> {
        let there = self.values();
        let mut faults = Vec::new();
        let misplaced = |key: &&Key| !there[key.name].is_null() && self.is_misplaced(key);
        for key in Self::KEYS.iter().filter(misplaced) {
            let fault = self.why_not(key);
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
        faults
    }

    fn is_misplaced(&self, key: &Key) -> bool {
        // A log of pairs keeps them, too.
        let is_kept = key.name == "state" && self.path.is_some() && self.kind != MediumKind::Ram;
        is_kept || !(key.kinds.is_empty() || key.kinds.contains(&self.kind))
    }

    /// Why its kind does not have a key, and what to do.
    fn why_not(&self, key: &Key) -> String {
        let why = match (key.name, self.kind) {
            ("path" | "size", MediumKind::Drive) => {
                "a drive has a target, and reports its own size: remove path and size"
            }
            ("path", _) => {
                "only kind = \"file\" and kind = \"keyvalue\" have a path: remove it or change the kind"
            }
            ("state", _) => {
                "`state` is only for media in memory (kind = \"ram\", and \"keyvalue\" without a path): remove it"
            }
            ("zoned", MediumKind::Drive) => {
                "zoned: zones on a drive would not be persistent: write kind = \"file\" or \"ram\""
            }
            ("zoned", _) => {
                "zoned: a key-value medium has no zones: write kind = \"file\" or \"ram\""
            }
            (name, _) => {
                let kinds = key.kinds.iter().map(|kind| format!("kind = \"{kind}\""));
                let kinds: Vec<String> = kinds.collect();
                let has = if kinds.len() == 1 { "has" } else { "have" };
                return format!("only {} {has} `{name}`: remove it", kinds.join(" and "));
            }
        };
        why.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// One medium of every key, as in a file.
    const ALL: [(&str, &str); 27] = [
        ("path", "\"p\""),
        ("size", "\"1MiB\""),
        ("target", "\"pci:0000:01:00.0\""),
        ("hostnqn", "\"nqn.a\""),
        ("dhchap_key", "\"k\""),
        ("dhchap_ctrl_key", "\"c\""),
        ("tls_key", "\"t\""),
        ("concat", "true"),
        ("header_digest", "true"),
        ("data_digest", "true"),
        ("nsid", "1"),
        ("admin_allow", "[\"get-log-page:0xc0\"]"),
        ("awupf", "\"4KiB\""),
        ("completions", "0"),
        ("heads", "1"),
        ("direct", "\"on\""),
        ("poll_submissions", "true"),
        ("poll_completions", "true"),
        ("register_memory", "true"),
        ("read_only", "true"),
        ("dialect", "\"nvme\""),
        ("max_keys", "1"),
        ("state", "\"s\""),
        ("preallocate", "true"),
        ("timing", "{ preset = \"samsung-970-pro\" }"),
        ("vendor", "\"fetch_add\""),
        ("zoned", "{ zone_size = \"1MiB\" }"),
    ];

    /// The keys of each kind, as the book has them.
    #[test]
    fn each_kind_has_its_keys_and_no_other() {
        let in_the_table = MediumKeys::KEYS.iter().map(|key| key.name);
        let tried = ALL.iter().map(|(key, _)| *key).chain(["name", "kind"]);
        assert_eq!(
            in_the_table.collect::<BTreeSet<_>>(),
            tried.collect::<BTreeSet<_>>()
        );
        for (kind, own) in [
            ("null", "size timing vendor zoned"),
            ("ram", "size state preallocate timing vendor zoned"),
            (
                "file",
                "path size direct poll_submissions poll_completions register_memory read_only timing vendor zoned",
            ),
            (
                "drive",
                "target hostnqn dhchap_key dhchap_ctrl_key tls_key concat header_digest data_digest nsid admin_allow awupf completions heads timing",
            ),
            ("keyvalue", "path size dialect max_keys state timing"),
        ] {
            let has = |(key, value): &&(&str, &str)| {
                let text = format!("name = \"m\"\nkind = \"{kind}\"\n{key} = {value}");
                let keys: MediumKeys = toml::from_str(&text).unwrap();
                let faults = keys.misplaced();
                assert!(faults.len() < 2, "{faults:?}");
                assert!(faults.iter().all(|fault| fault.contains(key)), "{faults:?}");
                faults.is_empty()
            };
            let found: Vec<&str> = ALL.iter().filter(has).map(|(key, _)| *key).collect();
            assert_eq!(found.join(" "), own, "{kind}");
        }
    }

    #[test]
    fn a_log_of_pairs_needs_no_state() {
        let text = "name = \"m\"\nkind = \"keyvalue\"\npath = \"p\"\nstate = \"s\"";
        let keys: MediumKeys = toml::from_str(text).unwrap();
        let faults = keys.misplaced();
        assert!(faults[0].contains("without a path"), "{faults:?}");
    }
}

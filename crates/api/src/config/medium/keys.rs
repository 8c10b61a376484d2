//! A medium as it is written.

use std::path::PathBuf;

use driver::bus::place::Place as Target;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Backing, Dialect, Direct, Drive, File, Kept, KeyValue, Medium, MediumKind};
use crate::config::{AdminAllow, Size, Timing, Zoned};

/// Medium: storage behind namespaces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Medium)]
pub struct MediumKeys {
    /// Name of the medium: 1 to 64 letters, digits, `.`, `_` or `-`.
    pub name: String,
    /// Kind of the medium.
    pub kind: MediumKind,
    /// File or block device. Required for `kind = "file"`; optional for `kind = "keyvalue"`, where
    /// it is the regular file with the log of pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub path: Option<PathBuf>,
    /// Size: 64KiB to 8EiB, a multiple of 512B; for `kind = "keyvalue"` at most 1TiB. Required for
    /// `null`, `ram` and `keyvalue`, and for a file that does not exist; invalid for
    /// `kind = "drive"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Address of the drive: `vfio-user:PATH` or `pci:ADDRESS`. Required for, and only for,
    /// `kind = "drive"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Namespace identifier on the drive, from 1. Only for `kind = "drive"`. Default: the first
    /// active namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nsid: Option<u32>,
    /// Vendor log pages of the drive that hosts may read, as `get-log-page:0xc0` or
    /// `get-log-page:0xc0:BYTES`: at most 16 pages, LID 0xc0 to 0xff except 0xc1, 4 to 4096 bytes.
    /// Only for `kind = "drive"`. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admin_allow: Vec<AdminAllow>,
    /// Write size that the drive keeps atomic across a power failure, where it is more than the
    /// drive reports (AWUPF, NAWUPF): `512B` or `4KiB`. Only for `kind = "drive"`. Default: the
    /// size that the drive reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub awupf: Option<Size>,
    /// Reactor that polls all completion queues of the drive, and passes completions to the
    /// reactors that submitted the commands. Only for `kind = "drive"`. Default: each reactor polls
    /// its own completion queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completions: Option<usize>,
    /// Reactor that writes the drive's completion queue head doorbells. Only with `completions`,
    /// and a different reactor. Default: the reactor in `completions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads: Option<usize>,
    /// Direct I/O: `auto`, `on` or `off`. Only for `kind = "file"`. Default: `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct: Option<Direct>,
    /// Submit through a polling kernel thread (`IORING_SETUP_SQPOLL`), which occupies a CPU while
    /// there is work. Only for `kind = "file"`. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll_submissions: Option<bool>,
    /// Poll the device for completions instead of taking interrupts (`IORING_SETUP_IOPOLL`). Needs
    /// direct I/O and a device with polled queues. Only for `kind = "file"`. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll_completions: Option<bool>,
    /// Register hosts' memory with the kernel, up to the limit of locked memory (`RLIMIT_MEMLOCK`).
    /// Only for `kind = "file"`. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub register_memory: Option<bool>,
    /// Open the file or device read-only, and serve its namespaces write protected. Only for
    /// `kind = "file"`. Default: false; a file or device that cannot be written is then rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Command set: `nvme` or `samsung`. Only for `kind = "keyvalue"`. Default: `nvme`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect: Option<Dialect>,
    /// Maximum number of keys, 1 to 4294967294. Only for `kind = "keyvalue"`. Default: one for each
    /// 512 bytes of `size`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_keys: Option<u32>,
    /// File in which a medium in memory, with its zones, is saved when the server stops. Only for
    /// `kind = "ram"`, and `kind = "keyvalue"` without `path`. Default: none; the contents are not
    /// persistent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub state: Option<PathBuf>,
    /// Timing model that delays the completion of commands. Default: none; commands complete as
    /// soon as they are done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// Zones, which hosts write sequentially and reset as a whole. Only for `null`, `ram`, and
    /// regular files. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zoned: Option<Zoned>,
}

impl MediumKeys {
    /// The keys of a medium with everything else left out.
    pub fn new(name: String, kind: MediumKind) -> Self {
        MediumKeys {
            name,
            kind,
            path: None,
            size: None,
            target: None,
            nsid: None,
            admin_allow: Vec::new(),
            awupf: None,
            completions: None,
            heads: None,
            direct: None,
            poll_submissions: None,
            poll_completions: None,
            register_memory: None,
            read_only: None,
            dialect: None,
            max_keys: None,
            state: None,
            timing: None,
            zoned: None,
        }
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
        keys.timing = medium.timing;
        let unless = |value, default| written(value, default, in_full);
        match medium.backing {
            Backing::Null { size, zoned } => (keys.size, keys.zoned) = (Some(size), zoned),
            Backing::Ram { size, state, zoned } => {
                (keys.size, keys.state, keys.zoned) = (Some(size), state, zoned);
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
            backing,
            faults,
            in_full: false,
        }
    }
}

/// The address of a drive, or one that nobody uses, with what is wrong.
fn target(text: Option<String>, faults: &mut Vec<String>) -> Target {
    let wrong = match text.as_deref().map(str::parse) {
        Some(Ok(target)) => return target,
        Some(Err(error)) => {
            let error: String = error;
            format!("target = \"{}\": {error}", text.unwrap_or_default())
        }
        None => "a drive needs a target: write target = \"vfio-user:/run/drive.sock\", or \"pci:0000:01:00.0\"".into(),
    };
    faults.push(wrong);
    Target::VfioUser(PathBuf::new())
}

impl MediumKeys {
    /// What is wrong with keys that its kind does not have.
    fn misplaced(&self) -> Vec<String> {
        use MediumKind::{Drive, File, KeyValue, Null, Ram};
        let mut faults = Vec::new();
        let mut only = |kinds: &[MediumKind], has: bool, what: &str| {
            if has && !kinds.contains(&self.kind) {
                faults.push(what.to_owned());
            }
        };
        if self.kind == Drive {
            only(
                &[],
                self.path.is_some() || self.size.is_some(),
                "a drive has a target, and reports its own size: remove path and size",
            );
        }
        only(
            &[File, KeyValue, Drive],
            self.path.is_some(),
            "only kind = \"file\" and kind = \"keyvalue\" have a path: remove it or change the kind",
        );
        for (kind, word, keys) in [
            (
                File,
                "file",
                &[
                    ("direct", self.direct.is_some()),
                    ("poll_submissions", self.poll_submissions.is_some()),
                    ("poll_completions", self.poll_completions.is_some()),
                    ("register_memory", self.register_memory.is_some()),
                    ("read_only", self.read_only.is_some()),
                ][..],
            ),
            (
                Drive,
                "drive",
                &[
                    ("target", self.target.is_some()),
                    ("nsid", self.nsid.is_some()),
                    ("admin_allow", !self.admin_allow.is_empty()),
                    ("awupf", self.awupf.is_some()),
                    ("completions", self.completions.is_some()),
                    ("heads", self.heads.is_some()),
                ],
            ),
            (
                KeyValue,
                "keyvalue",
                &[
                    ("dialect", self.dialect.is_some()),
                    ("max_keys", self.max_keys.is_some()),
                ],
            ),
        ] {
            for (key, has) in keys {
                only(
                    &[kind],
                    *has,
                    &format!("only kind = \"{word}\" has `{key}`: remove it"),
                );
            }
        }
        let keeps: &[MediumKind] = if self.path.is_none() {
            &[Ram, KeyValue]
        } else {
            &[Ram]
        };
        only(
            keeps,
            self.state.is_some(),
            "`state` is only for media in memory (kind = \"ram\", and \"keyvalue\" without a path): remove it",
        );
        only(
            &[Null, Ram, File, Drive],
            self.zoned.is_some(),
            "zoned: a key-value medium has no zones: write kind = \"file\" or \"ram\"",
        );
        only(
            &[Null, Ram, File, KeyValue],
            self.zoned.is_some(),
            "zoned: zones on a drive would not be persistent: write kind = \"file\" or \"ram\"",
        );
        faults
    }
}

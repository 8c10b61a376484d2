//! Intel Optane SSD DC P4800X, 375 GB: 3D XPoint, no flash.

use super::{
    LINUX_READ_NS, LINUX_WRITE_NS, Preset, Published, Source, Sourced, above_linux, published, v,
};
use crate::Kind;

const TABLE_2: &str = "Table 2, Optane";
const SCRIPT: &str = "what its script sets, 1 unit; \"MB\" there are MiB";
const RATES: Source = Source::Sheet(
    "Intel's specification of the 375 GB drive, 4 KiB random at QD16; the drive of the MDev-NVMe paper (USENIX ATC 2018), too",
);

const COMMON: &[Sourced] = &[
    v(
        "arithmetic",
        "exact",
        Source::Assumed("the rules of the book"),
    ),
    v("read_rate", "550K/s", RATES),
    v("write_rate", "500K/s", RATES),
];

const PAPER: &[Sourced] = &[
    above_linux(
        "read_latency",
        "12us",
        LINUX_READ_NS,
        Source::Paper(TABLE_2),
    ),
    v("read_bandwidth", "2.4GiB/s", Source::Paper(TABLE_2)),
    above_linux(
        "write_latency",
        "14us",
        LINUX_WRITE_NS,
        Source::Paper(TABLE_2),
    ),
    v("write_bandwidth", "2.0GiB/s", Source::Paper(TABLE_2)),
];

const CODE: &[Sourced] = &[
    above_linux("read_latency", "12us", LINUX_READ_NS, Source::Code(SCRIPT)),
    v("read_bandwidth", "2400MiB/s", Source::Code(SCRIPT)),
    above_linux(
        "write_latency",
        "14us",
        LINUX_WRITE_NS,
        Source::Code(SCRIPT),
    ),
    v("write_bandwidth", "2000MiB/s", Source::Code(SCRIPT)),
];

const SHEET: Source = Source::Sheet("Intel's specification of the 375 GB drive");
const ANANDTECH: Source =
    Source::Measured("AnandTech, review of the 375 GB P4800X (2017), in Linux");

const PUBLISHED: &[Published] = &[
    published("typical latency, read and write", "under 10 us", SHEET),
    published("4 KiB random reads, QD16", "550 K IOPS", SHEET),
    published("4 KiB random writes, QD16", "500 K IOPS", SHEET),
    published("64 KiB sequential reads", "2400 MB/s", SHEET),
    published("64 KiB sequential writes", "2000 MB/s", SHEET),
    published("4 KiB random read, QD1, mean", "8.9 us", ANANDTECH),
    published("4 KiB random reads, QD16", "584.8 K IOPS", ANANDTECH),
    published(
        "largest difference of NVMeVirt's model from it",
        "12.2 %",
        Source::Paper("figure 4"),
    ),
];

const fn preset(
    variant: &'static str,
    is_default: bool,
    values: &'static [&'static [Sourced]],
) -> Preset {
    Preset {
        name: "optane-p4800x",
        variant,
        is_default,
        about: "Intel Optane SSD DC P4800X 375 GB, low-latency memory without flash",
        kind: Kind::Nvm,
        size_bytes: 375_000_000_000,
        size_source: SHEET,
        values,
        published: PUBLISHED,
    }
}

pub(super) static PRESETS: &[Preset] = &[
    preset("paper", true, &[COMMON, PAPER]),
    preset("code", false, &[COMMON, CODE]),
];

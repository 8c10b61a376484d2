//! Intel SSD DC P3600: 20 nm MLC flash. Its geometry is not public, so it is a pipeline, as far as
//! its data sheet goes.

use super::{Preset, Published, Source, Sourced, published, v};
use crate::Kind;

const SHEET: Source = Source::Sheet(
    "Intel SSD DC P3600 product specification, order number 330569, front page: \"up to\", over the sizes of the series",
);

const VALUES: &[Sourced] = &[
    v(
        "arithmetic",
        "exact",
        Source::Assumed("the rules of the book"),
    ),
    v(
        "read_latency",
        "20us",
        Source::Sheet(
            "the same, typical latency of sequential reads; that of random ones is not given there and is longer",
        ),
    ),
    v("read_bandwidth", "2600MB/s", SHEET),
    v("read_rate", "450K/s", SHEET),
    v(
        "write_latency",
        "20us",
        Source::Sheet("the same, typical latency of sequential writes"),
    ),
    v("write_bandwidth", "1700MB/s", SHEET),
    v("write_rate", "56K/s", SHEET),
];

const PUBLISHED: &[Published] = &[
    published("typical latency, sequential read and write", "20 us", SHEET),
    published("4 KiB random reads", "up to 450 K IOPS", SHEET),
    published("4 KiB random writes", "up to 56 K IOPS", SHEET),
    published("4 KiB random, 70 % reads", "up to 160 K IOPS", SHEET),
    published("sequential reads", "up to 2600 MB/s", SHEET),
    published("sequential writes", "up to 1700 MB/s", SHEET),
    published(
        "maximum latency, native, 4 KiB random read QD1",
        "3050 us",
        Source::Measured("MDev-NVMe paper (USENIX ATC 2018), figure 7, the 400 GB drive"),
    ),
    published(
        "maximum latency, native, 4 KiB random write QD1",
        "6886 us",
        Source::Measured("MDev-NVMe paper (USENIX ATC 2018), figure 7, the 400 GB drive"),
    ),
];

pub(super) static PRESETS: &[Preset] = &[Preset {
    name: "intel-p3600",
    variant: "",
    is_default: true,
    about: "Intel SSD DC P3600, as far as its data sheet goes: a pipeline, without collection",
    kind: Kind::Nvm,
    size_bytes: 400_000_000_000,
    size_source: Source::Sheet("the smallest of the series, and the MDev-NVMe paper's drive"),
    values: &[VALUES],
    published: PUBLISHED,
}];

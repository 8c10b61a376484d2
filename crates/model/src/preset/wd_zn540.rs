//! Western Digital Ultrastar DC ZN540: a zoned drive that Linux attaches, TLC flash. Only the
//! program has it, not the paper.

use super::{Preset, Published, Source, Sourced, published, v};
use crate::Kind;

const CONFIG: Source = Source::Code("ssd_config.h, WD_ZN540");
const MEBI: Source = Source::Code("ssd_config.h, WD_ZN540; its \"MB/s\" are MiB/s");
const UNUSED: Source = Source::Assumed("not used: a cell has three bits");
const NOTHING: Source =
    Source::Assumed("not in the sources used: nothing is added to what the dies take");
const DRIVE: Source = Source::Measured("what the drive reports of its zones");

const VALUES: &[Sourced] = &[
    v(
        "arithmetic",
        "exact",
        Source::Assumed("the rules of the book"),
    ),
    v("channels", "8", CONFIG),
    v("dies_per_channel", "4", CONFIG),
    v("flash_page", "32KiB", CONFIG),
    v("oneshot", "96KiB", CONFIG),
    v(
        "block",
        "34464KiB",
        Source::Derived(
            "1077 MiB of a zone over its 32 dies are 359 oneshots each: a zone is one block of each die",
        ),
    ),
    v("cell_bits", "3", Source::Code("ssd_config.h: TLC")),
    v("read_4k_cell0", "50us", CONFIG),
    v("read_4k_cell1", "50us", CONFIG),
    v("read_4k_cell2", "50us", CONFIG),
    v("read_4k_cell3", "0ns", UNUSED),
    v("read_cell0", "58us", CONFIG),
    v("read_cell1", "58us", CONFIG),
    v("read_cell2", "58us", CONFIG),
    v("read_cell3", "0ns", UNUSED),
    v("program", "561us", CONFIG),
    v(
        "erase",
        "4500us",
        Source::Sheet(
            "TLC flash, about: HP, Differences between SLC, MLC and TLC NAND, table 1. The program has 0",
        ),
    ),
    v("channel_bandwidth", "450MiB/s", MEBI),
    v("max_channel_transfer", "32KiB", CONFIG),
    v("firmware_channel_transfer", "0ns", CONFIG),
    v("link_bandwidth", "3050MiB/s", MEBI),
    v("firmware_read_4k", "20us", CONFIG),
    v("firmware_read", "13us", CONFIG),
    v(
        "buffer",
        "0B",
        Source::Code("ssd_config.h: each zone has its own"),
    ),
    v("buffer_base", "5600ns", CONFIG),
    v("buffer_per_page", "600ns", CONFIG),
    v("early_completion", "true", CONFIG),
    v("zone_size", "2GiB", DRIVE),
    v("zone_capacity", "1077MiB", DRIVE),
    v("dies_per_zone", "32", CONFIG),
    v("zone_buffer", "960KiB", CONFIG),
    v("reset", "0ns", NOTHING),
    v("finish", "0ns", NOTHING),
    v(
        "finish_writes",
        "true",
        Source::Assumed("not in the sources used: what is not written is programmed"),
    ),
    v("open", "0ns", NOTHING),
];

const PUBLISHED: &[Published] = &[
    published("zone size", "2 GiB", DRIVE),
    published("zone capacity", "1077 MiB", DRIVE),
    published("zones open or active at the same time", "14", DRIVE),
];

pub(super) static PRESETS: &[Preset] = &[Preset {
    name: "wd-zn540",
    variant: "code",
    is_default: true,
    about: "Western Digital Ultrastar DC ZN540, zoned TLC flash",
    kind: Kind::Zns,
    size_bytes: 886 * (2 << 30),
    size_source: Source::Derived("1 TB of capacity are 886 zones of 1077 MiB"),
    values: &[VALUES],
    published: PUBLISHED,
}];

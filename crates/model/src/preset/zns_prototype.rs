//! The prototype of a zoned drive that NVMeVirt was compared with: TLC flash, zones on one die
//! each.

use super::{Preset, Published, Source, Sourced, published, v};
use crate::Kind;

const CONFIG: Source = Source::Code("ssd_config.h, ZNS_PROTOTYPE");
const TABLE_2: Source = Source::Paper("Table 2, ZNS");
const BOTH: Source = Source::Paper("Table 2, ZNS; the program has the same");
const REAL: Source = Source::Paper(
    "what it says of the drive; the program has it, commented out, as the real value",
);
const UNUSED: Source = Source::Assumed("not used: a cell has three bits");
const NOTHING: Source = Source::Assumed("unpublished: nothing is added to what the dies take");

const COMMON: &[Sourced] = &[
    v(
        "arithmetic",
        "exact",
        Source::Assumed("the rules of the book"),
    ),
    v("channels", "8", BOTH),
    v("dies_per_channel", "16", BOTH),
    v("flash_page", "64KiB", BOTH),
    v("cell_bits", "3", Source::Code("ssd_config.h: TLC")),
    v("read_4k_cell0", "25485ns", CONFIG),
    v("read_4k_cell1", "25485ns", CONFIG),
    v("read_4k_cell2", "25485ns", CONFIG),
    v("read_4k_cell3", "0ns", UNUSED),
    v("read_cell3", "0ns", UNUSED),
    v(
        "erase",
        "4500us",
        Source::Sheet(
            "TLC flash, about: HP, Differences between SLC, MLC and TLC NAND, table 1. The program has 0",
        ),
    ),
    v("channel_bandwidth", "800MiB/s", BOTH),
    v("max_channel_transfer", "64KiB", CONFIG),
    v("firmware_channel_transfer", "413ns", CONFIG),
    v("firmware_read_4k", "32150ns", CONFIG),
    v("firmware_read", "32150ns", CONFIG),
    v("buffer", "32MiB", CONFIG),
    v("buffer_base", "0ns", CONFIG),
    v("buffer_per_page", "0ns", CONFIG),
    v("early_completion", "false", CONFIG),
    v("dies_per_zone", "1", CONFIG),
    v(
        "zone_buffer",
        "0B",
        Source::Code("ssd_config.h: one buffer for all zones"),
    ),
    v("reset", "0ns", NOTHING),
    v("finish", "0ns", NOTHING),
    v(
        "finish_writes",
        "true",
        Source::Assumed("unpublished: what is not written is programmed"),
    ),
    v("open", "0ns", NOTHING),
];

const PAPER: &[Sourced] = &[
    v("oneshot", "192KiB", REAL),
    v(
        "block",
        "96MiB",
        Source::Derived("a zone lies on one die, and is reset as a whole"),
    ),
    v("read_cell0", "40us", TABLE_2),
    v("read_cell1", "40us", TABLE_2),
    v("read_cell2", "40us", TABLE_2),
    v("program", "1913us", TABLE_2),
    v("link_bandwidth", "3.3GiB/s", TABLE_2),
    v("zone_capacity", "96MiB", REAL),
    v(
        "zone_size",
        "128MiB",
        Source::Derived("the least power of two that holds 96 MiB: Linux attaches no other size"),
    ),
];

const CODE: &[Sourced] = &[
    v("oneshot", "128KiB", CONFIG),
    v(
        "block",
        "32MiB",
        Source::Derived("a zone lies on one die, and is reset as a whole"),
    ),
    v("read_cell0", "40950ns", CONFIG),
    v("read_cell1", "40950ns", CONFIG),
    v("read_cell2", "40950ns", CONFIG),
    v("program", "1913640ns", CONFIG),
    v(
        "link_bandwidth",
        "3200MiB/s",
        Source::Code("ssd_config.h, ZNS_PROTOTYPE; its \"MB/s\" are MiB/s"),
    ),
    v("zone_capacity", "32MiB", CONFIG),
    v("zone_size", "32MiB", CONFIG),
];

const PUBLISHED: &[Published] = &[
    published("zone", "96 MiB", Source::Paper("what it says of the drive")),
    published(
        "unit of writing",
        "192 KiB",
        Source::Paper("what it says of the drive"),
    ),
    published(
        "largest difference of NVMeVirt's model from it",
        "3.3 %",
        Source::Paper("figure 4"),
    ),
];

const fn preset(
    variant: &'static str,
    is_default: bool,
    values: &'static [&'static [Sourced]],
) -> Preset {
    Preset {
        name: "zns-prototype",
        variant,
        is_default,
        about: "The prototype of a zoned drive in the NVMeVirt paper, TLC flash",
        kind: Kind::Zns,
        size_bytes: 32 << 30,
        size_source: Source::Assumed("unpublished"),
        values,
        published: PUBLISHED,
    }
}

pub(super) static PRESETS: &[Preset] = &[
    preset("paper", true, &[COMMON, PAPER]),
    preset("code", false, &[COMMON, CODE]),
];

//! Samsung SSD 970 PRO, 512 GB: 64-layer MLC V-NAND.

use super::{Preset, Published, Source, Sourced, published, v};
use crate::Kind;

const CONFIG: Source = Source::Code("ssd_config.h, SAMSUNG_970PRO");
const BOTH: Source = Source::Paper("Table 2, SSD; the program has the same");
const TABLE_2: Source = Source::Paper("Table 2, SSD");
const MEBI: Source = Source::Code("ssd_config.h, SAMSUNG_970PRO; its \"MB/s\" are MiB/s");
const RULES: Source =
    Source::Code("its rules: victim with the fewest valid pages, at two free lines");
const UNUSED: Source = Source::Assumed("not used: a cell has two bits");

/// Those that the two have in common, and those that only the program has.
const COMMON: &[Sourced] = &[
    v(
        "arithmetic",
        "exact",
        Source::Assumed("the rules of the book"),
    ),
    v("partitions", "4", CONFIG),
    v("channels", "8", BOTH),
    v("dies_per_channel", "2", BOTH),
    v("flash_page", "32KiB", BOTH),
    v("oneshot", "32KiB", BOTH),
    v(
        "block",
        "3840KiB",
        Source::Derived(
            "512,110,190,592 bytes over 8 x 2 dies of 8192 blocks (ssd_config.h), rounded up to whole oneshots as the program does",
        ),
    ),
    v(
        "cell_bits",
        "2",
        Source::Code("ssd_config.h: MLC; Samsung: 2-bit V-NAND"),
    ),
    v("read_4k_cell0", "29760ns", CONFIG),
    v("read_4k_cell1", "41760ns", CONFIG),
    v("read_4k_cell2", "0ns", UNUSED),
    v("read_4k_cell3", "0ns", UNUSED),
    v("read_cell2", "0ns", UNUSED),
    v("read_cell3", "0ns", UNUSED),
    v("program", "185us", BOTH),
    v(
        "erase",
        "3ms",
        Source::Sheet(
            "MLC flash, typical: Micron MT29F64G08CBAB and others; HP, Differences between SLC, MLC and TLC NAND, table 1. The program has 0",
        ),
    ),
    v("channel_bandwidth", "800MiB/s", BOTH),
    v("max_channel_transfer", "16KiB", CONFIG),
    v("firmware_channel_transfer", "0ns", CONFIG),
    v("firmware_read_4k", "21500ns", CONFIG),
    v("firmware_read", "30490ns", CONFIG),
    v(
        "buffer",
        "1MiB",
        Source::Code("ssd_config.h: two oneshots for each of 16 dies"),
    ),
    v("buffer_base", "4us", CONFIG),
    v("buffer_per_page", "460ns", CONFIG),
    v("early_completion", "true", CONFIG),
    v("overprovisioning", "7%", CONFIG),
    v(
        "deallocate",
        "0ns",
        Source::Assumed("unpublished; the program knows no deallocate"),
    ),
    v("collect_below", "2", RULES),
    v("policy", "greedy", RULES),
];

const CODE: &[Sourced] = &[
    v("read_cell0", "30013ns", CONFIG),
    v("read_cell1", "42013ns", CONFIG),
    v("link_bandwidth", "3360MiB/s", MEBI),
];

const PAPER: &[Sourced] = &[
    v("read_cell0", "36us", TABLE_2),
    v("read_cell1", "36us", TABLE_2),
    v("link_bandwidth", "3.6GiB/s", TABLE_2),
];

const SHEET: Source = Source::Sheet("Samsung's specification of the 512 GB drive");

const PUBLISHED: &[Published] = &[
    published("sequential reads", "up to 3500 MB/s", SHEET),
    published("sequential writes", "up to 2300 MB/s", SHEET),
    published("4 KiB random reads, QD32 x 4", "up to 370 K IOPS", SHEET),
    published("4 KiB random writes, QD32 x 4", "up to 500 K IOPS", SHEET),
    published(
        "largest difference of NVMeVirt's model from it",
        "11.8 %",
        Source::Paper("figure 4"),
    ),
];

const fn preset(
    variant: &'static str,
    is_default: bool,
    values: &'static [&'static [Sourced]],
) -> Preset {
    Preset {
        name: "samsung-970-pro",
        variant,
        is_default,
        about: "Samsung SSD 970 PRO 512 GB, conventional MLC flash",
        kind: Kind::Flash,
        size_bytes: 512_110_190_592,
        size_source: Source::Sheet("512 GB, as drives count them (IDEMA LBA1-03)"),
        values,
        published: PUBLISHED,
    }
}

pub(super) static PRESETS: &[Preset] = &[
    preset("code", true, &[COMMON, CODE]),
    preset("paper", false, &[COMMON, PAPER]),
];

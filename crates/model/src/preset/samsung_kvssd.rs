//! Samsung's key-value SSD, as in the NVMeVirt paper.

use super::{
    LINUX_READ_NS, LINUX_WRITE_NS, Preset, Published, Source, Sourced, above_linux, published, v,
};
use crate::Kind;

const TABLE_2: Source = Source::Paper("Table 2, KVSSD; the program has no numbers of its own");
const SAME_AS_STORE: Source =
    Source::Assumed("unpublished: what a store takes, without the host's share");
const SAME_AS_RETRIEVE: Source =
    Source::Assumed("unpublished: what a retrieve takes, without the host's share");
const UNLIMITED: Source = Source::Assumed("unpublished: only bandwidth and units limit");

const VALUES: &[Sourced] = &[
    v(
        "arithmetic",
        "exact",
        Source::Assumed("the rules of the book"),
    ),
    v("units", "10", TABLE_2),
    above_linux("read_latency", "154us", LINUX_READ_NS, TABLE_2),
    v(
        "read_bandwidth",
        "2.6GiB/s",
        Source::Paper("Table 2, KVSSD; taken as that of all ten units together"),
    ),
    v("read_rate", "none", UNLIMITED),
    above_linux("write_latency", "56us", LINUX_WRITE_NS, TABLE_2),
    v(
        "write_bandwidth",
        "1.3GiB/s",
        Source::Paper("Table 2, KVSSD; taken as that of all ten units together"),
    ),
    v("write_rate", "none", UNLIMITED),
    v("delete_latency", "46130ns", SAME_AS_STORE),
    v("exist_latency", "147390ns", SAME_AS_RETRIEVE),
    v("list_latency", "147390ns", SAME_AS_RETRIEVE),
    v(
        "compound",
        "together",
        Source::Assumed("the parts go to units of their own; the program does one after another"),
    ),
];

const PUBLISHED: &[Published] = &[
    published(
        "eight puts of 4 KiB, one by one",
        "469 us",
        Source::Paper("its compound command"),
    ),
    published(
        "eight puts of 4 KiB in one command",
        "86 us",
        Source::Paper("its compound command"),
    ),
    published(
        "largest difference of NVMeVirt's model from it",
        "3.8 %",
        Source::Paper("figure 4"),
    ),
];

pub(super) static PRESETS: &[Preset] = &[Preset {
    name: "samsung-kvssd",
    variant: "paper",
    is_default: true,
    about: "Samsung's key-value SSD",
    kind: Kind::Kv,
    size_bytes: 1 << 40,
    size_source: Source::Assumed("not in the sources used"),
    values: &[VALUES],
    published: PUBLISHED,
}];

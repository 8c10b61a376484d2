//! Units, ranges, moments of change, and inconsistent values.

use std::collections::BTreeSet;

use super::*;
use crate::preset::preset;

fn parameters(name: &str, size: u64) -> Parameters {
    let preset = preset(name).unwrap();
    preset.parameters(size, None).unwrap()
}

fn optane() -> Parameters {
    parameters("optane-p4800x", 8 << 30)
}

fn set(name: &str, text: &str) -> Result<String, String> {
    let mut to = match name {
        "buffer" | "overprovisioning" | "policy" | "channels" | "early_completion" => {
            parameters("samsung-970-pro", 8 << 30)
        }
        _ => optane(),
    };
    let done = to.set(name, text, Moment::Creation);
    done.map(|()| to.get(name).unwrap().to_string())
        .map_err(|error| error.to_string())
}

#[test]
fn text_as_people_write_it() {
    for (name, text, shown) in [
        ("read_latency", "8us", "8us"),
        ("read_latency", "8000ns", "8us"),
        ("read_latency", "5.39us", "5390ns"),
        ("read_latency", "0.5 ms", "500us"),
        ("read_latency", "1s", "1s"),
        ("read_latency", "12\u{b5}s", "12us"),
        ("read_bandwidth", "3360MiB/s", "3360MiB/s"),
        ("read_bandwidth", "2400MB/s", "2400MB/s"),
        // 2.4 * 2^30 = 2576980377.6
        ("read_bandwidth", "2.4GiB/s", "2576980377B/s"),
        ("read_bandwidth", "none", "none"),
        ("read_rate", "550K/s", "550K/s"),
        ("read_rate", "550000/s", "550K/s"),
        ("read_rate", "1_234_567/s", "1234567/s"),
        ("read_rate", "2M/s", "2M/s"),
        ("read_rate", "none", "none"),
        ("overprovisioning", "7%", "7%"),
        ("overprovisioning", "6.5%", "6.5%"),
        ("buffer", "4MiB", "4MiB"),
        ("buffer", "1MB", "1MB"),
        ("buffer", "0B", "0B"),
        ("channels", "8", "8"),
        ("early_completion", "false", "false"),
        ("policy", "cost_benefit", "cost_benefit"),
        ("arithmetic", "code", "code"),
    ] {
        assert_eq!(set(name, text).as_deref(), Ok(shown), "{name} {text}");
    }
}

#[test]
fn text_that_says_nothing_is_told_what_to_write() {
    for (name, text, says) in [
        ("read_latency", "8", "as in 8us"),
        ("read_latency", "8KiB", "as in 8us"),
        ("read_latency", "", "no number"),
        ("read_latency", "-8us", "no number"),
        ("read_latency", "1.2.3us", "no number"),
        ("read_latency", "1.us", "no number"),
        ("read_latency", "0.5ns", "no whole number"),
        ("read_latency", "99999999999999999999s", "too much"),
        ("read_latency", "20000000000s", "too much"),
        ("read_latency", "11s", "write 1ns to 10s"),
        ("read_latency", "0ns", "write 1ns to 10s"),
        ("read_bandwidth", "2400MB", "as in 2400MB/s"),
        ("read_bandwidth", "2PiB/s", "as in 2400MB/s"),
        ("read_bandwidth", "2TiB/s", "write none, or at most 1TiB/s"),
        ("read_rate", "550K", "as in 550K/s"),
        ("read_rate", "0.5/s", "no whole number"),
        ("overprovisioning", "7", "as in 7%"),
        ("overprovisioning", "6.55%", "no whole number"),
        ("overprovisioning", "1001%", "write 0% to 1000%"),
        ("channels", "0", "write 1 to 1024"),
        ("channels", "eight", "no number"),
        ("early_completion", "yes", "write true or false"),
        ("policy", "best", "write greedy or cost_benefit or fifo"),
        (
            "read_latncy",
            "8us",
            "there is no parameter `read_latncy` for a model of kind nvm",
        ),
    ] {
        let error = set(name, text).unwrap_err();
        assert!(error.contains(says), "{name} = {text}: {error}");
    }
}

#[test]
fn every_value_of_every_preset_reads_back_as_itself() {
    for preset in crate::preset::presets() {
        let from = preset.parameters(64 << 30, None).unwrap();
        let mut to = match preset.parameters(64 << 30, None).unwrap() {
            Parameters::Nvm(_) => parameters("intel-p3600", 64 << 30),
            other => other,
        };
        for parameter in preset.kind.parameters() {
            let value = from.get(parameter.name).unwrap();
            to.set(parameter.name, &value.to_string(), Moment::Creation)
                .unwrap();
            assert_eq!(to.get(parameter.name).unwrap(), value);
        }
        assert_eq!(to, from, "{}", preset.full_name());
    }
}

#[test]
fn any_number_reads_back_as_itself() {
    let units = [
        Unit::Time,
        Unit::Bandwidth,
        Unit::Rate,
        Unit::Size,
        Unit::Count,
        Unit::Percent,
    ];
    let mut raw = 1u64;
    for step in 0..2000u64 {
        raw = raw
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(step);
        for unit in units {
            for raw in [raw >> 20, raw >> 33, raw >> 50, 1 << (step % 63), step] {
                let value = Value { unit, raw };
                assert_eq!(unit.parse(&value.to_string()), Ok(value), "{value}");
            }
        }
    }
}

#[test]
fn names_are_unique_and_every_field_has_one() {
    for kind in Kind::ALL {
        let names: BTreeSet<&str> = kind.parameters().map(|p| p.name).collect();
        assert_eq!(names.len(), kind.parameters().count());
    }
    // Every parameter has a place of its own: changing one changes that one only.
    for name in [
        "optane-p4800x",
        "samsung-kvssd",
        "samsung-970-pro",
        "wd-zn540",
    ] {
        let before = parameters(name, 64 << 30);
        for parameter in before.kind().parameters() {
            let old = parameter.get(&before).raw;
            let raw = if old == parameter.max {
                parameter.min
            } else {
                parameter.max
            };
            let mut after = before.clone();
            let unit = parameter.unit;
            let value = Value { unit, raw }.to_string();
            after.set(parameter.name, &value, Moment::Creation).unwrap();
            assert_ne!(after, before, "{}", parameter.name);
            let changed = before.kind().parameters();
            let changed: Vec<_> = changed
                .filter(|p| p.get(&after) != p.get(&before))
                .collect();
            assert_eq!(changed.len(), 1, "{}", parameter.name);
        }
    }
}

#[test]
fn a_refused_change_says_when_it_may_be_made() {
    let mut flash = parameters("samsung-970-pro", 8 << 30);
    let before = flash.clone();
    let error = flash.set("block", "8MiB", Moment::Reset).unwrap_err();
    assert_eq!(
        error.to_string(),
        "block is a fixed parameter: it is fixed when the drive is created; create another one"
    );
    let error = flash.set("buffer", "8MiB", Moment::Running).unwrap_err();
    assert!(error.to_string().starts_with("buffer is a reset parameter"));
    assert_eq!(flash, before);
    flash.set("buffer", "8MiB", Moment::Reset).unwrap();
    flash.set("program", "200us", Moment::Running).unwrap();
    // what is so already is no change
    flash.set("block", "3840KiB", Moment::Running).unwrap();
    flash.set("block", "8MiB", Moment::Creation).unwrap();
}

fn unfit(name: &str, size: u64, changes: &[(&str, &str)]) -> String {
    let mut parameters = parameters(name, size);
    for (name, text) in changes {
        parameters.set(name, text, Moment::Creation).unwrap();
    }
    parameters.check().unwrap_err().to_string()
}

#[test]
fn values_that_do_not_fit_each_other() {
    let pro = "samsung-970-pro";
    let zones = "wd-zn540";
    let gib = 1 << 30;
    for (name, size, changes, says) in [
        (
            "optane-p4800x",
            8 * gib,
            &[("read_latency", "1us")][..],
            // 1 / 550 K = 1818.2 ns
            "read_latency = \"1000ns\" is shorter than the 1819ns",
        ),
        (
            "samsung-kvssd",
            8 * gib,
            &[("write_bandwidth", "100MB/s")],
            // ten units: 4096 B at 10 MB/s
            "shorter than the 409600ns",
        ),
        (
            pro,
            8 * gib,
            &[("partitions", "3")],
            "no multiple of partitions = 3",
        ),
        (
            pro,
            8 * gib,
            &[("oneshot", "48KiB")],
            "oneshot = \"48KiB\": write a multiple of flash_page, 32KiB",
        ),
        (pro, 8 * gib, &[("flash_page", "6KiB")], "multiple of 4KiB"),
        (
            pro,
            8 * gib,
            &[("block", "3850KiB")],
            "multiple of oneshot, 32KiB",
        ),
        (
            pro,
            8 * gib,
            &[("buffer", "96KiB")],
            "write at least 128KiB",
        ),
        (
            pro,
            8 * gib,
            &[("overprovisioning", "0%")],
            "no spare block",
        ),
        (
            pro,
            8 * gib,
            &[("arithmetic", "code"), ("link_bandwidth", "8GiB/s")],
            "write 32MB/s to 7782MiB/s, or none",
        ),
        (
            zones,
            8 * gib,
            &[("arithmetic", "code"), ("channel_bandwidth", "31MB/s")],
            "channel_bandwidth = \"31000000B/s\": with arithmetic = \"code\"",
        ),
        (
            pro,
            8 * gib,
            &[("channels", "1024"), ("dies_per_channel", "128")],
            "at most 65536 dies",
        ),
        (pro, gib, &[], "write a size of at least "),
        (zones, 3 * gib, &[], "no whole number of zones"),
        (zones, gib, &[], "no whole number of zones"),
        (
            zones,
            8 * gib,
            &[("zone_capacity", "3GiB")],
            "more than zone_size",
        ),
        (
            zones,
            8 * gib,
            &[("zone_capacity", "1GiB")],
            "zone_capacity = \"1GiB\": write a multiple of oneshot, 96KiB",
        ),
        (
            zones,
            8 * gib,
            &[("dies_per_zone", "33")],
            "the drive has 32 dies",
        ),
        (
            zones,
            8 * gib,
            &[("zone_buffer", "64KiB")],
            "zone_buffer = \"64KiB\" does not hold one oneshot",
        ),
        (
            zones,
            8 * gib,
            &[("zone_buffer", "0B")],
            "buffer = \"0B\" does not hold one oneshot",
        ),
        (
            pro,
            8 * gib,
            &[("slc_cache", "1GiB")],
            "slc_cache = \"1GiB\" with slc_program = \"0ns\" would program in no time",
        ),
    ] {
        let error = unfit(name, size, changes);
        assert!(error.contains(says), "{changes:?}: {error}");
    }
}

#[test]
fn the_least_size_that_an_error_names_will_do() {
    for changes in [
        &[][..],
        &[("overprovisioning", "28%")],
        &[("overprovisioning", "0.1%")],
        &[("partitions", "1")],
    ] {
        let error = unfit("samsung-970-pro", 1 << 20, changes);
        let (_, least) = error.rsplit_once("at least ").unwrap();
        let least = Unit::Size.parse(least).unwrap().raw;
        let with = |size| {
            let mut parameters = parameters("samsung-970-pro", size);
            for (name, text) in changes {
                parameters.set(name, text, Moment::Creation).unwrap();
            }
            parameters.check()
        };
        with(least).unwrap();
        with(least + (1 << 30)).unwrap();
        // A line that is not asked for in full is rounded up, so that some smaller sizes do, too.
        assert!(with(least - least / 4).is_err(), "{error}");
    }
}

/// Worked by hand from the book's formulas.
#[test]
fn the_shape_of_a_drive() {
    let Parameters::Flash(flash) = parameters("samsung-970-pro", 8 << 30) else {
        panic!("another kind");
    };
    let shape = Shape::of(&flash).unwrap();
    assert_eq!(shape.dies, 16);
    assert_eq!(shape.dies_per_partition, 4);
    assert_eq!(shape.pages_per_block, 960);
    assert_eq!(shape.pages_per_line, 3840);
    assert_eq!(shape.logical_pages, 524_288);
    // 524288 * 1.07 / 3840 = 146.09
    assert_eq!(shape.lines, 147);
    assert_eq!(shape.lines_asked_thousandths, 146_090);
}

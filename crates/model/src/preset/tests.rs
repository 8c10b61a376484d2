//! Presets are complete, have sources, and agree with the publications.

use std::collections::BTreeSet;

use super::*;

fn value(name: &str, parameter: &str) -> String {
    let preset = preset(name).unwrap();
    let parameters = preset.parameters(64 << 30, None).unwrap();
    parameters.get(parameter).unwrap().to_string()
}

/// Keys that presets may leave out: the part is off.
const EXTRAS: &[&str] = &[
    "background_below",
    "background_idle",
    "seed",
    "read_jitter",
    "program_jitter",
    "erase_jitter",
    "read_retry",
];

#[test]
fn every_parameter_is_given_once_with_a_source() {
    for preset in presets() {
        let given: Vec<&str> = preset
            .values
            .iter()
            .copied()
            .flatten()
            .map(|v| v.name)
            .collect();
        let unique: BTreeSet<&str> = given.iter().copied().collect();
        let all = preset.kind.parameters().filter(|p| !p.is_extra());
        let all: BTreeSet<&str> = all.map(|p| p.name).collect();
        assert_eq!(given.len(), unique.len(), "{}", preset.full_name());
        assert!(unique.is_subset(&all), "{}", preset.full_name());
        let extras = match blank(preset.kind, 1) {
            Parameters::Flash(_) | Parameters::Zones(_) => EXTRAS,
            Parameters::Nvm(_) | Parameters::Kv(_) => &[],
        };
        for name in all.difference(&unique) {
            assert!(extras.contains(name), "{}: {name}", preset.full_name());
        }
        for value in preset.values() {
            assert!(!value.source.text().is_empty(), "{}", value.name);
        }
        assert!(!preset.published.is_empty(), "{}", preset.full_name());
    }
}

#[test]
fn a_bare_name_is_one_of_its_variants() {
    for name in [
        "optane-p4800x",
        "samsung-970-pro",
        "intel-p3600",
        "zns-prototype",
        "wd-zn540",
        "samsung-kvssd",
    ] {
        let bare = preset(name).unwrap();
        let same = presets().filter(|p| p.name == name);
        assert_eq!(same.filter(|p| p.is_default).count(), 1, "{name}");
        if !bare.variant.is_empty() {
            assert_eq!(
                preset(&bare.full_name()).unwrap().full_name(),
                bare.full_name()
            );
        }
    }
    for wrong in [
        "",
        "optane",
        "optane-p4800x@",
        "intel-p3600@",
        "intel-p3600@paper",
        "@code",
    ] {
        assert!(preset(wrong).is_none(), "{wrong}");
    }
}

#[test]
fn a_model_can_be_made_of_each_at_its_real_size_and_at_64_gib() {
    for preset in presets() {
        for size in [preset.size_bytes, 64 << 30] {
            let parameters = preset.parameters(size, None).unwrap();
            parameters.check().unwrap();
        }
    }
}

/// The figures once more, typed from the paper's table and the program's configuration.
#[test]
fn figures_that_were_published() {
    for (preset, parameter, shown) in [
        ("samsung-970-pro", "read_cell0", "30013ns"),
        ("samsung-970-pro", "read_cell1", "42013ns"),
        ("samsung-970-pro@code", "link_bandwidth", "3360MiB/s"),
        ("samsung-970-pro@paper", "read_cell1", "36us"),
        ("samsung-970-pro@paper", "program", "185us"),
        // 3.6 * 2^30 = 3865470566.4
        ("samsung-970-pro@paper", "link_bandwidth", "3865470566B/s"),
        ("zns-prototype", "oneshot", "192KiB"),
        ("zns-prototype", "zone_capacity", "96MiB"),
        ("zns-prototype@code", "oneshot", "128KiB"),
        ("zns-prototype@code", "zone_size", "32MiB"),
        ("zns-prototype@code", "program", "1913640ns"),
        ("wd-zn540", "zone_buffer", "960KiB"),
        ("wd-zn540", "zone_capacity", "1077MiB"),
        ("samsung-kvssd", "units", "10"),
        ("optane-p4800x", "read_rate", "550K/s"),
        ("optane-p4800x@code", "read_bandwidth", "2400MiB/s"),
        ("intel-p3600", "write_rate", "56K/s"),
    ] {
        assert_eq!(value(preset, parameter), shown, "{preset} {parameter}");
    }
    for preset in presets().filter(|p| matches!(p.kind, Kind::Flash | Kind::Zns)) {
        let erase = value(&preset.full_name(), "erase");
        assert!(["3ms", "4500us"].contains(&erase.as_str()), "{erase}");
    }
}

/// The time of Linux is not the drive's: 12 us are 5.39 us at the device.
#[test]
fn the_hosts_share_is_taken_out_of_latencies() {
    assert_eq!(value("optane-p4800x", "read_latency"), "5390ns");
    assert_eq!(value("optane-p4800x", "write_latency"), "4130ns");
    assert_eq!(value("samsung-kvssd", "read_latency"), "147390ns");
    assert_eq!(value("samsung-kvssd", "write_latency"), "46130ns");
    assert_eq!(value("intel-p3600", "read_latency"), "20us");
    let optane = preset("optane-p4800x").unwrap();
    let latency = |by| {
        let parameters = optane.parameters(1 << 30, Some(by)).unwrap();
        parameters.get("read_latency").unwrap().to_string()
    };
    assert_eq!(latency(MeasuredBy::Device), "12us");
    assert_eq!(latency(MeasuredBy::Linux), "5390ns");
    let mut all = optane.parameters(1 << 30, None).unwrap();
    let error = all.subtract_host("read_latency", 5390).unwrap_err();
    assert!(error.to_string().contains("nothing is left"), "{error}");
    assert_eq!(MeasuredBy::Linux.host_ns("read_latency"), Some(6_610));
    assert_eq!(MeasuredBy::Linux.host_ns("write_latency"), Some(9_870));
    assert_eq!(MeasuredBy::Device.host_ns("write_latency"), Some(0));
    assert_eq!(MeasuredBy::Linux.host_ns("program"), None);
}

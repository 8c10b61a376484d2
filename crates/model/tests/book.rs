//! The book's pages of parameters and presets are what the code says. Where they are not, the right page is written beside the build
//! and the test says where.

use std::fmt::Write as _;
use std::path::Path;

use model::{
    Kind, Parameters,
    preset::{Preset, Source, Sourced, presets},
};

fn compare(name: &str, right: &str) {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/src/reference");
    let page = std::fs::read_to_string(book.join(name)).unwrap_or_default();
    if page != right {
        let beside = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&beside, right).expect("the folder of the build can be written");
        panic!(
            "book/src/reference/{name} is not what the code says: copy {} over it",
            beside.display()
        );
    }
}

#[test]
fn the_page_of_parameters() {
    let mut page = String::from(
        "# Parameters of timing models\n\n\
         What `[media.timing]` and `nvmirage explain --set` take beside `preset`, by the kind of the preset's model. What each means, to the nanosecond, is\n\
         defined in [Timing models, exactly](../internals/timing-models.md). This page is written by a test of the code.\n\n\
         Values are text in quotes; whole numbers and booleans may go without.\n\n\
         | unit | as in |\n|---|---|\n\
         | time | `\"8us\"`, `\"350ns\"`, `\"1.5ms\"`, `\"1s\"` |\n\
         | bandwidth | `\"2400MB/s\"`, `\"3360MiB/s\"`, `\"none\"`: not limited. A part of a byte per second is dropped |\n\
         | rate | `\"550K/s\"`, `\"1M/s\"`, `\"1234/s\"`, `\"none\"`: not limited |\n\
         | size | `\"4KiB\"`, `\"1MiB\"`, `\"1GB\"` |\n\
         | percent | `\"7%\"`, `\"6.5%\"` |\n\
         | count | `8` |\n\n\
         A parameter that is *live* may change at any time: commands that arrive from then on go by it. One that is *reset* changes when\n\
         the controller is reset and nothing is under way, one that is *fixed* only when the drive is made.\n",
    );
    for kind in Kind::ALL {
        let _ = write!(
            page,
            "\n## `{}`\n\n| parameter | unit | range | change | |\n|---|---|---|---|---|\n",
            kind.name()
        );
        for parameter in kind.parameters() {
            let _ = writeln!(
                page,
                "| `{}` | {} | {} | {} | {} |",
                parameter.name,
                parameter.unit.name(),
                parameter.range(),
                parameter.change.name(),
                parameter.about
            );
        }
    }
    compare("parameters.md", &page);
}

#[test]
fn the_page_of_presets() {
    let mut page = String::from(
        "# Presets\n\n\
         Drives that exist, as parameters of a model: `preset = \"NAME\"` in [`[media.timing]`](configuration.md#mediatiming), `nvmirage explain NAME`.\n\
         Where the values of the NVMeVirt paper (USENIX FAST 2023) and of its published program differ, `NAME@paper` and `NAME@code` are\n\
         both there, and the bare name is one of them. This page is written by a test of the code.\n\n\
         Each value says where it is from: *paper* and *code* are NVMeVirt's, *sheet* a document of who makes drives or chips, *measured* somebody\n\
         else's measurement, *derived* follows from other values, *assumed* means that nobody published it. Latencies that were measured above\n\
         Linux are shown less what the authors' script takes as Linux's share.\n",
    );
    for preset in presets() {
        section(&mut page, preset);
    }
    compare("presets.md", &page);
}

fn section(page: &mut String, preset: &Preset) {
    let default = presets().find(|p| p.name == preset.name && p.is_default);
    let default = default.filter(|_| !preset.is_default);
    let heading = match preset.is_default {
        true => preset.name.to_owned(),
        false => preset.full_name(),
    };
    let _ = write!(page, "\n## `{heading}`\n\n{}. ", preset.about);
    match (default, preset.variant) {
        (None, "") => {}
        (None, _) => {
            let _ = write!(page, "The same as `{}`. ", preset.full_name());
        }
        (Some(default), _) => {
            let _ = write!(page, "What differs from `{}`:", default.full_name());
        }
    }
    if default.is_none() {
        let _ = write!(
            page,
            "Kind `{}`; the real drive has {} bytes ({}).",
            preset.kind.name(),
            preset.size_bytes,
            source(preset.size_source)
        );
    }
    page.push_str("\n\n| parameter | value | source |\n|---|---|---|\n");
    let parameters = preset
        .parameters(preset.size_bytes, None)
        .expect("a preset has the parameters of its kind");
    for value in preset.values() {
        let same = |other: Sourced| (other.name, other.value) == (value.name, value.value);
        if default.is_some_and(|default| default.values().any(same)) {
            continue;
        }
        row(page, &parameters, &value);
    }
    if default.is_some() {
        return;
    }
    page.push_str(
        "\nPublished of the real drive, for comparison:\n\n| | figure | source |\n|---|---|---|\n",
    );
    for figure in preset.published {
        let _ = writeln!(
            page,
            "| {} | {} | {} |",
            figure.what,
            figure.figure,
            source(figure.source)
        );
    }
}

fn row(page: &mut String, parameters: &Parameters, value: &Sourced) {
    let shown = parameters
        .get(value.name)
        .expect("a preset has the parameters of its kind");
    let host = match value.host_ns {
        0 => String::new(),
        host => format!("; {} less {host} ns of Linux", value.value),
    };
    let _ = writeln!(
        page,
        "| `{}` | {shown} | {}{host} |",
        value.name,
        source(value.source)
    );
}

fn source(source: Source) -> String {
    format!("*{}*: {}", source.word(), source.text())
}

//! Options of `create`, one for each key of an object.
//!
//! The table of keys (`api::config::object`) says everything: an option has the key's name, with
//! `-` for `_`, its values and its description; [`Line`] adapts what a command line does in another
//! way. Only keys that are given are sent, so the server's defaults apply.

use std::collections::HashSet;
use std::marker::PhantomData;

use api::config::object::{Key, Names, Object, Shape};
use api::config::tenant::Tenant;
use api::config::trace::Trace;
use api::config::{Controller, MediumKeys, Namespace, Timing};
use clap::builder::{PossibleValuesParser, Resettable, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use machine::files::read_text;
use serde_json::{Map, Value};

use super::live;

/// Object with options.
pub(super) trait Line: Object {
    /// Changes the option of a key.
    fn adapt(_: &Key, option: Arg) -> Arg {
        option
    }

    /// Places keys that several tables have, and that have one option.
    fn place(_: &mut Map<String, Value>) {}
}

impl Line for Controller {
    fn adapt(key: &Key, option: Arg) -> Arg {
        match key.name {
            "allow_anonymous" => option.help("Serve an address that other machines reach, although not every NVMe/TCP host or NBD client is authenticated. Only data of hosts with a `tls_key`, and of NBD clients with TLS, is encrypted. Default: false"),
            _ => option,
        }
    }

    /// A key of both `tcp` and `nbd` is in the table of the protocol in `listen`.
    fn place(all: &mut Map<String, Value>) {
        let listen = all.get("listen").and_then(Value::as_str);
        let is_nbd = listen.is_some_and(|listen| listen.starts_with("nbd:"));
        let other = if is_nbd { "tcp" } else { "nbd" };
        if let Some(Value::Object(table)) = all.get_mut(other) {
            table.remove("allow_anonymous");
            if table.is_empty() {
                all.remove(other);
            }
        }
    }
}
impl Line for Namespace {}
impl Line for Tenant {}

impl Line for MediumKeys {
    fn adapt(key: &Key, option: Arg) -> Arg {
        match key.name {
            "timing" => option.value_parser(|text: &str| {
                let timing = Timing::parse(text, read_text)?;
                let timing = timing.absolute(|path| std::path::absolute(path));
                let timing = timing.map_err(|error| error.to_string())?;
                serde_json::to_value(timing).map_err(|error| error.to_string())
            }),
            _ => option,
        }
    }
}

impl Line for Trace {
    fn adapt(key: &Key, option: Arg) -> Arg {
        match key.name {
            "controller" => option.long(Resettable::Reset),
            "name" => {
                let help = "Name of the trace. Default: the controller's name";
                option.long("name").required(false).help(help)
            }
            "max_time" => option.visible_alias("for"),
            _ => option,
        }
    }
}

/// The keys of a `T` that the command line gives.
#[derive(Debug)]
pub(super) struct Options<T> {
    pub(super) given: Map<String, Value>,
    object: PhantomData<fn() -> T>,
}

impl<T: Line> clap::Args for Options<T> {
    fn augment_args(command: Command) -> Command {
        command.args(options(T::KEYS).map(|(key, table)| T::adapt(key, argument(key, table))))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Line> clap::FromArgMatches for Options<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Options {
            given: placed::<T>(matches),
            object: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.given.extend(placed::<T>(matches));
        Ok(())
    }
}

/// Keys with an option, and the nested table that they are of: its keys take its place. A key of
/// several tables has one option.
fn options(keys: &'static [Key]) -> impl Iterator<Item = (&'static Key, &'static [Key])> {
    let mut seen = HashSet::new();
    let all = keys.iter().flat_map(|key| {
        let of_table = match key.table {
            [] => std::slice::from_ref(key),
            table => table,
        };
        of_table.iter().map(|one| (one, key.table))
    });
    all.filter(move |(key, _)| seen.insert(key.name))
}

/// The keys that the command line gives, each in its table.
fn placed<T: Line>(matches: &ArgMatches) -> Map<String, Value> {
    let mut all = given(T::KEYS, matches);
    T::place(&mut all);
    all
}

/// The option of a key. A key that its table requires is required where another one of that is
/// given.
fn argument(key: &'static Key, table: &'static [Key]) -> Arg {
    let text = key.text();
    let help = text.strip_suffix('.').unwrap_or(&text).to_owned();
    let value = match key.value {
        "" => key.name.to_uppercase(),
        value => value.to_owned(),
    };
    let arg = Arg::new(key.name).help(help);
    let arg = if table.is_empty() {
        arg.required(key.default.is_none())
    } else {
        let needed = table.iter().filter(|other| other.default.is_none());
        let needed = needed.filter(|other| other.name != key.name);
        needed.fold(arg, |arg, other| arg.requires(other.name))
    };
    let arg = match key.name {
        "name" => arg,
        name => arg.long(name.replace('_', "-")),
    };
    let read = move |text: &str| key.parse(text);
    match (key.shape)() {
        Shape::Flag if is_off(key) => arg.action(ArgAction::SetTrue),
        Shape::Flag => {
            let words = PossibleValuesParser::new(["true", "false"]);
            let parser = words.try_map(move |word| key.parse(&word));
            arg.value_name("BOOL").value_parser(parser)
        }
        Shape::Words(words) => {
            let words = PossibleValuesParser::new(words.iter().copied());
            arg.value_name(value).value_parser(words.map(Value::from))
        }
        Shape::List => {
            let arg = arg.action(ArgAction::Append).value_parser(read);
            completed(arg.value_name(value), key.names)
        }
        Shape::Whole | Shape::Text | Shape::Table => {
            completed(arg.value_name(value).value_parser(read), key.names)
        }
    }
}

/// Whether the key is a flag that is not set where it is left out.
fn is_off(key: &Key) -> bool {
    key.default.is_some_and(|of| of() == Value::Bool(false))
}

fn completed(arg: Arg, names: Names) -> Arg {
    match names {
        Names::None => arg,
        Names::Files => arg.value_hint(ValueHint::AnyPath),
        Names::Media => arg.add(live::media()),
        Names::Namespaces => arg.add(live::namespaces()),
        Names::Tenants => arg.add(live::tenants()),
        Names::Controllers => arg.add(live::controllers()),
        Names::Reactors => arg.add(live::reactors()),
    }
}

fn given(keys: &'static [Key], matches: &ArgMatches) -> Map<String, Value> {
    let mut all = Map::new();
    for key in keys {
        let value = match (key.shape)() {
            _ if !key.table.is_empty() => {
                let table = given(key.table, matches);
                (!table.is_empty()).then_some(Value::Object(table))
            }
            Shape::Flag if is_off(key) => matches.get_flag(key.name).then_some(Value::Bool(true)),
            Shape::List => matches.get_many::<Value>(key.name).map(|lists| {
                let items = lists.filter_map(Value::as_array).flatten();
                Value::Array(items.cloned().collect())
            }),
            _ => matches.get_one::<Value>(key.name).cloned(),
        };
        if let Some(value) = value {
            all.insert(key.name.to_owned(), value);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};
    use serde_json::json;

    use super::*;

    fn read<T: Line>(args: &[&str]) -> Result<Value, String> {
        let command = Options::<T>::augment_args(Command::new("create"));
        let matches = command.try_get_matches_from([&["create"], args].concat());
        let matches = matches.map_err(|error| error.to_string())?;
        let options = Options::<T>::from_arg_matches(&matches);
        let options = options.map_err(|error| error.to_string())?;
        Ok(Value::Object(options.given))
    }

    const LEAST: [&str; 3] = ["c", "--listen", "vfio-user:/c"];

    #[test]
    fn what_is_given_is_sent_and_nothing_else() {
        let least = read::<Controller>(&LEAST);
        assert_eq!(least, Ok(json!({"name": "c", "listen": "vfio-user:/c"})));
        let some = [
            "--intx",
            "--msix",
            "false",
            "--page-cache",
            "--vendor-id",
            "0x1b36",
            "--namespaces",
            "a,1",
            "--namespaces",
            "b",
            "--reactors",
            "0,1",
            "--doorbells",
            "mapped",
        ];
        let some = read::<Controller>(&[&LEAST[..], &some].concat()).unwrap();
        let wanted = json!({
            "name": "c",
            "listen": "vfio-user:/c",
            "intx": true,
            "msix": false,
            "fuse": {"page_cache": true},
            "vendor_id": 0x1b36,
            "namespaces": ["a", "1", "b"],
            "reactors": [0, 1],
            "doorbells": "mapped",
        });
        assert_eq!(some, wanted);
    }

    #[test]
    fn consent_is_for_the_protocol_of_the_address() {
        let read = |listen, more: &[&str]| {
            let all = [&["c", "--listen", listen, "--allow-anonymous"], more].concat();
            read::<Controller>(&all).unwrap()
        };
        let consent = json!({"allow_anonymous": true});
        let tcp = "nvme-tcp:0.0.0.0:4420";
        let wanted = json!({"name": "c", "listen": tcp, "tcp": consent});
        assert_eq!(read(tcp, &[]), wanted);
        let nbd = "nbd:0.0.0.0:10809";
        let wanted = json!({"name": "c", "listen": nbd, "nbd": consent});
        assert_eq!(read(nbd, &[]), wanted);
        let both = json!({"name": "c", "listen": nbd, "tcp": {"hosts": 2}, "nbd": {"clients": 4, "allow_anonymous": true}});
        assert_eq!(read(nbd, &["--hosts", "2", "--clients", "4"]), both);
    }

    #[test]
    fn a_medium_is_sent_as_it_is_written() {
        let some = [
            "d",
            "--kind",
            "keyvalue",
            "--size",
            "1GiB",
            "--max-keys",
            "7",
            "--register-memory",
            "true",
            "--admin-allow",
            "get-log-page:0xc0,get-log-page:0xc2:512",
            "--timing",
            "samsung-kvssd",
        ];
        let wanted = json!({
            "name": "d",
            "kind": "keyvalue",
            "size": "1GiB",
            "max_keys": 7,
            "register_memory": true,
            "admin_allow": ["get-log-page:0xc0", "get-log-page:0xc2:512"],
            "timing": {"preset": "samsung-kvssd"},
        });
        assert_eq!(read::<MediumKeys>(&some), Ok(wanted));
        let zones = ["z", "--kind", "ram", "--size", "1GiB", "--max-open", "8"];
        let error = read::<MediumKeys>(&zones).unwrap_err();
        assert!(error.contains("--zone-size <SIZE>"), "{error}");
        let zones = [&zones[..], &["--zone-size", "16MiB"]].concat();
        let wanted = json!({
            "name": "z",
            "kind": "ram",
            "size": "1GiB",
            "zoned": {"zone_size": "16MiB", "max_open": 8},
        });
        assert_eq!(read::<MediumKeys>(&zones), Ok(wanted));
        for (option, value, says) in [
            ("--kind", "rma", "ram"),
            ("--direct", "maybe", "possible values: auto, on, off"),
            ("--max-keys", "many", "1 to 4294967294"),
            ("--timing", "samsung-kvssd,reed", "write NAME=VALUE"),
            ("--zoned", "1GiB", "unexpected argument"),
        ] {
            let error = read::<MediumKeys>(&["d", option, value]).unwrap_err();
            assert!(error.contains(says), "{option} {value}: {error}");
        }
    }

    #[test]
    fn a_trace_is_of_the_controller_that_is_named_first() {
        let some = ["c", "--file", "f", "--for", "1s"];
        let wanted = json!({"controller": "c", "file": "f", "max_time": "1s"});
        assert_eq!(read::<Trace>(&some), Ok(wanted));
        let error = read::<Trace>(&["c"]).unwrap_err();
        assert!(error.contains("--file"), "{error}");
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for (option, value, says) in [
            ("--queues", "many", "1 to 64"),
            ("--vendor-id", "0x12345", "1 to 0xfffe"),
            ("--doorbells", "mapd", "mapped"),
            ("--max-transfer", "1", "has no unit"),
            ("--msix", "yes", "true"),
        ] {
            let error = read::<Controller>(&[&LEAST[..], &[option, value]].concat());
            let error = error.unwrap_err();
            assert!(error.contains(says), "{option} {value}: {error}");
        }
        let missing = read::<Namespace>(&["n"]).unwrap_err();
        assert!(missing.contains("--media"), "{missing}");
    }
}

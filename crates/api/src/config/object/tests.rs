//! An object of every kind of row.

use serde_json::json;

use super::{Bounds, Key, Listed, Object, Shape, Short, When, object};
use crate::config::tenant::Tenant;
use crate::config::{
    Config, Controller, Doorbells, Listen, MediumKeys, Namespace, Reactor, Size, SocketMode,
};

object! {
    /// Object.
    #[derive(Eq)]
    struct Thing(ThingKeys, "thing") {
        /// Name of the
        /// thing.
        name: String => Fixed;
        /// Optional.
        label: Option<String> | unset => Live;
        /// With a default.
        size: u16 = 7 => Step;
        /// With a type's default.
        mode: SocketMode | unset => Restart;
    }
}

impl Listed for Thing {}

object! {
    /// Object with a short form, and with a field that is no key.
    #[derive(Default, Eq)]
    struct Place(PlaceKeys, "place", short) {
        /// Where.
        path: String | unset => Fixed;
        /// Deep.
        depth: u16 | unset => Fixed;
    }
    beside {
        /// Seen.
        seen: bool,
    }
}

impl Listed for Place {}

impl Short for Place {
    fn to_text(&self) -> Option<String> {
        (self.depth == 0).then(|| self.path.clone())
    }

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("a place has a path".to_owned()),
            path => Ok(Place {
                path: path.to_owned(),
                ..Place::default()
            }),
        }
    }

    const FORMS: &'static str = "a path, or a table";
}

#[test]
fn a_short_form_is_a_text() {
    let read = |text: &str| serde_json::from_str::<Place>(text).map_err(|e| e.to_string());
    let short = read("\"/a\"").unwrap();
    assert_eq!((short.path.as_str(), short.depth), ("/a", 0));
    assert_eq!(serde_json::to_string(&short).unwrap(), "\"/a\"");
    let table = r#"{"path":"/a","depth":2}"#;
    let mut whole = read(table).unwrap();
    whole.seen = true;
    assert_eq!(serde_json::to_string(&whole).unwrap(), table);
    assert!(read("\"\"").unwrap_err().contains("a place has a path"));
    assert!(read("7").unwrap_err().contains("a path, or a table"));
    let unknown = read(r#"{"path": "/a", "seen": true}"#).unwrap_err();
    assert!(
        unknown.contains("unknown field `seen`, expected `path` or `depth`"),
        "{unknown}"
    );
}

fn thing(text: &str) -> Result<Thing, String> {
    let read = toml::from_str(text);
    read.map_err(|error: toml::de::Error| error.to_string())
}

#[test]
fn rows_are_keys() {
    let keys = Thing::KEYS;
    let names: Vec<&str> = keys.iter().map(|key| key.name).collect();
    assert_eq!(names, ["name", "label", "size", "mode"]);
    assert_eq!(keys[0].about, " Name of the thing.");
    let when = [When::Fixed, When::Live, When::Step, When::Restart];
    assert!(keys.iter().map(|key| key.when).eq(when));
    let defaults: Vec<_> = keys.iter().map(|key| key.default.map(|of| of())).collect();
    assert_eq!(
        defaults,
        [None, Some(json!(null)), Some(json!(7)), Some(json!("0600"))]
    );
}

#[test]
fn what_is_left_out_has_its_default_and_is_written_as_before() {
    let least = thing("name = \"a\"").unwrap();
    assert_eq!((least.size, least.mode.bits()), (7, 0o600));
    assert_eq!(toml::to_string(&least).unwrap(), "name = \"a\"\nsize = 7\n");
    let most = "name = \"a\"\nlabel = \"b\"\nsize = 8\nmode = \"0660\"\n";
    assert_eq!(toml::to_string(&thing(most).unwrap()).unwrap(), most);
}

#[test]
fn errors_have_a_line_and_the_known_keys() {
    #[derive(Debug, serde::Deserialize)]
    struct Things {
        thing: Vec<Thing>,
    }
    let one = "[[thing]]\nname = \"a\"\n";
    assert_eq!(
        toml::from_str::<Things>(one).map(|read| read.thing.len()),
        Ok(1)
    );
    let error = |text: &str| {
        let read = toml::from_str::<Things>(text);
        read.unwrap_err().to_string()
    };
    let missing = error("[[thing]]\nname = \"a\"\n[[thing]]\nsize = 1\n");
    assert!(
        missing.contains("line 3") && missing.contains("missing field `name`"),
        "{missing}"
    );
    let unknown = error("[[thing]]\nname = \"a\"\n[[thing]]\nname = \"b\"\nsise = 1\n");
    assert!(unknown.contains("line 5"), "{unknown}");
    assert!(
        unknown.contains("expected one of `name`, `label`, `size`, `mode`"),
        "{unknown}"
    );
    let wrong = error("[[thing]]\nname = \"a\"\n[[thing]]\nname = \"b\"\nsize = 65536\n");
    assert!(wrong.contains("line 5"), "{wrong}");
    let null = serde_json::from_str::<Thing>(r#"{"name": "a", "size": null}"#);
    assert!(null.is_err());
    assert!(serde_json::from_str::<Thing>(r#"{"name": "a", "label": null}"#).is_ok());
}

#[test]
fn a_type_has_a_shape() {
    assert_eq!(Shape::of::<bool>(), Shape::Flag);
    assert_eq!(Shape::of::<Option<usize>>(), Shape::Whole);
    let words = Shape::Words(&["auto", "mapped", "unmapped", "trapped"]);
    assert_eq!(Shape::of::<Doorbells>(), words);
    assert_eq!(Shape::of::<Option<Size>>(), Shape::Text);
    assert_eq!(Shape::of::<SocketMode>(), Shape::Text);
    assert_eq!(Shape::of::<Vec<String>>(), Shape::List);
    assert_eq!(Shape::of::<Option<Thing>>(), Shape::Table);
}

#[test]
fn a_word_of_a_command_line_is_read_by_the_type() {
    use super::read;
    assert_eq!(read::<Option<u16>>("0x1b36"), Ok(json!(0x1b36)));
    assert_eq!(read::<u16>("7"), Ok(json!(7)));
    assert_eq!(read::<bool>("true"), Ok(json!(true)));
    assert_eq!(read::<Vec<String>>("1,b"), Ok(json!(["1", "b"])));
    assert_eq!(read::<Vec<String>>("1,2"), Ok(json!(["1", "2"])));
    assert_eq!(read::<Vec<usize>>("1,2"), Ok(json!([1, 2])));
    assert_eq!(read::<Size>("4k"), Ok(json!("4k")));
    assert_eq!(read::<Option<String>>("5"), Ok(json!("5")));
    let fails = |read: Result<serde_json::Value, String>| read.unwrap_err();
    assert!(fails(read::<u16>("65536")).contains("65536"));
    assert!(fails(read::<u16>("red")).contains("not a whole number"));
    assert!(fails(read::<bool>("yes")).contains("true or false"));
    assert!(fails(read::<Size>("4")).contains("has no unit"));
    assert!(fails(read::<Doorbells>("mappd")).contains("did you mean `mapped`?"));
    assert!(fails(read::<Listen>("a:b")).contains("unknown scheme"));
}

fn key<T: Object>(name: &str) -> &'static Key {
    T::KEYS.iter().find(|key| key.name == name).unwrap()
}

#[test]
fn a_text_says_values_and_default_once() {
    for (key, text) in [
        (
            key::<Controller>("sample"),
            "Latency sampling rate (1 to 65536; 0 disables sampling): on average one in N I/O commands is timed. Default: 256.",
        ),
        (
            key::<Controller>("max_transfer"),
            "Maximum data transfer size of one command (MDTS; a power of two, 8KiB to 4MiB). Default: `1MiB`.",
        ),
        (
            key::<Reactor>("cpu"),
            "CPU that the reactor is pinned to (0 to 4095); the process must be allowed to use it. Default: not pinned.",
        ),
        (
            key::<Namespace>("nguid"),
            "Namespace globally unique identifier (32 hexadecimal digits, not all zero). Default: derived once and persistent.",
        ),
        (
            key::<Tenant>("iops"),
            "Maximum number of commands per second, on all reactors together (at least 1). Default: unlimited.",
        ),
        (
            key::<Controller>("fuse"),
            "Mount options. Only for `listen = \"fuse:FOLDER\"`.",
        ),
        (
            key::<Controller>("subnqn"),
            "NVM subsystem NQN (1 to 223 printable ASCII characters): `nqn.YYYY-MM.reverse.domain:name`. Default: derived once and persistent.",
        ),
        (
            key::<Tenant>("goal"),
            "Target latency of the tenant's commands, except the slowest 0.5 % (more than 0). Only for `class = \"latency\"`. Default: twice their lowest latency.",
        ),
        (
            key::<MediumKeys>("nsid"),
            "Identifier of the namespace on the drive (1 to 4294967294). Only for `drive`. Default: the first active namespace.",
        ),
        (
            key::<MediumKeys>("direct"),
            "Direct I/O (`O_DIRECT`): `auto` uses it where it serves blocks of 512 bytes, `on` requires it, `off` uses the page cache. Only for `file`. Default: `auto`.",
        ),
        (
            key::<MediumKeys>("zoned"),
            "Zones, which hosts write sequentially and reset as a whole. A `file` has to be a regular one. Only for `null`, `ram` and `file`. Default: none.",
        ),
        (
            key::<MediumKeys>("target"),
            "Address of the drive: `vfio-user:PATH`, `nvme-tcp:HOST:PORT/NQN` or `pci:ADDRESS`. Required for, and only for, `drive`.",
        ),
        (
            key::<MediumKeys>("size"),
            "Size of the medium (a multiple of 512B, at least 64KiB and less than 8EiB). Required for `null`, `ram` and `keyvalue` (up to 1TiB), and for a file that does not exist. Only for `null`, `ram`, `file` and `keyvalue`. Default: the size of the existing file.",
        ),
        (key::<Config>("log"), "Log filter and format."),
        (
            key::<Controller>("name"),
            "Name of the controller (1 to 64 letters, digits, `.`, `_` or `-`).",
        ),
    ] {
        assert_eq!(key.text(), text);
    }
}

#[test]
fn bounds_hold_up_to_their_ends() {
    let long = "x".repeat(65);
    for (bounds, right, wrong) in [
        (Bounds::Whole(1, 64), json!([1, 64]), json!([0, 65])),
        (
            Bounds::Hex(1, 0xfffe),
            json!([1, 0xfffe]),
            json!([0, 0xffff]),
        ),
        (
            Bounds::OneOf(&[512, 4096]),
            json!([512, 4096]),
            json!([0, 513, 8192]),
        ),
        (
            Bounds::Bytes(1 << 10, 4 << 10),
            json!(["1KiB", "4KiB"]),
            json!(["1023B", "4097B"]),
        ),
        (
            Bounds::PowerOfTwo(8 << 10, 32 << 10),
            json!(["8KiB", "16KiB", "32KiB"]),
            json!(["4KiB", "12KiB", "64KiB"]),
        ),
        (
            Bounds::MultipleOf(512, 1 << 10, 8 << 10),
            json!(["1KiB", "1536B", "7680B"]),
            json!(["512B", "1025B", "8KiB"]),
        ),
        (
            Bounds::OneSizeOf(&[512, 4096]),
            json!(["512B", "4KiB"]),
            json!(["1KiB", "8KiB"]),
        ),
        (
            Bounds::Time(1_000, 60_000_000_000),
            json!(["1us", "60s"]),
            json!(["999ns", "61s"]),
        ),
        (
            Bounds::Below(1_000_000_000),
            json!(["0s", "999ms"]),
            json!(["1s"]),
        ),
        (
            Bounds::Name,
            json!(["a", "A.b_c-9", long[1..]]),
            json!(["", "a b", "a/b", "gr\u{fc}n", long]),
        ),
        (
            Bounds::Ascii(3),
            json!(["a", "a b"]),
            json!(["", "abcd", "\u{fc}", "\t"]),
        ),
        (
            Bounds::Digits(4),
            json!(["0001", "aBcF"]),
            json!(["", "0000", "001", "000g"]),
        ),
    ] {
        for value in right.as_array().unwrap() {
            assert!(bounds.hold(value), "{bounds:?} {value}");
        }
        for value in wrong.as_array().unwrap() {
            assert!(!bounds.hold(value), "{bounds:?} {value}");
        }
    }
}

#[test]
fn an_error_says_what_to_write() {
    let error = |key: &Key, value| key.check(&value).unwrap_err();
    assert_eq!(
        error(key::<Controller>("sample"), json!(65_537)),
        "sample = 65537: write 1 to 65536; 0 disables sampling"
    );
    assert_eq!(key::<Controller>("sample").check(&json!(0)), Ok(()));
    assert_eq!(
        error(key::<Controller>("vendor_id"), json!(0)),
        "vendor_id = 0: write 0x1 to 0xfffe; 0 and 0xffff mean that no device is present"
    );
    assert_eq!(
        error(key::<Tenant>("goal"), json!("0ns")),
        "goal = \"0ns\": write more than 0"
    );
}

#[test]
fn only_live_keys_change() {
    let tenant: Tenant = toml::from_str("name = \"t\"\niops = 5\nburst = \"1s\"").unwrap();
    let changed = |changes: serde_json::Value| {
        let changed = crate::changed(&tenant, changes.as_object().unwrap(), "/changes");
        changed.map_err(|refusal| {
            let error = &refusal.errors[0];
            (error.pointer.clone().unwrap(), error.detail.clone())
        })
    };
    let as_text = json!({"iops": "none", "weight": "7", "class": "latency", "burst": "2s"});
    let text = changed(as_text).unwrap();
    let wanted = "name = \"t\"\nweight = 7\nclass = \"latency\"\nburst = \"2s\"\n";
    assert_eq!(toml::to_string(&text).unwrap(), wanted);
    let as_json = changed(json!({"iops": null, "weight": 7, "burst": null})).unwrap();
    let wanted = "name = \"t\"\nweight = 7\nclass = \"fair\"\nburst = \"10ms\"\n";
    assert_eq!(toml::to_string(&as_json).unwrap(), wanted);
    assert_eq!(changed(json!({})).unwrap(), tenant);
    for (changes, pointer, says) in [
        (
            json!({"name": "u"}),
            "/changes/name",
            "cannot change: create another tenant",
        ),
        (
            json!({"wieght": 1}),
            "/changes/wieght",
            "did you mean `weight`?",
        ),
        (
            json!({"weight": "heavy"}),
            "/changes/weight",
            "write 1 to 10000",
        ),
        (json!({"weight": true}), "/changes/weight", "invalid type"),
        (
            json!({"class": "late"}),
            "/changes/class",
            "did you mean `latency`?",
        ),
    ] {
        let (at, detail) = changed(changes).unwrap_err();
        assert_eq!(at, pointer, "{detail}");
        assert!(detail.contains(says), "{detail}");
    }
    let controller = Controller::new("c".into(), "vfio-user:/c".parse().unwrap());
    let queues = json!({"queues": 3});
    let error = crate::changed(&controller, queues.as_object().unwrap(), "").unwrap_err();
    let live = "`queues` of a controller cannot change while it is served; these keys can: ana, advertise, referrals, tenant, sample";
    assert!(error.detail.starts_with(live), "{}", error.detail);
}

#[test]
fn what_changes_live_is_taken_and_nothing_else() {
    let read = |text: &str| -> Controller { toml::from_str(text).unwrap() };
    let one = read("name = \"c\"\nlisten = \"vfio-user:/c\"\nsample = 1\nreactors = [1]");
    let two = "name = \"c\"\nlisten = \"vfio-user:/d\"\nsample = 2\ntenant = \"t\"";
    let with = one.with(&read(two), When::Live);
    let wanted =
        "name = \"c\"\nlisten = \"vfio-user:/c\"\nsample = 2\ntenant = \"t\"\nreactors = [1]";
    assert_eq!(with, read(wanted));
}

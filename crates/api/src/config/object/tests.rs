//! An object of every kind of row.

use serde_json::json;

use super::{Object, Shape, When, object};
use crate::config::{Doorbells, Listen, Size, SocketMode};

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
        #[expect(dead_code, reason = "it cannot be read")]
        thing: Vec<Thing>,
    }
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

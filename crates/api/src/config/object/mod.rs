//! Tables of keys: one row per key of an object, from which everything that lists keys is made.
//!
//! [`object!`] makes a row the field of the object's struct, its form in TOML and JSON, and its
//! [`Key`]: validation, `--help`, completions, `set`, reload, the API description and the book read
//! the [`Key`]s. Rules between keys are not here, but in the objects' own `validate`.

mod bounds;
mod read;
#[cfg(test)]
mod tests;

use std::fmt;

pub use bounds::Bounds;
pub use read::{Shape, read};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::config::{MediumKind, with_suggestion};

/// When a key can change. Timing parameters have their own table (`model::parameter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// While hosts use the object: `set`, PATCH and reload apply it.
    Live,
    /// While hosts use the object, by a command of its own, as in `nvmirage move`.
    Step,
    /// When the object is recreated, which a reload does.
    Fixed,
    /// When the server is restarted.
    Restart,
}

/// Kind of object that a key's values name, for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// None: any text.
    None,
    /// Files and folders.
    Files,
    /// Media.
    Media,
    /// Namespaces.
    Namespaces,
    /// Tenants.
    Tenants,
    /// Controllers.
    Controllers,
    /// Reactors, which have numbers.
    Reactors,
}

/// Key of an object.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name.
    pub name: &'static str,
    /// Description, without values and default.
    pub about: &'static str,
    /// When it can change.
    pub when: When,
    /// Value where it is left out: null for one that depends on more than the object. `None`: it is
    /// required.
    pub default: Option<fn() -> Value>,
    /// The default in words, where the value does not say it.
    pub unset: &'static str,
    /// Accepted values.
    pub bounds: Bounds,
    /// Feature that the value 0, outside the bounds, disables; empty: 0 is no such value.
    pub off: &'static str,
    /// Addition to the error for a value outside the bounds.
    pub hint: &'static str,
    /// Placeholder in `--help`; empty: the key's name.
    pub value: &'static str,
    /// Placeholder for the parts that a change can name, as in `KEY.PART=VALUE`; empty: it changes
    /// as a whole.
    pub parts: &'static str,
    /// Objects that it names.
    pub names: Names,
    /// Its keys, where it is a table.
    pub table: &'static [Key],
    /// Kinds of media that have it; empty: all.
    pub kinds: &'static [MediumKind],
    /// Whether these kinds require it.
    pub needed: bool,
    /// Kind of its values.
    pub shape: fn() -> Shape,
    /// Reads it as it is written on a command line.
    pub read: fn(&str) -> Result<Value, String>,
}

impl Key {
    /// A key that has nothing special, for [`object!`].
    #[doc(hidden)]
    pub const PLAIN: Key = Key {
        name: "",
        about: "",
        when: When::Fixed,
        default: None,
        unset: "",
        bounds: Bounds::Any,
        off: "",
        hint: "",
        value: "",
        parts: "",
        names: Names::None,
        table: &[],
        kinds: &[],
        needed: false,
        shape: Shape::of::<String>,
        read: read::<String>,
    };

    /// The accepted values in words, as in `1 to 65536; 0 disables sampling`.
    pub fn range(&self) -> String {
        let mut words = self.bounds.words();
        if !self.off.is_empty() {
            words += "; 0 disables ";
            words += self.off;
        }
        words
    }

    /// The default in words; `None` where the key is required, or a table.
    pub fn default_words(&self) -> Option<String> {
        let value = (self.default?)();
        if !self.unset.is_empty() {
            return Some(self.unset.to_owned());
        }
        match value {
            _ if self.needed || !self.table.is_empty() => None,
            Value::Null => Some("none".to_owned()),
            Value::Array(items) if items.is_empty() => Some("none".to_owned()),
            Value::String(text) => Some(format!("`{text}`")),
            other => Some(other.to_string()),
        }
    }

    /// The kinds of media that have it in words; empty where all have it.
    pub fn kinds_words(&self) -> String {
        let words: Vec<String> = self.kinds.iter().map(|kind| format!("`{kind}`")).collect();
        let only = if self.needed {
            "Required for, and only for,"
        } else {
            "Only for"
        };
        match &words[..] {
            [] => String::new(),
            [one] => format!("{only} {one}."),
            [most @ .., last] => format!("{only} {} and {last}.", most.join(", ")),
        }
    }

    /// Description with accepted values and default: the text of `--help`, of the API description
    /// and of the book.
    pub fn text(&self) -> String {
        let mut text = with_range(self.about.trim(), &self.range());
        let kinds = self.kinds_words();
        if !kinds.is_empty() {
            text += " ";
            text += &kinds;
        }
        if let Some(default) = self.default_words() {
            text += &format!(" Default: {default}.");
        }
        text
    }

    /// Reads a value as on a command line, and returns it in JSON.
    ///
    /// # Errors
    /// The value is not accepted: the cause, and the range to write.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        (self.read)(text).map_err(|error| match self.range() {
            range if range.is_empty() => error,
            range => format!("{error}: write {range}"),
        })
    }

    /// Checks a value in JSON; null is always accepted.
    ///
    /// # Errors
    /// The value, and what to write.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let is_off = !self.off.is_empty() && value.as_u64() == Some(0);
        if value.is_null() || is_off || self.bounds.hold(value) {
            return Ok(());
        }
        let mut error = format!("{} = {value}: write {}", self.name, self.range());
        if !self.hint.is_empty() {
            error += "; ";
            error += self.hint;
        }
        Err(error)
    }
}

/// A description with the accepted values, in parentheses behind the noun phrase that it begins
/// with.
fn with_range(about: &str, range: &str) -> String {
    if range.is_empty() {
        return about.to_owned();
    }
    let (phrase, rest) = about.split_at(phrase_len(about));
    match phrase.strip_suffix(')') {
        Some(phrase) => format!("{phrase}; {range}){rest}"),
        None => format!("{phrase} ({range}){rest}"),
    }
}

/// Bytes before the first sign that ends a phrase, outside of code.
fn phrase_len(text: &str) -> usize {
    let mut is_code = false;
    let ends = text.char_indices().find(|&(at, sign)| {
        is_code ^= sign == '`';
        let after = text[at + sign.len_utf8()..].chars().next();
        !is_code && matches!(sign, '.' | ':' | ';') && after.is_none_or(char::is_whitespace)
    });
    ends.map_or(text.len(), |(at, _)| at)
}

/// Object in [`TABLES`](super::schema::TABLES). One that is forgotten there does not compile.
pub trait Listed {}

/// Object with a table of keys.
pub trait Object: Listed + Serialize + for<'de> Deserialize<'de> + Clone + PartialEq {
    /// Kind, as in `controller`.
    const KIND: &'static str;
    /// Its keys, in the order in which they are written.
    const KEYS: &'static [Key];

    /// Errors of single keys.
    fn wrong_keys(&self) -> Vec<String> {
        let values = json(self);
        let wrong = |key: &Key| key.check(&values[key.name]).err();
        Self::KEYS.iter().filter_map(wrong).collect()
    }

    /// The object with those keys of another one that change at such a time.
    #[must_use]
    fn with(&self, other: &Self, when: When) -> Self;

    /// The live key of that name.
    ///
    /// # Errors
    /// There is no such key, or it cannot change.
    fn live(name: &str) -> Result<&'static Key, String> {
        let kind = Self::KIND;
        let live = Self::KEYS.iter().filter(|key| key.when == When::Live);
        let live: Vec<&str> = live.map(|key| key.name).collect();
        match Self::KEYS.iter().find(|key| key.name == name) {
            Some(key) if key.when == When::Live => Ok(key),
            Some(Key { name: "name", .. }) => Err(format!(
                "the name of a {kind} cannot change: create another {kind}"
            )),
            Some(_) => Err(format!(
                "`{name}` of a {kind} cannot change while it is served; these keys can: {}",
                live.join(", ")
            )),
            None => Err(with_suggestion(&format!(
                "unknown key `{name}`, expected one of `{}`",
                live.join("`, `")
            ))),
        }
    }
}

/// Declares objects by their keys.
///
/// A row is `KEY: TYPE = DEFAULT => WHEN;`, or `KEY: TYPE => WHEN;` for a required key, or `KEY:
/// TYPE | unset => WHEN;` for one that is the type's default where it is left out, and that is then
/// not written either. `{ bounds: …, off: … }` after `WHEN` sets more of its [`Key`]. Fields after
/// `beside` are no keys, and are never written. An object with `short` after its kind can also be
/// written as a text ([`Short`]).
///
/// Two structs are made: the object, and the object as it is written, in which every key may be
/// missing. serde reads the latter, so its errors keep their place and their list of known keys.
macro_rules! object {
    (@complete $v:expr, $key:ident) => { $v.ok_or(stringify!($key))? };
    (@complete $v:expr, $key:ident = $default:expr) => { $v.unwrap_or_else(|| $default) };
    (@complete $v:expr, $key:ident | unset) => { $v.unwrap_or_default() };
    (@written $v:expr, | unset) => { $crate::config::object::set(&$v) };
    (@written $v:expr, $(= $default:expr)?) => { Some($v.clone()) };
    (@default $t:ty) => { None };
    (@default $t:ty = $default:expr) => {
        Some(|| { let value: $t = $default; $crate::config::object::json(&value) })
    };
    (@default $t:ty | unset) => { Some(|| $crate::config::object::json(&<$t>::default())) };
    (@text) => { None };
    (@text short) => {
        Some((
            <Self as $crate::config::object::Short>::from_text,
            <Self as $crate::config::object::Short>::FORMS,
        ))
    };
    (@to_text $v:expr) => { None::<String> };
    (@to_text $v:expr, short) => { $crate::config::object::Short::to_text($v) };
    (
        $(#[$attribute:meta])*
        $vis:vis struct $object:ident($written:ident, $kind:literal $(, $short:ident)?) {
            $(
                $(#[doc = $doc:tt])+
                $(#[schema($($schema:tt)+)])?
                $key:ident: $t:ty $(| $unset:ident)? $(= $default:expr)? => $when:ident
                    $({ $($facet:ident: $value:expr),+ $(,)? })?;
            )+
        }
        $(beside {
            $($(#[doc = $beside_doc:tt])+ $beside:ident: $beside_type:ty),+ $(,)?
        })?
    ) => {
        #[derive(Clone, Debug, PartialEq, ::utoipa::ToSchema)]
        $(#[$attribute])*
        $vis struct $object {
            $($(#[doc = $doc])+ $(#[schema($($schema)+)])? $vis $key: $t,)+
            $($($(#[doc = $beside_doc])+ #[schema(ignore)] $vis $beside: $beside_type,)+)?
        }

        /// The same, as it is written.
        #[derive(Default, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $written {
            $(
                #[serde(
                    default,
                    deserialize_with = "crate::config::object::some",
                    skip_serializing_if = "Option::is_none"
                )]
                $key: Option<$t>,
            )+
        }

        impl $written {
            const NAMES: &'static [&'static str] = &[$(stringify!($key)),+];

            /// Fills in the defaults; without a required key, returns its name.
            fn complete(self) -> Result<$object, &'static str> {
                Ok($object {
                    $($key: object!(@complete self.$key, $key $(| $unset)? $(= $default)?),)+
                    $($($beside: <$beside_type>::default(),)+)?
                })
            }
        }

        impl ::serde::Serialize for $object {
            fn serialize<S: ::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                if let Some(text) = object!(@to_text self $(, $short)?) {
                    return to.serialize_str(&text);
                }
                let written = $written {
                    $($key: object!(@written self.$key, $(| $unset)? $(= $default)?),)+
                };
                written.serialize(to)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $object {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let whole = $crate::config::object::Whole {
                    object: stringify!($object),
                    names: $written::NAMES,
                    complete: $written::complete,
                    from_text: object!(@text $($short)?),
                };
                whole.read(from)
            }
        }

        impl $crate::config::object::Object for $object {
            const KIND: &'static str = $kind;
            const KEYS: &'static [$crate::config::object::Key] = &[$(
                $crate::config::object::Key {
                    name: stringify!($key),
                    about: concat!($($doc),+),
                    when: $crate::config::object::When::$when,
                    default: object!(@default $t $(| $unset)? $(= $default)?),
                    shape: $crate::config::object::Shape::of::<$t>,
                    read: $crate::config::object::read::<$t>,
                    $($($facet: $value,)+)?
                    ..$crate::config::object::Key::PLAIN
                }
            ),+];

            fn with(&self, other: &Self, when: $crate::config::object::When) -> Self {
                let mut with = self.clone();
                $(if when == $crate::config::object::When::$when {
                    with.$key.clone_from(&other.$key);
                })+
                with
            }
        }
    };
}

pub(crate) use object;

/// Object with a second form, a text that stands for some of its keys.
pub(crate) trait Short: Sized {
    /// The text, where the object has one.
    fn to_text(&self) -> Option<String>;

    /// The object of a text.
    fn from_text(text: &str) -> Result<Self, String>;

    /// Both forms, for the error where a value is neither.
    const FORMS: &'static str;
}

/// An object as it is read: as it is written, and then completed.
pub(crate) struct Whole<W, T> {
    pub(crate) object: &'static str,
    pub(crate) names: &'static [&'static str],
    /// Its error is raised within the object, so that TOML reports its line.
    pub(crate) complete: fn(W) -> Result<T, &'static str>,
    pub(crate) from_text: Option<FromText<T>>,
}

/// How an object is read from a text, and the forms that it has.
pub(crate) type FromText<T> = (fn(&str) -> Result<T, String>, &'static str);

impl<W: for<'de> Deserialize<'de>, T> Whole<W, T> {
    pub(crate) fn read<'de, D: Deserializer<'de>>(self, from: D) -> Result<T, D::Error> {
        match self.from_text {
            Some(_) => from.deserialize_any(self),
            None => from.deserialize_struct(self.object, self.names, self),
        }
    }
}

impl<'de, W: Deserialize<'de>, T> Visitor<'de> for Whole<W, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from_text {
            Some((_, forms)) => f.write_str(forms),
            None => f.write_str("a table of keys"),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        match self.from_text {
            Some((from_text, _)) => from_text(text).map_err(E::custom),
            None => Err(E::invalid_type(Unexpected::Str(text), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        let written = W::deserialize(MapAccessDeserializer::new(map))?;
        (self.complete)(written).map_err(A::Error::missing_field)
    }
}

/// A value that is there. Null is read as a value of the type, and is an error for a number.
pub(crate) fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// A value, unless it is the type's default.
pub(crate) fn set<T: Clone + Default + PartialEq>(value: &T) -> Option<T> {
    (*value != T::default()).then(|| value.clone())
}

/// A value in JSON.
pub(crate) fn json<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

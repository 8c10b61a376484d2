//! Tables of keys: one row per key of an object, from which everything that lists keys is made.
//!
//! [`object!`] makes a row the field of the object's struct, its form in TOML and JSON, and its
//! [`Key`]: validation, `--help`, completions, `set`, reload, the API description and the book read
//! the [`Key`]s. Rules between keys are not here, but in the objects' own `validate`.

mod read;
mod schema;
#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;

pub use read::{Shape, read};
pub use schema::describe;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

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

/// Key of an object.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name.
    pub name: &'static str,
    /// Description.
    pub about: &'static str,
    /// When it can change.
    pub when: When,
    /// Value where it is left out: null for one that depends on more than the object. `None`: it is
    /// required.
    pub default: Option<fn() -> Value>,
    /// Kind of its values.
    pub shape: fn() -> Shape,
    /// Reads it as it is written on a command line.
    pub read: fn(&str) -> Result<Value, String>,
}

/// Object with a table of keys.
pub trait Object: Serialize + for<'de> Deserialize<'de> + Clone + PartialEq {
    /// Kind, as in `controller`.
    const KIND: &'static str;
    /// Its keys, in the order in which they are written.
    const KEYS: &'static [Key];
}

/// Declares objects by their keys.
///
/// A row is `KEY: TYPE = DEFAULT => WHEN;`, or `KEY: TYPE => WHEN;` for a required key, or `KEY:
/// TYPE | unset => WHEN;` for one that is the type's default where it is left out, and that is then
/// not written either.
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
    (
        $(#[$attribute:meta])*
        $vis:vis struct $object:ident($written:ident, $kind:literal) {
            $(
                $(#[doc = $doc:tt])+
                $(#[schema($($schema:tt)+)])?
                $key:ident: $t:ty $(| $unset:ident)? $(= $default:expr)? => $when:ident;
            )+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, ::utoipa::ToSchema)]
        $vis struct $object {
            $($(#[doc = $doc])+ $(#[schema($($schema)+)])? $vis $key: $t,)+
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
                })
            }
        }

        impl ::serde::Serialize for $object {
            fn serialize<S: ::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let written = $written {
                    $($key: object!(@written self.$key, $(| $unset)? $(= $default)?),)+
                };
                written.serialize(to)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $object {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let complete = $written::complete;
                $crate::config::object::completed(from, stringify!($object), $written::NAMES, complete)
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
                }
            ),+];
        }
    };
}

pub(crate) use object;

/// Reads an object as it is written, and completes it. An error of `complete` is raised within the
/// object, so that TOML reports its line.
pub(crate) fn completed<'de, D: Deserializer<'de>, W: Deserialize<'de>, T>(
    from: D,
    object: &'static str,
    names: &'static [&'static str],
    complete: fn(W) -> Result<T, &'static str>,
) -> Result<T, D::Error> {
    struct Whole<W, T> {
        object: &'static str,
        complete: fn(W) -> Result<T, &'static str>,
        written: PhantomData<W>,
    }

    impl<'de, W: Deserialize<'de>, T> Visitor<'de> for Whole<W, T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "struct {}", self.object)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            let written = W::deserialize(MapAccessDeserializer::new(map))?;
            (self.complete)(written).map_err(A::Error::missing_field)
        }
    }

    let written = PhantomData;
    let whole = Whole {
        object,
        complete,
        written,
    };
    from.deserialize_struct(object, names, whole)
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

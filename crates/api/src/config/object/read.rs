//! Values of keys as they are written on a command line, read by the types of the keys.

use std::fmt;

use serde::de::{self, DeserializeOwned, Deserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;

use crate::config::with_suggestion;

/// Kind of a key's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `true` or `false`.
    Flag,
    /// Whole number.
    Whole,
    /// One of these words.
    Words(&'static [&'static str]),
    /// Text: a name, or a value with a syntax of its own.
    Text,
    /// List.
    List,
    /// Table of its own.
    Table,
}

impl Shape {
    /// The shape of a type's values, optional or not.
    pub fn of<T: DeserializeOwned>() -> Shape {
        match T::deserialize(Probe) {
            Ok(_) => Shape::Text,
            Err(Asked(shape)) => shape,
        }
    }
}

/// A deserializer without a value: its error is what the type asked for.
struct Probe;

#[derive(Debug)]
struct Asked(Shape);

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for Asked {}

impl de::Error for Asked {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Asked(Shape::Text)
    }
}

macro_rules! asked {
    ($($method:ident => $shape:expr;)+) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Asked> {
            Err(Asked($shape))
        }
    )+};
}

impl<'de> Deserializer<'de> for Probe {
    type Error = Asked;

    asked! {
        deserialize_any => Shape::Text;
        deserialize_bool => Shape::Flag;
        deserialize_u8 => Shape::Whole;
        deserialize_u16 => Shape::Whole;
        deserialize_u32 => Shape::Whole;
        deserialize_u64 => Shape::Whole;
        deserialize_seq => Shape::List;
        deserialize_map => Shape::Table;
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Asked> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Asked> {
        Err(Asked(Shape::Words(words)))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Asked> {
        Err(Asked(Shape::Table))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct tuple tuple_struct identifier ignored_any
    }
}

/// Reads a value of type `T`, and returns it in JSON. Whole numbers can be hexadecimal, as in
/// `0x1b36`. Items of a list are separated by commas.
///
/// # Errors
/// What is wrong, without the key's name.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<Value, String> {
    let item = |text: &str| match whole(text) {
        Some(number) => [Value::from(number), Value::from(text)],
        None => [Value::from(text), Value::from(text)],
    };
    let [number, word] = match Shape::of::<T>() {
        Shape::Flag => {
            let flag = text.parse::<bool>();
            let flag = flag.map_err(|_| format!("`{text}`: write true or false"))?;
            [flag.into(), flag.into()]
        }
        Shape::Whole => {
            let number = whole(text).ok_or_else(|| format!("`{text}` is not a whole number"))?;
            [number.into(), number.into()]
        }
        // Names can consist of digits, so the type decides.
        Shape::List => {
            let items = text.split(',').filter(|item| !item.is_empty());
            let (numbers, words) = items.map(item).map(|[a, b]| (a, b)).unzip();
            [Value::Array(numbers), Value::Array(words)]
        }
        Shape::Words(_) | Shape::Text | Shape::Table => [text.into(), text.into()],
    };
    if T::deserialize(&number).is_ok() {
        return Ok(number);
    }
    match T::deserialize(&word) {
        Ok(_) => Ok(word),
        Err(error) => Err(with_suggestion(&error.to_string())),
    }
}

fn whole(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

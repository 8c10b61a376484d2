//! The body of a request, with errors that name the place in it.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Refusal;
use crate::config::with_suggestion;

/// Reads the body of a control request.
///
/// # Errors
/// The body is not JSON, or not of this type; the error names the place, and a similar key.
pub fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let mut from = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut from).map_err(|error| {
        let detail = with_suggestion(&error.inner().to_string());
        Refusal::invalid_at(pointer(error.path()), detail)
    })?;
    let ended = from.end();
    ended.map_err(|error| Refusal::invalid(error.to_string()))?;
    Ok(read)
}

/// Reads a value, which is at the place `at` of a request's body.
///
/// # Errors
/// The value is not of this type; the error names the place, and a similar key.
pub(crate) fn from_value<T: DeserializeOwned>(value: Value, at: &str) -> Result<T, Refusal> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let detail = with_suggestion(&error.inner().to_string());
        Refusal::invalid_at(format!("{at}{}", pointer(error.path())), detail)
    })
}

/// A key as a part of a JSON pointer (RFC 6901).
pub(crate) fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// A place in an object as a JSON pointer (RFC 6901).
fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let part = |segment: &Segment| match segment {
        Segment::Seq { index } => format!("/{index}"),
        Segment::Map { key } | Segment::Enum { variant: key } => format!("/{}", escaped(key)),
        Segment::Unknown => String::new(),
    };
    path.iter().map(part).collect()
}

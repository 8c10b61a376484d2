//! Checks of what an operator sets, once before a subsystem or a controller exists.

/// Namespace ids a host may name by default: 1 to this (NN). Firmware asks for each of them in
/// turn, so it is small.
pub const DEFAULT_NAMESPACE_LIMIT: u32 = 32;
/// The most namespaces: an active list is one page of ids, and the log of changed ones as well.
pub const MAX_NAMESPACES: u32 = 1024;

/// A wrong field of a [`SubsystemConfig`](crate::SubsystemConfig), or the reason why a controller
/// cannot join.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A number is outside its range.
    #[error("{field} is {value}: write {min} to {max}")]
    Number {
        /// The field's name.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The least it may hold.
        min: u64,
        /// The most it may hold.
        max: u64,
    },
    /// Two namespaces share an id.
    #[error("namespace id {0} is used twice: give each namespace of a controller its own id")]
    DuplicateNamespace(u32),
    /// A subsystem has its most controllers.
    #[error("subsystem {0} has assigned all 63 controller identifiers: use another subsystem")]
    TooManyControllers(String),
    /// A subsystem has its most dynamic controllers.
    #[error(
        "subsystem {0} serves 256 hosts over networks, its maximum: disconnect one and try again"
    )]
    TooManyDynamicControllers(String),
    /// A dynamic controller needs a configured one that is served.
    #[error("subsystem {0} serves no controller {1}: configure it, and connect to it then")]
    NoEntrance(String, u16),
}

/// Checks ids of namespaces against the highest one and against each other.
///
/// # Errors
/// The first id that is out of range or given twice.
pub(crate) fn check_namespaces(
    ids: impl Iterator<Item = u32>,
    limit: u32,
) -> Result<(), ConfigError> {
    let mut ids: Vec<u32> = ids.collect();
    ids.sort_unstable();
    for &id in &ids {
        number("namespace id", id, 1, limit)?;
    }
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ConfigError::DuplicateNamespace(pair[0])),
        None => Ok(()),
    }
}

/// Checks a number against its range.
///
/// # Errors
/// It is outside.
pub fn number<T: Into<u64>>(
    field: &'static str,
    value: T,
    min: T,
    max: T,
) -> Result<(), ConfigError> {
    let (value, min, max) = (value.into(), min.into(), max.into());
    if value < min || value > max {
        return Err(ConfigError::Number {
            field,
            value,
            min,
            max,
        });
    }
    Ok(())
}

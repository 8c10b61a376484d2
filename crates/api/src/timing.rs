//! Timing parameters of media.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Timing model of a medium.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TimingStatus {
    /// Preset of the drive.
    pub preset: String,
    /// Kind of the model: `nvm`, `kv`, `flash` or `zns`.
    pub kind: String,
    /// Parameters, in the order of the reference.
    pub parameters: Vec<ParameterStatus>,
}

/// Parameter of a timing model.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ParameterStatus {
    /// Name of the parameter.
    pub name: String,
    /// Part of the drive that it is of, in words.
    #[serde(default)]
    pub group: String,
    /// Current value, as in a configuration.
    pub value: String,
    /// Current value as a number: nanoseconds, bytes, bytes per second (0: unlimited), commands per
    /// second (0: unlimited), tenths of a percent, a count, 0 or 1, or an index into `words`.
    pub raw: u64,
    /// Unit: `time`, `bandwidth`, `rate`, `size`, `count`, `percent`, `flag` or `word`.
    pub unit: String,
    /// Valid values, in words.
    pub range: String,
    /// Valid words, for the unit `word`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
    /// Moment at which a change is possible: `live`, at any time; `reset`, when its controller is
    /// reset; `fixed`, only when the medium is created.
    pub applies: String,
    /// Effect of the parameter.
    pub description: String,
}

//! The composite temperature, in kelvins. Without a drive there is no sensor: the temperature is a
//! constant room temperature, and a host's thresholds still apply to it.

/// 25 degrees Celsius.
pub(crate) const COMPOSITE: u16 = 298;
/// WCTEMP: 70 degrees Celsius.
pub(crate) const WARNING: u16 = 343;
/// CCTEMP: 80 degrees Celsius.
pub(crate) const CRITICAL: u16 = 353;

/// Whether a temperature is at or beyond a threshold (Base 2.1, 5.1.12.1.3, Critical Warning bit
/// 1).
pub(crate) fn beyond(temperature: u16, over: u16, under: u16) -> bool {
    temperature >= over || temperature <= under
}

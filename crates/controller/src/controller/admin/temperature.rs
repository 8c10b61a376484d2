//! The composite temperature, in kelvins. Without a drive there is no sensor: it is a room's, and
//! never changes; what a host's thresholds make of it is true all the same.

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

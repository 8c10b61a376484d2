//! Verdicts of tests.

use std::fmt::{self, Display, LowerHex};

use driver::DriverError;

/// Passed, or why not.
pub type Verdict<T = ()> = Result<T, Miss>;

/// Why a test did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Miss {
    /// The controller does what the specification forbids, or not what it
    /// demands: what was expected, and what was found.
    Failed(String),
    /// The controller says itself that it does not have this, or the target
    /// gives no way to see it; which of these.
    NotSupported(String),
    /// The test is not for a controller behind such a transport; why.
    NotApplicable(&'static str),
}

impl Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) | Self::NotSupported(why) => f.write_str(why),
            Self::NotApplicable(why) => f.write_str(why),
        }
    }
}

/// An error between a host and a controller is the controller's fault
/// here: it hangs, it is gone, or it refuses an access.
impl From<DriverError> for Miss {
    fn from(error: DriverError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A failure with this message.
///
/// # Errors
/// Always.
pub fn fail<T>(why: impl Into<String>) -> Verdict<T> {
    Err(Miss::Failed(why.into()))
}

/// Not supported, for this reason.
///
/// # Errors
/// Always.
pub fn not_supported<T>(why: impl Into<String>) -> Verdict<T> {
    Err(Miss::NotSupported(why.into()))
}

/// Fails unless `holds`.
///
/// # Errors
/// It does not hold.
pub fn check(holds: bool, why: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { fail(why()) }
}

/// Fails unless two numbers are the same.
///
/// # Errors
/// They are not.
pub fn same<T: PartialEq + LowerHex>(what: &str, found: T, expected: T) -> Verdict {
    check(found == expected, || {
        format!("{what}: expected {expected:#x}, found {found:#x}")
    })
}

/// Fails unless bytes are the same; says where they differ first.
///
/// # Errors
/// They are not.
pub fn same_bytes(what: &str, found: &[u8], expected: &[u8]) -> Verdict {
    if found.len() != expected.len() {
        return fail(format!(
            "{what}: expected {} bytes, found {}",
            expected.len(),
            found.len()
        ));
    }
    let differ = found.iter().zip(expected).position(|(a, b)| a != b);
    match differ {
        None => Ok(()),
        Some(at) => fail(format!(
            "{what}: byte {at} of {}: expected {:#04x}, found {:#04x}",
            found.len(),
            expected[at],
            found[at]
        )),
    }
}

/// Fails unless all bytes are zero.
///
/// # Errors
/// One is not.
pub fn zero(what: &str, found: &[u8]) -> Verdict {
    match found.iter().position(|&byte| byte != 0) {
        None => Ok(()),
        Some(at) => fail(format!(
            "{what}: expected zeros, found {:#04x} at byte {at}",
            found[at]
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_told_with_both_sides() {
        let message = same("CAP", 0x12_u64, 0x34).unwrap_err().to_string();
        assert_eq!(message, "CAP: expected 0x34, found 0x12");
        let message = same_bytes("data", &[1, 2, 3], &[1, 5, 3]).unwrap_err();
        assert_eq!(
            message.to_string(),
            "data: byte 1 of 3: expected 0x05, found 0x02"
        );
        assert!(same_bytes("data", &[1], &[1, 2]).is_err());
        assert!(same_bytes("data", &[], &[]).is_ok());
        let message = zero("reserved", &[0, 0, 7]).unwrap_err().to_string();
        assert_eq!(message, "reserved: expected zeros, found 0x07 at byte 2");
    }
}

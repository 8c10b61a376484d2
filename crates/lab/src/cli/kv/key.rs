//! Keys on the command line: text, or `0x` and hexadecimal digits for any bytes.

use std::fmt;
use std::str::FromStr;

/// A key, of any bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key(Vec<u8>);

impl Key {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key's bytes as hexadecimal digits.
    pub(super) fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl From<Vec<u8>> for Key {
    fn from(bytes: Vec<u8>) -> Self {
        Key(bytes)
    }
}

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = match text.strip_prefix("0x") {
            None => text.as_bytes().to_vec(),
            Some(digits) => {
                let wrong = || format!("`{text}` is not a sequence of pairs of hexadecimal digits");
                let all = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                if digits.is_empty() || digits.len() % 2 != 0 || !all {
                    return Err(wrong());
                }
                let pairs = (0..digits.len()).step_by(2).map(|at| &digits[at..at + 2]);
                pairs
                    .map(|pair| u8::from_str_radix(pair, 16).map_err(|_| wrong()))
                    .collect::<Result<_, _>>()?
            }
        };
        match bytes.len() {
            1..=16 => Ok(Key(bytes)),
            len => Err(format!("the key has {len} bytes: write 1 to 16")),
        }
    }
}

/// The form that the command line takes: text, unless it could be mistaken for `0x` digits.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.starts_with("0x") && !text.contains(char::is_control) => {
                f.write_str(text)
            }
            _ => write!(f, "0x{}", self.hex()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_text_or_digits_and_come_back_as_they_were() {
        for (text, bytes) in [
            ("colour", &b"colour"[..]),
            ("0x00ff", &[0, 255]),
            ("0x6f6b", b"ok"),
            ("größe", "größe".as_bytes()),
        ] {
            let key: Key = text.parse().unwrap();
            assert_eq!(key.bytes(), bytes, "{text}");
            assert_eq!(key.to_string().parse::<Key>().unwrap(), key);
        }
        assert_eq!(Key(b"0xno".to_vec()).to_string(), "0x30786e6f");
        assert_eq!(Key(b"a\n".to_vec()).to_string(), "0x610a");
        assert_eq!(Key(vec![1, 0xab]).hex(), "01ab");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "0x", "0x0", "0xgg", "0x€", "0x+1", "seventeen letters"] {
            assert!(text.parse::<Key>().is_err(), "{text}");
        }
    }
}

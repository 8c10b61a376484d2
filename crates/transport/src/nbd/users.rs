//! Names of users and their pre-shared keys, as GnuTLS reads them (`psktool`): `NAME:KEY` lines,
//! with the key in hexadecimal.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use zeroize::Zeroizing;

/// Bytes of a file with them at most.
pub const USERS_LEN: usize = 256 << 10;
/// Bytes of a name at most.
const NAME_LEN: usize = 128;
/// Bytes of a key: from 128 bits to the longest that `psktool` makes.
const KEY_LEN: std::ops::RangeInclusive<usize> = 16..=64;

/// Why a text is no list of users. Lines count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsersError {
    /// It is empty.
    #[error("it has no key: make one with psktool -u NAME -p FILE")]
    None,
    /// A line has no colon, or a name that is empty, too long or reserved.
    #[error(
        "line {0}: write NAME:KEY, as psktool does, with a name of 1 to {NAME_LEN} bytes that does not begin with #"
    )]
    Line(usize),
    /// A key is not hexadecimal, or too short or long.
    #[error(
        "line {0}: write a key of {min} to {max} hexadecimal digits, as psktool makes it",
        min = 2 * KEY_LEN.start(),
        max = 2 * KEY_LEN.end()
    )]
    Key(usize),
    /// Two lines have one name.
    #[error("line {0}: its user has another line before: remove one of both")]
    Twice(usize),
}

/// See the module.
#[derive(Clone)]
pub struct Users(BTreeMap<Vec<u8>, Zeroizing<Vec<u8>>>);

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Users({})", self.0.len())
    }
}

impl Users {
    /// Reads a file of GnuTLS. Empty lines are left out.
    ///
    /// # Errors
    /// It is none. No error has a part of a key.
    pub fn read(text: &str) -> Result<Self, UsersError> {
        let mut users = BTreeMap::new();
        let lines = text.lines().enumerate();
        for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let number = index + 1;
            let (name, key) = line.split_once(':').ok_or(UsersError::Line(number))?;
            // GnuTLS reads a name behind # as hexadecimal.
            if !(1..=NAME_LEN).contains(&name.len()) || name.starts_with('#') {
                return Err(UsersError::Line(number));
            }
            let key = bytes(key.trim_end()).filter(|key| KEY_LEN.contains(&key.len()));
            let key = key.ok_or(UsersError::Key(number))?;
            match users.entry(name.as_bytes().to_vec()) {
                Entry::Vacant(place) => place.insert(key),
                Entry::Occupied(_) => return Err(UsersError::Twice(number)),
            };
        }
        if users.is_empty() {
            return Err(UsersError::None);
        }
        Ok(Self(users))
    }

    /// The key of this name.
    pub(super) fn key(&self, name: &[u8]) -> Option<&Zeroizing<Vec<u8>>> {
        self.0.get(name)
    }
}

/// Bytes of hexadecimal digits.
fn bytes(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let mut bytes = Zeroizing::new(Vec::with_capacity(pairs.len()));
    for pair in pairs {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let byte = digit(pair[0])? << 4 | digit(pair[1])?;
        bytes.push(u8::try_from(byte).ok()?);
    }
    rest.is_empty().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `psktool -u alice -p keys.psk` of GnuTLS 3.8 writes it.
    const LINE: &str = "alice:9c3bcd0f4a9e6f4f1ad7b5bcf55dfb0dd2dd48e2f6cba8b7a4ac5a3ed1f3a0bb\n";

    #[test]
    fn users_are_read_as_gnutls_writes_them() {
        let users = Users::read(&format!("{LINE}\nbob smith:{}\r\n", "0F".repeat(16))).unwrap();
        let key = users.key(b"alice").unwrap();
        assert_eq!((key.len(), key[0], key[31]), (32, 0x9c, 0xbb));
        assert_eq!(**users.key(b"bob smith").unwrap(), [15; 16]);
        assert!(users.key(b"bob").is_none() && users.key(b"").is_none());
        assert_eq!(format!("{users:?}"), "Users(2)");
    }

    #[test]
    fn other_texts_are_refused_by_line() {
        let key = "ab".repeat(32);
        let name = "n".repeat(NAME_LEN);
        assert!(Users::read(&format!("{name}:{key}")).is_ok());
        for (text, expected) in [
            (String::new(), UsersError::None),
            ("\n \n".into(), UsersError::None),
            (format!("{LINE}{key}"), UsersError::Line(2)),
            (format!(":{key}"), UsersError::Line(1)),
            (format!("{name}n:{key}"), UsersError::Line(1)),
            (format!("#616c:{key}"), UsersError::Line(1)),
            (format!("a:{}", "ab".repeat(15)), UsersError::Key(1)),
            (format!("a:{}", "ab".repeat(65)), UsersError::Key(1)),
            (format!("a:{key}a"), UsersError::Key(1)),
            (format!("a:{}", "xy".repeat(32)), UsersError::Key(1)),
            (format!("a:{key}:0"), UsersError::Key(1)),
            (format!("{LINE}b:{key}\n{LINE}"), UsersError::Twice(3)),
        ] {
            let error = Users::read(&text).unwrap_err();
            assert_eq!(error, expected, "{text}");
            assert!(!error.to_string().contains(&key[..8]), "{error}");
        }
        let range = UsersError::Key(1).to_string();
        assert!(range.contains("32 to 128 hexadecimal digits"), "{range}");
    }
}

//! `admin_allow`: the vendor log pages of a shared drive that its operator lets hosts read.

use std::fmt;
use std::str::FromStr;

use media::drive::ShownPage;

use super::problem::Place;
use super::size::serde_as_text;

/// Most pages of a drive: the server reads each of them from the drive periodically.
const MAX_PAGES: usize = 16;
/// Length of a page that is given without one.
const DEFAULT_LEN: u16 = 512;
/// First vendor log page (Base 2.1, 5.1.12). Only the program's own one is rejected.
const FIRST_LID: u8 = 0xc0;
const OWN_LID: u8 = controller::REACTOR_LOG.0;

/// `get-log-page:LID`, or `get-log-page:LID:BYTES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminAllow(pub ShownPage);

impl FromStr for AdminAllow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "`{text}`: {why}: write get-log-page:0xc0, or get-log-page:0xc0:4096 for one of 4096 bytes"
            )
        };
        let Some(page) = text.strip_prefix("get-log-page:") else {
            return Err(wrong("only get-log-page can be allowed"));
        };
        let (lid, len) = match page.split_once(':') {
            Some((lid, len)) => (lid, len.parse().ok()),
            None => (page, Some(DEFAULT_LEN)),
        };
        let lid = match lid.strip_prefix("0x") {
            Some(digits) => u8::from_str_radix(digits, 16).ok(),
            None => lid.parse().ok(),
        };
        match lid {
            None => return Err(wrong("invalid log page identifier")),
            Some(OWN_LID) => return Err(wrong("0xc1 is reserved for nvmirage's own log page")),
            Some(lid) if lid < FIRST_LID => {
                return Err(wrong(
                    "pages below 0xc0 belong to the controller, or change the drive's state",
                ));
            }
            Some(_) => {}
        }
        let fits = |len: &u16| (4..=ShownPage::MAX_LEN).contains(len) && len.is_multiple_of(4);
        match (lid, len.filter(fits)) {
            (Some(lid), Some(len)) => Ok(AdminAllow(ShownPage { lid, len })),
            _ => Err(wrong("a page has 4 to 4096 bytes, a multiple of 4")),
        }
    }
}

impl fmt::Display for AdminAllow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShownPage { lid, len } = self.0;
        match len {
            DEFAULT_LEN => write!(f, "get-log-page:{lid:#04x}"),
            len => write!(f, "get-log-page:{lid:#04x}:{len}"),
        }
    }
}

serde_as_text!(AdminAllow => "what is allowed, in quotes, as in \"get-log-page:0xc0\"");

/// Appends what is wrong with a list of them.
pub(super) fn validate(allowed: &[AdminAllow], place: &mut Place<'_>) {
    place.require(allowed.len() <= MAX_PAGES, || {
        format!(
            "admin_allow: {} pages, more than the maximum of {MAX_PAGES}: remove some",
            allowed.len()
        )
    });
    for (index, allow) in allowed.iter().enumerate() {
        let mut before = allowed[..index].iter();
        place.require(before.all(|other| other.0.lid != allow.0.lid), || {
            format!("admin_allow: \"{allow}\" is listed twice")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_vendors_pages_can_be_allowed() {
        for (text, lid, len) in [
            ("get-log-page:0xc0", 0xc0, 512),
            ("get-log-page:202", 0xca, 512),
            ("get-log-page:0xff:4096", 0xff, 4096),
        ] {
            let allow: AdminAllow = text.parse().unwrap();
            assert_eq!(allow.0, ShownPage { lid, len });
            assert_eq!(allow.to_string().parse(), Ok(allow));
        }
        for (text, says) in [
            ("get-log-page:0x02", "pages below 0xc0"),
            ("get-log-page:0xbf", "pages below 0xc0"),
            ("get-log-page:0xc1", "nvmirage's own log page"),
            ("get-log-page:0x1c0", "invalid log page identifier"),
            ("get-log-page:", "invalid log page identifier"),
            ("get-log-page:0xc0:0", "4 to 4096 bytes"),
            ("get-log-page:0xc0:510", "4 to 4096 bytes"),
            ("get-log-page:0xc0:8192", "4 to 4096 bytes"),
            ("get-features:0x01", "only get-log-page"),
            ("0xc0", "only get-log-page"),
            ("", "only get-log-page"),
        ] {
            let error = text.parse::<AdminAllow>().unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}

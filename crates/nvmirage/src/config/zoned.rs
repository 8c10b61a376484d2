//! `[media.zoned]`: zones over a medium, which hosts write in order and reset as a whole.

use media::ZoneSpec;
use serde::{Deserialize, Serialize};

use super::{Medium, MediumKind, Size, validate::Place};

/// The zones of a medium.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Zoned {
    /// From one zone to the next.
    pub(crate) zone_size: Size,
    /// What of a zone can be written. Default: all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zone_capacity: Option<Size>,
    /// Zones that may be open at a time. Default: as many as may be active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_open: Option<u32>,
    /// Zones that may be open or closed at a time. Default: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_active: Option<u32>,
    /// Bytes of a zone's descriptor extension. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) descriptor_extension: Option<Size>,
    /// Most bytes of one Zone Append. Default: as many as any command may move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) append_limit: Option<Size>,
}

impl Zoned {
    /// What the medium is made with.
    pub(crate) fn spec(&self) -> ZoneSpec {
        let max_active = self.max_active.unwrap_or(0);
        // What is too large for its field is refused as what it is cut to is.
        let small = |size: Option<Size>| size.map_or(0, |s| u32::try_from(s.0).unwrap_or(u32::MAX));
        ZoneSpec {
            zone_size: self.zone_size.0,
            zone_capacity: self.zone_capacity.unwrap_or(self.zone_size).0,
            max_open: self.max_open.unwrap_or(max_active),
            max_active,
            descriptor_extension: small(self.descriptor_extension),
            append_limit: small(self.append_limit),
        }
    }

    pub(super) fn validate(&self, medium: &Medium, place: &mut Place<'_>) {
        place.require(matches!(medium.kind, MediumKind::Null | MediumKind::Ram), || {
            "zoned: where the zones of a file stand is not kept between runs: write kind = \"ram\"".into()
        });
        for (key, count) in [("max_open", self.max_open), ("max_active", self.max_active)] {
            place.require(count != Some(0), || {
                format!("zoned.{key} = 0: write at least 1, or leave it out for any number")
            });
        }
        if let Some(size) = medium.size
            && let Err(error) = self.spec().check(size.0)
        {
            place.problem(format!("zoned: {error}"));
        }
    }
}

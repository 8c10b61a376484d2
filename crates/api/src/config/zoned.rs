//! `[media.zoned]`: zones of a medium, which hosts write sequentially and reset as a whole.

use media::ZoneSpec;
use port::set::RandomAreas;

use super::Size;
use super::object::{Bounds, Object, object};
use super::problem::Place;

const NO_LIMIT: &str = "leave it out for no limit";

object! {
    /// Zones of a medium.
    pub struct Zoned(ZonedKeys, "zoned") {
        /// Distance between zone starts: a multiple of 4KiB; the medium holds a whole number of
        /// zones.
        zone_size: Size => Fixed { value: "SIZE" };
        /// Writable bytes of a zone: a multiple of 4KiB, up to `zone_size`.
        zone_capacity: Option<Size> | unset => Fixed { unset: "`zone_size`", value: "SIZE" };
        /// Maximum number of open zones, up to `max_active`.
        max_open: Option<u32> | unset => Fixed {
            bounds: Bounds::Whole(1, u64::MAX),
            hint: NO_LIMIT,
            unset: "`max_active`",
            value: "N",
        };
        /// Maximum number of active zones, open or closed.
        max_active: Option<u32> | unset => Fixed {
            bounds: Bounds::Whole(1, u64::MAX),
            hint: NO_LIMIT,
            unset: "unlimited",
            value: "N",
        };
        /// Size of a zone's descriptor extension: a multiple of 64 bytes, up to 16320.
        descriptor_extension: Option<Size> | unset => Fixed { value: "SIZE" };
        /// Maximum size of one Zone Append (ZASL): a power of two above 4KiB.
        append_limit: Option<Size> | unset => Fixed {
            unset: "the limit of any command",
            value: "SIZE",
        };
        /// Size of a zone's random write area (ZRWASZ): a multiple of `random_granularity`, up to
        /// `zone_capacity`, less than 32MiB.
        random_area: Option<Size> | unset => Fixed { value: "SIZE" };
        /// Step of the write pointer in a zone with a random write area (ZRWAFG): a multiple of
        /// 4KiB that divides `zone_capacity`. Only with `random_area`.
        random_granularity: Option<Size> | unset => Fixed { unset: "4KiB", value: "SIZE" };
        /// Maximum number of zones with a random write area at a time (NUMZRWA), up to
        /// `max_active`. Only with `random_area`.
        random_zones: Option<u32> | unset => Fixed {
            bounds: Bounds::Whole(1, u64::MAX),
            hint: NO_LIMIT,
            unset: "`max_active`",
            value: "N",
        };
    }
}

impl Zoned {
    /// Zones of that size and capacity, everything else at its default.
    pub fn new(zone_size: u64, zone_capacity: u64) -> Self {
        Zoned {
            zone_size: Size(zone_size),
            zone_capacity: Some(Size(zone_capacity)),
            max_open: None,
            max_active: None,
            descriptor_extension: None,
            append_limit: None,
            random_area: None,
            random_granularity: None,
            random_zones: None,
        }
    }

    /// The zones as `media` takes them.
    pub fn spec(&self) -> ZoneSpec {
        let max_active = self.max_active.unwrap_or(0);
        // A value too large for its field saturates, and is rejected at that value.
        let small = |size: Option<Size>| size.map_or(0, |s| u32::try_from(s.0).unwrap_or(u32::MAX));
        ZoneSpec {
            zone_size: self.zone_size.0,
            zone_capacity: self.zone_capacity.unwrap_or(self.zone_size).0,
            max_open: self.max_open.unwrap_or(max_active),
            max_active,
            descriptor_extension: small(self.descriptor_extension),
            append_limit: small(self.append_limit),
            random: self.random_area.map(|bytes| RandomAreas {
                bytes: small(Some(bytes)),
                granularity: small(Some(self.random_granularity.unwrap_or(Size(4096)))),
                zones: match (self.random_zones, max_active) {
                    (Some(zones), _) => zones,
                    // Without a limit on active zones, the random write areas have none either.
                    (None, 0) => u32::MAX,
                    (None, most) => most,
                },
            }),
        }
    }

    pub(super) fn validate(&self, size: Option<Size>, place: &mut Place<'_>) {
        for (key, is_there) in [
            ("random_granularity", self.random_granularity.is_some()),
            ("random_zones", self.random_zones.is_some()),
        ] {
            place.require(!is_there || self.random_area.is_some(), || {
                format!("zoned.{key}: only with `random_area`: write it too")
            });
        }
        for wrong in self.wrong_keys() {
            place.problem(format!("zoned.{wrong}"));
        }
        if let Some(size) = size
            && let Err(error) = self.spec().check(size.0)
        {
            place.problem(format!("zoned: {error}"));
        }
    }
}

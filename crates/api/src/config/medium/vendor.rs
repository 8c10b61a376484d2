//! The vendor commands that a medium can have, by their words.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

macro_rules! words {
    ($($(#[$doc:meta])+ $module:ident::$name:ident;)+) => {
        /// Vendor commands of a medium.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Vendor {
            $($(#[$doc])+ $name),+
        }

        impl From<Vendor> for media::Vendor {
            fn from(vendor: Vendor) -> Self {
                match vendor {
                    $(Vendor::$name => media::Vendor::$name),+
                }
            }
        }
    };
}

media::vendor_commands!(words);

//! Open enumerations: a number with named values, so that an unknown value is still a value.

/// Defines a transparent number with one associated constant per value that the specification
/// names.
///
/// Each value is written `NAME = number, "what the specification calls it";`. The text becomes the
/// documentation of the constant, what `name` answers, and what `Debug` prints. `from_bits` and
/// `into_bits` let the type stand in a bitfield.
macro_rules! open_enum {
    (
        $(#[$attribute:meta])*
        pub struct $type:ident($number:ty) {
            $($constant:ident = $value:literal, $text:literal;)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(
            Clone,
            Copy,
            Default,
            PartialEq,
            Eq,
            PartialOrd,
            Ord,
            Hash,
            zerocopy::FromBytes,
            zerocopy::IntoBytes,
            zerocopy::Immutable,
            zerocopy::KnownLayout,
        )]
        #[repr(transparent)]
        pub struct $type(
            /// The number, named or not.
            pub $number,
        );

        impl $type {
            $(
                #[doc = $text]
                pub const $constant: Self = Self($value);
            )*

            /// The value with this number.
            pub const fn from_bits(bits: $number) -> Self {
                Self(bits)
            }

            /// The number of this value.
            pub const fn into_bits(self) -> $number {
                self.0
            }

            /// Name of this value in the specification, or "reserved or vendor specific".
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$constant => $text,)*
                    _ => "reserved or vendor specific",
                }
            }
        }

        impl core::fmt::Debug for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "{:#x} ({})", self.0, self.name())
            }
        }
    };
}

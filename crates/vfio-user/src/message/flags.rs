//! One type for every flags field: it holds any 32 bits, and the known ones have names.

/// Defines a flags field of 32 bits with named bits.
macro_rules! flags {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $bit:ident = $value:expr;)* }) => {
        $(#[$outer])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
        )]
        #[repr(transparent)]
        pub struct $name(pub u32);

        impl $name {
            $($(#[$inner])* pub const $bit: Self = Self($value);)*

            /// Whether every bit of `other` is set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// All bits of both.
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// The bits of `self` that are not in `other`.
            pub const fn difference(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                self.union(other)
            }
        }
    };
}
pub(crate) use flags;

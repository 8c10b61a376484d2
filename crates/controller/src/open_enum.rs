//! Open enumerations of the state file: a number with named values, so that any bytes are a value.

/// Defines a transparent number with one documented constant per value. `Debug` prints the name of
/// a constant, or the number.
macro_rules! open_enum {
    (
        $(#[$attribute:meta])*
        pub struct $type:ident($number:ty) {
            $($(#[$documentation:meta])* $constant:ident = $value:literal;)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(
            Clone,
            Copy,
            Default,
            PartialEq,
            Eq,
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
            $($(#[$documentation])* pub const $constant: Self = Self($value);)*
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match *self {
                    $(Self::$constant => f.write_str(stringify!($constant)),)*
                    Self(number) => write!(f, "{number}"),
                }
            }
        }
    };
}

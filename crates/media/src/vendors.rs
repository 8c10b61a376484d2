//! The list of vendor commands that a configuration can add to a medium.

/// Passes the list to the macro `$with`: documentation, module in `vendor`, whose name is also the
/// word in a configuration, and type of the same name.
#[macro_export]
macro_rules! vendor_commands {
    ($with:ident) => {
        $with! {
            /// Fetch and Add: a counter of each namespace.
            fetch_add::FetchAdd;
        }
    };
}

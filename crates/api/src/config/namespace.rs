//! `[[namespace]]`: a part of a medium, as hosts see it.

use super::object::object;
use super::{DEFAULT_LBA_SIZE, Range};

object! {
    /// Namespace: a part of a medium, as hosts see it.
    pub struct Namespace(NamespaceKeys, "namespace") {
        /// Name of the namespace: 1 to 64 letters, digits, `.`, `_` or `-`.
        name: String => Fixed;
        /// Name of the medium that stores the namespace.
        media: String => Fixed;
        /// Byte range of the medium, as in `0GiB..16GiB`: starts at a multiple of 4KiB, holds at
        /// least one block, and overlaps no other namespace. Default: all of the medium.
        range: Option<Range> | unset => Step;
        /// Partition of the drive or file, instead of `range`. Only for `drive`, and for `file`
        /// without zones. Default: none.
        partition: Option<String> | unset => Fixed;
        /// Logical block size in bytes: 512 or 4096. Default: 4096.
        lba_size: u32 = DEFAULT_LBA_SIZE => Fixed;
        /// Namespace globally unique identifier: 32 hexadecimal digits, not all zero. Default:
        /// derived once and persistent.
        nguid: Option<String> | unset => Fixed;
        /// IEEE extended unique identifier: 16 hexadecimal digits, not all zero. Default: derived
        /// once and persistent.
        eui64: Option<String> | unset => Fixed;
        /// Tenant that commands of this namespace count for, on every controller. Default: the
        /// controller's tenant.
        tenant: Option<String> | unset => Live;
        /// Weight among the namespaces of one tenant on the medium: 1 to 10000. Default: 100.
        weight: Option<u32> | unset => Live;
    }
}

//! `survival`: what happens to hosts when the server's process dies.

use super::object::object;

object! {
    /// Survival of hosts when the server's process dies or is replaced.
    #[derive(Default, Eq)]
    pub struct Survival(SurvivalKeys, "survival") {
        /// Keep hosts attached when the server's process dies or is upgraded, as `serve --survive`
        /// does.
        enabled: bool | unset => Restart;
    }
}

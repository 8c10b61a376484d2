//! The protocol tests of nvmirage.

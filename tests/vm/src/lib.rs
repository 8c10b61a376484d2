//! The vm tests of nvmirage.

//! The tests, a file per chapter.

mod admin;
mod copy;
mod doorbells;
mod errors;
mod features;
mod format;
mod fused;
mod identify;
mod interrupts;
mod io;
mod key_value;
mod logs;
mod namespaces;
mod optional;
mod pci;
mod pointers;
mod queues;
mod registers;
mod reservations;
mod sanitize;
mod sharing;
mod zones;

use crate::{Bench, Verdict};

/// One check of a controller.
#[derive(Clone, Copy)]
pub struct Test {
    /// Its name, unique in its chapter.
    pub name: &'static str,
    /// What demands it: a specification and a section.
    pub section: &'static str,
    /// What is so where it passes.
    pub title: &'static str,
    /// The check itself, on a controller that is enabled.
    pub(crate) run: fn(&mut Bench) -> Verdict,
}

/// Tests that belong together.
#[derive(Clone, Copy)]
pub struct Chapter {
    /// Its name, as the command line has it.
    pub name: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Its tests, in the order in which they are run.
    pub tests: &'static [Test],
}

/// Every chapter, in order.
pub const CHAPTERS: &[Chapter] = &[
    registers::CHAPTER,
    pci::CHAPTER,
    queues::CHAPTER,
    doorbells::CHAPTER,
    interrupts::CHAPTER,
    identify::CHAPTER,
    admin::CHAPTER,
    features::CHAPTER,
    logs::CHAPTER,
    io::CHAPTER,
    pointers::CHAPTER,
    optional::CHAPTER,
    fused::CHAPTER,
    copy::CHAPTER,
    errors::CHAPTER,
    format::CHAPTER,
    namespaces::CHAPTER,
    sanitize::CHAPTER,
    reservations::CHAPTER,
    sharing::CHAPTER,
    key_value::CHAPTER,
    zones::CHAPTER,
];

/// A table of tests: name, section, title.
macro_rules! tests {
    ($($name:ident, $section:literal, $title:literal;)*) => {
        &[$($crate::chapters::Test {
            name: stringify!($name),
            section: $section,
            title: $title,
            run: $name,
        }),*]
    };
}
use tests;

//! The tests, a file per chapter.

mod admin;
mod copy;
mod doorbells;
mod errors;
mod fabrics;
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

/// Which controllers a test is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every controller.
    Any,
    /// Controllers over PCIe; why not those over NVMe/TCP.
    Pcie(&'static str),
    /// Controllers over NVMe/TCP.
    Fabrics,
}

impl Scope {
    /// Why a test is not for a controller; `None` where it is.
    #[must_use]
    pub fn excludes(self, is_over_fabrics: bool) -> Option<&'static str> {
        match self {
            Self::Pcie(why) if is_over_fabrics => Some(why),
            Self::Fabrics if !is_over_fabrics => Some(why::FABRICS),
            _ => None,
        }
    }
}

/// Why tests are not for some controllers.
mod why {
    pub(super) const PRPS: &str = "it is about PRPs, which NVMe/TCP does not have";
    pub(super) const POINTERS: &str =
        "over NVMe/TCP data are in capsules and PDUs, and a descriptor names no memory";
    pub(super) const RINGS: &str =
        "over NVMe/TCP a queue is a connection; rings and doorbells are the host's own";
    pub(super) const INTERRUPTS: &str = "over NVMe/TCP there are no interrupts";
    pub(super) const FUNCTION: &str = "over NVMe/TCP there is no PCI function";
    pub(super) const REGISTERS: &str =
        "over NVMe/TCP hosts reach CAP, VS, CC, CSTS, NSSR and CRTO, each as a whole";
    pub(super) const IDENTIFIER: &str = "over NVMe/TCP Connect sets the Host Identifier";
    pub(super) const CONTROLLER: &str =
        "over NVMe/TCP a host that connects again has another controller";
    pub(super) const PCIE: &str = "it is about the PCIe transport";
    pub(super) const FABRICS: &str = "it is about NVMe over Fabrics";
}

/// One check of a controller.
#[derive(Clone, Copy)]
pub struct Test {
    /// Its name, unique in its chapter.
    pub name: &'static str,
    /// Source of the demand: a specification and a section.
    pub section: &'static str,
    /// The statement that holds where it passes.
    pub title: &'static str,
    /// Which controllers it is for, within its chapter's.
    scope: Scope,
    /// The check itself, on a controller that is enabled.
    pub(crate) run: fn(&mut Bench) -> Verdict,
}

impl Test {
    /// Which controllers it is for: tests of the transport over PCIe are for no other.
    #[must_use]
    pub fn scope(&self) -> Scope {
        let of_pcie = ["PCI 3.0, ", "PCIe Transport 1.1, "];
        match self.scope {
            Scope::Any if of_pcie.iter().any(|of| self.section.starts_with(of)) => {
                Scope::Pcie(why::PCIE)
            }
            scope => scope,
        }
    }
}

/// Tests that belong together.
#[derive(Clone, Copy)]
pub struct Chapter {
    /// Its name, as the command line has it.
    pub name: &'static str,
    /// Its subject.
    pub title: &'static str,
    /// Which controllers it is for.
    pub scope: Scope,
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
    fabrics::CHAPTER,
];

/// A table of tests: name, section, title, and `pcie` with why it is not for NVMe/TCP.
macro_rules! tests {
    (@scope) => { $crate::chapters::Scope::Any };
    (@scope $why:expr) => { $crate::chapters::Scope::Pcie($why) };
    ($($name:ident, $section:literal, $title:literal $(, pcie $why:expr)?;)*) => {
        &[$($crate::chapters::Test {
            name: stringify!($name),
            section: $section,
            title: $title,
            scope: tests!(@scope $($why)?),
            run: $name,
        }),*]
    };
}
use tests;

//! The laboratory: measures, compares, models and explains drives, this program's and others'.
//!
//! Benchmarks, calibration, simulation, conformance, traces after they were recorded, the doctor,
//! and the commands for all of them. It does NOT serve drives, and does not know how they are
//! served: it reaches them as any host does.
#![forbid(unsafe_code)]

mod amplification;
mod calibrate;
pub mod cli;
mod demo;
mod doctor;
mod figures;
mod identity;
mod job;
mod line;
mod physical;

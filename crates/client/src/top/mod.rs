//! `nvmirage top`: a live view of a running server in a terminal.
//!
//! A thread polls the server's counters ([`source`]), and each answer becomes a [`sample::Sample`].
//! [`rates`] keeps recent samples and computes rates, [`app`] holds the state of the view and
//! handles keys, [`draw`] renders it into a grid of cells, and [`screen`] shows the grid in the
//! terminal or writes it as text.
//!
//! Only `source` knows the server and only `screen` the terminal; everything between takes numbers
//! and produces cells.

mod app;
mod draw;
mod rates;
mod sample;
mod screen;
mod source;

#[cfg(test)]
mod tests;

pub(crate) use screen::{Options, print, run};

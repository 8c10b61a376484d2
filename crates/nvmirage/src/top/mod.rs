//! `nvmirage top`: a view of a running server in a terminal.
//!
//! A thread asks the server for what it counts ([`source`]), and each answer becomes a
//! [`sample::Sample`]. [`rates`] keeps some of them and says what happened in between, [`app`] what
//! is to be shown of it and what keys do, and [`draw`] puts it into a grid of cells, which
//! [`screen`] shows in the terminal, or writes as text.
//!
//! Only `source` knows the server and only `screen` the terminal: the rest is numbers in and cells
//! out.

mod app;
mod draw;
mod rates;
mod sample;
mod screen;
mod source;

#[cfg(test)]
mod tests;

pub(crate) use screen::{Options, print, run};

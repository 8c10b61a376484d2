//! Where the data lives: null, ram and file.

//! Whose turn it is: lanes, arbitration, and when to sleep.

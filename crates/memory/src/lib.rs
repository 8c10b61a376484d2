//! Where the bytes are: the only crate that maps memory and shares it.

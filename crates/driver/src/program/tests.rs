use super::*;
use crate::DriverError;

#[test]
fn keys_are_the_digits_of_their_number() {
    assert_eq!(&key(0), b"0000000000000000");
    assert_eq!(&key(0x0123_4567_89ab_cdef), b"0123456789abcdef");
    assert_eq!(&key(u64::MAX), b"ffffffffffffffff");
}

#[test]
fn a_compound_command_has_a_head_and_its_parts() {
    let command = |count, len| Command::StoreTogether { key: 1, count, len };
    // 512 of head, and each part 64 of its own, 64 of key, 4096 of value.
    assert_eq!(command(8, 4096).data_len(), 512 + 8 * (64 + 64 + 4096));
    // Values are padded to 64.
    assert_eq!(command(1, 1).data_len(), 512 + 64 + 64 + 64);
}

#[test]
fn an_error_names_the_command() {
    let error = DriverError::Unsupported(format!("{:?}", Command::ResetZone { offset: 4096 }));
    assert!(error.to_string().contains("ResetZone"));
}

#[test]
fn an_append_moves_its_bytes() {
    let append = Command::Append {
        offset: 0,
        len: 8192,
    };
    assert_eq!(append.data_len(), 8192);
}

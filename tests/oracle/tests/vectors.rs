//! Cases worked out by hand, and a short look at random commands.

use anyhow::Result;
use tests_oracle::drive::drive;
use tests_oracle::{compare, points, vectors};

fn by_hand(kind: &str) -> Result<()> {
    let vectors = vectors::read()?;
    let of_kind: Vec<_> = vectors
        .iter()
        .filter(|vector| vector.name.starts_with(kind))
        .collect();
    assert!(of_kind.len() >= 12);
    for vector in of_kind {
        let done = drive(&vector.document)?.done;
        assert_eq!(done, vector.done, "{}\n{}", vector.name, vector.working);
    }
    Ok(())
}

#[test]
fn nvm_by_hand() -> Result<()> {
    by_hand("nvm:")
}

#[test]
fn key_value_by_hand() -> Result<()> {
    by_hand("kv:")
}

#[test]
fn flash_by_hand() -> Result<()> {
    by_hand("flash:")
}

#[test]
fn zones_by_hand() -> Result<()> {
    by_hand("zns:")
}

/// The stage `oracle` has many more commands.
#[test]
fn random_commands_as_the_oracle() {
    for case in compare::cases().unwrap() {
        let compared = compare::compare(&case, 77, 400).unwrap();
        if let Some(first) = compared.first {
            panic!("{}\n{first}", compared.label);
        }
    }
}

/// Records at the points where drives are compared; the stage `oracle` compares all of them.
#[test]
fn recorded_points_are_what_the_oracle_says() {
    for (preset, point) in [
        ("optane-p4800x@paper", "4096 qd1 "),
        ("samsung-970-pro@code", "read 16384 qd1 "),
        ("zns-prototype@paper", "write 196608 qd1 x2"),
        ("samsung-kvssd@paper", "store 1024 qd32"),
    ] {
        let answers = points::ask(preset, point).unwrap();
        assert!(!answers[preset].is_empty(), "{preset}, {point}");
        let differing = points::differing(preset, point).unwrap();
        assert!(
            differing.is_empty(),
            "cargo xtask oracle --record-points\n{}",
            differing.join("\n")
        );
    }
}

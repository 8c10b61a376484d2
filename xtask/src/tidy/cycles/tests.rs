//! Crates of a few lines, with circles and without.

use super::*;

/// The findings in a crate `x` of these files.
fn said(files: &[(&str, &str)]) -> Vec<String> {
    let path = |name: &str| format!("crates/x/src/{name}");
    let sources = files
        .iter()
        .map(|(name, text)| (path(name), (*text).to_owned()));
    let findings = check(&sources.collect());
    findings.iter().map(Finding::to_string).collect()
}

#[test]
fn a_circle_is_found_with_a_place_of_each_use() {
    let lib = ("lib.rs", "mod a;\nmod b;\nmod c;\n");
    let found = said(&[
        lib,
        (
            "a.rs",
            "fn f() {\n    crate::b::g();\n    crate::b::g();\n}\n",
        ),
        ("b/mod.rs", "mod deep;\n"),
        (
            "b/deep.rs",
            "use std::fmt;\n\nuse super::super::c::{self, C};\n",
        ),
        ("c.rs", "use crate::{\n    a::{A, B as D},\n};\n"),
    ]);
    assert_eq!(
        found,
        [
            "crates/x: the modules a, b, c import each other in a circle: a uses b at src/a.rs:2, \
          b uses c at src/b/deep.rs:3, c uses a at src/c.rs:2; what they share goes below them"
        ]
    );
}

#[test]
fn circles_apart_from_each_other_are_two() {
    let found = said(&[
        ("a.rs", "use crate::b::B;"),
        ("b.rs", "use crate::a::A; use crate::c::C;"),
        ("c.rs", "use super::d::D;"),
        ("d.rs", "use super::c::C;"),
    ]);
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn modules_in_an_order_pass() {
    let found = said(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        (
            "a/mod.rs",
            "mod one; mod two; use crate::b::B; use crate::c::C;",
        ),
        // A module and its children are one subject.
        ("a/one.rs", "use super::two::T; use super::A;"),
        (
            "a/two.rs",
            "use crate::a::A; use super::super::b::two::one::B;",
        ),
        (
            "b.rs",
            "use crate::c::C; use c::a::A; fn f() { a::f(); self::a::f(); x.a::<u8>(); }",
        ),
        (
            "c.rs",
            "use other::crate_a; mod inner { use super::super::c::C; use super::X; }",
        ),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn children_of_a_module_are_looked_at_as_well() {
    let a = ("a/mod.rs", "mod one; mod two; pub use self::two::{T, U};");
    let one = ("a/one.rs", "use super::T;");
    for takes in [
        "use super::one::O;",
        "use crate::a::one::O;",
        "mod deep { use super::super::one::O; }",
        "use super::super::a::one;",
    ] {
        let found = said(&[a, one, ("a/two.rs", takes)]);
        assert_eq!(found.len(), 1, "{takes}: {found:?}");
        assert!(found[0].starts_with("crates/x/a: the modules one, two "));
    }
    // What a parent has from elsewhere is no child's.
    let a = (
        "a/mod.rs",
        "mod one; mod two; use crate::b::T; use other::U;",
    );
    let two = ("a/two.rs", "use super::one::O;");
    assert_eq!(said(&[a, ("b.rs", ""), one, two]), [""; 0]);
    // And deeper.
    let found = said(&[
        ("a/b/c/one.rs", "use super::two::T;"),
        ("a/b/c/two.rs", "use crate::a::b::c::one::O;"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn names_at_the_root_stand_for_their_modules() {
    let b = ("b.rs", "use crate::Again;");
    for root in [
        "mod a; mod b; pub use a::A as Again; pub use b::B;",
        "mod a; mod b; pub use self::a::{Again, C}; pub use crate::b::{B};",
        "mod a; mod b; pub(crate) use a::A; use self::A as Again; use b::B;",
    ] {
        let found = said(&[("lib.rs", root), ("a.rs", "use crate::B;"), b]);
        assert_eq!(found.len(), 1, "{root}: {found:?}");
        assert!(found[0].contains("the modules a, b "), "{found:?}");
    }
    // A name from another crate stands for no module.
    let root = "mod a; mod b; pub use other::Again; pub use b::B;";
    assert_eq!(
        said(&[("lib.rs", root), ("a.rs", "use crate::B;"), b]),
        [""; 0]
    );
}

#[test]
fn the_root_may_be_in_a_circle_but_gives_out_what_it_likes() {
    let a = ("a.rs", "use super::Own; use crate::b::B;");
    let b = ("b.rs", "");
    let gives = "mod a; mod b; pub use a::A; pub use b::*; pub struct Own;";
    assert_eq!(said(&[("lib.rs", gives), a, b]), [""; 0]);
    for takes in [
        "use a::F;",
        "fn f() { a::f() }",
        "pub use a::A; fn f(a: A) {}",
    ] {
        let root = format!("mod a; mod b; pub struct Own; {takes}");
        let found = said(&[("lib.rs", &root), a, b]);
        assert_eq!(found.len(), 1, "{takes}: {found:?}");
        assert!(found[0].contains("the modules a, the root "), "{found:?}");
    }
    // A field, and a variable, that are called as a module.
    let root = "mod a; mod b; pub struct Own { a: u8 } fn f(own: Own, a: u8) { own.a + a; }";
    assert_eq!(said(&[("lib.rs", root), a, b]), [""; 0]);
}

#[test]
fn tests_are_passed_over() {
    for test in [
        "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
        "#[cfg(test)]\n#[allow(x)]\npub(crate) mod tests;\n",
        "#[cfg(test)] use crate::a::{A, B};",
        "#[cfg(test)] fn f<X, Y>(x: X) -> crate::a::A { crate::a::A }",
        "struct S { #[cfg(test)] x: crate::a::A, }",
        "#[cfg(all(test, unix))] impl crate::a::A { }",
        "#![cfg(test)] use crate::a::A;",
    ] {
        let b = format!("{test} fn g() {{}}");
        let found = said(&[
            ("a.rs", "use crate::b::B;"),
            ("b/mod.rs", &b),
            ("b/tests.rs", "use crate::a::A;"),
        ]);
        let is_declared = test.contains("mod tests");
        assert_eq!(found.len(), usize::from(!is_declared), "{test}: {found:?}");
        let found = said(&[("a.rs", "use crate::b::B;"), ("b.rs", &b)]);
        assert_eq!(found, [""; 0], "{test}");
    }
    let b = "#[cfg(test)] mod tests { } fn g() { crate::a::f() } #[cfg(not(test))] mod x;";
    assert_eq!(said(&[("a.rs", "use crate::b::B;"), ("b.rs", b)]).len(), 1);
}

#[test]
fn comments_and_literals_are_passed_over() {
    let b = r##"
        //! See [`crate::a`].
        /* use crate::a::A; */
        const B: &str = "use crate::a::A;";
        const C: &str = r#"crate::a"#; // crate::a::A
    "##;
    assert_eq!(said(&[("a.rs", "use crate::b::B;"), ("b.rs", b)]), [""; 0]);
}

#[test]
fn each_crate_is_its_own_and_only_its_sources_count() {
    let source = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let sources = BTreeMap::from([
        source("crates/x/src/a.rs", "use crate::b::B;"),
        source("crates/y/src/b.rs", "use crate::a::A;"),
        source("crates/x/tests/b.rs", "use crate::a::A;"),
        source("crates/x/src/bin/b.rs", "use crate::a::A;"),
        source("xtask/src/b.rs", "use crate::a::A;"),
    ]);
    assert_eq!(check(&sources), []);
}

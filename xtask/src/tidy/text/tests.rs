//! Every rule is shown a text that breaks it, and one that does not.

use super::*;

fn found(name: &str, source: &str) -> Vec<String> {
    check(name, source.as_bytes())
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// What is found in an ordinary Rust file.
fn found_in_rust(source: &str) -> Vec<String> {
    found("crates/model/src/x.rs", source)
}

/// What is found in a file that may hold unsafe code.
fn found_in_memory(source: &str) -> Vec<String> {
    found("crates/memory/src/x.rs", source)
}

fn assert_one(findings: &[String], part: &str) {
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].contains(part), "{findings:?}");
}

#[test]
fn good_files_pass() {
    assert_eq!(
        found_in_rust("//! A module.\n\nfn f(x: &'static str) -> usize {\n\tx.len()\n}\n"),
        [""; 0]
    );
    assert_eq!(found("README.md", "# Größe → 3 µs, ≥ 2 ✓\n"), [""; 0]);
}

#[test]
fn wide_comments() {
    let wide = "x".repeat(97);
    assert_eq!(found_in_rust(&format!("// {wide}\n")), [""; 0]);
    for comment in [format!("/// {wide}x"), format!("f(); // {wide}")] {
        assert_one(&found_in_rust(&format!("{comment}\n")), "beyond column 100");
    }
    let row = format!("//! | a | {wide} |\nconst TEXT: &str = \"{wide}{wide}\";\n");
    assert_eq!(found_in_rust(&row), [""; 0]);
}

#[test]
fn control_characters() {
    assert_one(
        &found("README.md", "a\r\n"),
        "README.md:1: has the control character U+000D",
    );
    assert_one(
        &found("README.md", "a\n\u{202e}b\n"),
        "README.md:2: has the control character U+202E",
    );
    assert_one(&found("a.toml", "\u{feff}a\n"), "U+FEFF");
    assert_one(&found("a.toml", "a\u{85}\n"), "U+0085");
    assert_one(&found("a.toml", "\u{1b}[0m\n"), "U+001B");
    assert_one(
        &check("a.md", &[0xff])
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        "UTF-8",
    );
}

#[test]
fn paths_of_a_machine() {
    for folder in ["home", "work", "root", "Users"] {
        let path = format!("/{folder}/somebody/x");
        assert_one(
            &found("README.md", &format!("see {path}\n")),
            "a path of somebody's machine",
        );
        assert_one(
            &found_in_rust(&format!("const P: &str = \"{path}\";\n")),
            "machine",
        );
        assert_eq!(
            found("README.md", &format!("target{path} and ../{folder}/\n")),
            [""; 0]
        );
    }
}

#[test]
fn long_files() {
    assert_eq!(found_in_rust(&"//! a\n".repeat(700)), [""; 0]);
    assert_one(&found_in_rust(&"//! a\n".repeat(701)), "has 701 lines");
    assert_eq!(found("book/src/a.md", &"a\n".repeat(701)), [""; 0]);
}

#[test]
fn long_files_of_the_dashboard_and_what_is_built_of_it() {
    let long = "x\n".repeat(800);
    assert_one(&found("web/src/a.tsx", &long), "is the limit");
    assert!(found("web/package-lock.json", &long).is_empty());
    let built = check_name("web/node_modules/vite/index.js").unwrap();
    assert!(built.what.contains("is built of others"));
    assert!(check_name("web/dist/assets/index-1.js").is_some());
    assert_eq!(check_name("web/src/main.tsx"), None);
}

#[test]
fn examples_in_comments() {
    let drawing = "//! ```text\n//! a -> b\n//! ```\n\n/// ```text\n/// c\n/// ```\nfn f() {}\n";
    assert_eq!(found_in_rust(drawing), [""; 0]);
    assert_eq!(
        found_in_rust("// ```\nconst F: &str = \"/// ```\";\n"),
        [""; 0]
    );
    for language in ["", "rust", "no_run", "ignore"] {
        let example =
            format!("/// It adds.\n///\n/// ```{language}\n/// f();\n/// ```\nfn f() {{}}\n");
        assert_one(&found_in_rust(&example), "has an example in a comment");
    }
}

#[test]
fn unsafe_code_in_the_wrong_place() {
    let source = "// SAFETY: it is.\nunsafe { f() }\n";
    assert_one(
        &found_in_rust(source),
        "crates/model/src/x.rs:2: unsafe code belongs in",
    );
    assert_one(&found("crates/media/src/file/mod.rs", source), "belongs in");
    assert_one(&found("xtask/src/x.rs", "unsafe fn f() {}\n"), "belongs in");
    assert_eq!(found_in_memory(source), [""; 0]);
    assert_eq!(found("crates/media/src/file/ring/mod.rs", source), [""; 0]);
    assert_eq!(found("crates/ublk/src/device.rs", source), [""; 0]);
    assert_one(&found("crates/ublk/src/abi.rs", source), "belongs in");
    assert_eq!(
        found_in_rust("// unsafe { }\nconst A: &str = \"unsafe {\"; // unsafe\n"),
        [""; 0]
    );
    assert_eq!(found_in_rust("#![forbid(unsafe_code)]\n"), [""; 0]);
}

#[test]
fn unsafe_code_without_a_reason() {
    assert_one(
        &found_in_memory("fn f() {\n    unsafe { g() }\n}\n"),
        "x.rs:2: unsafe without a reason",
    );
    assert_one(
        &found_in_memory("unsafe impl Send for T {}\n"),
        "without a reason",
    );
    assert_one(
        &found_in_memory("// SAFETY: for another.\nf();\nlet x =\n    unsafe { g() };\n"),
        "x.rs:4",
    );
    assert_one(
        &found_in_memory("// SAFETY: a\n\nunsafe { g() }\n"),
        "x.rs:3",
    );
    assert_one(
        &found_in_memory("// A remark.\nunsafe { g(\"SAFETY:\") }\n"),
        "x.rs:2",
    );
    let good = "// SAFETY: a long\n// reason.\n#[inline]\nlet x: u64 =\n    unsafe { g() };\n\
                unsafe { g() } // SAFETY: short\n\
                /// # Safety\n/// The caller sees to it.\nunsafe fn h() {}\n";
    assert_eq!(found_in_memory(good), [""; 0]);
}

#[test]
fn unfinished_code() {
    assert_one(
        &found_in_rust(concat!("// FIX", "ME: later\n")),
        "solve it now",
    );
    assert_one(
        &found_in_rust(concat!("fn f() {} // XX", "X\n")),
        "solve it now",
    );
    assert_one(&found_in_rust("fn f() { todo!() }\n"), "todo!: write it");
    assert_one(
        &found_in_rust("fn f() {\n    unimplemented!(\"x\")\n}\n"),
        "x.rs:2: unimplemented!",
    );
    assert_one(
        &found_in_rust("#[allow(dead_code)]\nfn f() {}\n"),
        "remove what nothing uses",
    );
    assert_one(
        &found_in_rust("#![expect(unused, dead_code)]\n"),
        "remove what nothing uses",
    );
    assert_eq!(
        found_in_rust("// dead_code and todo! in words\nconst A: &str = \"todo!()\";\n"),
        [""; 0]
    );
}

#[test]
fn tests_that_are_not_run() {
    assert_one(
        &found_in_rust("#[test]\n#[ignore]\nfn t() {}\n"),
        "x.rs:2: a test that is not run",
    );
    assert_one(
        &found_in_rust("#[test]\n#[ignore = \"slow\"]\nfn t() {}\n"),
        "not run",
    );
    assert_one(
        &found_in_rust("#[cfg_attr(miri, ignore)]\nfn t() {}\n"),
        "not run",
    );
    assert_eq!(
        found_in_rust("fn ignore() { let x = [ignore]; }\n"),
        [""; 0]
    );
}

#[test]
fn crates_that_are_not_strict() {
    let lints = "#![deny(clippy::disallowed_types, clippy::disallowed_methods, clippy::disallowed_macros)]\n";
    let forbid = "#![forbid(unsafe_code)]\n";
    let engine = |source: &str| found("crates/engine/src/lib.rs", source);
    assert_eq!(engine(&format!("{forbid}{lints}")), [""; 0]);
    assert_one(&engine(lints), "must start with #![forbid(unsafe_code)]");
    assert_one(
        &engine(forbid),
        "must start with #![deny(clippy::disallowed_types",
    );
    assert_one(
        &engine(&format!("{forbid}// {lints}")),
        "must start with #![deny(",
    );
    assert_one(
        &found("crates/nvmirage/src/main.rs", "fn main() {}\n"),
        "forbid",
    );
    assert_eq!(found("crates/memory/src/lib.rs", lints), [""; 0]);
}

#[test]
fn crates_that_look_at_the_machine() {
    let api = |source: &str| found("crates/api/src/config/read.rs", source);
    assert_one(&api("use std::fs::File;\n"), "std::fs: this crate reads no");
    assert_one(&api("let now = Instant::now();\n"), "Instant::now");
    assert_eq!(api("// std::fs\nlet text = \"std::env\";\n"), [""; 0]);
    assert_eq!(
        api("fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n"),
        [""; 0]
    );
    assert_eq!(
        found("crates/api/src/config/tests.rs", "use std::fs;\n"),
        [""; 0]
    );
    assert_eq!(
        found("crates/lab/src/physical/mod.rs", "use std::fs;\n"),
        [""; 0]
    );
}

#[test]
fn text_is_known_by_name() {
    for name in [
        "a/b.rs",
        "LICENSE-MIT",
        ".ci/run",
        "crates/guest-rig/guest/init",
        ".gitignore",
        "Cargo.lock",
    ] {
        assert!(is_text(name), "{name}");
    }
    for name in [
        "fuzz/corpus/sqe/0a1b2c",
        "fuzz/corpus/sqe/seed.txt",
        "tests/protocol/session.bin",
        "a.png",
    ] {
        assert!(!is_text(name), "{name}");
    }
}

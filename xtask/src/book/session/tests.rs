use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::book::page::parse;

/// Runs a page with a program that prints its arguments.
fn ran(source: &str) -> Ran {
    let (page, findings) = parse("a.md", source, &|_| None);
    assert_eq!(findings, []);
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("nvmirage");
    let script =
        "#!/bin/sh\nif [ \"$1\" = check ]; then grep -q good \"$2\"; else echo \"ran $*\"; fi\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let workspace = Workspace::locate().unwrap();
    let with = With {
        workspace: &workspace,
        program: &program,
        interrupt: &Interrupt::default(),
    };
    run(&page, with).unwrap()
}

/// The one failure of a page.
fn failure(source: &str) -> String {
    let mut ran = ran(source);
    assert_eq!(ran.failures.len(), 1, "{ran:?}");
    ran.failures.remove(0)
}

#[test]
fn blocks_are_run_in_one_shell_and_counted() {
    let source = "<!-- book: run\nx=5\n-->\n```sh\ncd /tmp && alias say='nvmirage say'\n```\n\
        ```sh\nsay $x; pwd\n```\n<!-- book: output -->\n```text\nran say 5\n/tmp\n```\n\
        ```json\n[]\n```\n```toml\ngood = 1\n```\n```sh\n# not run: no drive\nfalse\n```\n";
    let ran = ran(source);
    assert_eq!(ran.failures, Vec::<String>::new());
    assert_eq!((ran.commands, ran.checked, ran.outputs), (2, 2, 1));
    assert_eq!(ran.not_run, [("a.md:21".to_owned(), "no drive".to_owned())]);
}

#[test]
fn a_block_that_fails_fails_the_page() {
    let why = failure(
        "```sh\ntrue\n```\n\n```sh\necho hello\nls /tmp/nothing\n```\n```sh\ntouch /tmp/x\n```\n",
    );
    assert!(
        why.starts_with("a.md:5: it failed (exit status: 2), at: ls /tmp/nothing"),
        "{why}"
    );
    assert!(
        why.contains("hello") && why.contains("No such file"),
        "{why}"
    );
    // in a pipe, too
    assert!(failure("```sh\nfalse | cat\n```\n").contains("a.md:1"));
}

#[test]
fn what_is_to_fail_must_fail() {
    assert_eq!(ran("<!-- book: fails -->\n```sh\nfalse\n```\n").commands, 1);
    let why = failure("<!-- book: fails -->\n```sh\ntrue\n```\n");
    assert!(why.contains("should have failed"), "{why}");
}

#[test]
fn a_configuration_that_is_refused_or_json_that_is_none_fails() {
    assert!(failure("```toml\nbad = 1\n```\n").contains("a.md:1"));
    assert!(failure("```json\n{\n```\n").contains("a.md:1: is no JSON"));
    let source = "<!-- book: before\ngood\n-->\n```toml\nx = 1\n```\n";
    assert_eq!(ran(source).checked, 1);
}

#[test]
fn an_output_that_does_not_come_fails() {
    let why = failure("```sh\necho a\n```\n<!-- book: output -->\n```text\nb\n```\n");
    assert!(
        why.starts_with("a.md:5: is not what comes, from the line `b` on"),
        "{why}"
    );
}

#[test]
fn a_server_runs_beside_the_rest_and_is_ended_with_the_page() {
    let serve = "sh -c 'trap \"exit 0\" TERM; echo ready: here; while :; do sleep 0.1; done'";
    let ran = ran(&format!(
        "<!-- book: background -->\n```sh\n{serve}\n```\n<!-- book: output -->\n```text\nready: here\n```\n```sh\necho b\n```\n"
    ));
    assert_eq!(ran.failures, Vec::<String>::new());
    assert_eq!((ran.commands, ran.outputs), (2, 1));
    let dead = failure("<!-- book: background -->\n```sh\necho over\n```\n");
    assert!(dead.contains("ended before it printed: ready:"), "{dead}");
    let bad = failure(
        "<!-- book: background until \"a\" -->\n```sh\nsh -c 'trap \"exit 3\" TERM; echo a; while :; do sleep 0.1; done'\n```\n",
    );
    assert!(bad.contains("its end") && bad.contains("status 3"), "{bad}");
}

#[test]
fn folders_of_the_machine_are_the_pages_own() {
    let own = |text: &str| in_own_folders(text, Path::new("/p"));
    assert_eq!(
        own("vfio-user:/tmp/a.sock /tmp"),
        "vfio-user:/p/tmp/a.sock /p/tmp"
    );
    assert_eq!(own("x=\"/run/nvmirage/a\""), "x=\"/p/run/nvmirage/a\"");
    for same in [
        "a/tmp/b",
        "$X/tmp",
        "/tmpfs",
        "~/run/x",
        "http://run/x",
        "/usr/run",
    ] {
        assert_eq!(own(same), same);
    }
}

#[test]
fn the_first_command_has_its_continued_lines() {
    assert_eq!(first_command("a \\\n  b\nc\n"), ("a \\\n  b\n", "c\n"));
    assert_eq!(first_command("# x\na\n"), ("# x\na\n", ""));
}

use super::*;

fn no_file(_: &str) -> Option<String> {
    None
}

fn blocks(source: &str) -> Vec<Block> {
    let (page, findings) = parse("a.md", source, &no_file);
    assert_eq!(findings, []);
    page.blocks
}

fn kinds(source: &str) -> Vec<Kind> {
    blocks(source).into_iter().map(|block| block.kind).collect()
}

/// What is wrong with a page, each with its line.
fn wrong(source: &str) -> Vec<(usize, String)> {
    let (_, findings) = parse("a.md", source, &no_file);
    findings
        .into_iter()
        .map(|finding| (finding.line, finding.what))
        .collect()
}

#[test]
fn a_language_says_what_is_done() {
    let source =
        "# A\n\n```sh\na\nb\n```\ntext\n```toml\nx = 1\n```\n```json\n{}\n```\n```text\nt\n```\n";
    let all = blocks(source);
    assert_eq!(
        all[0],
        Block {
            line: 3,
            kind: Kind::Commands(Commands::default()),
            text: "a\nb\n".into()
        }
    );
    let configuration = Kind::Configuration {
        before: String::new(),
        file: None,
    };
    assert_eq!((&all[1].kind, all[1].line), (&configuration, 8));
    assert_eq!((&all[2].kind, &all[3].kind), (&Kind::Json, &Kind::Shown));
}

#[test]
fn a_fence_without_a_language_or_of_an_unknown_one_is_refused() {
    let found = wrong("```\na\n```\n\n```bash\na\n```\n\n```console\n$ a\n```\n");
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].1.contains("has no language"), "{found:?}");
    assert!(found[1].0 == 5 && found[1].1.contains("bash"), "{found:?}");
    assert!(
        found[2].0 == 9 && found[2].1.contains("console"),
        "{found:?}"
    );
}

#[test]
fn what_is_not_run_has_a_reason() {
    let reason = |text: &str| Kind::NotRun(text.to_owned());
    assert_eq!(
        kinds("```sh\n# not run: no drive here\nrm x\n```\n"),
        [reason("no drive here")]
    );
    assert_eq!(
        kinds("```xml\n<!-- not run: a part -->\n<a/>\n```\n"),
        [reason("a part")]
    );
    assert_eq!(
        kinds("<!-- book: not run: takes hours -->\n```sh\nx\n```\n"),
        [reason("takes hours")]
    );
    for source in [
        "```sh\n# not run\nx\n```\n",
        "```sh\n# not run:  \nx\n```\n",
        "<!-- book: not run -->\n```sh\nx\n```\n",
        "<!-- book: not run: -->\n```sh\nx\n```\n",
    ] {
        let found = wrong(source);
        assert!(
            found
                .iter()
                .any(|(_, what)| what.contains("needs a reason")),
            "{source}: {found:?}"
        );
    }
}

#[test]
fn marks_say_how_commands_are_run() {
    let commands = |source: &str| match kinds(source).remove(0) {
        Kind::Commands(commands) => commands,
        other => panic!("{other:?}"),
    };
    let marked = |mark: &str| commands(&format!("<!-- book: {mark} -->\n\n```sh\nx\n```\n"));
    assert_eq!(marked("background").background.unwrap(), "ready: ");
    assert_eq!(
        marked("background until \"controller b\"")
            .background
            .unwrap(),
        "controller b"
    );
    assert_eq!(marked("guest").guest, Some(1));
    let both = marked("guest 2, fails");
    assert!(both.guest == Some(2) && both.fails && !both.hidden);
    let hidden = blocks("<!-- book: run, background\nserve\nls\n-->\ntext\n");
    assert_eq!(hidden[0].text, "serve\nls\n");
    let Kind::Commands(commands) = &hidden[0].kind else {
        panic!("{hidden:?}");
    };
    assert!(commands.hidden && commands.background.is_some());
}

#[test]
fn files_outputs_and_parts() {
    let source = "<!-- book: file a.fio -->\n```ini\nx\n```\n\
        <!-- book: file a.toml -->\n```toml\nx = 1\n```\n\
        <!-- book: before\n[[media]]\n-->\n```toml\nx = 1\n```\n\
        <!-- book: output, numbers vary -->\n```text\n1\n```\n";
    let file = Some("a.toml".to_owned());
    let before = "[[media]]\n".to_owned();
    assert_eq!(
        kinds(source),
        [
            Kind::File("a.fio".into()),
            Kind::Configuration {
                before: String::new(),
                file
            },
            Kind::Configuration { before, file: None },
            Kind::Output { numbers_vary: true },
        ]
    );
}

#[test]
fn marks_that_mean_nothing_are_refused() {
    for (source, word) in [
        ("<!-- book: bakground -->\n```sh\nx\n```\n", "is no mark"),
        (
            "<!-- book: background -->\ntext\n```sh\nx\n```\n",
            "no block",
        ),
        ("<!-- book: background -->\n", "no block"),
        (
            "<!-- book: background -->\n```toml\nx = 1\n```\n",
            "of toml",
        ),
        ("<!-- book: output -->\n```sh\nx\n```\n", "of sh"),
        ("<!-- book: run -->\n", "its lines below"),
        ("<!-- book: guest\nx\n-->\n```sh\nx\n```\n", "one line"),
        (
            "<!-- book: file ../a -->\n```sh\nx\n```\n",
            "the page's folder",
        ),
        ("<!-- book: guest x -->\n```sh\nx\n```\n", "have numbers"),
        (
            "<!-- book: fails -->\n<!-- book: guest -->\n```sh\nx\n```\n",
            "two marks",
        ),
        (
            "<!-- book: before\nx\n-->\n```sh\nx\n```\n",
            "for configurations",
        ),
    ] {
        let found = wrong(source);
        assert!(
            found.iter().any(|(_, what)| what.contains(word)),
            "{source}: {found:?}"
        );
    }
}

#[test]
fn included_files_are_part_of_a_block() {
    let include = |file: &str| (file == "x").then(|| "1\n2\n3\n4\n".to_owned());
    let text = |asked: &str| {
        let source = format!("```text\na\n{{{{#include {asked}}}}}\nb\n```\n");
        let (page, findings) = parse("a.md", &source, &include);
        (page.blocks[0].text.clone(), findings.len())
    };
    assert_eq!(text("x"), ("a\n1\n2\n3\n4\nb\n".into(), 0));
    assert_eq!(text("x:3:"), ("a\n3\n4\nb\n".into(), 0));
    assert_eq!(text("x:2:3"), ("a\n2\n3\nb\n".into(), 0));
    assert_eq!(text("y").1, 1);
}

#[test]
fn pages_are_those_of_the_table_of_contents() {
    let summary = "# S\n[A](a.md)\n- [B](b/c.md)\n- [C](b/c.md#d)\n- [D](e.json)\n";
    assert_eq!(pages_of(summary), ["a.md", "b/c.md"]);
}

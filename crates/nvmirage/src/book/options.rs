//! Reference of command-line options, generated from the definition of the command line.

use std::fmt::Write as _;

use clap::{Arg, Command};

use super::{check, first_column, page};

/// Options that every command has.
const COMMON: [&str; 3] = ["help", "version", "log"];

/// The complete definition.
pub(super) fn command_line() -> Command {
    let mut command = crate::cli::command();
    command.build();
    command
}

/// Calls `see` with every command that runs something, and its full name.
pub(super) fn each(command: &Command, path: &str, see: &mut dyn FnMut(&str, &Command)) {
    for sub in command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help")
    {
        let path = format!("{path}{}", sub.get_name());
        see(&path, sub);
        each(sub, &format!("{path} "), see);
    }
}

/// The command's own arguments, without those common to all commands.
pub(super) fn arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && !COMMON.contains(&arg.get_id().as_str()))
}

fn shown(arg: &Arg) -> String {
    let values: Vec<String> = arg
        .get_value_names()
        .into_iter()
        .flatten()
        .map(|name| name.to_string())
        .collect();
    let takes = arg.get_action().takes_values();
    match arg.get_long() {
        Some(long) if takes && arg.is_require_equals_set() => {
            format!("--{long}[={}]", values.join(" "))
        }
        Some(long) if takes => format!("--{long} {}", values.join(" ")),
        Some(long) => format!("--{long}"),
        None => values.join(" "),
    }
}

fn default(arg: &Arg) -> String {
    let values: Vec<String> = arg
        .get_default_values()
        .iter()
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    match (arg.is_required_set(), values.is_empty()) {
        (true, _) => "required".into(),
        (false, true) => String::new(),
        (false, false) => values.join(" "),
    }
}

fn about(arg: &Arg) -> String {
    let text = arg.get_long_help().or(arg.get_help());
    let mut text = text.map(ToString::to_string).unwrap_or_default();
    let words = arg.get_possible_values();
    let words: Vec<&str> = words
        .iter()
        .filter(|word| !word.is_hide_set())
        .map(|word| word.get_name())
        .collect();
    if !words.is_empty() && arg.get_action().takes_values() {
        write!(text, " ({})", words.join(", ")).unwrap();
    }
    // The first paragraph has no full stop, as in `--help`.
    let paragraphs = text.split("\n\n").map(|paragraph| {
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        words.join(" ").trim_end_matches('.').to_owned()
    });
    let paragraphs: Vec<String> = paragraphs.collect();
    paragraphs.join(". ").replace('|', "\\|")
}

#[test]
fn the_book_lists_every_option() {
    let mut text = String::from(
        "# Command-line options\n\nCommands and options of `nvmirage`, generated from the program; `nvmirage COMMAND --help` prints the same, with examples. \
         [Command line](command-line.md) explains behaviour and conditions.\nEvery command also takes `--log FILTER`.\n",
    );
    each(&command_line(), "", &mut |path, command| {
        let about = command.get_about().map(ToString::to_string);
        write!(text, "\n## `{path}`\n\n{}.\n", about.unwrap_or_default()).unwrap();
        let mut rows = String::new();
        for arg in arguments(command) {
            let cell = shown(arg).replace('|', "\\|");
            writeln!(
                rows,
                "| `{cell}` | {} | {} |",
                default(arg),
                self::about(arg)
            )
            .unwrap();
        }
        if !rows.is_empty() {
            write!(text, "\n| argument | default | |\n|---|---|---|\n{rows}").unwrap();
        }
    });
    check("options.md", &text);
}

#[test]
fn the_page_that_explains_commands_has_each_of_them_and_repeats_no_table() {
    let page = page("command-line.md");
    let mut missing = Vec::new();
    each(&command_line(), "", &mut |path, _| {
        let first = path.split(' ').next().unwrap();
        let headings = page.lines().filter(|line| line.starts_with('#'));
        let named = headings
            .flat_map(|line| line.split('`').skip(1).step_by(2))
            .any(|code| code.split(' ').next() == Some(first));
        if !named {
            missing.push(format!("a heading for {path}"));
        }
        if path == first && !page.contains(&format!("(options.md#{path})")) {
            missing.push(format!("a link to the options of {path}"));
        }
    });
    assert_eq!(missing, Vec::<String>::new(), "missing in command-line.md");
    let rows = first_column(&page);
    let repeated: Vec<_> = rows.iter().filter(|row| row.starts_with("--")).collect();
    assert_eq!(
        repeated,
        Vec::<&String>::new(),
        "options of commands are in options.md"
    );
    // and no option that does not exist
    let mut known = vec!["help".to_owned(), "log".to_owned(), "version".to_owned()];
    each(&command_line(), "", &mut |_, command| {
        for arg in command.get_arguments() {
            let aliases = arg.get_visible_aliases().unwrap_or_default();
            let names = arg.get_long().into_iter().chain(aliases);
            known.extend(names.map(str::to_owned));
        }
    });
    let words = page.split("`--").skip(1);
    let told = words.map(|word| {
        word.split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
            .next()
            .unwrap()
    });
    let unknown: Vec<&str> = told
        .filter(|word| !known.iter().any(|one| one == word))
        .collect();
    assert_eq!(
        unknown,
        Vec::<&str>::new(),
        "in command-line.md, and not in the program"
    );
}

//! Splits Rust source into code, comments and literals, as far as the checks of text need it.
//!
//! What it does not do: know any grammar. It expects source that the compiler accepts.

/// A file's text in three copies of the same shape: what belongs to another copy is blanked, and
/// lines stay.
pub(super) struct Split {
    /// Code, with comments and the insides of literals blanked.
    pub(super) code: String,
    /// Comments, with all else blanked.
    pub(super) comments: String,
    /// Literals, with all else blanked.
    pub(super) literals: String,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Code,
    LineComment,
    /// Block comments nest: how deep.
    BlockComment(u32),
    Text,
    /// A raw string ends with a quote and this many `#`.
    RawText(usize),
}

/// Splits `source`.
pub(super) fn split(source: &str) -> Split {
    let chars: Vec<char> = source.chars().collect();
    let mut split = Split {
        code: String::new(),
        comments: String::new(),
        literals: String::new(),
    };
    let mut state = State::Code;
    let mut at = 0;
    while at < chars.len() {
        let (next, length) = step(state, &chars, at);
        let comment = |state| matches!(state, State::LineComment | State::BlockComment(_));
        for &c in &chars[at..at + length] {
            // What opens or closes a comment belongs to the comment.
            let (code, text, inside) = match () {
                () if c == '\n' => ('\n', '\n', '\n'),
                () if comment(state) || comment(next) => (' ', c, ' '),
                () if state == State::Code && next == State::Code && !literal(&chars, at) => {
                    (c, ' ', ' ')
                }
                () => (' ', ' ', c),
            };
            split.code.push(code);
            split.comments.push(text);
            split.literals.push(inside);
        }
        state = next;
        at += length;
    }
    split
}

/// The state after the token at `at`, and how many characters that token takes.
fn step(state: State, chars: &[char], at: usize) -> (State, usize) {
    let c = chars[at];
    let following = chars.get(at + 1).copied();
    match state {
        State::Code => match (c, following) {
            ('/', Some('/')) => (State::LineComment, 2),
            ('/', Some('*')) => (State::BlockComment(1), 2),
            ('"', _) => (State::Text, 1),
            ('r', Some('"' | '#')) if !after_word(chars, at) => raw_start(chars, at),
            ('\'', _) => (State::Code, char_length(chars, at)),
            _ => (State::Code, 1),
        },
        State::LineComment => (if c == '\n' { State::Code } else { state }, 1),
        State::BlockComment(depth) => match (c, following) {
            ('/', Some('*')) => (State::BlockComment(depth + 1), 2),
            ('*', Some('/')) if depth == 1 => (State::Code, 2),
            ('*', Some('/')) => (State::BlockComment(depth - 1), 2),
            _ => (state, 1),
        },
        State::Text => match c {
            '\\' => (state, 2.min(chars.len() - at)),
            '"' => (State::Code, 1),
            _ => (state, 1),
        },
        State::RawText(hashes) => {
            let closes = c == '"' && (1..=hashes).all(|i| chars.get(at + i) == Some(&'#'));
            if closes {
                (State::Code, 1 + hashes)
            } else {
                (state, 1)
            }
        }
    }
}

/// Whether the character at `at` goes on with a word, so that an `r` there starts no raw string.
/// `b` and `c` may stand before the `r` of one.
fn after_word(chars: &[char], at: usize) -> bool {
    let is_word = |i: usize| chars[i].is_alphanumeric() || chars[i] == '_';
    match at {
        0 => false,
        1 => is_word(0) && !matches!(chars[0], 'b' | 'c'),
        _ if matches!(chars[at - 1], 'b' | 'c') => is_word(at - 2),
        _ => is_word(at - 1),
    }
}

/// A raw string, or a raw word such as `r#type`.
fn raw_start(chars: &[char], at: usize) -> (State, usize) {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    if chars.get(at + 1 + hashes) == Some(&'"') {
        (State::RawText(hashes), 2 + hashes)
    } else {
        (State::Code, 1 + hashes)
    }
}

/// The length of the character literal at `at`; 1 where the quote starts a lifetime instead.
fn char_length(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        // The escaped character may be a quote itself; the closing one comes after it.
        (Some('\\'), Some(_)) => {
            let rest = chars[at + 3..].iter().position(|c| *c == '\'');
            rest.map_or(1, |end| end + 4)
        }
        (Some(_), Some('\'')) => 3,
        _ => 1,
    }
}

/// Whether a character literal starts at `at`.
fn literal(chars: &[char], at: usize) -> bool {
    chars[at] == '\'' && char_length(chars, at) > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> String {
        split(source)
            .code
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        assert_eq!(code("a // b\nc"), "a c");
        assert_eq!(code("a /* b /* c */ d */ e"), "a e");
        assert_eq!(code(r#"a("b \" // c", d)"#), r"a( , d)");
        assert_eq!(code("a(r##\"b \"# c\"##, d)"), "a( , d)");
        assert_eq!(code("a(br\"b\\\", d)"), "a(b , d)");
        assert_eq!(code("r#type x"), "r#type x");
        assert_eq!(code("for\"x\" y"), "for y");
    }

    #[test]
    fn quotes_as_characters_open_no_string() {
        assert_eq!(code(r#"a('"', b) c"#), "a( , b) c");
        assert_eq!(code(r"a('\'', b) c"), "a( , b) c");
        assert_eq!(code(r"a('\u{7f}', b) c"), "a( , b) c");
        assert_eq!(
            code("fn f<'a>(x: &'a str) { 'b: loop {} }"),
            "fn f<'a>(x: &'a str) { 'b: loop {} }"
        );
    }

    #[test]
    fn comments_keep_their_lines() {
        let both = split("a // b\n\"// c\"\n/* d\ne */ f");
        assert_eq!(
            both.comments.lines().map(str::trim).collect::<Vec<_>>(),
            ["// b", "", "/* d", "e */"]
        );
        assert_eq!(both.code.lines().count(), 4);
    }
}

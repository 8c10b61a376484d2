//! Names of files that figures are written to.

use std::path::PathBuf;

/// Reads the name of a file for a figure.
///
/// # Errors
/// It ends like another kind of picture than SVG, in which it would be written all the same.
pub(crate) fn file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let extension = path.extension().map(|text| text.to_string_lossy());
    match extension.as_deref() {
        None => Ok(path),
        Some(svg) if svg.eq_ignore_ascii_case("svg") => Ok(path),
        Some(_) => {
            let named = path.with_extension("svg");
            Err(format!("figures are SVG: write {}", named.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_named_as_what_it_is() {
        for name in ["a.svg", "b.SVG", "/dev/stdout", "c.d/e"] {
            assert_eq!(file(name), Ok(name.into()));
        }
        let error = file("out/x.png").unwrap_err();
        assert_eq!(error, "figures are SVG: write out/x.svg");
    }
}

//! Candidates of shell completion.

use std::ffi::OsStr;

use clap_complete::CompletionCandidate;

/// Those of `all` (names, and what each is) that continue what is typed. In a list separated by
/// commas only its last part is completed.
#[must_use]
pub fn offer(
    current: &OsStr,
    all: impl IntoIterator<Item = (String, String)>,
) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    // in a list, only the part after the last comma is completed
    let before = current.rfind(',').map_or(0, |at| at + 1);
    let (list, part) = current.split_at(before);
    let fits = all.into_iter().filter(|(name, _)| name.starts_with(part));
    fits.map(|(name, about)| {
        let about = (!about.is_empty()).then(|| about.into());
        CompletionCandidate::new(format!("{list}{name}")).help(about)
    })
    .collect()
}

//! The server's part of `nvmirage precondition`: media, and the files of timing models' state.

use std::path::Path;

use api::config;
use lab::cli::precondition::{Media, Taken};
use media::Medium;
use server::{StateFile, spec_of};

/// The server's way to open them.
pub(super) const MEDIA: Media = Media { size_of, take };

fn size_of(medium: &config::Medium) -> anyhow::Result<u64> {
    Ok(Medium::open(&spec_of(medium)?)?.size())
}

fn take(path: &Path, longest: u64) -> anyhow::Result<Taken> {
    let (mut file, before) = StateFile::take(path, longest)?;
    Ok(Taken {
        before,
        replace: Box::new(move |bytes| file.write(bytes)),
    })
}

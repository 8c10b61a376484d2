//! Where a medium's contents come from: a file, the file of a clean stop, or the memory that a
//! former process has left at the holder.
//!
//! Not included: everything that a medium has beside its contents.

use std::sync::Arc;

use api::config;
use media::drive::{KeepsFunction, Known};
use media::{KeptFiles, Medium, MediumError, MediumKind as Store, MediumSpec};

use super::State;
use crate::keep::memory::{Found, Image};
use crate::survival::{self, KeptFunction};

impl State {
    /// Opens the bytes and the zones of a medium, with the contents that its file has from the last
    /// clean stop. Memory is that of a former process, if there was one, and is kept for the next;
    /// of a drive its properties are.
    pub(super) fn open_store(
        &self,
        config: &config::Medium,
        spec: &MediumSpec,
    ) -> anyhow::Result<(Arc<Medium>, Option<Image>)> {
        let explain = |error| explained(error, config);
        let Some(holder) = &self.holder else {
            let medium = Medium::open(spec).map_err(explain)?;
            let image = load_image(config, &medium)?;
            return Ok((medium, image));
        };
        let (memory, zones) = (
            survival::memory_name(&config.name),
            survival::zones_name(&config.name),
        );
        // One that an operator creates is new, whatever had its name before.
        let continues = self.is_continuing;
        let fetch = |name| {
            if continues {
                holder.fetch(name)
            } else {
                Ok(None)
            }
        };
        if let Store::Drive { .. } = spec.kind {
            let known = if continues {
                holder.fetch_bytes(&memory, Known::MAX_LEN)?
            } else {
                None
            };
            let known = known.as_deref().and_then(Known::from_bytes);
            let function = KeptFunction::new(holder, &config.name, continues);
            let function: Arc<dyn KeepsFunction> = Arc::new(function);
            let medium = Medium::open_drive(spec, known, Some(&function)).map_err(explain)?;
            if let Some(known) = medium.known_drive() {
                holder.keep_bytes(&memory, &known)?;
            }
            return Ok((medium, None));
        }
        let mut files = KeptFiles {
            memory: fetch(&memory)?,
            zones: fetch(&zones)?,
        };
        let has_image = config.state().is_some();
        let is_whole =
            files.memory.is_some() && (config.zoned().is_none() || files.zones.is_some());
        if has_image && !is_whole {
            // The former process died before all of it was kept; its file has it.
            files = KeptFiles::default();
        }
        let medium = Medium::open_kept(spec, files).map_err(explain)?;
        let image = match config.state() {
            Some(path) if is_whole => Some(Image::lock(path)?),
            _ => load_image(config, &medium)?,
        };
        let files = [(memory, medium.memory_file()), (zones, medium.zones_file())];
        for (name, file) in files {
            if let Some(file) = file {
                holder.keep(&name, file)?;
            }
        }
        Ok((medium, image))
    }

    /// Has the holder forget what it has of a medium.
    pub(super) fn forget_kept(&self, medium: &str) {
        let names = [
            survival::memory_name,
            survival::zones_name,
            survival::timing_name,
            survival::vendor_name,
        ];
        let functions = survival::function_names(medium);
        let functions = [functions.device, functions.group, functions.container];
        for kept in names.map(|of| of(medium)).iter().chain(&functions) {
            if let Some(holder) = &self.holder
                && let Err(error) = holder.forget(kept)
            {
                tracing::warn!("{kept} is kept until the server ends: {error}");
            }
        }
    }

    /// Continues with what the vendor commands of a former process have set, and has the holder
    /// keep it for the next.
    pub(super) fn continue_vendor(
        &self,
        config: &config::Medium,
        medium: &mut Arc<Medium>,
    ) -> anyhow::Result<()> {
        let (Some(holder), Some(vendor)) = (&self.holder, config.vendor) else {
            return Ok(());
        };
        let name = survival::vendor_name(&config.name);
        if self.is_continuing
            && let Some(file) = holder.fetch(&name)?
            && let Err(error) = Medium::continue_vendor(medium, vendor.into(), file)
        {
            tracing::error!(
                media = config.name,
                "what its vendor commands have set is lost: {error}"
            );
        }
        let file = medium.vendor_file();
        file.map_or(Ok(()), |file| Ok(holder.keep(&name, file)?))
    }
}

/// Restores a medium in memory from its file of the last clean stop, which is unchanged by that.
fn load_image(config: &config::Medium, medium: &Medium) -> anyhow::Result<Option<Image>> {
    let Some(path) = config.state() else {
        return Ok(None);
    };
    let (image, found) = Image::load(path, medium)?;
    // So that another process has all of it.
    medium.sync()?;
    let shown = image.path().display();
    match found {
        Found::Bytes => tracing::info!(media = config.name, "contents loaded from {shown}"),
        Found::Nothing => tracing::info!(
            media = config.name,
            "empty, saved in {shown} at a clean stop"
        ),
        Found::Crash => tracing::warn!(
            media = config.name,
            "empty: its last server did not stop cleanly, and its data was only in memory; saved in {shown} at a clean stop"
        ),
    }
    Ok(Some(image))
}

/// The error of a medium that cannot be opened. A file of another format often has a length that no
/// medium has, and neither extending it nor another size would help.
fn explained(error: MediumError, config: &config::Medium) -> anyhow::Error {
    let format = match error {
        MediumError::FileSize { .. } | MediumError::SizeMismatch { .. } => {
            config.path().and_then(machine::image::not_raw)
        }
        _ => None,
    };
    format.map_or_else(|| error.into(), anyhow::Error::msg)
}

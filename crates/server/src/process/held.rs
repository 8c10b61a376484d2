//! A server process that a holder replaces when it dies: how the hosts of the last one continue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use holder::Holder;

use crate::supervisor::Supervisor;

/// How long commands may take that a former process had in flight. Their hosts' drivers reset a
/// controller whose commands take longer.
const REPLAY: Duration = Duration::from_secs(4);
/// Pause between two looks at them.
const PAUSE: Duration = Duration::from_micros(200);

/// Lets the hosts of the former process continue: when all of its commands have ended, everything
/// is fetched. Tells the holder that this process serves, and stops the server when the holder has
/// ended.
pub(super) fn begin(supervisor: &Arc<Supervisor>, holder: &Arc<Holder>) -> anyhow::Result<()> {
    if let Some(before) = holder.before() {
        tracing::info!(
            "this is process {} of this server: the last one ended ({})",
            holder.generation(),
            before.cause
        );
    }
    let until = Instant::now() + REPLAY;
    // Copies read, so they follow what only writes.
    let replayed = have_replayed(supervisor, until)? && {
        supervisor.release_copies()?;
        have_replayed(supervisor, until)?
    };
    if !replayed {
        tracing::error!(
            "commands of the last process did not end within {} s: their hosts find a fatal status, and must reset it",
            REPLAY.as_secs()
        );
    }
    supervisor.release()?;
    holder.ready()?;
    supervisor.take_over_block_devices();
    let (supervisor, holder) = (supervisor.clone(), holder.clone());
    std::thread::Builder::new()
        .name("holder".into())
        .spawn(move || {
            match holder.wait_for_end() {
                Ok(()) => tracing::error!("the holder of the sockets has ended: the server stops"),
                Err(error) => {
                    tracing::error!("cannot watch the holder, so the server stops: {error}")
                }
            }
            supervisor.ask_to_stop();
        })
        .context("cannot start a thread")?;
    Ok(())
}

/// Whether all commands of the last process that may go on end in time.
fn have_replayed(supervisor: &Supervisor, until: Instant) -> anyhow::Result<bool> {
    while !supervisor.has_replayed()? {
        if Instant::now() >= until {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(true)
}

//! Interrupts of queue pairs: switched on for who wants to sleep, and off for who polls
//! (decision 48).

use driver::Device;
use driver::bus::Bus;

use super::relays::Relays;
use super::{Client, Keeper, News, Wakes};

impl<B: Bus> Keeper<B> {
    /// A channel's reactor wants to sleep.
    pub(super) fn wake(&mut self, channel: u32) {
        let mut clients = self.clients.iter_mut();
        if let Some(client) = clients.find(|client| client.channel == channel) {
            client.sleeps = true;
            if let Some(device) = &self.device
                && client.is_served
                && let Some(wakes) = connect(device, client, &self.relays)
            {
                client.tell(News::Wakes(wakes));
            }
        }
    }

    /// A channel's reactor polls, and is not to be signalled. There is no answer: it counts on none
    /// of that until it asks again.
    pub(super) fn quiet(&mut self, channel: u32) {
        let mut clients = self.clients.iter_mut();
        let Some(client) = clients.find(|client| client.channel == channel) else {
            return;
        };
        client.sleeps = false;
        let vector = client.vector.filter(|_| client.is_served);
        if let Some((device, vector)) = self.device.as_ref().zip(vector)
            && let Err(error) = device.silence_interrupts(vector)
        {
            tracing::debug!(
                drive = self.name,
                vector,
                "a drive goes on to interrupt: {error}"
            );
        }
    }
}

/// Has the interrupt of a channel's queue pair wake its reactor, or who brings its completions:
/// that one is told by itself.
pub(super) fn connect<B: Bus>(
    device: &Device<B>,
    client: &Client<B>,
    relays: &Relays<B>,
) -> Option<Wakes> {
    let relay = relays.sleeper(client.channel);
    let wake = relay.map_or(&client.wake, |its| &its.wake);
    let wakes = match client.vector {
        None => Wakes::Cannot,
        Some(vector) => match device.signal_interrupts(vector, wake) {
            Ok(()) => Wakes::Does,
            Err(error) => {
                tracing::info!(
                    vector,
                    "a drive's interrupt cannot be had, and it is polled: {error}"
                );
                Wakes::Cannot
            }
        },
    };
    if relay.is_none() {
        return Some(wakes);
    }
    relays.tell_wakes(client.channel, wakes);
    None
}

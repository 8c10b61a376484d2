//! Interrupts of queue pairs: enabled for reactors that want to sleep, masked for those that poll
//! (decision 48).

use driver::Device;
use driver::bus::Bus;

use super::relays::Relays;
use super::{Client, Keeper};
use crate::drive::message::News;
use crate::drive::queue::Wakes;

impl<B: Bus> Keeper<B> {
    /// Handles a request for interrupts of a channel's queue pair.
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

    /// Masks interrupts for a polling reactor. There is no answer: the channel relies on no
    /// interrupt until it asks again.
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

/// Connects the interrupt of a channel's queue pair to its reactor, or to the relay that brings its
/// completions; the relay gets its own notification.
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

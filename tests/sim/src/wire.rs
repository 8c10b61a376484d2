//! The wire between a host and the reactor of its controller: messages as a socket has them,
//! answers, interrupts.

use std::collections::VecDeque;
use std::sync::Arc;

use memory::{DoorbellPages, Mapping};

/// Something that a host asks for.
#[derive(Debug)]
pub enum Message {
    /// A new host wants the controller. It waits until the last one's is over.
    Connect,
    /// The host is dead: what comes next is from another one.
    Gone,
    /// A write of 4 or 8 bytes to BAR0, which needs no answer.
    Write {
        /// Where.
        offset: u64,
        /// What.
        value: u64,
        /// How long.
        len: usize,
    },
    /// A read of the Controller Status register.
    ReadStatus,
    /// Memory for the device.
    Map {
        /// Where it begins for the device.
        iova: u64,
        /// Bytes.
        len: u64,
        /// Where it begins in the host's file.
        offset: u64,
        /// The host's file.
        mapping: Arc<Mapping>,
    },
    /// The device must not use it any more.
    Unmap {
        /// Where it begins for the device.
        iova: u64,
        /// Bytes.
        len: u64,
    },
    /// The function is reset.
    Reset,
    /// Interrupts go another way from now on: the host does not listen to the previous one.
    NewLines,
}

/// An answer.
#[derive(Debug)]
pub enum Answer {
    /// To [`Message::Connect`], with the doorbells of this host.
    Connected(Arc<DoorbellPages>),
    /// The Controller Status register.
    Status(u32),
    /// To [`Message::Map`].
    Mapped {
        /// Where it begins for the device.
        iova: u64,
    },
    /// To [`Message::Unmap`].
    Unmapped {
        /// Where it began for the device.
        iova: u64,
    },
    /// To [`Message::Reset`].
    WasReset,
}

/// Both directions.
#[derive(Debug, Default)]
pub struct Wire {
    /// To the reactor.
    pub messages: VecDeque<Message>,
    /// To the host.
    pub answers: VecDeque<Answer>,
    /// Vectors that were raised, each once, one bit each.
    pub vectors: u64,
    /// The host has done something that wakes the reactor.
    pub wakes: bool,
    /// The host has stored a doorbell in a mapped page, which does not wake the reactor.
    pub stored: bool,
}

impl Wire {
    /// Sends a message.
    pub fn send(&mut self, message: Message) {
        self.messages.push_back(message);
        self.wakes = true;
    }

    /// Whether there is something for the host.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.vectors != 0 || !self.answers.is_empty()
    }
}

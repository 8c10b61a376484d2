//! What an NVMe controller does: a pure state machine, and the ports that media and transports implement.

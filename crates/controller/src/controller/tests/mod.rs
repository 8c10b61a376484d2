//! A host that knows nothing but the specification drives a controller: registers by BAR writes,
//! commands through its own memory.

mod aborts;
mod allocated;
mod arbitration;
mod bus;
mod coalescing;
mod copy;
mod doorbell_buffers;
mod drives;
mod events;
mod features;
mod firmware;
mod format;
mod health;
mod hostile;
mod identify;
mod interrupts;
mod keep_alive;
mod lba_status;
mod lifecycle;
mod logs;
mod maps;
mod namespaces;
mod namespaces_model;
mod queues;
mod read_only;
mod registers;
mod reservations;
mod rig;
mod sanitize;
mod saved_features;
mod sets;
mod shutdown;
mod systems;
mod uncorrectable;
mod world;

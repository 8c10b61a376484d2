//! The server, message by message: one module for each message, and one for each other program that
//! speaks to it.

mod cloud_hypervisor_client;
mod device_info;
mod dma_map;
mod dma_read_write;
mod dma_unmap;
mod framing;
mod intx;
mod irq_info;
mod logging;
mod lost_memory;
mod migration;
mod region_info;
mod region_io_fds;
mod region_read;
mod region_write;
mod replay;
mod reset;
mod set_irqs;
mod unknown;
mod version;

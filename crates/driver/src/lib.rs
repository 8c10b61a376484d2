//! How a host drives an NVMe drive, over vfio-user or in process.

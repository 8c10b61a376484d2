//! How a host reaches a controller: the vfio-user server.

//! DMA_MAP and DMA_UNMAP: the parts of the host's memory that the controller may reach.
//!
//! The map is the session's; the controller gets a snapshot of it after each change. The reply to a
//! DMA_UNMAP is sent only when no command that was issued before it is still in flight
//! ("VFIO_USER_DMA_UNMAP": all references must be released).

use std::error::Error;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use arrayvec::ArrayVec;
use controller::Controller;
use memory::guest::dma::{DmaError, MAX_DMA_REGIONS};
use memory::guest::mapping::MapError;
use memory::{Access, ClientMappings, DmaMap, DmaView, Iova, LogError, LostFlag, WrittenLog};
use rustix::io::Errno;
use vfio_user::MAX_FDS;
use vfio_user::message::{self, DmaMapFlags, DmaUnmap, DmaUnmapFlags};

use super::Answer;
use super::waiting::Until;

/// One session's map and the files behind it.
#[derive(Debug)]
pub(super) struct MemoryMap {
    map: DmaMap,
    files: ClientMappings,
    /// The first view of the last log.
    log_epoch: u64,
    /// Requests that were refused; the first few are warned of.
    refused: u64,
}

/// Refused requests of one session that are warned of: a host that means harm must not fill the
/// log.
const WARNINGS: u64 = 3;

impl MemoryMap {
    pub(super) fn new() -> Self {
        Self {
            map: DmaMap::new(MAX_DMA_REGIONS),
            files: ClientMappings::new(),
            log_epoch: 0,
            refused: 0,
        }
    }

    /// The files behind it.
    pub(super) fn files(&self) -> &ClientMappings {
        &self.files
    }

    /// Says why a DMA_MAP is refused: the host gets no more than an error number, and its memory
    /// stays out of reach.
    fn refuse(&mut self, name: &str, request: &message::DmaMap, why: &dyn Error) {
        let (iova, bytes) = (request.iova, request.size);
        self.refused += 1;
        match self.refused {
            WARNINGS => tracing::warn!(
                controller = name,
                iova,
                bytes,
                "rejected a host's DMA_MAP, so the controller cannot access that memory: {why}; further rejections on this connection are logged at debug"
            ),
            0..WARNINGS => tracing::warn!(
                controller = name,
                iova,
                bytes,
                "rejected a host's DMA_MAP, so the controller cannot access that memory: {why}"
            ),
            _ => tracing::debug!(
                controller = name,
                iova,
                bytes,
                "rejected a host's DMA_MAP: {why}"
            ),
        }
    }

    /// DMA_MAP. Memory without a descriptor (a ROM, RAM that is not shared, our own doorbells,
    /// which QEMU maps back to us for the sake of other devices) gets a region that nothing can
    /// reach.
    pub(super) fn map(
        &mut self,
        body: &[u8],
        fds: ArrayVec<OwnedFd, MAX_FDS>,
        controller: &mut Controller,
    ) -> Result<Answer, Errno> {
        self.add(body, fds, &controller.config().name)?;
        self.publish(controller);
        Ok(Answer::Reply)
    }

    /// Adds a range to the map, of which a controller with this name does not know yet.
    pub(super) fn add(
        &mut self,
        body: &[u8],
        fds: ArrayVec<OwnedFd, MAX_FDS>,
        name: &str,
    ) -> Result<(), Errno> {
        let request = message::DmaMap::parse(body).map_err(|_| Errno::INVAL)?;
        if (request.argsz as usize) < message::DmaMap::LEN || fds.len() > 1 {
            return Err(Errno::INVAL);
        }
        let access = Access {
            read: request.flags.contains(DmaMapFlags::READ),
            write: request.flags.contains(DmaMapFlags::WRITE),
        };
        let file = fds.into_iter().next().map(|fd| self.files.map(fd));
        let file = file.transpose().map_err(|error| {
            self.refuse(name, &request, &error);
            errno_of_file(&error)
        })?;
        let backing = file.map(|file| (file, request.offset));
        let mapped = self
            .map
            .map(Iova(request.iova), request.size, access, backing);
        mapped.map_err(|error| {
            self.refuse(name, &request, &error);
            errno_of_map(error)
        })?;
        tracing::debug!(
            iova = request.iova,
            bytes = request.size,
            "a host maps memory"
        );
        Ok(())
    }

    /// The map as it is, and the flag that says that a file behind it is shortened.
    pub(super) fn view(&self) -> (Arc<DmaView>, LostFlag) {
        (self.map.view(), self.files.lost())
    }

    /// DMA_UNMAP. The reply repeats the request.
    pub(super) fn unmap(
        &mut self,
        body: &[u8],
        controller: &mut Controller,
    ) -> Result<Answer, Errno> {
        let request = DmaUnmap::parse(body).map_err(|_| Errno::INVAL)?;
        if (request.argsz as usize) < DmaUnmap::LEN {
            return Err(Errno::INVAL);
        }
        let all = match request.flags {
            DmaUnmapFlags(0) => false,
            DmaUnmapFlags::UNMAP_ALL if request.iova == 0 && request.size == 0 => true,
            // A log is read by DMA_LOGGING_REPORT, also after the unmap.
            flags if flags.contains(DmaUnmapFlags::GET_DIRTY) => return Err(Errno::OPNOTSUPP),
            _ => return Err(Errno::INVAL),
        };
        if all {
            self.map.unmap_all();
        } else {
            self.map
                .unmap(Iova(request.iova), request.size)
                .inspect_err(|error| tracing::debug!("rejected a host's DMA_UNMAP: {error}"))
                .map_err(errno_of_map)?;
        }
        tracing::debug!(
            iova = request.iova,
            bytes = request.size,
            "a host unmaps memory"
        );
        let epoch = self.publish(controller);
        Ok(Answer::Later(Until::Drained {
            epoch,
            request,
            reached: self.map.take_reached(),
        }))
    }

    /// Logs the pages of these ranges that are written from now on; the epoch of the first view
    /// with the log.
    pub(super) fn start_log(
        &mut self,
        ranges: &[(Iova, u64)],
        controller: &mut Controller,
    ) -> Result<u64, LogError> {
        self.map.start_log(ranges)?;
        let epoch = self.publish(controller);
        self.log_epoch = epoch;
        Ok(epoch)
    }

    /// Ends the log, where there is one; with an epoch, only the one that began with it.
    pub(super) fn stop_log(&mut self, began: Option<u64>, controller: &mut Controller) {
        let is_other = began.is_some_and(|epoch| epoch != self.log_epoch);
        if !is_other && self.map.log().is_ok() {
            self.map.stop_log();
            self.publish(controller);
        }
    }

    /// The log of written pages.
    pub(super) fn log(&self) -> Result<&WrittenLog, LogError> {
        self.map.log()
    }

    /// Passes the current map to the controller; returns its epoch.
    fn publish(&self, controller: &mut Controller) -> u64 {
        let (view, lost) = self.view();
        let epoch = view.epoch();
        controller.set_view(view, lost);
        epoch
    }
}

fn errno_of_map(error: DmaError) -> Errno {
    match error {
        DmaError::Empty
        | DmaError::Misaligned
        | DmaError::Wraps
        | DmaError::OutOfFile { .. }
        | DmaError::Splits { .. } => Errno::INVAL,
        // "A command to map over an existing region must be failed by the server with EEXIST".
        DmaError::Overlaps { .. } => Errno::EXIST,
        DmaError::TooMany { .. } => Errno::NOSPC,
        DmaError::NotWritable => Errno::ACCESS,
        // A guest behind a vIOMMU unmaps ranges that it never mapped.
        DmaError::NotFound => Errno::NOENT,
    }
}

fn errno_of_file(error: &MapError) -> Errno {
    match error {
        MapError::NotFile { .. }
        | MapError::NotMemory(_)
        | MapError::Empty
        | MapError::OutOfFile { .. } => Errno::INVAL,
        MapError::NotReadable => Errno::ACCESS,
        MapError::SessionLimit | MapError::TableFull => Errno::NOSPC,
        MapError::Handler(error) | MapError::System(error) => {
            Errno::from_io_error(error).unwrap_or(Errno::IO)
        }
    }
}

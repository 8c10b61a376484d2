//! Commands of a host's own, which make and delete I/O queues in its controller.

use nvme_spec::Sqe;
use nvme_spec::command::{
    CreateIoCqCdw11, CreateIoQueueCdw10, CreateIoSqCdw11, DeleteIoQueueCdw10, QueuePriority,
};
use nvme_spec::opcode::AdminOpcode;

/// A command of the host's own that is in flight, or is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    CreateCq,
    CreateSq,
    DeleteSq,
    DeleteCq,
}

/// A command about a queue pair with one identifier, which completes without interrupts.
pub(crate) fn command(step: Step, qid: u16, entries_z: u16, (sq, cq): (u64, u64)) -> Sqe {
    let create = CreateIoQueueCdw10::new()
        .with_qid(qid)
        .with_qsize_z(entries_z);
    let delete = DeleteIoQueueCdw10::new().with_qid(qid);
    let (opcode, prp1, cdw10, cdw11) = match step {
        Step::CreateCq => (
            AdminOpcode::CREATE_IO_COMPLETION_QUEUE,
            cq,
            create.into(),
            CreateIoCqCdw11::new().with_pc(true).into(),
        ),
        Step::CreateSq => (
            AdminOpcode::CREATE_IO_SUBMISSION_QUEUE,
            sq,
            create.into(),
            CreateIoSqCdw11::new()
                .with_pc(true)
                .with_qprio(QueuePriority::MEDIUM)
                .with_cqid(qid)
                .into(),
        ),
        Step::DeleteSq => (AdminOpcode::DELETE_IO_SUBMISSION_QUEUE, 0, delete.into(), 0),
        Step::DeleteCq => (AdminOpcode::DELETE_IO_COMPLETION_QUEUE, 0, delete.into(), 0),
    };
    Sqe {
        opcode: opcode.0,
        prp1,
        cdw10,
        cdw11,
        ..Sqe::default()
    }
}

//! The queues of a controller: queue 0 takes the commands of `admin`, the others the
//! commands of `io`.

use zonal::nvme::{NvmeStatus, SubmissionEntry, status};

use crate::command::{Executed, Payload, Plan};
use crate::subsystem::Controller;
use crate::{admin, io};

/// Validates a command and says what data it transfers.
pub(crate) fn plan(
    controller: &Controller,
    queue: u16,
    entry: &SubmissionEntry,
) -> Result<Plan, NvmeStatus> {
    if !controller.is_ready() {
        return Err(status::SEQUENCE);
    }
    // FUSE: fused operations are not supported.
    if entry.flags & 3 != 0 {
        return Err(status::INVALID_FIELD);
    }
    match queue {
        0 => admin::plan(controller, entry),
        _ => io::plan(controller.subsystem(), entry),
    }
}

/// Executes a planned command.
pub(crate) fn execute(
    controller: &Controller,
    queue: u16,
    entry: &SubmissionEntry,
    payload: Payload<'_>,
) -> Executed {
    match queue {
        0 => admin::execute(controller, entry, payload),
        _ => io::execute(controller.subsystem(), entry, payload),
    }
}

/// Whether a command of an I/O queue can be executed together with others.
pub(crate) fn joins_others(entry: &SubmissionEntry) -> bool {
    io::joins_others(entry)
}

/// Executes planned commands of an I/O queue, for one namespace, that can be executed together.
pub(crate) fn execute_batch(
    controller: &Controller,
    batch: Vec<(SubmissionEntry, Payload<'_>)>,
) -> Vec<Executed> {
    io::execute_batch(controller.subsystem(), batch)
}

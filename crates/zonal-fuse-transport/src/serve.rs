//! The server of a mount, and how one message reaches it.

use std::sync::Arc;

use crate::answer::ReplySink;
use crate::fields::Malformed;
use crate::panics::caught;
use crate::reply::Reply;
use crate::request::{self, Header, Op};
use crate::{Errno, NodeId};

/// Answers requests.
pub trait Serve: Send + Sync {
    /// Answers one request, now or later.
    fn serve(&self, header: &Header, op: Op<'_>, reply: Reply);

    /// The mount has ended for its users; umount(2) returns after this call. Only a `fuseblk` mount
    /// calls it, and not if its end was forced.
    fn end(&self) {}

    /// [`serve`](Self::serve) or [`end`](Self::end) panicked with this message. The caller of the
    /// request has got EIO.
    fn panicked(&self, message: &str);
}

/// Parses and serves one message; the answer may come later. Returns the node that the request is
/// about, or an error if the header is malformed.
pub(crate) fn dispatch(
    message: &[u8],
    server: &dyn Serve,
    answers: &Arc<dyn ReplySink>,
) -> Result<NodeId, Malformed> {
    let (header, op) = request::parse(message)?;
    // A panic drops the reply, which answers EIO.
    if let Err(message) = caught(|| answer(&header, op, server, answers)) {
        server.panicked(&message);
    }
    Ok(header.node)
}

fn answer(
    header: &Header,
    op: Result<Op<'_>, Malformed>,
    server: &dyn Serve,
    answers: &Arc<dyn ReplySink>,
) {
    let reply = || Reply::new(header.unique, Arc::clone(answers));
    match op {
        // After the answer the kernel closes the connection for all threads.
        Ok(Op::Destroy) => {
            server.end();
            reply().ok();
        }
        // Requests are not interrupted. ENOSYS makes the kernel stop sending INTERRUPT.
        Ok(Op::Interrupt) => reply().error(Errno::NOSYS),
        Ok(op) if op.is_answered() => server.serve(header, op, reply()),
        Ok(op) => server.serve(header, op, Reply::none()),
        Err(error) => {
            tracing::error!(%error, "a malformed request");
            reply().error(Errno::INVAL);
        }
    }
}

//! The FUSE protocol: messages, and sessions with the Linux kernel.
//!
//! A room may use the rooms that its last column names; `cargo xtask check` compares the paths.
//!
//! | room | what it is | may use |
//! | --- | --- | --- |
//! | `abi`, `fields` | structures and numbers of the protocol; the fields of a request | |
//! | `pages` | page-aligned buffers | |
//! | `panics`, `program` | catches panics; runs system programs | |
//! | `own_mount` | system calls of a server on its own mount | |
//! | `watchdog` | notices when all threads are busy and none makes progress | |
//! | `answer` | parts of answers, and the sink that takes them | `abi`, `pages` |
//! | `request` | parses requests | `abi`, `fields` |
//! | `listing` | the answer with the entries of a directory | `abi`, `answer` |
//! | `reply` | the one answer that a request gets | all above |
//! | `serve` | the trait of a server | all above |
//! | `device` | `/dev/fuse`: one message per read, one per write | `pages`, `answer`, `request` |
//! | `mount` | mounts, as root and as a user | `program`, `own_mount`, `device` |
//! | `init` | negotiates flags and sizes with the kernel | all above |
//! | `notify` | notifications to the kernel | `abi`, `answer`, `device` |
//! | `worker_pool` | threads that read requests from `/dev/fuse` | all above |
//! | `rings` | requests over `io_uring` | all above |
//! | `session` | hands the requests of the kernel to a [`Serve`]: start here | all above |
//! | `hidden` | the mount through whose files the files of another mount are read | all above |
//!
//! Messages know no transport: [`request::parse`] takes bytes, and an [`answer::ReplySink`] takes
//! the parts of an answer. A [`session`] uses `/dev/fuse` (`worker_pool`, with its `watchdog`), and
//! `io_uring` (`rings`) if the kernel offers it.

pub mod abi;
pub mod answer;
mod device;
mod fields;
pub mod hidden;
pub mod init;
pub mod listing;
pub mod mount;
pub mod notify;
pub mod own_mount;
pub mod pages;
pub mod panics;
pub mod program;
pub mod reply;
pub mod request;
mod rings;
pub mod serve;
pub mod session;
mod watchdog;
mod worker_pool;

pub use abi::NodeId;
pub use answer::BackingId;
pub use reply::Reply;
pub use request::{Header, Op};
pub use rustix::io::Errno;
pub use serve::Serve;
pub use session::{Session, Transport};

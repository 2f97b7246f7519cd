//! Requests that a device is given together.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use zonal::Op;
use zonal::{Lba, ZoneId, ZonedDevice};

use crate::device;
use crate::edge::{self, Bytes, Failure, Outcome};

/// A request of a batch, for Device.submit: made by Io.read, Io.write, Io.append or Io.flush. It
/// can be submitted any number of times.
#[pyclass(frozen, module = "zonal")]
pub(crate) struct Io {
    request: Request,
}

enum Request {
    Read { offset: u64, length: usize },
    Write { offset: u64, data: Bytes },
    Append { zone: u32, data: Bytes },
    Flush,
}

impl Io {
    /// Whether it changes the device.
    pub(crate) fn writes(&self) -> bool {
        match &self.request {
            Request::Read { .. } | Request::Flush => false,
            Request::Write { .. } | Request::Append { .. } => true,
        }
    }
}

#[pymethods]
impl Io {
    /// Reads `length` bytes, whole blocks, from byte `offset` on.
    #[staticmethod]
    fn read(offset: u64, length: usize) -> Self {
        Self { request: Request::Read { offset, length } }
    }

    /// Writes whole blocks at byte `offset`.
    #[staticmethod]
    fn write(offset: u64, data: Bytes) -> Self {
        Self { request: Request::Write { offset, data } }
    }

    /// Writes whole blocks at the write pointer of a zone.
    #[staticmethod]
    fn append(zone: u32, data: Bytes) -> Self {
        Self { request: Request::Append { zone, data } }
    }

    /// Makes the requests before it durable.
    #[staticmethod]
    fn flush() -> Self {
        Self { request: Request::Flush }
    }

    fn __repr__(&self) -> String {
        match &self.request {
            Request::Read { offset, length } => format!("Io.read({offset}, {length})"),
            Request::Write { offset, data } => {
                format!("Io.write({offset}, <{} bytes>)", data.len())
            }
            Request::Append { zone, data } => format!("Io.append({zone}, <{} bytes>)", data.len()),
            Request::Flush => "Io.flush()".to_owned(),
        }
    }
}

/// Where a request stands while its batch is made.
enum Ready {
    /// Refused before it reached the device.
    Refused(Failure),
    /// With a buffer for the read.
    Room(Lba, Vec<u8>),
    /// Needs no buffer.
    Nothing(Lba),
}

/// Performs a batch and returns the list of results.
pub(crate) fn submit<'py>(
    py: Python<'py>,
    device: &dyn ZonedDevice,
    batch: &[Py<Io>],
) -> Outcome<Bound<'py, PyList>> {
    let requests: Vec<&Request> = batch.iter().map(|io| &io.get().request).collect();
    let done = edge::detached(py, || Ok(perform(device, &requests)))?;
    let block = device.geometry().block_size().bytes();
    let results = done.into_iter().zip(requests).map(|((ready, outcome), request)| {
        let outcome = match (ready, outcome) {
            (Ready::Refused(failure), _) => Err(failure),
            (_, Some(Err(error))) => Err(error.into()),
            (Ready::Room(_, data), Some(Ok(_))) => return Ok(PyBytes::new(py, &data).into_any()),
            (_, Some(Ok(at))) => Ok(at.get() * block),
            (_, None) => Err(Failure::new(rustix::io::Errno::IO, "the device gave no result")),
        };
        match (outcome, request) {
            (Ok(_), Request::Flush) => Ok(py.None().into_bound(py)),
            (Ok(at), _) => Ok(at.into_pyobject(py)?.into_any()),
            (Err(failure), _) => Ok(PyErr::from(failure).into_value(py).into_bound(py).into_any()),
        }
    });
    let results = results.collect::<PyResult<Vec<_>>>()?;
    Ok(PyList::new(py, results)?)
}

type Done = (Ready, Option<zonal::error::Result<Lba>>);

/// Performs the requests that passed the checks.
fn perform(device: &dyn ZonedDevice, requests: &[&Request]) -> Vec<Done> {
    let mut ready: Vec<Ready> = requests.iter().map(|request| prepare(device, request)).collect();
    let mut given = Vec::new();
    let mut batch = Vec::new();
    for (index, (request, ready)) in requests.iter().zip(&mut ready).enumerate() {
        let op = match (request, ready) {
            (_, Ready::Refused(_)) => continue,
            (Request::Read { .. }, Ready::Room(lba, buffer)) => Op::Read { lba: *lba, buffer },
            (Request::Write { data, .. }, Ready::Nothing(lba)) => Op::Write { lba: *lba, data },
            (Request::Append { zone, data }, Ready::Nothing(_)) => {
                Op::Append { zone: ZoneId::new(*zone), data }
            }
            (Request::Flush, Ready::Nothing(_)) => Op::Flush,
            (Request::Read { .. }, Ready::Nothing(_))
            | (Request::Write { .. } | Request::Append { .. } | Request::Flush, Ready::Room(..)) => {
                unreachable!("only reads are given room")
            }
        };
        given.push(index);
        batch.push(zonal::Io::new(op));
    }
    device.submit(&mut batch);
    let mut outcomes: Vec<Option<zonal::error::Result<Lba>>> =
        requests.iter().map(|_| None).collect();
    for (index, io) in given.into_iter().zip(batch) {
        outcomes[index] = io.result;
    }
    ready.into_iter().zip(outcomes).collect()
}

/// Checks a request, and makes a buffer for a read.
fn prepare(device: &dyn ZonedDevice, request: &Request) -> Ready {
    let geometry = device.geometry();
    let checked = match request {
        Request::Read { offset, length } => device::readable(geometry, *offset, *length)
            .and_then(|lba| Ok(Ready::Room(lba, edge::room(*length)?))),
        Request::Write { offset, .. } => device::block(geometry, *offset).map(Ready::Nothing),
        Request::Append { zone, .. } if *zone >= geometry.zone_count() => {
            Err(zonal::DeviceError::NoSuchZone { zone: ZoneId::new(*zone) }.into())
        }
        Request::Append { .. } | Request::Flush => Ok(Ready::Nothing(Lba::ZERO)),
    };
    checked.unwrap_or_else(Ready::Refused)
}

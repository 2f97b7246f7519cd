//! The edge between Python and Rust: errors, panics, the interpreter's lock, bytes and paths.

use std::any::Any;
use std::ffi::OsStr;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};
use rustix::io::Errno;
use zonal::DeviceError;
use zonal::spec::OpenError;
use zonal_fs::FsError;
use zonal_sim::SimError;

/// Why a call fails.
pub(crate) enum Failure {
    /// A `zonal.Error` with this number and this sentence.
    Error(i32, String),
    /// An error of Python itself: an argument of the wrong type, an interrupt.
    Raised(PyErr),
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(errno: Errno, text: impl Into<String>) -> Self {
        Self::Error(errno.raw_os_error(), text.into())
    }

    /// The error for an object that was used after its end.
    pub(crate) fn closed(what: &str) -> Self {
        Self::new(Errno::BADF, format!("the {what} is closed"))
    }

    /// The error of a panic, which is a mistake of ours.
    pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Self::new(Errno::IO, format!("internal error, please report it: {text}"))
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let errno = match &error {
            OpenError::Device(error) => error.errno(),
            // A specification that cannot be parsed, and errors that a later version adds.
            _ => Errno::INVAL,
        };
        Self::new(errno, error.to_string())
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Self {
        Self::Error(error.errno(), error.to_string())
    }
}

impl From<zonal_fs::volume::UnusableFlags> for Failure {
    fn from(error: zonal_fs::volume::UnusableFlags) -> Self {
        Self::Error(error.errno(), error.to_string())
    }
}

impl From<zonal_fs::volume::Error> for Failure {
    fn from(error: zonal_fs::volume::Error) -> Self {
        Self::Error(error.errno(), error.to_string())
    }
}

impl From<SimError> for Failure {
    fn from(error: SimError) -> Self {
        let errno = match &error {
            SimError::Io { source, .. } => Errno::from_io_error(source).unwrap_or(Errno::IO),
            // A config or a trace that cannot be used, and errors that a later version adds.
            _ => Errno::INVAL,
        };
        Self::new(errno, error.to_string())
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Raised(error) => error,
            Failure::Error(errno, text) => Python::attach(|py| match error(py, errno, &text) {
                Ok(error) => Self::from_value(error),
                Err(error) => error,
            }),
        }
    }
}

/// The `zonal.Error` of a number and a sentence, as an object.
pub(crate) fn error<'py>(py: Python<'py>, errno: i32, text: &str) -> PyResult<Bound<'py, PyAny>> {
    static ERROR_OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    ERROR_OF.import(py, "zonal._errors", "error_of")?.call1((errno, text))
}

/// Runs `action` while other threads of Python run, and turns a panic into an error.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    action: impl FnOnce() -> Outcome<T> + Send,
) -> Outcome<T> {
    py.detach(|| {
        catch_unwind(AssertUnwindSafe(action))
            .unwrap_or_else(|panic| Err(Failure::panicked(&*panic)))
    })
}

/// Bytes that Python gives: `bytes` as they are, of any other buffer a copy, so that another thread
/// may change or release it meanwhile.
pub(crate) struct Bytes(PyBackedBytes);

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<'py> FromPyObject<'_, 'py> for Bytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let bytes = match object.cast::<PyBytes>() {
            Ok(bytes) => bytes.to_owned(),
            Err(_) => {
                let view = PyMemoryView::from(&object)?;
                view.call_method0("tobytes")?.cast_into::<PyBytes>()?
            }
        };
        Ok(Self(bytes.into()))
    }
}

/// A buffer of Python that is written to: one of bytes, without gaps.
pub(crate) struct Buffer<'py> {
    view: Bound<'py, PyAny>,
    /// Its length in bytes.
    pub(crate) len: usize,
}

impl<'py> FromPyObject<'_, 'py> for Buffer<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let view = PyMemoryView::from(&object)?;
        if view.getattr("readonly")?.is_truthy()? {
            return Err(PyValueError::new_err("the buffer is read-only"));
        }
        let len = view.getattr("nbytes")?.extract()?;
        let view = if len == 0 { view.into_any() } else { view.call_method1("cast", ("B",))? };
        Ok(Self { view, len })
    }
}

impl Buffer<'_> {
    /// Puts bytes at its start.
    pub(crate) fn put(&self, data: &[u8]) -> PyResult<usize> {
        if !data.is_empty() {
            let py = self.view.py();
            let end = isize::try_from(data.len())?;
            self.view.set_item(PySlice::new(py, 0, end, 1), PyBytes::new(py, data))?;
        }
        Ok(data.len())
    }
}

/// A buffer for `len` bytes; an error if memory is short.
pub(crate) fn room(len: usize) -> Outcome<Vec<u8>> {
    let mut room = Vec::new();
    if room.try_reserve_exact(len).is_err() {
        let text = format!("there is no memory for {len} bytes");
        return Err(Failure::Raised(PyMemoryError::new_err(text)));
    }
    room.resize(len, 0);
    Ok(room)
}

/// A path: `str`, `bytes` or a `PathLike`, as Python's `os` takes them.
pub(crate) struct Name(PathBuf);

impl AsRef<Path> for Name {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl FromPyObject<'_, '_> for Name {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        static ENCODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let encode = ENCODE.import(object.py(), "os", "fsencode")?;
        let bytes: PyBackedBytes = encode.call1((object,))?.extract()?;
        Ok(Self(OsStr::from_bytes(&bytes).into()))
    }
}

impl Name {
    /// The text of a name that has to be text, such as a specification.
    pub(crate) fn text(&self) -> Outcome<&str> {
        self.0.to_str().ok_or_else(|| Failure::new(Errno::INVAL, "the device is not UTF-8"))
    }
}

/// A pair of words in Rust that is a `bool` in Python.
macro_rules! from_bool {
    ($name:ident, $yes:ident, $no:ident) => {
        impl FromPyObject<'_, '_> for $name {
            type Error = PyErr;

            fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
                Ok(if object.is_truthy()? { Self::$yes } else { Self::$no })
            }
        }
    };
}
pub(crate) use from_bool;

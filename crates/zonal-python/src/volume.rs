//! Volumes: the file system on a device, by path.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use zonal::{ByteCount, OpenMode, SystemClock, ZonedDevice};
use zonal_fs::vfs::{
    self, Attr, Caller, FileKind, NewInode, SetAttr, SetTime, Timestamp, XattrMode,
};
use zonal_fs::volume::{LIFETIME_XATTR, Links, Volume as Files, VolumeOptions, WriteLifetime};

use crate::device::{Access, Device, Lease};
use crate::edge::{self, Bytes, Failure, Name, Outcome, from_bool};

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy)]
pub(crate) enum Follow {
    Yes,
    No,
}

from_bool!(Follow, Yes, No);

impl From<Follow> for Links {
    fn from(follow: Follow) -> Self {
        match follow {
            Follow::Yes => Self::Follow,
            Follow::No => Self::Keep,
        }
    }
}

/// The file system, Furrow or zonefs, on a zonal.Device, or on the device of a specification.
///
/// Paths are str, bytes or PathLike and start at the root of the volume. Mode bits and owners are
/// kept and not enforced. Nothing is durable before a sync, a close, or the commit that a thread
/// makes about five seconds after a change. Failures raise zonal.Error.
#[pyclass(frozen, subclass, module = "zonal._zonal")]
pub(crate) struct Volume {
    name: String,
    access: Access,
    mounted: Mutex<Option<Arc<Mounted>>>,
}

/// The state that a volume and its open files share.
pub(crate) struct Mounted {
    pub(crate) files: Files,
    lease: Lease,
}

/// The device for a volume.
struct Found {
    name: String,
    access: Access,
    device: Arc<dyn ZonedDevice>,
    lease: Lease,
}

impl Found {
    fn new(py: Python<'_>, given: &Bound<'_, PyAny>, access: Access) -> Outcome<Self> {
        let spec: Name = match given.cast::<Device>().map(Bound::get) {
            Ok(given) if given.access() == Access::ReadWrite => {
                let (device, lease) = given.lease()?;
                return Ok(Self { name: given.spec().to_owned(), access, device, lease });
            }
            // It was opened to look on, also while others write.
            Ok(given) => {
                given.device()?;
                return Self::opened(py, given.spec(), Access::ReadOnly);
            }
            Err(_) => given.extract()?,
        };
        Self::opened(py, spec.text()?, access)
    }

    /// Opens a device; with read-only access in a mode that keeps writers out. With a writer, the
    /// reads would not see one state of the file system.
    fn opened(py: Python<'_>, spec: &str, access: Access) -> Outcome<Self> {
        let opened = edge::detached(py, || Device::opened(spec, access, OpenMode::ReadLocked))?;
        let (device, lease) = opened.lease()?;
        Ok(Self { name: spec.to_owned(), access, device, lease })
    }
}

impl Volume {
    pub(crate) fn mounted(&self) -> Outcome<Arc<Mounted>> {
        let mounted = self.mounted.lock().unwrap_or_else(PoisonError::into_inner);
        mounted.clone().ok_or_else(|| Failure::closed("volume"))
    }

    /// Runs `action` on the volume while other threads of Python run.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        action: impl FnOnce(&Files) -> Outcome<T> + Send,
    ) -> Outcome<T> {
        let mounted = self.mounted()?;
        // The last one to go closes the volume, which takes time as well.
        edge::detached(py, move || action(&mounted.files))
    }

    fn set(&self, py: Python<'_>, path: Name, follow: Follow, set: SetAttr) -> Outcome<()> {
        self.run(py, move |files| {
            files.node(path, follow.into())?.set_metadata(&set)?;
            Ok(())
        })
    }
}

#[pymethods]
impl Volume {
    #[new]
    #[pyo3(
        signature = (device, *, read_only = Access::ReadWrite, memory_bytes = 0),
        text_signature = "(device, *, read_only=False, memory_bytes=0)"
    )]
    fn new(
        py: Python<'_>,
        device: &Bound<'_, PyAny>,
        read_only: Access,
        memory_bytes: u64,
    ) -> Outcome<Self> {
        let Found { name, access, device, lease } = Found::new(py, device, read_only)?;
        let mut options = VolumeOptions {
            access: match access {
                Access::ReadOnly => vfs::Access::ReadOnly,
                Access::ReadWrite => vfs::Access::ReadWrite,
            },
            caller: Caller { uid: geteuid().as_raw(), gid: getegid().as_raw(), ..Caller::ROOT },
            ..VolumeOptions::default()
        };
        if memory_bytes > 0 {
            options.memory = ByteCount::new(memory_bytes);
        }
        let files = edge::detached(py, || {
            Ok(Files::mount(device, Arc::new(SystemClock::new()), &options)?)
        })?;
        let mounted = Arc::new(Mounted { files, lease });
        Ok(Self { name, access, mounted: Mutex::new(Some(mounted)) })
    }

    /// Makes everything durable, leaves the drive clean and closes it. The error is that of the
    /// last commit; the volume is closed all the same. The second time does nothing.
    fn close(&self, py: Python<'_>) -> Outcome<()> {
        let mounted = self.mounted.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mounted) = mounted else { return Ok(()) };
        edge::detached(py, move || {
            let closed = mounted.files.clone().close();
            mounted.lease.end();
            Ok(closed?)
        })
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.mounted.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Whether nothing can be written.
    #[getter]
    fn read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }

    /// Makes everything durable.
    fn sync(&self, py: Python<'_>) -> Outcome<()> {
        self.run(py, |files| Ok(files.sync()?))
    }

    /// Space of the volume, as an os.statvfs_result: sizes in blocks of f_bsize bytes.
    fn statvfs<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyAny>> {
        static RESULT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let space = self.run(py, |files| Ok(files.space()?))?;
        let inodes = space.inodes.saturating_add(space.inodes_free);
        // ST_RDONLY of statvfs(3).
        let flags = u64::from(self.access == Access::ReadOnly);
        let size = u64::from(space.block_size);
        let free = (space.blocks_free, space.inodes_free);
        let told = [
            size,
            size,
            space.blocks,
            free.0,
            free.0,
            inodes,
            free.1,
            free.1,
            flags,
            space.name_max as u64,
        ];
        Ok(RESULT.import(py, "os", "statvfs_result")?.call1((PyTuple::new(py, told)?,))?)
    }

    /// Attributes of the entry at a path, as an os.stat_result.
    #[pyo3(
        signature = (path, *, follow_symlinks = Follow::Yes),
        text_signature = "($self, path, *, follow_symlinks=True)"
    )]
    fn stat<'py>(
        &self,
        py: Python<'py>,
        path: Name,
        follow_symlinks: Follow,
    ) -> Outcome<Bound<'py, PyAny>> {
        let attr = self.run(py, |files| {
            Ok(match follow_symlinks {
                Follow::Yes => files.metadata(path)?,
                Follow::No => files.symlink_metadata(path)?,
            })
        })?;
        Ok(stat_result(py, &attr)?)
    }

    /// Makes a directory with these permission bits.
    #[pyo3(signature = (path, mode = 0o755))]
    fn mkdir(&self, py: Python<'_>, path: Name, mode: u32) -> Outcome<()> {
        self.run(py, |files| {
            let kind = FileKind::Directory;
            files.create_node(path, &NewInode { kind, perm: perm(mode), rdev: 0, target: b"" })?;
            Ok(())
        })
    }

    /// Makes a directory and its missing parents. A directory that exists already is no failure.
    fn makedirs(&self, py: Python<'_>, path: Name) -> Outcome<()> {
        self.run(py, |files| Ok(files.create_dir_all(path)?))
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, path: Name) -> Outcome<()> {
        self.run(py, |files| Ok(files.remove_dir(path)?))
    }

    /// Removes the entry of anything but a directory.
    fn unlink(&self, py: Python<'_>, path: Name) -> Outcome<()> {
        self.run(py, |files| Ok(files.remove_file(path)?))
    }

    /// Moves an entry, and replaces an entry at `to`, at once.
    fn rename(&self, py: Python<'_>, source: Name, to: Name) -> Outcome<()> {
        self.run(py, |files| Ok(files.rename(source, to)?))
    }

    /// Gives a file one more name. A symbolic link gets it itself.
    fn link(&self, py: Python<'_>, source: Name, to: Name) -> Outcome<()> {
        self.run(py, |files| Ok(files.hard_link(source, to)?))
    }

    /// Makes a symbolic link with the text `target`.
    fn symlink(&self, py: Python<'_>, target: Name, path: Name) -> Outcome<()> {
        self.run(py, |files| Ok(files.symlink(target, path)?))
    }

    /// The text of a symbolic link: bytes for a path in bytes, else a str.
    fn readlink<'py>(
        &self,
        py: Python<'py>,
        path: &Bound<'py, PyAny>,
    ) -> Outcome<Bound<'py, PyAny>> {
        let name: Name = path.extract()?;
        let target = self.run(py, |files| Ok(files.read_link(name)?.into_os_string()))?;
        Ok(like(path, target)?)
    }

    /// Names in a directory, without "." and "..", in no particular order: bytes for a path in
    /// bytes, else str.
    #[pyo3(signature = (path = None))]
    fn listdir<'py>(
        &self,
        py: Python<'py>,
        path: Option<&Bound<'py, PyAny>>,
    ) -> Outcome<Bound<'py, PyList>> {
        let root = "/".into_pyobject(py).map(Bound::into_any).map_err(PyErr::from)?;
        let path = path.unwrap_or(&root);
        let name: Name = path.extract()?;
        let names = self.run(py, |files| {
            let entries = files.read_dir(name)?.map(|entry| entry.map(|entry| entry.name));
            Ok(entries.collect::<Result<Vec<_>, _>>()?)
        })?;
        let names = names.into_iter().map(|name| like(path, name)).collect::<PyResult<Vec<_>>>()?;
        Ok(PyList::new(py, names)?)
    }

    /// Cuts a file, or lengthens it with zeroes.
    fn truncate(&self, py: Python<'_>, path: Name, size: u64) -> Outcome<()> {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.set(py, path, Follow::Yes, set)
    }

    /// Changes permission bits.
    #[pyo3(
        signature = (path, mode, *, follow_symlinks = Follow::Yes),
        text_signature = "($self, path, mode, *, follow_symlinks=True)"
    )]
    fn chmod(&self, py: Python<'_>, path: Name, mode: u32, follow_symlinks: Follow) -> Outcome<()> {
        let set = SetAttr { perm: Some(perm(mode)), ..SetAttr::default() };
        self.set(py, path, follow_symlinks, set)
    }

    /// Changes owner and group; -1 leaves one.
    #[pyo3(
        signature = (path, uid, gid, *, follow_symlinks = Follow::Yes),
        text_signature = "($self, path, uid, gid, *, follow_symlinks=True)"
    )]
    fn chown(
        &self,
        py: Python<'_>,
        path: Name,
        uid: i64,
        gid: i64,
        follow_symlinks: Follow,
    ) -> Outcome<()> {
        let set = SetAttr { uid: owner(uid)?, gid: owner(gid)?, ..SetAttr::default() };
        self.set(py, path, follow_symlinks, set)
    }

    /// Sets the times of last access and of last change of the content, `ns` in nanoseconds since
    /// 1970; now where it is not given.
    #[pyo3(
        signature = (path, *, ns = None, follow_symlinks = Follow::Yes),
        text_signature = "($self, path, *, ns=None, follow_symlinks=True)"
    )]
    fn utime(
        &self,
        py: Python<'_>,
        path: Name,
        ns: Option<(i64, i64)>,
        follow_symlinks: Follow,
    ) -> Outcome<()> {
        let at = |ns: Option<i64>| {
            Some(ns.map_or(SetTime::Now, |ns| SetTime::To(Timestamp::from_ns(ns))))
        };
        let (atime, mtime) = (at(ns.map(|ns| ns.0)), at(ns.map(|ns| ns.1)));
        self.set(py, path, follow_symlinks, SetAttr { atime, mtime, ..SetAttr::default() })
    }

    /// Value of an extended attribute.
    #[pyo3(
        signature = (path, name, *, follow_symlinks = Follow::Yes),
        text_signature = "($self, path, name, *, follow_symlinks=True)"
    )]
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: Name,
        name: Name,
        follow_symlinks: Follow,
    ) -> Outcome<Bound<'py, PyBytes>> {
        let value = self.run(py, |files| {
            Ok(files.node(path, follow_symlinks.into())?.xattr(name.as_ref())?)
        })?;
        Ok(PyBytes::new(py, &value))
    }

    /// Sets an extended attribute.
    #[pyo3(
        signature = (path, name, value, *, follow_symlinks = Follow::Yes),
        text_signature = "($self, path, name, value, *, follow_symlinks=True)"
    )]
    fn setxattr(
        &self,
        py: Python<'_>,
        path: Name,
        name: Name,
        value: Bytes,
        follow_symlinks: Follow,
    ) -> Outcome<()> {
        self.run(py, |files| {
            let node = files.node(path, follow_symlinks.into())?;
            Ok(node.set_xattr(name.as_ref(), &value, XattrMode::Any)?)
        })
    }

    /// Removes an extended attribute.
    #[pyo3(
        signature = (path, name, *, follow_symlinks = Follow::Yes),
        text_signature = "($self, path, name, *, follow_symlinks=True)"
    )]
    fn removexattr(
        &self,
        py: Python<'_>,
        path: Name,
        name: Name,
        follow_symlinks: Follow,
    ) -> Outcome<()> {
        self.run(py, |files| {
            Ok(files.node(path, follow_symlinks.into())?.remove_xattr(name.as_ref())?)
        })
    }

    /// Names of the extended attributes.
    #[pyo3(
        signature = (path, *, follow_symlinks = Follow::Yes),
        text_signature = "($self, path, *, follow_symlinks=True)"
    )]
    fn listxattr(
        &self,
        py: Python<'_>,
        path: Name,
        follow_symlinks: Follow,
    ) -> Outcome<Vec<OsString>> {
        self.run(py, |files| Ok(files.node(path, follow_symlinks.into())?.xattrs()?))
    }

    /// The lifetime hint of a file or directory: "none", "short", "medium", "long" or "extreme".
    fn get_lifetime(&self, py: Python<'_>, path: Name) -> Outcome<&'static str> {
        self.run(py, |files| match files.node(path, Links::Follow)?.xattr(LIFETIME_XATTR) {
            Ok(word) => Ok(WriteLifetime::from_name(&word).unwrap_or_default().name()),
            Err(error) if error.errno() == Errno::NODATA.raw_os_error() => Ok("none"),
            Err(error) => Err(error.into()),
        })
    }

    /// Says how long data that is written to a file will live: "short", "medium", "long",
    /// "extreme", or "none". New entries of a directory inherit its hint.
    fn set_lifetime(&self, py: Python<'_>, path: Name, lifetime: &str) -> Outcome<()> {
        let lifetime = self::lifetime(lifetime)?;
        self.run(py, |files| {
            let (node, mode) = (files.node(path, Links::Follow)?, XattrMode::Any);
            Ok(node.set_xattr(LIFETIME_XATTR, lifetime.name().as_bytes(), mode)?)
        })
    }

    fn __repr__(&self) -> String {
        let closed = if self.closed() { ", closed" } else { "" };
        format!("<zonal.Volume on {:?}{closed}>", self.name)
    }
}

/// The hint of a word.
pub(crate) fn lifetime(word: &str) -> Outcome<WriteLifetime> {
    WriteLifetime::from_name(word.as_bytes()).ok_or_else(|| {
        let known = WriteLifetime::ALL.map(WriteLifetime::name).join(", ");
        Failure::new(Errno::INVAL, format!("{word:?} is no lifetime: {known}"))
    })
}

pub(crate) fn perm(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).expect("twelve bits")
}

/// An owner to set; `None` for -1.
fn owner(id: i64) -> Outcome<Option<u32>> {
    if id == -1 {
        return Ok(None);
    }
    let text = || format!("{id} is no owner");
    u32::try_from(id).map(Some).map_err(|_| Failure::new(Errno::INVAL, text()))
}

/// A name in the type of the path that was given.
fn like<'py>(path: &Bound<'py, PyAny>, name: OsString) -> PyResult<Bound<'py, PyAny>> {
    use std::os::unix::ffi::OsStrExt;
    let py = path.py();
    if path.is_instance_of::<PyBytes>() {
        return Ok(PyBytes::new(py, name.as_bytes()).into_any());
    }
    Ok(name.into_pyobject(py)?.into_any())
}

/// Attributes as Python's `os` tells them.
pub(crate) fn stat_result<'py>(py: Python<'py>, attr: &Attr) -> PyResult<Bound<'py, PyAny>> {
    static RESULT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let mode = attr.kind.format() | u32::from(attr.perm);
    let (ids, dev) = ((attr.uid, attr.gid), 0);
    let times = [attr.atime, attr.mtime, attr.ctime];
    let [atime, mtime, ctime] = times.map(Timestamp::secs);
    let first =
        (mode, attr.ino.get(), dev, attr.nlink, ids.0, ids.1, attr.size, atime, mtime, ctime);
    let more = PyDict::new(py);
    for (name, time) in ["atime", "mtime", "ctime"].into_iter().zip(times) {
        #[expect(clippy::cast_precision_loss, reason = "Python has seconds as a float")]
        let seconds = time.secs() as f64 + f64::from(time.nanos()) / 1e9;
        more.set_item(format!("st_{name}"), seconds)?;
        let ns = i128::from(time.secs()) * 1_000_000_000 + i128::from(time.nanos());
        more.set_item(format!("st_{name}_ns"), i64::try_from(ns).unwrap_or(i64::MAX))?;
    }
    more.set_item("st_blocks", attr.blocks)?;
    more.set_item("st_blksize", 4096)?;
    more.set_item("st_rdev", attr.rdev)?;
    RESULT.import(py, "os", "stat_result")?.call1((first, more))
}

//! How drives and file systems come to be: drive files, and mkfs.

use std::sync::Arc;

use pyo3::prelude::*;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use zonal::file::{self, CreateOptions, FileDrive};
use zonal::profile::Changes;
use zonal::{SystemClock, ZonedDevice};
use zonal_fs::furrow::{self, Owner};
use zonal_fs::zonefs::{self, Aggregate};

use crate::device::Device;
use crate::edge::{self, Failure, Name, Outcome, from_bool};

/// Whether an existing file or file system is replaced.
#[derive(Clone, Copy)]
pub(crate) enum Existing {
    Replace,
    Refuse,
}

from_bool!(Existing, Replace, Refuse);

/// The label and the UUID of a new file system.
struct Identity {
    label: String,
    uuid: [u8; 16],
}

/// Makes a drive file: sparse, so this is quick for any size. `options` are the options of `mem:`,
/// as in "zone=4M,zones=64". A file that exists already is refused with EEXIST unless `overwrite`
/// is true.
#[pyfunction]
#[pyo3(
    signature = (path, options = "", *, overwrite = Existing::Refuse),
    text_signature = "(path, options='', *, overwrite=False)"
)]
pub(crate) fn create(
    py: Python<'_>,
    path: Name,
    options: &str,
    overwrite: Existing,
) -> Outcome<()> {
    let changes: Changes = if options.is_empty() {
        Changes::default()
    } else {
        options
            .parse()
            .map_err(|error| Failure::new(Errno::INVAL, format!("options {options:?}: {error}")))?
    };
    let overwrite = match overwrite {
        Existing::Replace => file::Overwrite::Replace,
        Existing::Refuse => file::Overwrite::Refuse,
    };
    let (geometry, uuid) = (changes.geometry()?, random(py)?);
    let options = CreateOptions { geometry, rules: changes.profile.rules(), uuid, overwrite };
    edge::detached(py, || Ok(FileDrive::create(&path, &options)?))
}

/// Makes a file system, "furrow" or "zonefs", on a zonal.Device, or on the device of a
/// specification. Its root belongs to the user of this process. A device that holds something is
/// refused with EBUSY unless `overwrite` is true: then all of it is lost.
#[pyfunction]
#[pyo3(
    signature = (device, filesystem = "furrow", *, label = String::new(),
                 overwrite = Existing::Refuse),
    text_signature = "(device, filesystem='furrow', *, label='', overwrite=False)"
)]
pub(crate) fn mkfs(
    py: Python<'_>,
    device: &Bound<'_, PyAny>,
    filesystem: &str,
    label: String,
    overwrite: Existing,
) -> Outcome<()> {
    let make = match filesystem {
        "furrow" => make_furrow,
        "zonefs" => make_zonefs,
        other => {
            let text = format!("the file system {other:?} is neither furrow nor zonefs");
            return Err(Failure::new(Errno::INVAL, text));
        }
    };
    let named = Identity { label, uuid: random(py)? };
    if let Ok(device) = device.cast::<Device>() {
        let (opened, lease) = device.get().lease()?;
        return edge::detached(py, || {
            let made = make(opened, named, overwrite);
            lease.end();
            made
        });
    }
    let spec: Name = device.extract()?;
    let (spec, access) = (spec.text()?, crate::device::Access::ReadWrite);
    edge::detached(py, || {
        let opened = Device::opened(spec, access, zonal::OpenMode::ReadWrite)?;
        make(opened.device()?, named, overwrite)
    })
}

fn make_furrow(device: Arc<dyn ZonedDevice>, named: Identity, overwrite: Existing) -> Outcome<()> {
    let options = furrow::MkfsOptions {
        label: named.label,
        uuid: named.uuid,
        overwrite: match overwrite {
            Existing::Replace => furrow::Overwrite::Force,
            Existing::Refuse => furrow::Overwrite::Refuse,
        },
        owner: Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() },
        ..furrow::MkfsOptions::default()
    };
    furrow::mkfs(device, &SystemClock::new(), &options, &mut |_| ())?;
    Ok(())
}

fn make_zonefs(device: Arc<dyn ZonedDevice>, named: Identity, overwrite: Existing) -> Outcome<()> {
    let options = zonefs::MkfsOptions {
        label: named.label,
        uuid: named.uuid,
        aggregate: Aggregate::default(),
        uid: Some(geteuid().as_raw()),
        gid: Some(getegid().as_raw()),
        perm: None,
        overwrite: match overwrite {
            Existing::Replace => zonefs::Overwrite::Force,
            Existing::Refuse => zonefs::Overwrite::Refuse,
        },
    };
    zonefs::mkfs(&*device, &options, &mut |_| ())?;
    Ok(())
}

/// A new identity, as uuid4() of Python makes it.
fn random(py: Python<'_>) -> Outcome<[u8; 16]> {
    let uuid = py.import("uuid")?.call_method0("uuid4")?;
    Ok(uuid.getattr("bytes")?.extract()?)
}

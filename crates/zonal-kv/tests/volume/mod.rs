//! A volume of files with names on zonefs, for tests, and functions that read its content.

use std::collections::BTreeMap;
use std::sync::Arc;

use zonal::image::Image;
use zonal::layer::record::{Outage, Recorder};
use zonal::profile::Changes;
use zonal::{Geometry, ManualClock, ZonedDevice, repeat};
use zonal_fs::FsError;
use zonal_fs::vfs::Access;
use zonal_fs::volume::{Upkeep, Volume, VolumeOptions};
use zonal_fs::zonefs::{MkfsOptions, mkfs};
use zonal_kv::zones::ZoneStore;

pub(crate) fn geometry(text: &str) -> Geometry {
    Geometry::new(text.parse::<Changes>().unwrap().geometry().unwrap()).unwrap()
}

/// A drive with an empty zonefs, all of it durable.
pub(crate) fn formatted(geometry: &Geometry) -> Image {
    let recorder = Recorder::new(Image::empty(geometry));
    let options = MkfsOptions { uuid: [5; 16], ..MkfsOptions::default() };
    mkfs(&recorder, &options, &mut |_| ()).unwrap();
    let recording = recorder.finish();
    let mut outage = Outage::at_start(&recording);
    while outage.step() {}
    outage.everything()
}

pub(crate) fn mount(device: Arc<dyn ZonedDevice>) -> Result<Volume, FsError> {
    let clock = Arc::new(ManualClock::new(1_000));
    let store = ZoneStore::mount(device, clock, Access::ReadWrite)?;
    let options = VolumeOptions { upkeep: Upkeep::Caller, ..VolumeOptions::default() };
    Ok(Volume::new(Arc::new(store), &options))
}

/// Names and contents.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

pub(crate) fn files(volume: &Volume) -> Files {
    let names = volume.read_dir("/").unwrap().map(|entry| entry.unwrap().name);
    let names = names.map(|name| name.into_string().unwrap());
    names.map(|name| (name.clone(), volume.read(format!("/{name}")).unwrap())).collect()
}

/// The seed of a random test.
pub(crate) fn seed() -> u64 {
    repeat::seed(std::process::id().into())
}

/// `default` times `COUNT`.
pub(crate) fn count(default: u64) -> u64 {
    default * repeat::count(1)
}

//! Threads and power cuts: calls that run beside each other, and what a cut leaves of them.
//!
//! The recorder takes changes of the drive one at a time, so whatever threads do ends up as one
//! sequence, and every cut of it can be tried. Which sequence it is differs from run to run; what
//! must hold does not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use zonal::image::{Image, Tail};
use zonal::layer::record::{Outage, Recorder};
use zonal::{DeviceError, ZoneId};
use zonal_fs::furrow::{Furrow, MountOptions};
use zonal_fs::vfs::{Caller, FileSystem, Ino, SyncKind, WriteFlags};

use crate::hooked::{Hook, Hooked};
use crate::ops::content;
use crate::ops::drives::{self, SMALL, StepClock};
use crate::zones::PLAIN;

/// Once armed, the next append waits until the test lets it go.
struct HoldAppend {
    armed: AtomicBool,
    entered: Mutex<Sender<()>>,
    release: Mutex<Receiver<()>>,
}

impl Hook for HoldAppend {
    fn before_append(&self, _zone: ZoneId) -> Result<(), DeviceError> {
        if self.armed.swap(false, Ordering::AcqRel) {
            self.entered.lock().expect("one waits").send(()).expect("the test listens");
            self.release.lock().expect("one waits").recv().expect("the test lets it go");
        }
        Ok(())
    }
}

fn recorder() -> Arc<Recorder> {
    let recorder = Arc::new(Recorder::new(Image::empty(&SMALL.geometry())));
    drives::format(recorder.clone(), &StepClock::default());
    recorder
}

/// The content of a file after a mount of `image`; `None` if it is not there, `Err` if it is lost.
fn content_after(image: &Image, name: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let clock = Arc::new(StepClock::default());
    let fs = Furrow::mount(Arc::new(image.power_on()), clock, MountOptions::default());
    let fs = fs.map_err(|error| format!("does not mount: {error}"))?;
    let Ok(attr) = fs.lookup(Ino::ROOT, name) else { return Ok(None) };
    let mut data = vec![0; attr.size as usize];
    let read = fs.read(attr.ino, 0, &mut data);
    read.map(|_| Some(data)).map_err(|error| format!("{}: {error}", String::from_utf8_lossy(name)))
}

#[test]
fn an_fsync_flushes_a_write_that_another_threads_flush_came_too_early_for() {
    // One append's worth on this drive.
    const LEN: usize = 32 * 1024;
    let recorder = recorder();
    let (entered, has_entered) = channel();
    let (let_go, release) = channel();
    let armed = AtomicBool::new(false);
    let hook = HoldAppend { armed, entered: Mutex::new(entered), release: Mutex::new(release) };
    let device = Hooked::new(recorder.clone(), hook);
    let clock = Arc::new(StepClock::default());
    let fs = Furrow::mount(device.clone(), clock, MountOptions::default()).expect("mount");
    let create = |name: &[u8]| fs.create(&Caller::ROOT, Ino::ROOT, name, &PLAIN).expect("create");
    let file = create(b"file").ino;
    let (old, new) = (content(1, 0, LEN), content(2, 0, LEN));
    fs.write(file, 0, &old, WriteFlags::DIRECT).expect("write");
    fs.sync().expect("sync");
    device.hook.armed.store(true, Ordering::Release);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| fs.write(file, 0, &new, WriteFlags::DIRECT));
        has_entered.recv().expect("the writer appends");
        // A commit of something else, with its two flushes, while the append is on its way.
        create(b"other");
        fs.sync().expect("sync");
        let_go.send(()).expect("the writer waits");
        writer.join().expect("no panic").expect("write");
    });
    let before = recorder.len();
    fs.fsync(file, SyncKind::Data).expect("fsync");
    let recording = recorder.recording();
    let mut outage = Outage::at_start(&recording);
    while outage.step() {
        if outage.at() < before {
            continue;
        }
        for cuts in outage.choices(&[Tail::Whole]).combinations() {
            let Some(image) = outage.state(&cuts) else { continue };
            let found = content_after(&image, b"file")
                .unwrap_or_else(|why| panic!("after change {}: {why}", outage.at()));
            let is_new = found.as_ref() == Some(&new);
            let promised = outage.at() == recording.steps.len();
            let legal = is_new || (!promised && found.as_ref() == Some(&old));
            assert!(legal, "after change {}: neither content", outage.at());
        }
    }
}

//! Threads and power cuts: calls that run at the same time, and the states that a cut leaves.
//!
//! The recorder takes changes of the drive one at a time, so the changes of all threads are one
//! sequence, and every cut of it can be tried. The sequence differs from run to run; the rules that
//! must hold do not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use zonal::image::{Image, Tail};
use zonal::layer::record::{Outage, Recorder};
use zonal::{DeviceError, ZoneId};
use zonal_fs::furrow::{Furrow, MountOptions};
use zonal_fs::vfs::{Caller, FileSystem, Ino, SyncKind, WriteFlags};

use crate::hooked::{Hook, Hooked};
use crate::ops::content;
use crate::ops::drives::{self, SMALL, StepClock};
use crate::run::{Start, end_of};
use crate::seed;
use crate::zones::PLAIN;

/// Once armed, the next append or the next flush waits until the test lets it go.
struct Hold {
    armed: AtomicBool,
    flush_armed: AtomicBool,
    entered: Mutex<Sender<()>>,
    release: Mutex<Receiver<()>>,
}

impl Hold {
    /// A hold, the receiver that tells the test of a waiting call, and the sender that lets the
    /// call go on.
    fn new() -> (Self, Receiver<()>, Sender<()>) {
        let (entered, has_entered) = channel();
        let (let_go, release) = channel();
        let hold = Self {
            armed: AtomicBool::new(false),
            flush_armed: AtomicBool::new(false),
            entered: Mutex::new(entered),
            release: Mutex::new(release),
        };
        (hold, has_entered, let_go)
    }

    fn wait(&self, armed: &AtomicBool) {
        if armed.swap(false, Ordering::AcqRel) {
            self.entered.lock().expect("one waits").send(()).expect("the test listens");
            self.release.lock().expect("one waits").recv().expect("the test lets it go");
        }
    }
}

impl Hook for Hold {
    fn before_append(&self, _zone: ZoneId) -> Result<(), DeviceError> {
        self.wait(&self.armed);
        Ok(())
    }

    fn before_flush(&self) -> Result<(), DeviceError> {
        self.wait(&self.flush_armed);
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
fn fsync_flushes_write_missed_by_other_flush() {
    // One append's worth on this drive.
    const LEN: usize = 32 * 1024;
    let recorder = recorder();
    let (hook, has_entered, let_go) = Hold::new();
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
        // A commit of something else, with its flush, while the append is on its way.
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

#[test]
fn fsync_of_threads_during_commit_shares_next_one() {
    const THREADS: u16 = 8;
    let recorder = recorder();
    let (hook, has_entered, let_go) = Hold::new();
    let device = Hooked::new(recorder.clone(), hook);
    let clock = Arc::new(StepClock::default());
    let fs = Furrow::mount(device.clone(), clock, MountOptions::default()).expect("mount");
    let create = |name: &[u8]| fs.create(&Caller::ROOT, Ino::ROOT, name, &PLAIN).expect("create");
    let batches = fs.stats().batches;
    create(b"first");
    device.hook.flush_armed.store(true, Ordering::Release);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| fs.sync());
        has_entered.recv().expect("it flushes");
        (0..THREADS).for_each(|thread| _ = create(&name(thread)));
        let others: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| fs.sync())).collect();
        let_go.send(()).expect("the first commit waits");
        for thread in others.into_iter().chain([first]) {
            thread.join().expect("no panic").expect("sync");
        }
    });
    assert_eq!(fs.stats().batches - batches, 2, "one commit for all others");
    assert_eq!(content_after(&end_of(&recorder.recording()), &name(7)), Ok(Some(Vec::new())));
}

#[test]
fn read_waits_for_no_device_write_of_commit() {
    let recorder = recorder();
    let (hook, has_entered, let_go) = Hold::new();
    hook.armed.store(true, Ordering::Release);
    let device = Hooked::new(recorder.clone(), hook);
    let clock = Arc::new(StepClock::default());
    let fs = Furrow::mount(device.clone(), clock, MountOptions::default()).expect("mount");
    let fs = Arc::new(fs);
    let file = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &PLAIN).expect("create").ino;
    let write = |block: u64| {
        fs.write(file, block * 8192, &[7; 4096], WriteFlags::empty()).expect("it is buffered");
    };
    write(0);
    let committing = Arc::clone(&fs);
    let commit = std::thread::spawn(move || committing.sync());
    // Two passes over the buffer, each of which leaves a block that came meanwhile. The third is
    // the last: no change comes in between any more.
    for block in [1, 2] {
        has_entered.recv().expect("the commit writes");
        write(block);
        device.hook.armed.store(true, Ordering::Release);
        let_go.send(()).expect("the commit waits");
    }
    has_entered.recv().expect("the commit writes");
    let reading = Arc::clone(&fs);
    let (done, has_read) = channel();
    std::thread::spawn(move || {
        let size = reading.getattr(file).expect("getattr").size;
        let mut data = vec![0; 4096];
        reading.read(file, 2 * 8192, &mut data).expect("read");
        reading.lookup(Ino::ROOT, b"file").expect("lookup");
        reading.pin(file).expect("pin");
        reading.unpin(file);
        done.send((size, data == [7; 4096])).expect("the test listens");
    });
    // If readers wait for the commit, nothing ends this.
    assert_eq!(has_read.recv(), Ok((2 * 8192 + 4096, true)));
    let_go.send(()).expect("the commit waits");
    commit.join().expect("no panic").expect("commit");
    let image = end_of(&recorder.recording());
    let expected: Vec<u8> =
        (0..2 * 8192 + 4096).map(|at| if at % 8192 < 4096 { 7 } else { 0 }).collect();
    assert_eq!(content_after(&image, b"file"), Ok(Some(expected)), "all of it is durable");
}

/// Bytes of a file whose content a thread replaces as a whole, again and again.
const FILE_LEN: usize = 11_000;

/// One content of a file, and when it came to be.
#[derive(Clone, Copy, Debug)]
struct Version {
    /// Changes of the drive before the write began.
    begun_at: usize,
    /// Changes of the drive when an `fsync` of it had returned, if there was one.
    promised_at: Option<usize>,
    /// Ticks of a clock that all threads share.
    begun: u64,
    ended: u64,
}

/// The work of a thread: twelve versions of its file, every third one with an `fsync`.
fn work(fs: &Furrow, recorder: &Recorder, ticks: &AtomicU64, thread: u16) -> Vec<Version> {
    let ino = fs.lookup(Ino::ROOT, &name(thread)).expect("it was made").ino;
    let versions = (1..=12_u16).map(|version| {
        let begun_at = recorder.len();
        let begun = ticks.fetch_add(1, Ordering::SeqCst);
        let data = content(100 * thread + version, 0, FILE_LEN);
        let flags = if version % 4 == 0 { WriteFlags::DIRECT } else { WriteFlags::empty() };
        fs.write(ino, 0, &data, flags).expect("write");
        let ended = ticks.fetch_add(1, Ordering::SeqCst);
        let promised_at = version.is_multiple_of(3).then(|| {
            fs.fsync(ino, SyncKind::Data).expect("fsync");
            recorder.len()
        });
        Version { begun_at, promised_at, begun, ended }
    });
    versions.collect()
}

fn name(thread: u16) -> Vec<u8> {
    format!("thread {thread}").into_bytes()
}

/// Which version of each file is there: 0 before the first one.
fn versions_after(image: &Image, threads: u16) -> Vec<usize> {
    let drive = Arc::new(image.power_on());
    let clock = Arc::new(StepClock::default());
    let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).expect("mount");
    let found = (0..threads).map(|thread| {
        let attr = fs.lookup(Ino::ROOT, &name(thread)).expect("it was there before");
        let mut data = vec![0; attr.size as usize];
        fs.read(attr.ino, 0, &mut data).expect("it can be read");
        let is_it = |version: &u16| data == content(100 * thread + version, 0, FILE_LEN);
        let version = if data.is_empty() { Some(0) } else { (1..=12).find(is_it) };
        usize::from(version.expect("one of its versions, whole"))
    });
    let found = found.collect();
    drop(fs);
    assert_eq!(drives::problems(drive), Vec::<String>::new());
    found
}

/// Promised versions are there, and none is there before its write began. If a version is there, so
/// are all that had ended before it began.
fn check_versions(found: &[usize], threads: &[Vec<Version>], at: usize) {
    let version = |thread: usize, number: usize| threads[thread][number - 1];
    for (thread, &number) in found.iter().enumerate() {
        let promised = threads[thread]
            .iter()
            .rposition(|version| version.promised_at.is_some_and(|promised| promised <= at));
        assert!(Some(number) > promised, "thread {thread}: {number}, promised {promised:?}");
        if number == 0 {
            continue;
        }
        let here = version(thread, number);
        assert!(here.begun_at <= at, "thread {thread}: {number} had not begun");
        for (other, &other_number) in found.iter().enumerate() {
            let ended = threads[other].iter().rposition(|version| version.ended < here.begun);
            assert!(
                Some(other_number) > ended,
                "thread {thread} is at {number}, {other} at {other_number}, after {ended:?}"
            );
        }
    }
}

#[test]
fn threads_cut_while_writing_keep_promises_and_order() {
    const THREADS: u16 = 3;
    let seed = seed();
    let image = Start::new(&SMALL, SMALL.ballast_max(), &[]).image;
    let recorder = Arc::new(Recorder::new(image));
    let clock = Arc::new(StepClock::default());
    let fs = Furrow::mount(recorder.clone(), clock, MountOptions::default()).expect("mount");
    for thread in 0..THREADS {
        fs.create(&Caller::ROOT, Ino::ROOT, &name(thread), &PLAIN).expect("create");
    }
    fs.sync().expect("sync");
    let before = recorder.len();
    let ticks = AtomicU64::new(0);
    let (fs, device, ticks) = (&fs, &*recorder, &ticks);
    let threads: Vec<Vec<Version>> = std::thread::scope(|scope| {
        let running =
            (0..THREADS).map(|thread| scope.spawn(move || work(fs, device, ticks, thread)));
        let running: Vec<_> = running.collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let recording = recorder.recording();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut outage = Outage::at_start(&recording);
    while outage.step() {
        if outage.at() < before {
            continue;
        }
        for _ in 0..3 {
            let Some(image) = outage.sample(&mut |limit| random.next_u64() % limit) else {
                continue;
            };
            check_versions(&versions_after(&image, THREADS), &threads, outage.at());
        }
    }
}

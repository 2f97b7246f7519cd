//! Content of the files of the control directory, made when they are read.

use std::fmt::Write;
use std::sync::{Arc, PoisonError};

use serde::Serialize;
use serde_json::Value;
use zonal::{ZoneId, shown};
use zonal_fs::FsError;
use zonal_fs::vfs::{Ino, Result};

use super::files::ControlFile;
use super::metrics::{self, Dialect};
use super::report::Report;
use super::{Control, map, page};
use crate::options::MountConfig;
use crate::served::Served;
use crate::zone_report;

/// Most zones in one report of the device.
const CHUNK: usize = 4096;

impl Control {
    /// Reads a file of the directory.
    pub fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        match self.file(ino)? {
            ControlFile::Stats => Ok(self.read_made(ino, offset, buffer, || json(&self.report()))),
            ControlFile::Page => {
                let page = || page::page(&self.report(), None);
                Ok(self.read_made(ino, offset, buffer, page))
            }
            ControlFile::Metrics => {
                let metrics = || self.metrics(Dialect::Prometheus);
                Ok(self.read_made(ino, offset, buffer, metrics))
            }
            ControlFile::Map => Ok(self.read_map(offset, buffer)),
            ControlFile::Zones => self.read_zones(offset, buffer),
            ControlFile::Counter(name) => {
                let mut counters = self.inspected.counters().into_iter();
                let value =
                    counters.find(|(other, _)| *other == name).map_or(0, |(_, value)| value);
                Ok(copy(&format!("{value}\n"), offset, buffer))
            }
            ControlFile::Options => {
                let text = || json(&self.options());
                Ok(self.read_made(ino, offset, buffer, text))
            }
            // Only root gets here: the permissions of the file do not allow reading.
            ControlFile::Command => {
                Err(FsError::Invalid { what: "commands are written, not read" })
            }
        }
    }

    /// Reads a text that is made when its first byte is read and kept until the next such read. So
    /// a program that reads in pieces gets pieces of one text, unless another one begins meanwhile.
    fn read_made(
        &self,
        ino: Ino,
        offset: u64,
        buffer: &mut [u8],
        make: impl Fn() -> String,
    ) -> usize {
        let kept = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = (offset > 0).then(|| kept().get(&ino).cloned()).flatten();
        let text = earlier.unwrap_or_else(|| {
            let text: Arc<str> = make().into();
            kept().insert(ino, Arc::clone(&text));
            text
        });
        copy(&text, offset, buffer)
    }

    /// All settings, counters and latencies.
    pub fn report(&self) -> Report {
        let settings = self.inspected.settings().into_iter();
        let settings = settings.map(|(name, value)| (name.to_owned(), Value::from(value)));
        let counters = self.inspected.counters().into_iter();
        let counters = counters.map(|(name, value)| (name.to_owned(), Value::from(value)));
        let MountConfig { metrics, threads, mount_point, .. } = self.config().clone();
        let metrics = metrics.map(|address| ("metrics".to_owned(), address.to_string().into()));
        let threads = threads.map(|threads| ("threads".to_owned(), threads.get().into()));
        let identity = [
            ("uuid".to_owned(), uuid_text(self.inspected.uuid()).into()),
            ("mount".to_owned(), shown(&mount_point).into()),
        ];
        let panicked = self.panicked.get();
        let panicked = panicked.map(|message| ("panicked".to_owned(), message.clone().into()));
        let served = self.served.get().into_iter().flat_map(|served| {
            let Served { transport, async_direct, mount_type } = served;
            [
                ("transport", transport.name()),
                ("async_direct_reads", async_direct.name()),
                ("mount_type", mount_type.name()),
            ]
        });
        let served = served.map(|(name, how)| (name.to_owned(), how.into()));
        let advice = self.latencies.small_writes().advice();
        let advice = advice.map(|advice| ("advice".to_owned(), advice.into()));
        let named = settings.chain(identity).chain(metrics).chain(served).chain(threads);
        let named = named.chain(advice).chain(panicked).chain(counters);
        Report {
            kind: self.inspected.kind().to_owned(),
            at_ns: self.latencies.now_ns(),
            named: named.collect(),
            live: self.inspected.live(),
            operations: self.latencies.all(),
            operations_minute: self.latencies.minute(),
        }
    }

    /// The report in a text format of Prometheus.
    pub fn metrics(&self, dialect: Dialect) -> String {
        metrics::text(&self.report(), &self.latencies.coarse(), dialect)
    }

    /// Reads lines of the map.
    fn read_map(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let (first, skip) = (at / map::LINE_BYTES, at % map::LINE_BYTES);
        let count = (skip + buffer.len()).div_ceil(map::LINE_BYTES);
        let uses = self.inspected.zone_uses(first, count);
        copy(&map::text(&uses), skip as u64, buffer)
    }

    /// Reads lines of the zone report. All lines have the same length, so only the lines of this
    /// read are made: a large drive has megabytes of them.
    fn read_zones(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let line_bytes = zone_report::HEAD.len() + 1;
        let first = usize::try_from(offset / line_bytes as u64).unwrap_or(usize::MAX);
        let skip = usize::try_from(offset % line_bytes as u64).expect("less than a line");
        let lines = (skip + buffer.len()).div_ceil(line_bytes);
        let mut text = String::with_capacity(lines * line_bytes);
        if first == 0 {
            writeln!(text, "{}", zone_report::HEAD).expect("a string takes all");
        }
        let count = self.device.geometry().zone_count() as usize;
        // The first line is the head.
        let (mut zone, limit) = (first.saturating_sub(1), first.saturating_add(lines) - 1);
        let limit = limit.min(count);
        let mut zones = Vec::new();
        while zone < limit {
            zones.clear();
            let from = ZoneId::new(u32::try_from(zone).expect("less than the zones"));
            self.device.report(from, &mut zones, (limit - zone).min(CHUNK))?;
            for zone in &zones {
                let line = zone_report::line(zone);
                let width = zone_report::HEAD.len();
                writeln!(text, "{line:<width$.width$}").expect("a string takes all");
            }
            zone += zones.len();
        }
        Ok(copy(&text, skip as u64, buffer))
    }
}

fn json(document: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(document);
    text.expect("names are texts, and numbers are whole") + "\n"
}

/// Formats a UUID: 32 digits in groups of 8, 4, 4, 4 and 12.
fn uuid_text(uuid: [u8; 16]) -> String {
    let mut text = String::new();
    for (index, byte) in uuid.into_iter().enumerate() {
        let before = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
        write!(text, "{before}{byte:02x}").expect("a string takes all");
    }
    text
}

/// Copies `text` from `offset` on into `buffer`.
fn copy(text: &str, offset: u64, buffer: &mut [u8]) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|offset| text.as_bytes().get(offset..));
    let rest = rest.unwrap_or_default();
    let len = rest.len().min(buffer.len());
    buffer[..len].copy_from_slice(&rest[..len]);
    len
}

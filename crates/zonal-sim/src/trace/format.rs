//! The formats of block traces: finding out the format of a file, and parsing its lines.
//!
//! | format | a line |
//! | --- | --- |
//! | `fio` | fio's iolog, version 2 (`file action offset length`) and 3 (with a time in µs before it) |
//! | `blkparse` | the default text of `blkparse`: `8,0 3 1 0.000000000 697 Q W 223490 + 8 [name]` |
//! | `msr` | MSR Cambridge: time in 100 ns, host, disk, `Read` or `Write`, offset, size, response time |
//! | `alibaba` | Alibaba block traces: device, `R` or `W`, offset, length, time in µs |
//! | `tencent` | Tencent CBS: time in s, offset and size in sectors, 0 or 1 for a write, volume |
//! | `systor` | SYSTOR '17: time in s, response time, `R` or `W`, LUN, offset, size |
//! | `zonal` | a recording of the `trace(FILE):` layer, which is no text: see `recording.rs` |
//!
//! No text makes a parser panic: a line that it cannot read gives an error that says why.

use crate::config::{Event, Format};
use crate::request::Op;

impl Format {
    /// The format of text that begins with `head`, which may end anywhere.
    pub fn detect(head: &[u8]) -> Option<Self> {
        if head.starts_with(b"ZONTRACE") {
            return Some(Self::Zonal);
        }
        let text = String::from_utf8_lossy(head);
        let first = text.lines().find(|line| !line.trim().is_empty())?.trim();
        if first.starts_with("fio version") {
            return Some(Self::Fio);
        }
        let fields: Vec<&str> = first.split(',').map(str::trim).collect();
        match fields.as_slice() {
            ["device_id", ..] | [_, "R" | "W" | "r" | "w", _, _, _] => Some(Self::Alibaba),
            [_, _, _, "IOType", "VolumeID"] | [_, _, _, "0" | "1", _] => Some(Self::Tencent),
            [_, _, "IOType", "LUN", ..] | [_, _, "R" | "W", _, _, _] => Some(Self::Systor),
            [_, _, _, kind, _, _, _] if msr_op(kind).is_some() || *kind == "Type" => {
                Some(Self::Msr)
            }
            _ if is_device(first.split_whitespace().next()?) => {
                let has = |action| {
                    text.lines().any(|line| line.split_whitespace().nth(5) == Some(action))
                };
                let events = [Event::Queued, Event::Issued, Event::Completed];
                let event = events.into_iter().find(|event| has(event.action()));
                Some(Self::Blkparse(event.unwrap_or(Event::Queued)))
            }
            _ => None,
        }
    }
}

/// The request of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// When, from the origin that the trace counts from.
    pub at_ns: u64,
    /// The disk, volume or file; parts of a name that are apart in the line.
    pub volume: (&'a str, &'a str),
    /// The operation: never a reset.
    pub op: Op,
    /// The first byte.
    pub offset: u64,
    /// Bytes; `offset + bytes` is no more than 2^63.
    pub bytes: u64,
}

/// Understands lines, one after the other.
#[derive(Clone, Debug)]
pub struct Parser {
    format: Format,
    first: bool,
    /// fio: the version, and in version 2 the waits so far.
    timed: bool,
    waited_us: u64,
    /// blkparse: the sums at the end have begun.
    ended: bool,
}

/// The request of a line, if it is one, or the fault in the line, for people.
type Parsed<'a> = Result<Option<Line<'a>>, String>;

impl Parser {
    /// A parser at the beginning of a trace.
    pub const fn new(format: Format) -> Self {
        Self { format, first: true, timed: false, waited_us: 0, ended: false }
    }

    /// The next line. `None` if it is no request, but belongs to the format.
    pub fn line<'a>(&mut self, line: &'a str) -> Parsed<'a> {
        let line = line.trim();
        if line.is_empty() {
            return Ok(None);
        }
        let first = std::mem::replace(&mut self.first, false);
        match self.format {
            Format::Fio if first => self.fio_head(line),
            Format::Fio => self.fio(line),
            Format::Blkparse(event) => self.blkparse(line, event),
            Format::Msr | Format::Alibaba | Format::Tencent | Format::Systor
                if first && is_head(line) =>
            {
                Ok(None)
            }
            Format::Msr => msr(line),
            Format::Alibaba => alibaba(line),
            Format::Tencent => tencent(line),
            Format::Systor => systor(line),
            Format::Zonal => Err("a recording of zonal is no text".into()),
        }
    }

    fn fio_head<'a>(&mut self, line: &'a str) -> Parsed<'a> {
        self.timed = match line {
            "fio version 2 iolog" => false,
            "fio version 3 iolog" => true,
            _ => return Err(format!("{line:?} is no \"fio version 2 iolog\", nor 3")),
        };
        Ok(None)
    }

    fn fio<'a>(&mut self, line: &'a str) -> Parsed<'a> {
        let mut fields = line.split_whitespace();
        let mut at_us = self.waited_us;
        if self.timed {
            at_us = number(fields.next(), "time")?;
        }
        let volume = fields.next().ok_or("a file name is missing")?;
        let op = match fields.next().ok_or("an action is missing")? {
            "read" => Op::Read,
            "write" => Op::Write,
            "trim" => Op::Trim,
            "add" | "open" | "close" | "sync" | "datasync" | "sync_file_range" => return Ok(None),
            "wait" => {
                let us = number(fields.next(), "time to wait")?;
                self.waited_us = self.waited_us.saturating_add(us);
                return Ok(None);
            }
            other => return Err(format!("{other:?} is no action")),
        };
        let (offset, bytes) = (number(fields.next(), "offset")?, number(fields.next(), "length")?);
        request(at_us.checked_mul(1000), (volume, ""), op, (offset, bytes, 1))
    }

    fn blkparse<'a>(&mut self, line: &'a str, event: Event) -> Parsed<'a> {
        if self.ended || line.starts_with("CPU") || line.starts_with("Total") {
            self.ended = true;
            return Ok(None);
        }
        let mut fields = line.split_whitespace();
        let volume = fields.next().filter(|field| is_device(field)).ok_or("no device, as 8,0")?;
        number(fields.next(), "processor")?;
        number(fields.next(), "sequence number")?;
        let at_ns = seconds(fields.next().ok_or("a time is missing")?)?;
        number(fields.next(), "process")?;
        let action = fields.next().ok_or("an action is missing")?;
        if action != event.action() {
            return Ok(None);
        }
        let kind = fields.next().ok_or("what it does is missing")?;
        let op = match kind {
            _ if kind.contains('D') => Op::Trim,
            _ if kind.contains('W') => Op::Write,
            _ if kind.contains('R') => Op::Read,
            // A flush, or nothing.
            _ => return Ok(None),
        };
        let mut rest = fields.clone();
        let (Some(sector), Some("+")) = (rest.next(), rest.next()) else {
            // A flush with data, still without it.
            return if kind.starts_with('F') { Ok(None) } else { Err("no sector + count".into()) };
        };
        let (sector, count) = (number(Some(sector), "sector")?, number(rest.next(), "count")?);
        request(Some(at_ns), (volume, ""), op, (sector, count, 512))
    }
}

fn msr(line: &str) -> Parsed<'_> {
    let [time, host, disk, kind, offset, bytes, _] = columns(line)?;
    let op = msr_op(kind).ok_or_else(|| format!("{kind:?} is not Read or Write"))?;
    let at_ns = number(Some(time), "time")?.checked_mul(100);
    let (offset, bytes) = (number(Some(offset), "offset")?, number(Some(bytes), "size")?);
    request(at_ns, (host, disk), op, (offset, bytes, 1))
}

fn msr_op(kind: &str) -> Option<Op> {
    match kind {
        "Read" | "read" => Some(Op::Read),
        "Write" | "write" => Some(Op::Write),
        _ => None,
    }
}

fn alibaba(line: &str) -> Parsed<'_> {
    let [device, kind, offset, bytes, time] = columns(line)?;
    let op = letter(kind)?;
    let at_ns = number(Some(time), "time")?.checked_mul(1000);
    let (offset, bytes) = (number(Some(offset), "offset")?, number(Some(bytes), "length")?);
    request(at_ns, (device, ""), op, (offset, bytes, 1))
}

fn letter(kind: &str) -> Result<Op, String> {
    match kind {
        "R" | "r" => Ok(Op::Read),
        "W" | "w" => Ok(Op::Write),
        _ => Err(format!("{kind:?} is not R or W")),
    }
}

/// The response time is a result, and empty where it was not seen.
fn systor(line: &str) -> Parsed<'_> {
    let [time, _, kind, lun, offset, bytes] = columns(line)?;
    let (offset, bytes) = (number(Some(offset), "offset")?, number(Some(bytes), "size")?);
    request(Some(seconds(time)?), (lun, ""), letter(kind)?, (offset, bytes, 1))
}

fn tencent(line: &str) -> Parsed<'_> {
    let [time, offset, count, kind, volume] = columns(line)?;
    let op = match kind {
        "0" => Op::Read,
        "1" => Op::Write,
        _ => return Err(format!("{kind:?} is not 0 or 1")),
    };
    let (offset, count) = (number(Some(offset), "offset")?, number(Some(count), "size")?);
    request(Some(seconds(time)?), (volume, ""), op, (offset, count, 512))
}

/// A request, unless its numbers are impossible. `at` is first unit, units and bytes of a unit.
fn request<'a>(
    at_ns: Option<u64>,
    volume: (&'a str, &'a str),
    op: Op,
    (first, count, unit): (u64, u64, u64),
) -> Parsed<'a> {
    let at_ns = at_ns.ok_or("its time is beyond 2^64 ns")?;
    let bytes = |units: u64| units.checked_mul(unit).filter(|bytes| *bytes < 1 << 62);
    let (offset, bytes) = bytes(first).zip(bytes(count)).ok_or("it ends beyond 2^63 bytes")?;
    Ok((bytes > 0).then_some(Line { at_ns, volume, op, offset, bytes }))
}

/// The columns of a line of CSV without quotes.
fn columns<const N: usize>(line: &str) -> Result<[&str; N], String> {
    let (mut columns, mut fields) = ([""; N], line.split(','));
    for column in &mut columns {
        *column = fields.next().ok_or_else(|| format!("fewer than {N} columns"))?.trim();
    }
    if fields.next().is_some() { Err(format!("more than {N} columns")) } else { Ok(columns) }
}

fn number(text: Option<&str>, what: &str) -> Result<u64, String> {
    let text = text.ok_or_else(|| format!("the {what} is missing"))?;
    text.parse().map_err(|_| format!("{text:?} is no {what}"))
}

/// Seconds with a fraction, as nanoseconds; digits beyond those are cut off.
fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no time in seconds");
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if !part.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(wrong());
    }
    let digits = part.bytes().chain(std::iter::repeat(b'0')).take(9);
    let part = digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    whole.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(part)).ok_or_else(wrong)
}

/// Whether this names columns.
fn is_head(line: &str) -> bool {
    line.starts_with("Timestamp") || line.starts_with("device_id")
}

/// Whether this is major,minor.
fn is_device(text: &str) -> bool {
    text.split_once(',')
        .is_some_and(|(major, minor)| major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok())
}

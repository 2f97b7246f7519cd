//! `zonal map`: which zones a file lies in, and which files a zone holds.

mod page;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use schemars::JsonSchema;
use serde::Serialize;
use zonal::shown;
use zonal_fs::vfs::FileExtent;

use self::source::Target;
use crate::args::Global;
use crate::args::map::Map;
use crate::cmd::files::list::lossy_if_there;
use crate::output::table::Table;
use crate::output::{json, size};
use crate::top::Spot;

/// The content of a zone, as JSON has it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ZoneContent {
    /// Its number.
    zone: u32,
    /// What it is used for, or its condition.
    zone_use: &'static str,
    /// Share of it that is written.
    written_percent: f64,
    /// Share of it that files use; null where that is not known.
    used_percent: Option<f64>,
    /// Files that lie in it, the one with the most bytes first.
    contents: Vec<FileContent>,
}

/// The part of a file that lies in a zone.
#[derive(Serialize, JsonSchema)]
struct FileContent {
    /// A path to it in the file system; null of a file without a name, or in a directory that this
    /// user may not list.
    #[serde(serialize_with = "lossy_if_there")]
    #[schemars(with = "Option<String>")]
    path: Option<PathBuf>,
    /// Its number.
    inode: u64,
    /// How much of it lies in the zone.
    bytes: u64,
    /// Where: only of one file, or of one zone.
    places: Vec<Place>,
}

/// An extent.
#[derive(Clone, Copy, Serialize, JsonSchema)]
struct Place {
    /// Where in the file.
    offset_bytes: u64,
    /// Length.
    length_bytes: u64,
    /// Where in the zone.
    zone_offset_bytes: u64,
    /// Whether other files may have the same bytes.
    shared: bool,
}

/// Files by the zone that they lie in and by inode.
type Files = BTreeMap<(u32, u64), FileContent>;

/// The part of the drive that the command shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// All of it: bytes of files by zone, without their places.
    Drive,
    /// One zone.
    Zone(u32),
    /// One file.
    File,
}

impl Scope {
    fn of(args: &Map, target: &Target, zones: &[Spot]) -> Result<Self> {
        match args.zone {
            Some(zone) if zone as usize >= zones.len() => {
                let last = zones.len().saturating_sub(1);
                bail!("--zone: the drive has zones 0 to {last}, and no {zone}")
            }
            Some(zone) => Ok(Self::Zone(zone)),
            None if target.file.is_some() => Ok(Self::File),
            None => Ok(Self::Drive),
        }
    }
}

/// Prints the map, or writes the page.
pub(crate) fn run(global: &Global, args: &Map) -> Result<()> {
    let what = Path::new(&args.what);
    let target = Target::of(what)?;
    tracing::info!(target = shown(what), "asking for extents");
    let zones = target.zones()?;
    let scope = Scope::of(args, &target, &zones)?;
    let mut contents = contents(&zones, files_of(&target, scope)?);
    let named = match (&args.html, scope) {
        (Some(_), Scope::Drive) if !global.json => page::FILES_MAX,
        (None, Scope::Drive) if !global.json => 1,
        _ => usize::MAX,
    };
    name_files(&mut contents, &target, named)?;
    if let Some(path) = &args.html {
        let text = page::page(&shown(what), &contents)?;
        zonal::output::write(path, text, &[what.to_owned()])
            .with_context(|| format!("writing {}", shown(path)))?;
    }
    match scope {
        Scope::Drive => {}
        Scope::Zone(only) => contents.retain(|zone| zone.zone == only),
        Scope::File => contents.retain(|zone| !zone.contents.is_empty()),
    }
    if global.json {
        return contents.iter().try_for_each(json::line);
    }
    match (&args.html, scope) {
        (Some(path), _) => sayln!("{}", shown(path)),
        (None, Scope::Drive) => say!("{}", zone_table(&contents)),
        (None, Scope::Zone(_)) => say!("{}", table_of_zone(&contents)),
        (None, Scope::File) => say!("{}", table_of_file(&contents)),
    }
    Ok(())
}

/// The files of the target, without paths.
fn files_of(target: &Target, scope: Scope) -> Result<Files> {
    let mut files = Files::new();
    target.each_extent(|extent| {
        let FileExtent { ino, offset, len, zone, zone_offset, shared } = extent;
        if matches!(scope, Scope::Zone(only) if only != zone.get()) {
            return;
        }
        let new = || FileContent { path: None, inode: ino.get(), bytes: 0, places: Vec::new() };
        let file = files.entry((zone.get(), ino.get())).or_insert_with(new);
        file.bytes = file.bytes.saturating_add(len);
        if scope != Scope::Drive {
            file.places.push(Place {
                offset_bytes: offset,
                length_bytes: len,
                zone_offset_bytes: zone_offset,
                shared,
            });
        }
    })?;
    Ok(files)
}

/// The content of every zone, the largest file first.
fn contents(zones: &[Spot], files: Files) -> Vec<ZoneContent> {
    let mut all: Vec<ZoneContent> = (0..)
        .zip(zones)
        .map(|(zone, spot)| ZoneContent {
            zone,
            zone_use: spot.sign.name(),
            written_percent: spot.written.into(),
            used_percent: spot.used.map(f64::from),
            contents: Vec::new(),
        })
        .collect();
    for ((zone, _), file) in files {
        // A zone behind the last one can only be wrong metadata, which `zonal check` reports.
        if let Some(found) = all.get_mut(zone as usize) {
            found.contents.push(file);
        }
    }
    for zone in &mut all {
        zone.contents.sort_by_key(|file| std::cmp::Reverse(file.bytes));
    }
    all
}

/// Finds the paths of the `most` largest files of each zone. The paths of all files of a large file
/// system would take gigabytes.
fn name_files(zones: &mut [ZoneContent], target: &Target, most: usize) -> Result<()> {
    let largest = zones.iter().flat_map(|zone| zone.contents.iter().take(most));
    let wanted: BTreeSet<u64> = largest.map(|file| file.inode).collect();
    let paths = target.paths(&|ino| wanted.contains(&ino))?;
    for file in zones.iter_mut().flat_map(|zone| zone.contents.iter_mut().take(most)) {
        file.path = paths.get(&file.inode).cloned();
    }
    Ok(())
}

impl FileContent {
    fn name(&self) -> String {
        match &self.path {
            Some(path) => shown(path),
            None => format!("inode {}", self.inode),
        }
    }
}

/// A line for each zone that is written.
fn zone_table(zones: &[ZoneContent]) -> String {
    let mut table = Table::new(2, &["zone", "use", "written", "used", "files", "largest"]);
    for zone in zones.iter().filter(|zone| zone.written_percent > 0.0) {
        let percent = |share: f64| format!("{share}%");
        let largest = zone.contents.first();
        let largest = largest.map(|file| format!("{} ({})", file.name(), size(file.bytes)));
        table.row(vec![
            zone.zone.to_string(),
            zone.zone_use.to_owned(),
            percent(zone.written_percent),
            zone.used_percent.map_or_else(|| "-".to_owned(), percent),
            zone.contents.len().to_string(),
            largest.unwrap_or_default(),
        ]);
    }
    table.text()
}

/// An extent with its zone and its file.
type Line<'a> = (u32, &'a FileContent, Place);

/// The extents of zones, in the order of a key.
fn extents_by(zones: &[ZoneContent], key: fn(&Place) -> u64) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for zone in zones {
        for file in &zone.contents {
            lines.extend(file.places.iter().map(|place| (zone.zone, file, *place)));
        }
    }
    lines.sort_by_key(|(_, _, place)| key(place));
    lines
}

/// A line for each extent of a file.
fn table_of_file(zones: &[ZoneContent]) -> String {
    let lines = extents_by(zones, |place| place.offset_bytes);
    let mut table = Table::new(0, &["offset", "length", "zone", "in zone", ""]);
    for (zone, _, place) in &lines {
        let Place { offset_bytes, length_bytes, zone_offset_bytes, shared } = *place;
        let cells = [offset_bytes, length_bytes, (*zone).into(), zone_offset_bytes];
        let share = if shared { "shared" } else { "" };
        table.row(cells.iter().map(u64::to_string).chain([share.to_owned()]).collect());
    }
    table.text() + &sum(&lines)
}

/// A line for each extent in a zone.
fn table_of_zone(zones: &[ZoneContent]) -> String {
    let lines = extents_by(zones, |place| place.zone_offset_bytes);
    let mut table = Table::new(0, &["in zone", "length", "offset", "file"]);
    for (_, file, place) in &lines {
        let Place { offset_bytes, length_bytes, zone_offset_bytes, shared } = *place;
        let cells = [zone_offset_bytes, length_bytes, offset_bytes];
        let share = if shared { " (shared)" } else { "" };
        let name = file.name() + share;
        table.row(cells.iter().map(u64::to_string).chain([name]).collect());
    }
    table.text() + &sum(&lines)
}

/// The last line of a table of extents.
fn sum(lines: &[Line<'_>]) -> String {
    let zones: BTreeSet<u32> = lines.iter().map(|(zone, ..)| *zone).collect();
    let bytes =
        lines.iter().fold(0, |sum: u64, (_, _, place)| sum.saturating_add(place.length_bytes));
    let counted =
        |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (extents, zones) = (counted(lines.len(), "extent"), counted(zones.len(), "zone"));
    format!("{} in {extents} in {zones}\n", size(bytes))
}

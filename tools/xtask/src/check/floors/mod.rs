//! Floors inside a folder of a crate: which of its rooms may use which.
//!
//! A folder has floors if the `//!` of its face has a table with this head; the face is `mod.rs`,
//! and `lib.rs` or `main.rs` for the whole crate:
//!
//! ```text
//! | room | what it is | may use |
//! ```
//!
//! A room is a module that the face declares, with all modules below it. A row names one room, or
//! several that may not use each other. The last column names rooms, or says `all above`: every
//! room of the rows above. The face may have a row. Without one it may use every room, and every
//! room may use the names that it defines. A name that the face only imports or exports again
//! counts as the room that it comes from; it is free if it comes from outside the folder.
//!
//! The check sees paths. It does not see methods: a type that one room defines and that has an
//! `impl` in another leads upward without a path.

mod references;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use self::references::{Child, Kind, Reference, Source};
use super::files;

const HEAD: [&str; 3] = ["room", "what it is", "may use"];

/// The files that may have a table. Each is itself a room of its table.
const FACES: &[&str] = &["/mod.rs", "/lib.rs", "/main.rs"];

/// Checks each folder that has a table.
pub(super) fn check(root: &Path) -> Result<()> {
    let mut wrong = Vec::new();
    for path in files(root, FACES)? {
        let text = std::fs::read_to_string(&path)?;
        if let Some(rows) = table(&text) {
            let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            let found = Folder::read(&path).with_context(|| shown.clone())?.compare(&rows);
            wrong.extend(found.into_iter().map(|what| what.message(root, &shown)));
        }
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

/// The rooms of a table, each with the rooms that it may use. `None`: there is no such table.
type Rows = Vec<(String, Vec<String>)>;

/// Finds the table in the `//!` at the beginning of a file.
fn table(text: &str) -> Option<Rows> {
    let doc = text.lines().map_while(|line| line.strip_prefix("//!"));
    let mut is_example = false;
    let prose = doc.filter(|line| {
        is_example ^= line.trim_start().starts_with("```");
        !is_example
    });
    let mut lines = prose.map(cells);
    lines.find(|cells| cells[..] == HEAD)?;
    let mut rows = Rows::new();
    for cells in lines.skip(1).take_while(|cells| cells.len() == HEAD.len()) {
        let mut may_use: Vec<String> = quoted(cells[2]).collect();
        if cells[2].contains("all above") {
            may_use.extend(rows.iter().map(|(room, _)| room.clone()));
        }
        rows.extend(quoted(cells[0]).map(|room| (room, may_use.clone())).collect::<Vec<_>>());
    }
    Some(rows)
}

/// The cells of a row of a table.
fn cells(line: &str) -> Vec<&str> {
    let inner = line.trim().strip_prefix('|').and_then(|line| line.strip_suffix('|'));
    inner.map_or_else(Vec::new, |line| line.split('|').map(str::trim).collect())
}

/// The words between backquotes, without the mark of a link to a module.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    let names = text.split('`').skip(1).step_by(2);
    names.map(|name| name.strip_prefix("mod@").unwrap_or(name).to_owned())
}

/// A folder of modules.
struct Folder {
    /// The name of the file that has the table.
    face: String,
    /// The path of its module from the crate's root.
    module: Vec<String>,
    /// Modules that the face declares.
    rooms: BTreeSet<String>,
    /// The room from which the face has a name; `None` if it is from outside.
    names: BTreeMap<String, Option<String>>,
    references: Vec<(PathBuf, Reference)>,
    /// Files that belong to no module.
    strays: Vec<PathBuf>,
}

/// An error, and its place; an error in the table itself has no place.
#[derive(Debug, PartialEq)]
struct Wrong {
    place: Option<(PathBuf, usize)>,
    what: String,
}

impl Wrong {
    fn message(&self, root: &Path, table: &str) -> String {
        let what = &self.what;
        match &self.place {
            None => format!("{table}: {what}"),
            Some((path, line)) => {
                let path = path.strip_prefix(root).unwrap_or(path).display();
                format!("{path}:{line}: {what}, says the table of {table}")
            }
        }
    }
}

impl Folder {
    /// Reads the face of a folder, and all modules below it.
    fn read(face: &Path) -> Result<Self> {
        let folder = face.parent().context("it lies in no folder")?;
        let parts: Vec<String> =
            folder.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let source = parts.iter().rposition(|part| part == "src");
        let module = parts[source.context("it does not lie below a folder src")? + 1..].to_vec();
        let above = folder.ancestors().nth(module.len()).context("src lies nowhere")?;
        let mut found = Self {
            face: face.file_name().context("it has no name")?.to_string_lossy().into_owned(),
            module: module.clone(),
            rooms: BTreeSet::new(),
            names: BTreeMap::new(),
            references: Vec::new(),
            strays: Vec::new(),
        };
        let mut seen = BTreeSet::new();
        let mut next = vec![Child { module, is_test: false }];
        while let Some(child) = next.pop() {
            let is_face = child.module == found.module;
            let path = if is_face { face.to_owned() } else { file_of(above, &child.module)? };
            let text = std::fs::read_to_string(&path)?;
            let source = references::read(&text, &child.module)
                .with_context(|| path.display().to_string())?;
            seen.insert(path.clone());
            next.extend(source.children.iter().map(|below| Child {
                module: below.module.clone(),
                is_test: below.is_test || child.is_test,
            }));
            if !child.is_test {
                found.add(&path, &child.module, source);
            }
        }
        found.strays = sources(folder)?.into_iter().filter(|path| !seen.contains(path)).collect();
        Ok(found)
    }

    fn add(&mut self, path: &Path, module: &[String], source: Source) {
        if *module == self.module[..] {
            let rooms = source.children.iter().filter(|child| !child.is_test);
            self.rooms = rooms.filter_map(|child| self.below(&child.module)).collect();
            let named = source.references.iter().filter_map(|reference| match &reference.kind {
                Kind::Named(name) => {
                    let room = self.below(&reference.path);
                    Some((name.clone(), room.filter(|room| self.rooms.contains(room))))
                }
                Kind::Inline | Kind::Glob => None,
            });
            self.names = named.collect();
        }
        let references = source.references.into_iter();
        self.references.extend(references.map(|reference| (path.to_owned(), reference)));
    }

    /// The first name of a path behind that of the folder.
    fn below(&self, path: &[String]) -> Option<String> {
        path.strip_prefix(&self.module[..])?.first().cloned()
    }

    /// All references that the rows do not allow.
    fn compare(&self, rows: &Rows) -> Vec<Wrong> {
        let in_table = |what: String| Wrong { place: None, what };
        let listed: BTreeSet<&String> = rows.iter().map(|(room, _)| room).collect();
        let used = rows.iter().flat_map(|(_, may_use)| may_use);
        let named: BTreeSet<&String> = listed.iter().copied().chain(used).collect();
        let unknown = named.into_iter().filter(|name| {
            let is_face = **name == self.face;
            !is_face && !self.rooms.contains(*name) || is_face && !listed.contains(name)
        });
        let mut wrong: Vec<Wrong> = unknown
            .map(|name| {
                in_table(format!("the table names the room `{name}`, which does not exist"))
            })
            .collect();
        let missing = self.rooms.iter().filter(|room| !listed.contains(room));
        wrong.extend(missing.map(|room| in_table(format!("the table has no row for `{room}`"))));
        wrong.extend(
            self.strays
                .iter()
                .map(|path| in_table(format!("{} belongs to no module", path.display()))),
        );
        let mut references: Vec<_> = self.references.iter().collect();
        references.sort_by_key(|(path, reference)| (path, reference.line));
        for (path, reference) in references {
            if let Some(what) = self.refusal(reference, rows) {
                let one = Wrong { place: Some((path.clone(), reference.line)), what };
                if !wrong.contains(&one) {
                    wrong.push(one);
                }
            }
        }
        wrong
    }

    /// Why a reference is not allowed.
    fn refusal(&self, reference: &Reference, rows: &Rows) -> Option<String> {
        let behind = reference.path.strip_prefix(&self.module[..])?;
        let from = self.below(&reference.module).unwrap_or_else(|| self.face.clone());
        let Some(name) = behind.first() else {
            let is_whole = from != self.face && reference.kind != Kind::Inline;
            return is_whole.then(|| format!("room `{from}` may not take the whole folder"));
        };
        let is_room = self.rooms.contains(name);
        if !is_room && from == self.face {
            return None;
        }
        let to = match self.names.get(name) {
            _ if is_room => name,
            Some(Some(room)) => room,
            Some(None) => return None,
            None => &self.face,
        };
        let row = |room: &str| rows.iter().find(|(name, _)| name == room);
        let may_use = match (row(&from), row(to)) {
            // The row that a room misses is an error of its own.
            (None, _) | (_, None) => return None,
            (Some((_, may_use)), Some(_)) => may_use,
        };
        if from == *to || may_use.iter().any(|room| room == to) {
            return None;
        }
        let written = behind.join("::");
        let rooms: Vec<String> = may_use.iter().map(|room| format!("`{room}`")).collect();
        let rooms = if rooms.is_empty() { "nothing".to_owned() } else { rooms.join(", ") };
        Some(format!("room `{from}` uses `{to}` ({written}) and may use {rooms}"))
    }
}

/// The file of a module, below the folder `above` of the crate's root.
fn file_of(above: &Path, module: &[String]) -> Result<PathBuf> {
    let folder: PathBuf = above.join(module.iter().collect::<PathBuf>());
    let file = folder.with_extension("rs");
    let candidates = [folder.join("mod.rs"), file];
    let found = candidates.into_iter().find(|path| path.is_file());
    found.with_context(|| format!("the module {} has no file", module.join("::")))
}

/// Every source file below a folder.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests;

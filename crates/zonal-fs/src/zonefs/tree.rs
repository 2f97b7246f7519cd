//! The tree: root, `cnv`, `seq`, and one file for each zone, or for each run of conventional zones.
//!
//! All of it is fixed at mount. Inode numbers are those of Linux: a file has the number of its
//! zone, the root the number of zones, and the two directories the next two numbers.

use zonal::{Geometry, Zone};

use super::file::{Group, Owned, ZoneFile};
use super::format::Aggregate;
use crate::FsError;
use crate::vfs::{Ino, Result};

/// Longest name that is looked up, in bytes (Linux `ZONEFS_NAME_MAX`).
pub(super) const NAME_MAX: usize = 16;

/// Marks a zone that is not the first zone of a file.
const NO_FILE: u32 = u32::MAX;

/// The inode with some number.
pub(super) enum TreeNode<'a> {
    Root,
    Group(Group),
    File(&'a ZoneFile),
}

/// The tree of a mounted file system.
pub(super) struct ZoneTree {
    zone_count: u32,
    /// Conventional files, then sequential ones, each in the order of zones.
    files: Box<[ZoneFile]>,
    conventional: usize,
    /// From zone to file.
    by_zone: Box<[u32]>,
}

impl ZoneTree {
    /// The tree of a device with these zones. The first one holds the super block.
    pub(super) fn new(
        geometry: &Geometry,
        zones: &[Zone],
        aggregate: Aggregate,
        owned: Owned,
    ) -> Self {
        let mut groups = [Vec::new(), Vec::new()];
        for zone in zones.iter().skip(1) {
            let file = ZoneFile::new(geometry, zone, owned);
            let group = &mut groups[file.group as usize];
            match (group.last_mut(), aggregate) {
                (Some(last), Aggregate::Conventional)
                    if file.group == Group::Conventional && follows(last, &file) =>
                {
                    last.extend(&file);
                }
                _ => group.push(file),
            }
        }
        let [conventional, sequential] = groups;
        let first_sequential = conventional.len();
        let files: Box<[ZoneFile]> = conventional.into_iter().chain(sequential).collect();
        let mut by_zone = vec![NO_FILE; zones.len()].into_boxed_slice();
        for (index, file) in files.iter().enumerate() {
            by_zone[file.zone.index()] = u32::try_from(index).expect("no more files than zones");
        }
        let zone_count = geometry.zone_count();
        Self { zone_count, files, conventional: first_sequential, by_zone }
    }

    /// The root directory.
    pub(super) fn root(&self) -> Ino {
        Ino::new(self.zone_count.into())
    }

    /// The directory of a group.
    pub(super) fn directory(&self, group: Group) -> Ino {
        let nth = match group {
            Group::Conventional => 1,
            Group::Sequential => 2,
        };
        Ino::new(u64::from(self.zone_count) + nth)
    }

    /// The groups with files: only these have a directory.
    pub(super) fn groups(&self) -> impl Iterator<Item = Group> + use<> {
        let conventional = (self.conventional > 0).then_some(Group::Conventional);
        let sequential = (self.conventional < self.files.len()).then_some(Group::Sequential);
        conventional.into_iter().chain(sequential)
    }

    /// The files of a group, by name.
    pub(super) fn files_of(&self, group: Group) -> &[ZoneFile] {
        match group {
            Group::Conventional => &self.files[..self.conventional],
            Group::Sequential => &self.files[self.conventional..],
        }
    }

    /// Every file.
    pub(super) fn files(&self) -> &[ZoneFile] {
        &self.files
    }

    /// The inode with a number.
    pub(super) fn node(&self, ino: Ino) -> Result<TreeNode<'_>> {
        if ino == self.root() {
            return Ok(TreeNode::Root);
        }
        if let Some(group) = self.groups().find(|group| ino == self.directory(*group)) {
            return Ok(TreeNode::Group(group));
        }
        self.find_file(ino).map(TreeNode::File).ok_or(FsError::NotFound)
    }

    /// The file with a number.
    pub(super) fn file(&self, ino: Ino) -> Result<&ZoneFile> {
        self.find_file(ino).ok_or_else(|| match self.node(ino) {
            Ok(_) => FsError::IsDirectory,
            Err(error) => error,
        })
    }

    /// The file with a number, if there is one. Every read and write calls it.
    fn find_file(&self, ino: Ino) -> Option<&ZoneFile> {
        let zone = usize::try_from(ino.get()).ok()?;
        self.files.get(*self.by_zone.get(zone)? as usize)
    }

    /// The path of a file.
    pub(super) fn path(&self, file: &ZoneFile) -> String {
        let index = self.by_zone[file.zone.index()] as usize;
        let first = match file.group {
            Group::Conventional => 0,
            Group::Sequential => self.conventional,
        };
        format!("/{}/{}", file.group.name(), index - first)
    }

    /// Finds a name in a directory.
    pub(super) fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Ino> {
        if name.len() > NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        match (self.node(parent)?, name) {
            (TreeNode::File(_), _) => Err(FsError::NotDirectory),
            (TreeNode::Root | TreeNode::Group(_), b"..") | (TreeNode::Root, b".") => {
                Ok(self.root())
            }
            (TreeNode::Group(_), b".") => Ok(parent),
            (TreeNode::Root, _) => {
                let group = self.groups().find(|group| group.name().as_bytes() == name);
                group.map(|group| self.directory(group)).ok_or(FsError::NotFound)
            }
            (TreeNode::Group(group), _) => {
                let file = number(name).and_then(|number| self.files_of(group).get(number));
                file.map(ZoneFile::ino).ok_or(FsError::NotFound)
            }
        }
    }
}

/// Whether one conventional file begins where another ends.
fn follows(last: &ZoneFile, next: &ZoneFile) -> bool {
    last.zone.get() + last.zones == next.zone.get()
}

/// The number in a name of digits without leading zeroes.
fn number(name: &[u8]) -> Option<usize> {
    let digits = name.iter().all(u8::is_ascii_digit);
    let plain = digits && (name.len() == 1 || name.first() != Some(&b'0'));
    std::str::from_utf8(name).ok().filter(|_| plain)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_name_is_number_in_one_spelling() {
        for (name, meant) in [("0", Some(0)), ("7", Some(7)), ("55355", Some(55_355))] {
            assert_eq!(number(name.as_bytes()), meant);
        }
        for name in ["", "00", "01", "+1", "-1", " 1", "1 ", "1a", "x", "99999999999999999999"] {
            assert_eq!(number(name.as_bytes()), None, "{name:?}");
        }
    }
}

//! Inode numbers of the file system and node numbers of FUSE.
//!
//! They are the same, except that node 1 is always the root. Where the root has another number, the
//! inode 1 becomes [`ELSEWHERE`]; a FUSE entry carries one number only, so for that inode the
//! kernel is made to ask for the attributes, which carry the other.

use fuser::INodeNo;
use zonal_fs::vfs::Ino;

/// Node of the inode whose number the root has taken.
pub(super) const ELSEWHERE: INodeNo = INodeNo(1 << 62);

/// The mapping of one file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nodes {
    root: Ino,
}

impl Nodes {
    /// Of a file system with this root.
    pub(super) const fn new(root: Ino) -> Self {
        Self { root }
    }

    /// The inode of a node.
    pub(super) fn ino(self, node: INodeNo) -> Ino {
        match node {
            INodeNo::ROOT => self.root,
            ELSEWHERE => Ino::new(INodeNo::ROOT.0),
            INodeNo(number) => Ino::new(number),
        }
    }

    /// The node of an inode.
    pub(super) fn node(self, ino: Ino) -> INodeNo {
        if ino == self.root {
            INodeNo::ROOT
        } else if ino.get() == INodeNo::ROOT.0 {
            ELSEWHERE
        } else {
            INodeNo(ino.get())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_inode_has_a_node_of_its_own() {
        for root in [1, 64] {
            let nodes = Nodes::new(Ino::new(root));
            assert_eq!(nodes.node(Ino::new(root)), INodeNo::ROOT);
            for number in [1, 2, 63, 64, 65, 66] {
                let ino = Ino::new(number);
                assert_eq!(nodes.ino(nodes.node(ino)), ino);
                assert_eq!(nodes.node(ino) == INodeNo::ROOT, number == root);
            }
        }
    }
}

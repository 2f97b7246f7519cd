//! Maps inode numbers of the file system to node numbers of FUSE.
//!
//! They are the same, except that node 1 is always the root. If the root has another inode number,
//! inode 1 becomes node [`ELSEWHERE`].

use zonal_fs::vfs::Ino;
use zonal_fuse_transport::NodeId;

/// Node of inode 1, if the root is another inode.
const ELSEWHERE: NodeId = NodeId(1 << 62);

/// The mapping of one file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nodes {
    root: Ino,
}

impl Nodes {
    /// The mapping of a file system with this root.
    pub(super) const fn new(root: Ino) -> Self {
        Self { root }
    }

    /// The inode of a node.
    pub(super) fn ino(self, node: NodeId) -> Ino {
        match node {
            NodeId::ROOT => self.root,
            ELSEWHERE => Ino::new(NodeId::ROOT.0),
            NodeId(number) => Ino::new(number),
        }
    }

    /// The node of an inode.
    pub(super) fn node(self, ino: Ino) -> NodeId {
        if ino == self.root {
            NodeId::ROOT
        } else if ino.get() == NodeId::ROOT.0 {
            ELSEWHERE
        } else {
            NodeId(ino.get())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_unique_per_inode() {
        for root in [1, 64] {
            let nodes = Nodes::new(Ino::new(root));
            assert_eq!(nodes.node(Ino::new(root)), NodeId::ROOT);
            for number in [1, 2, 63, 64, 65, 66] {
                let ino = Ino::new(number);
                assert_eq!(nodes.ino(nodes.node(ino)), ino);
                assert_eq!(nodes.node(ino) == NodeId::ROOT, number == root);
            }
        }
    }
}

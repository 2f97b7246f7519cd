//! Mistakes that can be made on purpose.
//!
//! A crash test that finds nothing proves something only if it finds these. Each names one place
//! where an order or a check matters; [`MountOptions::planted`](crate::furrow::MountOptions)
//! switches one on. Only with the feature `testing`, which tests switch on, can there be one:
//! otherwise [`Planted::has`] is `false` for the compiler too.

/// A mistake to make.
#[cfg_attr(
    not(feature = "testing"),
    expect(unreachable_pub, reason = "exported with the feature only")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// A batch is written without flushing the data it refers to, and does not say so.
    SkipDataFlush,
    /// A commit returns without flushing its record.
    SkipRecordFlush,
    /// A zone is reset before the record that drops its last reference is durable.
    ResetBeforeDurable,
    /// The checksums of data are not compared.
    SkipDataChecksum,
    /// The checksum of a record is not compared.
    SkipRecordChecksum,
    /// The chain between records is not compared.
    SkipChain,
    /// The newest batch is believed without a look at its data.
    BelieveNewestBatch,
    /// Unlinked files are not deleted at recovery.
    ForgetOrphans,
    /// The old superblock zone is reset before the new one is flushed.
    SuperblockResetEarly,
    /// The superblock is written before the manifest is flushed.
    SuperblockBeforeManifest,
    /// The oldest valid superblock is taken.
    StaleSuperblock,
    /// Attributes are left out of batches.
    ForgetXattrRows,
    /// Deletions of entries are left out of batches.
    ForgetEntryDeletes,
    /// A commit leaves buffered data behind.
    SkipWriteBack,
    /// Replay stops one batch early.
    ReplayStopsEarly,
    /// After recovery the journal goes on behind a torn record.
    ContinueBehindTornRecord,
    /// Journal zones and parts are reset before the manifest that drops them is durable.
    ReleaseMetaEarly,
    /// Reclaim moves an extent without recording its new place.
    ForgetRelocation,
    /// Truncation leaves the rest of the last block as it was.
    ForgetTailZeroing,
    /// The manifest forgets where the sweep is.
    ForgetSweep,
    /// A flush leaves out deleted rows although older runs have them.
    DropTombstonesEarly,
    /// A second name for a file is not counted.
    ForgetLinkCount,
    /// The row of an inode does not count its blocks or entries.
    ForgetCount,
    /// Sums are left out of batches.
    ForgetTotals,
    /// Rows of zones are left out of batches.
    ForgetZoneRows,
    /// Rows of orphans are left out of batches.
    ForgetOrphanRows,
    /// Rows of discarded ranges are left out of batches.
    ForgetDiscards,
    /// Rows of names are left out of batches.
    ForgetNames,
    /// Records of shared extents are left out of rows of owners.
    ForgetExtentOwners,
    /// The owners of a zone that is being written are said to be listed.
    ListOpenZones,
    /// Tables of moved blocks are left out of batches.
    ForgetMoved,
    /// Tables of moved blocks are dropped while rows need them: where the table has several parts.
    DropMovedEarly,
    /// A batch with remap tables is written without flushing the blocks.
    SkipMovedFlush,
    /// A copy shares blocks of a file that has newer ones in the buffer.
    ShareUnwritten,
    /// A copy shares into blocks that still wait to be removed.
    ShareUntruncated,
    /// A copy shares up to where both files ended before another change.
    ShareAtOldEnds,
    /// A write of a part of a block takes the rest as it was before another change.
    PublishOnStale,
    /// A truncation takes the last block as it was before another change.
    ResizeOnStale,
    /// A punch takes the blocks at its edges as they were before another change.
    ZeroOnStale,
    /// An append goes where the end of the file was.
    AppendAtOldEnd,
    /// A write fills its last block with zeroes although the file has grown over it.
    PadOverNewEnd,
    /// A write behind the end does not wait until a truncation has removed the blocks that it cut
    /// off.
    RegrowUntruncated,
    /// Write-back maps blocks that the buffer does not hold any more.
    WriteBackUnwanted,
    /// Write-back removes a block from the buffer that was written again meanwhile.
    WriteBackForgetsNewer,
    /// A zone can be reset while it is read.
    UnpinBeforeRead,
    /// A zone can be reset while the rest of a block is read from it.
    UnpinBeforeBase,
    /// A victim can be reset while blocks are moved out of it.
    UnpinBeforeMove,
    /// A commit gives back zones that are being read.
    ResetUnderReaders,
    /// A batch counts as durable as soon as it is taken.
    DurableTooEarly,
    /// A sync does not wait for the commit that has taken its changes.
    SyncForgetsUnderway,
    /// A commit leaves out blocks that came into the buffer since its last pass.
    FreezeWithoutLastPass,
    /// A commit does not hold off threads that put blocks into the buffer.
    BufferWhileTaking,
    /// The end of a commit wakes no thread that waits for it.
    KeepCommitWaiting,
    /// The end of a turn wakes no thread that waits for one.
    KeepTurnWaiting,
    /// The last reader of a zone wakes no thread that waits for it.
    KeepIdleWaiting,
    /// A write takes room that there is not.
    AdmitAnything,
    /// Files may fill more than the drive has for them.
    FillAnything,
    /// A buffered block reserves no space.
    BufferUnreserved,
    /// A file is deleted with its last name though it is in use.
    DeletePinned,
    /// A file without a name stays an orphan when it gets one.
    LinkStaysOrphan,
    /// A rename that replaces a file leaves its link count.
    ReplaceKeepsLink,
    /// An overwrite of a shared extent of several blocks reserves no space.
    OverwriteUnreserved,
    /// A window of a map loses its last block when its entries go back to the tree.
    WindowLosesLast,
    /// A copy leaves blocks of the target in the buffer.
    CopyKeepsBuffered,
    /// A reset of a zone begins no generation: remap tables of the one before still name it.
    KeepGeneration,
    /// The discarded ranges of a file go when its inode is evicted.
    EvictDiscards,
    /// A shared extent is evicted although no batch has its count.
    EvictChangedExtent,
    /// A truncation of which a step fails is forgotten until the next mount.
    ForgetFailedTruncation,
    /// A file grows over blocks that a failed truncation has left.
    GrowOverFailed,
    /// Reclaim gives up a zone for one refused read.
    CondemnUnreadZone,
    /// A step of the table drops rows that the device has refused to read once.
    RefusedIsLost,
    /// A piece of a map that the device refuses to read counts as a hole.
    RefusedIsHole,
    /// A write of a part of a block takes zeroes for the rest if the device refuses to read it.
    PadRefusedBase,
    /// A write past the buffer leaves older blocks in the buffer.
    KeepOlderBuffered,
    /// Reclaim maps a file to the copies of blocks that have been overwritten.
    RelocateOverwritten,
    /// A write is split into blocks that are committed one by one.
    SplitWrite,
}

/// Makes a mistake where a test has planted it:
/// `mistake!(self.tree, SkipRecordFlush, return Ok(()))`. The first word has a field `planted`.
macro_rules! mistake {
    ($place:expr, $bug:ident, $effect:expr) => {
        if $place.planted.has($crate::furrow::planted::PlantedBug::$bug) {
            $effect;
        }
    };
}

pub(in crate::furrow) use mistake;

/// The mistake to make, if there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    #[cfg(feature = "testing")]
    bug: Option<PlantedBug>,
}

#[cfg(feature = "testing")]
impl Planted {
    /// Whether there is one.
    pub fn is_some(self) -> bool {
        self.bug.is_some()
    }
}

#[cfg(feature = "testing")]
impl From<Option<PlantedBug>> for Planted {
    fn from(bug: Option<PlantedBug>) -> Self {
        Self { bug }
    }
}

impl Planted {
    /// Whether this one is to be made.
    #[cfg(feature = "testing")]
    pub(super) fn has(self, bug: PlantedBug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether this one is to be made: never.
    #[cfg(not(feature = "testing"))]
    #[expect(clippy::unused_self, reason = "as with the feature")]
    pub(super) const fn has(self, _: PlantedBug) -> bool {
        false
    }
}

#[cfg(feature = "testing")]
impl PlantedBug {
    /// All that power cuts of small drives bring out.
    pub const ALL: [Self; 32] = [
        Self::SkipDataFlush,
        Self::SkipRecordFlush,
        Self::ResetBeforeDurable,
        Self::SkipDataChecksum,
        Self::SkipRecordChecksum,
        Self::SkipChain,
        Self::BelieveNewestBatch,
        Self::ForgetOrphans,
        Self::SuperblockResetEarly,
        Self::SuperblockBeforeManifest,
        Self::StaleSuperblock,
        Self::ForgetXattrRows,
        Self::ForgetEntryDeletes,
        Self::SkipWriteBack,
        Self::ReplayStopsEarly,
        Self::ContinueBehindTornRecord,
        Self::ReleaseMetaEarly,
        Self::ForgetRelocation,
        Self::ForgetTailZeroing,
        Self::ForgetSweep,
        Self::DropTombstonesEarly,
        Self::ForgetLinkCount,
        Self::ForgetCount,
        Self::ForgetTotals,
        Self::ForgetZoneRows,
        Self::ForgetOrphanRows,
        Self::ForgetDiscards,
        Self::ForgetNames,
        Self::ForgetExtentOwners,
        Self::ListOpenZones,
        Self::ForgetMoved,
        Self::SkipMovedFlush,
    ];

    /// All that threads, memory pressure and full drives bring out.
    pub const RACES: [Self; 40] = [
        Self::ShareUnwritten,
        Self::ShareUntruncated,
        Self::ShareAtOldEnds,
        Self::PublishOnStale,
        Self::ResizeOnStale,
        Self::ZeroOnStale,
        Self::AppendAtOldEnd,
        Self::PadOverNewEnd,
        Self::RegrowUntruncated,
        Self::WriteBackUnwanted,
        Self::WriteBackForgetsNewer,
        Self::UnpinBeforeRead,
        Self::UnpinBeforeBase,
        Self::UnpinBeforeMove,
        Self::ResetUnderReaders,
        Self::DurableTooEarly,
        Self::SyncForgetsUnderway,
        Self::FreezeWithoutLastPass,
        Self::BufferWhileTaking,
        Self::KeepCommitWaiting,
        Self::KeepTurnWaiting,
        Self::KeepIdleWaiting,
        Self::AdmitAnything,
        Self::FillAnything,
        Self::BufferUnreserved,
        Self::DeletePinned,
        Self::LinkStaysOrphan,
        Self::ReplaceKeepsLink,
        Self::OverwriteUnreserved,
        Self::WindowLosesLast,
        Self::CopyKeepsBuffered,
        Self::KeepGeneration,
        Self::EvictDiscards,
        Self::EvictChangedExtent,
        Self::ForgetFailedTruncation,
        Self::GrowOverFailed,
        Self::CondemnUnreadZone,
        Self::RefusedIsLost,
        Self::RefusedIsHole,
        Self::PadRefusedBase,
    ];
}

//! Free zones for metadata: how many it keeps, and from which drive a zone is taken.
//!
//! Without a metadata drive all zones are beside each other. With one, its zones are aside, where
//! data never goes.

use zonal::ZoneId;

use crate::furrow::drive::layout::ZoneLimits;
use crate::furrow::options::Seeks;
use crate::furrow::zones::{Role, SPARE_ZONES_MIN, Zones};

impl Zones {
    /// Free zones that metadata needs beyond those it has, if it needs `wanted` in all.
    pub(in crate::furrow) fn kept_for_metadata(&self, wanted: u64) -> usize {
        let kept = usize::try_from(wanted.saturating_sub(self.meta)).unwrap_or(usize::MAX);
        // It may have more zones now than after the merge of the table, which takes zones first.
        kept.max(SPARE_ZONES_MIN)
    }

    /// Whether journal and table have at most this many zones.
    pub(in crate::furrow) fn is_metadata_below(&self, most: u64) -> bool {
        self.meta <= most
    }

    /// Whether metadata can take a zone: a sequential one of full capacity.
    pub(super) fn fits_metadata(&self, zone: u32) -> bool {
        let ZoneLimits { conventional, zone_blocks, .. } = &self.limits;
        self.slot(zone).capacity == *zone_blocks && !conventional.contains(ZoneId::new(zone))
    }

    /// Whether data can go to a zone: it is not on a drive for metadata.
    pub(super) fn takes_data(&self, zone: u32) -> bool {
        zone < self.limits.data_zones
    }

    /// Free zones that metadata can take, on any drive.
    pub(in crate::furrow) fn free_for_metadata(&self) -> usize {
        self.free_for_metadata + self.aside.len()
    }

    /// Zones that metadata can take: free zones, and zones that a reset can free now.
    pub(in crate::furrow) fn takeable_for_metadata(&self) -> usize {
        self.free_for_metadata() + self.resets.len()
    }

    /// Free zones of the metadata drive.
    pub(in crate::furrow) fn free_aside(&self) -> usize {
        self.aside.len()
    }

    /// How many of `kept` free zones for metadata data leaves on its own drive: the zones
    /// that the metadata drive lacks, and one for each second copy.
    fn wanted_beside(&self, kept: usize) -> usize {
        kept.saturating_sub(self.aside.len()).max(kept / 2)
    }

    /// The same, as far as there are any.
    pub(in crate::furrow) fn kept_beside(&self, kept: usize) -> usize {
        self.free_for_metadata.min(self.wanted_beside(kept))
    }

    /// Free zones that data can take if metadata needs `kept` free zones.
    pub(in crate::furrow) fn free_beside(&self, kept: usize) -> usize {
        self.free.len() - self.kept_beside(kept)
    }

    /// The free zone that data takes next, under the same condition.
    pub(in crate::furrow) fn next_free_beside(&self, kept: usize) -> Option<u32> {
        let takes_any = self.free_for_metadata > self.wanted_beside(kept);
        let may = |zone| takes_any || !self.fits_metadata(zone);
        // Conventional zones come last on a disk, where sequential ones are faster: measured on the
        // HC620, 154 against 244 MB/s outside.
        let conventional = &self.limits.conventional;
        let is_sequential = |zone| !conventional.contains(ZoneId::new(zone));
        let fast = (self.limits.seeks == Seeks::Cost)
            .then(|| self.next_free(|zone| may(zone) && is_sequential(zone)));
        fast.flatten().or_else(|| self.next_free(may))
    }

    /// Takes a free zone for a copy of metadata: on the metadata drive for the first copy, on the
    /// other one for the second, and where there is none, on the other drive.
    pub(in crate::furrow) fn take_meta(&mut self, copy: usize) -> Option<u32> {
        let aside = self.aside.first().copied();
        let beside = self.next_free(|zone| self.fits_metadata(zone));
        let zone = if copy == 0 { aside.or(beside) } else { beside.or(aside) }?;
        self.take_free(zone);
        self.slot_mut(zone).role = Role::Meta;
        self.meta += 1;
        Some(zone)
    }
}

//! Shapes of drives that both the kernel's `null_blk` and our emulated drives can have.

/// One shape; a limit of 0 is no limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) block: u32,
    pub(super) size_mib: u32,
    pub(super) zone_mib: u32,
    pub(super) capacity_mib: u32,
    pub(super) conventional: u32,
    pub(super) open: u32,
    pub(super) active: u32,
}

/// Like an SMR disk: conventional zones and a runt at the end, no limits.
pub(super) const DISK: Shape = Shape {
    name: "disk",
    block: 512,
    size_mib: 31,
    zone_mib: 2,
    capacity_mib: 2,
    conventional: 4,
    open: 0,
    active: 0,
};

/// Like a ZNS SSD: large blocks, zones not writable to their end, limits. More zones may be active
/// than files take part: at that limit `null_blk` opens no closed zone again, other drives do.
pub(super) const SSD: Shape = Shape {
    name: "ssd",
    block: 4096,
    size_mib: 64,
    zone_mib: 4,
    capacity_mib: 3,
    conventional: 0,
    open: 3,
    active: 6,
};

/// For zones that fail: with limits, so that files are opened explicitly, but never beyond them.
/// `null_blk` takes limits only below the number of sequential zones.
pub(super) const FAILING: Shape = Shape { name: "failing", open: 11, active: 11, ..DISK };

/// Both at once: conventional zones and an open limit, so small that zones fill often.
pub(super) const MIXED: Shape = Shape {
    name: "mixed",
    block: 4096,
    size_mib: 16,
    zone_mib: 1,
    capacity_mib: 1,
    conventional: 3,
    open: 2,
    active: 2,
};

impl Shape {
    /// Options of `zonal create` for the same drive.
    pub(super) fn create_options(&self) -> Vec<String> {
        // Only that profile has a smaller last zone.
        let profile = if self.size_mib.is_multiple_of(self.zone_mib) { "zns" } else { "smr" };
        vec![
            format!("--profile={profile}"),
            format!("--block-size={}", self.block),
            format!("--size={}M", self.size_mib),
            format!("--zone-size={}M", self.zone_mib),
            format!("--zone-capacity={}M", self.capacity_mib),
            format!("--conventional={}", self.conventional),
            format!("--max-open={}", self.open),
            format!("--max-active={}", self.active),
        ]
    }

    /// The same drive in memory, as the command line names it.
    pub(super) fn memory_drive(&self) -> String {
        format!(
            "mem:block={},size={}M,zone={}M,capacity={}M,conventional={},open={},active={}",
            self.block,
            self.size_mib,
            self.zone_mib,
            self.capacity_mib,
            self.conventional,
            self.open,
            self.active
        )
    }
}

//! Rules on the disks of a machine, each a function of the facts.

use std::path::Path;

use zonal_linux::machine::{Access, Bus, Disk, Facts, Queue};

use super::finding::{Finding, Seen};
use crate::output::size;

/// Beginnings of the model names of host-managed disks: WD Ultrastar DC HC620, and HC650 to HC680.
const HOST_MANAGED_MODELS: [&str; 2] = ["HSH7", "WSH7"];

/// Models that their makers have named as drive-managed SMR: WD Red of 2018, Seagate Archive and
/// Barracuda.
const DRIVE_MANAGED_MODELS: [&str; 9] = [
    "WD20EFAX",
    "WD30EFAX",
    "WD40EFAX",
    "WD60EFAX",
    "ST8000AS0002",
    "ST6000AS0002",
    "ST8000DM004",
    "ST5000LM000",
    "ST4000LM024",
];

/// A rule on a disk.
type Rule = fn(&Facts, &Disk) -> Option<Finding>;

/// Every rule, in the order of their weight.
const RULES: [Rule; 11] = [
    no_node,
    no_block_device,
    hidden_namespace,
    no_zones,
    hidden_by_bridge,
    wrong_rights,
    wrong_scheduler,
    no_queue,
    errors,
    drive_managed,
    jumping_writes,
];

/// Looks at each disk that `chosen` has. `is_mounted` says whether one of our mounts has a node.
pub(super) fn look(
    facts: &Facts,
    chosen: impl Fn(&Disk) -> bool,
    is_mounted: impl Fn(&Path) -> bool,
    seen: &mut Seen,
) {
    for disk in facts.disks.iter().filter(|disk| chosen(disk)) {
        seen.fact(format!("disk {}", disk.name), line(disk));
        let mut nodes = disk.block.iter().chain(&disk.generic);
        // A drive that is mounted through its node for commands is used as it should be.
        if nodes.any(|node| is_mounted(&node.path)) {
            continue;
        }
        let mut found: Vec<Finding> = RULES.iter().filter_map(|rule| rule(facts, disk)).collect();
        if found.is_empty() && disk.is_host_managed() {
            found.push(host_managed(disk));
        }
        seen.findings.extend(found);
    }
}

/// A disk on one line.
fn line(disk: &Disk) -> String {
    let bus = match disk.bus {
        Bus::Scsi => "SCSI",
        Bus::Ata => "SATA",
        Bus::Usb => "USB",
        Bus::Nvme => "NVMe",
        Bus::Virtual => "virtual",
    };
    let zoned = match &disk.queue {
        _ if disk.is_host_managed() => "host-managed zones",
        Some(queue) if queue.zoned == "host-aware" => "host-aware zones",
        Some(_) => "no zones",
        None => "no block device",
    };
    let sectors = disk.queue.as_ref().map_or(0, |queue| queue.sectors);
    let bytes = (sectors > 0).then(|| size(sectors.saturating_mul(512)));
    let nodes = disk.block.iter().chain(&disk.generic);
    let nodes: Vec<String> = nodes.map(|node| node.path.display().to_string()).collect();
    let model = Some(disk.model.clone()).filter(|model| !model.is_empty());
    let parts = [Some(bus.to_owned()), model, bytes, Some(zoned.to_owned()), Some(nodes.join(" "))];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// The disk as findings name it.
fn subject(disk: &Disk) -> String {
    if disk.model.is_empty() {
        disk.name.clone()
    } else {
        format!("{} ({})", disk.name, disk.model)
    }
}

fn has_log(disk: &Disk, words: &str) -> bool {
    disk.log.iter().any(|line| line.to_lowercase().contains(words))
}

fn is_model(disk: &Disk, models: &[&str]) -> bool {
    disk.model.split(' ').any(|word| models.iter().any(|model| word.starts_with(model)))
}

fn no_node(facts: &Facts, disk: &Disk) -> Option<Finding> {
    if !disk.is_host_managed() || disk.block.is_some() || disk.generic.is_some() {
        return None;
    }
    let remedy = match facts.option("CONFIG_CHR_DEV_SG") {
        Some('n') => "a kernel with CONFIG_CHR_DEV_SG, or with CONFIG_BLK_DEV_ZONED",
        _ => "`modprobe sg` as root: it makes /dev/sgN, which Zonal takes as a DEVICE",
    };
    let text = ["a host-managed drive without any node", "no program can reach the drive", remedy];
    Some(Finding::broken(&subject(disk), text))
}

fn no_block_device(facts: &Facts, disk: &Disk) -> Option<Finding> {
    let (None, Some(generic), Some(_)) = (&disk.block, &disk.generic, disk.scsi_type) else {
        return None;
    };
    if !disk.is_host_managed() {
        return None;
    }
    let node = generic.path.display();
    let is_without = facts.option("CONFIG_BLK_DEV_ZONED") == Some('n');
    if is_without || has_log(disk, "unsupported zbc") {
        return Some(Finding::broken(
            &subject(disk),
            [
                "the kernel has no /dev/sdX for this host-managed drive: it is built without zones",
                "other programs cannot use the drive; Zonal can, by SCSI commands",
                &format!(
                    "`zonal info {node}`, and {node} in place of a device in every command; for \
                     other programs, a kernel with CONFIG_BLK_DEV_ZONED=y (no module brings it)"
                ),
            ],
        ));
    }
    Some(Finding::broken(
        &subject(disk),
        [
            "no driver is bound to this host-managed drive: the disk driver sd has not taken it",
            "there is no /dev/sdX; Zonal can use the drive by SCSI commands",
            &format!(
                "`modprobe sd_mod` as root, or write its SCSI address to \
                 /sys/bus/scsi/drivers/sd/bind; or use {node} in every command of Zonal"
            ),
        ],
    ))
}

fn hidden_namespace(_facts: &Facts, disk: &Disk) -> Option<Finding> {
    let (Bus::Nvme, None, Some(generic)) = (disk.bus, &disk.block, &disk.generic) else {
        return None;
    };
    let node = generic.path.display();
    if !has_log(disk, "zone size") {
        return Some(Finding::note(
            &subject(disk),
            [
                "an NVMe namespace without a block device",
                "the kernel does not know its kind, or shows it under another name",
                &format!("`zonal info {node}` asks the drive itself"),
            ],
        ));
    }
    Some(Finding::broken(
        &subject(disk),
        [
            "the kernel refuses this zoned namespace: its zone size is no power of two",
            "other programs cannot use the drive; Zonal can, by NVMe commands",
            &format!(
                "`zonal info {node}`, and {node} in place of a device; `zonal serve ublk po2:{node}` \
                 gives the kernel a disk that it accepts"
            ),
        ],
    ))
}

fn no_zones(_facts: &Facts, disk: &Disk) -> Option<Finding> {
    let is_refused = disk.block.is_some() && !disk.has_zones();
    let is_failing = has_log(disk, "report zones");
    if !disk.is_host_managed() || !(is_refused || is_failing) {
        return None;
    }
    let generic = disk.generic.as_ref().map_or_else(
        || "`modprobe sg` as root, and then `zonal info /dev/sgN`".to_owned(),
        |node| format!("`zonal info {}`", node.path.display()),
    );
    let remedy = format!(
        "{generic}, which asks the drive by ATA commands too; or another controller: some fail \
         REPORT ZONES as a queued command, and `libata.force=noncq` at boot helps"
    );
    let means = "the controller, the bridge or the drive does not answer; other programs cannot use the drive";
    Some(match (is_refused, is_failing) {
        (true, true) => Finding::broken(
            &subject(disk),
            ["REPORT ZONES fails, so the kernel shows no zones", means, &remedy],
        ),
        (true, false) => Finding::broken(
            &subject(disk),
            ["the kernel shows no zones of this host-managed drive", means, &remedy],
        ),
        (false, _) => Finding::risk(
            &subject(disk),
            [
                "REPORT ZONES has failed before it worked",
                "the controller mishandles queued zone commands: the start takes up to a minute",
                &remedy,
            ],
        ),
    })
}

fn hidden_by_bridge(_facts: &Facts, disk: &Disk) -> Option<Finding> {
    let is_plain = disk.bus == Bus::Usb && !disk.is_host_managed();
    if !is_plain || !is_model(disk, &HOST_MANAGED_MODELS) {
        return None;
    }
    Some(Finding::broken(
        &subject(disk),
        [
            "a model that has zones, behind a USB bridge that hides them",
            "writes that do not follow the write pointers fail, so any file system on it breaks",
            "connect it to a SATA port, or by a bridge that passes zoned commands on; do not write \
             to it through this one",
        ],
    ))
}

fn wrong_rights(_facts: &Facts, disk: &Disk) -> Option<Finding> {
    if !disk.is_host_managed() && !disk.has_zones() {
        return None;
    }
    let node = disk.block.as_ref().or(disk.generic.as_ref())?;
    let path = node.path.display();
    match node.access {
        Access::Usable => None,
        Access::Missing => Some(Finding::broken(
            &subject(disk),
            [
                &format!("the kernel has the drive, and {path} is not there"),
                "udev has not made the node, or this container does not have the device",
                &format!("`udevadm trigger`; a container has to be given {path}"),
            ],
        )),
        Access::Denied => Some(Finding::broken(
            &subject(disk),
            [
                &format!("this user may not read from and write to {path}"),
                "wrong rights: commands on the drive fail with EACCES",
                &format!("run as root, or join the group of `ls -l {path}`, mostly disk"),
            ],
        )),
    }
}

fn wrong_scheduler(facts: &Facts, disk: &Disk) -> Option<Finding> {
    let scheduler = disk.queue.as_ref()?.scheduler.as_deref()?;
    let is_old = facts.version().is_some_and(|version| version < (6, 10));
    if !disk.has_zones() || !is_old || scheduler == "mq-deadline" {
        return None;
    }
    let name = &disk.name;
    Some(Finding::risk(
        &subject(disk),
        [
            &format!("the I/O scheduler is {scheduler}; this kernel is older than 6.10"),
            "only mq-deadline keeps the writes to a zone in order there: others let them fail",
            &format!(
                "`echo mq-deadline > /sys/block/{name}/queue/scheduler` as root, at each boot"
            ),
        ],
    ))
}

fn no_queue(_facts: &Facts, disk: &Disk) -> Option<Finding> {
    let is_off = has_log(disk, "ncq disabled");
    let is_single = disk.queue_depth == Some(1) && disk.bus == Bus::Ata && disk.is_host_managed();
    if !is_off && !is_single {
        return None;
    }
    let text = [
        "native command queueing is off: the drive gets one command at a time",
        "random reads are slower by half and more; writes to zones hardly",
        "look at cable, power and controller if the kernel's log has errors of this drive; \
         `cat /sys/block/*/device/queue_depth` shows the depth",
    ];
    let finding = if is_off { Finding::risk } else { Finding::note };
    Some(finding(&subject(disk), text))
}

/// Lines of the kernel's log that no other rule explains.
fn errors(_facts: &Facts, disk: &Disk) -> Option<Finding> {
    const EXPLAINED: [&str; 4] = ["unsupported zbc", "report zones", "ncq disabled", "zone size"];
    let is_other = |line: &&String| {
        let line = line.to_lowercase();
        !EXPLAINED.iter().any(|words| line.contains(words))
    };
    let lines: Vec<&String> = disk.log.iter().filter(is_other).collect();
    let last = lines.last()?;
    Some(Finding::risk(
        &subject(disk),
        [
            &format!(
                "{} lines of the kernel's log name errors of it, the last: {last}",
                lines.len()
            ),
            "the drive, its cable, its power supply or its controller fails now and then",
            "`smartctl -a` on the drive, another cable; `zonal check --data DEVICE` finds lost data",
        ],
    ))
}

fn drive_managed(_facts: &Facts, disk: &Disk) -> Option<Finding> {
    let Queue { is_rotational, takes_discards, zoned, .. } = disk.queue.as_ref()?;
    let is_plain = !disk.is_host_managed() && (zoned == "none" || zoned.is_empty());
    let is_real = matches!(disk.bus, Bus::Ata | Bus::Usb) && !disk.model.contains("QEMU");
    let is_known = is_model(disk, &DRIVE_MANAGED_MODELS);
    if !is_plain || !is_real || !(is_known || *is_rotational && *takes_discards) {
        return None;
    }
    let why = if is_known { "by its model" } else { "since it has platters and takes TRIM" };
    Some(Finding::note(
        &subject(disk),
        [
            &format!("probably drive-managed SMR, {why}: a shingled disk that shows no zones"),
            "it works as any disk, but stops for seconds while it sorts random writes; RAID may drop it",
            "nothing for backups and archives; for random writes, another disk. `zonal create \
             DEVICE --zone-size 256MiB` makes all writes to it sequential, and destroys its contents",
        ],
    ))
}

fn jumping_writes(_facts: &Facts, disk: &Disk) -> Option<Finding> {
    let queue = disk.queue.as_ref()?;
    if !disk.has_zones() || !queue.is_rotational || queue.writes_in_turn != Some(false) {
        return None;
    }
    let name = &disk.name;
    Some(Finding::note(
        &subject(disk),
        [
            "zoned_qd1_writes is off",
            "writers of several zones at once make the heads jump, for file systems of the kernel",
            &format!("`echo 1 > /sys/block/{name}/queue/zoned_qd1_writes` as root, to compare"),
        ],
    ))
}

/// A drive with which nothing is wrong, but which may have been bought by mistake.
fn host_managed(disk: &Disk) -> Finding {
    let node = disk.block.as_ref().or(disk.generic.as_ref());
    let node = node.map_or_else(|| "DEVICE".to_owned(), |node| node.path.display().to_string());
    Finding::note(
        &subject(disk),
        [
            "a host-managed drive: most of its zones take writes only in sequence",
            "ext4, NTFS, Windows, hardware RAID and most NAS systems cannot use it; this is no defect",
            &format!("`zonal mkfs {node}` and `zonal mount {node} DIR`, or btrfs in zoned mode"),
        ],
    )
}

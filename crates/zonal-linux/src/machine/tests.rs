//! The facts of seeded trees.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

/// A tree with files, each a path and its text.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn look(root: &tempfile::TempDir) -> Facts {
    Machine::at(root.path(), User { uid: 4_000_000, groups: Vec::new() }).look()
}

#[test]
fn scsi_disk_without_block_device_is_found_with_its_log() {
    const DEVICE: &str = "sys/devices/pci/ata3/host2/target2:0:0/2:0:0:0";
    let root = tree(&[
        ("proc/sys/kernel/osrelease", "6.12.43-amd64\n"),
        ("boot/config-6.12.43-amd64", "# CONFIG_BLK_DEV_ZONED is not set\nCONFIG_BLK_DEV_SD=y\n"),
        (&format!("{DEVICE}/type"), "20\n"),
        (&format!("{DEVICE}/vendor"), "ATA     \n"),
        (&format!("{DEVICE}/model"), "HGST HSH721414AL\n"),
        (&format!("{DEVICE}/queue_depth"), "32\n"),
        (&format!("{DEVICE}/scsi_generic/sg1/dev"), "21:1\n"),
        ("sys/class/scsi_host/host2/proc_name", "ahci\n"),
        ("dev/sg1", ""),
        (
            "dev/kmsg",
            "5,1,2,-;sd 2:0:0:0: Unsupported ZBC host-managed device.\n4,2,3,-;ata3.00: failed command\n\
             4,3,3,-;ata33.00: failed command\n",
        ),
    ]);
    fs::create_dir_all(root.path().join("sys/bus/scsi/devices")).unwrap();
    let link = root.path().join("sys/bus/scsi/devices/2:0:0:0");
    symlink(root.path().join(DEVICE), link).unwrap();
    let facts = look(&root);
    assert_eq!(facts.version(), Some((6, 12)));
    assert_eq!(facts.option("CONFIG_BLK_DEV_ZONED"), Some('n'));
    let [disk] = &facts.disks[..] else { panic!("{:?}", facts.disks) };
    assert_eq!((&*disk.name, disk.bus, disk.is_host_managed()), ("sg1", Bus::Ata, true));
    assert_eq!(disk.model, "ATA HGST HSH721414AL");
    assert!(disk.block.is_none() && !disk.has_zones());
    assert_eq!(disk.log.len(), 2, "{:?}", disk.log);
    assert_eq!(facts.fuse.access, Access::Missing);
}

#[test]
fn disk_queue_is_read_from_sysfs() {
    let root = tree(&[
        ("sys/bus/scsi/devices/0:0:0:0/type", "20\n"),
        ("sys/bus/scsi/devices/0:0:0:0/block/sda/dev", "8:0\n"),
        ("sys/block/sda/queue/zoned", "host-managed\n"),
        ("sys/block/sda/queue/scheduler", "none [mq-deadline] bfq\n"),
        ("sys/block/sda/queue/rotational", "1\n"),
        ("sys/block/sda/queue/discard_granularity", "0\n"),
        ("sys/block/sda/queue/zoned_qd1_writes", "0\n"),
        ("sys/block/sda/size", "27344764928\n"),
        ("sys/block/ublkb0/queue/zoned", "host-managed\n"),
        ("sys/block/ublkb0/size", "8192\n"),
        ("sys/block/vda/queue/zoned", "none\n"),
        ("sys/class/nvme-generic/ng0n1/dev", "243:0\n"),
        ("sys/class/nvme/nvme0/model", "ZNS drive\n"),
        ("dev/sda", ""),
    ]);
    let facts = look(&root);
    let names: Vec<&str> = facts.disks.iter().map(|disk| &*disk.name).collect();
    assert_eq!(names, ["sda", "ng0n1", "ublkb0"]);
    let queue = facts.disks[0].queue.as_ref().unwrap();
    assert_eq!(queue.scheduler.as_deref(), Some("mq-deadline"));
    assert!(queue.is_rotational && !queue.takes_discards);
    assert_eq!(queue.writes_in_turn, Some(false));
    assert!(facts.disks[0].has_zones());
    assert_eq!(facts.disks[1].model, "ZNS drive");
    assert!(facts.disks[1].block.is_none());
}

#[test]
fn node_access_follows_mode_and_groups() {
    let root = tree(&[("dev/fuse", "")]);
    let path = root.path().join("dev/fuse");
    let group = path.metadata().unwrap().gid();
    let access = |mode, user: User| {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Machine::at(root.path(), user).look().fuse.access
    };
    let other = User { uid: 4_000_000, groups: Vec::new() };
    let member = User { uid: 4_000_000, groups: vec![group] };
    assert_eq!(access(0o600, other.clone()), Access::Denied);
    assert_eq!(access(0o666, other.clone()), Access::Usable);
    assert_eq!(access(0o660, member), Access::Usable);
    assert_eq!(access(0o660, other), Access::Denied);
    assert_eq!(access(0o600, User { uid: 0, groups: Vec::new() }), Access::Usable);
}

#[test]
fn packed_kernel_configuration_is_read() {
    use std::io::Write;
    let root = tree(&[("proc/version", "")]);
    let file = fs::File::create(root.path().join("proc/config.gz")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    packed.write_all(b"CONFIG_BLK_DEV_ZONED=y\n").unwrap();
    packed.finish().unwrap();
    assert_eq!(look(&root).option("CONFIG_BLK_DEV_ZONED"), Some('y'));
}

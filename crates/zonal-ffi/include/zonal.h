/*
 libzonal: zoned drives, and the files on them. Made from crates/zonal-ffi/src; see docs/guide/use/c-library.md.

 These rules hold for every function, beside its own comment:

 - It returns 0 or a count, or a negative errno; zonal_last_error() then has the sentence, for the
   calling thread.
 - NULL where something is needed is -EFAULT, more bytes than memory has -EINVAL, and a mistake of the
   library itself -EIO.
 - Handles may be used from several threads at once. Closing one must be the last use of it.
 - Offsets, sizes and lengths are in bytes. Strings end in a zero byte; paths start at the root of the
   volume, with or without a slash.
 */

#ifndef ZONAL_H
#define ZONAL_H

#include <stddef.h>
#include <stdint.h>

/*
 Bytes of the name of a drive's maker.
 */
#define ZONAL_VENDOR_ID_LENGTH 32

/*
 Model: every zone but conventional ones takes writes at its write pointer only.
 */
#define ZONAL_HOST_MANAGED 1

/*
 Model: zones like to be written at their write pointer, and take writes anywhere.
 */
#define ZONAL_HOST_AWARE 2

/*
 Model: every zone is conventional.
 */
#define ZONAL_NOT_ZONED 3

/*
 Zone type: no write pointer, written anywhere.
 */
#define ZONAL_ZONE_TYPE_CNV 1

/*
 Zone type: written at the write pointer only.
 */
#define ZONAL_ZONE_TYPE_SWR 2

/*
 Zone type: written at the write pointer by preference, and anywhere.
 */
#define ZONAL_ZONE_TYPE_SWP 3

/*
 Flag of a zone: it was written elsewhere than at its write pointer since the last reset.
 */
#define ZONAL_ZONE_NON_SEQ_RESOURCES 2

/*
 Zone condition: no write pointer.
 */
#define ZONAL_ZONE_COND_NOT_WP 0

/*
 Zone condition: nothing written.
 */
#define ZONAL_ZONE_COND_EMPTY 1

/*
 Zone condition: opened by a write.
 */
#define ZONAL_ZONE_COND_IMP_OPEN 2

/*
 Zone condition: opened by an operation.
 */
#define ZONAL_ZONE_COND_EXP_OPEN 3

/*
 Zone condition: partly written, active, not open.
 */
#define ZONAL_ZONE_COND_CLOSED 4

/*
 Zone condition: failed, readable.
 */
#define ZONAL_ZONE_COND_READONLY 13

/*
 Zone condition: written to its end, or finished.
 */
#define ZONAL_ZONE_COND_FULL 14

/*
 Zone condition: failed, not readable.
 */
#define ZONAL_ZONE_COND_OFFLINE 15

/*
 Report every zone.
 */
#define ZONAL_RO_ALL 0

/*
 Report empty zones.
 */
#define ZONAL_RO_EMPTY 1

/*
 Report implicitly open zones.
 */
#define ZONAL_RO_IMP_OPEN 2

/*
 Report explicitly open zones.
 */
#define ZONAL_RO_EXP_OPEN 3

/*
 Report closed zones.
 */
#define ZONAL_RO_CLOSED 4

/*
 Report full zones.
 */
#define ZONAL_RO_FULL 5

/*
 Report read-only zones.
 */
#define ZONAL_RO_RDONLY 6

/*
 Report offline zones.
 */
#define ZONAL_RO_OFFLINE 7

/*
 Report zones whose reset is recommended: none, because devices here recommend no resets.
 */
#define ZONAL_RO_RWP_RECOMMENDED 16

/*
 Report zones that were written elsewhere than at their write pointer.
 */
#define ZONAL_RO_NON_SEQ 17

/*
 Report conventional zones.
 */
#define ZONAL_RO_NOT_WP 63

/*
 Operation: empty zones.
 */
#define ZONAL_OP_RESET 1

/*
 Operation: open zones.
 */
#define ZONAL_OP_OPEN 2

/*
 Operation: close open zones.
 */
#define ZONAL_OP_CLOSE 3

/*
 Operation: make zones full.
 */
#define ZONAL_OP_FINISH 4

/*
 Request of a batch: read.
 */
#define ZONAL_IO_READ 1

/*
 Request of a batch: write at the write pointer.
 */
#define ZONAL_IO_WRITE 2

/*
 Request of a batch: append to a zone.
 */
#define ZONAL_IO_APPEND 3

/*
 Request of a batch: flush.
 */
#define ZONAL_IO_FLUSH 4

/*
 File system: Furrow, which has everything that POSIX asks for.
 */
#define ZONAL_FURROW 0

/*
 File system: zonefs, where every zone is a file.
 */
#define ZONAL_ZONEFS 1

/*
 Formatting: destroy the content of the device.
 */
#define ZONAL_MKFS_FORCE 1

/*
 Formatting: each run of neighbouring conventional zones is one file of zonefs.
 */
#define ZONAL_MKFS_AGGREGATE 2

/*
 Renaming: fail if something stands at the target.
 */
#define ZONAL_RENAME_NOREPLACE 1

/*
 Renaming: swap the two.
 */
#define ZONAL_RENAME_EXCHANGE 2

/*
 Renaming: leave a whiteout in the source's place, as overlay file systems do.
 */
#define ZONAL_RENAME_WHITEOUT 4

/*
 A symbolic link at the end of the path is meant itself.
 */
#define ZONAL_NOFOLLOW 256

/*
 Fail if the extended attribute exists.
 */
#define ZONAL_XATTR_CREATE 1

/*
 Fail if the extended attribute does not exist.
 */
#define ZONAL_XATTR_REPLACE 2

/*
 In place of nanoseconds: now, whatever the seconds are. The number is that of `UTIME_NOW`.
 */
#define ZONAL_UTIME_NOW 1073741823

/*
 In place of nanoseconds: the time stays, whatever the seconds are. The number is that of
 `UTIME_OMIT`.
 */
#define ZONAL_UTIME_OMIT 1073741822

/*
 Allocating: the size of the file stays.
 */
#define ZONAL_FALLOC_KEEP_SIZE 1

/*
 Allocating: make a hole instead.
 */
#define ZONAL_FALLOC_PUNCH_HOLE 2

/*
 Allocating: make the range read as zeroes.
 */
#define ZONAL_FALLOC_ZERO_RANGE 16

/*
 How long data will live: nothing is known.
 */
#define ZONAL_LIFETIME_NONE 0

/*
 How long data will live: it is deleted soon, like a write-ahead log.
 */
#define ZONAL_LIFETIME_SHORT 2

/*
 How long data will live: longer than short.
 */
#define ZONAL_LIFETIME_MEDIUM 3

/*
 How long data will live: longer than medium.
 */
#define ZONAL_LIFETIME_LONG 4

/*
 How long data will live: like the lowest level of an LSM tree.
 */
#define ZONAL_LIFETIME_EXTREME 5

/*
 An open device.
 */
struct zonal_device;

/*
 An open file of a volume.
 */
struct zonal_file;

/*
 A mounted volume.
 */
struct zonal_volume;

/*
 A description of a device: 128 bytes, as libzbd's `zbd_info`.
 */
struct __attribute__((packed)) zonal_info {
  /*
   The maker's name, ending in a zero byte.
   */
  char vendor_id[ZONAL_VENDOR_ID_LENGTH];
  /*
   Sectors of 512 bytes.
   */
  uint64_t nr_sectors;
  /*
   Logical blocks.
   */
  uint64_t nr_lblocks;
  /*
   Physical blocks.
   */
  uint64_t nr_pblocks;
  /*
   Bytes from one zone's start to the next.
   */
  uint64_t zone_size;
  /*
   The same in sectors; the largest number there is if it is more.
   */
  uint32_t zone_sectors;
  /*
   Bytes of a logical block.
   */
  uint32_t lblock_size;
  /*
   Bytes of a physical block.
   */
  uint32_t pblock_size;
  /*
   Zones.
   */
  uint32_t nr_zones;
  /*
   Zones that can be open at once; 0: no limit.
   */
  uint32_t max_nr_open_zones;
  /*
   Zones that can be active at once; 0: no limit.
   */
  uint32_t max_nr_active_zones;
  /*
   One of the models.
   */
  uint32_t model;
  /*
   Zeroes.
   */
  uint8_t reserved[36];
};

/*
 A zone: 64 bytes, as libzbd's `zbd_zone`. Places and lengths are in bytes.
 */
struct __attribute__((packed)) zonal_zone {
  /*
   The start of the zone.
   */
  uint64_t start;
  /*
   From its start to the next zone's.
   */
  uint64_t len;
  /*
   Writable bytes of the zone.
   */
  uint64_t capacity;
  /*
   The write pointer; `start + capacity` of a full zone, `UINT64_MAX` where there is none.
   */
  uint64_t wp;
  /*
   0, or `ZONAL_ZONE_NON_SEQ_RESOURCES`.
   */
  uint32_t flags;
  /*
   One of the types.
   */
  uint32_t type;
  /*
   One of the conditions.
   */
  uint32_t cond;
  /*
   Zeroes.
   */
  uint8_t reserved[20];
};

/*
 A request of a batch. Fields that its `op` does not use are ignored.
 */
struct zonal_io {
  /*
   One of `ZONAL_IO_`.
   */
  uint32_t op;
  /*
   None are defined: 0.
   */
  uint32_t flags;
  /*
   Byte of the device: where to read or write, or any byte of the zone to append to.
   */
  uint64_t ofst;
  /*
   Bytes to read or write: whole blocks.
   */
  size_t count;
  /*
   The buffer for a read.
   */
  void *buf;
  /*
   The data of a write or an append.
   */
  const void *data;
  /*
   How it ended, set by `zonal_submit`: the bytes read or written, for an append the byte of
   the device where the data went, for a flush 0, or a negative errno.
   */
  int64_t result;
};

/*
 How to make a file system. All zeroes mean Furrow with the defaults.
 */
struct zonal_mkfs_options {
  /*
   `ZONAL_FURROW` or `ZONAL_ZONEFS`.
   */
  uint32_t fs;
  /*
   Any of `ZONAL_MKFS_`.
   */
  uint32_t flags;
  /*
   Its name in UTF-8: at most 64 bytes for Furrow, 63 for zonefs; NULL: none.
   */
  const char *label;
  /*
   Its identity; zeroes: a random one.
   */
  uint8_t uuid[16];
  /*
   Furrow: percent of the data zones kept back for reclaim, at most 50; 0: 7.
   */
  uint32_t reserve_percent;
  /*
   zonefs: permission bits of the files; 0: 0640.
   */
  uint32_t perm;
  /*
   Zeroes.
   */
  uint64_t reserved[5];
};

/*
 How to open a volume. With all zeroes this is `zonal_volume_open`.
 */
struct zonal_volume_options {
  /*
   Bytes of memory for cached metadata of Furrow, about; 0: 256 MiB. With less than 64 MiB it
   is slow.
   */
  uint64_t memory;
  /*
   Zeroes.
   */
  uint64_t reserved[7];
};

/*
 Space of a volume.
 */
struct zonal_statvfs {
  /*
   Bytes of a block.
   */
  uint64_t block_size;
  /*
   Blocks that files can fill.
   */
  uint64_t blocks;
  /*
   Blocks not filled.
   */
  uint64_t blocks_free;
  /*
   Inodes in use.
   */
  uint64_t inodes;
  /*
   Inodes that can still be made.
   */
  uint64_t inodes_free;
  /*
   Bytes of the longest name.
   */
  uint64_t name_max;
};

/*
 Attributes of a file.
 */
struct zonal_stat {
  /*
   Its number, which no other file ever gets.
   */
  uint64_t ino;
  /*
   Length in bytes.
   */
  uint64_t size;
  /*
   Allocated space in units of 512 bytes.
   */
  uint64_t blocks;
  /*
   Last access: seconds since 1970, and nanoseconds.
   */
  int64_t atime_sec;
  /*
   Last change of the content.
   */
  int64_t mtime_sec;
  /*
   Last change of the inode.
   */
  int64_t ctime_sec;
  /*
   Nanoseconds of the last access.
   */
  uint32_t atime_nsec;
  /*
   Nanoseconds of the last change of the content.
   */
  uint32_t mtime_nsec;
  /*
   Nanoseconds of the last change of the inode.
   */
  uint32_t ctime_nsec;
  /*
   Type and permission bits, as `st_mode` has them.
   */
  uint32_t mode;
  /*
   Names.
   */
  uint32_t nlink;
  /*
   Owner.
   */
  uint32_t uid;
  /*
   Group.
   */
  uint32_t gid;
  /*
   Device number, for device nodes.
   */
  uint32_t rdev;
};

/*
 An entry of a directory.
 */
struct zonal_entry {
  /*
   Its name, valid during the call.
   */
  const char *name;
  /*
   The number of its inode.
   */
  uint64_t ino;
  /*
   The type of the inode, as `d_type` has it: `DT_REG` and its like.
   */
  unsigned int type;
};

/*
 The function that `zonal_list` calls for each entry, with the context that the caller gave.
 Anything but 0 ends the listing.
 */
typedef int (*zonal_each)(void *context, const struct zonal_entry *entry);

/*
 A point in time.
 */
struct zonal_time {
  /*
   Seconds since 1970.
   */
  int64_t sec;
  /*
   Nanoseconds, `ZONAL_UTIME_NOW` or `ZONAL_UTIME_OMIT`.
   */
  uint32_t nsec;
};

/*
 The times of a file that can be set.
 */
struct zonal_times {
  /*
   Last access.
   */
  struct zonal_time atime;
  /*
   Last change of the content.
   */
  struct zonal_time mtime;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The message of the last function that failed in this thread; an empty string if none did. The
 text is valid until the next call of this thread that fails. It never fails itself.
 */
const char *zonal_last_error(void);

/*
 The version of the library, as "0.1.0". It never fails.
 */
const char *zonal_version(void);

/*
 Opens a device: a drive file, `mem:zone=96M,zones=40`, `/dev/nvme0n1`, `/dev/ng0n1`, or layers
 in front of one, as the command `zonal` takes them, but for `sim:`: the simulator is not in this
 library. `flags` is `O_RDONLY` or `O_RDWR`. The handle is written to `device`, and a description
 of the device to `info`, unless that is NULL.

 Errors: `-EINVAL` for an invalid specification, or other flags; `-EBUSY` where another process
 has the drive; errors of open(2) for a path.
 */
int zonal_open(const char *spec,
               int flags,
               struct zonal_info *info,
               struct zonal_device **device);

/*
 Closes a device. Data that was not flushed may not survive a power cut.

 Errors: none but `-EFAULT`.
 */
int zonal_close(struct zonal_device *device);

/*
 Describes a device.

 Errors: none but `-EFAULT`.
 */
int zonal_get_info(const struct zonal_device *device, struct zonal_info *info);

/*
 Reports the zones from the one that holds byte `ofst` to the one that holds byte
 `ofst + len - 1`; with a `len` of 0, to the last. `ro` chooses by condition. `nr_zones` says how
 many `zones` has room for, and is set to how many were written there; with NULL for `zones`, to
 how many there are.

 Errors: `-EINVAL` where `ro` is none of `ZONAL_RO_`; `-EIO` and other errors of the drive.
 */
int zonal_report_zones(const struct zonal_device *device,
                       uint64_t ofst,
                       uint64_t len,
                       unsigned int ro,
                       struct zonal_zone *zones,
                       unsigned int *nr_zones);

/*
 Resets, opens, closes or finishes the zones that a range of bytes touches, one after the other;
 with a `len` of 0, from `ofst` to the last. Where that is more than one zone, conventional zones
 are left out. The first failure ends it.

 Errors: `-EINVAL` for an unknown `op` or a range behind the end; `-EBUSY` while a volume is
 open on this handle; `-EIO` where the condition of a zone allows no such thing; `-EOVERFLOW` and
 `-ETOOMANYREFS` for more active and open zones than the drive has; `-EROFS` on a handle for
 reading.
 */
int zonal_zones_operation(const struct zonal_device *device,
                          unsigned int op,
                          uint64_t ofst,
                          uint64_t len);

/*
 Reads whole blocks from byte `ofst` on and returns how many bytes: all of them.

 Errors: `-EINVAL` where `ofst` or `count` is no multiple of the block size, in bytes; `-EIO`
 behind the end, and where the medium fails.
 */
int64_t zonal_read(const struct zonal_device *device,
                   void *buf,
                   size_t count,
                   uint64_t ofst);

/*
 Writes whole blocks at byte `ofst`, the write pointer of its zone or anywhere in a conventional
 zone, and returns how many bytes: all of them.

 Errors: `-EINVAL` where `ofst` or `count` is no multiple of the block size, in bytes; `-EIO`
 where the write pointer is elsewhere, the zone is full or has failed, or the write would cross
 its end; `-EOVERFLOW` and `-ETOOMANYREFS` as for operations; `-EBUSY` while a volume is open on
 this handle; `-EROFS` on a handle for reading.
 */
int64_t zonal_write(const struct zonal_device *device,
                    const void *buf,
                    size_t count,
                    uint64_t ofst);

/*
 Writes whole blocks at the write pointer of the zone that holds byte `ofst`, and returns the
 byte where they went.

 Errors: those of `zonal_write`, but that `ofst` may be any byte of the zone; `-EINVAL` also for
 more than a drive takes at once; `-EIO` in a conventional zone.
 */
int64_t zonal_append(const struct zonal_device *device,
                     const void *buf,
                     size_t count,
                     uint64_t ofst);

/*
 Makes everything that returned before this call survive a power cut.

 Errors: `-EIO` and other errors of the drive; data that was not flushed may be lost then.
 */
int zonal_flush(const struct zonal_device *device);

/*
 The name of a model, or its abbreviation if `brief` is not 0.
 For another number it is `unknown`, or `??`; the function never fails.
 */
const char *zonal_device_model_str(unsigned int model, int brief);

/*
 The name of a zone type, or its abbreviation if `brief` is not 0.
 For another number it is `unknown`, or `??`; the function never fails.
 */
const char *zonal_zone_type_str(unsigned int type, int brief);

/*
 The name of a zone condition, or its abbreviation if `brief` is not 0.
 For another number it is `unknown`, or `??`; the function never fails.
 */
const char *zonal_zone_cond_str(unsigned int cond, int brief);

/*
 Performs `nr_ios` requests, in parallel as far as the device can, and returns how many of them
 succeeded. Each gets a `result`: the return value of the single call. A request that fails stops
 no other; `zonal_last_error` is about the first one that failed.

 Writes to one zone are done in the order of the array. Appends go wherever their results say,
 and other requests have no order: of blocks that the same batch writes, a read may give the old
 or the new. A flush makes the requests before it durable, and the requests after it wait for it.

 Errors, with which no request was performed: `-EINVAL` where a buffer of a read overlaps another
 buffer of the batch, or the array itself. In a `result`: those of `zonal_read`, `zonal_write`,
 `zonal_append` and `zonal_flush`; `-EINVAL` for an unknown `op` and for flags.
 */
int64_t zonal_submit(const struct zonal_device *device,
                     struct zonal_io *ios,
                     size_t nr_ios);

/*
 Makes a file system on an open device: resets its zones and writes an empty file system, which
 is durable when this returns. NULL for `options` means Furrow with the defaults. The root
 directory of Furrow belongs to the user of this process. Without `ZONAL_MKFS_FORCE` it formats
 only a device that holds nothing.

 `zonal_volume_open_on` then mounts it.

 Errors: `-EBUSY` where the device holds something, or a volume is open on the handle; `-EINVAL`
 for invalid options and a drive with too few zones; `-EROFS` on a handle for reading; `-EIO` and
 other errors of the drive.
 */
int zonal_mkfs(const struct zonal_device *device,
               const struct zonal_mkfs_options *options);

/*
 Mounts the file system, Furrow or zonefs, on the device that `spec` names, as `zonal_open` takes
 it. `flags` is `O_RDONLY` or `O_RDWR`. A thread commits changes that are about five seconds old.
 New files belong to the user of this process; mode bits are kept and not enforced.

 Errors: those of `zonal_open`; `-EINVAL` where the device holds neither; `-EBUSY` where another
 process or volume has the drive; `-EIO` where the file system is damaged.
 */
int zonal_volume_open(const char *spec,
                      int flags,
                      struct zonal_volume **volume);

/*
 The same, with options.

 Errors: those of `zonal_volume_open`; `-EINVAL` for options that this version does not have.
 */
int zonal_volume_open_with(const char *spec,
                           int flags,
                           const struct zonal_volume_options *options,
                           struct zonal_volume **volume);

/*
 Mounts the file system on an open device, such as one in memory that `zonal_mkfs` has formatted:
 opening `mem:` by `zonal_volume_open` makes a new drive, which is empty. `flags` is `O_RDONLY`
 or `O_RDWR`; NULL for `options` means the defaults. The volume keeps the device, so the handle
 may be closed before the volume or after. Until the volume is closed the handle reads and
 reports, but writes, appends, operations on zones and `zonal_mkfs` give `-EBUSY`. A handle that
 was opened with `O_RDONLY` keeps no other process from writing to the drive.

 Errors: those of `zonal_volume_open`; `-EBUSY` where a volume is open on the handle; `-EROFS`
 for `O_RDWR` on a handle for reading.
 */
int zonal_volume_open_on(const struct zonal_device *device,
                         int flags,
                         const struct zonal_volume_options *options,
                         struct zonal_volume **volume);

/*
 Makes everything durable, leaves the drive clean and closes it. The volume is closed even if
 this fails: the error is that of the last commit. Files that are still open answer `-EBADF` from
 then on, and have to be closed all the same.

 Errors: `-EIO` and `-ENOSPC` from the last commit.
 */
int zonal_volume_close(struct zonal_volume *volume);

/*
 Makes everything durable.

 Errors: `-EIO`, `-ENOSPC`, `-EROFS`; then data written since the last sync may not be durable.
 */
int zonal_volume_sync(const struct zonal_volume *volume);

/*
 Tells the space of a volume, used and free.

 Errors: none but `-EFAULT`.
 */
int zonal_volume_statvfs(const struct zonal_volume *volume, struct zonal_statvfs *stat);

/*
 Tells the attributes of the file or directory that `path` leads to. A symbolic link at its end
 is followed.

 Errors: `-ENOENT`, `-ENOTDIR`, `-ELOOP` for the path; `-EIO` where the drive fails.
 */
int zonal_stat(const struct zonal_volume *volume,
               const char *path,
               struct zonal_stat *stat);

/*
 Tells the attributes of the entry at `path`, which may be a symbolic link.

 Errors: those of `zonal_stat`.
 */
int zonal_lstat(const struct zonal_volume *volume,
                const char *path,
                struct zonal_stat *stat);

/*
 Makes a directory with these permission bits.

 Errors: `-EEXIST`; `-ENAMETOOLONG` over 255 bytes; `-ENOSPC`; `-ENOTDIR` and `-ELOOP` on the
 way; `-EROFS`; `-EIO`.
 */
int zonal_mkdir(const struct zonal_volume *volume,
                const char *path,
                unsigned int mode);

/*
 Removes the entry of anything but a directory.

 Errors: `-ENOENT`; `-EISDIR`; `-EPERM` on zonefs and for immutable files; `-ENOTDIR` and
 `-ELOOP` on the way; `-EROFS`; `-EIO`.
 */
int zonal_unlink(const struct zonal_volume *volume, const char *path);

/*
 Removes an empty directory.

 Errors: `-ENOENT`; `-ENOTEMPTY`; `-EINVAL` for the root; `-ENOTDIR` and `-ELOOP` on the way;
 `-EROFS`; `-EIO`.
 */
int zonal_rmdir(const struct zonal_volume *volume,
                const char *path);

/*
 Moves an entry, and replaces an entry at `to`, at once.

 Errors: `-ENOENT`; `-EISDIR` and `-ENOTEMPTY` for the entry at `to`; `-EINVAL` into itself;
 `-ENOTDIR` and `-ELOOP` on the way; `-EROFS`; `-EIO`.
 */
int zonal_rename(const struct zonal_volume *volume,
                 const char *from,
                 const char *to);

/*
 Moves an entry as `flags` say: 0 or one of `ZONAL_RENAME_`.

 Errors: those of `zonal_rename`; `-EEXIST` with `ZONAL_RENAME_NOREPLACE`; `-EINVAL` for other
 flags.
 */
int zonal_rename_with(const struct zonal_volume *volume,
                      const char *from,
                      const char *to,
                      unsigned int flags);

/*
 Gives the file at `original` one more name, `link`. A symbolic link at `original` gets it
 itself.

 Errors: `-ENOENT`; `-EEXIST`; `-EPERM` for a directory; `-EMLINK`; `-ENOSPC`; `-ENOTDIR` and
 `-ELOOP` on the way; `-EROFS`; `-EIO`.
 */
int zonal_link(const struct zonal_volume *volume,
               const char *original,
               const char *link);

/*
 Makes a symbolic link at `link` with the text `target`, of at most 4095 bytes, whether or not
 that leads anywhere. A target with a leading slash starts at the root of the volume.

 Errors: `-EEXIST`; `-ENAMETOOLONG`; `-EINVAL` for an empty target; `-ENOSPC`; `-ENOTDIR` and
 `-ELOOP` on the way; `-EROFS`; `-EIO`.
 */
int zonal_symlink(const struct zonal_volume *volume,
                  const char *target,
                  const char *link);

/*
 Copies the text of a symbolic link to `buf`, without a zero byte at its end, and returns how
 many bytes it has. With a `size` of 0 it only returns that. Unlike readlink(2) it cuts nothing
 off.

 Errors: `-EINVAL` where no symbolic link stands; `-ENOENT`; `-ERANGE` for a buffer that is too
 small; `-EIO`.
 */
int64_t zonal_readlink(const struct zonal_volume *volume,
                       const char *path,
                       char *buf,
                       size_t size);

/*
 Calls `each` with every entry of a directory but `.` and `..`, in no particular order, and with
 `context`. Returns 0, or what `each` returned to end it. `each` may call any function of this
 library but those that close the volume.

 Errors: `-ENOENT`; `-ENOTDIR`; `-EIO`. They look like a negative number from `each`, which is
 better positive.
 */
int zonal_list(const struct zonal_volume *volume,
               const char *path,
               zonal_each each,
               void *context);

/*
 Opens a file as open(2) does. Of `flags`, this looks at `O_RDONLY`, `O_WRONLY`, `O_RDWR`,
 `O_CREAT`, `O_EXCL`, `O_TRUNC`, `O_APPEND`, `O_DIRECT`, `O_DSYNC`, `O_SYNC` and `O_NOFOLLOW`;
 `mode` has the permission bits of a new file.

 Errors: `-ENOENT`, `-ENOTDIR`, `-ELOOP` for the path; `-EEXIST` with `O_EXCL`; `-EISDIR` for a
 directory; `-EINVAL` for other files that are not regular, and for `O_TRUNC` without writing;
 `-EOPNOTSUPP` for `O_TMPFILE`; `-EPERM` for an immutable file; `-EBUSY` on zonefs for more files
 than the drive can have open; `-ENOSPC`; `-EROFS`; `-EIO`.
 */
int zonal_file_open(const struct zonal_volume *volume,
                    const char *path,
                    int flags,
                    unsigned int mode,
                    struct zonal_file **file);

/*
 Closes a file and releases its lock. This makes nothing durable.

 Errors: none but `-EFAULT`.
 */
int zonal_file_close(struct zonal_file *file);

/*
 Reads from byte `ofst` on and returns how many bytes: less than `count` only at the end of file.

 Errors: `-EIO` where the drive fails or a checksum does not fit; `-EBADF` where the file was not
 opened for it or the volume is closed.
 */
int64_t zonal_file_read(const struct zonal_file *file,
                        void *buf,
                        size_t count,
                        uint64_t ofst);

/*
 Writes at byte `ofst` and returns how many bytes: less than `count` only where a zone of zonefs
 is full.

 Errors: `-ENOSPC`; `-EFBIG`; `-EIO`; `-EROFS`; `-EBADF` where the file was not opened for it or
 the volume is closed; on zonefs `-EINVAL` for writes other than whole blocks at the end of the
 file.
 */
int64_t zonal_file_write(const struct zonal_file *file,
                         const void *buf,
                         size_t count,
                         uint64_t ofst);

/*
 Writes all of the buffer at the end of the file and returns the byte where it went. Appends of
 several threads do not overlap.

 Errors: those of `zonal_file_write`. With `-ENOSPC` on zonefs a part may have been written.
 */
int64_t zonal_file_append(const struct zonal_file *file,
                          const void *buf,
                          size_t count);

/*
 Cuts a file, or lengthens it with zeroes.

 Errors: `-EFBIG`; `-ENOSPC`; `-EROFS`; `-EIO`; `-EPERM` on zonefs for other sizes than 0 and the
 whole zone; `-EBADF` where the file was not opened for it or the volume is closed.
 */
int zonal_file_truncate(const struct zonal_file *file,
                        uint64_t size);

/*
 Allocates, punches or zeroes `len` bytes from byte `ofst` on, as fallocate(2) does. `mode` is 0,
 `ZONAL_FALLOC_KEEP_SIZE`, `ZONAL_FALLOC_PUNCH_HOLE | ZONAL_FALLOC_KEEP_SIZE`, or
 `ZONAL_FALLOC_ZERO_RANGE` with or without `ZONAL_FALLOC_KEEP_SIZE`.

 Errors: `-EOPNOTSUPP` for other modes, and on zonefs; `-EINVAL` for no bytes; `-EFBIG`;
 `-ENOSPC`; `-EBADF` where the file is not open for writing; `-EROFS`; `-EIO`.
 */
int zonal_file_fallocate(const struct zonal_file *file,
                         int mode,
                         uint64_t ofst,
                         uint64_t len);

/*
 Says how long data written to the file will live: one of `ZONAL_LIFETIME_`, with the numbers of
 `fcntl(F_SET_RW_HINT)`. The hint is stored with the file, as the attribute
 `user.zonal.lifetime`. If `zonal_setxattr` sets that attribute on a directory, new files and
 directories in it inherit it.

 Errors: `-EINVAL` for another number; `-EOPNOTSUPP` on zonefs; `-ENOSPC`; `-EROFS`; `-EIO`.
 */
int zonal_file_set_lifetime(const struct zonal_file *file,
                            unsigned int hint);

/*
 The lifetime that is kept with the file: one of `ZONAL_LIFETIME_`.

 Errors: `-EOPNOTSUPP` on zonefs; `-EIO`.
 */
int zonal_file_get_lifetime(const struct zonal_file *file);

/*
 Makes content and attributes of a file durable.

 Errors: `-EIO`, `-ENOSPC`; then it may not be durable. `-EBADF` where the volume is closed.
 */
int zonal_file_sync(const struct zonal_file *file);

/*
 Makes the content of a file durable, with the metadata that is needed to read it back.

 Errors: `-EIO`, `-ENOSPC`; then it may not be durable. `-EBADF` where the volume is closed.
 */
int zonal_file_datasync(const struct zonal_file *file);

/*
 Tells the attributes of a file.

 Errors: `-EIO`; `-EBADF` where the volume is closed.
 */
int zonal_file_stat(const struct zonal_file *file, struct zonal_stat *stat);

/*
 Locks a file against the other handles of this volume, until it is closed; `-EAGAIN` if another
 one has it locked.

 Errors: none but `-EFAULT` and that `-EAGAIN`.
 */
int zonal_file_lock(const struct zonal_file *file);

/*
 Releases a lock.

 Errors: none but `-EFAULT`.
 */
int zonal_file_unlock(const struct zonal_file *file);

/*
 Sets the permission bits, twelve with setuid, setgid and sticky, of the file or directory that
 `path` leads to.

 Errors: `-ENOENT`, `-ENOTDIR`, `-ELOOP` for the path; `-EPERM` for an immutable file; `-EROFS`;
 `-EIO`.
 */
int zonal_chmod(const struct zonal_volume *volume,
                const char *path,
                unsigned int mode);

/*
 The same for an open file.

 Errors: `-EPERM` for an immutable file; `-EBADF` where the volume is closed; `-EROFS`; `-EIO`.
 */
int zonal_file_chmod(const struct zonal_file *file,
                     unsigned int mode);

/*
 Sets owner and group of the file or directory that `path` leads to; `(uint32_t)-1` leaves one as
 it is. `flags` is 0 or `ZONAL_NOFOLLOW`. Owners are kept and not enforced, so any program may
 set any.

 Errors: `-EINVAL` for other flags; those of `zonal_chmod`.
 */
int zonal_chown(const struct zonal_volume *volume,
                const char *path,
                uint32_t uid,
                uint32_t gid,
                unsigned int flags);

/*
 The same for an open file.

 Errors: those of `zonal_file_chmod`.
 */
int zonal_file_chown(const struct zonal_file *file, uint32_t uid, uint32_t gid);

/*
 Sets the times of last access and last change of the content of the file or directory that
 `path` leads to; NULL for `times` sets both to now. `flags` is 0 or `ZONAL_NOFOLLOW`.

 Errors: `-EINVAL` for other flags, and for a second or more of nanoseconds; those of
 `zonal_chmod`.
 */
int zonal_utimens(const struct zonal_volume *volume,
                  const char *path,
                  const struct zonal_times *times,
                  unsigned int flags);

/*
 The same for an open file.

 Errors: `-EINVAL` for a second or more of nanoseconds; those of `zonal_file_chmod`.
 */
int zonal_file_utimens(const struct zonal_file *file, const struct zonal_times *times);

/*
 Cuts the file that `path` leads to, or lengthens it with zeroes, to `size` bytes.

 Errors: `-ENOENT`, `-ENOTDIR`, `-ELOOP` for the path; `-EISDIR`; those of `zonal_file_truncate`.
 */
int zonal_truncate(const struct zonal_volume *volume,
                   const char *path,
                   uint64_t size);

/*
 Copies the value of an extended attribute, such as `user.origin`, of the file or directory that
 `path` leads to into `value` and returns how many bytes it has. With a `size` of 0 it only
 returns that. `flags` is 0 or `ZONAL_NOFOLLOW`.

 Errors: `-ENODATA` where there is no such attribute; `-ERANGE` for a buffer that is too small,
 and a name of no bytes or more than 255; `-EINVAL` for other flags; `-EOPNOTSUPP` on zonefs;
 `-ENOENT`, `-ENOTDIR`, `-ELOOP` for the path; `-EIO`.
 */
int64_t zonal_getxattr(const struct zonal_volume *volume,
                       const char *path,
                       const char *name,
                       void *value,
                       size_t size,
                       unsigned int flags);

/*
 The same for an open file.

 Errors: those of `zonal_getxattr` but for the path; `-EBADF` where the volume is closed.
 */
int64_t zonal_file_getxattr(const struct zonal_file *file,
                            const char *name,
                            void *value,
                            size_t size);

/*
 Sets an extended attribute of the file or directory that `path` leads to, to `size` bytes, at
 most 65536. `flags` has `ZONAL_XATTR_CREATE` or `ZONAL_XATTR_REPLACE`, and `ZONAL_NOFOLLOW`.

 Errors: `-EEXIST` and `-ENODATA` by the flags; `-E2BIG` for a larger value; `-ERANGE` for a name
 of no bytes or more than 255; `-EINVAL` for other flags; `-EOPNOTSUPP` on zonefs; `-ENOSPC`;
 `-EPERM` for an immutable file; `-ENOENT`, `-ENOTDIR`, `-ELOOP` for the path; `-EROFS`; `-EIO`.
 */
int zonal_setxattr(const struct zonal_volume *volume,
                   const char *path,
                   const char *name,
                   const void *value,
                   size_t size,
                   unsigned int flags);

/*
 The same for an open file.

 Errors: those of `zonal_setxattr` but for the path; `-EBADF` where the volume is closed.
 */
int zonal_file_setxattr(const struct zonal_file *file,
                        const char *name,
                        const void *value,
                        size_t size,
                        unsigned int flags);

/*
 Copies the names of the extended attributes of the file or directory that `path` leads to into
 `list`, each with a zero byte at its end, and returns how many bytes that are. With a `size` of
 0 it only returns that. `flags` is 0 or `ZONAL_NOFOLLOW`.

 Errors: `-ERANGE` for a buffer that is too small; `-EINVAL` for other flags; `-ENOENT`,
 `-ENOTDIR`, `-ELOOP` for the path; `-EIO`.
 */
int64_t zonal_listxattr(const struct zonal_volume *volume,
                        const char *path,
                        char *list,
                        size_t size,
                        unsigned int flags);

/*
 The same for an open file.

 Errors: `-ERANGE` for a buffer that is too small; `-EBADF` where the volume is closed; `-EIO`.
 */
int64_t zonal_file_listxattr(const struct zonal_file *file,
                             char *list,
                             size_t size);

/*
 Removes an extended attribute of the file or directory that `path` leads to. `flags` is 0 or
 `ZONAL_NOFOLLOW`.

 Errors: `-ENODATA` where there is no such attribute; `-EINVAL` for other flags; `-EOPNOTSUPP` on
 zonefs; `-EPERM` for an immutable file; `-ENOENT`, `-ENOTDIR`, `-ELOOP` for the path; `-EROFS`;
 `-EIO`.
 */
int zonal_removexattr(const struct zonal_volume *volume,
                      const char *path,
                      const char *name,
                      unsigned int flags);

/*
 The same for an open file.

 Errors: those of `zonal_removexattr` but for the path; `-EBADF` where the volume is closed.
 */
int zonal_file_removexattr(const struct zonal_file *file,
                           const char *name);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ZONAL_H */

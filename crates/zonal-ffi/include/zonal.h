/* libzonal: zoned drives, and the files on them. Made from crates/zonal-ffi/src; see docs/guide/c-library.md. */

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
 Model: zones like to be written at their write pointer. No device here is.
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
 Zone type: written at the write pointer by preference. No device here has such zones.
 */
#define ZONAL_ZONE_TYPE_SWP 3

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
 Report zones whose reset is recommended: none, devices here recommend nothing.
 */
#define ZONAL_RO_RWP_RECOMMENDED 16

/*
 Report zones with non-sequential write resources: none, no device here has any.
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
 What a device is: 128 bytes, as libzbd's `zbd_info`.
 */
struct __attribute__((packed)) zonal_info {
  /*
   Who made it, ending in a zero byte.
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
   Where it starts.
   */
  uint64_t start;
  /*
   From its start to the next zone's.
   */
  uint64_t len;
  /*
   What can be written of that.
   */
  uint64_t capacity;
  /*
   The write pointer; `start + capacity` of a full zone, `UINT64_MAX` where there is none.
   */
  uint64_t wp;
  /*
   Zeroes.
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
 How to open a volume. All zeroes mean what `zonal_volume_open` does.
 */
struct zonal_volume_options {
  /*
   Bytes of memory for what is read of Furrow's metadata, about; 0: 256 MiB. With less than 64 MiB
   it is slow.
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
   The number of what it leads to.
   */
  uint64_t ino;
  /*
   The type of that, as `d_type` has it: `DT_REG` and its like.
   */
  unsigned int type;
};

/*
 What `zonal_list` calls for each entry: with the context that was given. Anything but 0 ends the
 listing.
 */
typedef int (*zonal_each)(void *context, const struct zonal_entry *entry);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 What the last function that failed in this thread had to say; an empty string if none did. The
 text is valid until the next call of this thread that fails.
 */
const char *zonal_last_error(void);

/*
 The version of the library, as "0.1.0".
 */
const char *zonal_version(void);

/*
 Opens a device: a drive file, `mem:zone=96M,zones=40`, `/dev/nvme0n1`, `/dev/ng0n1`, or layers in
 front of one, as the command `zonal` takes them, but for `sim:`: the simulator is not in this
 library. `flags` is `O_RDONLY` or `O_RDWR`. The handle is written to `device`; if `info` is not
 NULL, what the device is, to that.
 */
int zonal_open(const char *spec,
               int flags,
               struct zonal_info *info,
               struct zonal_device **device);

/*
 Closes a device. What was not flushed may not survive a power cut.
 */
int zonal_close(struct zonal_device *device);

/*
 Tells what a device is.
 */
int zonal_get_info(const struct zonal_device *device, struct zonal_info *info);

/*
 Reports the zones from the one that holds byte `ofst` to the one that holds byte
 `ofst + len - 1`; with a `len` of 0, to the last. `ro` chooses by condition. `nr_zones` says how
 many `zones` has room for, and is set to how many were written there; with NULL for `zones`, to
 how many there are.
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
 */
int zonal_zones_operation(const struct zonal_device *device,
                          unsigned int op,
                          uint64_t ofst,
                          uint64_t len);

/*
 Reads whole blocks from byte `ofst` on and returns how many bytes: all of them.
 */
int64_t zonal_read(const struct zonal_device *device,
                   uint8_t *buf,
                   size_t count,
                   uint64_t ofst);

/*
 Writes whole blocks at byte `ofst`, the write pointer of its zone or anywhere in a conventional
 zone, and returns how many bytes: all of them.
 */
int64_t zonal_write(const struct zonal_device *device,
                    const uint8_t *buf,
                    size_t count,
                    uint64_t ofst);

/*
 Writes whole blocks at the write pointer, wherever it is, of the zone that holds byte `ofst`, and
 returns the byte where they went.
 */
int64_t zonal_append(const struct zonal_device *device,
                     const uint8_t *buf,
                     size_t count,
                     uint64_t ofst);

/*
 Makes everything that returned before this call survive a power cut.
 */
int zonal_flush(const struct zonal_device *device);

/*
 The name of a model, or its abbreviation if `brief` is not 0.
 */
const char *zonal_device_model_str(unsigned int model, int brief);

/*
 The name of a zone type, or its abbreviation if `brief` is not 0.
 */
const char *zonal_zone_type_str(unsigned int type, int brief);

/*
 The name of a zone condition, or its abbreviation if `brief` is not 0.
 */
const char *zonal_zone_cond_str(unsigned int cond, int brief);

/*
 Mounts the file system, Furrow or zonefs, on the device that `spec` names, as `zonal_open` takes
 it. `flags` is `O_RDONLY` or `O_RDWR`. A thread commits what is about five seconds old. What is
 created belongs to the user of this process; mode bits are kept and not enforced.
 */
int zonal_volume_open(const char *spec,
                      int flags,
                      struct zonal_volume **volume);

/*
 The same, with options.
 */
int zonal_volume_open_with(const char *spec,
                           int flags,
                           const struct zonal_volume_options *options,
                           struct zonal_volume **volume);

/*
 Makes everything durable, leaves the drive clean and lets go of it. The volume is closed even if
 this fails: the error is that of the last commit. Files that are still open answer `-EBADF` from
 then on, and are to be closed all the same.
 */
int zonal_volume_close(struct zonal_volume *volume);

/*
 Makes everything durable.
 */
int zonal_volume_sync(const struct zonal_volume *volume);

/*
 Tells the space of a volume, used and free.
 */
int zonal_volume_statvfs(const struct zonal_volume *volume, struct zonal_statvfs *stat);

/*
 Tells the attributes of what `path` leads to. A symbolic link at its end is followed.
 */
int zonal_stat(const struct zonal_volume *volume,
               const char *path,
               struct zonal_stat *stat);

/*
 Makes a directory with these permission bits.
 */
int zonal_mkdir(const struct zonal_volume *volume, const char *path, unsigned int mode);

/*
 Removes the entry of anything but a directory.
 */
int zonal_unlink(const struct zonal_volume *volume, const char *path);

/*
 Removes an empty directory.
 */
int zonal_rmdir(const struct zonal_volume *volume, const char *path);

/*
 Moves an entry, over what may stand at `to`, at once.
 */
int zonal_rename(const struct zonal_volume *volume, const char *from, const char *to);

/*
 Calls `each` with every entry of a directory but `.` and `..`, in no particular order, and with
 `context`. Returns 0, or what `each` returned to end it. `each` may call any function of this
 library but those that close the volume.
 */
int zonal_list(const struct zonal_volume *volume,
               const char *path,
               zonal_each each,
               void *context);

/*
 Opens a file as open(2) does. Of `flags`, this looks at `O_RDONLY`, `O_WRONLY`, `O_RDWR`,
 `O_CREAT`, `O_EXCL`, `O_TRUNC`, `O_APPEND`, `O_DIRECT`, `O_DSYNC`, `O_SYNC` and `O_NOFOLLOW`;
 `mode` has the permission bits of a new file.
 */
int zonal_file_open(const struct zonal_volume *volume,
                    const char *path,
                    int flags,
                    unsigned int mode,
                    struct zonal_file **file);

/*
 Closes a file and gives back its lock. Nothing is made durable by that.
 */
int zonal_file_close(struct zonal_file *file);

/*
 Reads from byte `ofst` on and returns how many bytes: less than `count` only at the end of file.
 */
int64_t zonal_file_read(const struct zonal_file *file,
                        uint8_t *buf,
                        size_t count,
                        uint64_t ofst);

/*
 Writes at byte `ofst` and returns how many bytes: less than `count` only at the end of what a
 zone of zonefs can hold.
 */
int64_t zonal_file_write(const struct zonal_file *file,
                         const uint8_t *buf,
                         size_t count,
                         uint64_t ofst);

/*
 Writes all of the buffer at the end of the file and returns the byte where it went. Appends of
 several threads do not overlap.
 */
int64_t zonal_file_append(const struct zonal_file *file,
                          const uint8_t *buf,
                          size_t count);

/*
 Cuts a file, or lengthens it with zeroes.
 */
int zonal_file_truncate(const struct zonal_file *file, uint64_t size);

/*
 Makes content and attributes of a file durable.
 */
int zonal_file_sync(const struct zonal_file *file);

/*
 Makes the content of a file durable, and what is needed to read it back.
 */
int zonal_file_datasync(const struct zonal_file *file);

/*
 Tells the attributes of a file.
 */
int zonal_file_stat(const struct zonal_file *file, struct zonal_stat *stat);

/*
 Locks a file against the other handles of this volume, until it is closed; `-EAGAIN` if another
 one has it locked.
 */
int zonal_file_lock(const struct zonal_file *file);

/*
 Gives a lock back.
 */
int zonal_file_unlock(const struct zonal_file *file);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ZONAL_H */

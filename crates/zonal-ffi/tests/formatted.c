/* A file system made from C, on a drive in memory, and everything that C can do with its files: for
 * the test `c`. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zonal.h>
#include "expect.h"

static int count_entries(void *context, const struct zonal_entry *entry)
{
	(void)entry;
	*(unsigned int *)context += 1;
	return 0;
}

static unsigned int entries(const struct zonal_volume *volume, const char *path)
{
	unsigned int count = 0;

	EXPECT(zonal_list(volume, path, count_entries, &count), 0);
	return count;
}

/* What mkfs refuses, what it makes, and who may use the handle meanwhile. */
static void formats(void)
{
	static const uint8_t block[4096] = { 1 };
	struct zonal_mkfs_options options = { 0 };
	struct zonal_device *device = NULL;
	struct zonal_volume *volume = NULL, *second = NULL;
	char label[65];

	EXPECT(zonal_mkfs(NULL, NULL), -EFAULT);
	EXPECT(zonal_open("mem:zone=3M,zones=64", O_RDWR, NULL, &device), 0);
	EXPECT(zonal_volume_open_on(device, O_RDWR, NULL, &volume), -EINVAL);
	options.fs = 7;
	EXPECT(zonal_mkfs(device, &options), -EINVAL);
	options.fs = ZONAL_FURROW;
	options.flags = 0x80;
	EXPECT(zonal_mkfs(device, &options), -EINVAL);
	options.flags = ZONAL_MKFS_AGGREGATE;
	EXPECT(zonal_mkfs(device, &options), -EINVAL);
	options.flags = 0;
	options.reserve_percent = 51;
	EXPECT(zonal_mkfs(device, &options), -EINVAL);
	options.reserve_percent = 0;
	options.reserved[4] = 1;
	EXPECT(zonal_mkfs(device, &options), -EINVAL);
	options.reserved[4] = 0;
	options.label = "\xff";
	EXPECT(zonal_mkfs(device, &options), -EINVAL);
	memset(label, 'x', sizeof(label) - 1);
	label[64] = '\0';
	options.label = label;
	options.fs = ZONAL_ZONEFS;
	EXPECT(zonal_mkfs(device, &options), -EINVAL);
	options.fs = ZONAL_FURROW;
	EXPECT(zonal_mkfs(device, &options), 0);

	/* What it holds is kept, unless the caller says otherwise. */
	EXPECT(zonal_mkfs(device, NULL), -EBUSY);
	EXPECT(strstr(zonal_last_error(), "furrow") != NULL, 1);
	options.flags = ZONAL_MKFS_FORCE;
	EXPECT(zonal_mkfs(device, &options), 0);

	EXPECT(zonal_volume_open_on(NULL, O_RDWR, NULL, &volume), -EFAULT);
	EXPECT(zonal_volume_open_on(device, O_RDWR, NULL, NULL), -EFAULT);
	EXPECT(zonal_volume_open_on(device, O_WRONLY, NULL, &volume), -EINVAL);
	EXPECT(zonal_volume_open_on(device, O_RDWR, NULL, &volume), 0);
	EXPECT(zonal_volume_open_on(device, O_RDWR, NULL, &second), -EBUSY);
	EXPECT(second == NULL, 1);
	EXPECT(zonal_mkfs(device, &options), -EBUSY);
	EXPECT(zonal_write(device, block, sizeof(block), 60 * (3 << 20)), -EBUSY);
	EXPECT(zonal_append(device, block, sizeof(block), 60 * (3 << 20)), -EBUSY);
	EXPECT(zonal_zones_operation(device, ZONAL_OP_RESET, 0, 0), -EBUSY);
	EXPECT(zonal_mkdir(volume, "kept", 0755), 0);
	EXPECT(zonal_volume_close(volume), 0);

	/* Free again, and the volume is there again; it outlives the handle of its device. */
	EXPECT(zonal_volume_open_on(device, O_RDONLY, NULL, &volume), 0);
	EXPECT(entries(volume, "/"), 1);
	EXPECT(zonal_mkdir(volume, "new", 0755), -EROFS);
	EXPECT(zonal_volume_close(volume), 0);
	EXPECT(zonal_volume_open_on(device, O_RDWR, NULL, &volume), 0);
	EXPECT(zonal_close(device), 0);
	EXPECT(zonal_rmdir(volume, "kept"), 0);
	EXPECT(zonal_volume_close(volume), 0);
}

/* zonefs, whose files are zones. */
static void formats_zonefs(void)
{
	static const uint8_t blocks[8192] = { 1 };
	struct zonal_mkfs_options options = { 0 };
	struct zonal_device *device = NULL;
	struct zonal_volume *volume = NULL;
	struct zonal_file *zone = NULL;
	struct zonal_stat stat;

	options.fs = ZONAL_ZONEFS;
	options.label = "zones";
	options.perm = 0600;
	EXPECT(zonal_open("mem:zone=3M,zones=10,conventional=3", O_RDWR, NULL, &device), 0);
	options.reserve_percent = 7;
	EXPECT(zonal_mkfs(device, &options), -EINVAL);
	options.reserve_percent = 0;
	options.perm = 010000;
	EXPECT(zonal_mkfs(device, &options), -EINVAL);
	options.perm = 0600;
	options.flags = ZONAL_MKFS_AGGREGATE;
	EXPECT(zonal_mkfs(device, &options), 0);
	EXPECT(zonal_volume_open_on(device, O_RDWR, NULL, &volume), 0);
	EXPECT(entries(volume, "cnv"), 1);
	EXPECT(entries(volume, "seq"), 7);
	EXPECT(zonal_file_open(volume, "seq/3", O_RDWR, 0, &zone), 0);
	EXPECT(zonal_file_append(zone, blocks, sizeof(blocks)), 0);
	EXPECT(zonal_file_append(zone, blocks, 100), -EINVAL);
	EXPECT(zonal_file_stat(zone, &stat), 0);
	EXPECT(stat.size, 8192);
	EXPECT(stat.mode, 0100600);
	EXPECT(zonal_file_set_lifetime(zone, ZONAL_LIFETIME_SHORT), -EOPNOTSUPP);
	EXPECT(zonal_file_fallocate(zone, 0, 0, 4096), -EOPNOTSUPP);
	EXPECT(zonal_link(volume, "seq/3", "seq/link") < 0, 1);
	EXPECT(zonal_truncate(volume, "seq/3", 4096), -EPERM);
	EXPECT(zonal_truncate(volume, "seq/3", 0), 0);
	EXPECT(zonal_unlink(volume, "seq/3"), -EPERM);
	EXPECT(zonal_setxattr(volume, "seq/3", "user.x", "x", 1, 0), -EOPNOTSUPP);
	EXPECT(zonal_getxattr(volume, "seq/3", "user.x", NULL, 0, 0), -EOPNOTSUPP);
	EXPECT(zonal_removexattr(volume, "seq/3", "user.x", 0), -EOPNOTSUPP);
	EXPECT(zonal_file_get_lifetime(zone), -EOPNOTSUPP);
	EXPECT(zonal_file_close(zone), 0);
	EXPECT(zonal_volume_close(volume), 0);
	EXPECT(zonal_close(device), 0);
}

static void names(const struct zonal_volume *volume)
{
	char text[16] = "###############";
	struct zonal_stat stat;
	struct zonal_file *file = NULL;

	EXPECT(zonal_file_open(volume, "file", O_RDWR | O_CREAT | O_EXCL, 0644, &file), 0);
	EXPECT(zonal_file_write(file, "content", 7, 0), 7);
	EXPECT(zonal_file_close(file), 0);

	EXPECT(zonal_link(volume, "file", "second"), 0);
	EXPECT(zonal_link(volume, "file", "second"), -EEXIST);
	EXPECT(zonal_link(volume, "missing", "third"), -ENOENT);
	EXPECT(zonal_link(volume, "/", "third"), -EPERM);
	EXPECT(zonal_link(volume, NULL, "third"), -EFAULT);
	EXPECT(zonal_link(volume, "file", NULL), -EFAULT);
	EXPECT(zonal_stat(volume, "second", &stat), 0);
	EXPECT(stat.nlink, 2);

	EXPECT(zonal_symlink(volume, "file", "link"), 0);
	EXPECT(zonal_symlink(volume, "file", "link"), -EEXIST);
	EXPECT(zonal_symlink(volume, NULL, "other"), -EFAULT);
	EXPECT(zonal_symlink(volume, "file", NULL), -EFAULT);
	EXPECT(zonal_symlink(volume, "loop", "loop"), 0);
	EXPECT(zonal_stat(volume, "loop", &stat), -ELOOP);
	EXPECT(zonal_readlink(volume, "link", NULL, 0), 4);
	EXPECT(zonal_readlink(volume, "link", text, 3), -ERANGE);
	EXPECT(text[0] == '#', 1);
	EXPECT(zonal_readlink(volume, "link", NULL, 4), -EFAULT);
	EXPECT(zonal_readlink(volume, "link", text, sizeof(text)), 4);
	EXPECT(memcmp(text, "file#", 5), 0);
	EXPECT(zonal_readlink(volume, "file", text, sizeof(text)), -EINVAL);
	EXPECT(zonal_lstat(volume, "link", &stat), 0);
	EXPECT(stat.mode & 0170000, 0120000);
	EXPECT(zonal_stat(volume, "link", &stat), 0);
	EXPECT(stat.size, 7);
	EXPECT(zonal_lstat(volume, "link", NULL), -EFAULT);

	EXPECT(zonal_mkdir(volume, "dir", 0755), 0);
	EXPECT(zonal_rename_with(volume, "second", "file", ZONAL_RENAME_NOREPLACE), -EEXIST);
	EXPECT(zonal_rename_with(volume, "second", "new", ZONAL_RENAME_NOREPLACE), 0);
	EXPECT(zonal_rename_with(volume, "new", "dir", ZONAL_RENAME_EXCHANGE), 0);
	EXPECT(zonal_rename_with(volume, "dir", "file", 0x80), -EINVAL);
	EXPECT(zonal_rename_with(volume, NULL, "file", 0), -EFAULT);
	EXPECT(zonal_lstat(volume, "new", &stat), 0);
	EXPECT(stat.mode, 040755);
	EXPECT(zonal_rename(volume, "dir", "new/second"), 0);
	EXPECT(zonal_rename_with(volume, "link", "moved", ZONAL_RENAME_WHITEOUT), 0);
	EXPECT(zonal_lstat(volume, "link", &stat), 0);
	EXPECT(stat.mode & 0170000, 0020000);
}

static void attributes(const struct zonal_volume *volume)
{
	struct zonal_times times = { { -5, 7 }, { 1234567890, 999999999 } };
	struct zonal_stat stat, before;
	struct zonal_file *file = NULL;

	EXPECT(zonal_file_open(volume, "file", O_RDWR, 0, &file), 0);
	EXPECT(zonal_chmod(volume, "moved", 0100640), 0);
	EXPECT(zonal_file_stat(file, &stat), 0);
	EXPECT(stat.mode, 0100640);
	EXPECT(zonal_file_chmod(file, 04711), 0);
	EXPECT(zonal_stat(volume, "file", &stat), 0);
	EXPECT(stat.mode, 0104711);
	EXPECT(zonal_chmod(volume, "missing", 0640), -ENOENT);
	EXPECT(zonal_chmod(volume, NULL, 0640), -EFAULT);
	EXPECT(zonal_chmod(NULL, "file", 0640), -EFAULT);
	EXPECT(zonal_file_chmod(NULL, 0640), -EFAULT);

	EXPECT(zonal_chown(volume, "moved", 1000, (uint32_t)-1, 0), 0);
	EXPECT(zonal_chown(volume, "moved", (uint32_t)-1, 77, ZONAL_NOFOLLOW), 0);
	EXPECT(zonal_chown(volume, "moved", 1, 1, 3), -EINVAL);
	EXPECT(zonal_file_chown(file, (uint32_t)-1, 2000), 0);
	EXPECT(zonal_stat(volume, "file", &stat), 0);
	EXPECT(stat.uid, 1000);
	EXPECT(stat.gid, 2000);
	EXPECT(zonal_lstat(volume, "moved", &stat), 0);
	EXPECT(stat.gid, 77);
	EXPECT(zonal_file_chown(NULL, 1, 1), -EFAULT);

	EXPECT(zonal_utimens(volume, "moved", &times, 0), 0);
	EXPECT(zonal_file_stat(file, &stat), 0);
	EXPECT(stat.atime_sec, -5);
	EXPECT(stat.atime_nsec, 7);
	EXPECT(stat.mtime_sec, 1234567890);
	EXPECT(stat.mtime_nsec, 999999999);
	times.atime.nsec = ZONAL_UTIME_OMIT;
	times.mtime.nsec = ZONAL_UTIME_NOW;
	EXPECT(zonal_file_utimens(file, &times), 0);
	EXPECT(zonal_file_stat(file, &before), 0);
	EXPECT(before.atime_sec, -5);
	EXPECT(before.mtime_sec > 1234567890, 1);
	EXPECT(zonal_utimens(volume, "file", NULL, 0), 0);
	EXPECT(zonal_file_stat(file, &stat), 0);
	EXPECT(stat.atime_sec >= before.mtime_sec, 1);
	times.atime.nsec = 1000000000;
	EXPECT(zonal_utimens(volume, "file", &times, 0), -EINVAL);
	EXPECT(zonal_utimens(volume, "file", NULL, 1), -EINVAL);
	EXPECT(zonal_utimens(volume, "missing", NULL, 0), -ENOENT);
	EXPECT(zonal_file_utimens(NULL, NULL), -EFAULT);
	EXPECT(zonal_file_utimens(file, &times), -EINVAL);
	EXPECT(zonal_file_close(file), 0);
}

/* Whether a list of names, each with a zero byte at its end, has this one. */
static int has_name(const char *list, int64_t size, const char *name)
{
	for (const char *at = list; at < list + size; at += strlen(at) + 1)
		if (strcmp(at, name) == 0)
			return 1;
	return 0;
}

static void extended_attributes(const struct zonal_volume *volume)
{
	static char big[65537];
	char value[8] = "#######", list[64];
	struct zonal_file *file = NULL;
	int64_t size;

	EXPECT(zonal_file_open(volume, "file", O_RDWR, 0, &file), 0);
	EXPECT(zonal_setxattr(volume, "moved", "user.origin", "disk", 4, ZONAL_XATTR_REPLACE), -ENODATA);
	EXPECT(zonal_setxattr(volume, "moved", "user.origin", "disk", 4, ZONAL_XATTR_CREATE), 0);
	EXPECT(zonal_file_setxattr(file, "user.origin", "tape", 4, ZONAL_XATTR_CREATE), -EEXIST);
	EXPECT(zonal_file_setxattr(file, "user.origin", "tapes", 5, ZONAL_XATTR_REPLACE), 0);
	EXPECT(zonal_file_setxattr(file, "user.empty", NULL, 0, 0), 0);
	EXPECT(zonal_setxattr(volume, "moved", "trusted.link", "l", 1, ZONAL_NOFOLLOW), 0);
	EXPECT(zonal_setxattr(volume, "file", "user.origin", NULL, 4, 0), -EFAULT);
	EXPECT(zonal_setxattr(volume, "file", NULL, "x", 1, 0), -EFAULT);
	EXPECT(zonal_setxattr(volume, "file", "", "x", 1, 0), -ERANGE);
	EXPECT(zonal_setxattr(volume, "file", "user.big", big, sizeof(big), 0), -E2BIG);
	EXPECT(zonal_setxattr(volume, "file", "user.big", big, SIZE_MAX, 0), -EINVAL);
	EXPECT(zonal_setxattr(volume, "file", "user.x", "x", 1, 0x40), -EINVAL);
	EXPECT(zonal_file_setxattr(file, "user.x", "x", 1, ZONAL_NOFOLLOW), -EINVAL);
	EXPECT(zonal_file_setxattr(NULL, "user.x", "x", 1, 0), -EFAULT);

	EXPECT(zonal_getxattr(volume, "file", "user.origin", NULL, 0, 0), 5);
	EXPECT(zonal_getxattr(volume, "file", "user.origin", value, 4, 0), -ERANGE);
	EXPECT(value[0] == '#', 1);
	EXPECT(zonal_getxattr(volume, "file", "user.origin", NULL, 4, 0), -EFAULT);
	EXPECT(zonal_getxattr(volume, "moved", "user.origin", value, sizeof(value), 0), 5);
	EXPECT(memcmp(value, "tapes#", 6), 0);
	EXPECT(zonal_getxattr(volume, "moved", "trusted.link", value, sizeof(value), 0), -ENODATA);
	EXPECT(zonal_getxattr(volume, "moved", "trusted.link", value, 8, ZONAL_NOFOLLOW), 1);
	EXPECT(zonal_getxattr(volume, "file", "user.origin", value, 8, 7), -EINVAL);
	EXPECT(zonal_getxattr(volume, "missing", "user.origin", value, 8, 0), -ENOENT);
	EXPECT(zonal_file_getxattr(file, "user.empty", value, sizeof(value)), 0);
	EXPECT(zonal_file_getxattr(file, "user.origin", value, sizeof(value)), 5);
	EXPECT(zonal_file_getxattr(file, NULL, value, sizeof(value)), -EFAULT);
	EXPECT(zonal_file_getxattr(NULL, "user.origin", value, sizeof(value)), -EFAULT);

	size = zonal_listxattr(volume, "file", NULL, 0, 0);
	EXPECT(size, 12 + 11);
	EXPECT(zonal_listxattr(volume, "moved", list, 22, 0), -ERANGE);
	EXPECT(zonal_listxattr(volume, "moved", list, sizeof(list), 0), size);
	EXPECT(has_name(list, size, "user.origin") && has_name(list, size, "user.empty"), 1);
	EXPECT(zonal_listxattr(volume, "moved", list, sizeof(list), ZONAL_NOFOLLOW), 13);
	EXPECT(zonal_listxattr(volume, "moved", NULL, 9, 0), -EFAULT);
	EXPECT(zonal_listxattr(volume, "moved", list, sizeof(list), 2), -EINVAL);
	EXPECT(zonal_file_listxattr(file, list, sizeof(list)), size);
	EXPECT(zonal_file_listxattr(file, list, 1), -ERANGE);
	EXPECT(zonal_file_listxattr(NULL, list, sizeof(list)), -EFAULT);

	EXPECT(zonal_removexattr(volume, "moved", "user.origin", 0), 0);
	EXPECT(zonal_removexattr(volume, "file", "user.origin", 0), -ENODATA);
	EXPECT(zonal_removexattr(volume, "file", "user.empty", 9), -EINVAL);
	EXPECT(zonal_removexattr(volume, "file", NULL, 0), -EFAULT);
	EXPECT(zonal_file_removexattr(file, "user.empty"), 0);
	EXPECT(zonal_file_removexattr(file, "user.empty"), -ENODATA);
	EXPECT(zonal_file_removexattr(NULL, "user.empty"), -EFAULT);
	EXPECT(zonal_removexattr(volume, "moved", "trusted.link", ZONAL_NOFOLLOW), 0);
	EXPECT(zonal_listxattr(volume, "file", list, sizeof(list), 0), 0);
	EXPECT(zonal_file_close(file), 0);
}

static void contents(const struct zonal_volume *volume)
{
	static uint8_t bytes[40960], found[40960];
	struct zonal_file *file = NULL, *reader = NULL;
	struct zonal_stat stat;
	char word[16] = "";

	memset(bytes, 'a', sizeof(bytes));
	EXPECT(zonal_file_open(volume, "big", O_RDWR | O_CREAT, 0644, &file), 0);
	EXPECT(zonal_file_open(volume, "big", O_RDONLY, 0, &reader), 0);
	EXPECT(zonal_file_write(file, bytes, sizeof(bytes), 0), sizeof(bytes));
	EXPECT(zonal_file_fallocate(file, ZONAL_FALLOC_PUNCH_HOLE | ZONAL_FALLOC_KEEP_SIZE, 4096, 4096), 0);
	EXPECT(zonal_file_fallocate(file, ZONAL_FALLOC_ZERO_RANGE, 20480, 4096), 0);
	EXPECT(zonal_file_fallocate(file, ZONAL_FALLOC_ZERO_RANGE | ZONAL_FALLOC_KEEP_SIZE, 50000, 1), 0);
	memset(bytes + 4096, 0, 4096);
	memset(bytes + 20480, 0, 4096);
	EXPECT(zonal_file_read(reader, found, sizeof(found), 0), sizeof(found));
	EXPECT(memcmp(found, bytes, sizeof(found)), 0);
	EXPECT(zonal_file_fallocate(file, ZONAL_FALLOC_KEEP_SIZE, 0, 60000), 0);
	EXPECT(zonal_file_stat(file, &stat), 0);
	EXPECT(stat.size, 40960);
	EXPECT(zonal_file_fallocate(file, 0, 0, 60000), 0);
	EXPECT(zonal_file_stat(file, &stat), 0);
	EXPECT(stat.size, 60000);
	EXPECT(zonal_file_fallocate(file, ZONAL_FALLOC_PUNCH_HOLE, 0, 4096), -EOPNOTSUPP);
	EXPECT(zonal_file_fallocate(file, 0x40, 0, 4096), -EOPNOTSUPP);
	EXPECT(zonal_file_fallocate(file, 0, 0, 0), -EINVAL);
	EXPECT(zonal_file_fallocate(file, 0, UINT64_MAX, 2), -EFBIG);
	EXPECT(zonal_file_fallocate(reader, 0, 0, 4096), -EBADF);
	EXPECT(zonal_file_fallocate(NULL, 0, 0, 4096), -EFAULT);
	EXPECT(zonal_truncate(volume, "big", 10), 0);
	EXPECT(zonal_file_read(reader, found, sizeof(found), 0), 10);
	EXPECT(zonal_truncate(volume, "missing", 10), -ENOENT);
	EXPECT(zonal_truncate(volume, "new", 10), -EISDIR);
	EXPECT(zonal_truncate(volume, "big", UINT64_MAX), -EFBIG);
	EXPECT(zonal_truncate(volume, NULL, 0), -EFAULT);
	EXPECT(zonal_truncate(NULL, "big", 0), -EFAULT);

	EXPECT(zonal_file_get_lifetime(file), ZONAL_LIFETIME_NONE);
	EXPECT(zonal_file_set_lifetime(file, ZONAL_LIFETIME_SHORT), 0);
	EXPECT(zonal_file_get_lifetime(reader), ZONAL_LIFETIME_SHORT);
	EXPECT(zonal_file_set_lifetime(file, ZONAL_LIFETIME_EXTREME), 0);
	EXPECT(zonal_getxattr(volume, "big", "user.zonal.lifetime", word, sizeof(word), 0), 7);
	EXPECT(strcmp(word, "extreme"), 0);
	EXPECT(zonal_file_set_lifetime(file, 6), -EINVAL);
	EXPECT(zonal_file_set_lifetime(NULL, ZONAL_LIFETIME_LONG), -EFAULT);
	EXPECT(zonal_file_get_lifetime(NULL), -EFAULT);
	EXPECT(zonal_file_set_lifetime(file, ZONAL_LIFETIME_NONE), 0);
	EXPECT(zonal_file_get_lifetime(file), ZONAL_LIFETIME_NONE);
	EXPECT(zonal_file_close(reader), 0);
	EXPECT(zonal_file_close(file), 0);

	/* A directory hands its own down. */
	EXPECT(zonal_setxattr(volume, "new", "user.zonal.lifetime", "long", 4, 0), 0);
	EXPECT(zonal_file_open(volume, "new/born", O_RDWR | O_CREAT, 0644, &file), 0);
	EXPECT(zonal_file_get_lifetime(file), ZONAL_LIFETIME_LONG);
	EXPECT(zonal_file_close(file), 0);
}

/* The errors that the header promises, where no other test has met them. */
static void promised_errors(const struct zonal_volume *volume)
{
	static char text[5000];
	struct zonal_file *file = NULL;

	EXPECT(zonal_mkdir(volume, "full", 0755), 0);
	EXPECT(zonal_mkdir(volume, "full/below", 0755), 0);
	EXPECT(zonal_unlink(volume, "full"), -EISDIR);
	EXPECT(zonal_unlink(volume, "missing"), -ENOENT);
	EXPECT(zonal_rmdir(volume, "full"), -ENOTEMPTY);
	EXPECT(zonal_rmdir(volume, "missing"), -ENOENT);
	EXPECT(zonal_rmdir(volume, "/"), -EINVAL);
	EXPECT(zonal_rename(volume, "full", "full/below/self"), -EINVAL);
	EXPECT(zonal_rename(volume, "file", "full"), -EISDIR);
	EXPECT(zonal_rename(volume, "full/below", "full"), -ENOTEMPTY);
	EXPECT(zonal_rename(volume, "missing", "full"), -ENOENT);
	EXPECT(zonal_symlink(volume, "", "void"), -EINVAL);
	memset(text, 'x', sizeof(text) - 1);
	EXPECT(zonal_symlink(volume, text, "long"), -ENAMETOOLONG);
	text[256] = '\0';
	EXPECT(zonal_mkdir(volume, text, 0755), -ENAMETOOLONG);
	EXPECT(zonal_getxattr(volume, "file", text, NULL, 0, 0), -ERANGE);
	text[255] = '\0';
	EXPECT(zonal_mkdir(volume, text, 0755), 0);
	EXPECT(zonal_readlink(volume, "missing", NULL, 0), -ENOENT);
	EXPECT(zonal_list(volume, "missing", count_entries, NULL), -ENOENT);
	EXPECT(zonal_lstat(volume, "file/below", NULL), -ENOTDIR);
	EXPECT(zonal_file_open(volume, "full", O_RDWR, 0, &file), -EISDIR);
	EXPECT(zonal_file_open(volume, "link", O_RDONLY, 0, &file), -EINVAL);
	EXPECT(zonal_file_open(volume, "loop", O_RDONLY, 0, &file), -ELOOP);
	EXPECT(zonal_file_open(volume, "/", O_RDWR | O_TMPFILE, 0600, &file), -EOPNOTSUPP);
}

/* The same of zones. */
static void promised_errors_of_zones(void)
{
	static const uint8_t block[4096] = { 1 };
	static uint8_t found[4096];
	const uint64_t zone = 3 << 20;
	struct zonal_device *device = NULL;

	EXPECT(zonal_open("mem:zone=3M,zones=10,conventional=2,open=1,active=2", O_RDWR, NULL, &device), 0);
	EXPECT(zonal_append(device, block, sizeof(block), 0), -EIO);
	EXPECT(zonal_read(device, found, sizeof(found), 10 * zone), -EIO);
	EXPECT(zonal_zones_operation(device, ZONAL_OP_FINISH, 3 * zone, 1), 0);
	EXPECT(zonal_zones_operation(device, ZONAL_OP_OPEN, 3 * zone, 1), -EIO);
	EXPECT(zonal_write(device, block, sizeof(block), 3 * zone), -EIO);
	EXPECT(zonal_zones_operation(device, ZONAL_OP_OPEN, 4 * zone, 1), 0);
	EXPECT(zonal_append(device, block, sizeof(block), 5 * zone), -ETOOMANYREFS);
	EXPECT(zonal_zones_operation(device, ZONAL_OP_CLOSE, 4 * zone, 1), 0);
	EXPECT(zonal_append(device, block, sizeof(block), 4 * zone), 4 * zone);
	EXPECT(zonal_append(device, block, sizeof(block), 5 * zone), 5 * zone);
	EXPECT(zonal_append(device, block, sizeof(block), 6 * zone), -EOVERFLOW);
	EXPECT(zonal_close(device), 0);
	EXPECT(zonal_open("mem:zone=3M,zones=64", O_RDONLY, NULL, &device), 0);
	EXPECT(zonal_append(device, block, sizeof(block), zone), -EROFS);
	EXPECT(zonal_mkfs(device, NULL), -EROFS);
	EXPECT(zonal_close(device), 0);
}

int main(void)
{
	struct zonal_device *device = NULL;
	struct zonal_volume *volume = NULL;
	struct zonal_statvfs space;
	struct zonal_stat stat;

	formats();
	formats_zonefs();
	EXPECT(zonal_open("mem:zone=3M,zones=64", O_RDWR, NULL, &device), 0);
	EXPECT(zonal_mkfs(device, NULL), 0);
	EXPECT(zonal_volume_open_on(device, O_RDWR, NULL, &volume), 0);
	names(volume);
	attributes(volume);
	extended_attributes(volume);
	contents(volume);
	promised_errors(volume);
	promised_errors_of_zones();
	EXPECT(zonal_volume_statvfs(volume, &space), 0);
	EXPECT(space.blocks_free > 0 && space.blocks_free < space.blocks, 1);
	EXPECT(zonal_volume_close(volume), 0);
	/* All of it is on the drive. */
	EXPECT(zonal_volume_open_on(device, O_RDONLY, NULL, &volume), 0);
	EXPECT(zonal_stat(volume, "moved", &stat), 0);
	EXPECT(stat.mode & 0777, 0711);
	EXPECT(stat.uid, 1000);
	EXPECT(zonal_chmod(volume, "file", 0600), -EROFS);
	EXPECT(zonal_symlink(volume, "file", "late"), -EROFS);
	EXPECT(zonal_setxattr(volume, "file", "user.x", "x", 1, 0), -EROFS);
	EXPECT(zonal_truncate(volume, "file", 0), -EROFS);
	EXPECT(zonal_volume_close(volume), 0);
	EXPECT(zonal_close(device), 0);
	puts("files are made, changed and found again");
	return EXIT_SUCCESS;
}

/* What a program can do wrong, and the layout of the structures: for the test `c`. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zonal.h>
#include "expect.h"

/* Those of libzbd 2: names of the fields aside, what is compiled for the one reads the other. */
_Static_assert(sizeof(struct zonal_info) == 128, "info");
_Static_assert(offsetof(struct zonal_info, nr_sectors) == 32, "nr_sectors");
_Static_assert(offsetof(struct zonal_info, zone_size) == 56, "zone_size");
_Static_assert(offsetof(struct zonal_info, zone_sectors) == 64, "zone_sectors");
_Static_assert(offsetof(struct zonal_info, nr_zones) == 76, "nr_zones");
_Static_assert(offsetof(struct zonal_info, max_nr_open_zones) == 80, "open");
_Static_assert(offsetof(struct zonal_info, model) == 88, "model");
_Static_assert(sizeof(struct zonal_zone) == 64, "zone");
_Static_assert(offsetof(struct zonal_zone, wp) == 24, "wp");
_Static_assert(offsetof(struct zonal_zone, flags) == 32, "flags");
_Static_assert(offsetof(struct zonal_zone, type) == 36, "type");
_Static_assert(offsetof(struct zonal_zone, cond) == 40, "cond");

_Static_assert(sizeof(struct zonal_volume_options) == 64, "options");

static int stop_at_once(void *context, const struct zonal_entry *entry)
{
	(void)context;
	return entry->type == 8 ? 7 : 1; /* DT_REG */
}

static void devices(const char *drive)
{
	static uint8_t blocks[8192];
	struct zonal_info info;
	struct zonal_zone zones[4];
	struct zonal_device *device = NULL;
	unsigned int count;

	EXPECT(zonal_open(NULL, O_RDWR, NULL, &device), -EFAULT);
	EXPECT(zonal_open("mem:", O_RDWR, NULL, NULL), -EFAULT);
	EXPECT(zonal_open("mem:zone=3", O_RDWR, NULL, &device), -EINVAL);
	EXPECT(zonal_open("/nowhere/at/all", O_RDWR, NULL, &device), -ENOENT);
	EXPECT(zonal_open("mem:", O_WRONLY, NULL, &device), -EINVAL);
	EXPECT(device == NULL, 1);
	EXPECT(zonal_close(NULL), -EFAULT);
	EXPECT(strlen(zonal_last_error()) > 0, 1);

	EXPECT(zonal_open("mem:zone=3M,zones=10,open=4,active=6", O_RDWR, &info, &device), 0);
	EXPECT(info.nr_zones, 10);
	EXPECT(info.zone_size, 3 << 20);
	EXPECT(info.zone_sectors, (3 << 20) / 512);
	EXPECT(info.nr_sectors, 10 * (3 << 20) / 512);
	EXPECT(info.max_nr_open_zones, 4);
	EXPECT(info.max_nr_active_zones, 6);
	EXPECT(info.model, ZONAL_HOST_MANAGED);
	EXPECT(zonal_get_info(device, NULL), -EFAULT);

	EXPECT(zonal_read(device, NULL, 4096, 0), -EFAULT);
	EXPECT(zonal_read(device, NULL, 0, 0), 0);
	EXPECT(zonal_read(device, blocks, sizeof(blocks), 0), sizeof(blocks));
	EXPECT(zonal_read(device, blocks, 100, 0), -EINVAL);
	EXPECT(zonal_read(device, blocks, 4096, 1), -EINVAL);
	EXPECT(zonal_write(device, blocks, (size_t)-1, 0), -EINVAL);
	EXPECT(zonal_append(device, blocks, 4096, 30 << 20), -EINVAL);
	EXPECT(zonal_append(device, blocks, 4096, (3 << 20) + 5), 3 << 20);
	EXPECT(zonal_append(device, blocks, 8192, 3 << 20), (3 << 20) + 4096);

	EXPECT(zonal_report_zones(device, 0, 0, 0x77, zones, &count), -EINVAL);
	EXPECT(zonal_report_zones(device, 0, 0, ZONAL_RO_ALL, zones, NULL), -EFAULT);
	EXPECT(zonal_report_zones(device, 0, 0, ZONAL_RO_ALL, NULL, &count), 0);
	EXPECT(count, 10);
	count = 4;
	EXPECT(zonal_report_zones(device, 1, 0, ZONAL_RO_ALL, zones, &count), 0);
	EXPECT(count, 4);
	EXPECT(zones[1].wp, (3 << 20) + 12288);
	EXPECT(zones[1].cond, ZONAL_ZONE_COND_IMP_OPEN);
	EXPECT(zones[1].type, ZONAL_ZONE_TYPE_SWR);
	EXPECT(zones[3].start, 9 << 20);
	count = 4;
	EXPECT(zonal_report_zones(device, 3 << 20, 3 << 20, ZONAL_RO_ALL, zones, &count), 0);
	EXPECT(count, 1);
	count = 4;
	EXPECT(zonal_report_zones(device, 0, 0, ZONAL_RO_IMP_OPEN, zones, &count), 0);
	EXPECT(count, 1);
	EXPECT(zones[0].start, 3 << 20);
	EXPECT(zonal_report_zones(device, UINT64_MAX, 5, ZONAL_RO_ALL, NULL, &count), 0);
	EXPECT(count, 0);

	EXPECT(zonal_zones_operation(device, 9, 0, 0), -EINVAL);
	EXPECT(zonal_zones_operation(device, ZONAL_OP_RESET, UINT64_MAX, 0), -EINVAL);
	EXPECT(zonal_zones_operation(device, ZONAL_OP_OPEN, 0, 9 << 20), 0);
	EXPECT(zonal_report_zones(device, 0, 0, ZONAL_RO_EXP_OPEN, NULL, &count), 0);
	EXPECT(count, 3);
	EXPECT(zonal_zones_operation(device, ZONAL_OP_CLOSE, 3 << 20, 1), 0);
	EXPECT(zonal_zones_operation(device, ZONAL_OP_FINISH, 6 << 20, 1), 0);
	EXPECT(zonal_zones_operation(device, ZONAL_OP_RESET, 0, 0), 0);
	EXPECT(zonal_report_zones(device, 0, 0, ZONAL_RO_EMPTY, NULL, &count), 0);
	EXPECT(count, 10);
	EXPECT(strcmp(zonal_zone_cond_str(ZONAL_ZONE_COND_FULL, 1), "fu"), 0);
	EXPECT(strcmp(zonal_zone_cond_str(99, 0), "unknown"), 0);
	EXPECT(strcmp(zonal_zone_type_str(ZONAL_ZONE_TYPE_CNV, 0), "conventional"), 0);
	EXPECT(zonal_flush(device), 0);
	EXPECT(zonal_close(device), 0);

	EXPECT(zonal_open("po2:mem:zone=3M,zones=4", O_RDONLY, &info, &device), 0);
	EXPECT(info.zone_size, 4 << 20);
	EXPECT(zonal_close(device), 0);
	EXPECT(zonal_open(drive, O_RDONLY, NULL, &device), 0);
	EXPECT(zonal_write(device, blocks, 4096, 30 << 20) < 0, 1);
	EXPECT(zonal_zones_operation(device, ZONAL_OP_RESET, 0, 0) < 0, 1);
	EXPECT(zonal_close(device), 0);
}

static void volumes(const char *drive)
{
	uint8_t byte = 1;
	struct zonal_stat stat;
	struct zonal_volume *volume = NULL, *second = NULL;
	struct zonal_file *file = NULL, *other = NULL;
	struct zonal_volume_options options = { 0 };

	EXPECT(zonal_volume_open("mem:zone=3M,zones=40", O_RDWR, &volume) < 0, 1);
	EXPECT(zonal_volume_close(NULL), -EFAULT);
	EXPECT(zonal_volume_open(drive, O_RDWR, &volume), 0);
	EXPECT(zonal_volume_open(drive, O_RDWR, &second), -EBUSY);
	EXPECT(zonal_stat(volume, NULL, &stat), -EFAULT);
	EXPECT(zonal_stat(volume, "missing", &stat), -ENOENT);
	EXPECT(strcmp(zonal_last_error(),
		      "asking for attributes of missing: no such file or directory"), 0);
	EXPECT(zonal_file_open(volume, "file", O_RDONLY, 0, &file), -ENOENT);
	EXPECT(zonal_file_open(volume, "file", O_RDWR | O_CREAT, 0640, &file), 0);
	EXPECT(zonal_file_open(volume, "file", O_RDWR | O_CREAT | O_EXCL, 0, &other), -EEXIST);
	EXPECT(zonal_file_open(volume, "file", O_RDONLY | O_TRUNC, 0, &other), -EINVAL);
	EXPECT(zonal_file_open(volume, "file", O_RDONLY | O_APPEND, 0, &other), 0);
	EXPECT(zonal_file_append(other, &byte, 1), -EBADF);
	EXPECT(zonal_file_lock(file), 0);
	EXPECT(zonal_file_lock(other), -EAGAIN);
	EXPECT(zonal_file_unlock(file), 0);
	EXPECT(zonal_file_lock(other), 0);
	EXPECT(zonal_file_write(file, &byte, 1, UINT64_MAX), -EFBIG);
	EXPECT(zonal_file_write(file, NULL, 5, 0), -EFAULT);
	EXPECT(zonal_file_read(NULL, &byte, 1, 0), -EFAULT);
	EXPECT(zonal_file_truncate(file, 5000), 0);
	EXPECT(zonal_file_stat(file, &stat), 0);
	EXPECT(stat.size, 5000);
	EXPECT(stat.mode, 0100640);
	EXPECT(zonal_file_sync(file), 0);
	EXPECT(zonal_list(volume, "/", NULL, NULL), -EFAULT);
	EXPECT(zonal_list(volume, "file", stop_at_once, NULL), -ENOTDIR);
	EXPECT(zonal_list(volume, "/", stop_at_once, NULL), 7);
	EXPECT(zonal_rmdir(volume, "file"), -ENOTDIR);
	EXPECT(zonal_mkdir(volume, "file", 0755), -EEXIST);
	EXPECT(zonal_rename(volume, "file", NULL), -EFAULT);
	EXPECT(zonal_volume_sync(volume), 0);
	EXPECT(zonal_volume_close(volume), 0);
	/* Files outlive their volume only to say so. */
	EXPECT(zonal_file_read(file, &byte, 1, 0), -EBADF);
	EXPECT(zonal_file_close(other), 0);
	EXPECT(zonal_file_close(file), 0);

	EXPECT(zonal_volume_open_with(drive, O_RDONLY, NULL, &volume), -EFAULT);
	options.reserved[6] = 1;
	EXPECT(zonal_volume_open_with(drive, O_RDONLY, &options, &volume), -EINVAL);
	options.reserved[6] = 0;
	options.memory = 64 << 20;
	EXPECT(zonal_volume_open_with(drive, O_RDONLY, &options, &volume), 0);
	EXPECT(zonal_unlink(volume, "file"), -EROFS);
	EXPECT(zonal_volume_close(volume), 0);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return EXIT_FAILURE;
	devices(argv[1]);
	volumes(argv[1]);
	puts("every misuse is refused");
	return EXIT_SUCCESS;
}

/*
 * A file system in memory: formats a drive, uses its files, and gives a drive several requests at once.
 *
 *     cc memory.c $(pkg-config --cflags --libs zonal) -o memory && ./memory
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zonal.h>

static int failed(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, zonal_last_error());
	return EXIT_FAILURE;
}

static int use_files(void)
{
	struct zonal_device *device;
	struct zonal_volume *volume;
	struct zonal_file *log;
	char origin[16] = "", target[16] = "";

	/* Each mem: is a new drive, so the volume is opened on the handle that was formatted. */
	if (zonal_open("mem:zone=3M,zones=64", O_RDWR, NULL, &device) < 0)
		return failed("open");
	if (zonal_mkfs(device, NULL) < 0)
		return failed("mkfs");
	if (zonal_volume_open_on(device, O_RDWR, NULL, &volume) < 0)
		return failed("mount");

	/* How long the data will live decides what it lies with in a zone. */
	if (zonal_file_open(volume, "000012.log", O_RDWR | O_CREAT, 0644, &log) < 0)
		return failed("create");
	if (zonal_file_set_lifetime(log, ZONAL_LIFETIME_SHORT) < 0)
		return failed("lifetime");
	if (zonal_file_append(log, "record\n", 7) != 0)
		return failed("append");
	if (zonal_file_setxattr(log, "user.origin", "memory", 6, 0) < 0)
		return failed("setxattr");
	if (zonal_file_close(log) < 0)
		return failed("close");

	if (zonal_symlink(volume, "000012.log", "CURRENT") < 0)
		return failed("symlink");
	if (zonal_readlink(volume, "CURRENT", target, sizeof(target) - 1) < 0)
		return failed("readlink");
	if (zonal_getxattr(volume, "CURRENT", "user.origin", origin, sizeof(origin) - 1, 0) < 0)
		return failed("getxattr");
	printf("CURRENT is %s, from %s\n", target, origin);
	if (zonal_volume_close(volume) < 0)
		return failed("close");
	return zonal_close(device) < 0 ? failed("close") : EXIT_SUCCESS;
}

static int use_zones(void)
{
	static const char block[4096] = "block";
	struct zonal_device *device;
	struct zonal_info info;
	struct zonal_io ios[3] = { { 0 } };

	if (zonal_open("mem:zone=3M,zones=10", O_RDWR, &info, &device) < 0)
		return failed("open");

	/* Two appends at once, and a flush of both. */
	for (int at = 0; at < 2; at++) {
		ios[at].op = ZONAL_IO_APPEND;
		ios[at].ofst = (uint64_t)at * info.zone_size;
		ios[at].data = block;
		ios[at].count = sizeof(block);
	}
	ios[2].op = ZONAL_IO_FLUSH;
	if (zonal_submit(device, ios, 3) != 3)
		return failed("submit");
	printf("the second append went to byte %" PRId64 "\n", ios[1].result);
	return zonal_close(device) < 0 ? failed("close") : EXIT_SUCCESS;
}

int main(void)
{
	return use_files() == EXIT_SUCCESS ? use_zones() : EXIT_FAILURE;
}

/*
 * Files of a volume: writes, appends, lists, moves and removes.
 *
 *     zonal create drive.zns && zonal mkfs drive.zns
 *     cc files.c $(pkg-config --cflags --libs zonal) -o files && ./files drive.zns
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

static int show(void *context, const struct zonal_entry *entry)
{
	unsigned int *count = context;

	printf("%s\n", entry->name);
	*count += 1;
	return 0;
}

int main(int argc, char **argv)
{
	struct zonal_statvfs space;
	struct zonal_stat stat;
	struct zonal_volume *volume;
	struct zonal_file *log;
	unsigned int count = 0;
	char line[16] = "";
	int64_t at;

	if (argc != 2) {
		fprintf(stderr, "usage: %s DEVICE\n", argv[0]);
		return EXIT_FAILURE;
	}
	if (zonal_volume_open(argv[1], O_RDWR, &volume) < 0)
		return failed("mount");
	if (zonal_mkdir(volume, "logs", 0755) < 0)
		return failed("mkdir");

	if (zonal_file_open(volume, "logs/new", O_RDWR | O_CREAT | O_EXCL, 0644, &log) < 0)
		return failed("create");
	if (zonal_file_write(log, "one\n", 4, 0) != 4)
		return failed("write");
	at = zonal_file_append(log, "two\n", 4);
	if (at < 0)
		return failed("append");
	if (zonal_file_datasync(log) < 0)
		return failed("sync");
	if (zonal_rename(volume, "logs/new", "logs/today") < 0)
		return failed("rename");

	/* A file stays while it is open. */
	if (zonal_file_read(log, line, sizeof(line) - 1, (uint64_t)at) != 4)
		return failed("read");
	printf("%s", line);
	if (zonal_stat(volume, "logs/today", &stat) < 0)
		return failed("stat");
	printf("%" PRIu64 " bytes, mode %o\n", stat.size, stat.mode);
	if (zonal_list(volume, "logs", show, &count) < 0 || count != 1)
		return failed("list");
	if (zonal_unlink(volume, "logs/today") < 0 || zonal_rmdir(volume, "logs") < 0)
		return failed("remove");
	if (zonal_file_close(log) < 0)
		return failed("close");

	if (zonal_volume_statvfs(volume, &space) < 0)
		return failed("statvfs");
	printf("%s\n", space.blocks_free > 0 ? "there is room" : "it is full");
	return zonal_volume_close(volume) < 0 ? failed("close") : EXIT_SUCCESS;
}

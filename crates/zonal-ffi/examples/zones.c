/*
 * Zones of a device: reports them, writes, appends, and empties a zone again.
 *
 *     cc zones.c $(pkg-config --cflags --libs zonal) -o zones && ./zones mem:zone=3M,zones=10
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

int main(int argc, char **argv)
{
	struct zonal_info info;
	struct zonal_zone zone;
	struct zonal_device *device;
	unsigned int count = 1;
	char *block;
	int64_t at;

	if (zonal_open(argc > 1 ? argv[1] : "mem:zone=3M,zones=10", O_RDWR, &info, &device) < 0)
		return failed("open");
	printf("%" PRIu32 " zones of %" PRIu64 " bytes, %s\n", info.nr_zones, (uint64_t)info.zone_size,
	       zonal_device_model_str(info.model, 0));

	block = calloc(1, info.lblock_size);
	if (!block)
		return EXIT_FAILURE;
	memset(block, 'z', info.lblock_size);

	/* At the write pointer, and then wherever it is. */
	if (zonal_write(device, block, info.lblock_size, info.zone_size) < 0)
		return failed("write");
	at = zonal_append(device, block, info.lblock_size, info.zone_size);
	if (at < 0)
		return failed("append");
	printf("appended %" PRId64 " bytes into zone 1\n", at - (int64_t)info.zone_size);
	if (zonal_flush(device) < 0)
		return failed("flush");

	if (zonal_report_zones(device, info.zone_size, 1, ZONAL_RO_ALL, &zone, &count) < 0)
		return failed("report");
	printf("zone 1 is %s, %" PRIu64 " bytes are written\n", zonal_zone_cond_str(zone.cond, 0),
	       (uint64_t)(zone.wp - zone.start));

	/* Not at the write pointer: refused, with a reason. */
	if (zonal_write(device, block, info.lblock_size, info.zone_size) >= 0)
		return EXIT_FAILURE;
	printf("refused: %s\n", zonal_last_error());

	if (zonal_zones_operation(device, ZONAL_OP_RESET, info.zone_size, 1) < 0)
		return failed("reset");
	if (zonal_report_zones(device, 0, 0, ZONAL_RO_EMPTY, NULL, &count) < 0)
		return failed("count");
	printf("%u zones are empty\n", count);

	free(block);
	return zonal_close(device) < 0 ? failed("close") : EXIT_SUCCESS;
}

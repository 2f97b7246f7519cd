/* Several requests to a device in one call, right and wrong: for the test `c`. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zonal.h>
#include "expect.h"

#define BLOCK 4096
#define ZONE (3 << 20)

static struct zonal_io request(uint32_t op, uint64_t ofst, size_t count)
{
	struct zonal_io io;

	memset(&io, 0, sizeof(io));
	io.op = op;
	io.ofst = ofst;
	io.count = count;
	return io;
}

static void batches(const struct zonal_device *device)
{
	static uint8_t data[3 * BLOCK], found[4 * BLOCK];
	struct zonal_io ios[5];

	memset(data, 1, BLOCK);
	memset(data + BLOCK, 2, BLOCK);
	memset(data + 2 * BLOCK, 3, BLOCK);

	/* Writes to one zone in their order, an append, and a flush. */
	ios[0] = request(ZONAL_IO_WRITE, ZONE, BLOCK);
	ios[0].data = data;
	ios[1] = request(ZONAL_IO_WRITE, ZONE + BLOCK, BLOCK);
	ios[1].data = data + BLOCK;
	ios[2] = request(ZONAL_IO_APPEND, 2 * ZONE + 17, 2 * BLOCK);
	ios[2].data = data + BLOCK;
	ios[3] = request(ZONAL_IO_FLUSH, 0, 0);
	EXPECT(zonal_submit(device, ios, 4), 4);
	EXPECT(ios[0].result, BLOCK);
	EXPECT(ios[1].result, BLOCK);
	EXPECT(ios[2].result, 2 * ZONE);
	EXPECT(ios[3].result, 0);

	/* Reads to places that touch, and one of a zone that nothing was written to. */
	memset(found, 9, sizeof(found));
	for (int at = 0; at < 2; at++) {
		ios[at] = request(ZONAL_IO_READ, ZONE + (uint64_t)at * BLOCK, BLOCK);
		ios[at].buf = found + at * BLOCK;
	}
	ios[2] = request(ZONAL_IO_READ, 5 * ZONE, 2 * BLOCK);
	ios[2].buf = found + 2 * BLOCK;
	EXPECT(zonal_submit(device, ios, 3), 3);
	EXPECT(memcmp(found, data, 2 * BLOCK), 0);
	EXPECT(found[2 * BLOCK] == 0 && found[4 * BLOCK - 1] == 0, 1);
	EXPECT(ios[2].result, 2 * BLOCK);
}

static void misuse(const struct zonal_device *device)
{
	static uint8_t data[BLOCK], found[2 * BLOCK];
	struct zonal_io ios[9];

	EXPECT(zonal_submit(NULL, ios, 1), -EFAULT);
	EXPECT(zonal_submit(device, NULL, 1), -EFAULT);
	EXPECT(zonal_submit(device, NULL, 0), 0);
	EXPECT(zonal_submit(device, ios, SIZE_MAX), -EINVAL);

	/* What is wrong with one stops no other. */
	ios[0] = request(ZONAL_IO_WRITE, 3 * ZONE + BLOCK, BLOCK);
	ios[0].data = data;
	ios[1] = request(77, 0, 0);
	ios[2] = request(ZONAL_IO_READ, 1, BLOCK);
	ios[2].buf = found;
	ios[3] = request(ZONAL_IO_READ, 0, BLOCK);
	ios[4] = request(ZONAL_IO_APPEND, 1000 * (uint64_t)ZONE, BLOCK);
	ios[4].data = data;
	ios[5] = request(ZONAL_IO_APPEND, 4 * ZONE, 100);
	ios[5].data = data;
	ios[6] = request(ZONAL_IO_FLUSH, 0, 0);
	ios[6].flags = 1;
	ios[7] = request(ZONAL_IO_WRITE, 4 * ZONE, SIZE_MAX);
	ios[7].data = data;
	ios[8] = request(ZONAL_IO_APPEND, 4 * ZONE, BLOCK);
	ios[8].data = data;
	EXPECT(zonal_submit(device, ios, 9), 1);
	EXPECT(strstr(zonal_last_error(), "write pointer") != NULL, 1);
	EXPECT(ios[0].result, -EIO);
	EXPECT(ios[1].result, -EINVAL);
	EXPECT(ios[2].result, -EINVAL);
	EXPECT(ios[3].result, -EFAULT);
	EXPECT(ios[4].result, -EINVAL);
	EXPECT(ios[5].result, -EINVAL);
	EXPECT(ios[6].result, -EINVAL);
	EXPECT(ios[7].result, -EINVAL);
	EXPECT(ios[8].result, 4 * ZONE);

	/* Memory that a read fills is its own. Two writes may share theirs. */
	for (int at = 0; at < 2; at++) {
		ios[at] = request(ZONAL_IO_READ, 0, BLOCK);
		ios[at].buf = found + at * (BLOCK - 1);
		ios[at].result = 5;
	}
	EXPECT(zonal_submit(device, ios, 2), -EINVAL);
	EXPECT(ios[0].result, 5);
	ios[1] = request(ZONAL_IO_APPEND, 4 * ZONE, BLOCK);
	ios[1].data = found;
	EXPECT(zonal_submit(device, ios, 2), -EINVAL);
	ios[0] = request(ZONAL_IO_READ, 0, BLOCK);
	ios[0].buf = ios;
	EXPECT(zonal_submit(device, ios, 1), -EINVAL);
	ios[0] = ios[1];
	EXPECT(zonal_submit(device, ios, 2), 2);
	EXPECT(ios[0].result + ios[1].result, 8 * ZONE + 3 * BLOCK);
}

/* A batch cannot change what a volume relies on. */
static void beside_a_volume(const struct zonal_device *device)
{
	static uint8_t data[BLOCK], found[BLOCK];
	struct zonal_volume *volume = NULL;
	struct zonal_io ios[2];

	EXPECT(zonal_mkfs(device, &(struct zonal_mkfs_options){ .flags = ZONAL_MKFS_FORCE }), 0);
	EXPECT(zonal_volume_open_on(device, O_RDWR, NULL, &volume), 0);
	ios[0] = request(ZONAL_IO_APPEND, 4 * ZONE, BLOCK);
	ios[0].data = data;
	ios[1] = request(ZONAL_IO_READ, 4 * ZONE, BLOCK);
	ios[1].buf = found;
	EXPECT(zonal_submit(device, ios, 2), 1);
	EXPECT(ios[0].result, -EBUSY);
	EXPECT(ios[1].result, BLOCK);
	EXPECT(zonal_volume_close(volume), 0);
	EXPECT(zonal_zones_operation(device, ZONAL_OP_RESET, 0, 0), 0);
	EXPECT(zonal_submit(device, ios, 2), 2);
}

int main(void)
{
	struct zonal_device *device = NULL;

	EXPECT(zonal_open("mem:zone=3M,zones=64", O_RDWR, NULL, &device), 0);
	batches(device);
	misuse(device);
	beside_a_volume(device);
	EXPECT(zonal_close(device), 0);
	puts("every request has its result");
	return EXIT_SUCCESS;
}

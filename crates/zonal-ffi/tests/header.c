/* The header by itself, before any other, in C99: for the test `c`. */
#include <zonal.h>

int main(void)
{
	const struct zonal_io io = { ZONAL_IO_FLUSH, 0, 0, 0, 0, 0, 0 };

	return zonal_version()[0] == '\0' || io.result != 0;
}

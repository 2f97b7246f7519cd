/* How the programs of the test `c` say what they expect. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>
#include <stdlib.h>
#include <zonal.h>

#define EXPECT(value, expected)                                                               \
	do {                                                                                  \
		long long got = (value), want = (expected);                                   \
		if (got != want) {                                                            \
			fprintf(stderr, "line %d: %s is %lld, not %lld: %s\n", __LINE__,      \
				#value, got, want, zonal_last_error());                       \
			exit(EXIT_FAILURE);                                                   \
		}                                                                             \
	} while (0)

#endif

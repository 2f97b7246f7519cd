/* Sets or reads a write-lifetime hint as the first argument says, on the file that is the second one. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define SET_RW_HINT 1036
#define GET_LIFETIME _IOR('Z', 1, uint64_t)
#define SET_LIFETIME _IOW('Z', 2, uint64_t)

int main(int count, char **words)
{
    if (count < 3)
        return 2;
    const char *what = words[1];
    int fd = open(words[2], O_RDWR);
    if (fd < 0)
        return perror(words[2]), 1;
    uint64_t hint = count > 3 ? strtoull(words[3], NULL, 10) : 0;
    /* What RocksDB before 9.3.1 does: an enum of 4 bytes, and whatever follows it. */
    struct { uint32_t hint, other; } narrow = {(uint32_t)hint, 0xdeadbeef};
    int outcome;
    if (!strcmp(what, "fcntl"))
        outcome = fcntl(fd, SET_RW_HINT, &hint);
    else if (!strcmp(what, "narrow"))
        outcome = fcntl(fd, SET_RW_HINT, &narrow);
    else if (!strcmp(what, "ioctl"))
        outcome = ioctl(fd, SET_LIFETIME, &hint);
    else
        outcome = ioctl(fd, GET_LIFETIME, &hint);
    if (outcome != 0)
        return perror(what), 1;
    /* Other commands of fcntl still work. */
    if (fcntl(fd, F_GETFD) < 0 || (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
        return 3;
    printf("%llu\n", (unsigned long long)hint);
    return 0;
}

# Makes a change to each file that the standard input names: lines of a change and a path.

def opened(path, flags, call):
    fd = os.open(path, flags)
    try:
        call(fd)
    finally:
        os.close(fd)

def aligned():
    page = mmap.mmap(-1, 4096)
    page.write(b'd' * 4096)
    return page

def toggle(fd):
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
    os.pwritev(fd, [aligned()], 0)

def fallocate(mode, length):
    def call(fd):
        offset, size = ctypes.c_int64(0), ctypes.c_int64(length)
        checked(libc.fallocate(fd, mode, offset, size))
    return lambda path: opened(path, os.O_WRONLY, call)

def copy(length):
    def to(fd):
        source = os.open('source', os.O_RDONLY)
        assert os.copy_file_range(source, fd, length, 0, 0) == length
        os.close(source)
    return lambda path: opened(path, os.O_WRONLY, to)

def send(fd):
    source = os.open('source', os.O_RDONLY)
    assert os.sendfile(fd, source, 0, 100) == 100
    os.close(source)

def map_and_write(fd):
    with mmap.mmap(fd, 4096) as mapping:
        mapping[0:3] = b'map'
        mapping.flush()

def acl(path):
    # Every permission for owner, group and others.
    entries = b''.join(struct.pack('<HHI', tag, 7, 0xffffffff) for tag in (1, 4, 0x20))
    os.setxattr(path, 'system.posix_acl_access', struct.pack('<I', 2) + entries)

def write(flags):
    return lambda path: opened(path, os.O_WRONLY | flags, lambda fd: os.pwrite(fd, b'new', 0))

CHANGES = {
    'write': write(0),
    'append': write(os.O_APPEND),
    'write-dsync': write(os.O_DSYNC),
    'direct': lambda path: opened(
        path, os.O_WRONLY | os.O_DIRECT, lambda fd: os.pwritev(fd, [aligned()], 0)),
    'toggled': lambda path: opened(path, os.O_WRONLY, toggle),
    'truncate': lambda path: os.truncate(path, 100),
    'lengthen': lambda path: os.truncate(path, 100000),
    'same-length': lambda path: os.truncate(path, 8192),
    'ftruncate': lambda path: opened(path, os.O_WRONLY, lambda fd: os.ftruncate(fd, 5000)),
    'open-trunc': lambda path: opened(path, os.O_WRONLY | os.O_TRUNC, lambda fd: None),
    'allocate': fallocate(0, 65536),
    'keep-size': fallocate(1, 65536),
    'punch': fallocate(3, 4096),
    'zero': fallocate(0x10, 6000),
    'copy': copy(8192),
    'copy-part': copy(100),
    'sendfile': lambda path: opened(path, os.O_WRONLY, send),
    'map': lambda path: opened(path, os.O_RDWR, map_and_write),
    'touch': lambda path: os.utime(path),
    'chown-nothing': lambda path: os.chown(path, -1, -1),
    'chown-same': lambda path: os.chown(path, os.stat(path).st_uid, -1),
    'chmod-same': lambda path: os.chmod(path, os.stat(path).st_mode & 0o7777),
    'acl': acl,
}

for line in sys.stdin.read().splitlines():
    change, path = line.split()
    outcome = attempt(CHANGES[change], path)
    if outcome != 'done':
        print(change, path, outcome)

# Asynchronous I/O of the kernel (`io_submit`), which Rust has only as `unsafe`: the beginning of a program.
# It gives each request a number of its own, which its result comes with.
import ctypes, errno, mmap, os, platform, struct, sys, threading, time
IO_SETUP, IO_GETEVENTS, IO_SUBMIT = 206, 208, 209
PREAD, PWRITE, PREADV, PWRITEV = 0, 1, 7, 8
assert platform.machine() == 'x86_64', 'the system call numbers are of another machine'
libc = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    result = libc.syscall(number, *[ctypes.c_long(one) for one in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def address(buffer):
    return ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer))

def setup(depth):
    context = ctypes.c_ulong(0)
    call(IO_SETUP, depth, ctypes.addressof(context))
    return context

# `each` are flags of this request alone.
def control(number, how, file, where, length, offset, each=0):
    return bytearray(struct.pack('<QIiHhIQQqQII', number, 0, each, how, 0, file, where, length, offset, 0, 0, 0))

def submit(context, controls):
    pointers = (ctypes.c_ulong * len(controls))(*[address(one) for one in controls])
    assert call(IO_SUBMIT, context.value, len(controls), ctypes.addressof(pointers)) == len(controls)

def wait_until(is_so):
    while not is_so():
        time.sleep(0.001)

# Results by number: at least so many, or what there is after so many seconds.
def results(context, least, most, seconds=None):
    events = ctypes.create_string_buffer(32 * most)
    limit = seconds is not None and (ctypes.c_long * 2)(int(seconds), int(seconds % 1 * 1e9))
    count = call(IO_GETEVENTS, context.value, least, most, ctypes.addressof(events),
                 ctypes.addressof(limit) if limit else 0)
    return {number: result for number, _, result, _ in struct.iter_unpack('<QQqq', events.raw[:32 * count])}

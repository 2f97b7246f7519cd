"""Zoned drives, the files on them, and simulated drives.

    device = zonal.open("mem:zone=4M,zones=64")     # zones: read, write, append, report
    zonal.mkfs(device)
    with zonal.Volume(device) as volume:            # files, without a mount
        volume.write_text("hello", "world")
    zonal.sim.run("small")                          # an SSD, simulated

Offsets, lengths and sizes are bytes; a name that ends in `_ns` is nanoseconds. Failures raise
zonal.Error, an OSError with `errno` and `strerror`; where Python has a class for the errno, such as
FileNotFoundError, it is one of those as well. Objects may be used from any thread, and the
interpreter's lock is free while a device works. A closed object answers EBADF.
"""

from . import sim
from ._errors import Error
from ._files import File, Volume
from ._types import Identity, Zone
from ._zonal import Device, Io, __version__, create, mkfs

__all__ = [
    "Device",
    "Error",
    "File",
    "Identity",
    "Io",
    "Volume",
    "Zone",
    "__version__",
    "create",
    "mkfs",
    "open",
    "sim",
]


def open(spec, *, read_only: bool = False) -> Device:
    """Opens a device: a drive file, "mem:zone=4M,zones=64", "sim:", a block device, an NVMe
    namespace, or layers in front of one, as the command zonal takes them. The same as
    zonal.Device."""
    return Device(spec, read_only=read_only)

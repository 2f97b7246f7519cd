"""Errors: zonal.Error, and with it the classes that Python has for an errno."""

import errno
from typing import Dict, Type


class Error(OSError):
    """A failure of a device, a volume or a simulation: `errno` says of which kind, `strerror` what
    happened."""

    def __reduce__(self):
        return error_of, (self.errno, self.strerror)


#: What Python calls an errno. EINVAL is no class of OSError, but a ValueError.
_NAMED: Dict[int, Type[Exception]] = {
    errno.EACCES: PermissionError,
    errno.EAGAIN: BlockingIOError,
    errno.EEXIST: FileExistsError,
    errno.EINVAL: ValueError,
    errno.EISDIR: IsADirectoryError,
    errno.ENOENT: FileNotFoundError,
    errno.ENOTDIR: NotADirectoryError,
    errno.EPERM: PermissionError,
}

_CLASSES: Dict[int, Type[Error]] = {
    number: type("Error", (Error, named), {"__doc__": Error.__doc__, "__module__": "zonal"})
    for number, named in _NAMED.items()
}

Error.__module__ = "zonal"


def error_of(number: int, text: str) -> Error:
    """The error of an errno and a sentence."""
    return _CLASSES.get(number, Error)(number, text)

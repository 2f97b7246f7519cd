"""Volumes with files as Python has them: raw, buffered and text files of io."""

import atexit
import io
import os
import stat
import weakref
from typing import Iterator, Optional

from . import _zonal

#: Bytes of the buffer of a file: what is written through one call of the volume.
BUFFER_BYTES = 128 << 10

#: Volumes that are closed when the interpreter ends.
_volumes: "weakref.WeakSet[Volume]" = weakref.WeakSet()


class File(io.RawIOBase):
    """An unbuffered open file of a volume: what Volume.open(path, mode, buffering=0) returns, and
    what lies below its buffered and text files as `raw`. It stays usable while it is open, whatever
    becomes of its name.

    read, readinto, readall, write, seek, tell and truncate are those of io.RawIOBase. The methods
    that begin with p take an offset in bytes and leave the position alone, so threads can share a
    file.
    """

    _file: Optional["_zonal.RawFile"] = None

    def __init__(self, volume: "Volume", path, mode: str = "r", perm: int = 0o644):
        flags, self.mode = _flags(mode)
        self._file = _zonal.RawFile(volume, path, flags, perm)
        self.name = path
        self._reads = flags & os.O_ACCMODE != os.O_WRONLY
        self._writes = flags & os.O_ACCMODE != os.O_RDONLY
        self._appends = bool(flags & os.O_APPEND)
        self._at = self._file.size() if self._appends else 0

    def readable(self) -> bool:
        self._check_open()
        return self._reads

    def writable(self) -> bool:
        self._check_open()
        return self._writes

    def seekable(self) -> bool:
        self._check_open()
        return True

    def readinto(self, buffer) -> int:
        """Reads into a buffer at the position, and returns how many bytes: 0 at the end of the
        file."""
        count = self.preadinto(buffer, self._at)
        self._at += count
        return count

    def readall(self) -> bytes:
        """Reads from the position to the end of the file."""
        parts = []
        while True:
            part = self.pread(max(self.size() - self._at, 1), self._at)
            if not part:
                return b"".join(parts)
            parts.append(part)
            self._at += len(part)

    def write(self, data) -> int:
        """Writes at the position, or at the end of a file that was opened to append. Returns how
        many bytes: less than all only where a zone of zonefs is full."""
        if self._appends:
            count = memoryview(data).nbytes
            self._at = self.append(data) + count
        else:
            count = self.pwrite(data, self._at)
            self._at += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves the position, also by os.SEEK_DATA and os.SEEK_HOLE, and returns it."""
        self._check_open()
        if whence == os.SEEK_SET:
            at = offset
        elif whence == os.SEEK_CUR:
            at = self._at + offset
        elif whence == os.SEEK_END:
            at = self.size() + offset
        elif whence == os.SEEK_DATA:
            at = self._file.seek_data(offset)
        elif whence == os.SEEK_HOLE:
            at = self._file.seek_hole(offset)
        else:
            raise ValueError(f"whence {whence} is not known")
        if at < 0:
            raise ValueError(f"position {at} is before the start of the file")
        self._at = at
        return at

    def tell(self) -> int:
        self._check_open()
        return self._at

    def truncate(self, size: Optional[int] = None) -> int:
        """Cuts the file, or lengthens it with zeroes, to `size` bytes or to the position."""
        size = self._at if size is None else size
        self._native().truncate(size)
        return size

    def pread(self, length: int, offset: int) -> bytes:
        """Reads up to `length` bytes from byte `offset` on: less only at the end of the file."""
        return self._native().pread(length, offset)

    def preadinto(self, buffer, offset: int) -> int:
        """Reads into a buffer from byte `offset` on, and returns how many bytes."""
        return self._native().preadinto(buffer, offset)

    def pwrite(self, data, offset: int) -> int:
        """Writes at byte `offset` and returns how many bytes."""
        return self._native().pwrite(data, offset)

    def append(self, data) -> int:
        """Writes all of the data at the end of the file and returns the byte where it went. Appends
        of several threads do not overlap."""
        return self._native().append(data)

    def copy_range(self, target: "File", count: int, source: int = 0, to: int = 0) -> int:
        """Copies `count` bytes from byte `source` on to byte `to` of another file of the volume,
        which shares blocks where it can. Returns how many bytes: less only at the end of this
        file."""
        return self._native().copy_range(target._native(), count, source, to)

    def size(self) -> int:
        """Bytes of the file."""
        return self._native().size()

    def sync(self) -> None:
        """Makes content and attributes durable (fsync)."""
        self._native().sync()

    def datasync(self) -> None:
        """Makes the content durable, and the metadata needed to read it back (fdatasync)."""
        self._native().datasync()

    def stat(self) -> os.stat_result:
        """Attributes."""
        return self._native().stat()

    def lock(self) -> None:
        """Locks the file against other files of this volume; BlockingIOError if one of them has it
        locked. The lock is advisory and ends with the file."""
        self._native().lock()

    def unlock(self) -> None:
        """Gives the lock back."""
        self._native().unlock()

    @property
    def lifetime(self) -> str:
        """How long data that is written to the file will live: "none", "short", "medium", "long" or
        "extreme"."""
        return self._native().get_lifetime()

    @lifetime.setter
    def lifetime(self, lifetime: str) -> None:
        self._native().set_lifetime(lifetime)

    def close(self) -> None:
        """Closes the file and gives back its lock. Nothing is made durable by that."""
        if not self.closed:
            super().close()
            if self._file is not None:
                self._file.close()

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        name, mode = getattr(self, "name", None), getattr(self, "mode", None)
        return f"<zonal.File {name!r} mode {mode!r}{state}>"

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _native(self) -> "_zonal.RawFile":
        self._check_open()
        return self._file


class Volume(_zonal.Volume):
    __doc__ = _zonal.Volume.__doc__

    def __init__(self, device, *, read_only: bool = False, memory_bytes: int = 0):
        super().__init__()
        self._pid = os.getpid()
        self._streams: "weakref.WeakSet[io.IOBase]" = weakref.WeakSet()
        _volumes.add(self)

    def open(
        self,
        path,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
        *,
        perm: int = 0o644,
    ):
        """Opens a file as the built-in open does: a text file, or in binary mode a buffered one, or
        with buffering=0 a zonal.File. `perm` has the permission bits of a new file."""
        is_binary = "b" in mode
        if is_binary and "t" in mode:
            raise ValueError("can't have text and binary mode at once")
        if is_binary and (encoding or errors or newline):
            raise ValueError("binary mode takes no encoding, errors or newline")
        if buffering == 0 and not is_binary:
            raise ValueError("can't have unbuffered text I/O")
        stream = raw = File(self, path, mode.replace("t", ""), perm)
        try:
            if buffering != 0:
                size = BUFFER_BYTES if buffering in (-1, 1) else buffering
                stream = _buffered(raw, size)
            if not is_binary:
                stream = io.TextIOWrapper(
                    stream, encoding, errors, newline, line_buffering=buffering == 1
                )
                stream.mode = mode
        except BaseException:
            raw.close()
            raise
        self._streams.add(stream)
        return stream

    def close(self) -> None:
        """Closes the files that are open, makes everything durable, leaves the drive clean and lets
        go of it. The first error is raised; the volume is closed all the same. The second time does
        nothing."""
        failure = None
        for stream in list(getattr(self, "_streams", ())):
            try:
                stream.close()
            except Exception as error:
                failure = failure or error
        super().close()
        if failure is not None:
            raise failure

    def read_bytes(self, path) -> bytes:
        """All of a file's content."""
        with self.open(path, "rb", 0) as file:
            return file.readall()

    def write_bytes(self, path, data) -> int:
        """Makes a file with this content, or gives it to an existing one. Returns how many
        bytes."""
        with self.open(path, "wb") as file:
            return file.write(data)

    def read_text(self, path, encoding: str = "utf-8") -> str:
        """All of a file's content, as text."""
        with self.open(path, encoding=encoding) as file:
            return file.read()

    def write_text(self, path, text: str, encoding: str = "utf-8") -> int:
        """Makes a file with this text, or gives it to an existing one. Returns how many
        characters."""
        with self.open(path, "w", encoding=encoding) as file:
            return file.write(text)

    def lstat(self, path) -> os.stat_result:
        """Attributes of the entry at a path, which may be a symbolic link."""
        return self.stat(path, follow_symlinks=False)

    def exists(self, path) -> bool:
        """Whether a path leads to something."""
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def isdir(self, path) -> bool:
        """Whether a path leads to a directory."""
        return self.exists(path) and stat.S_ISDIR(self.stat(path).st_mode)

    def isfile(self, path) -> bool:
        """Whether a path leads to a regular file."""
        return self.exists(path) and stat.S_ISREG(self.stat(path).st_mode)

    def walk(self, top="/") -> Iterator[tuple]:
        """Walks a tree from the top down, as os.walk does: (directory, names of directories, other
        names)."""
        folders, others = [], []
        for name in sorted(self.listdir(top)):
            is_folder = stat.S_ISDIR(self.lstat(os.path.join(top, name)).st_mode)
            (folders if is_folder else others).append(name)
        yield top, folders, others
        for name in folders:
            yield from self.walk(os.path.join(top, name))

    def __enter__(self) -> "Volume":
        return self

    def __exit__(self, *raised) -> None:
        self.close()


def _buffered(raw: File, size: int):
    if raw._reads and raw._writes:
        return io.BufferedRandom(raw, size)
    return io.BufferedReader(raw, size) if raw._reads else io.BufferedWriter(raw, size)


def _flags(mode: str):
    """What os.open takes for a mode of the built-in open, and the mode as files show it."""
    letters = set(mode) - {"b"}
    kinds = letters & set("rwxa")
    if len(kinds) != 1 or letters - set("rwxa+") or len(mode) != len(set(mode)):
        raise ValueError(f"invalid mode: {mode!r}")
    (kind,) = kinds
    ways = {
        "r": 0,
        "w": os.O_CREAT | os.O_TRUNC,
        "x": os.O_CREAT | os.O_EXCL,
        "a": os.O_CREAT | os.O_APPEND,
    }
    if "+" in letters:
        access = os.O_RDWR
    else:
        access = os.O_RDONLY if kind == "r" else os.O_WRONLY
    return access | ways[kind], f"{kind}b{'+' if '+' in letters else ''}"


@atexit.register
def _close_volumes() -> None:
    for volume in list(_volumes):
        # A forked child has no part in the volume of its parent.
        if volume._pid == os.getpid():
            volume.close()

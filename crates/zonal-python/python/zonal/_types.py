"""What reports consist of: named tuples, of which a list makes a table
(pandas.DataFrame(device.report()))."""

from typing import NamedTuple, Optional


class Zone(NamedTuple):
    """A zone as the device reports it. Places and lengths are bytes."""

    zone: int
    """Its number."""
    kind: str
    """"sequential", "sequential-preferred", or "conventional"."""
    condition: str
    """"empty", "implicit-open", "explicit-open", "closed", "full", "read-only", "offline", or
    "not-wp"."""
    start_bytes: int
    """Where it starts on the device."""
    size_bytes: int
    """From its start to the next zone's."""
    capacity_bytes: int
    """What can be written of that."""
    write_pointer_bytes: Optional[int]
    """Where on the device the next write goes; None where there is no write pointer, or it means
    nothing."""
    written_bytes: Optional[int]
    """What is written, from its start on; None where there is no write pointer."""
    non_sequential: bool
    """Whether a "sequential-preferred" zone was written elsewhere than at its write pointer since the
    last reset."""


class Identity(NamedTuple):
    """What a device says it is."""

    model: Optional[str]
    serial: Optional[str]
    unique: Optional[str]

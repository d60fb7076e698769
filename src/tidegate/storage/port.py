"""The storage port: the few operations on named blobs that the checkpoint log and state files need.

Paths are relative, '/'-separated, made of name characters, '.' and '/'. All calls block; they run on a side thread of a
shell. The property that everything rests on is `put_if_absent`: of any number of writers, in any processes, exactly one
creates a path, and a path that exists has its whole content, whatever died in the middle. A storage for which the
conformance kit (`tidegate.testing.conformance.storage`) has not shown that is not supported.
"""

from typing import Protocol

from tidegate.errors import TidegateError, UnavailableError


class AlreadyExists(Exception):
    """`put_if_absent`: another write holds the path."""


class NotFound(Exception):
    """`read`: nothing is stored under the path."""


class StorageUnavailable(UnavailableError):
    """The storage did not answer or refused for now. After a write, its outcome is unknown: it may still become
    visible."""


StorageError = TidegateError | AlreadyExists | NotFound


class Storage(Protocol):
    """A flat store of blobs. Raises `StorageUnavailable` for whatever may pass, `InvalidError` for what will not
    (no permission, no such bucket), naming the place and the remedy."""

    @property
    def location(self) -> str:
        """Where this is, for messages: a folder or a URL."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Create `path` durably with exactly `data`, or raise `AlreadyExists` without changing anything.

        When `StorageUnavailable` is raised the write may have happened, or may happen later. A caller that repeats it
        and gets `AlreadyExists` reads the path to learn whether the content is its own.
        """
        ...

    def write(self, path: str, data: bytes) -> None:
        """Create or replace `path` durably. Only for paths that no other writer uses."""
        ...

    def read(self, path: str) -> bytes:
        """The whole content. Raises `NotFound`."""
        ...

    def exists(self, path: str) -> bool: ...

    def list(self, prefix: str) -> list[str]:
        """All paths that begin with the folder `prefix` (which ends in '/'; '' for all), sorted; [] when there are
        none. Never shows unfinished writes."""
        ...

    def delete(self, path: str) -> None:
        """Remove `path`; nothing happens when it is not there."""
        ...

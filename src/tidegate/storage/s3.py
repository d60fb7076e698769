"""The storage port on S3: blobs are objects under a prefix of a bucket, shared by processes anywhere.

An object appears whole or not at all, and S3 itself lets exactly one of several writers create it: every put is
conditional (If-None-Match). So nothing is tested first, and there are no temporary names. This module must never open a
place whose storage has not just shown that it honours the condition: one that passes it over lets all writers win.
"""

import re
from collections.abc import Sequence
from contextlib import suppress

from tidegate.errors import InvalidError, TidegateError
from tidegate.storage.paths import checked, checked_prefix, is_path
from tidegate.storage.port import AlreadyExists, NotFound
from tidegate.storage.s3_requests import PAUSES, Bucket, new_mark
from tidegate.storage.urls import split_remote

PROBE = ".probe-"
"""How the names of the objects begin on which a start tries its storage. `list` never shows one."""
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


class S3Storage:
    """Blobs as objects of bucket `bucket` whose keys begin with `prefix` and '/'; '' for the whole bucket.

    Credentials, region and endpoint come from the environment, as for every tool of AWS. Any number of threads and
    processes may use the place at once.
    """

    def __init__(self, bucket: str, prefix: str, pauses: Sequence[float] = PAUSES) -> None:
        self.location = f"s3://{bucket}/{prefix}".rstrip("/")
        self._folder = f"{prefix}/" if prefix else ""
        self._bucket = Bucket(bucket, self.location, pauses)

    def check_writable(self) -> None:
        """Prove that blobs can be put, read, listed and deleted, and that a put over something is refused.

        Raises `InvalidError` when the place cannot be used and `StorageUnavailable` for what may pass. Call it once at
        the start of whatever will write.
        """
        # Its name is new each time: so nobody who starts at the same moment is disturbed.
        probe = f"{self._folder}{PROBE}{new_mark()}"
        try:
            self._prove(probe)
        except InvalidError:
            with suppress(TidegateError):
                self._bucket.delete(probe)
            raise
        self._bucket.delete(probe)

    def _prove(self, probe: str) -> None:
        if self._creates(probe, b"first") and self._creates(probe, b"second"):
            raise InvalidError(
                f"{self.location}: a put replaced an object although it was only to create it (If-None-Match), so two "
                "job managers could run one job",
                remedy="Choose a storage that honours If-None-Match, as Amazon S3 does: docs/storage.md names them.",
            )
        self._bucket.get(probe)
        if probe not in self._bucket.keys(probe):
            raise InvalidError(
                f"{self.location}: what was just put is not in the listing, so a start could miss the newest "
                "checkpoint",
                remedy="Choose a storage whose listings are consistent, as those of Amazon S3 are.",
            )

    def _creates(self, key: str, data: bytes) -> bool:
        try:
            self._bucket.create(key, data)
        except AlreadyExists:
            return False
        return True

    def put_if_absent(self, path: str, data: bytes) -> None:
        try:
            self._bucket.create(self._key(path), bytes(data))
        except AlreadyExists:
            raise AlreadyExists(path) from None

    def write(self, path: str, data: bytes) -> None:
        self._bucket.replace(self._key(path), bytes(data))

    def read(self, path: str) -> bytes:
        try:
            return self._bucket.get(self._key(path))
        except NotFound:
            raise NotFound(path) from None

    def exists(self, path: str) -> bool:
        return self._bucket.has(self._key(path))

    def list(self, prefix: str) -> list[str]:
        keys = self._bucket.keys(self._folder + checked_prefix(prefix))
        # Others may put what they like beside the blobs, such as the empty objects that consoles show as folders.
        return sorted(path for key in keys if is_path(path := key.removeprefix(self._folder)))

    def delete(self, path: str) -> None:
        self._bucket.delete(self._key(path))

    def _key(self, path: str) -> str:
        return self._folder + checked(path)


def open_s3(url: str, *, writable: bool = False, pauses: Sequence[float] = PAUSES) -> S3Storage:
    """The storage that `s3://bucket/prefix` names; with `writable` it is proved to take writes before this returns."""
    _, bucket, prefix = split_remote(url)
    if _BUCKET.fullmatch(bucket) is None:
        raise InvalidError(f"{bucket!r} cannot be the name of a bucket", remedy="Give s3://bucket/path.")
    storage = S3Storage(bucket, prefix, pauses)
    if writable:
        storage.check_writable()
    return storage

"""Finds values that were changed without the state's knowledge, by looking at all of them at each barrier: for tests.

What it finds is lost otherwise, or in some checkpoints and not in others: a value of a type that is declared immutable
and was changed all the same, and one that was read before a barrier and changed after it without being read again.
"""

from typing import Any

import xxhash

from tidegate.errors import InvalidError
from tidegate.state.object_capture import CapturedState
from tidegate.state.object_handles import ObjectHandle


class MutationCheck:
    """Knows what each value of one state was at the last barrier."""

    def __init__(self, handle: ObjectHandle, where: str) -> None:
        self._handle = handle
        self._where = where
        self._digests: dict[Any, int] = self._look()

    def checked(self, captured: CapturedState) -> CapturedState:
        """To be called at a barrier, before the changes are taken; `captured`, looking once more when it is stored.

        Raises InvalidError, naming state and key.
        """
        digests = self._look()
        changed = self._handle.changed_keys
        for key, digest in digests.items():
            if key not in changed and self._digests.get(key) != digest:
                raise self._error(key, "since the last barrier, without having been read or written")
        self._digests = digests

        def encode(key: Any, value: Any) -> bytes:
            data = captured.encode(key, value)
            if xxhash.xxh3_64_intdigest(data) != digests[key]:
                raise self._error(key, "after the barrier, although its type cannot change")
            return data

        return CapturedState(captured.info, encode)

    def _look(self) -> dict[Any, int]:
        encode = self._handle.encode
        return {key: xxhash.xxh3_64_intdigest(encode(key, value)) for key, value in self._handle.kept.items()}

    def _error(self, key: Any, when: str) -> InvalidError:
        return InvalidError(
            f"state {self._handle.descriptor.name}: the value of key {key!r} was changed {when}",
            remedy="Change a value while its key is the current one, after reading it there; immutable types never.",
            where=self._where,
        )

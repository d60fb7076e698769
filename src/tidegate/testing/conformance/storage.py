"""What every storage must keep, as tests: subclass one of the two classes here and give it its fixtures.

`StorageConformance` needs a pytest fixture `storage`: a fresh, empty storage. `SharedStorageConformance`, for storages
that several processes use, also needs `opener`, a picklable callable that opens the same storage again, and `start`, a
`StartProcess`. The kit itself never starts a process, waits for time or draws a random number. A storage that does not
pass is not supported: the checkpoint log rests on these tests.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

from tidegate.storage.port import AlreadyExists, NotFound, Storage

Opener = Callable[[], Storage]


class RunningProcess(Protocol):
    def kill(self) -> None:
        """End it at once, as `kill -9` does, and return when it is gone."""
        ...

    def join(self) -> None:
        """Wait until it has ended. Raises if it failed."""
        ...


StartProcess = Callable[..., RunningProcess]
"""`start(function, *arguments)`: run the function of an importable module in a process of its own. All arguments can be
pickled. Whoever provides it kills what still runs when the test is over."""

RACERS = 8
RACE_PATHS = tuple(f"race/{number:03d}" for number in range(40))
KILLS = 8
UNUSUAL_CONTENTS = {
    "empty": b"",
    "zeros": bytes(3),
    "text": "Ωmega, naïve, 漢字, \U0001f30a\r\n".encode(),
    "not-text": bytes(range(256)),
    "large": b"0123456789abcdef" * (5 * 1024 * 1024 // 16),
}


class StorageConformance:
    """What one process sees of a storage."""

    def test_what_was_put_is_read_back_whatever_the_bytes(self, storage: Storage) -> None:
        for name, data in UNUSUAL_CONTENTS.items():
            storage.put_if_absent(f"put/{name}", data)
            storage.write(f"written/{name}", data)
        for name, data in UNUSUAL_CONTENTS.items():
            assert storage.read(f"put/{name}") == data, f"put_if_absent, then read: {name} differs"
            assert storage.read(f"written/{name}") == data, f"write, then read: {name} differs"

    def test_a_put_over_something_changes_nothing(self, storage: Storage) -> None:
        storage.put_if_absent("a/path", b"first")
        assert _raises(AlreadyExists, lambda: storage.put_if_absent("a/path", b"second")), "the second put went through"
        assert storage.read("a/path") == b"first"

    def test_a_put_of_the_same_bytes_is_refused_too(self, storage: Storage) -> None:
        data = b"the very same"
        storage.put_if_absent("a/path", data)
        assert _raises(AlreadyExists, lambda: storage.put_if_absent("a/path", data)), "the second put went through"

    def test_what_was_written_is_held_against_a_put(self, storage: Storage) -> None:
        storage.write("a/path", b"")
        assert _raises(AlreadyExists, lambda: storage.put_if_absent("a/path", b"other")), "an empty blob did not count"

    def test_a_write_replaces_the_whole_content(self, storage: Storage) -> None:
        storage.write("a/path", b"long content")
        storage.write("a/path", b"short")
        assert storage.read("a/path") == b"short"

    def test_the_content_is_what_the_bytes_were_at_the_call(self, storage: Storage) -> None:
        data = bytearray(b"before")
        storage.put_if_absent("a/path", cast(bytes, data))
        data[:] = b"after!"
        assert storage.read("a/path") == b"before"

    def test_what_is_not_there_is_not_found(self, storage: Storage) -> None:
        storage.put_if_absent("a/path", b"")
        assert storage.exists("a/path"), "an empty blob does not exist"
        assert not storage.exists("a/other")
        assert not storage.exists("b/path")
        assert _raises(NotFound, lambda: storage.read("a/other"))
        assert _raises(NotFound, lambda: storage.read("b/path"))

    def test_a_listing_is_sorted_and_goes_by_whole_folder_names(self, storage: Storage) -> None:
        paths = ["a/10", "a/9", "a/b/c/d", "a.b/x", "ab/x", "top"]
        for path in paths:
            storage.put_if_absent(path, path.encode())
        assert storage.list("") == sorted(paths)
        assert storage.list("a/") == ["a/10", "a/9", "a/b/c/d"]
        assert storage.list("a/b/") == ["a/b/c/d"]
        assert storage.list("nothing/") == []

    def test_a_fresh_storage_is_empty(self, storage: Storage) -> None:
        assert storage.list("") == []
        assert not storage.exists("a/path")

    def test_what_was_deleted_is_gone_and_may_be_put_again(self, storage: Storage) -> None:
        storage.put_if_absent("a/path", b"first")
        storage.put_if_absent("a/other", b"stays")
        storage.delete("a/path")
        assert not storage.exists("a/path")
        assert storage.list("") == ["a/other"]
        assert _raises(NotFound, lambda: storage.read("a/path"))
        storage.put_if_absent("a/path", b"second")
        assert storage.read("a/path") == b"second"

    def test_deleting_what_is_not_there_does_nothing(self, storage: Storage) -> None:
        storage.delete("a/path")
        storage.put_if_absent("a/path", b"")
        storage.delete("a/other")
        assert storage.list("") == ["a/path"]

    def test_its_location_can_be_shown(self, storage: Storage) -> None:
        assert storage.location


class SharedStorageConformance(StorageConformance):
    """What several processes see of a storage, one of which may be killed at any moment."""

    def test_another_process_finds_what_was_put(self, storage: Storage, opener: Opener, start: StartProcess) -> None:
        storage.put_if_absent("from/parent", b"ping")
        start(answer, opener).join()
        assert storage.read("from/child") == b"ping"

    def test_of_racing_writers_exactly_one_wins_each_path(
        self, storage: Storage, opener: Opener, start: StartProcess
    ) -> None:
        racers = [start(race, opener, racer) for racer in range(RACERS)]
        for process in racers:
            process.join()
        winners: dict[str, list[int]] = {path: [] for path in RACE_PATHS}
        for racer in range(RACERS):
            for path in storage.read(f"won/{racer}").decode().split():
                winners[path].append(racer)
        for path, winning in winners.items():
            assert len(winning) == 1, f"{path} was won by {winning}"
            assert storage.read(path) == content(path, winning[0]), f"{path} does not hold what its winner put"
        assert storage.list("race/") == list(RACE_PATHS), "a listing shows unfinished writes or lacks a path"

    def test_a_killed_writer_leaves_nothing_torn(self, storage: Storage, opener: Opener, start: StartProcess) -> None:
        for kill in range(KILLS):
            folder = f"killed/{kill}/"
            writer = start(put_for_ever, opener, folder)
            while len(storage.list(folder)) <= kill:
                pass
            for _ in range(7 * kill):  # so that the kills fall on different moments of a put
                storage.exists(folder + "0")
            writer.kill()
            _expect_whole(storage, folder)

    def test_after_a_kill_another_writer_goes_on(self, storage: Storage, opener: Opener, start: StartProcess) -> None:
        writer = start(put_for_ever, opener, "killed/")
        while not storage.list("killed/"):
            pass
        writer.kill()
        path = _unused(storage, "killed/")
        storage.put_if_absent(path, content(path, 0))
        _expect_whole(storage, "killed/")


def content(path: str, writer: int) -> bytes:
    """What `writer` puts at `path`: of the path's own size, and different in every part for every writer."""
    digest = hashlib.sha256(f"{path} {writer}".encode()).digest()
    return digest * (1 + int.from_bytes(hashlib.sha256(path.encode()).digest()[:2]) % 8192)


def answer(opener: Opener) -> None:
    """In a process of its own: copy what the parent put."""
    storage = opener()
    storage.put_if_absent("from/child", storage.read("from/parent"))


def race(opener: Opener, racer: int) -> None:
    """In a process of its own: once all racers are there, try every path, and write down which were won."""
    storage = opener()
    storage.put_if_absent(f"ready/{racer}", b"")
    while len(storage.list("ready/")) < RACERS:
        pass
    won = [path for path in RACE_PATHS if not _raises(AlreadyExists, _put(storage, path, racer))]
    storage.write(f"won/{racer}", "\n".join(won).encode())


def put_for_ever(opener: Opener, folder: str) -> None:
    """In a process of its own, until it is killed: put one path after the other."""
    storage = opener()
    for number in itertools.count():
        path = f"{folder}{number}"
        storage.put_if_absent(path, content(path, 0))


def _put(storage: Storage, path: str, writer: int) -> Callable[[], None]:
    return lambda: storage.put_if_absent(path, content(path, writer))


def _expect_whole(storage: Storage, folder: str) -> None:
    paths = storage.list(folder)
    assert paths == sorted(f"{folder}{number}" for number in range(len(paths))), f"unexpected paths: {paths}"
    torn = [path for path in paths if storage.read(path) != content(path, 0)]
    assert not torn, f"visible, but not whole: {torn}"


def _unused(storage: Storage, folder: str) -> str:
    paths: Iterable[str] = (f"{folder}{number}" for number in itertools.count())
    return next(path for path in paths if not storage.exists(path))


def _raises(kind: type[Exception], call: Callable[[], Any]) -> bool:
    try:
        call()
    except kind:
        return True
    return False

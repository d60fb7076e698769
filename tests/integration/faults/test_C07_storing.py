"""The storage does not take a completed checkpoint, or takes it and does not say so, or a process dies while it writes,
or nothing can be read when the job starts: nothing is visible that is not recorded, and nothing recorded is passed over
(C07, C08, C09, C10)."""

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.exactly_once import answer_of
from tests.integration.retaining import JOB, USERS, Totals
from tests.integration.running import Bench, orders
from tests.integration.totals_program import Total
from tidegate.checkpoint.log import Completed, Entry, LogView, view_log
from tidegate.checkpoint.manifest import Manifest
from tidegate.checkpoint.store import decode_entry
from tidegate.errors import UnavailableError
from tidegate.ids import LogPosition
from tidegate.storage.local import LocalStorage
from tidegate.storage.port import StorageUnavailable

Put = Callable[[LocalStorage, str, bytes], None]


class Entries:
    """What becomes of the writes of completed checkpoints: `judge` is asked with the number of the try, from 1 in each
    checkpoint, and says whether the storage fails before or after it, or not at all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, judge: Callable[[int, int], str]) -> None:
        self.tries: dict[int, int] = {}
        self.covers: dict[int, int] = {}
        """How many records each checkpoint covers."""
        self.seen: list[int] = []
        """How many results were visible at each failure."""
        self.look: Callable[[], int] = lambda: 0
        put: Put = LocalStorage.put_if_absent

        def failing(storage: LocalStorage, path: str, data: bytes) -> None:
            manifest = completed_in(data) if "/log/" in path else None
            checkpoint = manifest.checkpoint if manifest is not None else 0
            if manifest is not None:
                self.tries[checkpoint] = self.tries.get(checkpoint, 0) + 1
                self.covers[checkpoint] = sum(one.position for record in manifest.operators for one in record.splits)
            fate = judge(checkpoint, self.tries[checkpoint]) if checkpoint else "fine"
            if fate == "before":
                self.fail()
            put(storage, path, data)
            if fate == "after":
                self.fail()

        monkeypatch.setattr(LocalStorage, "put_if_absent", failing)

    def fail(self) -> None:
        self.seen.append(self.look())
        raise StorageUnavailable("the storage does not answer")


def completed_in(data: bytes) -> Manifest | None:
    """What an entry of the log is the completion of; None of nothing."""
    position = int(data.partition(b'"position":')[2].partition(b",")[0])
    entry = decode_entry(LogPosition(position), data)
    assert isinstance(entry, Entry)
    return entry.body.manifest if isinstance(entry.body, Completed) else None


@pytest.fixture
def totals(tmp_path: Path) -> Totals:
    made = Totals(tmp_path / "job", "fs")
    made.feed(USERS)
    return made


# ---- the log does not take it --------------------------------------------------------------------------------------


def test_C07_nothing_of_a_checkpoint_is_visible_while_the_log_does_not_take_it_and_the_next_one_waits(
    totals: Totals, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = Entries(monkeypatch, lambda checkpoint, tried: "before" if checkpoint % 2 and tried <= 2 else "fine")
    entries.look = lambda: len(totals.output(Total))
    totals.run_totals(2, 4)
    assert set(entries.tries) >= {1, 2, 3, 4}
    assert [entries.tries[n] for n in (1, 2, 3)] == [3, 1, 3]
    # At each failure of the first checkpoint nothing was out; at those of the third what the second had covered.
    assert entries.seen[:2] == [0, 0]
    assert len(set(entries.seen[2:4])) == 1
    totals.assert_right()
    assert view_log(totals.store.read_log()).attempt == 1, "the attempt failed"


@pytest.mark.slow
def test_C07_a_disk_that_refuses_the_completed_checkpoint_holds_back_its_commits_until_it_takes_it(
    bench: Bench,
) -> None:
    found = orders(0, 6000, 100)
    bench.append(found)
    started = bench.start("--bounded", "--pause", "0.0005")
    started.wait_until(lambda: bench.view().newest is not None, "a checkpoint")
    # As on a full disk: the JobManager may write what it says, and no entry of a checkpoint; the workers may.
    limits = resource.prlimit(started.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(started.pid, resource.RLIMIT_FSIZE, (3000, limits[1]))
    started.wait_until(lambda: "log does not answer" in started.said, "a refusal")
    for _ in range(20):
        out = len(bench.output())
        assert out <= bench.read_up_to(), "something is visible that no completed checkpoint covers"
        time.sleep(0.02)
    held = bench.view().newest
    resource.prlimit(started.pid, resource.RLIMIT_FSIZE, limits)
    started.wait_until(lambda: bench.view().newest != held, "the checkpoint that was refused")
    assert started.wait() == 0, started.said
    bench.assert_right(answer_of(found))
    assert bench.view().attempt == 1, "the attempt failed"


# ---- it took it and nobody knows -----------------------------------------------------------------------------------


def test_C08_a_checkpoint_that_the_log_took_without_saying_so_completes_and_keeps_its_files(
    totals: Totals, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = Entries(monkeypatch, lambda _, tried: "after" if tried == 1 else "fine")
    totals.run_totals(2, 4)
    assert all(tries >= 2 for tries in entries.tries.values()), entries.tries
    totals.assert_right()
    assert totals.store.state_files(), "the state was small enough for the manifests"
    assert view_log(totals.store.read_log()).attempt == 1, "the attempt failed"


def test_C08_of_an_attempt_that_dies_without_an_answer_the_next_takes_what_the_log_says(
    totals: Totals, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Death(Exception):
        """Of the process: nobody may catch it and go on."""

    def judge(checkpoint: int, _: int) -> str:
        """Of the third, or the first behind it that has something to commit."""
        covers = entries.covers
        if checkpoint < 3 or covers[checkpoint] == max(covers[other] for other in covers if other < checkpoint):
            return "fine"
        raise_after.append(checkpoint)
        return "after"

    raise_after: list[int] = []
    entries = Entries(monkeypatch, judge)

    def die() -> None:
        raise Death

    monkeypatch.setattr(entries, "fail", die)
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is told as, the process is gone
        totals.run_totals(2, 12)
    assert len(raise_after) == 1, "it went on"
    monkeypatch.undo()
    view = view_log(totals.store.read_log())
    assert view.newest is not None
    assert [view.newest.checkpoint] == raise_after
    covered = totals.covered
    assert len(totals.output(Total)) < covered, "its output was committed without an answer"
    totals.feed(100)
    totals.run_totals(3)
    totals.assert_right()


# ---- half of it ----------------------------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from tidegate.storage.local import LocalStorage

storage = LocalStorage(Path(sys.argv[1]))
data = b"x" * int(sys.argv[2])
for number in range(1_000_000):
    print(number, flush=True)
    storage.put_if_absent(f"job/log/{number:020d}.json", data)
"""


def test_C09_whoever_is_killed_while_it_writes_leaves_whole_files_and_nothing_else(tmp_path: Path) -> None:
    size, begun = 300_000, 0
    for round_ in range(3):
        folder = tmp_path / str(round_)
        command = [sys.executable, "-c", WRITER, str(folder), str(size)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(3 + round_):
                begun = int(process.stdout.readline())
            process.kill()
        storage = LocalStorage(folder)
        storage.check_writable()
        paths = storage.list("job/log/")
        assert len(paths) >= begun
        assert {len(storage.read(path)) for path in paths} <= {size}
        assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == paths


def test_C09_a_newest_entry_cut_off_at_any_byte_is_never_restored_and_never_passed_over(totals: Totals) -> None:
    totals.run_totals(2, 3)
    log = totals.checkpoints / JOB / "log"
    position = view_log(totals.store.read_log()).completed[-1].position
    path = log / f"{position:020d}.json"
    whole = path.read_bytes()
    for later in log.iterdir():
        if later.name > path.name:
            later.unlink()
    newest = view_log(totals.store.read_log()).newest
    assert newest is not None
    step = max(1, len(whole) // 150)
    for length in [*range(40), *range(40, len(whole), step), *range(len(whole) - 40, len(whole))]:
        path.write_bytes(whole[:length])
        view = view_log(totals.store.read_log())
        assert is_noticed(view, newest.checkpoint), f"cut off after {length} of {len(whole)} bytes"
    path.write_bytes(whole)
    assert view_log(totals.store.read_log()).newest == newest


def is_noticed(view: LogView, checkpoint: int) -> bool:
    """Whether the checkpoint is not there, and its place is known as damage above the newest that is."""
    restored = view.newest.checkpoint if view.newest is not None else 0
    return restored < checkpoint and view.damage is not None


# ---- nothing can be read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["/log/", "/shared/"])
def test_C10_a_storage_that_does_not_answer_for_a_while_is_asked_again_and_the_newest_checkpoint_restored(
    totals: Totals, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    totals.run_totals(2, 3)
    newest, out = totals.newest, len(totals.output(Total))
    assert newest is not None
    failures = 0
    read = LocalStorage.read

    def failing(storage: LocalStorage, path: str) -> bytes:
        nonlocal failures
        if what in path and failures < 3:
            failures += 1
            raise StorageUnavailable("the storage does not answer")
        return read(storage, path)

    monkeypatch.setattr(LocalStorage, "read", failing)
    totals.feed(50)
    for _ in range(4):
        # A supervisor repeats the command where it ended because nothing could be read.
        with suppress(UnavailableError):
            totals.run_totals(3)
            break
    assert failures == 3
    assert len(totals.output(Total)) == out + 50
    totals.assert_right()


@pytest.mark.parametrize(
    "harm", ["removed", *(pytest.param(one, marks=pytest.mark.slow) for one in ("cut off", "changed"))]
)
def test_C10_a_file_of_the_newest_checkpoint_that_is_not_whole_stops_every_start_and_nothing_is_put_out(
    totals: Totals, harm: str
) -> None:
    totals.run_totals(2, 3)
    totals.feed(50)
    out = totals.output(Total)
    stored = totals.stored_files()
    (path, data), *_ = ((path, data) for path, data in sorted(stored.items()) if "/shared/" in path)
    if harm == "removed":
        Path(path).unlink()
    else:
        Path(path).write_bytes(data[:-7] if harm == "cut off" else data[:50] + bytes([data[50] ^ 1]) + data[51:])
    for _ in range(2):
        with pytest.raises(Exception, match="--from-checkpoint") as caught:
            totals.run_totals(2)
        assert type(caught.value).__name__ in ("CorruptError", "LostDataError")
        assert totals.output(Total) == out
    Path(path).write_bytes(data)
    totals.run_totals(3)
    totals.assert_right()

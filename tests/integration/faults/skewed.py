"""The job of `skewed_program` on a bench, and the check that each of its checkpoints is one cut."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

import tidegate as tg
from tests.integration.faults import skewed_program
from tests.integration.faults.skewed_program import OPERATOR, Record
from tests.integration.mediums import LogMedium
from tests.integration.running import Bench, Started
from tidegate.checkpoint.log import Completed, Entry
from tidegate.checkpoint.manifest import Manifest
from tidegate.ids import OperatorName

JOB = "skewed"
INPUT, OUTPUT = "in", "passed"
KEEPS_ALL = ("--set", "checkpoints.retained=1000")


class Skewed:
    """Its input has `counts[n]` records in partition n, of which `slow` takes `pause` seconds for each."""

    def __init__(self, bench: Bench, folder: Path, counts: Sequence[int], slow: int = -1, pause: float = 0.0) -> None:
        self.bench = bench
        self.counts = counts
        self.ready = folder / "ready"
        """Made when the last task is ready."""
        self._medium = LogMedium(folder / "log")
        self._arguments = ["--log", str(folder / "log"), "--input", INPUT, "--output", OUTPUT, "--job", JOB]
        self._arguments += ["--slow", str(slow), "--pause", str(pause)]
        self._medium.create_topic(INPUT, len(counts))
        records = [[Record(origin, number) for number in range(count)] for origin, count in enumerate(counts)]
        self._medium.append(INPUT, [list(map(msgspec.json.encode, of_one)) for of_one in records])

    def start(self, *options: str, fail_point: str = "", start_up: float = 0.0) -> Started:
        arguments = [*self._arguments, "--start-up", str(start_up), "--ready", str(self.ready)]
        return self.bench.start_program(
            str(skewed_program.__file__), arguments, JOB, fail_point, [*KEEPS_ALL, "--set", "batch.size=4", *options]
        )

    def manifests(self) -> list[Manifest]:
        """Of every completed checkpoint, oldest first."""
        if not self.bench.checkpoints.exists():
            return []
        bodies = [entry.body for entry in self.bench.view(JOB).entries if isinstance(entry, Entry)]
        return [body.manifest for body in bodies if isinstance(body, Completed)]

    def problems(self, manifest: Manifest) -> list[str]:
        """In what the state of a checkpoint is not that of exactly the records that its positions cover."""
        read = positions(manifest)
        found: dict[str, dict[int, int]] = {"records": {}, "sums": {}}
        folder = self.bench.checkpoints / JOB
        for row in tg.read_state(folder, OPERATOR, checkpoint=manifest.checkpoint):
            of_state = found[row["state"]]
            for origin, amount in row["value"].items():
                of_state[int(origin)] = of_state.get(int(origin), 0) + amount
        return cut_problems(read, found["records"], found["sums"])

    def assert_right(self) -> None:
        """After the end: every checkpoint that is kept is a cut, and the output is the input."""
        for manifest in self.manifests():
            assert self.problems(manifest) == [], f"checkpoint {manifest.checkpoint}"
        values = [value for of_one in self._medium.read(OUTPUT) for value in of_one]
        passed = sorted((record.origin, record.number) for record in map(_record, values))
        assert passed == [(origin, number) for origin, count in enumerate(self.counts) for number in range(count)]
        assert self._medium.open_transactions() == []
        self.bench.assert_nothing_is_left(JOB)


def positions(manifest: Manifest) -> dict[int, int]:
    """How far each partition was read."""
    record = manifest.operator(OperatorName("in"))
    assert record is not None
    splits = [*record.splits]
    return {int(split.id.rpartition("/")[2]): split.position for split in splits}


def cut_problems(read: dict[int, int], records: dict[int, int], sums: dict[int, int]) -> list[str]:
    """Records are numbered from 0 in each partition, so their number and their sum say which they were."""
    problems = []
    for origin in sorted({*read, *records, *sums}):
        count = read.get(origin, 0)
        found = (records.get(origin, 0), sums.get(origin, 0))
        if found != (count, count * (count - 1) // 2):
            problems.append(f"of partition {origin} {count} are read, and of {found} count and sum are in the state")
    return problems


def _record(value: bytes) -> Record:
    return msgspec.json.decode(value, type=Record)

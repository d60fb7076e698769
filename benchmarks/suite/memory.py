"""What a key takes of memory and of time, with state as objects and in RocksDB: `python -m benchmarks.suite.memory
--help`.

Running totals read the same number of records with few and with many keys. What a key takes is the difference between
the peaks of resident memory, over the difference of the keys. Every run is checked.
"""

import sys
from collections.abc import Sequence

import msgspec

from benchmarks.suite import systems
from benchmarks.suite.contracts import System, Workload
from benchmarks.suite.measure import Measured, Plan
from benchmarks.suite.measures.publish import ended, parser_of, publish, table
from benchmarks.suite.measures.quantiles import NoMeasure
from benchmarks.suite.measures.stage import Stage, stage
from benchmarks.suite.measures.variants import Variant
from benchmarks.suite.workloads import Data

FEW = 1_000
KEYS = (10_000, 100_000, 1_000_000)
BACKENDS = {"fs": "objects", "rocksdb": "RocksDB"}


class Memory(msgspec.Struct, frozen=True):
    backend: str
    keys: int
    peak: int
    """Bytes, of all processes of the job."""
    bytes_per_key: float | None
    """None for the few keys to which the others are compared."""
    rate: float


def of(backend: str, runs: Sequence[tuple[int, Measured]]) -> list[Memory]:
    """By number of keys, the fewest first, to which the others are compared. Raises NoMeasure without any."""
    if not runs:
        raise NoMeasure("nothing was measured")
    few, least = runs[0]
    return [
        Memory(
            backend,
            keys,
            run.peak_memory,
            None if keys == few else (run.peak_memory - least.peak_memory) / (keys - few),
            run.rate,
        )
        for keys, run in runs
    ]


def measure(at: Stage, system: System, records: int, keys: Sequence[int]) -> list[tuple[int, Measured]]:
    """Raises what `Measuring.measure` raises."""
    runs = []
    for count in (FEW, *keys):
        at.say(f"{count:,} keys")
        runs.append((count, at.measuring.measure(system, Plan(Workload.TOTALS, 1, Data(records, count)))))
    return runs


def text_of(rows: Sequence[Memory]) -> str:
    head = ["state, keys", "peak memory of the job", "bytes of a key", "records/s"]
    return table(
        head,
        [
            [
                f"{BACKENDS[row.backend]}, {row.keys:,}",
                f"{row.peak / 1e6:,.0f} MB",
                "" if row.bytes_per_key is None else f"{row.bytes_per_key:,.0f}",
                f"{row.rate:,.0f}",
            ]
            for row in rows
        ],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_of("memory", __doc__, "2 minutes")
    parser.add_argument("--keys", type=int, nargs="+", default=KEYS)
    parser.add_argument("--records", type=int, help="of each run; by default one for each of the most keys")
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=list(BACKENDS))
    parser.add_argument("--system", default="tidegate", help="or with a client of Kafka: tidegate-librdkafka")
    options = parser.parse_args(arguments)
    rows: list[Memory] = []
    with stage() as at:
        for backend in options.backends:
            system = Variant(systems.load(options.system), {"TIDEGATE_STATE_BACKEND": backend})
            rows += of(backend, measure(at, system, options.records or max(options.keys), sorted(options.keys)))
    publish("memory", rows, text_of(rows), write=options.write)


if __name__ == "__main__":
    sys.exit(ended(main))

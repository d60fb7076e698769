"""Throughput of the flights example on the embedded log, with one and with two workers, measured over whole processes.

The month's flights are put into a topic several times over; then `tidegate run` reads all of them, keeps totals by
carrier and writes one record for each. A run over an empty topic shows what starting and ending cost.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from tidegate.checkpoint.log import view_log
from tidegate.checkpoint.store import CheckpointStore
from tidegate.deploy.demo_answer import EXAMPLES, read_flights
from tidegate.ids import JobName
from tidegate.local import LocalLog
from tidegate.storage.resolve import open_storage

PARTITIONS = 4
TIDEGATE = (sys.executable, "-c", "from tidegate.cli.main import main; main()")


class Run(NamedTuple):
    """One run of the job. Durations in seconds."""

    workers: int
    records: int
    whole: float
    """From the start of the process to its end."""
    checkpoints: list[float]
    """From trigger to last acknowledgement."""


def fill(folder: Path, copies: int) -> int:
    """Put the month into the topic so many times; the number of records."""
    rows = read_flights() if copies else []
    keys = [row["carrier"].encode() for row in rows]
    delays = [None if row["dep_delay"] == "NA" else int(row["dep_delay"]) for row in rows]
    values = [
        msgspec.json.encode({"carrier": row["carrier"], "flight": int(row["flight"]), "dep_delay": delay})
        for row, delay in zip(rows, delays, strict=True)
    ]
    with LocalLog(folder) as log:
        log.create_topic("flights", PARTITIONS)
        for _ in range(copies):
            log.append("flights", None, values, keys)
    return copies * len(rows)


def measure(workers: int, copies: int, interval: str) -> Run:
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
        folder = Path(name)
        records = fill(folder / "log", copies)
        options = ["--parallelism", str(workers), "--checkpoint-interval", interval]
        options += ["--set", "checkpoints.retained=1000000", "--checkpoint-dir", str(folder / "checkpoints")]
        command = [*TIDEGATE, "run", str(EXAMPLES / "flights.py"), *options, "--"]
        begin = time.monotonic()
        subprocess.run([*command, "--log", str(folder / "log"), "--bounded"], check=True, stderr=subprocess.DEVNULL)
        whole = time.monotonic() - begin
        with LocalLog(folder / "log") as log:
            written = sum(len(log.read("carriers", partition)) for partition in range(log.partitions("carriers")))
        if written != records:
            raise SystemExit(f"{records} records went in and {written} came out: this measures nothing")
        stored = CheckpointStore(open_storage(str(folder / "checkpoints")), JobName("flights")).read_log()
        return Run(workers, records, whole, [manifest.duration for manifest in view_log(stored).manifests])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=int, default=10, help="how often the month is read (27,004 records each)")
    parser.add_argument("--checkpoint-interval", default="500ms")
    options = parser.parse_args()
    print("workers  records  whole job  start and end  records/s  checkpoint median  longest")
    for workers in (1, 2):
        empty = measure(workers, 0, options.checkpoint_interval)
        run = measure(workers, options.copies, options.checkpoint_interval)
        rate = run.records / (run.whole - empty.whole)
        middle, longest = statistics.median(run.checkpoints) * 1000, max(run.checkpoints) * 1000
        print(
            f"{workers:7}  {run.records:7}  {run.whole:7.2f} s  {empty.whole:11.2f} s  {rate:9,.0f}"
            f"  {middle:14.0f} ms  {longest:4.0f} ms"
        )


if __name__ == "__main__":
    main()

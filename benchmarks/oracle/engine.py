"""Tidegate's side: a case's program run to its end in this process, and the rows that it has given.

Where records are late, a watermark follows each record: batches are of one record, and watermarks are made as soon
as there is a new one. So which record is late depends on the records alone, as it does on Flink's side. Where none is
late, nothing may depend on batches, watermarks and parallelism: there they are as usual, and with two subtasks.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

import tidegate as tg
from benchmarks.oracle import stepped
from benchmarks.oracle.cases import Case
from benchmarks.oracle.comparison import Row, row_of
from benchmarks.oracle.joins import PROGRAMS as JOINS
from benchmarks.oracle.windows import counted, windows
from tidegate.config import ConfigLayers, StartOptions
from tidegate.deploy.launch import run_job
from tidegate.local import LocalLog, LocalSink
from tidegate.metrics import JobStatus, Level

PROGRAMS = {"windows": windows, "count-windows": counted, **JOINS}
_LATE: dict[str, Any] = {"batch_size": 1, "watermark_interval": timedelta(microseconds=1)}
_IN_TIME: dict[str, Any] = {"parallelism": 2, "watermark_interval": "20ms"}


class _Silent:
    """Shows nothing: how far the comparison is, is said by others."""

    def update(self, status: JobStatus) -> None:
        """See the class."""

    def event(self, level: Level, text: str, **fields: object) -> None:
        """See the class."""

    def close(self) -> None:
        """See the class."""


def run(case: Case, data: Path, folder: Path) -> list[Row]:
    """The rows of `case` over the files in `data`; everything that the job keeps goes into `folder`. Blocks. Raises the
    TidegateError with which the job ends."""
    if case.program in stepped.JOINS:
        return stepped.run(case, data)
    checkpoints: dict[str, Any] = {"checkpoint_dir": folder / "checkpoints", "checkpoint_interval": "200ms"}
    config = tg.Config(**checkpoints, **(_IN_TIME if case.is_in_time else _LATE))
    job = tg.Job("oracle", config=config)
    rows = PROGRAMS[case.program](job, case, data)
    rows.sink(LocalSink(folder / "log", "rows", value=tg.Json(list), partitions=1), name="rows")
    layers = ConfigLayers(folder, folder, str(folder / "checkpoints"))
    run_job(job, layers, StartOptions(in_process=True), lambda log_format: _Silent())
    with LocalLog(folder / "log") as log:
        return [row_of(record.value) for record in log.read("rows", 0) if record.value is not None]

"""A job that asks something outside about each record, and whose workers die in the middle. Every call that begins
leaves a line in `called`; one for whose record there is a file in `deaths` takes that away and kills its worker."""

import asyncio
import os
import signal
import time
from pathlib import Path

import tidegate as tg
from tidegate.local import LocalSink, LocalSource

FOLDER = Path(__file__).parent


def note(number: str) -> None:
    with (FOLDER / "called").open("ab", buffering=0) as file:
        file.write(f"{number}\n".encode())
    death = FOLDER / "deaths" / number
    if death.exists():
        death.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


class Ask(tg.AsyncFunction[str, str]):
    async def open(self, ctx: tg.Context) -> None:
        self.greeting = "asked"

    async def call(self, value: str) -> str:
        note(value)
        await asyncio.sleep(0.02 + int(value) % 7 * 0.01)
        return f"{value} {self.greeting}"


def ask_plainly(value: str) -> str:
    note(value)
    time.sleep(0.02 + int(value) % 7 * 0.01)
    return f"{value} asked"


def build(argv: list[str]) -> tg.Job:
    job = tg.Job("asking")
    stream = job.source(LocalSource(FOLDER / "log", "in", value=tg.String(), bounded=True), name="in")
    ordered = "unordered" not in argv
    if "threads" in argv:
        asked = stream.async_map(ask_plainly, name="ask", type=str, capacity=16, threads=8, ordered=ordered)
    else:
        asked = stream.async_map(Ask(), name="ask", type=str, capacity=16, ordered=ordered)
    asked.sink(LocalSink(FOLDER / "log", "out", value=tg.String(), partitions=2), name="out")
    return job


if __name__ == "__main__":
    tg.main(build)

"""The example of the delays and the weather: its answer is the one that a DataFrame library gives, record by record,
also when it is killed in the middle, and every departure that comes too late is counted and nowhere else."""

import csv
import gzip
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest

from tests.integration.programs import TIDEGATE, log_of, run
from tests.integration.stepping import kill_all
from tests.integration.user_programs import Running
from tidegate.api.job import Job
from tidegate.deploy.program import load, spec_of_target
from tidegate.local import LocalLog

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "flights_weather.py"
TEXTS = {"carrier", "origin", "dest"}
Row = dict[str, str]
Answer = list[tuple[Any, ...]]
"""Carrier, beginning of the hour, number of flights, mean delay, mean wind, lowest visibility; sorted."""


def read(file: str) -> list[Row]:
    with gzip.open(EXAMPLES / "data" / f"{file}-2013-01.csv.gz", "rt", encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


FLIGHTS, WEATHER = read("flights"), read("weather")


# ---- the answer, with nothing of the engine or of the program ------------------------------------------------------


def answer_of(flights: Sequence[Row], weather: Sequence[Row]) -> Answer:
    left, held = departures(flights), reports(weather)
    joined = pd.merge_asof(left, held, on="at", by="origin", tolerance=pd.Timedelta("2h"))
    joined["hour"] = joined["at"].dt.floor("h")
    by_hour = joined.groupby(["carrier", "hour"])
    rows = by_hour.agg(
        flights=("flight", "size"), delay=("dep_delay", "mean"), wind=("wind_speed", exact_mean), low=("visib", "min")
    ).reset_index()
    starts = rows["hour"].dt.tz_convert("UTC").dt.tz_localize(None).astype("datetime64[ms]").astype("int64")
    columns = [rows["carrier"], starts, rows["flights"], rows["delay"], rows["wind"], rows["low"]]
    return sorted(zip(*(map(known, column.tolist()) for column in columns), strict=True))


def departures(flights: Sequence[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(flights)
    frame["dep_delay"] = pd.to_numeric(frame["dep_delay"], errors="coerce")
    frame = frame[frame["dep_delay"].notna()]
    clock = pd.to_numeric(frame["sched_dep_time"])
    scheduled = midnight(frame) + pd.to_timedelta(clock // 100, "h") + pd.to_timedelta(clock % 100, "min")
    frame["at"] = scheduled.dt.tz_localize("America/New_York") + pd.to_timedelta(frame["dep_delay"], "min")
    return frame.sort_values("at", kind="stable")


def reports(weather: Sequence[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(weather)
    for column in ("wind_speed", "visib"):
        frame[column] = pd.to_numeric(frame[column], errors="coerce")
    begun = midnight(frame) + pd.to_timedelta(pd.to_numeric(frame["hour"]), "h")
    frame["at"] = begun.dt.tz_localize("America/New_York")
    return frame[["origin", "at", "wind_speed", "visib"]].sort_values("at", kind="stable")


def midnight(frame: pd.DataFrame) -> Any:
    return pd.to_datetime("2013-" + frame["month"] + "-" + frame["day"], format="%Y-%m-%d")


def exact_mean(values: Any) -> float:
    """The sum without what each addition loses, which depends on the order."""
    values = values.dropna()
    return math.fsum(values) / len(values) if len(values) else math.nan


def known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


# ---- the job -------------------------------------------------------------------------------------------------------


def built(*arguments: str) -> Job:
    return load(spec_of_target(str(EXAMPLE), arguments, Path.cwd(), ()))


class Topics:
    """The embedded log of a folder."""

    def __init__(self, folder: Path, partitions: int = 4) -> None:
        """`partitions`: of the departures."""
        self.folder = folder
        with LocalLog(folder / "log") as log:
            for topic, count in (("departures", partitions), ("weather", 1), ("delays", 4), ("late", 1)):
                log.create_topic(topic, count)

    def append(self, topic: str, rows: Iterable[Row]) -> int:
        """As the loading job writes them. Returns how many."""
        found = list(rows)
        values = [msgspec.json.encode({name: typed(name, value) for name, value in row.items()}) for row in found]
        with LocalLog(self.folder / "log") as log:
            log.append(topic, None, values, [row.get("carrier", "").encode() for row in found])
        return len(values)

    def records(self, topic: str) -> list[Any]:
        with LocalLog(self.folder / "log", create=False) as log:
            return [
                msgspec.json.decode(record.value or b"")
                for partition in range(log.partitions(topic))
                for record in log.read(topic, partition)
            ]

    @property
    def answer(self) -> Answer:
        return sorted((row["carrier"], row["start"], *row["delays"].values()) for row in self.records("delays"))

    @property
    def late(self) -> list[Row]:
        """The flights that came too late, as rows; their numbers are looked at."""
        records = self.records("late")
        for origin in ("EWR", "JFK", "LGA"):
            numbers = [record["number"] for record in records if record["origin"] == origin]
            assert numbers == list(range(1, len(numbers) + 1))
        return [
            {name: str(value) for name, value in record["flight"].items()} | {"origin": record["origin"]}
            for record in records
        ]


def typed(column: str, value: str) -> object:
    if value == "NA" or column in TEXTS:
        return None if value == "NA" else value
    return float(value) if "." in value else int(value)


def without(flights: Sequence[Row], late: Sequence[Row]) -> list[Row]:
    """The flights but those; each of those is one of them, and left."""
    identity = ("month", "day", "carrier", "flight", "origin", "sched_dep_time", "dep_delay")
    gone = {tuple(row[name] for name in identity) for row in late}
    kept = [row for row in flights if tuple(row[name] for name in identity) not in gone]
    assert len(kept) + len(late) == len(flights)
    assert all(row["dep_delay"] != "None" for row in late)
    return kept


def test_departures_are_joined_with_the_weather_and_counted_by_hour(tmp_path: Path) -> None:
    job = built("--log", str(tmp_path / "log"))
    assert [(node.kind, str(node.name)) for node in job.graph().nodes] == [
        ("source", "flights"),
        ("source", "weather"),
        ("filter", "departures"),
        ("key_by", "departures-key"),
        ("key_by", "weather-key"),
        ("temporal join", "in-weather"),
        ("key_by", "in-weather-key"),
        ("aggregate over tumbling windows of 1h", "delays"),
        ("sink", "output"),
        ("filter", "late-flights"),
        ("key_by", "late-flights-key"),
        ("process", "late"),
        ("sink", "late-output"),
    ]


def test_the_answer_for_january_is_that_of_a_dataframe_library(tmp_path: Path) -> None:
    (tmp_path / "csv").mkdir()
    for packed in (EXAMPLES / "data").glob("*.csv.gz"):
        (tmp_path / "csv" / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    for arguments in (["--load", "csv"], ["--bounded"]):
        done = run([*TIDEGATE, "run", str(EXAMPLE), "--in-process", "--", "--log", "log", *arguments], tmp_path)
        assert done.returncode == 0, done.stderr
    topics = Topics(tmp_path)
    assert topics.late == []
    assert topics.answer == answer_of(FLIGHTS, WEATHER)


@pytest.mark.parametrize("change", ["removed", "doubled", "changed"])
def test_the_comparison_finds_one_flight_that_is_wrong(change: str) -> None:
    flights, weather = FLIGHTS[:300], WEATHER[:120]
    place = 150
    other = {**flights[place], "dep_delay": str(int(flights[place]["dep_delay"]) + 1)}
    replaced = {"removed": [], "doubled": [flights[place]] * 2, "changed": [other]}[change]
    assert answer_of([*flights[:place], *replaced, *flights[place + 1 :]], weather) != answer_of(flights, weather)


@pytest.mark.parametrize("report", [{}, {"wind_speed": "99.5"}, {"visib": "0.1"}])
def test_the_comparison_finds_one_report_that_is_missing_or_wrong(report: Row) -> None:
    flights, weather = FLIGHTS[:300], WEATHER[:120]
    place = 30
    replaced = [{**weather[place], **report}] if report else []
    assert answer_of(flights, [*weather[:place], *replaced, *weather[place + 1 :]]) != answer_of(flights, weather)


class Unbounded:
    """The job as processes, which go on until they are told to end, or are killed."""

    def __init__(self, folder: Path, *arguments: str, partitions: int = 4) -> None:
        self.topics = Topics(folder, partitions)
        self._folder = folder
        self._checkpoints = folder / "checkpoints"
        settings = ["-p", "2", "--checkpoint-dir", "checkpoints", "--checkpoint-interval", "50ms"]
        settings += ["--set", "watermarks.interval=5ms"]
        self._command = [*TIDEGATE, "run", str(EXAMPLE), *settings, "--", "--log", "log", *arguments]
        self._fed = 0

    def start(self) -> Running:
        return Running(self._command, self._folder, os.environ)

    def feed(self, topic: str, rows: Sequence[Row]) -> None:
        self._fed += self.topics.append(topic, rows)

    def wait_until_all_is_covered(self, running: Running) -> None:
        """By a checkpoint."""
        running.wait_for(lambda: self._covered() == self._fed, "a checkpoint of all that was fed")

    def _covered(self) -> int:
        newest = log_of(self._checkpoints, "flights-weather").newest if self._checkpoints.exists() else None
        return sum(split.position for record in (newest.operators if newest else ()) for split in record.splits)

    def end(self, running: Running) -> None:
        """The input ends, and with it event time."""
        done = run([*TIDEGATE, "stop", "--drain", "flights-weather"], self._folder)
        assert done.returncode == 0, done.stderr
        assert running.ends() == 0, running.said


@pytest.mark.slow
def test_departures_that_are_too_late_are_counted_and_all_others_are_in_the_answer(tmp_path: Path) -> None:
    job = Unbounded(tmp_path, "--out-of-orderness", "8h", partitions=1)
    job.feed("weather", WEATHER)
    with job.start() as running:
        for begin in range(0, len(FLIGHTS), 4000):
            job.feed("departures", FLIGHTS[begin : begin + 4000])
            job.wait_until_all_is_covered(running)
        job.end(running)
    late = job.topics.late
    assert len(late) > 100
    assert job.topics.answer == answer_of(without(FLIGHTS, late), WEATHER)


@pytest.mark.slow
def test_the_answer_is_the_same_when_everything_is_killed_in_the_middle(tmp_path: Path) -> None:
    job, half = Unbounded(tmp_path), len(FLIGHTS) // 2
    job.feed("departures", FLIGHTS[:half])
    job.feed("weather", WEATHER)
    with job.start() as running:
        job.wait_until_all_is_covered(running)
        running.wait_for(lambda: job.topics.records("delays"), "the first hours")
        job.feed("departures", FLIGHTS[half:])
        kill_all(running)
    assert len(job.topics.answer) < len(answer_of(FLIGHTS, WEATHER))
    with job.start() as running:
        job.wait_until_all_is_covered(running)
        job.end(running)
    assert job.topics.late == []
    assert job.topics.answer == answer_of(FLIGHTS, WEATHER)

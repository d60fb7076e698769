"""The example of windows on a real Kafka: every user's total in every window, once, whatever dies on the way."""

import os
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.integration.programs import TIDEGATE, run
from tests.kafka.brokers import Broker
from tidegate.deploy.fail_points import MARK_VARIABLE, VARIABLE

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "window_totals.py")
WINDOW = 60_000
START = 1_760_000_000_000 // WINDOW * WINDOW
PARTITIONS = 4

Order = tuple[str, int, int]
"""User, amount, milliseconds since 1970."""


def orders(count: int) -> list[Order]:
    """A second apart, and up to five seconds out of order."""
    chance = random.Random(7)
    return [
        (f"user-{chance.randrange(9)}", number, START + 1000 * number - chance.randrange(5000))
        for number in range(count)
    ]


def send(kafka: Broker, topic: str, found: Sequence[Order]) -> None:
    values = [msgspec.json.encode({"user": user, "amount": amount, "ts": ts}) for user, amount, ts in found]
    kafka.produce(topic, values, keys=[user for user, _, _ in found])


def expected(found: Sequence[Order]) -> Counter[tuple[str, int, int]]:
    totals: Counter[tuple[str, int]] = Counter()
    for user, amount, ts in found:
        totals[user, ts // WINDOW * WINDOW] += amount
    return Counter((user, start, total) for (user, start), total in totals.items())


def totals_in(kafka: Broker, topic: str) -> Counter[tuple[str, int, int]]:
    found = [msgspec.json.decode(record.value or b"") for record in kafka.read(topic)]
    return Counter((total["user"], total["start"], total["total"]) for total in found)


def arguments(kafka: Broker, source: str, sink: str) -> list[str]:
    given = ["--bootstrap", kafka.bootstrap, "--input", source, "--output", sink, "--bounded"]
    return [*given, "--window", "60s", "--out-of-orderness", "5s"]


@pytest.mark.slow
@pytest.mark.parametrize("way", [[*TIDEGATE, "run", EXAMPLE, "-p", "2", "--"], [sys.executable, EXAMPLE]])
def test_every_user_has_one_total_for_each_window(kafka: Broker, tmp_path: Path, way: list[str]) -> None:
    source, sink = kafka.create_topic(partitions=PARTITIONS), kafka.create_topic(partitions=PARTITIONS)
    sent = orders(2000)
    send(kafka, source, sent)
    done = run([*way, *arguments(kafka, source, sink)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert totals_in(kafka, sink) == expected(sent)


@pytest.mark.slow
# A fast job may end with its first checkpoint: a second one need not come.
@pytest.mark.parametrize("place", ["acknowledge:after:1", "log-append:after:1", "commit:before:1"])
def test_a_death_on_the_way_changes_no_total(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    source, sink = kafka.create_topic(partitions=PARTITIONS), kafka.create_topic(partitions=PARTITIONS)
    sent = orders(60_000)
    send(kafka, source, sent)
    monkeypatch.setenv(VARIABLE, place)
    monkeypatch.setenv(MARK_VARIABLE, str(tmp_path / "mark"))
    command = [*TIDEGATE, "run", EXAMPLE, "-p", "2", "--checkpoint-interval", "100ms", "--set", "batch.size=64"]
    command += ["--set", "watermarks.interval=20ms", "--restart", "fixed-delay:5:10ms", "--"]
    done = run([*command, *arguments(kafka, source, sink)], tmp_path)
    if done.returncode < 0:
        done = run([*command, *arguments(kafka, source, sink)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert os.path.exists(tmp_path / "mark.0"), "nothing died"
    assert totals_in(kafka, sink) == expected(sent)

"""The examples on a real Kafka, through the command line and by themselves, as a user runs them: what comes out, what
wrong arguments give, and that they go on where they stopped."""

import csv
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.integration.programs import TIDEGATE, log_of, run, wait_until
from tests.kafka.brokers import Broker, Record
from tests.kafka.conftest import OwnKafka
from tidegate.deploy.demo_answer import Change, compare, expected_changes, read_flights

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"
USERS = 7
PARTITIONS = 4
WAYS: dict[str, Callable[[str], list[str]]] = {
    "tidegate run": lambda name: [*TIDEGATE, "run", str(EXAMPLES / name), "-p", "2", "--"],
    "in one process": lambda name: [*TIDEGATE, "run", str(EXAMPLES / name), "--in-process", "--"],
    "python": lambda name: [sys.executable, str(EXAMPLES / name)],
}


class Total(msgspec.Struct, frozen=True):
    user: str
    total: int


def orders(first: int, count: int) -> list[tuple[str, int]]:
    return [(f"user-{number % USERS}", number) for number in range(first, first + count)]


def send(kafka: Broker, topic: str, found: Sequence[tuple[str, int]]) -> None:
    values = [b'{"user":"%s","amount":%d,"ts":1760000000000}' % (user.encode(), amount) for user, amount in found]
    kafka.produce(topic, values, keys=[user for user, _ in found])


def totals_of(found: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    """What must come out for each user, in order; in plain Python."""
    totals: dict[str, list[int]] = defaultdict(list)
    for user, amount in found:
        totals[user].append(amount + (totals[user][-1] if totals[user] else 0))
    return totals


def totals_in(kafka: Broker, topic: str) -> dict[str, list[int]]:
    """What readers of committed records see for each user, in order; each record with its user as key."""
    totals: dict[str, list[int]] = defaultdict(list)
    for record in kafka.read(topic):
        total = msgspec.json.decode(record.value or b"", type=Total)
        assert record.key == total.user.encode()
        totals[total.user].append(total.total)
    return totals


def by_key(records: Sequence[Record]) -> dict[bytes | None, list[bytes | None]]:
    """Values in order. Without a key there is no order: sorted."""
    found: dict[bytes | None, list[bytes | None]] = defaultdict(list)
    for record in records:
        found[record.key].append(record.value)
    return found | {None: sorted(found[None], key=repr)}


def topics(kafka: Broker) -> tuple[str, str]:
    return kafka.create_topic(partitions=PARTITIONS), kafka.create_topic(partitions=PARTITIONS)


def arguments(kafka: Broker, source: str, sink: str, *more: str) -> list[str]:
    return ["--bootstrap", kafka.bootstrap, "--input", source, "--output", sink, *more]


# ---- what comes out ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_forwarding_copies_every_key_and_value_byte_for_byte(kafka: Broker, tmp_path: Path, way: str) -> None:
    source, sink = topics(kafka)
    values = [b"\xff\x00 %d" % number for number in range(300)]
    kafka.produce(source, values, keys=[b"key \xfe%d" % (number % 11) for number in range(300)])
    kafka.produce(source, [b"", None, b"last"], keys=[b"key \xfe0", b"key \xfe1", b""])
    kafka.produce(source, [b"%d" % (number % 3) for number in range(20)])
    done = run([*WAYS[way]("forward.py"), *arguments(kafka, source, sink, "--bounded")], tmp_path)
    assert done.returncode == 0, done.stderr
    read, written = kafka.read(source), kafka.read(sink)
    assert len(read) == len(written) == 323
    assert by_key(read) == by_key(written)


@pytest.mark.parametrize("way", WAYS)
def test_each_order_gives_one_total_of_its_user_in_order(kafka: Broker, tmp_path: Path, way: str) -> None:
    source, sink = topics(kafka)
    sent = orders(0, 700)
    send(kafka, source, sent)
    done = run([*WAYS[way]("running_totals.py"), *arguments(kafka, source, sink, "--bounded")], tmp_path)
    assert done.returncode == 0, done.stderr
    assert totals_in(kafka, sink) == totals_of(sent)


@pytest.mark.parametrize("change", ["removed", "doubled", "changed", "swapped"])
def test_a_wrong_output_is_noticed(kafka: Broker, change: str) -> None:
    sink = kafka.create_topic()
    wrong = [b'{"user":"user-0","total":%d}' % total for total in (0, 7, 21)]
    match change:
        case "removed":
            del wrong[1]
        case "doubled":
            wrong.append(wrong[-1])
        case "changed":
            wrong[2] = wrong[2].replace(b"21", b"22")
        case "swapped":
            wrong[0], wrong[1] = wrong[1], wrong[0]
    kafka.produce(sink, wrong, keys=["user-0"] * len(wrong))
    assert totals_in(kafka, sink) != totals_of([("user-0", 0), ("user-0", 7), ("user-0", 14)])


def test_flights_give_the_totals_of_their_carriers(kafka: Broker, tmp_path: Path) -> None:
    rows = read_flights()[:3000]
    with (tmp_path / "flights.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    for topic in ("flights", "carriers"):
        kafka.create_topic(topic, PARTITIONS)
    for more in (["--load", "flights.csv"], ["--bounded"]):
        done = run([*WAYS["tidegate run"]("flights.py"), "--bootstrap", kafka.bootstrap, *more], tmp_path)
        assert done.returncode == 0, done.stderr
    changes: dict[str, list[Change]] = defaultdict(list)
    for value in kafka.values("carriers"):
        change = msgspec.json.decode(value or b"", type=Change)
        changes[change.carrier].append(change)
    assert compare(expected_changes(rows), changes) == []


# ---- again, and on ---------------------------------------------------------------------------------------------------


def test_run_again_it_is_finished_and_changes_nothing(kafka: Broker, tmp_path: Path) -> None:
    source, sink = topics(kafka)
    send(kafka, source, orders(0, 70))
    command = [*WAYS["tidegate run"]("running_totals.py"), *arguments(kafka, source, sink, "--bounded")]
    assert run(command, tmp_path).returncode == 0
    before = kafka.end_offsets(sink)
    send(kafka, source, orders(70, 70))
    again = run(command, tmp_path)
    assert again.returncode == 0
    assert "finished" in again.stderr
    assert kafka.end_offsets(sink) == before
    assert totals_in(kafka, sink) == totals_of(orders(0, 70))


@contextmanager
def going(command: Sequence[str], folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """It runs until it is interrupted, and must then end well."""
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, text=True, start_new_session=True)
    try:
        yield process
        assert process.poll() is None, (folder / "said").read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, (folder / "said").read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", ["running_totals.py", "forward.py"])
def test_interrupted_and_started_again_it_goes_on(kafka: Broker, tmp_path: Path, name: str) -> None:
    source, sink = topics(kafka)
    options = ["--checkpoint-interval", "200ms", "-p", "2", "--"]
    command = [*TIDEGATE, "run", str(EXAMPLES / name), *options, *arguments(kafka, source, sink)]
    for first in (0, 350, 700):
        send(kafka, source, orders(first, 350))
        with going(command, tmp_path):
            wait_until(lambda end=first + 350: len(kafka.read(sink)) >= end, f"the output of {first + 350} orders")
    if name == "forward.py":
        assert by_key(kafka.read(sink)) == by_key(kafka.read(source))
    else:
        assert totals_in(kafka, sink) == totals_of(orders(0, 1050))


def test_from_latest_passes_over_what_was_there(kafka: Broker, tmp_path: Path) -> None:
    source, sink = topics(kafka)
    send(kafka, source, orders(0, 70))
    options = ["--checkpoint-interval", "200ms", "--checkpoint-dir", "checkpoints", "--"]
    more = arguments(kafka, source, sink, "--from", "latest")
    with going([*TIDEGATE, "run", str(EXAMPLES / "running_totals.py"), *options, *more], tmp_path):
        wait_until(
            lambda: log_of(tmp_path / "checkpoints", "running-totals").newest is not None, "the first checkpoint"
        )
        send(kafka, source, orders(70, 70))
        wait_until(lambda: len(kafka.read(sink)) >= 70, "the output of the later orders")
    assert totals_in(kafka, sink) == totals_of(orders(70, 70))


# ---- what is wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["tidegate run", "python"])
@pytest.mark.parametrize("name", ["forward.py", "running_totals.py"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--input a --output b", "required: --bootstrap"),
        ("--bootstrap localhost:1 --output b", "required: --input"),
        ("--bootstrap localhost:1 --input a", "required: --output"),
        ("--bootstrap localhost:1 --input a --output b --from yesterday", "invalid choice: 'yesterday'"),
        ("--bootstrap localhost --input a --output b", "has no port"),
    ],
)
def test_wrong_arguments_are_told_and_end_with_2(tmp_path: Path, way: str, name: str, words: str, said: str) -> None:
    done = run([*WAYS[way](name), *words.split()], tmp_path)
    assert done.returncode == 2
    assert done.stderr.count(said) == 1
    assert "bug" not in done.stderr


@pytest.mark.parametrize("words", ["", "--log log --bootstrap localhost:1"])
def test_flights_want_an_embedded_log_or_a_broker(tmp_path: Path, words: str) -> None:
    done = run([*WAYS["python"]("flights.py"), *words.split()], tmp_path)
    assert done.returncode == 2
    assert "--bootstrap" in done.stderr
    assert "--log" in done.stderr


@pytest.mark.parametrize("missing", ["input", "output"])
def test_a_topic_that_does_not_exist_is_one_clear_error(kafka: Broker, tmp_path: Path, missing: str) -> None:
    source, sink = topics(kafka)
    send(kafka, source, orders(0, 7))
    names = {"input": source, "output": sink} | {missing: f"no-such-{missing}"}
    more = arguments(kafka, names["input"], names["output"], "--bounded")
    done = run([*WAYS["tidegate run"]("running_totals.py"), *more], tmp_path)
    assert done.returncode == 2, done.stderr
    assert f"no-such-{missing}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.timeout(240)
def test_without_a_broker_it_says_so_and_gives_up(tmp_path: Path) -> None:
    with socket.socket() as silent:
        # Bound and not listening: nobody else can take the port, and whoever connects is refused.
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        options = ["--restart", "none", "--", "--bootstrap", address, "--input", "a", "--output", "b"]
        done = run([*TIDEGATE, "run", str(EXAMPLES / "running_totals.py"), *options], tmp_path, timeout=200)
    assert done.returncode == 1, done.stderr
    assert "waiting for" in done.stderr
    assert f"no broker of {address} answers" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_waits_for_a_broker_that_comes(own_kafka: OwnKafka, tmp_path: Path) -> None:
    kafka = own_kafka()
    source, sink = topics(kafka)
    send(kafka, source, orders(0, 70))
    kafka.kafka.kill()
    options = ["--restart", "none", "--checkpoint-interval", "200ms", "--"]
    command = [*TIDEGATE, "run", str(EXAMPLES / "running_totals.py"), *options, *arguments(kafka, source, sink)]
    with going(command, tmp_path):
        wait_until(lambda: "waiting for" in (tmp_path / "said").read_text(), "a word that it waits")
        kafka.kafka.restart()
        wait_until(lambda: len(kafka.read(sink)) >= 70, "the output")
    assert totals_in(kafka, sink) == totals_of(orders(0, 70))

"""Keys that the partitions of a topic keep together, on a real Kafka: the same results as with an exchange at every
parallelism, whatever dies on the way, and nothing wrong where the topic is not what the program says."""

import os
import random
import signal
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

import tidegate as tg
from tests.integration.programs import TIDEGATE, log_of, run, wait_until
from tests.kafka.brokers import Broker

PROGRAM = str(Path(__file__).with_name("partitions_program.py"))
EXAMPLES = Path(__file__).parents[2] / "examples"
PARTITIONS = 4
USERS = 23
MINUTE = 60_000
START = 1_760_000_000_000 // MINUTE * MINUTE
CRC32 = "consistent_random"
"""What librdkafka does unless it is told otherwise."""

Order = tuple[str, int, int]
"""User, amount, milliseconds since 1970."""


def orders(first: int, count: int) -> list[Order]:
    chance = random.Random(first)
    return [(f"user-{chance.randrange(USERS)}", n, START + 100 * n) for n in range(first, first + count)]


def send(kafka: Broker, topic: str, found: Sequence[Order], partitioner: str = "murmur2_random") -> None:
    values = [msgspec.json.encode({"user": user, "amount": amount, "ts": ts}) for user, amount, ts in found]
    kafka.produce(topic, values, keys=[user for user, _, _ in found], partitioner=partitioner)


def totals_of(found: Sequence[Order]) -> dict[str, list[int]]:
    totals: dict[str, list[int]] = defaultdict(list)
    for user, amount, _ in found:
        totals[user].append(amount + (totals[user][-1] if totals[user] else 0))
    return totals


def totals_in(kafka: Broker, topic: str) -> dict[str, list[int]]:
    totals: dict[str, list[int]] = defaultdict(list)
    for record in kafka.read(topic):
        total = msgspec.json.decode(record.value or b"")
        totals[total["user"]].append(total["total"])
    return totals


def topics(kafka: Broker, inputs: int = 1, partitions: int = PARTITIONS) -> tuple[list[str], str]:
    return [kafka.create_topic(partitions=partitions) for _ in range(inputs)], kafka.create_topic(partitions=2)


def command(kafka: Broker, inputs: Sequence[str], output: str, parallelism: int, *more: str) -> list[str]:
    """More are the engine's options, then `--` and the program's, as on the command line."""
    split = more.index("--") if "--" in more else len(more)
    own = ["--bootstrap", kafka.bootstrap, "--input", *inputs, "--output", output, *more[split + 1 :]]
    if "--exchange" in own:
        own.remove("--exchange")
    elif "--partitions" not in own:
        own += ["--partitions", str(PARTITIONS)]
    options = ["-p", str(parallelism), "--checkpoint-dir", "checkpoints", "--checkpoint-interval", "100ms"]
    return [*TIDEGATE, "run", PROGRAM, *options, "--restart", "fixed-delay:10:20ms", *more[:split], "--", *own]


class Going:
    """A job that runs in a process group of its own."""

    def __init__(self, words: Sequence[str], folder: Path) -> None:
        self._said = folder / f"said-{len(list(folder.glob('said-*')))}"
        with self._said.open("w") as said:
            self.process = subprocess.Popen(words, cwd=folder, stdout=said, stderr=said, start_new_session=True)

    @property
    def said(self) -> str:
        return self._said.read_text()

    def wait_until(self, has_happened: Callable[[], bool], what: str) -> None:
        wait_until(lambda: has_happened() or self.process.poll() is not None, what)
        assert has_happened(), f"it ended before {what}:\n{self.said}"

    def kill_worker(self) -> None:
        """One that is a child of the command itself."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        assert children, self.said
        os.kill(int(children[-1]), signal.SIGKILL)

    def kill_all(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 0, self.said


@contextmanager
def going(words: Sequence[str], folder: Path) -> Iterator[Going]:
    started = Going(words, folder)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.kill_all()


# ---- the same results ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [2, *(pytest.param(p, marks=pytest.mark.slow) for p in (1, 3, 4, 6))])
def test_totals_are_those_of_an_exchange_at_every_parallelism(kafka: Broker, tmp_path: Path, parallelism: int) -> None:
    inputs, output = topics(kafka)
    sent = orders(0, 2000)
    send(kafka, inputs[0], sent)
    done = run(command(kafka, inputs, output, parallelism, "--", "--bounded"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert totals_in(kafka, output) == totals_of(sent)


@pytest.mark.slow
@pytest.mark.parametrize("example", ["running_totals.py", "window_totals.py"])
def test_the_examples_put_out_the_same_with_and_without_an_exchange(
    kafka: Broker, tmp_path: Path, example: str
) -> None:
    inputs, first = topics(kafka)
    second = kafka.create_topic(partitions=2)
    send(kafka, inputs[0], orders(0, 3000))
    for output, more in ((first, []), (second, ["--partitions", str(PARTITIONS)])):
        own = ["--bootstrap", kafka.bootstrap, "--input", inputs[0], "--output", output, "--bounded", *more]
        options = ["-p", "3", "--checkpoint-dir", output]
        done = run([*TIDEGATE, "run", str(EXAMPLES / example), *options, "--", *own], tmp_path)
        assert done.returncode == 0, done.stderr
    of_exchange, of_partitions = ([(r.key, r.value) for r in kafka.read(topic)] for topic in (first, second))
    assert Counter(of_exchange) == Counter(of_partitions)
    assert len(of_partitions) > USERS


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["fs", "rocksdb"])
def test_killed_and_started_again_at_other_parallelisms_each_order_counts_once(
    kafka: Broker, tmp_path: Path, backend: str
) -> None:
    """A worker with two, everything with four, and one in the end."""
    inputs, output = topics(kafka)

    def goes_on(parallelism: int) -> list[str]:
        return command(kafka, inputs, output, parallelism, "--state-backend", backend)

    def has_written(count: int) -> Callable[[], bool]:
        return lambda: sum(map(len, totals_in(kafka, output).values())) >= count

    send(kafka, inputs[0], orders(0, 1000))
    with going(goes_on(2), tmp_path) as job:
        job.wait_until(has_written(1000), "the first totals")
        send(kafka, inputs[0], orders(1000, 500))
        job.kill_worker()
        job.wait_until(has_written(1500), "totals behind the death of a worker")
        job.stop()
    with going(goes_on(4), tmp_path) as job:
        send(kafka, inputs[0], orders(1500, 1000))
        job.wait_until(has_written(1600), "totals of four")
        send(kafka, inputs[0], orders(2500, 1000))
        job.kill_all()
    with going(goes_on(1), tmp_path) as job:
        job.wait_until(has_written(3500), "the last totals")
        send(kafka, inputs[0], orders(3500, 100))
        job.wait_until(has_written(3600), "what came in the end")
        job.stop()
    assert totals_in(kafka, output) == totals_of([*orders(0, 1000), *orders(1000, 500), *orders(1500, 1000),
                                                  *orders(2500, 1000), *orders(3500, 100)])  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [2, 6])
def test_windows_close_although_some_subtasks_read_no_partition(
    kafka: Broker, tmp_path: Path, parallelism: int
) -> None:
    """With six, two have none: what is exchanged behind the windows does not wait for them."""
    inputs, output = topics(kafka)
    # A minute has 600 orders; the last one is not over in any partition.
    sent = orders(0, 3000)
    send(kafka, inputs[0], sent)

    def counted() -> Counter[int]:
        found = [msgspec.json.decode(record.value or b"") for record in kafka.read(output)]
        return Counter({window["start"]: window["orders"] for window in found})

    words = command(kafka, inputs, output, parallelism, "--set", "watermarks.interval=20ms", "--", "--kind", "windows")
    with going(words, tmp_path) as job:
        job.wait_until(lambda: len(counted()) >= 4, "the windows that are over")
        job.stop()
    expected = Counter(ts // MINUTE * MINUTE for _, _, ts in sent)
    assert counted() == Counter({start: expected[start] for start in sorted(expected)[:4]})


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [1, 3])
def test_two_topics_share_the_state_of_a_user_without_an_exchange(
    kafka: Broker, tmp_path: Path, parallelism: int
) -> None:
    inputs, output = topics(kafka, inputs=2)
    given, returned = orders(0, 1500), orders(5000, 700)
    send(kafka, inputs[0], given)
    send(kafka, inputs[1], returned)
    done = run(command(kafka, inputs, output, parallelism, "--", "--kind", "balance", "--bounded"), tmp_path)
    assert done.returncode == 0, done.stderr
    found = totals_in(kafka, output)
    assert sum(map(len, found.values())) == 2200
    sums: Counter[str] = Counter()
    for sign, amounts in ((1, given), (-1, returned)):
        for user, amount, _ in amounts:
            sums[user] += sign * amount
    assert {user: balances[-1] for user, balances in found.items()} == dict(sums)


# ---- savepoints ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_savepoint_is_begun_from_at_another_parallelism_and_only_with_the_same_partitions(
    kafka: Broker, tmp_path: Path
) -> None:
    inputs, output = topics(kafka)
    send(kafka, inputs[0], orders(0, 600))
    with going(command(kafka, inputs, output, 2), tmp_path) as job:
        job.wait_until(lambda: sum(map(len, totals_in(kafka, output).values())) >= 600, "the first totals")
        stopped = run(
            [*TIDEGATE, "stop", "co-totals", "--checkpoint-dir", "checkpoints", "--savepoint", "kept"], tmp_path
        )
        assert stopped.returncode == 0, stopped.stderr
        assert job.process.wait(30) == 0, job.said
    send(kafka, inputs[0], orders(600, 600))
    elsewhere = ["--from-savepoint", "kept", "--checkpoint-dir", "elsewhere"]
    for wrong, said in (
        (["--partitions", "8"], "keys in 8 partitions by murmur2 in the program"),
        (["--partitioner", "crc32"], "keys in 4 partitions by crc32 in the program"),
    ):
        refused = run(command(kafka, inputs, output, 2, *elsewhere, "--", *wrong), tmp_path)
        assert refused.returncode == 2, refused.stderr
        assert "keys in 4 partitions by murmur2 in savepoint" in refused.stderr
        assert said in refused.stderr
    with going(command(kafka, inputs, output, 3, *elsewhere), tmp_path) as job:
        job.wait_until(lambda: sum(map(len, totals_in(kafka, output).values())) >= 1200, "the other totals")
        job.stop()
    assert totals_in(kafka, output) == totals_of([*orders(0, 600), *orders(600, 600)])


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["fs", "rocksdb"])
def test_a_job_that_exchanged_goes_on_without_when_its_savepoint_is_written_anew(
    kafka: Broker, tmp_path: Path, backend: str
) -> None:
    inputs, output = topics(kafka)
    send(kafka, inputs[0], orders(0, 600))
    of_backend = ["--state-backend", backend]
    with going(command(kafka, inputs, output, 2, *of_backend, "--", "--exchange"), tmp_path) as job:
        job.wait_until(lambda: sum(map(len, totals_in(kafka, output).values())) >= 600, "the first totals")
        words = ["stop", "co-totals", "--checkpoint-dir", "checkpoints", "--savepoint", "kept"]
        assert run([*TIDEGATE, *words], tmp_path).returncode == 0
        assert job.process.wait(30) == 0, job.said
    refused = run(command(kafka, inputs, output, 2, *of_backend), tmp_path)
    assert refused.returncode == 2, refused.stderr
    assert "keys without partitions in" in refused.stderr, refused.stderr
    operators = {"totals": tg.OperatorRows({}, (), key=str, partitions=PARTITIONS)}
    tg.write_savepoint(tmp_path / "placed", base=tmp_path / "kept", operators=operators)
    send(kafka, inputs[0], orders(600, 600))
    with going(command(kafka, inputs, output, 3, *of_backend, "--from-savepoint", "placed"), tmp_path) as job:
        job.wait_until(lambda: sum(map(len, totals_in(kafka, output).values())) >= 1200, "the other totals")
        job.stop()
    assert totals_in(kafka, output) == totals_of([*orders(0, 600), *orders(600, 600)])


# ---- what is not as the program says ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parallelism", [2, pytest.param(1, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_S24_a_topic_of_another_partitioner_is_refused_before_any_output_and_right_when_it_is_named(
    kafka: Broker, tmp_path: Path, parallelism: int
) -> None:
    inputs, output = topics(kafka)
    sent = orders(0, 500)
    send(kafka, inputs[0], sent, CRC32)
    refused = run(command(kafka, inputs, output, parallelism, "--", "--bounded"), tmp_path)
    assert refused.returncode == 2, refused.stderr
    assert "of 4 partitions by murmur2 it belongs to partition" in refused.stderr
    assert "partitioner='crc32'" in refused.stderr
    assert kafka.read(output) == []
    done = run(command(kafka, inputs, output, parallelism, "--", "--bounded", "--partitioner", "crc32"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert totals_in(kafka, output) == totals_of(sent)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["fs", "rocksdb"])
def test_as_long_as_there_is_no_key_the_program_may_say_something_else(
    kafka: Broker, tmp_path: Path, backend: str
) -> None:
    inputs, output = topics(kafka)
    with going(command(kafka, inputs, output, 2, "--state-backend", backend), tmp_path) as job:
        job.wait_until(
            lambda: (
                (tmp_path / "checkpoints").exists() and log_of(tmp_path / "checkpoints", "co-totals").newest is not None
            ),
            "a checkpoint without keys",
        )
        job.stop()
    send(kafka, inputs[0], orders(0, 100), CRC32)
    more = ["--state-backend", backend, "--", "--partitioner", "crc32"]
    with going(command(kafka, inputs, output, 2, *more), tmp_path) as job:
        job.wait_until(lambda: sum(map(len, totals_in(kafka, output).values())) >= 100, "the totals")
        job.stop()
    assert totals_in(kafka, output) == totals_of(orders(0, 100))


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [3, 8])
def test_S24_a_topic_with_other_partitions_is_refused_before_any_output(
    kafka: Broker, tmp_path: Path, partitions: int
) -> None:
    inputs, output = topics(kafka, partitions=partitions)
    send(kafka, inputs[0], orders(0, 100))
    refused = run(command(kafka, inputs, output, 2, "--", "--bounded"), tmp_path)
    assert refused.returncode == 2, refused.stderr
    assert f"topic {inputs[0]} has {partitions} partitions" in refused.stderr
    assert kafka.read(output) == []


@pytest.mark.slow
@pytest.mark.parametrize("is_written_to", [False, True])
def test_S24_a_topic_that_grows_stops_the_job_with_what_was_right_until_then(
    kafka: Broker, tmp_path: Path, is_written_to: bool
) -> None:
    """Whether it is seen at a look for partitions, or producers know it first."""
    inputs, output = topics(kafka)
    sent = orders(0, 400)
    send(kafka, inputs[0], sent)
    with going(command(kafka, inputs, output, 2), tmp_path) as job:
        job.wait_until(lambda: sum(map(len, totals_in(kafka, output).values())) >= 400, "the first totals")
        kafka.add_partitions(inputs[0], 6)
        if is_written_to:
            send(kafka, inputs[0], orders(400, 400))
        wait_until(lambda: job.process.poll() is not None, "the end of the job")
        assert job.process.returncode == 2, job.said
        told = f"topic {inputs[0]} has 6 partitions", "it belongs to partition"
        assert any(words in job.said for words in told[: 1 + is_written_to]), job.said
    right, found = totals_of([*sent, *orders(400, 400)]), totals_in(kafka, output)
    assert all(found[user] == right[user][: len(found[user])] for user in found), "a user's totals are wrong"
    assert log_of(tmp_path / "checkpoints", "co-totals").newest is not None
    again = run(command(kafka, inputs, output, 2), tmp_path)
    assert again.returncode == 2, again.stderr
    assert f"topic {inputs[0]} has 6 partitions" in again.stderr


@pytest.mark.slow
def test_S24_the_way_out_of_a_topic_that_has_grown_keeps_state_and_positions(kafka: Broker, tmp_path: Path) -> None:
    """As the guide says: one subtask, a savepoint, keys without partitions."""
    inputs, output = topics(kafka)
    sent = orders(0, 400)
    send(kafka, inputs[0], sent)
    with going(command(kafka, inputs, output, 2), tmp_path) as job:
        job.wait_until(lambda: sum(map(len, totals_in(kafka, output).values())) >= 400, "the first totals")
        kafka.add_partitions(inputs[0], 6)
        wait_until(lambda: job.process.poll() is not None, "the end of the job")
    with going(command(kafka, inputs, output, 1), tmp_path) as job:
        # The first ones of a user in another partition come when all those before have: their order is kept.
        send(kafka, inputs[0], orders(400, 400))
        job.wait_until(lambda: sum(map(len, totals_in(kafka, output).values())) >= 800, "totals of one subtask")
        words = ["stop", "co-totals", "--checkpoint-dir", "checkpoints", "--savepoint", "grown"]
        assert run([*TIDEGATE, *words], tmp_path).returncode == 0
        assert job.process.wait(30) == 0, job.said
    operators = {"totals": tg.OperatorRows({}, (), key=str)}
    tg.write_savepoint(tmp_path / "exchanged", base=tmp_path / "grown", operators=operators)
    send(kafka, inputs[0], orders(800, 400))
    more = ["--from-savepoint", "exchanged", "--", "--exchange"]
    with going(command(kafka, inputs, output, 3, *more), tmp_path) as job:
        job.wait_until(lambda: sum(map(len, totals_in(kafka, output).values())) >= 1200, "totals of three")
        job.stop()
    found, right = totals_in(kafka, output), totals_of([*sent, *orders(400, 400), *orders(800, 400)])
    assert {user: (len(totals), totals[-1]) for user, totals in found.items()} == {
        user: (len(totals), totals[-1]) for user, totals in right.items()
    }

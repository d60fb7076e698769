"""Whole jobs whose network to Kafka misbehaves: each fault ends, and then everything is there once and nothing is open.

Jobs come to their brokers through the proxy of `tests.kafka.proxy`; input is written and output read past it.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.programs import wait_until
from tests.integration.running import Bench, Started
from tests.kafka import medium
from tests.kafka.conftest import ProxiedKafka
from tests.kafka.medium import kafka_bench
from tests.kafka.networks import in_background, reset_until
from tests.kafka.proxy import Held, KafkaProxy, ProxiedBroker
from tidegate.connectors.kafka.connection import Client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PATIENT = (*medium.STREAM.options, "--restart", "fixed-delay:1000:100ms")
STREAM = replace(medium.STREAM, options=PATIENT)
LONG = replace(STREAM, pause=0.001, count=120_000, waits=True)
"""A minute of it is there for faults, and whoever needs less has the rest at once."""
USERS = 100
DARKNESS = 12.0
"""Seconds. Longer than a request to a coordinator may take, and than a checkpoint may here."""
IMPATIENT = replace(STREAM, options=(*PATIENT, "--checkpoint-timeout", "3s"))
READING = ("Metadata", "ListOffsets", "Fetch")
WRITING = ("FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "Produce")
COMMITTING = ("DescribeTransactions", "DescribeProducers", "EndTxn")


@pytest.fixture
def proxy(network: ProxiedBroker) -> KafkaProxy:
    return network.proxy


@pytest.fixture
def bench(network: ProxiedBroker, tmp_path: Path, job_client: Client) -> Iterator[Bench]:
    with kafka_bench(network.broker, tmp_path, job_client) as made:
        yield made


def wait_for_checkpoints(bench: Bench, started: Started, count: int = 2) -> None:
    """So many more."""
    wanted = completed(bench) + count
    started.wait_until(lambda: completed(bench) >= wanted, f"checkpoint {wanted}")


def completed(bench: Bench) -> int:
    newest = bench.view().newest if bench.checkpoints.exists() else None
    return 0 if newest is None else newest.checkpoint


def wait_for(bench: Bench, started: Started, has_happened: Callable[[], bool], what: str) -> None:
    started.wait_until(has_happened, what)
    LONG.assert_is_in_the_middle(bench)


# ---- lost ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["replies", "requests"])
def test_T15_a_job_most_of_whose_commits_lose_their_answers_commits_each_once(
    proxy: KafkaProxy, bench: Bench, direction: str
) -> None:
    answer = LONG.fill(bench, USERS)
    lost = proxy.lost["EndTxn"]
    lose = proxy.lose_replies if direction == "replies" else proxy.lose_requests
    started = LONG.start(bench)
    wait_for_checkpoints(bench, started)
    lose("EndTxn", times=20, reset=True)
    wait_for(bench, started, lambda: proxy.lost["EndTxn"] >= lost + 20, "20 lost commits")
    LONG.finish(bench, started)
    bench.assert_right(answer)


def test_T16_a_job_none_of_whose_commits_is_answered_forgets_none(proxy: KafkaProxy, bench: Bench) -> None:
    answer = LONG.fill(bench, USERS)
    started = LONG.start(bench)
    wait_for_checkpoints(bench, started)
    lost = proxy.lost["EndTxn"]
    proxy.lose_replies("EndTxn")
    wait_for(bench, started, lambda: proxy.lost["EndTxn"] >= lost + 3, "three unanswered commits")
    proxy.heal()
    LONG.finish(bench, started)
    bench.assert_right(answer)


@pytest.mark.parametrize("direction", ["replies", "requests"])
def test_whatever_a_job_loses_on_the_way_costs_no_record(proxy: KafkaProxy, bench: Bench, direction: str) -> None:
    answer = LONG.fill(bench, USERS)
    lose = proxy.lose_replies if direction == "replies" else proxy.lose_requests
    started = LONG.start(bench)
    wait_for_checkpoints(bench, started)
    for api in (*READING, *WRITING, *COMMITTING):
        lose(api, times=3, reset=True)
    LONG.finish(bench, started)
    assert {*WRITING[1:], *COMMITTING} <= {*proxy.lost}, proxy.lost
    bench.assert_right(answer)


# ---- late ----------------------------------------------------------------------------------------------------------


def kill_while_held(bench: Bench, started: Started, held: Held) -> Started:
    """A start of the same command, that has got further."""
    held.wait()
    LONG.assert_is_in_the_middle(bench)
    started.send_to_all(signal.SIGKILL)
    started.wait()
    again = LONG.start(bench)
    wait_for_checkpoints(bench, again)
    return again


def assert_it_may_come_after_the_death(proxy: KafkaProxy, bench: Bench, api: str) -> None:
    """A request stands in the network while its attempt is killed and the next gets further; then it arrives."""
    answer = LONG.fill(bench, USERS)
    started = LONG.start(bench)
    wait_for_checkpoints(bench, started)
    held = proxy.hold(api, times=1)
    again = kill_while_held(bench, started, held)
    held.release()
    LONG.finish(bench, again)
    bench.assert_right(answer)


def test_T18_a_commit_of_a_dead_attempt_that_arrives_in_the_next_changes_nothing(
    proxy: KafkaProxy, bench: Bench
) -> None:
    assert_it_may_come_after_the_death(proxy, bench, "EndTxn")


@pytest.mark.parametrize("api", ["Produce", "AddPartitionsToTxn"])
def test_T19_a_record_of_a_dead_attempt_that_arrives_in_the_next_is_not_there(
    proxy: KafkaProxy, bench: Bench, api: str
) -> None:
    assert_it_may_come_after_the_death(proxy, bench, api)


def test_T27_an_id_that_a_dead_attempt_opens_when_the_next_is_running_disturbs_nothing(
    proxy: KafkaProxy, bench: Bench
) -> None:
    assert_it_may_come_after_the_death(proxy, bench, "InitProducerId")


@pytest.mark.parametrize("api", ["EndTxn", "Produce", "AddPartitionsToTxn"])
def test_what_was_asked_for_again_comes_late_the_first_time_and_changes_nothing(
    proxy: KafkaProxy, bench: Bench, api: str
) -> None:
    answer = LONG.fill(bench, USERS)
    started = LONG.start(bench)
    wait_for_checkpoints(bench, started)
    for _ in range(5):
        held = proxy.hold(api, times=1)
        held.wait()
        proxy.reset_connections()
        wait_for_checkpoints(bench, started, 1)
        held.release()
    LONG.assert_is_in_the_middle(bench)
    LONG.finish(bench, started)
    bench.assert_right(answer)


# ---- cut off -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [{"requests": True, "replies": True}, {"replies": False}, {"requests": False}], ids=str)
@pytest.mark.parametrize(
    "fail_points",
    [
        pytest.param("capture:after:5@worker-0=stop", id="prepare"),
        pytest.param("commit:before:2@worker-0=stop", id="commit"),
        pytest.param("log-append:after:3@jobmanager,recovery-commit:before@jobmanager=stop", id="recovery"),
    ],
)
def test_a_network_that_is_cut_for_long_costs_no_record(
    proxy: KafkaProxy, bench: Bench, fail_points: str, cut: dict[str, bool]
) -> None:
    answer = IMPATIENT.fill(bench, USERS)
    started = IMPATIENT.start_until(bench, fail_points, fail_points.count(","))
    started.wait_until_stopped()
    proxy.cut(**cut)
    started.send_to_all(signal.SIGCONT)
    time.sleep(DARKNESS)
    assert started.process.poll() is None, started.said
    proxy.heal()
    IMPATIENT.finish(bench, started)
    bench.assert_right(answer)


def test_three_brokers_of_which_one_after_the_other_is_cut_off_from_the_job_lose_nothing(
    proxied_kafka: ProxiedKafka, tmp_path: Path, job_client: Client
) -> None:
    network = proxied_kafka(nodes=3)
    with kafka_bench(network.broker, tmp_path, job_client) as bench:
        answer = LONG.fill(bench, USERS)
        started = LONG.start(bench)
        wait_for_checkpoints(bench, started)
        for number, proxy in network.proxies.items():
            proxy.cut(requests=number != 2, replies=number != 3)
            time.sleep(4)
            proxy.heal()
        wait_for_checkpoints(bench, started)
        LONG.finish(bench, started)
        bench.assert_right(answer)


# ---- slow and unsteady ---------------------------------------------------------------------------------------------


def test_a_job_whose_connections_break_every_200_ms_for_some_seconds_loses_nothing(
    proxy: KafkaProxy, bench: Bench
) -> None:
    answer = LONG.fill(bench, USERS)
    started = LONG.start(bench)
    wait_for_checkpoints(bench, started)
    is_over = threading.Event()
    with in_background(lambda: reset_until(is_over, proxy)) as resets:
        time.sleep(6)
        is_over.set()
        assert resets.result() >= 10
    LONG.finish(bench, started)
    bench.assert_right(answer)


def test_a_job_on_a_slow_network_is_slow_and_right(proxy: KafkaProxy, bench: Bench) -> None:
    stream = replace(STREAM, count=8000)
    answer = stream.fill(bench, USERS)
    proxy.delay(0.02, jitter=0.005)
    proxy.throttle(200_000)
    started = stream.start(bench)
    stream.finish(bench, started)
    assert "restart 1 in" not in started.said
    proxy.heal()
    bench.assert_right(answer)


def test_a_job_that_is_refused_by_its_brokers_goes_on_when_they_take_it_again(proxy: KafkaProxy, bench: Bench) -> None:
    answer = LONG.fill(bench, USERS)
    started = LONG.start(bench)
    wait_for_checkpoints(bench, started)
    proxy.refuse()
    proxy.reset_connections()
    time.sleep(3)
    proxy.heal()
    wait_until(lambda: proxy.connections > 0, "a connection")
    LONG.finish(bench, started)
    bench.assert_right(answer)

"""Whatever is lost, late, slow or cut off between the Kafka sink and its brokers costs time and no record.

Through the real writer and recovery, against a real broker behind the proxy of `tests.kafka.proxy`.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.programs import wait_until
from tests.kafka.networks import DONE, IMPATIENT, OUT, Deliverer, assert_clean, in_background, reset_until
from tests.kafka.proxy import KafkaProxy, ProxiedBroker
from tests.kafka.sinks import SinkGround, committed, until
from tidegate.checkpoint.protocol import Committed
from tidegate.elements import Batch
from tidegate.errors import UnavailableError

pytestmark = pytest.mark.usefixtures("each_client_of_faults")


@pytest.fixture
def proxy(network: ProxiedBroker) -> KafkaProxy:
    return network.proxy


@pytest.fixture
def ground(network: ProxiedBroker) -> SinkGround:
    return SinkGround(network.broker)


# ---- everything else that is asked ---------------------------------------------------------------------------------


WRITING = ("Metadata", "FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "Produce")
JUDGING = ("DescribeTransactions", "DescribeProducers", "Fetch", "EndTxn")


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["replies", "requests"])
@pytest.mark.parametrize("api", [*WRITING, *JUDGING])
def test_whatever_is_lost_on_its_way_costs_time_and_no_record(
    proxy: KafkaProxy, ground: SinkGround, api: str, direction: str
) -> None:
    lost = proxy.lost[api]
    lose = proxy.lose_replies if direction == "replies" else proxy.lose_requests
    deliverer = Deliverer(ground)
    for number in range(3):
        lose(api, times=2, reset=True)
        deliverer.deliver(f"{number}a", f"{number}b")
    assert proxy.lost[api] > lost
    assert_clean(ground, "0a", "0b", "1a", "1b", "2a", "2b")


@pytest.mark.slow
def test_connections_that_break_all_the_time_cost_no_record(proxy: KafkaProxy, ground: SinkGround) -> None:
    deliverer = Deliverer(ground)
    written: list[str] = []
    enough = time.monotonic() + 6
    is_over = threading.Event()
    with in_background(lambda: reset_until(is_over, proxy)) as resets:
        while time.monotonic() < enough:
            texts = [f"{len(written) + number}" for number in range(100)]
            deliverer.deliver(*texts)
            written += texts
        is_over.set()
        assert resets.result() >= 10
    assert_clean(ground, *written)


@pytest.mark.slow
def test_a_slow_network_costs_time_and_no_record(proxy: KafkaProxy, ground: SinkGround) -> None:
    proxy.delay(0.02, jitter=0.01)
    proxy.throttle(200_000)
    texts = [f"{number}-{'x' * 1000}" for number in range(300)]
    deliverer = Deliverer(ground)
    for begin in range(0, len(texts), 100):
        deliverer.deliver(*texts[begin : begin + 100])
    assert deliverer.failures == 0
    proxy.heal()
    assert_clean(ground, *texts)


# ---- a network that is cut -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_T21_a_cut_that_outlasts_what_a_record_may_wait_fails_the_prepare_and_the_record_never_shows(
    proxy: KafkaProxy, ground: SinkGround
) -> None:
    """Also not when the network comes back and what was on its way arrives."""
    writer = ground.writer(settings={"message.timeout.ms": 1500})
    txn = ground.written(writer, 0, "before")
    proxy.cut()
    writer.write(txn, Batch(["during"]))
    with in_background(lambda: writer.prepare(txn)) as prepared:
        until(lambda: writer.has_room(txn) and txn.producer._failure is not None, bool)
        proxy.heal()
        with pytest.raises(UnavailableError, match=f"topic {ground.topic}"):
            prepared.result()
    ground.recovery().abort(ground.id(0))
    ground.write_and_commit(ground.writer(), Batch(["after"]), slot=1)
    assert_clean(ground, "after")


@pytest.mark.slow
@pytest.mark.parametrize("cut", [{"requests": True, "replies": True}, {"requests": False}, {"replies": False}], ids=str)
def test_a_cut_in_the_middle_of_a_prepare_delays_it_and_no_more(
    proxy: KafkaProxy, ground: SinkGround, cut: dict[str, bool]
) -> None:
    writer = ground.writer(settings={"socket.timeout.ms": 3000})
    txn = ground.written(writer, 0, "before")
    proxy.cut(**cut)
    writer.write(txn, Batch(["during"]))
    sent = proxy.seen["Produce"]
    with in_background(lambda: writer.prepare(txn)) as prepared:
        wait_until(lambda: proxy.seen["Produce"] > sent, "a record into the dark")
        proxy.heal()
        committable = prepared.result()
    assert committed(writer, committable) == Committed()
    assert_clean(ground, "before", "during")


def through_a_cut(proxy: KafkaProxy, action: Callable[[], Any]) -> Any:
    """Its result; the network comes back when it has asked for something."""
    proxy.cut()
    asked = sum(proxy.seen.values())
    with in_background(action) as result:
        wait_until(lambda: sum(proxy.seen.values()) > asked, "a request into the dark")
        proxy.heal()
        return result.result()


@pytest.mark.slow
def test_a_cut_in_the_middle_of_a_recovery_delays_it_and_no_more(proxy: KafkaProxy, ground: SinkGround) -> None:
    writer = ground.writer()
    named = ground.prepared(writer, 0, "named")
    ground.written(writer, 1, "not named")
    recovery = ground.recovery(settings=IMPATIENT)
    found = until(lambda: recovery.open_transactions(ground.prefix, OUT), lambda ids: len(ids) == 2)
    (rest,) = (id for id in found if str(id) != named.id)
    assert through_a_cut(proxy, lambda: recovery.open_transactions(ground.prefix, OUT)) == found
    assert through_a_cut(proxy, lambda: committed(recovery, named)) in DONE
    through_a_cut(proxy, lambda: recovery.abort(rest))
    assert_clean(ground, "named")

"""The network between the Kafka sink and its brokers misbehaves: requests and replies are lost, late, slow, cut off.

Everything goes through the real writer and recovery, against a real broker behind the proxy of `tests.kafka.proxy`;
what came of it is read past the proxy.
"""

import subprocess
import sys
from typing import Any

import pytest

from tests.integration.programs import wait_until
from tests.kafka.conftest import ProxiedKafka
from tests.kafka.networks import (
    DONE,
    IMPATIENT,
    OUT,
    assert_clean,
    end,
    in_background,
    is_free,
    wait_until_answered,
)
from tests.kafka.proxy import Held, KafkaProxy, ProxiedBroker
from tests.kafka.raw_requests import RawRequests
from tests.kafka.sinks import SinkGround, committed, quick_admin, until
from tidegate.checkpoint.protocol import AlreadyCommitted, Committed, Retry
from tidegate.connectors.kafka import outcomes
from tidegate.connectors.kafka.connection import Client
from tidegate.elements import Batch
from tidegate.errors import LostDataError, TidegateError
from tidegate.operators.contracts import TransactionalSink
from tidegate.testing.conformance.sink_kit import prepare

pytestmark = pytest.mark.usefixtures("each_client_of_faults")

Writer = TransactionalSink[Any]
OPENER = """
import sys
from tidegate.connectors.kafka.sink import KafkaSink
from tidegate.formats import String
from tidegate.ids import TransactionalId
from tidegate.testing.conformance.sink_kit import open_writer

bootstrap, topic, id, client = sys.argv[1:]
open_writer(KafkaSink(bootstrap, topic, value=String(), client=client)).begin(TransactionalId.parse(id))
"""


def slow(value: str) -> Any:
    return pytest.param(value, marks=pytest.mark.slow)


@pytest.fixture
def proxy(network: ProxiedBroker) -> KafkaProxy:
    return network.proxy


@pytest.fixture
def ground(network: ProxiedBroker) -> SinkGround:
    return SinkGround(network.broker)


def write(writer: Writer, ground: SinkGround, slot: int, *texts: str) -> Any:
    """An open transaction, with records that may still be on their way."""
    txn = writer.begin(ground.id(slot))
    writer.write(txn, Batch(list(texts)))
    assert writer.has_room(txn)
    return txn


# ---- commits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["reply", *map(slow, ("reply in silence", "request", "request in silence"))])
def test_T15_a_commit_whose_request_or_reply_is_lost_is_made_once(
    proxy: KafkaProxy, ground: SinkGround, how: str
) -> None:
    writer = ground.writer(settings=IMPATIENT)
    committable = ground.prepared(writer, 0, "a", "b")
    lose = proxy.lose_replies if how.startswith("reply") else proxy.lose_requests
    lose("EndTxn", times=1, reset="silence" not in how)
    before = proxy.lost["EndTxn"]
    assert committed(writer, committable) in DONE
    assert proxy.lost["EndTxn"] == before + 1
    assert committed(ground.recovery(), committable) == AlreadyCommitted()
    assert_clean(ground, "a", "b")


@pytest.mark.slow
@pytest.mark.parametrize("cut", [{"requests": True, "replies": True}, {"requests": False}, {"replies": False}], ids=str)
def test_T15_a_commit_that_is_cut_off_is_asked_for_again_and_never_given_up(
    network: ProxiedBroker, proxy: KafkaProxy, ground: SinkGround, cut: dict[str, bool]
) -> None:
    writer = ground.writer(settings=IMPATIENT)
    committable = ground.prepared(writer, 0, "a")
    admin = quick_admin(network.broker)
    assert admin.describe(committable.id) is not None
    proxy.cut(**cut)
    for _ in range(3):
        assert isinstance(outcomes.commit(admin, committable), Retry)
    asked = sum(proxy.seen.values())
    with in_background(lambda: committed(writer, committable)) as outcome:
        wait_until(lambda: sum(proxy.seen.values()) > asked, "a request into the dark")
        proxy.heal()
        assert outcome.result() in DONE
    assert_clean(ground, "a")


@pytest.mark.parametrize("who", ["writer", slow("recovery")])
def test_T18_a_commit_that_arrives_when_the_next_transaction_of_the_id_is_open_leaves_that_as_it_is(
    proxy: KafkaProxy, ground: SinkGround, who: str
) -> None:
    writer = ground.writer()
    first = ground.prepared(writer, 0, "first")
    held = proxy.hold("EndTxn", times=1)
    side: Any = writer if who == "writer" else ground.recovery()
    with in_background(lambda: committed(side, first)) as outcome:
        held.wait()
        proxy.reset_connections()
        assert outcome.result() in DONE
    following = ground.written(writer, 0, "half of the next")
    answered = proxy.answered["EndTxn"]
    held.release()
    wait_until_answered(proxy, "EndTxn", answered + 1)
    assert ground.state() == "Ongoing"
    assert ground.texts() == ["first"]
    writer.write(following, Batch(["and the other half"]))
    second = writer.prepare(following)
    assert second is not None
    assert committed(writer, second) == Committed()
    assert_clean(ground, "first", "half of the next", "and the other half")


@pytest.mark.slow
def test_T18_a_commit_of_a_dead_attempt_that_arrives_after_its_transaction_was_aborted_commits_nothing(
    network: ProxiedBroker, proxy: KafkaProxy, ground: SinkGround
) -> None:
    """As when a zombie asks for a commit, and a restore of an older checkpoint aborts."""
    writer = ground.writer(settings=IMPATIENT)
    committable = ground.prepared(writer, 0, "not to be seen")
    held = proxy.hold("EndTxn")
    assert isinstance(outcomes.commit(quick_admin(network.broker), committable), Retry)
    held.wait()
    ground.recovery().abort(ground.id(0))
    answered = proxy.answered["EndTxn"]
    held.release()
    wait_until_answered(proxy, "EndTxn", answered + held.count)
    assert ground.state() == "Empty"
    ground.write_and_commit(writer, Batch(["after"]), slot=1)
    assert_clean(ground, "after")


# ---- records -------------------------------------------------------------------------------------------------------


def held_record(writer: Writer, proxy: KafkaProxy, ground: SinkGround, text: str) -> tuple[Any, Held]:
    """An open transaction whose only record stands in the network; its partition has been added."""
    held = proxy.hold("Produce", times=1)
    txn = write(writer, ground, 0, text)
    # A task asks for room before each batch; a client without a thread of its own sends what it has then.
    until(lambda: writer.has_room(txn) and held.count, bool)
    return txn, held


def abort_by_end_txn(ground: SinkGround, txn: Any) -> None:
    """As nobody here does: producer id and epoch stay in force."""
    raw = RawRequests(ground.broker.direct)
    own = txn.own
    assert raw.end(txn.id, own.producer_id, own.epoch, False, 3) == "NO_ERROR"
    until(ground.state, lambda state: state == "CompleteAbort")
    raw.close()


def test_T19_a_record_that_arrives_after_the_abort_is_refused_and_holds_nobody_back(
    proxy: KafkaProxy, ground: SinkGround
) -> None:
    writer = ground.writer(settings=IMPATIENT)
    txn, held = held_record(writer, proxy, ground, "late")
    assert ground.state() == "Ongoing"
    writer.abandon(txn)
    ground.recovery().abort(ground.id(0))
    before = end(ground)
    answered = proxy.answered["Produce"]
    held.release()
    wait_until_answered(proxy, "Produce", answered + 1)
    assert end(ground) == before
    assert ground.broker.values(ground.topic, "read_uncommitted") == []
    ground.write_and_commit(ground.writer(), Batch(["after"]), slot=1)
    assert_clean(ground, "after")


@pytest.mark.slow
def test_T19_this_broker_refuses_a_late_record_even_of_the_epoch_that_it_still_has(
    proxy: KafkaProxy, ground: SinkGround
) -> None:
    """Brokers before 3.6 would open a transaction that nobody owns."""
    writer = ground.writer()
    txn, held = held_record(writer, proxy, ground, "late")
    abort_by_end_txn(ground, txn)
    before = end(ground)
    answered = proxy.answered["Produce"]
    held.release()
    wait_until_answered(proxy, "Produce", answered + 1)
    assert end(ground) == before
    assert is_free(ground)
    with pytest.raises(TidegateError):
        writer.prepare(txn)
    assert_clean(ground)


@pytest.mark.slow
def test_T06_a_transaction_that_expires_while_its_records_are_under_way_is_called_expired(
    proxy: KafkaProxy, ground: SinkGround
) -> None:
    """Its producer knows only that nobody took them; and why that was is told, too."""
    writer = ground.writer(timeout=2.0)
    held = proxy.hold("Produce")
    txn = write(writer, ground, 0, "never taken")
    until(lambda: writer.has_room(txn) and held.count, bool)
    until(ground.state, lambda state: state == "CompleteAbort")
    with pytest.raises(TidegateError) as caught:
        writer.prepare(txn)
    held.release()
    assert isinstance(caught.value, LostDataError)
    assert "its timeout had passed" in str(caught.value)
    assert f"Its producer says: transaction {ground.id()} at" in str(caught.value)
    assert_clean(ground)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["open", "prepared", "committed"])
def test_T19_a_record_that_was_sent_again_is_there_once_whenever_its_first_sending_arrives(
    proxy: KafkaProxy, ground: SinkGround, moment: str
) -> None:
    writer = ground.writer()
    txn, held = held_record(writer, proxy, ground, "a")
    proxy.reset_connections()
    txn.producer.flush()
    writer.write(txn, Batch(["b"]))
    txn.producer.flush()
    answered = proxy.answered["Produce"]

    def release() -> None:
        held.release()
        wait_until_answered(proxy, "Produce", answered + 1)

    if moment == "open":
        release()
    committable = writer.prepare(txn)
    assert committable is not None
    if moment == "prepared":
        release()
    assert committed(writer, committable) == Committed()
    if moment == "committed":
        release()
    assert_clean(ground, "a", "b")


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("abort", ["by this sink", "by EndTxn"])
def test_T19_where_the_broker_does_not_verify_an_abort_by_this_sink_still_shuts_late_records_out(
    proxied_kafka: ProxiedKafka, abort: str
) -> None:
    """It raises the epoch. The other way hangs the partition for ever, and is here to show that it would be seen."""
    network = proxied_kafka(settings={"transaction.partition.verification.enable": False})
    ground = SinkGround(network.broker)
    writer = ground.writer(settings=IMPATIENT)
    txn, held = held_record(writer, network.proxy, ground, "late")
    writer.abandon(txn)
    if abort == "by this sink":
        ground.recovery().abort(ground.id(0))
    else:
        abort_by_end_txn(ground, txn)
    before = end(ground)
    answered = network.proxy.answered["Produce"]
    held.release()
    wait_until_answered(network.proxy, "Produce", answered + 1)
    assert ground.tools.open_transactions(ground.prefix, OUT) == []
    if abort == "by this sink":
        assert end(ground) == before
        assert_clean(ground)
    else:
        assert end(ground) == before + 1
        assert not is_free(ground)


# ---- initialising --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_T27_an_attempt_that_begins_after_its_death_disturbs_nothing_of_the_next(
    proxy: KafkaProxy, ground: SinkGround, each_client_of_faults: Client
) -> None:
    """Its request to open an id arrives when the next attempt has taken over, has found nothing, and has prepared."""
    held = proxy.hold("InitProducerId", times=1)
    arguments = [ground.broker.bootstrap, ground.topic, str(ground.id(attempt=1)), each_client_of_faults]
    dead = subprocess.Popen([sys.executable, "-c", OPENER, *arguments])
    held.wait()
    dead.kill()
    dead.wait()
    recovery = ground.recovery()
    assert recovery.open_transactions(ground.prefix, OUT) == []
    writer = ground.writer()
    committable = prepare(writer, ground.id(attempt=2), ["a", "b"])
    answered = proxy.answered["InitProducerId"]
    held.release()
    wait_until_answered(proxy, "InitProducerId", answered + 1)
    late = ground.tools.describe(ground.id(attempt=1))
    assert late is not None
    assert late.state == "Empty"
    assert committed(writer, committable) == Committed()
    assert_clean(ground, "a", "b")

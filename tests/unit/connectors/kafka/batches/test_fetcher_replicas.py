"""Replicas that a leader names as nearer: they are asked, and what they say is believed only where they may know it."""

import pytest

from tests.unit.connectors.kafka.batches.clusters import LOST, Log
from tests.unit.connectors.kafka.batches.runs import A, Run
from tidegate.connectors.kafka.batches.commands import Fetch
from tidegate.connectors.kafka.batches.events import TICK, Described, NotFetched
from tidegate.connectors.kafka.batches.fetcher import REPLICA_AGE, REPLICA_PAUSE
from tidegate.connectors.kafka.messages import Cluster
from tidegate.connectors.kafka.wire import Address


def test_a_replica_that_is_nearer_is_asked_until_it_is_time_to_ask_the_leader_again() -> None:
    log = Log(nearer=2, replicated=1000)
    run = Run({A: log})
    run.add({A: 0})
    asked: list[int] = []
    for _ in range(40):
        log.append(3)
        asked += [command.node for command in run.pending if isinstance(command, Fetch)]
        run.answer()
        run.take()
    assert asked[:2] == [1, 2]
    assert set(asked[1:]) == {2}
    run.now += REPLICA_AGE
    run.handle(TICK)
    run.until_read()
    assert run.values[A] == log.values
    assert not run.warnings


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_replica_that_is_behind_is_no_loss_and_the_leader_answers_itself_for_a_while(epoch: int) -> None:
    """Whether it says that the offset is out of its range, or that its log is another one."""
    log = Log(nearer=2, replicated=2)
    log.append(5)
    run = Run({A: log})
    run.add({A: 3})
    run.answer()
    run.fetcher._readings[A].last_epoch = epoch
    run.until_read()
    assert run.values[A] == {3: "v3", 4: "v4"}
    assert not run.failures
    (waiting,) = run.pending
    assert isinstance(waiting, Fetch)
    assert (waiting.node, waiting.itself) == (1, True)
    log.replicated = 100
    run.now += REPLICA_PAUSE
    run.answer()
    log.append(2)
    run.until_read()
    assert run.fetcher._readings[A].node == 2


@pytest.mark.parametrize("how", ["no answer", "not known", "another leader"])
def test_a_replica_that_is_not_there_is_asked_no_more(how: str) -> None:
    log = Log(nearer=2, replicated=100)
    log.append(5)
    run = Run({A: log})
    run.add({A: 0})
    if how == "not known":
        log.nearer = 9
        run.until_read()
    elif how == "no answer":
        run.answer()
        run.answer()
        (asked,) = run.pending
        run.pending.clear()
        run.handle(NotFetched(2, LOST))
        assert isinstance(asked, Fetch)
        assert asked.node == 2
    else:
        run.until_read()
        log.leader, log.epoch, log.nearer = 3, 1, -1
        run.handle(Described(Cluster({node: Address("h", node) for node in (1, 2, 3)}, {A: (3, 1)}, {})))
        log.append(2)
    run.until_read()
    assert run.values[A] == log.values
    assert run.fetcher._readings[A].node == log.leader

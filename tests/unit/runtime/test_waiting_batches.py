"""Behind a barrier a task goes on: its batches wait in the sink's driver until nothing of the last transaction can be
overtaken."""

from typing import NoReturn

import pytest

from tests.unit.runtime.driven import ONE, TWO, Driven, Flushing
from tidegate.elements import Batch
from tidegate.errors import InternalError, UnavailableError
from tidegate.runtime.sink_driver import AT_ONCE, MOST_WAITING


def go_on(it: Driven) -> None:
    """As many steps as there may be batches."""
    for _ in range(MOST_WAITING):
        it.driver.wake()


def flushing() -> Driven:
    """Its last transaction is being flushed."""
    it = Driven.opened(Flushing)
    it.driver.write(Batch([1]))
    it.driver.barrier(ONE)
    return it


def test_batches_wait_until_the_last_transaction_is_prepared() -> None:
    it = Driven.opened()
    it.driver.write(Batch([1]))
    it.driver.barrier(ONE)
    it.driver.write(Batch([2]))
    it.driver.wake()
    assert it.writer.calls.count("write") == 1
    assert it.told == []
    it.executor.run("sink")
    it.driver.wake()
    it.driver.write(Batch([3]))
    assert it.pending == [(1, "0")]
    assert sorted(it.sink.open.values()) == [[1], [2, 3]]


def test_batches_wait_no_longer_than_the_last_transaction_is_flushed_where_the_sink_can_say_that() -> None:
    it = flushing()
    it.driver.write(Batch([2]))
    it.executor.run("sink")
    assert it.writer.calls[-1] == "flush"
    it.driver.wake()
    assert (it.writer.calls[-1], it.told) == ("write", [])
    it.executor.run_all()
    assert it.pending == [(1, "0")]
    assert sorted(it.sink.open.values()) == [[1], [2]]


def test_a_few_batches_may_wait_and_more_are_held_back() -> None:
    it = flushing()
    for number in range(MOST_WAITING):
        assert it.driver.is_writable
        it.driver.write(Batch([number]))
    assert not it.driver.is_writable
    it.executor.run("sink")
    it.driver.wake()
    assert it.driver.is_writable
    assert it.writer.calls.count("write") == 1 + AT_ONCE
    assert it.driver.wake_at == it.clock.time
    go_on(it)
    assert it.driver.wake_at is None
    assert sorted(it.sink.open.values()) == [[*range(MOST_WAITING)], [1]]


def test_for_each_batch_that_comes_behind_the_flush_two_are_written() -> None:
    it = flushing()
    for number in range(4):
        it.driver.write(Batch([number]))
    it.executor.run_all()
    it.driver.write(Batch([4]))
    assert sorted(it.sink.open.values()) == [[0, 1], [1]]
    it.driver.write(Batch([5]))
    assert sorted(it.sink.open.values()) == [[0, 1, 2, 3], [1]]
    go_on(it)
    assert sorted(it.sink.open.values()) == [[*range(6)], [1]]


def test_a_barrier_behind_batches_that_wait_waits_with_them_and_holds_everything_back() -> None:
    it = flushing()
    it.driver.abandon(ONE)
    it.driver.write(Batch([2]))
    it.driver.barrier(TWO)
    assert not it.driver.is_writable
    with pytest.raises(InternalError, match="holds batches back"):
        it.driver.write(Batch([3]))
    it.executor.run_all()
    it.driver.wake()
    it.executor.run_all()
    assert it.pending == [(1, "0"), (2, "1")]
    assert it.driver.is_writable
    it.driver.write(Batch([3]))
    assert sorted(it.sink.open.values()) == [[1], [2], [3]]


def test_what_waits_is_written_as_the_sink_has_room_and_what_follows_stays_behind_it() -> None:
    it = flushing()
    it.driver.write(Batch([2]))
    it.executor.run_all()
    it.writer.trouble["has_room"] = lambda: False
    it.driver.wake()
    assert it.driver.is_writable
    it.driver.write(Batch([3]))
    assert it.writer.calls.count("write") == 1
    assert it.driver.wake_at is not None
    del it.writer.trouble["has_room"]
    it.driver.wake()
    assert sorted(it.sink.open.values()) == [[1], [2, 3]]


def test_what_the_sink_says_of_a_batch_that_has_waited_is_said_as_of_any_other() -> None:
    refused: list[Exception] = []

    def refuse(error: Exception) -> NoReturn:
        refused.append(error)
        raise UnavailableError("no") from error

    it = flushing()
    it.driver.write(Batch([2]), refuse)
    it.fail_with("write", ValueError("cannot be written"))
    it.executor.run_all()
    with pytest.raises(UnavailableError):
        it.driver.wake()
    assert [str(error) for error in refused] == ["cannot be written"]


def test_what_waits_is_let_go_with_the_sink() -> None:
    it = flushing()
    it.driver.write(Batch([2]))
    it.driver.close()
    it.executor.run_all()
    it.driver.wake()
    assert it.writer.calls.count("write") == 1


def test_what_cannot_be_flushed_fails_the_task_and_lets_nothing_pass() -> None:
    it = Driven.opened(Flushing)
    it.fail_with("flush", UnavailableError("not every record was accepted"))
    it.driver.write(Batch([1]))
    it.driver.barrier(ONE)
    it.driver.write(Batch([2]))
    it.executor.run("sink")
    assert [failure.message for failure in it.failures] == ["not every record was accepted"]
    it.driver.wake()
    assert it.writer.calls.count("write") == 1

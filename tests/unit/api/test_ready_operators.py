"""What a program says of deduplication, rankings and batch functions becomes one operator each, or an error that names
it."""

from typing import Any

import pytest

import tidegate as tg
from tests.unit.api.programs import NullSink, Order, orders
from tidegate.errors import InvalidError
from tidegate.graph.logical import InputEdge, LogicalNode, Partitioning
from tidegate.ids import OperatorName

LATE = tg.SideOutput[Order]("late")


def keyed(job: tg.Job) -> tg.KeyedStream[str, Order]:
    return orders(job).key_by(lambda order: order.user)


def deduplicated(**arguments: Any) -> LogicalNode:
    job = tg.Job("shop")
    stream = keyed(job).deduplicate(**{"within": "10m", "name": "once", **arguments})
    stream.sink(NullSink(), name="out")
    return job.graph().node(OperatorName("once"))


def test_deduplication_is_a_keyed_operator_with_its_time_in_its_kind() -> None:
    node = deduplicated()
    assert node.kind == "deduplicate within 600000 ms of event time"
    assert node.inputs == (InputEdge(OperatorName("orders-key"), Partitioning.HASH),)
    assert node.keyed
    assert [state.name for state in node.states] == [".event-timers", ".passed"]
    assert node.side_outputs == ()


def test_deduplication_in_processing_time_has_other_timers() -> None:
    node = deduplicated(clock="processing", parallelism=3)
    assert node.kind == "deduplicate within 600000 ms of processing time"
    assert [state.name for state in node.states] == [".passed", ".timers"]
    assert node.parallelism == 3


def test_late_records_can_be_read() -> None:
    job = tg.Job("shop")
    once = keyed(job).deduplicate("10m", name="once", late=LATE)
    once.sink(NullSink(), name="out")
    once.side_output(LATE).sink(NullSink(), name="late-out")
    assert job.graph().node(OperatorName("once")).side_outputs == ("late",)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"within": "0"}, "operator once, within: '0' is no time at all"),
        ({"within": "soon"}, "operator once, within: 'soon' is not a duration"),
        ({"within": "0.1ms"}, "less than a millisecond"),
        ({"allowed_lateness": "-1s"}, "operator once, allowed_lateness: '-1s' is not a duration"),
        ({"clock": "wall"}, "clock='wall'"),
        ({"clock": "processing", "late": LATE}, "where nothing is late"),
        ({"clock": "processing", "allowed_lateness": "1s"}, "where nothing is late"),
        ({"late": "late"}, "late='late' is no side output"),
        ({"parallelism": 0}, "parallelism 0"),
    ],
)
def test_arguments_of_deduplication_that_cannot_be_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        deduplicated(**arguments)


def test_a_ranking_is_a_keyed_operator_with_its_records_as_state() -> None:
    job = tg.Job("shop")
    keyed(job).top_n(3, lambda order: order.amount, name="best", type=Order).sink(NullSink(), name="out")
    node = job.graph().node(OperatorName("best"))
    assert (node.kind, node.keyed) == ("top 3", True)
    assert [str(state) for state in node.states] == ["ranking: list[Order{user: str, amount: int}] as msgpack/1"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"by": "amount"}, "operator best: top_n needs a function"),
        ({"ranking_function": 3}, "operator best: top_n needs a function"),
        ({"type": object}, "operator best: .*object"),
    ],
)
def test_arguments_of_a_ranking_that_cannot_be_are_refused(arguments: dict[str, Any], said: str) -> None:
    given = {"n": 2, "by": lambda order: order.amount, "type": Order, **arguments}
    with pytest.raises(InvalidError, match=said):
        keyed(tg.Job("shop")).top_n(**given, name="best")


def test_batch_functions_and_samples_are_called_by_their_kind_and_number() -> None:
    job = tg.Job("shop")
    one = orders(job).map_batch(lambda records: records).map_batch(lambda records: records)
    other = one.process_batch(lambda records: records, parallelism=2).sample(0.5, by=lambda order: order.user)
    other.sink(NullSink(), name="out")
    assert [(node.kind, str(node.name)) for node in job.graph().nodes[1:-1]] == [
        ("map_batch", "map_batch-1"),
        ("map_batch", "map_batch-2"),
        ("process_batch", "process_batch-1"),
        ("sample", "sample-1"),
    ]
    assert job.graph().node(OperatorName("process_batch-1")).parallelism == 2

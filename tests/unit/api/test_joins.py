"""What a program says about joins: what becomes of it, and what is refused where it stands."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import tidegate as tg
from tests.unit.api.programs import NullSink
from tests.unit.runtime.harness import HandSource
from tidegate.errors import InvalidError
from tidegate.graph.logical import LogicalNode
from tidegate.graph.physical import build_physical
from tidegate.ids import OperatorName

HOURS = tg.TumblingEventTimeWindows("1h")


class Order(msgspec.Struct, frozen=True):
    user: str
    amount: int


def both(left: Any, right: Any) -> tuple[Any, Any]:
    return left, right


def streams(job: tg.Job | None = None) -> tuple[tg.KeyedStream[str, Any], tg.KeyedStream[str, Any]]:
    at = tg.Job("joins") if job is None else job
    return tuple(at.source(HandSource(), name=name).key_by(str) for name in ("left", "right"))  # type: ignore[return-value]


def temporal(**arguments: Any) -> tg.Stream[Any]:
    left: Any
    left, right = streams()
    given = {"function": both, "name": "join", "types": (Order, str)} | arguments
    joined: tg.Stream[Any] = left.temporal_join(right, **given)
    return joined


def interval(**arguments: Any) -> tg.Stream[Any]:
    left: Any
    left, right = streams()
    given = {"function": both, "lower": "-1s", "upper": "1s", "name": "join", "types": (Order, str)} | arguments
    joined: tg.Stream[Any] = left.interval_join(right, **given)
    return joined


def window(assigner: Any = HOURS, **arguments: Any) -> tg.Stream[Any]:
    left: Any
    left, right = streams()
    given = {"function": both, "name": "join", "types": (Order, str)} | arguments
    joined: tg.Stream[Any] = left.window_join(right, assigner, **given)
    return joined


def node_of(stream: tg.Stream[Any]) -> LogicalNode:
    return stream._builder.node(stream._operator)


def states_of(stream: tg.Stream[Any]) -> list[str]:
    return [state.name for state in node_of(stream).states]


def test_a_join_is_one_operator_of_two_inputs_with_state_of_their_key() -> None:
    node = node_of(temporal(late=tg.SideOutput[Any]("late"), parallelism=3))
    assert [(edge.upstream, edge.input) for edge in node.inputs] == [("left-key", 0), ("right-key", 1)]
    assert (node.kind, node.keyed, node.parallelism, node.side_outputs) == ("temporal join", True, 3, ("late",))
    assert node_of(window()).kind == f"window join over {HOURS}"


def test_a_stream_can_be_joined_with_itself() -> None:
    job = tg.Job("joins")
    stream = job.source(HandSource(), name="src").key_by(str)
    joined = stream.interval_join(stream, both, lower="0", upper="1s", name="join", types=(str, str))
    joined.sink(NullSink(), name="out")
    physical = build_physical(job._builder.build(8), 2, 8)
    assert [edge.input for edge in node_of(joined).inputs] == [0, 1]
    assert any(OperatorName("join") in vertex.operators for vertex in physical.vertices)


def test_states_whose_rows_would_mean_something_else_have_other_names() -> None:
    assert states_of(temporal()) == [".event-timers", ".left", ".versions"]
    assert states_of(temporal(within="1m")) == [".event-timers", ".left", ".versions-within-60000"]
    assert states_of(interval()) == [".event-timers", ".left-inner--1000-to-1000", ".right-inner--1000-to-1000"]
    full = interval(how="full", lower=-timedelta(minutes=1), upper="-1s")
    assert states_of(full) == [
        ".event-timers",
        ".left-full--60000-to--1000",
        ".left-matched-full--60000-to--1000",
        ".right-full--60000-to--1000",
        ".right-matched-full--60000-to--1000",
    ]
    assert ".right-matched-left--1000-to-1000" not in states_of(interval(how="left"))
    names = [".event-timers", ".left-windows-tumbling-windows-of-1h", ".right-windows-tumbling-windows-of-1h"]
    assert states_of(window()) == names != states_of(window(tg.TumblingEventTimeWindows("2h")))


@pytest.mark.parametrize("make", [temporal, interval, window])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"function": None}, "needs a function, not None"),
        ({"how": "outer"}, "has how='outer'"),
        ({"types": Order}, "has types="),
        ({"types": (Order,)}, "has types="),
        ({"types": (Order, object)}, "operator join: msgspec cannot write values of type object"),
        ({"late": "late"}, "late='late' is no side output"),
        ({"name": "a join"}, "'a join' cannot name an operator"),
        ({"parallelism": 0}, "has parallelism 0"),
    ],
)
def test_what_no_join_can_be_given_is_refused_where_it_is_written(
    make: Callable[..., object], wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidError, match=said):
        make(**wrong)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: temporal(how="full"), "temporal_join has how='full'"),
        (lambda: temporal(within="soon"), "operator join: within: 'soon' is not a duration"),
        (lambda: temporal(within="-1s"), "within: '-1s' is not a duration"),
        (lambda: temporal(deleted="gone"), "deleted needs a function"),
        (lambda: interval(lower="5s", upper="-5s"), "lower='5s' is above upper='-5s'"),
        (lambda: interval(lower="--5s"), "lower: '-5s' is not a duration"),
        (lambda: interval(upper=None), "upper: None is not a duration"),
        (lambda: window("1h"), "was given str"),
        (lambda: window(allowed_lateness="-1s"), "allowed_lateness: '-1s' is not a duration"),
        (lambda: window(tg.GlobalWindows()), "are never complete"),
        (lambda: window(tg.TumblingProcessingTimeWindows("1h"), allowed_lateness="1m"), "no record comes late"),
    ],
)
def test_what_one_join_cannot_be_given_is_refused_where_it_is_written(make: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        make()


def test_only_streams_of_one_job_that_both_have_keys_are_joined() -> None:
    left, _ = streams()
    _, other = streams()
    plain: Any = tg.Job("joins").source(HandSource(), name="src")
    with pytest.raises(InvalidError, match="a stream of job joins"):
        left.temporal_join(other, both, name="join", types=(str, str))
    with pytest.raises(InvalidError, match="whose records have no keys"):
        left.temporal_join(plain, both, name="join", types=(str, str))

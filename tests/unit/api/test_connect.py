"""Connected streams, broadcasts and state without keys in the graph: what they become, and what is refused."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.unit.api.programs import NullSink, Order, RunningTotal, Split, Total, orders
from tidegate.errors import InvalidError
from tidegate.graph.logical import InputEdge, LogicalNode, Partitioning
from tidegate.graph.physical import build_physical
from tidegate.ids import OperatorName, SubtaskIndex, TaskId, VertexName
from tidegate.operators.two_inputs import (
    BroadcastProcessOperator,
    CoProcessOperator,
    KeyedBroadcastProcessOperator,
    KeyedCoProcessOperator,
)


class Both(tg.CoProcessFunction[Order, Order, Order]):
    def process_element1(self, value: Order, ctx: tg.Context) -> Iterator[Order]:
        yield value

    def process_element2(self, value: Order, ctx: tg.Context) -> Iterator[Order]:
        yield value


class KeyedBoth(tg.KeyedCoProcessFunction[str, Order, Total, Total]):
    total = tg.ValueState(int, default=0)

    def process_element1(self, value: Order, ctx: tg.KeyedContext[str]) -> None:
        pass

    def process_element2(self, value: Total, ctx: tg.KeyedContext[str]) -> Iterator[Total]:
        yield value


class Rules(tg.BroadcastProcessFunction[Order, Total, Order]):
    rules = tg.BroadcastState(str, int)
    late = tg.SideOutput[Order]("late")

    def process_element(self, value: Order, ctx: tg.Context) -> Iterator[Order]:
        yield value

    def process_broadcast_element(self, value: Total, ctx: tg.Context) -> None:
        self.rules.put(value.user, value.total)


class KeyedRules(tg.KeyedBroadcastProcessFunction[str, Order, Total, Order]):
    rules = tg.BroadcastState(str, int)
    total = tg.ValueState(int, default=0)

    def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> Iterator[Order]:
        yield value

    def process_broadcast_element(self, value: Total, ctx: tg.Context) -> None:
        self.rules.put(value.user, value.total)

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[Order]:
        yield Order(ctx.key, timestamp)


@pytest.fixture
def job() -> tg.Job:
    return tg.Job("shop")


def by_user(stream: tg.Stream[Order]) -> tg.KeyedStream[str, Order]:
    return stream.key_by(lambda order: order.user)


def totals(job: tg.Job) -> tg.Stream[Total]:
    return by_user(orders(job, "sold")).process(RunningTotal(), name="totals")


def node_of(job: tg.Job, name: str) -> LogicalNode:
    return job.graph().node(OperatorName(name))


def refused(call: Callable[[], object], *words: str) -> None:
    with pytest.raises(InvalidError) as caught:
        call()
    text = str(caught.value)
    assert [word for word in words if word not in text] == [], text
    assert caught.value.failure.remedy


def edge(upstream: str, partitioning: Partitioning, input: int = 0, tag: str | None = None) -> InputEdge:
    return InputEdge(OperatorName(upstream), partitioning, tag, input)


# ---- what they become ------------------------------------------------------------------------------------------------


def test_two_connected_streams_are_two_inputs_of_one_operator(job: tg.Job) -> None:
    orders(job).connect(orders(job, "more")).process(Both(), name="both").sink(NullSink(), name="out")
    node = node_of(job, "both")
    assert node.inputs == (edge("orders", Partitioning.FORWARD), edge("more", Partitioning.FORWARD, 1))
    assert (node.kind, node.keyed, node.states) == ("process", False, ())
    assert node.factory is not None
    assert isinstance(node.factory(), CoProcessOperator)


def test_connected_keyed_streams_are_both_partitioned_by_their_keys(job: tg.Job) -> None:
    other = totals(job).key_by(lambda total: total.user)
    by_user(orders(job)).connect(other).process(KeyedBoth(), name="both").sink(NullSink(), name="out")
    node = node_of(job, "both")
    assert node.inputs == (edge("orders-key", Partitioning.HASH), edge("totals-key", Partitioning.HASH, 1))
    assert node.keyed
    assert [(state.name, state.kind) for state in node.states] == [("total", "value")]
    assert node.factory is not None
    assert isinstance(node.factory(), KeyedCoProcessOperator)


def test_a_broadcast_is_an_edge_to_every_subtask_and_no_operator(job: tg.Job) -> None:
    rules = totals(job).broadcast()
    connected = orders(job).connect(rules)
    stream = connected.process(Rules(), name="apply", parallelism=3)
    stream.sink(NullSink(), name="out")
    node = node_of(job, "apply")
    assert node.inputs == (edge("orders", Partitioning.FORWARD), edge("totals", Partitioning.BROADCAST, 1))
    assert (node.keyed, node.parallelism, node.side_outputs) == (False, 3, ("late",))
    assert [(state.name, state.kind, state.value_type) for state in node.states] == [
        ("rules", "broadcast", "str -> int")
    ]
    assert node.factory is not None
    assert isinstance(node.factory(), BroadcastProcessOperator)
    assert repr(rules) == "BroadcastStream(totals)"
    assert repr(connected) == "BroadcastConnectedStream(orders, totals)"


def test_a_broadcast_beside_a_keyed_stream_has_keyed_state_and_timers(job: tg.Job) -> None:
    stream = by_user(orders(job)).connect(totals(job).broadcast()).process(KeyedRules(), name="apply")
    stream.sink(NullSink(), name="out")
    node = node_of(job, "apply")
    assert node.inputs == (edge("orders-key", Partitioning.HASH), edge("totals", Partitioning.BROADCAST, 1))
    assert node.keyed
    assert [(state.name, state.kind) for state in node.states] == [
        (".event-timers", "map"),
        (".timers", "map"),
        ("rules", "broadcast"),
        ("total", "value"),
    ]
    assert node.factory is not None
    assert isinstance(node.factory(), KeyedBroadcastProcessOperator)


def test_a_side_output_can_be_broadcast_and_connected(job: tg.Job) -> None:
    split = orders(job).process(Split(), name="split")
    both = split.connect(split.side_output(Split.large)).process(Both(), name="both")
    both.connect(split.side_output(Split.large).map(lambda o: Total(o.user, o.amount), name="m").broadcast()).process(
        Rules(), name="apply"
    ).sink(NullSink(), name="out")
    assert node_of(job, "both").inputs == (
        edge("split", Partitioning.FORWARD),
        edge("split", Partitioning.FORWARD, 1, "large"),
    )


def test_a_stream_can_be_connected_with_itself(job: tg.Job) -> None:
    stream = orders(job)
    stream.connect(stream).process(Both(), name="both").sink(NullSink(), name="out")
    assert [edge.input for edge in node_of(job, "both").inputs] == [0, 1]


def test_timers_are_declared_state_of_functions_with_on_timer_and_of_no_others(job: tg.Job) -> None:
    class Timed(RunningTotal):
        def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> Iterator[Total]:
            yield Total(ctx.key, timestamp)

    keyed = by_user(orders(job))
    keyed.process(Timed(), name="timed").sink(NullSink(), name="one")
    keyed.process(RunningTotal(), name="plain").sink(NullSink(), name="two")
    assert [state.name for state in node_of(job, "timed").states] == [".event-timers", ".timers", "total"]
    assert [state.name for state in node_of(job, "plain").states] == ["total"]


def test_state_without_keys_is_declared_by_functions_of_every_kind(job: tg.Job) -> None:
    class Listing(Split):
        seen = tg.OperatorListState(int)
        all_seen = tg.OperatorListState(int, redistribution="union")

    class KeyedListing(RunningTotal):
        seen = tg.OperatorListState(int)

    stream = orders(job).process(Listing(), name="listing")
    by_user(stream).process(KeyedListing(), name="keyed").sink(NullSink(), name="out")
    assert [(state.name, state.kind) for state in node_of(job, "listing").states] == [
        ("all_seen", "list-union"),
        ("seen", "list-split"),
    ]
    assert not node_of(job, "listing").keyed
    assert [(state.name, state.kind) for state in node_of(job, "keyed").states] == [
        ("seen", "list-split"),
        ("total", "value"),
    ]


def test_inputs_and_partitioning_are_part_of_the_fingerprint() -> None:
    def program(turned: bool) -> tg.Job:
        made = tg.Job("shop")
        one, other = orders(made, "one"), orders(made, "other")
        first, second = (other, one) if turned else (one, other)
        first.connect(second).process(Both(), name="both").sink(NullSink(), name="out")
        return made

    right, turned = program(False).graph().fingerprint(), program(True).graph().fingerprint()
    assert right == program(False).graph().fingerprint()
    assert right.digest != turned.digest
    assert "process both; from one/forward, other/forward as input 1" in right.lines


def test_a_broadcast_edge_is_never_chained_and_leads_from_every_subtask_to_every_subtask(job: tg.Job) -> None:
    orders(job).connect(totals(job).broadcast()).process(Rules(), name="apply").sink(NullSink(), name="out")
    for parallelism in (1, 2):
        physical = build_physical(job.graph(), parallelism, 128)
        assert "apply" in {vertex.name for vertex in physical.vertices}
        (broadcast,) = (e for e in physical.edges if e.partitioning is Partitioning.BROADCAST)
        assert broadcast.input == 1
        sender = TaskId(broadcast.source, SubtaskIndex(0))
        assert [c.target for c in physical.channels_out_of(sender, broadcast)] == list(range(parallelism))
        into = physical.channels_into(TaskId(VertexName("apply"), SubtaskIndex(0)))
        assert [c.source for c in into if c.edge == broadcast.index] == list(range(parallelism))


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_streams_of_other_jobs_are_not_connected(job: tg.Job) -> None:
    foreign = orders(tg.Job("elsewhere"), "foreign")
    for call in (
        lambda: orders(job).connect(foreign),
        lambda: orders(job, "two").connect(foreign.broadcast()),
        lambda: by_user(orders(job, "three")).connect(by_user(foreign)),
        lambda: by_user(orders(job, "four")).connect(foreign.broadcast()),
    ):
        refused(call, "of job shop", "foreign", "elsewhere", "same Job object")


def test_a_keyed_stream_is_not_connected_with_one_that_has_no_keys(job: tg.Job) -> None:
    stream: Any = orders(job)
    keyed: Any = by_user(orders(job, "sold"))
    refused(lambda: keyed.connect(stream), "KeyedStream(sold-key)", "Stream(orders)", "no keys", "broadcast()")
    refused(lambda: stream.connect(keyed), "Stream(orders)", "KeyedStream(sold-key)", "key_by on both")
    refused(lambda: stream.connect([1]), "Stream(orders)", "type list")
    refused(lambda: keyed.connect(None), "KeyedStream(sold-key)", "type NoneType")


def test_a_broadcast_that_nothing_is_connected_with_is_refused(job: tg.Job) -> None:
    stream = orders(job)
    stream.broadcast()
    stream.sink(NullSink(), name="out")
    refused(job.graph, "operator orders emits is broadcast to nothing", "leave the broadcast out")


def test_a_connection_that_is_not_processed_is_refused(job: tg.Job) -> None:
    orders(job).connect(orders(job, "more"))
    orders(job, "third").sink(NullSink(), name="out")
    refused(job.graph, "orders (source)", "nobody reads")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (Split(), ["CoProcessFunction", "Split", "stream.process(...)"]),
        (KeyedBoth(), ["CoProcessFunction", "KeyedBoth", "keyed.connect(other_keyed)"]),
        (Rules(), ["CoProcessFunction", "Rules", "stream.connect(other.broadcast())"]),
        (len, ["CoProcessFunction", "builtin_function", "Derive a class from CoProcessFunction"]),
        (Both, ["class Both", "Both(...)"]),
    ],
)
def test_a_function_of_another_kind_is_refused_and_told_where_it_belongs(
    job: tg.Job, function: Any, words: list[str]
) -> None:
    connected = orders(job).connect(orders(job, "more"))
    refused(lambda: connected.process(function, name="it"), "operator it", *words)


def test_functions_with_two_inputs_are_refused_where_there_is_one(job: tg.Job) -> None:
    stream: Any = orders(job)
    keyed: Any = by_user(stream)
    refused(lambda: stream.process(Rules(), name="it"), "needs a ProcessFunction", "connect(other.broadcast())")
    refused(lambda: keyed.process(KeyedBoth(), name="it"), "needs a KeyedProcessFunction", "connect(other_keyed)")
    rules: Any = totals(job).broadcast()
    refused(lambda: stream.connect(rules).process(KeyedRules(), name="it"), "needs a BroadcastProcessFunction")
    refused(lambda: keyed.connect(rules).process(Rules(), name="it"), "needs a KeyedBroadcastProcessFunction")


def test_broadcast_state_without_a_broadcast_is_refused(job: tg.Job) -> None:
    class Alone(RunningTotal):
        rules = tg.BroadcastState(str, int)

    refused(
        lambda: by_user(orders(job)).process(Alone(), name="it"),
        "operator it",
        "Alone declares broadcast state (rules)",
        "KeyedBroadcastProcessFunction",
    )


def test_a_broadcast_that_is_kept_nowhere_is_refused(job: tg.Job) -> None:
    class Forgetful(tg.BroadcastProcessFunction[Order, Total, Order]):
        def process_element(self, value: Order, ctx: tg.Context) -> None:
            pass

        def process_broadcast_element(self, value: Total, ctx: tg.Context) -> None:
            pass

    connected = orders(job).connect(totals(job).broadcast())
    refused(lambda: connected.process(Forgetful(), name="it"), "operator it", "Forgetful", "forgotten at a restart")


def test_keyed_state_beside_a_broadcast_needs_keys(job: tg.Job) -> None:
    class Counting(Rules):
        count = tg.ValueState(int, default=0)

    connected = orders(job).connect(totals(job).broadcast())
    refused(
        lambda: connected.process(Counting(), name="it"), "operator it", "(count) without a key", "OperatorListState"
    )


@pytest.mark.parametrize("method", ["process_element", "process_broadcast_element", "on_timer"])
def test_an_async_method_is_refused_by_name(job: tg.Job, method: str) -> None:
    async def wait(self: Any, value: Any, ctx: Any) -> None: ...

    function = type("Waiting", (KeyedRules,), {method: wait})()
    connected = by_user(orders(job)).connect(totals(job).broadcast())
    refused(lambda: connected.process(function, name="it"), "operator it", f"Waiting.{method} is async")


def test_an_operator_with_state_needs_a_name(job: tg.Job) -> None:
    class Listing(Split):
        seen = tg.OperatorListState(int)

    refused(lambda: orders(job).process(Listing()), "operator process-1 has state (seen) and no name", "name=")


def test_no_state_of_a_user_can_be_called_as_the_engines_own() -> None:
    with pytest.raises(InvalidError, match=r"'\.timers' cannot name a state"):
        tg.MapState(int, bool, name=".timers")

"""Keys that the input's partitions keep together: what becomes of them in the graph, and every graph that cannot have
them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.unit.api.programs import EmptySource, NullSink, Order, RunningTotal, Total
from tidegate.errors import InvalidError
from tidegate.graph.logical import LogicalGraph, Partitioning
from tidegate.graph.partitioned import is_from_one_split, sources_by_partition, split_places
from tidegate.graph.physical import PhysicalGraph, build_physical
from tidegate.ids import OperatorName
from tidegate.state.key_partitions import KeyPartitions

FOUR = KeyPartitions(4, "murmur2")


class TopicSource(EmptySource[Order]):
    """A source whose splits are partitions."""

    def partition_of(self, split: str) -> tuple[str, int]:
        topic, _, number = split.rpartition("/")
        return topic, int(number)


def user_of(order: Any) -> str:
    return str(order.user)


def topic(job: tg.Job, name: str = "orders", parallelism: int | None = None) -> tg.Stream[Order]:
    return job.source(TopicSource(), name=name, parallelism=parallelism)


def by_user(stream: tg.Stream[Any], **more: Any) -> tg.KeyedStream[str, Any]:
    return stream.key_by(user_of, key_type=str, **{"partitions": 4, **more})


def totals(stream: tg.KeyedStream[str, Any], name: str = "totals", **more: Any) -> None:
    stream.process(RunningTotal(), name=name, **more).sink(NullSink(), name=f"{name}-out")


def physical(job: tg.Job, parallelism: int) -> PhysicalGraph:
    return build_physical(job.graph(), parallelism, max_parallelism=128)


def chains(job: tg.Job, parallelism: int) -> dict[str, tuple[OperatorName, ...]]:
    return {vertex.name: vertex.operators for vertex in physical(job, parallelism).vertices}


def refused(call: Callable[[], object], *words: str) -> None:
    with pytest.raises(InvalidError) as caught:
        call()
    failure = caught.value.failure
    assert [word for word in words if word not in f"{failure.message} {failure.where}"] == [], str(caught.value)
    assert "leave partitions= out" in failure.remedy or "or none of them" in failure.remedy
    assert caught.value.exit_code == 2


class Joined(tg.KeyedCoProcessFunction[str, Order, Order, Total]):
    total = tg.ValueState(int, default=0)

    def process_element1(self, value: Order, ctx: tg.KeyedContext[str]) -> Iterator[Total]:
        yield Total(ctx.key, self.total.value())

    process_element2 = process_element1


# ---- what becomes of them --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 4, 6])
def test_source_key_by_and_state_are_one_chain_at_every_parallelism(parallelism: int) -> None:
    job = tg.Job("shop")
    totals(by_user(topic(job).map(lambda order: order).filter(bool)))
    graph = physical(job, parallelism)
    assert [vertex.operators for vertex in graph.vertices] == [
        ("orders", "map-1", "filter-1", "filter-1-key", "totals", "totals-out")
    ]
    assert graph.edges == ()
    assert graph.workers == parallelism


def test_a_union_of_topics_and_watermarks_stay_on_their_workers() -> None:
    job = tg.Job("shop")
    strategy = tg.WatermarkStrategy[Order].for_monotonous_timestamps()
    both = topic(job).union(topic(job, "returns")).assign_timestamps_and_watermarks(strategy, name="times")
    totals(by_user(both))
    graph = physical(job, 3)
    assert {edge.partitioning for edge in graph.edges} == {Partitioning.FORWARD}
    for edge in graph.edges:
        for one in graph.vertex(edge.source).tasks:
            assert [channel.target for channel in graph.channels_out_of(one, edge)] == [one.subtask]
    assert sources_by_partition(job.graph()) == {"orders": FOUR, "returns": FOUR}


def test_two_topics_are_joined_without_an_exchange() -> None:
    job = tg.Job("shop")
    joined = by_user(topic(job)).connect(by_user(topic(job, "returns"))).process(Joined(), name="joined")
    joined.sink(NullSink(), name="out")
    graph = physical(job, 4)
    assert [(edge.target, edge.input, edge.partitioning) for edge in graph.edges] == [
        ("joined", 0, Partitioning.FORWARD),
        ("joined", 1, Partitioning.FORWARD),
    ]


def test_what_is_broadcast_to_state_of_such_keys_still_goes_to_every_subtask() -> None:
    class Ruled(tg.KeyedBroadcastProcessFunction[str, Order, Order, Total]):
        rules = tg.BroadcastState(str, int)

        def process_element(self, value: Order, ctx: Any) -> Iterator[Total]:
            yield Total(ctx.key, 1)

        def process_broadcast_element(self, value: Order, ctx: Any) -> None:
            """Keeps nothing."""

    job = tg.Job("shop")
    ruled = by_user(topic(job)).connect(topic(job, "rules").broadcast()).process(Ruled(), name="ruled")
    ruled.sink(NullSink(), name="out")
    graph = physical(job, 2)
    assert [edge.partitioning for edge in graph.edges] == [Partitioning.FORWARD, Partitioning.BROADCAST]
    assert sources_by_partition(job.graph()) == {"orders": FOUR}


def test_the_partitions_are_part_of_the_keys_type_and_of_the_fingerprint() -> None:
    def graph(**more: Any) -> LogicalGraph:
        job = tg.Job("shop")
        totals(topic(job).key_by(user_of, key_type=str, **more))
        return job.graph()

    def key_types(**more: Any) -> tuple[str, ...]:
        made = graph(**more)
        return made.key_types(made.node(OperatorName("totals")))

    assert key_types(partitions=4) == ("str in 4 partitions by murmur2",)
    assert key_types(partitions=4, partitioner="crc32") == ("str in 4 partitions by crc32",)
    assert key_types() == ("str",)
    kinds: list[dict[str, Any]] = [{}, {"partitions": 4}, {"partitions": 8}, {"partitions": 4, "partitioner": "crc32"}]
    assert len({graph(**kind).fingerprint().digest for kind in kinds}) == len(kinds)


def test_state_behind_state_of_the_same_keys_needs_no_exchange_either() -> None:
    job = tg.Job("shop")
    first = by_user(topic(job)).process(RunningTotal(), name="first")
    totals(by_user(first))
    assert chains(job, 3) == {"orders": ("orders", "orders-key", "first", "first-key", "totals", "totals-out")}


def test_other_keys_of_the_same_source_are_exchanged_as_ever() -> None:
    job = tg.Job("shop")
    orders = topic(job)
    totals(by_user(orders))
    totals(orders.key_by(lambda order: str(order.amount), key_type=str, name="by-amount"), "amounts")
    graph = physical(job, 2)
    assert [(e.source_operator, e.target, e.partitioning) for e in graph.edges if e.target != "by-amount"] == [
        ("orders", "orders-key", Partitioning.FORWARD),
        ("by-amount", "amounts", Partitioning.HASH),
    ]
    assert sources_by_partition(job.graph()) == {"orders": FOUR}


def test_records_are_known_to_be_of_the_split_just_read_only_where_nobody_keeps_some_back() -> None:
    class Kept(tg.ProcessFunction[Order, Order]):
        def process_element(self, value: Order, ctx: tg.Context) -> Iterator[Order]:
            yield value

    job = tg.Job("shop")
    totals(by_user(topic(job).map(lambda order: order, name="one").process(Kept(), name="two")))
    graph = job.graph()
    (chain,) = chains(job, 2).values()
    assert is_from_one_split(graph, chain[:2])
    assert not is_from_one_split(graph, chain[:3])
    assert not is_from_one_split(graph, chain[1:2]), "it does not begin at a source"
    assert not is_from_one_split(graph, ())


def test_where_splits_belong_is_known_of_sources_with_such_keys_alone() -> None:
    job = tg.Job("shop")
    totals(by_user(topic(job)))
    totals(topic(job, "others").key_by(user_of), "other-totals")
    graph = job.graph()
    places = split_places(graph, graph.node(OperatorName("orders")), 128)
    assert places is not None
    assert [places.subtask(f"orders/{number}", 2) for number in range(4)] == [0, 0, 1, 1]
    assert split_places(graph, graph.node(OperatorName("others")), 128) is None


# ---- what cannot be --------------------------------------------------------------------------------------------------


def test_more_partitions_than_key_groups_are_refused() -> None:
    job = tg.Job("shop")
    totals(by_user(topic(job), partitions=129))
    refused(job.graph, "129 partitions by murmur2", "128", "orders-key")
    assert job.graph(max_parallelism=129).nodes


def test_records_that_have_changed_the_subtask_before_are_refused() -> None:
    exchanged = tg.Job("shop")
    first = topic(exchanged).key_by(user_of, key_type=str).process(RunningTotal(), name="first")
    totals(by_user(first))
    refused(exchanged.graph, "first-key", "orders-key go to first by another key")

    class Ruled(tg.BroadcastProcessFunction[Order, Order, Order]):
        rules = tg.BroadcastState(str, int)

        def process_element(self, value: Order, ctx: Any) -> Iterator[Order]:
            yield value

        def process_broadcast_element(self, value: Order, ctx: Any) -> None:
            """Keeps nothing."""

    broadcast = tg.Job("shop")
    ruled = topic(broadcast).connect(topic(broadcast, "rules").broadcast()).process(Ruled(), name="ruled")
    totals(by_user(ruled))
    refused(broadcast.graph, "ruled-key", "rules go to ruled by a broadcast")


def test_what_may_keep_records_is_refused_before_such_keys_because_its_state_goes_to_any_subtask() -> None:
    class Kept(tg.ProcessFunction[Order, Order]):
        waiting = tg.OperatorListState(Order)

        def process_element(self, value: Order, ctx: tg.Context) -> Iterator[Order]:
            yield value

    async def asked(order: Order) -> Order:
        return order

    job = tg.Job("shop")
    totals(by_user(topic(job).process(Kept(), name="kept").map(lambda order: order)))
    refused(job.graph, "map-1-key", "operator kept before it may keep records, in what its state holds")
    calling = tg.Job("shop")
    totals(by_user(topic(calling).async_map(asked, name="ask", type=Order)))
    refused(calling.graph, "ask-key", "operator ask before it may keep records, in calls")
    behind = tg.Job("shop")
    orders = topic(behind)
    totals(by_user(orders))
    orders.process(Kept(), name="kept").sink(NullSink(), name="kept-out")
    assert behind.graph().nodes


@pytest.mark.parametrize("other", [{"partitions": None}, {"partitions": 8}, {"partitioner": "crc32"}])
def test_inputs_that_are_partitioned_otherwise_are_refused(other: dict[str, Any]) -> None:
    job = tg.Job("shop")
    joined = by_user(topic(job)).connect(by_user(topic(job, "returns"), **other)).process(Joined(), name="joined")
    joined.sink(NullSink(), name="out")
    refused(job.graph, "joined", "those of orders-key are in 4 partitions by murmur2", "those of returns-key are")


def test_a_source_that_two_take_for_differently_partitioned_is_refused() -> None:
    job = tg.Job("shop")
    orders = topic(job)
    totals(by_user(orders, name="one"))
    totals(by_user(orders, name="two", partitioner="crc32"), "others")
    refused(job.graph, "one", "two", "orders", "4 partitions by murmur2", "4 partitions by crc32")


def test_a_parallelism_that_changes_on_the_way_is_refused_when_it_is_known() -> None:
    at_source = tg.Job("shop")
    totals(by_user(topic(at_source, parallelism=2).map(lambda order: order, name="widen")))
    refused(lambda: physical(at_source, 4), "widen-key", "its keys are in 4 partitions by murmur2", "orders has 2")
    assert chains(at_source, 2)
    at_state = tg.Job("shop")
    totals(by_user(topic(at_state)), parallelism=3)
    refused(lambda: physical(at_state, 2), "totals has 3", "orders-key has 2")
    everywhere = tg.Job("shop")
    totals(by_user(topic(everywhere, parallelism=3)), parallelism=3)
    assert len(physical(everywhere, 2).vertex(physical(everywhere, 2).vertices[0].name).tasks) == 3


def test_a_source_that_knows_no_partitions_is_refused_with_several_subtasks() -> None:
    job = tg.Job("shop")
    totals(by_user(job.source(EmptySource[Order](), name="orders")))
    refused(lambda: physical(job, 2), "orders", "EmptySource", "2 subtasks")
    assert list(chains(job, 1)) == ["orders"]
    graph = job.graph()
    assert split_places(graph, graph.node(OperatorName("orders")), 128) is None

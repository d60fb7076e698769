"""Each mistake that a program can make is one InvalidError that names the operator and the remedy, before anything
runs."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.unit.api.programs import EmptySource, NullSink, Order, RunningTotal, Split, Total, orders, running_totals
from tidegate.errors import InvalidError
from tidegate.ids import OperatorName


@pytest.fixture
def job() -> tg.Job:
    return tg.Job("shop")


def refused(call: Callable[[], object], *words: str) -> None:
    """`call` raises one InvalidError whose text has all of `words`, and which says what to do."""
    with pytest.raises(InvalidError) as caught:
        call()
    text = str(caught.value)
    assert [word for word in words if word not in text] == [], text
    assert caught.value.failure.remedy
    assert caught.value.exit_code == 2


BAD_NAMES: list[Any] = ["", "a b", "a:b", "ä", "x" * 65, 7, None]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_job_name_outside_the_pattern_is_refused(name: Any) -> None:
    refused(lambda: tg.Job(name), repr(name), "A-Z")


@pytest.mark.parametrize("name", [name for name in BAD_NAMES if name is not None])
def test_an_operator_name_outside_the_pattern_is_refused(job: tg.Job, name: Any) -> None:
    refused(lambda: orders(job).map(str, name=name), repr(name), "A-Z")


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_side_output_name_outside_the_pattern_is_refused(name: Any) -> None:
    refused(lambda: tg.SideOutput[int](name), repr(name), "A-Z")


def test_two_operators_with_one_name_are_refused(job: tg.Job) -> None:
    stream = orders(job)
    stream.map(str, name="text")
    refused(lambda: stream.filter(bool, name="text"), "shop", "text", "map and filter", "name=")


def test_a_default_name_that_is_too_long_is_refused_and_can_be_given(job: tg.Job) -> None:
    stream = orders(job, name="o" * 62)
    refused(lambda: stream.key_by(lambda order: order.user), "-key")
    stream.key_by(lambda order: order.user, name="by-user")


def test_a_job_without_source_is_refused(job: tg.Job) -> None:
    refused(job.graph, "shop", "no source", "job.source")


def test_a_job_without_sink_is_refused(job: tg.Job) -> None:
    orders(job)
    refused(job.graph, "shop", "no sink", ".sink")


def test_an_operator_whose_output_nobody_reads_is_refused(job: tg.Job) -> None:
    stream = orders(job)
    stream.sink(NullSink(), name="out")
    stream.map(str, name="forgotten")
    refused(job.graph, "forgotten (map)", "nobody reads")


def test_a_source_that_nobody_reads_is_refused(job: tg.Job) -> None:
    orders(job).sink(NullSink(), name="out")
    orders(job, "unread")
    refused(job.graph, "unread (source)", "nobody reads")


def test_a_keyed_stream_that_nobody_reads_is_refused(job: tg.Job) -> None:
    stream = orders(job)
    stream.sink(NullSink(), name="out")
    stream.key_by(lambda order: order.user)
    refused(job.graph, "orders-key (key_by)", "nobody reads")


def test_a_declared_side_output_may_stay_unread(job: tg.Job) -> None:
    orders(job).process(Split(), name="split").sink(NullSink(), name="out")
    assert job.graph().nodes[1].side_outputs == ("large",)


def test_a_process_function_may_have_only_its_side_output_read(job: tg.Job) -> None:
    split = Split()
    orders(job).process(split, name="split").side_output(split.large).sink(NullSink(), name="out")
    assert len(job.graph().nodes) == 3


def test_a_map_of_which_only_the_failing_records_are_read_is_refused(job: tg.Job) -> None:
    dead = tg.SideOutput[Order]("dead")
    orders(job).map(str, name="text", on_error=dead).side_output(dead).sink(NullSink(), name="out")
    refused(job.graph, "text (map)", "nobody reads")


def test_failing_records_sent_where_nobody_reads_are_refused(job: tg.Job) -> None:
    orders(job).map(str, name="text", on_error=tg.SideOutput[Order]("dead")).sink(NullSink(), name="out")
    refused(job.graph, "text", "'dead'", "nobody reads", "skip")


def test_a_side_output_that_the_operator_does_not_declare_is_refused(job: tg.Job) -> None:
    stream = orders(job).process(Split(), name="split")
    other = tg.SideOutput[int]("other")
    refused(lambda: stream.side_output(other), "split", "'other'", "it has large", "side_outputs=")
    refused(lambda: orders(job, "more").side_output(tg.SideOutput[int]("x")), "more", "it has none")


def test_a_side_output_given_by_its_name_alone_is_refused(job: tg.Job) -> None:
    stream: Any = orders(job).process(Split(), name="split")
    refused(lambda: stream.side_output("large"), "split", "'large'")


def test_a_side_output_of_a_side_output_is_refused(job: tg.Job) -> None:
    large = orders(job).process(Split(), name="split").side_output(Split.large)
    refused(lambda: large.side_output(Split.large), "split", "'large'")


def test_what_is_no_side_output_is_refused_in_the_list_of_side_outputs(job: tg.Job) -> None:
    names: Any = ["late"]
    refused(lambda: orders(job).process(Split(), name="split", side_outputs=names), "split", "type str", "SideOutput[")


def test_a_union_of_nothing_is_refused(job: tg.Job) -> None:
    refused(lambda: orders(job).union(name="all"), "all", "one stream")


def test_a_union_with_itself_is_refused(job: tg.Job) -> None:
    stream = orders(job)
    refused(lambda: stream.union(stream, name="all"), "all", "twice")
    other = orders(job, "others")
    refused(lambda: stream.union(other, other, name="all"), "all", "twice")


def test_a_union_with_a_stream_of_another_job_is_refused(job: tg.Job) -> None:
    other = orders(tg.Job("elsewhere"), "foreign")
    refused(lambda: orders(job).union(other, name="all"), "all", "foreign", "elsewhere")


def test_a_union_with_a_keyed_stream_is_refused(job: tg.Job) -> None:
    keyed: Any = orders(job).key_by(lambda order: order.user)
    refused(lambda: orders(job, "others").union(keyed, name="all"), "all", "KeyedStream", "key_by")


@pytest.mark.parametrize("parallelism", [0, -1, 1.5, "2", True])
def test_a_parallelism_that_is_no_number_from_one_is_refused(job: tg.Job, parallelism: Any) -> None:
    refused(lambda: orders(job, parallelism=parallelism), "orders", f"parallelism {parallelism!r}")
    stream = orders(job, "more")
    refused(lambda: stream.map(str, name="text", parallelism=parallelism), "text", repr(parallelism))
    refused(lambda: stream.sink(NullSink(), name="out", parallelism=parallelism), "out", repr(parallelism))


def test_a_parallelism_above_the_maximum_is_refused(job: tg.Job) -> None:
    orders(job).map(str, name="text", parallelism=9).sink(NullSink(), name="out")
    refused(lambda: job.graph(max_parallelism=8), "text", "parallelism 9", "of 8")
    assert job.graph(max_parallelism=9).nodes[1].parallelism == 9


KINDS = ["map", "filter", "flat_map", "key_by"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_called_is_refused(job: tg.Job, kind: str) -> None:
    refused(lambda: getattr(orders(job), kind)(7, name="it"), "operator it", kind, "not an object of type int")


@pytest.mark.parametrize("kind", KINDS)
def test_an_async_function_is_refused(job: tg.Job, kind: str) -> None:
    async def wait(order: Order) -> Order:
        return order

    async def many(order: Order) -> AsyncIterator[Order]:
        yield order

    stream = orders(job)
    refused(lambda: getattr(stream, kind)(wait, name="it"), "operator it", kind, "async")
    refused(lambda: getattr(stream, kind)(many, name="it"), "operator it", kind, "async")


def twice(order: Order) -> Iterator[Order]:
    yield order
    yield order


class Twice:
    def __call__(self, order: Order) -> Iterator[Order]:
        yield from twice(order)


@pytest.mark.parametrize("function", [twice, functools.partial(twice), Twice()])
def test_a_generator_function_is_only_accepted_by_flat_map(job: tg.Job, function: Any) -> None:
    stream = orders(job)
    for kind in ("map", "filter", "key_by"):
        call = functools.partial(getattr(stream, kind), function, name="it")
        refused(call, "operator it", kind, "flat_map")
    stream.flat_map(function, name="it")


def test_a_class_instead_of_an_instance_is_refused(job: tg.Job) -> None:
    source: Any = EmptySource
    sink: Any = NullSink
    split: Any = Split
    total: Any = RunningTotal
    refused(lambda: job.source(source, name="in"), "operator in", "class EmptySource", "EmptySource(...)")
    stream = orders(job)
    refused(lambda: stream.sink(sink, name="out"), "operator out", "class NullSink", "NullSink(...)")
    refused(lambda: stream.process(split, name="split"), "operator split", "class Split", "Split(...)")
    keyed = stream.key_by(lambda order: order.user)
    refused(lambda: keyed.process(total, name="totals"), "operator totals", "class RunningTotal")


def test_what_is_no_source_and_what_is_no_sink_is_refused(job: tg.Job) -> None:
    nothing: Any = [1, 2]
    refused(lambda: job.source(nothing, name="in"), "operator in", "list", "no discover and no open_reader")
    refused(lambda: orders(job).sink(nothing, name="out"), "operator out", "list", "no open_writer")


def test_a_process_function_on_the_wrong_kind_of_stream_is_refused(job: tg.Job) -> None:
    stream: Any = orders(job)
    keyed: Any = stream.key_by(lambda order: order.user)
    refused(lambda: stream.process(RunningTotal(), name="it"), "operator it", "RunningTotal", "Call key_by first")
    refused(lambda: keyed.process(Split(), name="it"), "operator it", "Split", "KeyedProcessFunction")
    refused(lambda: stream.process(len, name="it"), "operator it", "ProcessFunction", "use map")


def test_an_async_process_function_is_refused(job: tg.Job) -> None:
    class Waiting(tg.ProcessFunction[Order, Order]):
        async def process_element(self, value: Order, ctx: tg.Context) -> Any:  # type: ignore[override]
            return None

    refused(lambda: orders(job).process(Waiting(), name="it"), "operator it", "Waiting", "async")


def test_state_without_a_key_is_refused(job: tg.Job) -> None:
    class Counting(tg.ProcessFunction[Order, int]):
        count = tg.ValueState(int, default=0)

        def process_element(self, value: Order, ctx: tg.Context) -> Iterator[int]:
            yield 1

    refused(lambda: orders(job).process(Counting(), name="it"), "operator it", "Counting", "(count)", "key_by")


def test_two_states_of_one_name_are_refused(job: tg.Job) -> None:
    class Twofold(tg.KeyedProcessFunction[str, Order, int]):
        first = tg.ValueState(int, default=0, name="same")
        second = tg.ListState(int, name="same")

        def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> Iterator[int]:
            yield 1

    keyed = orders(job).key_by(lambda order: order.user)
    refused(lambda: keyed.process(Twofold(), name="it"), "operator it", "Twofold", "two states", "'same'")


def test_a_state_used_with_two_types_is_refused(job: tg.Job) -> None:
    class Changed(RunningTotal):
        total = tg.ValueState(str, default="")  # type: ignore[assignment]

    keyed = orders(job).key_by(lambda order: order.user)
    refused(lambda: keyed.process(Changed(), name="it"), "operator it", "Changed", "total", "int", "str")


@pytest.mark.parametrize("policy", ["ignore", None, 1])
def test_an_unknown_error_policy_is_refused(job: tg.Job, policy: Any) -> None:
    refused(lambda: orders(job).map(str, name="it", on_error=policy), "operator it", repr(policy), "skip")
    refused(lambda: job.source(EmptySource[int](), name="in", on_error=policy), "operator in", repr(policy))


def test_operators_with_state_can_only_fail_on_an_error(job: tg.Job) -> None:
    skip: Any = "skip"
    stream = orders(job)
    refused(lambda: stream.process(Split(), name="it", on_error=skip), "operator it", "process", "catch the exception")
    keyed = stream.key_by(lambda order: order.user)
    refused(lambda: keyed.process(RunningTotal(), name="it", on_error=skip), "operator it", "changed its state")
    refused(lambda: keyed.reduce(lambda a, b: a, name="it", type=Order, on_error=skip), "operator it", "reduce")


def test_a_declared_key_type_that_cannot_be_a_key_is_refused(job: tg.Job) -> None:
    stream = orders(job)
    for key_type in (float, list, set, Order):
        key_by: Any = functools.partial(stream.key_by, lambda order: 1)
        refused(functools.partial(key_by, key_type=key_type), "orders-key", key_type.__name__)


def test_a_reduce_whose_state_has_no_known_type_is_refused(job: tg.Job) -> None:
    keyed = running_totals(job).key_by(lambda total: total.user)
    refused(lambda: keyed.reduce(lambda a, b: b, name="last"), "operator last", "type=")
    keyed.reduce(lambda a, b: b, name="last", type=Total)


def test_a_reduce_whose_state_cannot_be_stored_is_refused(job: tg.Job) -> None:
    keyed = orders(job).map(lambda order: object()).key_by(lambda thing: 1)
    refused(lambda: keyed.reduce(lambda a, b: b, name="last", type=object), "operator last", "object")


def test_a_reduce_takes_the_type_of_its_state_from_the_annotation(job: tg.Job) -> None:
    def later(so_far: Total, total: Total) -> Total:
        return total

    running_totals(job).key_by(lambda total: total.user).reduce(later, name="last").sink(NullSink(), name="out")
    (state,) = job.graph().node(OperatorName("last")).states
    assert "Total" in state.value_type


def test_watermarks_in_the_middle_of_a_job_cannot_be_aligned(job: tg.Job) -> None:
    strategy = tg.WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment("g", "5m")
    refused(lambda: orders(job).assign_timestamps_and_watermarks(strategy), "timestamps-1", "aligned in g", "source")

"""What the methods of streams put into the graph: names, kinds, edges, states, factories."""

import pytest

import tidegate as tg
from tests.unit.api.programs import NullSink, Order, RunningTotal, Split, Total, orders, running_totals
from tests.unit.operators.bench import context
from tidegate.api.stream import OnErrorArgument
from tidegate.elements import Batch
from tidegate.errors import InvalidError
from tidegate.graph.logical import ErrorPolicy, InputEdge, LogicalGraph, LogicalNode, Partitioning
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.operators.keyed import KeyedProcessOperator
from tidegate.state.object_backend import ObjectStateBackend


def node(graph: LogicalGraph, name: str) -> LogicalNode:
    return graph.node(OperatorName(name))


def reads(upstream: str, partitioning: Partitioning = Partitioning.FORWARD, tag: str | None = None) -> InputEdge:
    return InputEdge(OperatorName(upstream), partitioning, tag)


def test_the_example_of_the_documentation_gives_the_graph_that_it_draws() -> None:
    class Sum(tg.KeyedProcessFunction):  # type: ignore[type-arg]
        total = tg.ValueState(int, default=0)

        def process_element(self, order, ctx):  # type: ignore[no-untyped-def]
            self.total.update(self.total.value() + order.amount)
            yield Total(ctx.key, self.total.value())

    job = tg.Job("running-totals")
    orders(job).key_by(lambda o: o.user).process(Sum(), name="totals").sink(NullSink(), name="out")
    graph = job.graph()
    assert [(n.kind, n.name) for n in graph.nodes] == [
        ("source", "orders"),
        ("key_by", "orders-key"),
        ("process", "totals"),
        ("sink", "out"),
    ]
    assert node(graph, "orders-key").inputs == (reads("orders"),)
    assert node(graph, "totals").inputs == (reads("orders-key", Partitioning.HASH),)
    assert node(graph, "out").inputs == (reads("totals"),)
    assert [n.keyed for n in graph.nodes] == [False, False, True, False]
    (state,) = node(graph, "totals").states
    assert (state.name, state.kind, state.value_type) == ("total", "value", "int")


def test_the_example_of_the_documentation_runs_as_written() -> None:
    class Sum(tg.KeyedProcessFunction):  # type: ignore[type-arg]
        total = tg.ValueState(int, default=0)

        def process_element(self, order: Order, ctx):  # type: ignore[no-untyped-def]
            self.total.update(self.total.value() + order.amount)
            yield Total(ctx.key, self.total.value())

    job = tg.Job("running-totals")
    orders(job).key_by(lambda o: o.user).process(Sum(), name="totals").sink(NullSink(), name="out")
    batches = [Batch([Order("anna", 3), Order("bert", 4), Order("anna", 5)])]
    for name in ("orders-key", "totals"):
        factory = node(job.graph(), name).factory
        assert factory is not None
        operator = factory()
        operator.open(context(state=ObjectStateBackend(OperatorName(name), SubtaskIndex(0), 1, 128)))
        batches = [output for batch in batches for output in operator.process(batch)]
    assert [batch.values for batch in batches] == [[Total("anna", 3), Total("bert", 4), Total("anna", 8)]]


def test_operators_without_a_name_are_called_by_kind_and_place() -> None:
    job = tg.Job("shop")
    stream = orders(job).map(lambda o: o).map(lambda o: o).filter(bool).flat_map(lambda o: [o]).process(Split())
    stream.union(stream.map(lambda o: o)).sink(NullSink(), name="out")
    names = [n.name for n in job.graph().nodes]
    assert names == ["orders", "map-1", "map-2", "filter-1", "flat_map-1", "process-1", "map-3", "union-1", "out"]


def test_key_by_has_the_parallelism_of_what_it_reads() -> None:
    job = tg.Job("shop")
    keyed = orders(job, parallelism=3).key_by(lambda order: order.user)
    keyed.process(RunningTotal(), name="totals", parallelism=2).sink(NullSink(), name="out")
    assert [n.parallelism for n in job.graph().nodes] == [3, 3, 2, None]


def test_a_stream_used_twice_gives_all_records_to_both() -> None:
    job = tg.Job("shop")
    stream = orders(job)
    stream.sink(NullSink(), name="first")
    stream.sink(NullSink(), name="second")
    assert [n.inputs for n in job.graph().sinks] == [(reads("orders"),), (reads("orders"),)]


def test_a_side_output_is_read_by_its_tag() -> None:
    job = tg.Job("shop")
    split = orders(job).process(Split(), name="split")
    split.sink(NullSink(), name="small")
    split.side_output(Split.large).sink(NullSink(), name="large")
    assert node(job.graph(), "large").inputs == (reads("split", tag="large"),)


def test_side_outputs_are_found_on_the_class_its_bases_the_object_and_in_the_argument() -> None:
    class More(Split):
        other = tg.SideOutput[int]("other")

        def __init__(self) -> None:
            self.own = tg.SideOutput[int]("own")

    job = tg.Job("shop")
    given = tg.SideOutput[int]("given")
    orders(job).process(More(), name="split", side_outputs=[given, More.other]).sink(NullSink(), name="out")
    assert node(job.graph(), "split").side_outputs == ("given", "large", "other", "own")


def test_a_union_reads_all_its_streams_also_side_outputs() -> None:
    job = tg.Job("shop")
    split = orders(job).process(Split(), name="split")
    split.union(split.side_output(Split.large), orders(job, "more"), name="all").sink(NullSink(), name="out")
    assert node(job.graph(), "all").inputs == (reads("split"), reads("split", tag="large"), reads("more"))


@pytest.mark.parametrize(
    ("argument", "policy", "tag"),
    [
        ("fail", ErrorPolicy.FAIL, None),
        ("skip", ErrorPolicy.SKIP, None),
        (tg.SideOutput[Order]("dead"), ErrorPolicy.SIDE_OUTPUT, "dead"),
    ],
)
def test_on_error_becomes_the_policy_of_the_node(
    argument: OnErrorArgument, policy: ErrorPolicy, tag: str | None
) -> None:
    job = tg.Job("shop")
    stream = orders(job).map(lambda o: o, name="it", on_error=argument)
    if isinstance(argument, tg.SideOutput):
        stream.side_output(argument).sink(NullSink(), name="dead")
    stream.sink(NullSink(), name="out")
    it = node(job.graph(), "it")
    assert (it.on_error, it.error_tag, it.side_outputs) == (policy, tag, (tag,) if tag else ())


def test_the_factory_gives_each_subtask_its_own_copy_of_the_function() -> None:
    class Remembering(RunningTotal):
        def __init__(self) -> None:
            self.seen: list[str] = []

    job = tg.Job("shop")
    function = Remembering()
    keyed = orders(job).key_by(lambda order: order.user)
    keyed.process(function, name="totals").sink(NullSink(), name="out")
    factory = node(job.graph(), "totals").factory
    assert factory is not None
    operators = [factory(), factory()]
    copies = [op._function for op in operators if isinstance(op, KeyedProcessOperator)]
    assert len({id(thing) for thing in (function, *copies)}) == 3
    assert len({id(thing.seen) for thing in (function, *copies)}) == 3  # type: ignore[attr-defined]


def test_a_function_that_cannot_be_copied_is_refused_by_the_factory_with_the_operators_name() -> None:
    class Generating(Split):
        def __init__(self) -> None:
            self.numbers = (n for n in range(3))

    job = tg.Job("shop")
    orders(job).process(Generating(), name="split").sink(NullSink(), name="out")
    factory = node(job.graph(), "split").factory
    assert factory is not None
    with pytest.raises(InvalidError, match=r"(?s)operator split.*cannot be copied.*open"):
        factory()


def test_key_by_operators_do_not_share_what_they_learn_about_the_type_of_keys() -> None:
    job = tg.Job("shop")
    running_totals(job).sink(NullSink(), name="out")
    factory = node(job.graph(), "orders-key").factory
    assert factory is not None
    assert factory() is not factory()


def test_building_a_job_twice_gives_the_same_graph_data() -> None:
    def lines() -> tuple[str, ...]:
        job = tg.Job("shop")
        running_totals(job).sink(NullSink(), name="out")
        return job.graph().fingerprint().lines

    assert lines() == lines()


def test_a_keyed_stream_offers_only_what_uses_the_key() -> None:
    public = {name for name in dir(tg.KeyedStream) if not name.startswith("_")}
    windows_and_joins = {"count_window", "interval_join", "temporal_join", "window", "window_join"}
    assert (
        public
        == {"aggregate", "connect", "deduplicate", "process", "reduce", "side_output", "top_n"} | windows_and_joins
    )


def test_records_without_a_key_can_be_read_as_a_side_output_of_the_keyed_stream() -> None:
    job = tg.Job("shop")
    keyless = tg.SideOutput[Order]("keyless")
    keyed = orders(job).key_by(lambda order: order.user, on_error=keyless)
    keyed.side_output(keyless).sink(NullSink(), name="dead")
    keyed.process(RunningTotal(), name="totals").sink(NullSink(), name="out")
    assert node(job.graph(), "dead").inputs == (reads("orders-key", tag="keyless"),)


def test_streams_and_jobs_say_what_they_are() -> None:
    job = tg.Job("shop")
    split = orders(job).process(Split(), name="split")
    assert repr(job) == "Job('shop')"
    assert [repr(split), repr(split.side_output(Split.large))] == ["Stream(split)", "Stream(split, side output large)"]
    assert repr(split.key_by(lambda order: order.user)) == "KeyedStream(split-key)"

"""How a logical graph becomes chains, edges, channels and workers."""

import tidegate as tg
from tests.unit.api.programs import NullSink, Order, RunningTotal, Split, orders, running_totals
from tidegate.graph.logical import Partitioning
from tidegate.graph.physical import ChannelId, PhysicalGraph, build_physical, worker_of
from tidegate.ids import SubtaskIndex, TaskId, VertexName


def physical(job: tg.Job, parallelism: int) -> PhysicalGraph:
    return build_physical(job.graph(), parallelism, max_parallelism=128)


def chains(graph: PhysicalGraph) -> dict[str, tuple[tuple[str, ...], int]]:
    return {vertex.name: (vertex.operators, vertex.parallelism) for vertex in graph.vertices}


def edges(graph: PhysicalGraph) -> list[tuple[str, str | None, str, Partitioning]]:
    return [(edge.source_operator, edge.tag, edge.target, edge.partitioning) for edge in graph.edges]


def totals_job() -> tg.Job:
    job = tg.Job("shop")
    running_totals(job).map(lambda total: total, name="look").sink(NullSink(), name="out")
    return job


def task(vertex: str, subtask: int) -> TaskId:
    return TaskId(VertexName(vertex), SubtaskIndex(subtask))


def channel(edge: int, source: int, target: int) -> ChannelId:
    return ChannelId(edge, SubtaskIndex(source), SubtaskIndex(target))


def test_with_one_subtask_the_whole_job_is_one_chain_also_across_key_by() -> None:
    graph = physical(totals_job(), 1)
    assert chains(graph) == {"orders": (("orders", "orders-key", "totals", "look", "out"), 1)}
    assert graph.edges == ()
    assert graph.workers == 1


def test_with_more_subtasks_key_by_ends_its_chain_and_records_go_by_hash() -> None:
    graph = physical(totals_job(), 2)
    assert chains(graph) == {"orders": (("orders", "orders-key"), 2), "totals": (("totals", "look", "out"), 2)}
    assert edges(graph) == [("orders-key", None, "totals", Partitioning.HASH)]
    assert graph.workers == 2


def test_every_subtask_of_a_hash_edge_talks_to_every_other() -> None:
    graph = physical(totals_job(), 2)
    assert graph.channels_into(task("totals", 1)) == (channel(0, 0, 1), channel(0, 1, 1))
    assert graph.channels_out_of(task("orders", 0), graph.edges[0]) == (channel(0, 0, 0), channel(0, 0, 1))
    assert graph.channels_into(task("orders", 0)) == ()


def test_what_is_written_is_what_is_read_over_all_tasks() -> None:
    for parallelism in (1, 2, 3):
        graph = physical(branched_job(), parallelism)
        written = [
            one
            for vertex in graph.vertices
            for sender in vertex.tasks
            for edge in graph.outputs(vertex.name)
            for one in graph.channels_out_of(sender, edge)
        ]
        read = [one for reader in graph.tasks for one in graph.channels_into(reader)]
        assert sorted(written) == sorted(read)
        assert len(set(read)) == len(read)


def branched_job() -> tg.Job:
    job = tg.Job("shop")
    split = orders(job).process(Split(), name="split")
    split.map(lambda order: order, name="small").sink(NullSink(), name="out")
    large = split.side_output(Split.large)
    large.union(orders(job, "late", parallelism=2), name="all").sink(NullSink(), name="all-out")
    return job


def test_a_side_output_begins_a_chain_and_leaves_the_main_output_chained() -> None:
    graph = physical(branched_job(), 2)
    assert chains(graph) == {
        "orders": (("orders", "split", "small", "out"), 2),
        "late": (("late",), 2),
        "all": (("all", "all-out"), 2),
    }
    assert edges(graph) == [
        ("split", "large", "all", Partitioning.FORWARD),
        ("late", None, "all", Partitioning.FORWARD),
    ]


def test_a_side_output_is_not_chained_even_with_one_subtask() -> None:
    job = tg.Job("shop")
    split = orders(job).process(Split(), name="split")
    split.side_output(Split.large).sink(NullSink(), name="large")
    assert chains(physical(job, 1)) == {"orders": (("orders", "split"), 1), "large": (("large",), 1)}


def test_a_forward_edge_connects_each_subtask_with_its_like_only() -> None:
    graph = physical(branched_job(), 2)
    assert graph.channels_into(task("all", 1)) == (channel(0, 1, 1), channel(1, 1, 1))
    assert graph.channels_out_of(task("orders", 1), graph.edges[0]) == (channel(0, 1, 1),)


def test_operators_of_different_parallelism_are_connected_by_rebalance() -> None:
    job = tg.Job("shop")
    orders(job, parallelism=2).map(lambda order: order, name="wide", parallelism=3).sink(NullSink(), name="out")
    graph = physical(job, 1)
    assert chains(graph) == {"orders": (("orders",), 2), "wide": (("wide",), 3), "out": (("out",), 1)}
    assert [partitioning for *_, partitioning in edges(graph)] == [Partitioning.REBALANCE, Partitioning.REBALANCE]
    assert graph.channels_out_of(task("orders", 1), graph.edges[0]) == (
        channel(0, 1, 0),
        channel(0, 1, 1),
        channel(0, 1, 2),
    )
    assert graph.channels_into(task("out", 0)) == (channel(1, 0, 0), channel(1, 1, 0), channel(1, 2, 0))


def test_a_wide_source_keeps_its_key_selector_and_still_hashes_to_one_subtask() -> None:
    job = tg.Job("shop")
    keyed = orders(job, parallelism=2).key_by(lambda order: order.user)
    keyed.process(RunningTotal(), name="totals").sink(NullSink(), name="out")
    graph = physical(job, 1)
    assert chains(graph) == {"orders": (("orders", "orders-key"), 2), "totals": (("totals", "out"), 1)}
    assert edges(graph) == [("orders-key", None, "totals", Partitioning.HASH)]


def test_an_output_that_two_operators_read_is_chained_to_neither() -> None:
    job = tg.Job("shop")
    stream = orders(job)
    stream.sink(NullSink(), name="first")
    stream.map(lambda order: order, name="second").sink(NullSink(), name="out")
    assert chains(physical(job, 1)) == {
        "orders": (("orders",), 1),
        "first": (("first",), 1),
        "second": (("second", "out"), 1),
    }


def test_a_union_of_two_sources_begins_a_chain() -> None:
    job = tg.Job("shop")
    orders(job).union(orders(job, "more"), name="all").sink(NullSink(), name="out")
    graph = physical(job, 1)
    assert chains(graph) == {"orders": (("orders",), 1), "more": (("more",), 1), "all": (("all", "out"), 1)}


def test_worker_i_runs_subtask_i_of_every_chain() -> None:
    graph = physical(branched_job(), 3)
    assert graph.workers == 3
    by_worker: dict[int, list[str]] = {}
    for one in graph.tasks:
        by_worker.setdefault(worker_of(one), []).append(str(one))
    assert by_worker == {
        0: ["orders[0]", "late[0]", "all[0]"],
        1: ["orders[1]", "late[1]", "all[1]"],
        2: ["orders[2]", "all[2]"],
    }


def test_every_process_computes_the_same_physical_graph() -> None:
    assert physical(branched_job(), 2) == physical(branched_job(), 2)


def test_the_records_of_a_union_of_two_side_outputs_of_one_operator_keep_two_edges() -> None:
    dead = tg.SideOutput[Order]("dead")

    class Both(Split):
        other = tg.SideOutput[Order]("other")

    job = tg.Job("shop")
    both = orders(job).process(Both(), name="both", side_outputs=[dead])
    both.side_output(Both.large).union(both.side_output(Both.other), name="all").sink(NullSink(), name="out")
    assert [(tag, target) for _, tag, target, _ in edges(physical(job, 1))] == [("large", "all"), ("other", "all")]

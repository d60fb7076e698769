"""A job with an operator that says something at the end of its input, as windows will."""

from collections.abc import Iterable
from typing import Any

import tidegate as tg
from tidegate.connectors.collections import CollectionSink
from tidegate.elements import Batch
from tidegate.graph.logical import InputEdge, LogicalGraph, LogicalNode, Partitioning
from tidegate.ids import OperatorName
from tidegate.operators.stateless import UnionOperator

NAME = OperatorName("farewell")


class Farewell(UnionOperator):
    """Passes everything on, and says goodbye."""

    def end_of_input(self) -> Iterable[Batch]:
        return [Batch(["bye"])]


class FarewellJob(tg.Job):
    """Source, farewell, sink. The API has no operator yet that speaks at the end, so the node is put in by hand."""

    def graph(self, max_parallelism: int = 8) -> LogicalGraph:
        source, sink = super().graph(max_parallelism).nodes
        edge = InputEdge(source.name, Partitioning.FORWARD)
        farewell = LogicalNode(NAME, "farewell", (edge,), factory=Farewell)
        behind = InputEdge(NAME, Partitioning.FORWARD)
        return LogicalGraph(self.name, (source, farewell, LogicalNode(sink.name, "sink", (behind,), sink=sink.sink)))


def farewell_job(source: Any, sink: CollectionSink) -> tg.Job:
    job = FarewellJob("farewell")
    job.source(source, name="src").sink(sink, name="out")
    return job

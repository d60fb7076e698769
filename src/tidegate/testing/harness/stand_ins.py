"""A program's graph, with stand-ins for what is outside of it: its sources read the feed, its sinks collect.

Everything else is the program's own. The fingerprint stays what it was, so that states are found again.
"""

from collections.abc import Mapping
from dataclasses import replace

from tidegate.errors import InvalidError
from tidegate.graph.logical import LogicalGraph, LogicalNode
from tidegate.ids import OperatorName
from tidegate.operators.contracts import Operator, OperatorFactory
from tidegate.testing.harness.elements import ScriptedSource
from tidegate.testing.harness.feed import Feed, FeedSource, PartitionedFeedSource, told_strategy
from tidegate.testing.harness.sink import Collected
from tidegate.testing.harness.watching import States, WatchedOperator


class StandIns:
    """Of one job, over all its starts."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._scripts: Mapping[str, ScriptedSource] = {}
        self.sinks: dict[str, Collected] = {}
        """By operator; one that the program had in an earlier version stays."""
        self.watermarked: tuple[str, ...] = ()
        """The operators that make watermarks."""
        self._operators: dict[str, list[WatchedOperator]] = {}

    def graph(self, own: LogicalGraph, scripts: Mapping[str, ScriptedSource]) -> LogicalGraph:
        """For one start. `scripts`: one for each source."""
        self._operators = {}
        self._scripts = scripts
        self.watermarked = tuple(node.name for node in own.nodes if node.watermarks is not None)
        return LogicalGraph(own.job, tuple(map(self._stand_in, own.nodes)))

    def states(self, operator: str) -> States:
        """Of all its subtasks together."""
        found: States = {}
        for subtask in self._subtasks(operator):
            subtask.add_to(found)
        return found

    def records_skipped(self, operator: str) -> int:
        """By all its subtasks, since the last start."""
        return sum(getattr(subtask.operator, "records_skipped", 0) for subtask in self._subtasks(operator))

    def _subtasks(self, operator: str) -> list[WatchedOperator]:
        """Of the last start. Raises InvalidError for an operator that the harness does not know."""
        if operator not in self._operators:
            there = ", ".join(self._operators)
            raise InvalidError(f"there is no operator {operator!r} with a function", remedy=f"There are: {there}.")
        return self._operators[operator]

    def _stand_in(self, node: LogicalNode) -> LogicalNode:
        if node.watermarks is not None:
            node = replace(node, watermarks=told_strategy(node.watermarks, self._feed, node.name))
        if node.source is not None:
            splits, own_format = self._scripts[node.name].splits, node.source.deserializer
            # With one split nobody has said which records are in which partition.
            made = PartitionedFeedSource if splits > 1 else FeedSource
            return replace(node, source=made(self._feed, node.name, splits, own_format))
        if node.sink is not None:
            return replace(node, sink=self.sinks.setdefault(node.name, Collected()))
        return replace(node, factory=self._remembering(node.name, node.factory)) if node.factory is not None else node

    def _remembering(self, name: OperatorName, make: OperatorFactory) -> OperatorFactory:
        made: list[WatchedOperator] = []
        self._operators[name] = made

        def factory() -> Operator:
            made.append(WatchedOperator(make()))
            return made[-1].operator

        return factory


def scripts_of(own: LogicalGraph, given: Mapping[str, ScriptedSource]) -> dict[str, ScriptedSource]:
    """The script of each source: the one given, else its own, else an empty one. Raises InvalidError for a name that
    is no source's."""
    names = [node.name for node in own.sources]
    for name in given:
        if name not in names:
            raise InvalidError(f"job {own.job} has no source {name!r}", remedy=f"It has: {', '.join(names)}.")
    own_scripts = {n.name: n.source for n in own.sources if isinstance(n.source, ScriptedSource)}
    return {name: given.get(name) or own_scripts.get(name) or ScriptedSource() for name in names}

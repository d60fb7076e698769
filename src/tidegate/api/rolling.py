"""Rolling aggregates of keyed streams and their arguments: `KeyedStream.aggregate` becomes one operator, of
`operators/keyed.py`. It adds to the graph and runs nothing.
"""

from collections.abc import Callable
from typing import Any

from tidegate.api.builder import GraphBuilder
from tidegate.api.validation import about, check_function, check_parallelism, declarations
from tidegate.api.windowed import Aggregate, by_value, check_aggregate
from tidegate.errors import InvalidError
from tidegate.graph.logical import InputEdge, LogicalNode
from tidegate.ids import OperatorName
from tidegate.operators.keyed import AggregateOperator
from tidegate.state.descriptors import AggregatingState


def add_aggregate(
    builder: GraphBuilder,
    edge: InputEdge,
    name: str,
    aggregate: Aggregate[Any, Any, Any],
    result_function: Callable[[Any, Any], Any] | None,
    parallelism: int | None,
) -> OperatorName:
    """As `KeyedStream.aggregate`. Raises InvalidError."""
    operator = builder.name("aggregate", name)
    check_aggregate(operator, aggregate)
    state = _state(operator, aggregate)
    if result_function is not None:
        check_function(operator, "the result function of aggregate", result_function)
    builder.add(
        LogicalNode(
            operator,
            "aggregate",
            (edge,),
            check_parallelism(operator, parallelism),
            factory=lambda: AggregateOperator(state, result_function, by_value(aggregate)),
            keyed=True,
            states=declarations({state.name: state}),
        )
    )
    return operator


def _state(operator: OperatorName, aggregate: Aggregate[Any, Any, Any]) -> AggregatingState[Any, Any]:
    try:
        return AggregatingState(aggregate.type, aggregate.create, aggregate.add, aggregate.result, name="accumulator")
    except InvalidError as error:
        raise about(operator, error) from error

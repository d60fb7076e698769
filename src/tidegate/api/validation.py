"""What a program can get wrong, found before anything runs: each mistake is one InvalidError that names operator and
remedy.

Checks of single arguments are called where the user's call is, so that the traceback ends there; checks of the whole
graph when the graph is asked for. Nothing here changes anything.
"""

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidegate.api.functions import SideOutput
from tidegate.errors import InvalidError
from tidegate.event_time.strategies import WatermarkStrategy
from tidegate.graph.logical import ErrorPolicy, InputEdge, LogicalNode, StateDeclaration
from tidegate.ids import OperatorName, is_name
from tidegate.state.descriptors import StateDescriptor, ValueState, collect_descriptors
from tidegate.state.key_groups import KeyChecker
from tidegate.state.key_partitions import MURMUR2, KeyPartitions, partitioned_key_type

_TAKES_ALL = ("flat_map", "map_batch", "process_batch")
"""Those that take all that their function yields."""
NAME_REMEDY = "Use 1 to 64 of the characters A-Z, a-z, 0-9, '_' and '-'."


def check_name(what: str, name: object) -> str:
    """`name` if it may name a job or an operator."""
    if not isinstance(name, str) or not is_name(name):
        raise InvalidError(f"{name!r} cannot name {what}", remedy=NAME_REMEDY)
    return name


def check_parallelism(operator: str, parallelism: object) -> int | None:
    """`parallelism` if it is None (the job's) or a whole number from 1."""
    if parallelism is None:
        return None
    if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
        raise InvalidError(
            f"operator {operator} has parallelism {parallelism!r}",
            remedy="Give a whole number from 1, or leave it out to get the job's.",
        )
    return parallelism


def check_function(operator: str, kind: str, function: object) -> None:
    """Whether `function` may be what `map`, `filter`, `flat_map`, `key_by` and `reduce` call."""
    if not callable(function):
        raise InvalidError(
            f"operator {operator}: {kind} needs a function, not {_type_of(function)}",
            remedy="Give a function, a lambda, or an object with __call__.",
        )
    if _is(inspect.iscoroutinefunction, function) or _is(inspect.isasyncgenfunction, function):
        raise InvalidError(
            f"operator {operator}: {kind} was given an async function; nothing would await it",
            remedy="Give a plain function.",
        )
    if kind not in _TAKES_ALL and _is(inspect.isgeneratorfunction, function):
        raise InvalidError(
            f"operator {operator}: {kind} was given a generator function, whose result is a generator and not a value",
            remedy="Use flat_map, which emits everything that the function yields, or return the value.",
        )


def _is(test: Callable[[Any], bool], function: Any) -> bool:
    return test(function) or (not inspect.isroutine(function) and test(getattr(function, "__call__", None)))  # noqa: B004


def check_key_type(operator: str, key_type: Any) -> str:
    """Whether a declared `key_type` can be the type of keys, and how checkpoints spell it; None declares nothing."""
    try:
        return KeyChecker(operator, key_type).key_type
    except InvalidError as error:
        raise about(operator, error) from error


def check_key_partitions(operator: str, key_type: str, partitions: Any, partitioner: Any) -> KeyPartitions | None:
    """How the input partitions keys of the declared `key_type`; None where the program does not say that it does."""
    if partitions is None:
        if partitioner != MURMUR2:
            raise InvalidError(
                f"operator {operator} has partitioner={partitioner!r} and no partitions=",
                remedy="Say how many partitions the topic has, too, or leave both out.",
            )
        return None
    try:
        declared = KeyPartitions.declared(partitions, partitioner)
        partitioned_key_type(key_type, declared)
    except InvalidError as error:
        raise about(operator, error) from error
    return declared


def check_instance(operator: str, what: str, thing: object, methods: tuple[str, ...]) -> None:
    """Whether `thing` is an object with the `methods` of a source or a sink."""
    if isinstance(thing, type):
        raise InvalidError(
            f"operator {operator} was given the class {thing.__name__} instead of {what}",
            remedy=f"Make an instance: {thing.__name__}(...).",
        )
    missing = [method for method in methods if not callable(getattr(thing, method, None))]
    if missing:
        raise InvalidError(
            f"operator {operator} needs {what}, not {_type_of(thing)}, which has no {' and no '.join(missing)}",
            remedy="Give one of Tidegate's, or implement the contract in tidegate.operators.contracts.",
        )


def check_watermarks(operator: str, strategy: object) -> None:
    """Whether `strategy` is one."""
    if not isinstance(strategy, WatermarkStrategy):
        raise InvalidError(
            f"operator {operator} was given {_type_of(strategy)} where a watermark strategy is needed",
            remedy='Make one: WatermarkStrategy.for_bounded_out_of_orderness("5s").',
        )


def check_not_aligned(operator: str, strategy: WatermarkStrategy[Any]) -> None:
    """Whether `strategy` leaves its records as they come: only what reads them can wait."""
    if strategy.alignment is not None:
        raise InvalidError(
            f"operator {operator} was given a watermark strategy that is {strategy.alignment}, and is no source",
            remedy="Give such a strategy to the source: job.source(..., watermarks=strategy).",
        )


def check_is_process_function(operator: str, function: object, wanted: type, remedy: str) -> None:
    """Whether `function` is an instance of `wanted`, a class of process functions; `remedy` is for what is another."""
    if isinstance(function, type):
        raise InvalidError(
            f"operator {operator} was given the class {function.__name__} instead of a process function",
            remedy=f"Make an instance: process({function.__name__}(...), ...).",
        )
    if not isinstance(function, wanted):
        raise InvalidError(f"operator {operator} needs a {wanted.__name__}, not {_type_of(function)}", remedy=remedy)


def check_methods(operator: str, function: object, methods: Iterable[str]) -> None:
    """Whether those of the `methods` that a process function has can be called as plain ones."""
    for name in methods:
        method = getattr(function, name, None)
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            raise InvalidError(
                f"operator {operator}: {type(function).__name__}.{name} is async; nothing would await it",
                remedy="Make it a plain method or a generator.",
            )


def declared_states(operator: str, function: object) -> dict[str, StateDescriptor[Any]]:
    """The states that are attributes of `function`."""
    try:
        return collect_descriptors(function)
    except InvalidError as error:
        raise about(operator, error) from error


def declarations(states: Mapping[str, StateDescriptor[Any]]) -> tuple[StateDeclaration, ...]:
    """The states as the fingerprint has them, by name."""
    declared = [StateDeclaration(state.name, state.kind, state.type_name, state.stored.id) for state in states.values()]
    return tuple(sorted(declared, key=lambda state: state.name))


def reduced_state(operator: str, function: Callable[..., Any], declared: Any) -> ValueState[Any]:
    """The state of a reduce: of the type that was `declared`, or else of what `function` is annotated to return."""
    state_type = declared or _returned_type(function)
    if state_type is None:
        raise InvalidError(
            f"operator {operator}: the type that reduce keeps as state is not known",
            remedy="Annotate what the function returns, or give type=...: it says how the state is serialised.",
        )
    try:
        return ValueState(state_type, name="value")
    except InvalidError as error:
        raise about(operator, error) from error


def _returned_type(function: Callable[..., Any]) -> Any:
    """The annotation of what `function` returns; None where there is none or its names mean nothing."""
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        return None
    returned = hints.get("return")
    return None if returned is type(None) else returned


def declared_side_outputs(operator: str, function: object, more: Iterable[SideOutput[Any]]) -> tuple[str, ...]:
    """Names of the side outputs that are attributes of `function` or given in `side_outputs=`, sorted."""
    attributes = (value for cls in reversed(type(function).__mro__) for value in vars(cls).values())
    found = [tag for tag in (*attributes, *vars(function).values()) if isinstance(tag, SideOutput)]
    for tag in more:
        if not isinstance(tag, SideOutput):
            raise InvalidError(
                f"operator {operator} was given {_type_of(tag)} as a side output",
                remedy='Give SideOutput[Record]("name").',
            )
        found.append(tag)
    return tuple(sorted({tag.name for tag in found}))


def check_side_output(operator: str, tag: object, declared: tuple[str, ...]) -> str:
    """The name of `tag`, if it is one of the `declared` side outputs of `operator`."""
    if isinstance(tag, SideOutput) and tag.name in declared:
        return tag.name
    name = tag.name if isinstance(tag, SideOutput) else tag
    raise InvalidError(
        f"operator {operator} has no side output {name!r}; it has {', '.join(declared) or 'none'}",
        remedy="Make it a class attribute of the process function, or give it in side_outputs= or on_error=.",
    )


def check_late(late: object, where: str = "") -> str | None:
    """The name of the side output for late records, None without one. `where`: what an error begins with. Raises
    InvalidError."""
    if late is None:
        return None
    if not isinstance(late, SideOutput):
        raise InvalidError(f"{where}late={late!r} is no side output", remedy='Make one: SideOutput[Order]("late").')
    return late.name


def error_policy(operator: str, on_error: object) -> tuple[ErrorPolicy, str | None]:
    """What `on_error=` means: the policy, and the side output's name where there is one."""
    if isinstance(on_error, SideOutput):
        return ErrorPolicy.SIDE_OUTPUT, on_error.name
    if on_error == "fail":
        return ErrorPolicy.FAIL, None
    if on_error == "skip":
        return ErrorPolicy.SKIP, None
    raise InvalidError(f"operator {operator} has on_error={on_error!r}", remedy='Give "fail", "skip" or a SideOutput.')


def check_fails_on_error(operator: str, kind: str, on_error: object) -> None:
    """Operators whose function may have changed something when it raises can only fail."""
    if error_policy(operator, on_error)[0] is not ErrorPolicy.FAIL:
        raise InvalidError(
            f"operator {operator}: {kind} cannot go on behind a record on which its function raised, "
            "because the function may have changed its state or emitted already",
            remedy="Leave on_error out; catch the exception in the function and send the record to a side output.",
        )


def check_graph(job: str, nodes: Mapping[OperatorName, LogicalNode], max_parallelism: int) -> None:
    """Whether the whole can run: something comes in, everything goes somewhere, and no operator is too wide."""
    if not any(node.source is not None for node in nodes.values()):
        raise InvalidError(f"job {job} has no source", remedy="Begin with job.source(...).")
    if not any(node.sink is not None for node in nodes.values()):
        raise InvalidError(f"job {job} has no sink: nobody would see its results", remedy="End with .sink(...).")
    read = {(edge.upstream, edge.tag) for node in nodes.values() for edge in node.inputs}
    for node in nodes.values():
        _check_read(node, read)
        if node.parallelism is not None and node.parallelism > max_parallelism:
            raise InvalidError(
                f"operator {node.name} has parallelism {node.parallelism}, more than the job's max parallelism "
                f"of {max_parallelism}",
                remedy="Lower it, or set a larger max_parallelism before the job has state: it cannot change later.",
            )


def check_broadcasts(broadcasts: Iterable[InputEdge], nodes: Mapping[OperatorName, LogicalNode]) -> None:
    """Whether each stream that was broadcast was also connected to something."""
    connected = {edge for node in nodes.values() for edge in node.inputs}
    for edge in broadcasts:
        if edge not in connected:
            raise InvalidError(
                f"what operator {edge.upstream} emits is broadcast to nothing",
                remedy="Connect it: stream.connect(other.broadcast()).process(...), or leave the broadcast out.",
            )


def _check_read(node: LogicalNode, read: set[tuple[OperatorName, str | None]]) -> None:
    if node.error_tag is not None and (node.name, node.error_tag) not in read:
        raise InvalidError(
            f"operator {node.name} sends failing records to side output {node.error_tag!r}, which nobody reads",
            remedy='Read it with .side_output(...), or say on_error="skip" to leave them out.',
        )
    only_side_outputs = node.kind == "process" and any((node.name, tag) in read for tag in node.side_outputs)
    if node.sink is None and (node.name, None) not in read and not only_side_outputs:
        raise InvalidError(
            f"operator {node.name} ({node.kind}) emits records that nobody reads",
            remedy="Call a method on the stream that it returned, .sink(...) in the end, or leave the operator out.",
        )


def about(operator: str, error: InvalidError) -> InvalidError:
    """`error`, saying of which operator it is."""
    return InvalidError(f"operator {operator}: {error.failure.message}", remedy=error.failure.remedy)


def _type_of(thing: object) -> str:
    return f"{thing!r}" if thing is None else f"an object of type {type(thing).__name__}"

"""A session: every system with every workload and number of slots, again and again, in turns. What is compared runs one
after the other, and in another order each round, so that a slow minute of the machine hits all alike.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.suite.checks import WrongResult
from benchmarks.suite.contracts import Guarantee, OwnCount, OwnSlots, System, Workload
from benchmarks.suite.measure import Measured, Measuring, Plan
from benchmarks.suite.places import without_places
from benchmarks.suite.results import Result, Session, append
from benchmarks.suite.workloads import Data
from tidegate.errors import TidegateError

Say = Callable[[str], None]


class Choice(NamedTuple):
    """What a session runs."""

    systems: Sequence[System]
    workloads: Sequence[Workload]
    slots: Sequence[int]
    guarantees: Sequence[Guarantee]
    data: Data
    checkpoint_seconds: float
    rounds: int


def plans(choice: Choice, round: int) -> Iterator[tuple[System, Plan]]:
    """The runs of one round (from 1), those that are compared beside each other. A system runs only what it can, and
    with its strongest guarantee where it has none of those that are asked for."""
    for workload in choice.workloads:
        for slots in choice.slots:
            kinds = [
                (system, guarantee)
                for system in choice.systems
                if workload in system.workloads and slots <= _most_slots(system, choice.slots)
                for guarantee in _guarantees(system, choice.guarantees)
            ]
            turn = (round - 1) % max(1, len(kinds))
            for system, guarantee in kinds[turn:] + kinds[:turn]:
                data = _data(system, workload, choice.data)
                yield system, Plan(workload, slots, data, choice.checkpoint_seconds, guarantee)


def _most_slots(system: System, asked: Sequence[int]) -> int:
    """At least the fewest that are asked for: what uses one slot only is no faster with more."""
    return max(system.most_slots, min(asked)) if isinstance(system, OwnSlots) else max(asked)


def _guarantees(system: System, asked: Sequence[Guarantee]) -> Sequence[Guarantee]:
    return [guarantee for guarantee in asked if guarantee in system.guarantees] or system.guarantees[:1]


def _data(system: System, workload: Workload, data: Data) -> Data:
    if not isinstance(system, OwnCount):
        return data
    return data._replace(records=min(data.records, system.records_of(workload)))


def prepared(systems: Sequence[System], say: Say) -> list[System]:
    """Those that can run; of the others it is said why they cannot."""
    ready = []
    for system in systems:
        try:
            system.prepare()
            ready.append(system)
        except TidegateError as error:
            say(f"{system.name} is left out: {error}")
    return ready


def run(choice: Choice, measuring: Measuring, session: Session, path: Path, say: Say) -> bool:
    """Measure all, and append each result to `path` when it is there. Whether none failed."""
    is_well = True
    for round in range(1, choice.rounds + 1):
        for system, plan in plans(choice, round):
            name = f"round {round}: {plan.workload} {system.name}, {plan.slots} slots, {plan.guarantee}"
            result = _run(system, plan, measuring, session, round)
            append(path, result)
            is_well = is_well and not result.error
            say(f"{name}: {_told(result.measured) if result.measured else result.error}")
    return is_well


def _run(system: System, plan: Plan, measuring: Measuring, session: Session, round: int) -> Result:
    result = Result(
        session=session,
        round=round,
        system=system.name,
        title=system.title,
        settings={name: without_places(value) for name, value in system.settings().items()},
        workload=plan.workload,
        slots=plan.slots,
        guarantee=plan.guarantee,
        checkpoint_seconds=plan.checkpoint_seconds,
        users=plan.data.users,
        value_bytes=plan.data.value_bytes,
        partitions=plan.data.partitions,
    )
    try:
        measured = measuring.measure(system, plan)
    except (WrongResult, TidegateError) as error:
        return msgspec.structs.replace(result, error=without_places(str(error)))
    rates = {"rate": _to_four_digits(measured.rate), "rate_per_cpu": _to_four_digits(measured.rate_per_cpu)}
    return msgspec.structs.replace(result, measured=measured, **rates)


def _to_four_digits(value: float) -> float:
    return float(f"{value:.4g}")


def _told(measured: Measured) -> str:
    return (
        f"{measured.rate:,.0f} records/s, {measured.rate_per_cpu:,.0f} per CPU second, "
        f"{measured.peak_memory / 1e6:,.0f} MB, first output after {measured.seconds_to_first:.1f} s"
    )

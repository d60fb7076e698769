"""Time to live over the object backend, and what a program may say of it."""

from datetime import timedelta
from typing import Any

import pytest

from tidegate.errors import InvalidError
from tidegate.ids import OperatorName, SubtaskIndex
from tidegate.state.object_backend import ObjectStateBackend
from tidegate.state.ttl import Ttl
from tidegate.testing.conformance.state_ttl import StateTtlConformance


class TestObjectBackend(StateTtlConformance):
    def backend(self, subtask: SubtaskIndex, parallelism: int, max_parallelism: int) -> ObjectStateBackend:
        return ObjectStateBackend(OperatorName("totals"), subtask, parallelism, max_parallelism)


@pytest.mark.parametrize(
    ("after", "milliseconds"), [("500ms", 500), ("7d", 604_800_000), (timedelta(hours=1), 3_600_000)]
)
def test_a_time_to_live_is_a_duration(after: Any, milliseconds: int) -> None:
    assert Ttl(after).after == milliseconds


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"after": "0s"}, "no time at all"),
        ({"after": "soon"}, "not a duration"),
        ({"after": "1s", "update": "read"}, r"Ttl\(update='read'\) is not known"),
        ({"after": "1s", "clock": "sun"}, r"Ttl\(clock='sun'\) is not known"),
        ({"after": "1s", "expired": "gone"}, r"Ttl\(expired='gone'\) is not known"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        Ttl(**arguments)

"""Test tools for users: `JobHarness`, `OperatorHarness` and what goes with them, see docs/testing.md. Beside them are
the conformance kits for connectors and storages, and the simulated world.

Importing this imports neither pytest nor hypothesis.
"""

from tidegate.testing.harness.elements import (
    AdvanceProcessingTime,
    Checkpoint,
    CollectSink,
    Crash,
    Encoded,
    EndOfInput,
    Record,
    Restart,
    ScriptedSource,
    Watermark,
)
from tidegate.testing.harness.job_harness import JobHarness
from tidegate.testing.harness.operator_harness import OperatorHarness
from tidegate.testing.harness.sink import Collected

__all__ = [
    "AdvanceProcessingTime",
    "Checkpoint",
    "CollectSink",
    "Collected",
    "Crash",
    "Encoded",
    "EndOfInput",
    "JobHarness",
    "OperatorHarness",
    "Record",
    "Restart",
    "ScriptedSource",
    "Watermark",
]

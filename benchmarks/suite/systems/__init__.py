"""The systems that can be measured, by name. A module of one is imported when it is asked for, and `system(name)` there
makes it.
"""

from importlib import import_module

from benchmarks.suite.contracts import System
from tidegate.errors import InvalidError

MODULES = {
    "tidegate": "tidegate",
    "tidegate-exchange": "tidegate",
    "tidegate-librdkafka": "tidegate",
    "tidegate-batches": "tidegate",
    "bare-loop": "bare_loop",
    "flink": "flink",
    "pyflink": "pyflink",
    "quix": "quix",
    "bytewax": "bytewax",
}


def load(name: str) -> System:
    """Raises InvalidError for a name that nothing has."""
    if name not in MODULES:
        raise InvalidError(f"no system is called {name!r}", remedy=f"There are {', '.join(MODULES)}.")
    system: System = import_module(f"{__name__}.{MODULES[name]}").system(name)
    return system

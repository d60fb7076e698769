"""Tidegate's public names: what a program needs to describe a job. Importing it imports no connector and no client.

A job is a graph of named operators from sources to sinks; see `Job`, `Stream` and `KeyedProcessFunction`.
"""

from tidegate.api.functions import Context, KeyedContext, KeyedProcessFunction, ProcessFunction, SideOutput
from tidegate.api.job import Job
from tidegate.api.stream import KeyedStream, Stream
from tidegate.errors import TidegateError
from tidegate.serializers import Pickled, pickled
from tidegate.state.descriptors import ListState, MapState, ReducingState, ValueState

__all__ = [
    "Context",
    "Job",
    "KeyedContext",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListState",
    "MapState",
    "Pickled",
    "ProcessFunction",
    "ReducingState",
    "SideOutput",
    "Stream",
    "TidegateError",
    "ValueState",
    "pickled",
]

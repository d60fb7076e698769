"""Tidegate's public names: what a program needs to describe a job. Importing it imports no connector and no client.

A job is a graph of named operators from sources to sinks; see `Job`, `Stream` and `KeyedProcessFunction`.
"""

from tidegate.api.functions import Context, KeyedContext, KeyedProcessFunction, ProcessFunction, SideOutput
from tidegate.api.job import Job, run_jobs_with
from tidegate.api.stream import KeyedStream, Stream
from tidegate.cli.program import main, run
from tidegate.config import Config
from tidegate.errors import TidegateError
from tidegate.formats import Bytes, Json, String
from tidegate.serializers import Pickled, pickled
from tidegate.state.descriptors import ListState, MapState, ReducingState, ValueState

run_jobs_with(run)

__all__ = [
    "Bytes",
    "Config",
    "Context",
    "Job",
    "Json",
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
    "String",
    "TidegateError",
    "ValueState",
    "main",
    "pickled",
]

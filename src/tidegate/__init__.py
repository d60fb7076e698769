"""Tidegate's public names: what a program needs to describe a job. Importing it imports no connector and no client.

A job is a graph of named operators from sources to sinks; see `Job`, `Stream` and `KeyedProcessFunction`.
"""

from tidegate.api.connected import BroadcastStream
from tidegate.api.functions import (
    BroadcastProcessFunction,
    Context,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedContext,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    SideOutput,
    TimerService,
)
from tidegate.api.job import Job, run_jobs_with
from tidegate.api.keyed_stream import KeyedStream
from tidegate.api.stream import Stream
from tidegate.api.windowed import Aggregate, WindowContext, WindowedStream
from tidegate.cli.program import main, run
from tidegate.config import Config
from tidegate.errors import TidegateError
from tidegate.event_time.strategies import WatermarkGenerator, WatermarkStrategy
from tidegate.event_time.windows import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)
from tidegate.formats import Bytes, Json, String
from tidegate.savepoints.bootstrap import write_savepoint
from tidegate.savepoints.operator_rows import OperatorRows
from tidegate.savepoints.reading import StateRow, StateRows, list_states, read_state
from tidegate.serializers import Pickled, Serialized, TypeSerializer, pickled, serialized
from tidegate.state.descriptors import AggregatingState, ListState, MapState, ReducingState, ValueState
from tidegate.state.operator_descriptors import BroadcastState, OperatorListState
from tidegate.state.ttl import Ttl

run_jobs_with(run)

__all__ = [
    "Aggregate",
    "AggregatingState",
    "BroadcastProcessFunction",
    "BroadcastState",
    "BroadcastStream",
    "Bytes",
    "CoProcessFunction",
    "Config",
    "Context",
    "EventTimeSessionWindows",
    "Job",
    "Json",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedContext",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListState",
    "MapState",
    "OperatorListState",
    "OperatorRows",
    "Pickled",
    "ProcessFunction",
    "ReducingState",
    "Serialized",
    "SideOutput",
    "SlidingEventTimeWindows",
    "StateRow",
    "StateRows",
    "Stream",
    "String",
    "TidegateError",
    "TimeWindow",
    "TimerService",
    "Ttl",
    "TumblingEventTimeWindows",
    "TypeSerializer",
    "ValueState",
    "WatermarkGenerator",
    "WatermarkStrategy",
    "WindowContext",
    "WindowedStream",
    "list_states",
    "main",
    "pickled",
    "read_state",
    "serialized",
    "write_savepoint",
]

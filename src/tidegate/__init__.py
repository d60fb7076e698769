"""Tidegate's public names: what a program needs to describe a job. Importing it imports no connector and no client.

A job is a graph of named operators from sources to sinks; see `Job`, `Stream` and `KeyedProcessFunction`.
"""

from tidegate import imports
from tidegate.api import aggregates
from tidegate.api.asynchronous import AsyncFunction, LookupCache, Retries
from tidegate.api.batches import BatchFunction
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
from tidegate.api.window_functions import ProcessWindowFunction
from tidegate.api.windowed import Aggregate, WindowedStream
from tidegate.cli.program import main, run
from tidegate.config import Config
from tidegate.errors import TidegateError
from tidegate.event_time.composed_triggers import EventTimeTrigger, ProcessingTimeoutTrigger, PurgingTrigger
from tidegate.event_time.interval_triggers import ContinuousEventTimeTrigger, ContinuousProcessingTimeTrigger
from tidegate.event_time.strategies import WatermarkGenerator, WatermarkStrategy
from tidegate.event_time.triggers import (
    CountTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    Trigger,
    TriggerContext,
    TriggerResult,
)
from tidegate.event_time.windows import (
    CountWindow,
    EventTimeSessionWindows,
    GlobalWindow,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from tidegate.formats import Bytes, Json, String
from tidegate.operators.windows.functions import WindowContext, WindowState
from tidegate.savepoints.bootstrap import write_savepoint
from tidegate.savepoints.operator_rows import OperatorRows
from tidegate.savepoints.reading import StateRow, StateRows, list_states, read_state
from tidegate.serializers import Pickled, Serialized, TypeSerializer, pickled, serialized
from tidegate.state.descriptors import AggregatingState, ListState, MapState, ReducingState, ValueState
from tidegate.state.operator_descriptors import BroadcastState, OperatorListState
from tidegate.state.ttl import Ttl

run_jobs_with(run)
imports.are_done()

__all__ = [
    "Aggregate",
    "AggregatingState",
    "AsyncFunction",
    "BatchFunction",
    "BroadcastProcessFunction",
    "BroadcastState",
    "BroadcastStream",
    "Bytes",
    "CoProcessFunction",
    "Config",
    "Context",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountTrigger",
    "CountWindow",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "GlobalWindow",
    "GlobalWindows",
    "Job",
    "Json",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedContext",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListState",
    "LookupCache",
    "MapState",
    "NeverTrigger",
    "OperatorListState",
    "OperatorRows",
    "Pickled",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "ProcessingTimeoutTrigger",
    "PurgingTrigger",
    "ReducingState",
    "Retries",
    "Serialized",
    "SideOutput",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "StateRow",
    "StateRows",
    "Stream",
    "String",
    "TidegateError",
    "TimeWindow",
    "TimerService",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
    "Ttl",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "TypeSerializer",
    "ValueState",
    "WatermarkGenerator",
    "WatermarkStrategy",
    "WindowContext",
    "WindowState",
    "WindowedStream",
    "aggregates",
    "list_states",
    "main",
    "pickled",
    "read_state",
    "serialized",
    "write_savepoint",
]

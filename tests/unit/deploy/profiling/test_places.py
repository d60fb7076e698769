"""What a thread is at is read from its frames: of real tasks, at the moment when a user's function is called."""

import importlib
import inspect
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import tidegate as tg
from tests.unit.runtime.harness import AT_ONCE, Bench, HandSource
from tidegate.connectors.collections import CollectionSink
from tidegate.deploy.profiling import places
from tidegate.deploy.profiling.places import Stack, stack_of, thread_stack
from tidegate.formats.plain import String

HOMES = [
    "tidegate.deploy.calls",
    "tidegate.deploy.executor",
    "tidegate.deploy.in_process",
    "tidegate.deploy.worker_process",
    "tidegate.operators.sink",
    "tidegate.operators.source",
    "tidegate.runtime.asynchronous",
    "tidegate.runtime.gate",
    "tidegate.runtime.router",
    "tidegate.runtime.sink_driver",
    "tidegate.runtime.task",
    "tidegate.runtime.worker",
]


def here(worker: int | None = None) -> Stack | None:
    """Where the caller is."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return stack_of(frame.f_back, worker)


def names(stack: Stack | None) -> list[str]:
    assert stack is not None
    return [code.co_qualname for code in stack.functions]


class Looking:
    """Notes where it was called."""

    def __init__(self) -> None:
        self.seen: list[Stack] = []

    def __call__(self, value: Any) -> Any:
        stack = here()
        assert stack is not None
        self.seen.append(stack)
        return value


class Total(tg.KeyedProcessFunction[str, str, str]):
    """Looks in the middle of a batch."""

    look: Callable[[Any], Any]

    def process_element(self, value: str, ctx: tg.KeyedContext[str]) -> list[str]:
        return [type(self).look(value)]


class LookingString(String):
    """Looks while values are decoded."""

    look: Callable[[Any], Any]

    def decode(self, raw: list[Any]) -> list[Any]:
        type(self).look(None)
        return super().decode(raw)


def bench_of(look: Looking, source: HandSource, parallelism: int = 1) -> Bench:
    job = tg.Job("looked-at")
    stream = job.source(source, name="src").map(look, name="map")
    stream.key_by(look, name="key").process(Total(), name="total").sink(CollectionSink(), name="out")
    return Bench(job, parallelism, options=AT_ONCE)


def test_a_function_is_found_under_its_worker_task_and_operator() -> None:
    look, source = Looking(), HandSource()
    Total.look = look
    source.put("a", "x")
    bench = bench_of(look, source).deploy()
    bench.read()
    bench.settle()
    mapped, keyed, totalled = look.seen
    assert [stack.worker for stack in look.seen] == [0, 0, 0]
    assert mapped.labels == ("task src", "operator map")
    assert keyed.labels == ("task src", "operator key")
    assert totalled.labels == ("task src", "operator total")
    assert names(totalled)[-2:] == ["Total.process_element", "Looking.__call__"]
    assert "Task.step" not in names(totalled)
    assert "Chain.next_output" not in names(totalled)


def test_tasks_of_one_process_belong_to_the_workers_that_they_are_subtasks_of() -> None:
    look, source = Looking(), HandSource()
    Total.look = look
    source.put("a", *map(str, range(50)))
    bench = bench_of(look, source, parallelism=2).deploy()
    bench.read()
    bench.settle()
    found = {(stack.worker, stack.labels) for stack in look.seen if stack.labels[-1] == "operator total"}
    assert found == {(worker, ("task total", "operator total")) for worker in (0, 1)}


def test_what_reads_is_the_sources_and_what_the_engine_does_is_the_engines() -> None:
    seen: list[Stack | None] = []

    class Reading(HandSource):
        def read(self, split: str, position: int, most: int) -> Any:
            seen.append(here())
            return super().read(split, position, most)

    source = Reading()
    source.put("a", "x")
    Total.look = look = Looking()
    bench = bench_of(look, source).deploy()
    bench.read()
    bench.settle()
    assert seen[0] is not None
    assert seen[0].labels == ("task src", "operator src", "reading")
    assert names(seen[0])[0] == "SourceInput.poll"


def test_decoding_and_writing_are_parts_of_their_operators() -> None:
    class Writing(CollectionSink):
        def open_writer(self, context: Any) -> Any:
            writer = super().open_writer(context)
            write = writer.write

            def looking(transaction: Any, batch: Any) -> None:
                seen.append(here())
                write(transaction, batch)

            writer.write = looking
            return writer

    seen: list[Stack | None] = []
    LookingString.look = lambda _: seen.append(here())
    source = HandSource(LookingString())
    source.put("a", b"x")
    job = tg.Job("decoding")
    job.source(source, name="src").sink(Writing(), name="out")
    bench = Bench(job, options=AT_ONCE).deploy()
    bench.read()
    bench.settle()
    assert [stack.labels for stack in seen if stack is not None] == [
        ("task src", "operator src", "decoding"),
        ("task src", "operator out", "writing"),
    ]


def test_what_is_in_no_task_is_a_part_of_the_engine() -> None:
    stack = here(worker=3)
    assert stack is not None
    assert (stack.worker, stack.labels) == (3, ("engine: other",))


def test_a_thread_that_has_nothing_to_do_is_left_out_and_another_is_named() -> None:
    go, is_there, frames = threading.Event(), threading.Event(), list[FrameType]()

    def work() -> None:
        is_there.set()
        go.wait()

    thread = threading.Thread(target=work)
    thread.start()
    is_there.wait()
    while not frames or frames[-1].f_code.co_qualname != "Condition.wait":
        assert thread.ident is not None
        frames.append(sys._current_frames()[thread.ident])
    assert thread_stack(frames[-1], "sink:out[0]", 1) is None
    go.set()
    thread.join()
    frame = inspect.currentframe()
    assert frame is not None
    stack = thread_stack(frame, "sink:out[0]", 1)
    assert stack is not None
    assert stack.labels == ("thread sink:out",)
    assert names(stack)[-1] == inspect.stack()[0].function


@pytest.mark.parametrize("parts", [places.OF_SOURCE, places.OF_TASK, places.IN_CHAIN, places.OF_WORKER, places.WAITING])
def test_every_function_that_is_looked_for_is_one_that_there_is(parts: Any) -> None:
    modules = [importlib.import_module(name) for name in HOMES]
    known = {
        method.__qualname__
        for module in modules
        for kind in vars(module).values()
        if inspect.isclass(kind)
        for method in vars(kind).values()
        if inspect.isfunction(method)
    }
    assert set(parts) <= known

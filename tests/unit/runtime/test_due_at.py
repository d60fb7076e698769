"""A step says when something of the workers themselves is due, apart from when a source would be looked at again."""

import tidegate as tg
from tests.unit.runtime.harness import Bench, HandSource
from tidegate.connectors.collections import CollectionSink


class Waiting(tg.KeyedProcessFunction[int, int, int]):
    """Emits what came five seconds ago."""

    def process_element(self, value: int, ctx: tg.KeyedContext[int]) -> None:
        ctx.timer_service.register_processing_time_timer(ctx.timer_service.current_processing_time() + 5000)

    def on_timer(self, timestamp: int, ctx: tg.KeyedContext[int]) -> list[int]:
        return [ctx.key]


def test_what_is_due_leaves_out_when_a_source_is_polled_again() -> None:
    source, sink = HandSource(), CollectionSink()
    source.put("a", 1)
    job = tg.Job("waiting")
    job.source(source, name="src").key_by(lambda value: value).process(Waiting(), name="wait").sink(sink, name="out")
    bench = Bench(job).deploy()
    assert bench.workers[0].step().due_at is None
    bench.read()
    bench.finish()
    steps = bench.workers[0].step()
    assert steps.wake_at is not None
    assert steps.wake_at < bench.clock.time + 0.1
    assert steps.due_at == bench.clock.time + 5

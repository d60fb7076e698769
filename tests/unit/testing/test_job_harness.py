"""A job in a harness does what it does in production, at the moments at which a test wants it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.unit.testing.jobs import Average, Order, Silence, Total, totals, totals_in, windows
from tidegate.errors import InternalError, InvalidError, UserCodeError
from tidegate.local import LocalSource
from tidegate.testing import CollectSink, Encoded, JobHarness, Record, ScriptedSource
from tidegate.testing.harness import engine

NO_WATERMARKS = tg.WatermarkStrategy[Order].no_watermarks()


# ---- sources and sinks ---------------------------------------------------------------------------------------------


def test_a_program_for_production_runs_as_it_is_and_touches_nothing_outside(tmp_path: Path) -> None:
    with JobHarness(totals_in(tmp_path / "log")) as harness:
        harness.send("orders", Order("ann", 5), Order("bob", 1), Order("ann", 7))
        harness.finish()
        assert harness.committed() == ["ann 5", "bob 1", "ann 12"]
        assert harness.is_finished
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_committed_by_a_checkpoint_and_not_before() -> None:
    with JobHarness(totals()) as harness:
        harness.send("orders", Order("ann", 5))
        assert (harness.output(), harness.committed()) == (["ann 5"], [])
        harness.checkpoint()
        harness.send("orders", Order("ann", 7))
        assert (harness.output(), harness.committed()) == (["ann 5", "ann 12"], ["ann 5"])


def test_bytes_go_through_the_format_of_the_source() -> None:
    bad = tg.SideOutput[bytes]("bad")
    job = tg.Job("decoding")
    orders = job.source(LocalSource("log", "orders", value=tg.Json(Order)), name="orders", on_error=bad)
    orders.sink(CollectSink(), name="out")
    orders.side_output(bad).sink(CollectSink(), name="bad")
    with JobHarness(job) as harness:
        harness.send("orders", Encoded(b'["ann", 5, 0]'), Order("bob", 1), Encoded(b"{"))
        harness.finish()
        assert harness.committed("out") == [Order("ann", 5), Order("bob", 1)]
        assert harness.committed("bad") == [b"{"]


def test_a_sink_tells_the_timestamps_of_its_records() -> None:
    with JobHarness(totals()) as harness:
        harness.send("orders", Order("ann", 5), timestamp=8)
        harness.send("orders", Record(Order("ann", 2), 9), Order("ann", 1))
        harness.checkpoint()
        assert harness.sink("out").committed_records == [Record("ann 5", 8), Record("ann 7", 9), Record("ann 8")]
        assert harness.sink().records == harness.sink("out").committed_records


def test_sources_and_sinks_are_called_by_their_names() -> None:
    with JobHarness(windows()) as harness:
        for wrong, message in (
            (lambda: harness.send("order", 1), "no source 'order'"),
            (lambda: harness.end_input("order"), "no source 'order'"),
            (harness.output, "has several sinks"),
            (lambda: harness.output("outs"), "no sink 'outs'"),
            (lambda: harness.send("orders", Order("ann", 1), split=1), "no split 1"),
            (lambda: harness.state("sums", "x"), "no operator 'sums'"),
            (lambda: harness.state("sum", "x"), "no state 'x'"),
        ):
            with pytest.raises(InvalidError, match=message):
                wrong()
    with pytest.raises(InvalidError, match="no source 'order'"):
        JobHarness(windows(), sources={"order": []})


def test_nothing_is_sent_behind_the_end() -> None:
    with JobHarness(totals()) as harness:
        harness.end_input()
        assert harness.is_finished
        for call in (lambda: harness.send("orders", Order("ann", 1)), harness.checkpoint):
            with pytest.raises(InvalidError, match="has finished"):
                call()
        harness.crash()
        assert harness.is_finished


def test_of_values_with_a_wrong_one_among_them_none_is_sent() -> None:
    with JobHarness(totals()) as harness:
        with pytest.raises(InvalidError, match="no split 1"):
            harness.send("orders", Order("ann", 1), Record(Order("ann", 1), split=1))
        harness.finish()
        assert harness.committed() == []


def test_another_version_of_the_program_may_have_other_sources_and_sinks() -> None:
    def version(*names: str) -> tg.Job:
        job = tg.Job("versions")
        for name in names:
            source = job.source(ScriptedSource([f"{name} by script"]), name=name)
            source.sink(CollectSink(), name=f"{name}-out")
        return job

    with JobHarness(version("old", "both")) as harness:
        harness.run()
        harness.send("both", 1)
        with pytest.raises(InvalidError, match="source 'old', which the program does not have"):
            harness.restart(program=version("both", "new"))
        harness.crash()
        harness.restart(program=version("both", "new"), allow_non_restored_state=True)
        with pytest.raises(InvalidError, match="no source 'old'"):
            harness.send("old", 2)
        harness.run()
        harness.send("new", 3)
        harness.send("both", 4)
        harness.crash()
        harness.rewind()
        harness.send("new", 5)
        harness.finish()
        assert harness.committed("old-out") == ["old by script"]
        assert harness.committed("both-out") == ["both by script", 1]
        assert harness.committed("new-out") == [5]


def test_one_of_two_sources_may_end_alone() -> None:
    job = tg.Job("union")
    one, two = (job.source(ScriptedSource(), name=name) for name in ("one", "two"))
    one.union(two, name="both").sink(CollectSink(), name="out")
    with JobHarness(job) as harness:
        harness.send("one", 1)
        harness.end_input("one")
        with pytest.raises(InvalidError, match="source one has ended"):
            harness.send("one", 2)
        harness.send("two", 3)
        harness.restart(parallelism=2)
        harness.send("two", 4)
        assert not harness.is_finished
        harness.finish()
        assert harness.committed() == [1, 3, 4]


# ---- crashes and restarts ------------------------------------------------------------------------------------------


def test_a_crash_before_any_checkpoint_begins_anew() -> None:
    with JobHarness(totals()) as harness:
        harness.send("orders", Order("ann", 5), Order("ann", 7))
        harness.crash()
        assert (harness.output(), harness.committed()) == (["ann 5", "ann 12"], [])
        harness.finish()
        assert harness.committed() == ["ann 5", "ann 12"]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_crash_goes_back_to_the_newest_checkpoint(parallelism: int) -> None:
    with JobHarness(totals(splits=2), parallelism=2) as harness:
        harness.send("orders", Order("ann", 5), Order("bob", 1))
        harness.send("orders", Order("cid", 3), split=1)
        harness.checkpoint()
        committed = harness.committed()
        harness.send("orders", Order("ann", 7), split=1)
        harness.crash(parallelism=parallelism)
        assert harness.committed() == committed
        assert harness.output() == [*committed, "ann 12"]
        assert harness.state("total", "total") == {"ann": 12, "bob": 1, "cid": 3}
        harness.finish()
        assert sorted(harness.committed()) == ["ann 12", "ann 5", "bob 1", "cid 3"]


def test_what_is_read_again_comes_in_the_order_of_before_whatever_sources_it_is_of() -> None:
    job = tg.Job("union")
    streams = [job.source(ScriptedSource(splits=2), name=name) for name in ("one", "two")]
    streams[0].union(streams[1], name="both").sink(CollectSink(), name="out")
    sent = [("two", 1), ("one", 0), ("one", 1), ("two", 0), ("two", 1), ("one", 0)]
    with JobHarness(job) as harness:
        for number, (source, split) in enumerate(sent):
            harness.send(source, number, split=split)
        assert harness.output() == [0, 1, 2, 3, 4, 5]
        harness.crash()
        assert harness.output() == [0, 1, 2, 3, 4, 5]


def test_a_rewind_forgets_what_came_since_the_checkpoint() -> None:
    with JobHarness(totals()) as harness:
        harness.send("orders", Order("ann", 5))
        harness.checkpoint()
        harness.send("orders", Order("ann", 7))
        harness.end_input()
        assert harness.is_finished
    with JobHarness(totals()) as harness:
        harness.send("orders", Order("ann", 5))
        harness.checkpoint()
        harness.send("orders", Order("ann", 7))
        harness.rewind(parallelism=2)
        assert harness.output() == ["ann 5"]
        harness.send("orders", Order("ann", 1))
        harness.finish()
        assert harness.committed() == ["ann 5", "ann 6"]


def test_a_restart_may_bring_another_version_of_the_program() -> None:
    with JobHarness(totals(Total())) as harness:
        harness.send("orders", Order("ann", 6))
        harness.restart(program=totals(Average()))
        harness.send("orders", Order("ann", 4))
        assert harness.committed() == ["ann 6"]
        assert harness.output() == ["ann 6", "ann 10"]


def test_a_version_of_the_program_that_cannot_take_over_the_state_is_refused() -> None:
    class Other(Total):
        total = tg.ValueState(str, default="")  # type: ignore[assignment]

    with JobHarness(totals(Total())) as harness:
        harness.send("orders", Order("ann", 6))
        with pytest.raises(InvalidError, match="total"):
            harness.restart(program=totals(Other()))


def test_a_program_that_is_a_function_is_called_for_each_start() -> None:
    made: list[tg.Job] = []

    def program() -> tg.Job:
        made.append(totals())
        return made[-1]

    with JobHarness(program) as harness:
        before = len(made)
        harness.crash()
        harness.restart()
        assert len(made) == before + 2


def test_functions_are_closed_by_a_restart_and_not_by_a_crash() -> None:
    closed: list[str] = []

    class Closing(tg.ProcessFunction[Any, Any]):
        def process_element(self, value: Any, ctx: tg.Context) -> None:
            """Nothing comes of it."""

        def close(self) -> None:
            closed.append("closed")

    job = tg.Job("closing")
    job.source(ScriptedSource(), name="in").process(Closing(), name="it").sink(CollectSink(), name="out")
    harness = JobHarness(job)
    harness.crash()
    assert closed == []
    harness.restart()
    assert closed == ["closed"]
    harness.close()
    assert closed == ["closed"] * 2


# ---- failures ------------------------------------------------------------------------------------------------------


def test_what_a_function_raises_is_raised_where_it_was_sent_and_the_job_can_start_again() -> None:
    flaws = ["the service does not answer"]

    class Flaky(Total):
        def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> Iterator[str]:
            if value.amount == 13 and flaws:
                raise ConnectionError(flaws.pop())
            return super().process_element(value, ctx)

        def __deepcopy__(self, memo: object) -> "Flaky":
            return Flaky()

    with JobHarness(totals(Flaky())) as harness:
        harness.send("orders", Order("ann", 5))
        with pytest.raises(UserCodeError, match="does not answer"):
            harness.send("orders", Order("ann", 13))
        for call in (lambda: harness.send("orders", Order("ann", 1)), harness.checkpoint):
            with pytest.raises(InvalidError, match="has failed"):
                call()
        assert harness.committed() == []
        harness.crash()
        harness.finish()
        assert harness.committed() == ["ann 5", "ann 18"]


def test_a_record_that_always_fails_fails_again_after_a_crash() -> None:
    with JobHarness(totals()) as harness:
        harness.send("orders", Order("ann", 5))
        harness.checkpoint()
        for call in (lambda: harness.send("orders", Order("ann", -1)), harness.crash, harness.crash):
            with pytest.raises(UserCodeError, match="nobody earns"):
                call()
        harness.rewind()
        harness.finish()
        assert harness.committed() == ["ann 5"]


def test_state_that_was_changed_behind_its_back_is_found() -> None:
    class Sloppy(tg.KeyedProcessFunction[str, Order, Any]):
        seen = tg.ValueState(list[int])

        def __init__(self) -> None:
            self.kept: list[int] = []

        def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> None:
            if self.seen.value() is None:
                self.seen.update(self.kept)
            elif value.amount:
                self.kept.append(value.amount)

    with JobHarness(totals(Sloppy())) as harness:
        harness.send("orders", Order("ann", 0))
        harness.checkpoint()
        assert harness.state("total", "seen") == {"ann": []}
    kept: list[int] = []

    class Sloppier(Sloppy):
        def process_element(self, value: Order, ctx: tg.KeyedContext[str]) -> None:
            if ctx.key == "ann":
                self.seen.update(kept)
            else:
                kept.append(value.amount)

    with JobHarness(totals(Sloppier())) as harness:
        harness.send("orders", Order("ann", 0))
        harness.checkpoint()
        harness.send("orders", Order("bob", 1))
        assert harness.state("total", "seen") == {"ann": [1]}
        with pytest.raises(InvalidError, match="state seen: the value of key 'ann' was changed"):
            harness.checkpoint()


def test_a_job_that_never_comes_to_rest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Restless(Silence):
        def on_timer(self, timestamp: int, ctx: tg.KeyedContext[str]) -> list[str]:
            ctx.timer_service.register_processing_time_timer(timestamp)
            return []

    monkeypatch.setattr(engine, "MOST_ROUNDS", 300)
    with JobHarness(totals(Restless())) as harness:
        harness.send("orders", Order("ann", 1))
        with pytest.raises(InternalError, match="does not come to rest"):
            harness.advance_processing_time("1m")

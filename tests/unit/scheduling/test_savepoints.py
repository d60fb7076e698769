"""Savepoints of a running job, stops with a last checkpoint, and drains, as a JobManager lives them."""

import msgspec
import pytest

from tests.unit.scheduling.phases import (
    SAVEPOINT,
    at,
    kill_a_worker,
    stop,
    to_the_end,
)
from tests.unit.scheduling.programs import WRITE, job_settings
from tests.unit.scheduling.runs import calm, happen, newest_body, run_until
from tests.unit.scheduling.test_random_runs import EXPECTED, check_output
from tests.unit.scheduling.world import World
from tidegate.checkpoint.log import CleanStop, Finished
from tidegate.config.restart import RestartNone
from tidegate.errors import ErrorKind, Failure
from tidegate.ids import Attempt, CheckpointId
from tidegate.metrics import JobStatus
from tidegate.runtime.control import TaskFailed
from tidegate.scheduling import protocol as p
from tidegate.scheduling.housekeeping import Housekeeping
from tidegate.scheduling.job import Phase


def running(fault: dict[str, float] | None = None, stop: int | None = None) -> World:
    """Without an end of its input."""
    world = World(seed=3, fault=fault or {}, stop=stop)
    world.start()
    run_until(world, lambda: takes_checkpoints(world))
    return world


def takes_checkpoints(world: World) -> bool:
    deployment = world.manager._deployment
    return deployment is not None and deployment._has_begun


def answered(world: World, request: str) -> p.Reply:
    run_until(world, lambda: request in world.replies)
    return world.replies[request]


def newest(world: World) -> int:
    found = world.outside.newest
    return found.checkpoint if found else 0


# ---- savepoints of a running job -----------------------------------------------------------------------------------


def test_a_savepoint_is_written_by_the_next_checkpoint_and_the_job_runs_on() -> None:
    world = running()
    reply = answered(world, world.ask(path="/here"))
    assert reply == p.Reply("r1", text="/here")
    assert world.outside.savepoints["/here"].checkpoint == 1
    assert world.now.monotonic < 10.0, "it was not waited for the interval"
    assert world.manager.phase is Phase.RUNNING


def test_without_a_path_the_reply_says_where_it_is() -> None:
    world = running()
    assert answered(world, world.ask()).text in world.outside.savepoints


def test_a_checkpoint_that_was_triggered_before_does_not_serve_a_request() -> None:
    world = running()
    world.deliver(p.CheckpointWanted())
    answered(world, world.ask(path="/here"))
    assert world.outside.savepoints["/here"].checkpoint == 2


def test_requests_that_come_before_it_share_a_checkpoint_and_a_folder() -> None:
    world = running()
    world.deliver(p.CheckpointWanted())
    requests = [world.ask(), world.ask(), world.ask(path="/a"), world.ask(path="/b")]
    texts = [answered(world, request).text for request in requests]
    assert texts[0] == texts[1]
    assert texts[2:] == ["/a", "/b"]
    assert {manifest.checkpoint for manifest in world.outside.savepoints.values()} == {2}, "the first runs already"
    assert len(world.outside.savepoints) == 3


@pytest.mark.parametrize("phase", [Phase.SPAWNING, Phase.RECOVERING, Phase.DEPLOYING, Phase.FAILING, Phase.WAITING])
def test_a_request_waits_until_the_job_runs(phase: Phase) -> None:
    world = at(phase)
    request = world.ask()
    assert answered(world, request).failure is None
    check_output(calm(world))


def test_a_request_outlives_attempts_and_checkpoints_that_fail() -> None:
    world = running(stop=40)
    request = world.ask()
    kill_a_worker(world)
    run_until(world, lambda: world.manager._attempt == 2 and world.manager.phase is Phase.RUNNING)
    assert request not in world.replies
    world.fault = {"decline": 0.3}
    assert answered(world, request).failure is None


def test_a_savepoint_that_cannot_be_written_is_told_and_harms_nobody() -> None:
    world = running({"savepoints": 1.0})
    reply = answered(world, world.ask(path="/here"))
    assert reply.failure is not None
    assert reply.failure.kind is ErrorKind.UNAVAILABLE
    assert world.manager.phase is Phase.RUNNING
    world.fault = {}
    assert answered(world, world.ask(path="/here")).failure is None


def test_files_stay_until_the_savepoint_is_written_and_go_then() -> None:
    world = running({"savepoints late": 1.0})
    world.ask(path="/here")
    run_until(world, lambda: newest(world) == 6)
    named = world.outside.needed()
    held = world.outside.files - named
    assert {path.split("/")[0] for path in held} >= {"chk-1-1"}
    world.fault = {}
    answered(world, "r1")
    run_until(world, lambda: not world.outside.files & held)
    stop(world)
    assert world.outside.files == world.outside.needed()


def test_it_is_noticed_when_files_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Housekeeping, "pin", lambda self, manifest: None)
    with pytest.raises(AssertionError, match="is deleted"):
        test_files_stay_until_the_savepoint_is_written_and_go_then()


def test_a_job_that_ends_first_says_so() -> None:
    world = running()
    world.fault = {"decline": 1.0}
    request = world.ask()
    stop(world)
    failure = world.replies[request].failure
    assert failure is not None
    assert "stopped or finished" in failure.message
    world = running()
    request = world.ask()
    world.deliver(p.Received(Attempt(1), world.own_workers()[0].index, task_failed()))
    to_the_end(world)
    failure = world.replies[request].failure
    assert failure is not None
    assert "gone for good" in failure.message


def task_failed() -> TaskFailed:
    return TaskFailed(None, Failure(ErrorKind.INVALID, "gone for good"))


def test_a_request_behind_the_end_is_answered_at_once() -> None:
    world = running()
    stop(world)
    world.has_exited = False
    assert answered(world, world.ask()).failure is not None


def test_the_last_checkpoint_of_a_finite_job_serves_requests_and_the_job_waits_until_they_are_written() -> None:
    world = running({"savepoints late": 1.0}, stop=6)
    run_until(world, lambda: all(worker.has_ended for worker in world.own_workers()))
    request = world.ask()
    run_until(world, lambda: world.manager.phase is Phase.EXPORTING)
    assert isinstance(newest_body(world), Finished)
    world.fault = {}
    to_the_end(world)
    assert world.exit is None
    assert world.replies[request].failure is None
    check_output(world)


# ---- stopping with a last checkpoint -------------------------------------------------------------------------------


@pytest.mark.parametrize("savepoint", [True, False])
def test_a_stop_takes_a_checkpoint_and_records_a_clean_stop_with_it(savepoint: bool) -> None:
    world = running()
    request = world.ask(stops=True, savepoint=savepoint, path="/here" if savepoint else None)
    to_the_end(world)
    assert world.exit is None
    assert world.replies[request] == p.Reply(request, text="/here" if savepoint else "")
    assert newest_body(world) == CleanStop(CheckpointId(newest(world)))
    assert world.uncommitted() == []
    assert world.outside.list_open("orders", WRITE) == ()


def test_no_checkpoint_follows_the_one_to_stop_with_however_long_the_savepoint_takes() -> None:
    world = running({"savepoints late": 1.0})
    world.ask(stops=True, path="/here")
    run_until(world, lambda: world.manager._requests.is_stopping)
    last = newest(world)
    for _ in range(2000):
        happen(world)
        world.pass_time()
    assert newest(world) == last
    world.fault = {}
    to_the_end(world)
    assert newest_body(world) == CleanStop(CheckpointId(last))
    assert world.outside.savepoints["/here"].checkpoint == last


def test_others_who_want_to_stop_join_and_all_are_answered() -> None:
    world = running({"savepoints late": 1.0})
    first = world.ask(stops=True, path="/a")
    run_until(world, lambda: world.manager._requests.is_stopping)
    others = [
        world.ask(stops=True, path="/b"),
        world.ask(stops=True, path="/a"),
        world.ask(stops=True, savepoint=False),
    ]
    drain = world.ask(stops=True, savepoint=False, drain=True)
    assert world.replies[drain].failure is not None
    world.fault = {}
    to_the_end(world)
    assert [world.replies[request].text for request in (first, *others)] == ["/a", "/b", "/a", ""]
    assert len({manifest.checkpoint for manifest in world.outside.savepoints.values()}) == 1


def test_a_stop_goes_on_in_the_next_attempt() -> None:
    world = running()
    world.fault = {"decline": 1.0}
    request = world.ask(stops=True, path="/here")
    kill_a_worker(world)
    run_until(world, lambda: world.manager.phase is Phase.WAITING)
    world.fault = {}
    to_the_end(world)
    assert world.replies[request].text == "/here"


def test_an_attempt_that_fails_while_the_last_savepoint_is_written_is_not_followed_by_another() -> None:
    world = running({"savepoints late": 1.0})
    request = world.ask(stops=True, path="/here")
    run_until(world, lambda: world.manager._requests.is_stopping)
    kill_a_worker(world)
    run_until(world, lambda: world.manager.phase is Phase.WAITING)
    for _ in range(500):
        happen(world)
        world.pass_time()
    assert world.manager.phase is Phase.WAITING
    world.fault = {}
    to_the_end(world)
    assert world.exit is None
    assert world.replies[request].failure is None
    assert newest_body(world) == CleanStop(world.outside.savepoints["/here"].checkpoint)


def test_where_there_are_no_restarts_such_a_failure_does_not_fail_the_stop() -> None:
    world = World(seed=3, fault={}, stop=None)
    world.start(restart=RestartNone())
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    world.fault = {"savepoints late": 1.0}
    world.ask(stops=True, path="/here")
    run_until(world, lambda: world.manager._requests.is_stopping)
    kill_a_worker(world)
    run_until(world, lambda: world.manager.phase is Phase.WAITING)
    world.fault = {}
    to_the_end(world)
    assert world.exit is None


@pytest.mark.parametrize("dies", [False, True])
def test_a_stop_whose_savepoint_cannot_be_written_is_refused_and_the_job_goes_on(dies: bool) -> None:
    world = running({"savepoints": 1.0, "savepoints late": 1.0 if dies else 0.0})
    request = world.ask(stops=True, path="/here")
    if dies:
        run_until(world, lambda: world.manager._requests.is_stopping)
        kill_a_worker(world)
        run_until(world, lambda: world.manager.phase is Phase.WAITING)
        world.fault = {"savepoints": 1.0}
    assert answered(world, request).failure is not None
    last = newest(world)
    run_until(world, lambda: newest(world) > last + 1)
    assert world.manager.phase is Phase.RUNNING


def test_a_stop_of_which_one_savepoint_is_written_is_a_stop() -> None:
    world = running({"savepoints late": 1.0})
    world.outside.savepoints["/taken"] = at(Phase.READING_SAVEPOINT).outside.savepoints[SAVEPOINT]
    refused, granted = world.ask(stops=True, path="/taken"), world.ask(stops=True, path="/here")
    run_until(world, lambda: world.manager._requests.is_stopping)
    world.fault = {}
    to_the_end(world)
    assert world.replies[refused].failure is not None
    assert world.replies[granted].failure is None
    assert isinstance(newest_body(world), CleanStop)


def test_a_stop_whose_checkpoint_does_not_come_in_its_time_is_refused_and_the_job_goes_on() -> None:
    world = World(seed=3, fault={}, stop=None)
    world.start(stop_patience=30.0, checkpoints=patient())
    run_until(world, lambda: world.manager.phase is Phase.RUNNING)
    world.fault = {"decline": 1.0}
    request = world.ask(stops=True, savepoint=False)
    begun = world.now.monotonic
    failure = answered(world, request).failure
    assert failure is not None
    assert "the job goes on" in failure.message
    assert begun + 30.0 <= world.now.monotonic < begun + 60.0
    world.fault = {}
    last = newest(world)
    run_until(world, lambda: newest(world) > last + 2)


def patient() -> object:
    return msgspec.structs.replace(job_settings().checkpoints, tolerable_failures=1000)


# ---- draining -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("savepoint", [True, False])
def test_a_drained_job_stops_in_the_middle_of_its_input_and_goes_on_from_there(savepoint: bool) -> None:
    world = running(stop=6)
    request = world.ask(stops=True, savepoint=savepoint, path="/here" if savepoint else None, drain=True)
    to_the_end(world)
    assert world.replies[request].failure is None
    assert newest_body(world) == CleanStop(CheckpointId(newest(world)))
    assert len(world.outside.output) < len(EXPECTED)
    check_output(calm(world))


def test_a_drain_goes_on_in_the_next_attempt() -> None:
    world = running(stop=6)
    request = world.ask(stops=True, savepoint=False, drain=True)
    kill_a_worker(world)
    run_until(world, lambda: request in world.replies)
    to_the_end(world)
    assert world.replies[request].failure is None
    assert isinstance(newest_body(world), CleanStop)
    check_output(calm(world))


def test_a_job_without_an_end_can_be_drained() -> None:
    world = running()
    world.ask(stops=True, savepoint=False, drain=True)
    to_the_end(world)
    assert newest_body(world) == CleanStop(CheckpointId(newest(world)))


def test_a_drained_job_stops_although_its_savepoint_cannot_be_written() -> None:
    world = running({"savepoints": 1.0})
    request = world.ask(stops=True, drain=True)
    to_the_end(world)
    assert world.replies[request].failure is not None
    assert isinstance(newest_body(world), CleanStop)


def test_how_the_job_is_is_answered_at_once_whatever_it_is_at() -> None:
    world = World(seed=3, fault={})
    world.start()
    told = []
    for has_come in (lambda: True, lambda: takes_checkpoints(world)):
        run_until(world, has_come)
        (reply,) = world.manager.handle(p.StatusWanted("s1"), world.now)
        assert isinstance(reply, p.Reply)
        told.append(msgspec.json.decode(reply.text, type=JobStatus).state)
    assert told == [Phase.READING_LOG.value, Phase.RUNNING.value]

"""From a program and its configuration to a running job: loads, checks, opens the storage, runs, says how it ended.

Nothing is decided here that is not decided before the job begins.
"""

import os
import random
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from tidegate.api.job import Job
from tidegate.checkpoint.coordinator import CoordinatorSettings
from tidegate.checkpoint.store import CheckpointStore
from tidegate.clock import SystemClock
from tidegate.config import ConfigLayers, ResolvedConfig, StartOptions
from tidegate.deploy.cluster import LocalCluster
from tidegate.deploy.executor import InlineExecutor, ThreadExecutor, WakeUp
from tidegate.deploy.fail_points import arm_from
from tidegate.deploy.in_process import InProcessCluster, InProcessLoop
from tidegate.deploy.local import LocalLoop
from tidegate.deploy.logs import JSON, telling_logs
from tidegate.deploy.processes import host_name, process_record
from tidegate.deploy.program import ProgramSpec, load, same_program
from tidegate.deploy.requests import RequestServer
from tidegate.deploy.runtime_folder import RuntimeFolder
from tidegate.deploy.storage_at_start import open_when_it_answers
from tidegate.errors import Failure, InvalidError, TidegateError, raise_failure
from tidegate.graph.logical import LogicalGraph
from tidegate.graph.physical import build_physical
from tidegate.ids import Attempt, CheckpointId, LogInstance
from tidegate.metrics import JobResult, JobStatus, OpenReporter, Reporter
from tidegate.runtime.control import RuntimeOptions
from tidegate.runtime.state_backends import ROCKSDB
from tidegate.scheduling.job_manager import JobManager
from tidegate.scheduling.performer import JobManagerPerformer
from tidegate.scheduling.settings import JobManagerIdentity, JobSettings
from tidegate.serializers import pickle_warning
from tidegate.state.rocksdb import check_installed
from tidegate.storage.memory import MemoryStorage
from tidegate.storage.port import Storage
from tidegate.storage.resolve import open_storage

MEMORY = "memory"
IN_MEMORY_URL = "memory:"
TCP = "tcp"


def launch(spec: ProgramSpec, layers: ConfigLayers, options: StartOptions, open_reporter: OpenReporter) -> JobResult:
    """Run the program's job until it is finished or stopped as asked. Raises the TidegateError with which it ended."""
    job = load(spec)
    config = layers.with_program(job.config).resolve()
    with _reporting(config.log_format, open_reporter) as reporter:
        return _run(job, spec, config, options, reporter)


def run_job(job: Job, layers: ConfigLayers, options: StartOptions, open_reporter: OpenReporter) -> JobResult:
    """Run a job that no other process can import (a notebook's, a test's), in this process. Raises as `launch`."""
    config = layers.with_program(job.config).resolve()
    with _reporting(config.log_format, open_reporter) as reporter:
        return _run(job, None, config, msgspec.structs.replace(options, in_process=True), reporter)


@contextmanager
def _reporting(log_format: str, open_reporter: OpenReporter) -> Iterator[Reporter]:
    """Where every line is for machines, the error with which the job ends is one of them, and is not shown again."""
    reporter = open_reporter(log_format)
    try:
        with telling_logs(reporter.event):
            yield reporter
    except TidegateError as error:
        if log_format == JSON:
            failure = error.failure
            fields = msgspec.to_builtins(failure) | {"exit_code": failure.exit_code}
            del fields["message"]
            reporter.event("error", failure.message, **fields)
            error.is_reported = True
        raise
    finally:
        reporter.close()


def _run(
    job: Job, spec: ProgramSpec | None, config: ResolvedConfig, options: StartOptions, reporter: Reporter
) -> JobResult:
    graph = job.graph(config.max_parallelism)
    if spec is not None:
        # A program that builds another graph the second time is refused here, before any worker is started.
        same_program(graph.fingerprint(), load(spec).graph(config.max_parallelism).fingerprint())
    check_sinks(graph, config, options)
    check_state(config)
    with _profiling(options, graph, reporter, config) as parts:
        storage, url = _open_storage(config, graph, reporter)
        _warn_of_pickles(graph, reporter)
        store = CheckpointStore(storage, graph.job)
        manager = _job_manager(graph, config, options, url)
        arm_from(os.environ, "jobmanager")
        if spec is not None and not options.in_process:
            failure = _with_processes(manager, graph, store, reporter, spec, config, parts)
        else:
            with _sampling_here(parts):
                failure = _in_this_process(manager, graph, store, reporter, is_asked=spec is not None)
    if failure is not None:
        raise_failure(failure)
    return _result(manager.status(SystemClock().now()))


def _profiling(
    options: StartOptions, graph: LogicalGraph, reporter: Reporter, config: ResolvedConfig
) -> AbstractContextManager[Path | None]:
    """Around the job; gives the folder for the parts of its profile, or None when none is wanted."""
    if options.profile is None:
        return nullcontext()
    from tidegate.deploy.profiling.run import profiling

    return profiling(options.profile, graph.job, reporter, config.log_format)


def _sampling_here(parts: Path | None) -> AbstractContextManager[None]:
    if parts is None:
        return nullcontext()
    from tidegate.deploy.profiling.run import sampling_here

    return sampling_here(parts)


def _in_this_process(
    manager: JobManager, graph: LogicalGraph, store: CheckpointStore, reporter: Reporter, *, is_asked: bool
) -> Failure | None:
    """`is_asked`: others may ask things of it, for its program is one that can be found."""
    if not is_asked:
        return _in_process(manager, graph, store, reporter)
    with closing(RuntimeFolder()) as folder, closing(RequestServer(folder, graph.job, store.location)) as requests:
        return _in_process(manager, graph, store, reporter, requests)


def _in_process(
    manager: JobManager,
    graph: LogicalGraph,
    store: CheckpointStore,
    reporter: Reporter,
    requests: RequestServer | None = None,
) -> Failure | None:
    """With what the JobManager ended."""
    executor, clock = InlineExecutor(), SystemClock()
    replies = requests.reply if requests is not None else lambda _: None
    cluster = InProcessCluster(graph, store, host_name(), clock)
    performer = JobManagerPerformer(manager, graph, cluster, store, executor, clock, reporter, replies=replies)
    with closing(performer):
        InProcessLoop(performer, cluster, executor, requests).run()
    return performer.failure


def _with_processes(
    manager: JobManager,
    graph: LogicalGraph,
    store: CheckpointStore,
    reporter: Reporter,
    spec: ProgramSpec,
    config: ResolvedConfig,
    profile: Path | None,
) -> Failure | None:
    """With what the JobManager ended."""
    with ExitStack() as stack:
        wake_up = stack.enter_context(closing(WakeUp()))
        executor = stack.enter_context(closing(ThreadExecutor(wake_up)))
        folder = stack.enter_context(closing(RuntimeFolder()))
        requests = stack.enter_context(closing(RequestServer(folder, graph.job, store.location)))
        clock = SystemClock()
        started = LocalCluster(
            spec,
            config.max_parallelism,
            folder,
            executor,
            host_name(),
            clock,
            log_format=config.log_format,
            tcp_host=config.network_host if config.network_transport == TCP else None,
            profile=profile,
        )
        cluster = stack.enter_context(closing(started))
        performer = JobManagerPerformer(
            manager, graph, cluster, store, executor, clock, reporter, replies=requests.reply
        )
        stack.enter_context(closing(performer))
        LocalLoop(performer, cluster, executor, wake_up, requests).run()
        return performer.failure


def _job_manager(graph: LogicalGraph, config: ResolvedConfig, options: StartOptions, url: str) -> JobManager:
    physical = build_physical(graph, config.parallelism, config.max_parallelism)
    identity = JobManagerIdentity(
        nonce=secrets.token_hex(8),
        new_instance=LogInstance(secrets.token_hex(4)),
        host=host_name(),
        process=process_record(os.getpid()),
    )
    return JobManager(graph, physical, settings_of(config, options, url), identity, random.random)


def settings_of(config: ResolvedConfig, options: StartOptions, url: str) -> JobSettings:
    """The configuration, as the JobManager takes it."""
    return JobSettings(
        parallelism=config.parallelism,
        max_parallelism=config.max_parallelism,
        checkpoints=CoordinatorSettings(
            interval=config.checkpoint_interval,
            timeout=config.checkpoint_timeout,
            min_pause=config.checkpoint_min_pause,
            tolerable_failures=config.checkpoint_tolerable_failures,
        ),
        retained=config.checkpoint_retained,
        restart=config.restart,
        runtime=RuntimeOptions(
            batch_size=config.batch_size,
            linger=config.batch_linger,
            step_target=config.batch_step_target,
            watermark_interval=config.watermark_interval,
            channel_bytes=config.channel_bytes,
            state_in_job_manager=config.state_backend == MEMORY,
            state_backend=config.state_backend,
            local_dir=config.state_local_dir,
            local_recovery=config.state_local_recovery,
            local_memory=config.state_rocksdb_memory,
            allow_non_restored_state=options.allow_non_restored_state,
            pool_limit=4 + 2 * config.checkpoint_tolerable_failures,
        ),
        storage=url,
        fresh=options.fresh,
        from_checkpoint=None if options.from_checkpoint is None else CheckpointId(options.from_checkpoint),
        from_savepoint=options.from_savepoint,
        claim_savepoint=options.claim_savepoint,
        allow_non_restored_state=options.allow_non_restored_state,
        keep_on_stop=config.checkpoint_keep_on_stop,
        accept_lost=options.accept_lost_transactions,
        needed_timeout=_needed_timeout(config),
    )


def _needed_timeout(config: ResolvedConfig) -> float:
    """Seconds until a transaction is committed, should everything go as badly as it may: consecutive checkpoints
    fail, and then the job is down for a while."""
    rounds = 1 + config.checkpoint_tolerable_failures
    return rounds * (config.checkpoint_interval + config.checkpoint_timeout) + config.transaction_restart_allowance


def _open_storage(config: ResolvedConfig, graph: LogicalGraph, reporter: Reporter) -> tuple[Storage, str]:
    if config.state_backend == MEMORY:
        if not all(getattr(node.sink, "in_process_only", False) for node in graph.sinks):
            reporter.event(
                "warning",
                "state.backend memory keeps checkpoints in this process: workers may die, but when it dies, state "
                "and what is not committed yet are gone",
            )
        return MemoryStorage(), IN_MEMORY_URL
    place = config.checkpoint_dir
    return open_when_it_answers(lambda: open_storage(place, writable=True), place, reporter), place


def _warn_of_pickles(graph: LogicalGraph, reporter: Reporter) -> None:
    for node in graph.nodes:
        for state in node.states:
            text = pickle_warning(f"state {state.name} of operator {node.name}", state.serializer)
            if text is not None:
                reporter.event("warning", text)


def check_sinks(graph: LogicalGraph, config: ResolvedConfig, options: StartOptions) -> None:
    """Raise InvalidError for a sink that cannot work as configured: one that lives in a process's memory, in a job of
    several processes; one whose transactions could time out before they are committed."""
    needed = _needed_timeout(config)
    for node in graph.nodes:
        description: Any = node.sink or node.source
        if getattr(description, "in_process_only", False) and not options.in_process:
            raise InvalidError(
                f"{node.name} keeps its records in the memory of one process, and the job has several",
                remedy="Run it with --in-process, or use another sink.",
            )
        timeout = getattr(node.sink, "timeout", None)
        if isinstance(timeout, int | float) and timeout <= needed:
            raise InvalidError(
                f"transactions of sink {node.name} time out after {timeout:g} s, and it may take {needed:g} s until "
                "one is committed: (1 + tolerable failures) x (interval + timeout of checkpoints) + restart allowance",
                remedy="Give the sink a longer timeout, or lower checkpoints.interval, checkpoints.timeout or "
                "checkpoints.tolerable_failures.",
            )


def check_state(config: ResolvedConfig) -> None:
    """Raise InvalidError for a state backend that cannot work here."""
    if config.state_backend != ROCKSDB:
        return
    check_installed()
    if not config.state_local_dir:
        raise InvalidError(
            "state.backend rocksdb needs a folder on this machine, and this user has no home folder",
            remedy="Set state.local_dir.",
        )


def _result(status: JobStatus) -> JobResult:
    return JobResult(
        attempts=Attempt(status.attempt),
        restarts=status.restarts,
        records_in=status.records_in,
        records_out=status.records_out,
        checkpoint=status.checkpoint.id if status.checkpoint else 0,
    )

"""What `job.run()` and `tg.main(build)` do: run the program that this process is, with the same screen and exit codes
as `tidegate run`. In a notebook or at the prompt the job runs in this process, and errors are raised instead.

Imported with `tidegate` itself: everything that is slow to import is imported when a job is run.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from tidegate.metrics import JobResult, Reporter

if TYPE_CHECKING:
    from tidegate.api.job import Job
    from tidegate.deploy.program import ProgramSpec


def run(job: "Job", in_process: bool = False) -> JobResult:
    """See `Job.run`."""
    from tidegate.deploy.program import refuse_while_loading

    refuse_while_loading("job.run()")
    spec = _spec_of_script()
    if spec is None or (in_process and not _is_known_to_program(job)):
        return _run_here(job)
    # In one process it is this very object that runs, so that the program can look into its sinks afterwards.
    return _or_exit(lambda: _run_here(job) if in_process else _launch(_spec_of_job(job, spec)))


def main(build: Callable[[list[str]], "Job"]) -> None:
    """Run the job that `build` makes of this process's arguments: the last line of a program with arguments, under
    `if __name__ == "__main__":`. Ends the process with the exit code where it is not 0."""
    from tidegate.deploy.program import refuse_while_loading

    refuse_while_loading("tg.main(build)")
    spec = _spec_of_script()
    if spec is None:
        _run_here(build(_arguments()))
        return
    # What is wrong comes again, and is shown, when the job is launched; only `--help` and wrong arguments end it here.
    with suppress(Exception):
        build(list(spec.arguments))
    _or_exit(lambda: _launch(_spec_of_function(build, spec)))


def _run_here(job: "Job") -> JobResult:
    from tidegate.config import ConfigLayers, StartOptions
    from tidegate.deploy.launch import run_job

    return run_job(job, ConfigLayers.of_this_process(), StartOptions(in_process=True), _open_reporter)


def _launch(spec: "ProgramSpec") -> JobResult:
    from tidegate.config import ConfigLayers, StartOptions
    from tidegate.deploy.launch import launch

    return launch(spec, ConfigLayers.of_this_process(), StartOptions(), _open_reporter)


def _open_reporter(log_format: str) -> Reporter:
    from tidegate.cli.status import open_reporter
    from tidegate.clock import SystemClock

    return open_reporter(log_format, sys.stderr, SystemClock())


# ---- which program -------------------------------------------------------------------------------------------------


def _spec_of_script() -> "ProgramSpec | None":
    """None in a notebook, at the prompt, with `python -c` and `python -i`."""
    from tidegate.deploy.program import spec_of_running_program

    is_interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    return None if is_interactive else spec_of_running_program()


def _spec_of_job(job: "Job", spec: "ProgramSpec") -> "ProgramSpec":
    """How other processes get this job: by the name that the module has for it, else as `job` or from `build`."""
    import msgspec

    from tidegate.deploy.program import DEFAULT_NAME, load

    if not _is_known_to_program(job):
        # Nothing is imported to see: a test runner that is imported once more may run the tests once more.
        _refuse(job, spec, "cannot find it")
    name = _name_in_program(job)
    found = msgspec.structs.replace(spec, attribute=name if name != DEFAULT_NAME else None)
    other = load(found)
    if other.name != job.name:
        _refuse(job, spec, f"find job {other.name}")
    if _description(other, spec) != _description(job, spec):
        _refuse(job, spec, "build it with another graph")
    return found


def _refuse(job: "Job", spec: "ProgramSpec", what_others_do: str) -> NoReturn:
    from tidegate.errors import InvalidError

    raise InvalidError(
        f"job.run() was called for job {job.name}, and other processes that import the program {what_others_do}",
        remedy="Bind the job to a name at the top level of the program, give `build` to tg.main(build), or run the job "
        "in this process alone: job.run(in_process=True).",
        where=str(spec),
    )


def _description(job: "Job", spec: "ProgramSpec") -> list[str]:
    """What is compared of its graph. Classes of the program are of `__main__` here, and of its module elsewhere."""
    return [line.replace("__main__.", f"{spec.module}.") for line in job.graph().fingerprint().lines]


def _spec_of_function(build: Callable[[list[str]], "Job"], spec: "ProgramSpec") -> "ProgramSpec":
    import msgspec

    from tidegate.errors import InvalidError

    name = _name_in_program(build)
    if name is None:
        raise InvalidError(
            "tg.main() was given a function that the program has no name for, and every process of the job calls it",
            remedy="Define it with `def` at the top level of the program.",
            where=str(spec),
        )
    return msgspec.structs.replace(spec, attribute=name)


def _is_known_to_program(job: "Job") -> bool:
    """Whether the program looks like this job's, and not like a test runner, under which it runs."""
    from tidegate.deploy.program import BUILD_NAME, DEFAULT_NAME

    names = vars(sys.modules["__main__"])
    return _name_in_program(job) is not None or DEFAULT_NAME in names or BUILD_NAME in names


def _name_in_program(thing: object) -> str | None:
    return next((name for name, value in vars(sys.modules["__main__"]).items() if value is thing), None)


def _arguments() -> list[str]:
    """Of `python -c`; a notebook's are not its program's."""
    return sys.argv[1:] if sys.argv[:1] == ["-c"] else []


def _or_exit(action: Callable[[], JobResult]) -> JobResult:
    from tidegate.cli.main import exit_code_of

    results: list[JobResult] = []
    code = exit_code_of(lambda: results.append(action()))
    if code:
        sys.exit(code)
    return results[0]

"""What `job.run()` and `tg.main(build)` do: run the program that this process is, with the same screen and exit codes as
`tidegate run`. In a notebook or at the prompt the job runs in this process, and errors are raised instead.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.metrics import JobResult

if TYPE_CHECKING:
    from tidegate.api.job import Job


def run(job: "Job", in_process: bool = False) -> JobResult:
    """See `Job.run`."""
    from tidegate.cli.status import open_reporter
    from tidegate.clock import SystemClock
    from tidegate.config import ConfigLayers, StartOptions
    from tidegate.deploy.launch import launch, run_job
    from tidegate.deploy.program import refuse_while_loading, spec_of_running_program

    refuse_while_loading("job.run()")
    layers, options = ConfigLayers.of_this_process(), StartOptions(in_process=in_process)
    spec = spec_of_running_program()
    if spec is None or _is_interactive():
        return run_job(job, layers, options, lambda kind: open_reporter(kind, sys.stderr, SystemClock()))
    return _or_exit(lambda: launch(spec, layers, options, lambda kind: open_reporter(kind, sys.stderr, SystemClock())))


def main(build: Callable[[list[str]], "Job"]) -> None:
    """Run the job that `build` makes of this process's arguments: the last line of a program with arguments, under
    `if __name__ == "__main__":`. Ends the process with the exit code where it is not 0."""
    from tidegate.deploy.program import refuse_while_loading

    refuse_while_loading("tg.main(build)")
    _or_exit(lambda: run(build(_arguments())))


def _arguments() -> list[str]:
    given = sys.argv[1:]
    return given[1:] if given[:1] == ["--"] else given


def _is_interactive() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _or_exit(action: Callable[[], JobResult]) -> JobResult:
    from tidegate.cli.main import exit_code_of

    results: list[JobResult] = []
    code = exit_code_of(lambda: results.append(action()))
    if code:
        sys.exit(code)
    return results[0]

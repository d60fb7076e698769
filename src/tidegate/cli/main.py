"""The entry of the command line: what a process shows and ends with when something goes wrong.

Exit codes: 0 finished or stopped as asked, 1 the job failed, 2 wrong usage, 3 going on would lose or double data, 4
taken over by another JobManager; 130 when Ctrl-C came before anything ran. The commands are in `app`, imported when
needed.
"""

import io
import platform
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from tidegate.cli.version import describe_version
from tidegate.errors import ErrorKind, TidegateError

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process with its exit code. `arguments` stand behind the program's name; None: the
    process's own."""
    _print_anything()
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        print(describe_version())
        sys.exit(0)

    def run_command() -> None:
        from tidegate.cli.app import app

        app(given, prog_name="tidegate")

    sys.exit(exit_code_of(run_command))


def exit_code_of(action: Callable[[], None]) -> int:
    """Do `action`, show on standard error what goes wrong in it, and return what the process is to end with."""
    try:
        action()
    except TidegateError as error:
        if not error.is_reported:
            _show(error.failure.render())
            if error.kind is ErrorKind.INTERNAL:
                _show(_bug_report())
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception:
        _show(traceback.format_exc() + _bug_report())
        return 1
    return 0


def _print_anything() -> None:
    """Names of files are bytes, which need not be text in the terminal's encoding: they are shown escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _show(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _bug_report() -> str:
    return (
        "This is a bug in Tidegate. Please report it with all of the text above, the command line, what "
        "`tidegate run ... --show-config` and `tidegate checkpoints list` print, and this: "
        f"{describe_version()}, Python {platform.python_version()}, {platform.platform()}."
    )

"""Loading the user's program: every process of a job imports it, nothing of it is pickled.

FILE is imported under its stem's name and never as `__main__`, so that a pickled class names a module that every
process has. What is wrong with a program is an InvalidError with the user's own traceback. No job is run here.
"""

import difflib
import importlib.util
import keyword
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import msgspec

from tidegate.api.job import Job
from tidegate.errors import InvalidError, TidegateError
from tidegate.graph.logical import Fingerprint

DEFAULT_NAME = "job"
BUILD_NAME = "build"
_REMEDY = "A program has a module-level `job` or a function `build(argv)` that returns one."
_loading: list[str] = []
"""The program that is being imported now; one at a time in a process."""


class ProgramSpec(msgspec.Struct, frozen=True):
    """Which program a job is, so that any process on this machine can load the same one. Travels to workers as JSON."""

    target: str
    """The absolute path of FILE, or the name of a module."""
    attribute: str | None = None
    """What to take of the module; None: `job`, or what `build` returns."""
    arguments: tuple[str, ...] = ()
    """What `build` is called with."""
    sys_path: tuple[str, ...] = ()
    """What the importing process has as `sys.path`, the program's own folder first; absolute."""
    folder: str = ""
    """The working folder that a process of the job is to be started in."""

    @property
    def is_file(self) -> bool:
        return self.target.startswith("/")

    @property
    def module(self) -> str:
        return Path(self.target).stem if self.is_file else self.target

    def __str__(self) -> str:
        return f"{self.target}:{self.attribute}" if self.attribute else self.target


# ---- which program -------------------------------------------------------------------------------------------------


def spec_of_target(target: str, arguments: Sequence[str], folder: Path, sys_path: Iterable[str]) -> ProgramSpec:
    """The program that `FILE|MODULE[:NAME]` means to somebody who stands in `folder`, as `python` would take it."""
    head, _, tail = target.rpartition(":")
    program, attribute = (head, tail) if head and tail.isidentifier() else (target, None)
    is_file = program.endswith(".py") or "/" in program or os.path.isfile(folder / program)
    path = os.path.normpath(folder / program)
    first = os.path.dirname(path) if is_file else str(folder)
    return ProgramSpec(
        target=path if is_file else program,
        attribute=attribute,
        arguments=tuple(arguments),
        sys_path=_absolute_path(first, sys_path, folder),
        folder=str(folder),
    )


def spec_of_running_program() -> ProgramSpec | None:
    """The program that this process was started with (`python app.py`, `python -m pkg.app`), for whom it runs.

    None where there is none that another process could import: a notebook, the interactive interpreter, `python -c`.
    """
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        return None
    folder = Path.cwd()
    arguments = sys.argv[2:] if sys.argv[1:2] == ["--"] else sys.argv[1:]
    module = getattr(getattr(main, "__spec__", None), "name", "__main__")
    is_file = module == "__main__"
    path = os.path.normpath(folder / file)
    return ProgramSpec(
        target=path if is_file else module,
        arguments=tuple(arguments),
        sys_path=_absolute_path(os.path.dirname(path) if is_file else str(folder), sys.path, folder),
        folder=str(folder),
    )


def _absolute_path(first: str, sys_path: Iterable[str], folder: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys((first, *(os.path.normpath(folder / entry) for entry in sys_path))))


# ---- loading it ----------------------------------------------------------------------------------------------------


def load(spec: ProgramSpec) -> Job:
    """The program's job. The module stays imported; `build` is called anew each time.

    Raises InvalidError when there is no such program, when its code raises, or when what it has is no job.
    """
    sys.path[:] = dict.fromkeys((*spec.sys_path, *sys.path))
    with _being_loaded(spec):
        module = _import_file(spec) if spec.is_file else _import_module(spec)
        return _job_of(module, spec)


def refuse_while_loading(what: str) -> None:
    """Raise InvalidError when a program that is being imported does `what`: at its top level a job is only defined.

    Without this, a program that runs its job without the guard would start it once more in every process.
    """
    if _loading:
        raise InvalidError(
            f"the program calls {what} while it is imported",
            remedy='Put the call under `if __name__ == "__main__":`.',
            where=_loading[-1],
        )


@contextmanager
def _being_loaded(spec: ProgramSpec) -> Iterator[None]:
    _loading.append(str(spec))
    try:
        yield
    finally:
        _loading.pop()


def _import_file(spec: ProgramSpec) -> ModuleType:
    path, name = Path(spec.target), spec.module
    if not os.path.isfile(path):
        _refuse(spec, "there is no such file", "Check the path; a module is given by its dotted name, without '.py'.")
    if not name.isidentifier() or keyword.iskeyword(name):
        _refuse(spec, f"{name!r} cannot be the name of a module", _renaming(path))
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == spec.target:
        return known
    if known is not None or name in sys.stdlib_module_names:
        _refuse(spec, f"a program of this name would hide the module {name!r}, which others import", _renaming(path))
    loader = SourceFileLoader(name, spec.target)
    module = importlib.util.module_from_spec(_module_spec(loader, spec))
    sys.modules[name] = module
    try:
        exec(loader.get_code(name) or "", module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        _raise_program_error(spec, error, "its import")
    return module


def _module_spec(loader: SourceFileLoader, spec: ProgramSpec) -> Any:
    return importlib.util.spec_from_file_location(spec.module, spec.target, loader=loader)


def _renaming(path: Path) -> str:
    name = "".join(letter if letter.isalnum() else "_" for letter in path.stem)
    better = name if name.isidentifier() and name != path.stem else f"{name.strip('_')}_job"
    return f"Rename it: {better if better.isidentifier() else 'my_job'}.py would do."


def _import_module(spec: ProgramSpec) -> ModuleType:
    try:
        __import__(spec.target)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{spec.target}.".startswith(f"{error.name}."):
            _raise_program_error(spec, error, "its import")
        remedy = "Check the name and PYTHONPATH; the working folder is searched first. A file is given by its path."
        _refuse(spec, f"there is no module {error.name}", remedy)
    except (Exception, SystemExit) as error:
        _raise_program_error(spec, error, "its import")
    return sys.modules[spec.target]


def _job_of(module: ModuleType, spec: ProgramSpec) -> Job:
    name = spec.attribute or (DEFAULT_NAME if hasattr(module, DEFAULT_NAME) else BUILD_NAME)
    if not hasattr(module, name):
        wanted = f"no {name!r}" if spec.attribute else "neither `job` nor `build`"
        _refuse(spec, f"the program has {wanted}", _REMEDY)
    found: object = getattr(module, name)
    if not isinstance(found, Job) and not isinstance(found, type) and callable(found):
        try:
            found = found(list(spec.arguments))
        except (Exception, SystemExit) as error:
            _raise_program_error(spec, error, f"{name}({list(spec.arguments)!r})")
        name = f"{name}(...)"
    if not isinstance(found, Job):
        _refuse(spec, f"{name} is of type {type(found).__name__}, not a tg.Job", _REMEDY)
    return found


def _refuse(spec: ProgramSpec, message: str, remedy: str) -> NoReturn:
    raise InvalidError(message, remedy=remedy, where=str(spec))


def _raise_program_error(spec: ProgramSpec, error: BaseException, doing: str) -> NoReturn:
    if isinstance(error, TidegateError):
        failure = error.failure
        shown = failure.traceback or "".join(_program_frames(error))
        error.failure = msgspec.structs.replace(failure, where=failure.where or str(spec), traceback=shown)
        raise error
    if isinstance(error, SystemExit):
        what, remedy = f"the program ended itself in {doing} with exit code {error.code!r}", _exit_remedy(spec, error)
    else:
        what, remedy = f"the program raised {type(error).__name__} in {doing}", ""
    if isinstance(error, ImportError) and "relative import" in str(error):
        remedy = "Run it as the module that it is: tidegate run PACKAGE.MODULE."
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith(f"{__name__.partition('.')[0]}."):
        there = "tidegate.kafka, tidegate.local and tidegate.files"
        remedy = f"{error.name} is not in this version; connectors are in {there}."
    shown = "".join((*_program_frames(error), *traceback.format_exception_only(error)))
    raise InvalidError(what, remedy=remedy, where=str(spec), traceback=shown) from error


def _exit_remedy(spec: ProgramSpec, error: SystemExit) -> str:
    if spec.arguments or error.code in (None, 0):
        return ""
    return "If it needs arguments, give them behind `--`."


def _program_frames(error: BaseException) -> list[str]:
    """The lines of a traceback, without the frames of Tidegate and of the import machinery."""
    kept = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_TIDEGATE, "<frozen importlib"))
    ]
    return ["Traceback (most recent call last):\n", *traceback.format_list(kept)] if kept else []


_TIDEGATE = str(Path(__file__).parents[1]) + os.sep


# ---- the same program everywhere -----------------------------------------------------------------------------------


def same_program(first: Fingerprint, second: Fingerprint) -> None:
    """Whether two processes built the same graph. Raises InvalidError that shows the lines in which they differ."""
    if first.digest == second.digest:
        return
    compared = difflib.ndiff(first.lines, second.lines)
    differing = [line for line in compared if line.startswith(("- ", "+ "))]
    shown = "\n".join(("two processes of the job built different graphs:", *(differing or ["the job's name differs"])))
    raise InvalidError(
        shown,
        remedy="A program must build the same graph wherever and whenever it is imported: nothing in it may depend on "
        "the time, on chance, on the process or on the order of a set.",
    )

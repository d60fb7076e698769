"""Virtual environments of their own for peers in Python, with pinned packages, in the user's cache.

The environment that runs this is never touched: what peers need does not fit beside what this project needs.
"""

import fcntl
import functools
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tidegate.deploy.dev_kafka import maven
from tidegate.errors import InvalidError, UnavailableError

HERE = Path(__file__).parent
_COMPLETE = "complete"
"""A file that an environment has when all is installed."""
_TAIL = 20
"""Lines of what pip says that an error repeats."""


class Environment:
    """The environment of the peer `name`, with what `requirements-NAME.txt` says, on the first of `releases` of Python
    that is here."""

    def __init__(self, name: str, releases: Sequence[str]) -> None:
        self.name = name
        self.releases = releases
        self.requirements = HERE / f"requirements-{name}.txt"

    @property
    def folder(self) -> Path:
        """The same as long as the requirements are. Raises InvalidError where there is no such Python."""
        digest = hashlib.sha256(self.requirements.read_bytes()).hexdigest()[:16]
        return maven.cache_folder(f"peer-{self.name}-{find_python(tuple(self.releases), self.name)[0]}-{digest}")

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        """Where its packages are."""
        release, _ = find_python(tuple(self.releases), self.name)
        return self.folder / "lib" / f"python{release}" / "site-packages"

    def version(self, package: str) -> str:
        """As pinned."""
        pins = dict(line.split("==") for line in self.requirements.read_text().splitlines() if "==" in line)
        return pins[package]

    def settings(self) -> dict[str, str]:
        return {"Python": find_python(tuple(self.releases), self.name)[0]}

    def ensure(self) -> None:
        """Make it unless it is there. Blocks, for minutes. Raises InvalidError where there is no Python for it,
        UnavailableError where pip fails."""
        folder = self.folder
        if not (folder / _COMPLETE).exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _locked(folder.with_name(f"{folder.name}.lock")):
                if not (folder / _COMPLETE).exists():
                    self._make(folder)

    def _make(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        _, interpreter = find_python(tuple(self.releases), self.name)
        self._do([interpreter, "-m", "venv", str(folder)], "Debian and Ubuntu have venv in the package python3-venv.")
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--requirement", str(self.requirements)]
        self._do(pip, "See what pip says, and whether it reaches a package index.")
        (folder / _COMPLETE).touch()

    def _do(self, command: Sequence[str], remedy: str) -> None:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if ran.returncode != 0:
            said = "\n".join(ran.stdout.splitlines()[-_TAIL:])
            raise UnavailableError(f"the environment of {self.name} cannot be made:\n{said}", remedy=remedy)


@functools.cache
def find_python(releases: tuple[str, ...], name: str) -> tuple[str, str]:
    """The first of `releases` that is here, and its command: this Python, else of PATH. Raises InvalidError when there
    is none; `name` is for its message."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    for release in releases:
        for command in (sys.executable,) if release == own else filter(None, [shutil.which(f"python{release}")]):
            said = subprocess.run([command, "-c", "pass"], capture_output=True, check=False)
            if said.returncode == 0:  # A command of a version manager may be there, and lead to nothing.
                return release, command
    raise InvalidError(
        f"{name} needs one of Python {', '.join(releases)}, and none is on PATH",
        remedy=f"Install python{releases[0]}, or leave {name} out.",
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

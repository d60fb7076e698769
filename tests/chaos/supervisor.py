"""Starts the job by the command line, again whenever it has ended, as a service manager does; judges its exit codes.

Everything happens in `tick`, on the thread that calls it. Only processes that were started here are ever signalled.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos import program
from tests.chaos.checker import Violation
from tests.chaos.disk import Disk
from tests.chaos.schedule import Plan, StartDraw, start_draw
from tests.chaos.timeline import Agenda, Timeline
from tests.integration.running import Started
from tidegate.connectors.kafka.connection import DEFAULT_CLIENT

ROOT = Path(__file__).parents[2]
MAIN = """\
import os
from tidegate.deploy.processes import die_with_parent
die_with_parent(int(os.environ.pop("CHAOS_PARENT")))
from tidegate.cli.main import main
main()
"""
TIDEGATE = [sys.executable, "-c", MAIN]
"""The command `tidegate`, which does not outlive a run that is killed."""
TAIL = 12
"""Lines of what a start said that are shown when it has ended."""
NEWS = (b"error:", b"taking over", b"running, attempt", b"was taken over")
"""What stands in the lines of a job that are worth a line in the timeline."""
TEXT_MAX = 300
TAKEN_OVER = 4
KILLED = -signal.SIGKILL
INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)
"""By Ctrl-C before the job had begun, or a second one; the first as long as the command is being imported."""


@dataclass
class Scene:
    """Where everything is."""

    folder: Path
    disk: Disk
    sockets: Path
    job: str
    input: str
    output: str
    delivery: str
    client: str = DEFAULT_CLIENT
    bootstrap: str = ""
    """As the job sees the brokers; known when they run."""

    @property
    def checkpoints(self) -> Path:
        return self.disk.path / "checkpoints"

    @property
    def environment(self) -> dict[str, str]:
        own = {
            "XDG_RUNTIME_DIR": str(self.sockets),
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "CHAOS_PARENT": str(os.getpid()),
        }
        return os.environ | own | {"XDG_CACHE_HOME": str(self.folder / "cache")}


@dataclass
class Start:
    """One start of the command, and what was done to it."""

    number: int
    started: Started
    draw: StartDraw
    mark: Path
    has_point: bool
    was_killed: bool = False
    was_asked: bool = False
    """To end."""
    was_rivalled: bool = False
    """Another start lived at the same time."""
    began: float = field(default_factory=time.monotonic)

    @property
    def pid(self) -> int:
        return self.started.pid

    @property
    def is_alive(self) -> bool:
        return self.started.process.poll() is None

    @property
    def name(self) -> str:
        return f"start {self.number} (pid {self.pid})"

    def workers(self) -> list[int]:
        return sorted(self.started.living().keys() - {self.pid})

    def tail(self) -> str:
        return "\n".join(f"{'':10}| {line}" for line in self.started.said.splitlines()[-TAIL:])


@dataclass(eq=False)
class _Asked:
    """Another command that runs."""

    process: "subprocess.Popen[str]"
    words: str
    done: Callable[[int, str], None]
    ends: Start | None


class Supervisor:
    """`parallelism`, `backend` and `savepoint` are of the next start."""

    def __init__(self, scene: Scene, plan: Plan, timeline: Timeline, agenda: Agenda) -> None:
        self._scene = scene
        self._plan = plan
        self._timeline = timeline
        self._agenda = agenda
        self._start_at = 0.0
        self._judged: set[int] = set()
        self._asked: list[_Asked] = []
        self.parallelism = plan.parallelism
        self.backend = plan.backend
        self.savepoint: Path | None = None
        self.starts: list[Start] = []
        self.is_calm = False
        """Starts are made without fail points."""
        self.is_finishing = False
        """No further start is made."""

    @property
    def job(self) -> str:
        return self._scene.job

    # ---- starting --------------------------------------------------------------------------------------------------

    @property
    def current(self) -> Start | None:
        """The newest, while it lives."""
        return self.starts[-1] if self.starts and self.starts[-1].is_alive else None

    def living(self) -> list[Start]:
        return [start for start in self.starts if start.is_alive]

    def start(self) -> None:
        number = len(self.starts) + 1
        draw = start_draw(self._plan, number)
        points = () if self.is_calm else draw.fail_points
        mark = self._scene.folder / f"mark-{number}"
        rivals = self.living()
        process = self._spawn(number, ",".join(points), mark)
        said = self._scene.folder / f"start-{number}.log"
        start = Start(number, Started(process, said, mark), draw, mark, any(":*=" not in text for text in points))
        self._scene.disk.started(start.pid)
        for rival in rivals:
            rival.was_rivalled = start.was_rivalled = True
        self.starts.append(start)
        place = f" from {self.savepoint.name}" if self.savepoint is not None else ""
        said_points = f" with {', '.join(points)}" if points else ""
        self._timeline.tell(f"{start.name}: -p {self.parallelism}, {self.backend}{place}{said_points}")

    def _spawn(self, number: int, points: str, mark: Path) -> "subprocess.Popen[bytes]":
        said = self._scene.folder / f"start-{number}.log"
        said.touch()
        process = subprocess.Popen(
            [*TIDEGATE, "run", program.__file__ or "", *self._options(), "--", *self._arguments()],
            cwd=self._scene.folder,
            env=self._scene.environment | {"TIDEGATE_FAIL_POINT": points, "TIDEGATE_FAIL_POINT_MARK": str(mark)},
            stdin=subprocess.DEVNULL,
            # Not a file of its own: a limit to what it may write would hit that, too.
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, args=(process, said, number), name=said.name, daemon=True).start()
        return process

    def _listen(self, process: "subprocess.Popen[bytes]", said: Path, number: int) -> None:
        """What it says goes into a file, and of that the news into the timeline."""
        with said.open("wb", buffering=0) as file:
            for line in process.stdout or ():
                file.write(line)
                if any(news in line for news in NEWS):
                    text = line.decode(errors="replace").rstrip()
                    self._timeline.tell(f"start {number} says: {text.partition(' ')[2][:TEXT_MAX]}")

    def _options(self) -> list[str]:
        plan, scene = self._plan, self._scene
        local = (scene.disk.path if plan.fills_local_dir else scene.folder) / "local"
        options = ["--checkpoint-dir", str(scene.checkpoints), "-p", str(self.parallelism)]
        options += ["--checkpoint-interval", f"{plan.interval}ms", "--checkpoint-timeout", f"{plan.timeout}s"]
        # Far more failures than a run can hold: it is the supervisor that must never give up.
        options += ["--restart", "fixed-delay:10000:50ms", "--state-backend", self.backend]
        options += ["--set", f"state.local_dir={local}", "--set", f"channel.bytes={plan.channel}"]
        return options if self.savepoint is None else [*options, "--from-savepoint", str(self.savepoint)]

    def _arguments(self) -> list[str]:
        scene = self._scene
        topics = ["--input", scene.input, "--output", scene.output]
        return [
            "--bootstrap",
            scene.bootstrap,
            *topics,
            "--job",
            scene.job,
            "--delivery",
            scene.delivery,
            "--client",
            scene.client,
        ]

    # ---- other commands --------------------------------------------------------------------------------------------

    def ask(self, *words: str, done: Callable[[int, str], None], ends: Start | None = None) -> None:
        """Run another command; `done` gets its exit code and what it printed. `ends`: the start that has ended when the
        command has succeeded, but for the last moments of its process."""
        process = subprocess.Popen(
            [*TIDEGATE, *words, "--checkpoint-dir", str(self._scene.checkpoints)],
            cwd=self._scene.folder,
            env=self._scene.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._asked.append(_Asked(process, " ".join(words), done, ends))

    @property
    def is_asking(self) -> bool:
        return bool(self._asked)

    def _look_at_commands(self) -> None:
        for asked in list(self._asked):
            process = asked.process
            if process.poll() is None or (process.returncode == 0 and asked.ends is not None and asked.ends.is_alive):
                continue
            self._asked.remove(asked)
            said = (process.stdout.read() if process.stdout is not None else "").strip()
            self._timeline.tell(f"`tidegate {asked.words}` ended with {process.returncode}: {said[-500:]}")
            asked.done(process.returncode, said)

    # ---- watching --------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Raises Violation for an end that nothing explains."""
        for start in self.starts:
            self._look_at_point(start)
        for start in [start for start in self.starts if not start.is_alive and start.number not in self._judged]:
            self._judged.add(start.number)
            self._ended(start)
        self._look_at_commands()
        waits = any(asked.ends is not None for asked in self._asked)
        if self.current is None and not self.is_finishing and not waits and time.monotonic() >= self._start_at:
            self.start()

    def _ended(self, start: Start) -> None:
        code = start.started.process.returncode
        lived = time.monotonic() - start.began
        self._timeline.tell(f"{start.name} ended with {code} after {lived:.1f} s")
        self._start_at = time.monotonic() + start.draw.pause
        explained = {0: start.was_asked, KILLED: start.was_killed, TAKEN_OVER: start.was_rivalled}
        explained |= dict.fromkeys(INTERRUPTED, start.was_asked)
        if not explained.get(code, False):
            said = start.tail()
            raise Violation("exit code", f"{start.name} ended with {code}, which nothing explains:\n{said}")

    def _look_at_point(self, start: Start) -> None:
        """Whether its fail point has acted since."""
        if not start.has_point or not Path(f"{start.mark}.0").exists():
            return
        start.has_point = False
        point = start.draw.fail_points[0]
        if point.endswith("=kill"):
            start.was_killed = start.was_killed or "@jobmanager" in point
            self._timeline.killed("fail point", f"at fail point {point} of {start.name}")
        else:
            self._timeline.struck("fail-point", f"{point} of {start.name}, for {start.draw.resumes_after:.1f} s")
            is_job_manager = "@jobmanager" in point
            if is_job_manager and start.draw.has_successor:
                self._agenda.after(start.draw.resumes_after / 2, lambda: self.replace(start))
            self._agenda.after(start.draw.resumes_after, lambda: self.resume(start))

    # ---- what is done to starts ------------------------------------------------------------------------------------

    def kill(self, start: Start, pids: list[int], who: str) -> None:
        start.was_killed = start.was_killed or start.pid in pids
        for pid in pids:
            # It may have died by itself since, as workers of a failed attempt do.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._timeline.killed(who, f"{who} {pids} of {start.name}")

    def kill_group(self, start: Start) -> None:
        start.was_killed = True
        start.started.send_to_all(signal.SIGKILL)
        self._timeline.killed("group", f"all of {start.name}")

    def replace(self, start: Start) -> None:
        """Start a second one beside `start`, if that is the newest and lives."""
        if self.current is start and not self.is_finishing:
            self.start()

    def resume(self, start: Start) -> None:
        if start.started.living():
            self._timeline.tell(f"continue {start.name}")
            start.started.send_to_all(signal.SIGCONT)

    def interrupt(self, start: Start) -> None:
        """As Ctrl-C in a terminal."""
        start.was_asked = True
        start.started.send_to_all(signal.SIGINT)

    def clear(self) -> None:
        """Leave no process behind."""
        for asked in self._asked:
            with suppress(ProcessLookupError):
                os.killpg(asked.process.pid, signal.SIGKILL)
            asked.process.wait()
        for start in self.starts:
            start.started.send_to_all(signal.SIGKILL)
            start.started.process.wait()

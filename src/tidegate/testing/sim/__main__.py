"""`tidegate-sim`: runs seeds of the simulated world and says which of them break what must hold, and how to see each of
them again. It decides nothing about a world: all that a seed has is drawn from its number.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.testing.sim.pool import quiet_logs, results_of
from tidegate.testing.sim.world import MEDIUMS, Result, run_seed

PROGRESS_SECONDS = 30.0
"""Between two lines of a long run."""
EXAMPLES = """
examples:
  tidegate-sim --seeds 2000 --jobs 2      run seeds 0 to 1999 in two processes
  tidegate-sim --first 5000 --seeds 100   run seeds 5000 to 5099
  tidegate-sim --seed 1257 --trace        show everything that happens in the world of seed 1257
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 when a seed found something, 130 when the run was interrupted."""
    options = _parser().parse_args(arguments)
    if options.seed is not None:
        with quiet_logs():
            result = run_seed(options.seed, print if options.trace else None, options.medium)
        print(_line(result))
        return int(result.violation is not None)
    jobs = options.jobs or os.cpu_count() or 1
    return _run_all(range(options.first, options.first + options.seeds), jobs, options.medium)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tidegate-sim",
        description="Runs the real JobManager, workers and tasks in simulated worlds full of crashes, one for each "
        "seed, and checks from outside that every result is there once. The same seed is the same world.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run (default: 100)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default: 0)")
    parser.add_argument("--jobs", type=int, default=1, help="in how many processes (default: 1; 0: one a core)")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--medium", choices=MEDIUMS, help="what the job reads and writes (default: the seed decides)")
    parser.add_argument("--trace", action="store_true", help="with --seed: show every event")
    return parser


@dataclass
class Tally:
    """What was found so far."""

    wanted: int
    seeds: int = 0
    events: int = 0
    checkpoints: int = 0
    bad: int = 0

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.events += result.events
        self.checkpoints += result.checkpoints
        if result.violation is not None:
            self.bad += 1
            print(_line(result), flush=True)

    def __str__(self) -> str:
        return f"{self.seeds} seeds, {self.events} events, {self.checkpoints} checkpoints, {self.bad} violations"


def _run_all(seeds: range, jobs: int, medium: str | None) -> int:
    tally = Tally(len(seeds))
    told_at = time.monotonic()
    try:
        with results_of(seeds, jobs, medium) as results:
            for result in results:
                tally.add(result)
                if time.monotonic() >= told_at + PROGRESS_SECONDS:
                    told_at = time.monotonic()
                    print(f"… {tally.seeds} of {tally.wanted} seeds, {tally.bad} violations", flush=True)
    except KeyboardInterrupt:
        print(f"interrupted after {tally}", flush=True)
        return 130
    print(tally)
    return int(tally.bad > 0)


def _line(result: Result) -> str:
    facts = (
        f"seed {result.seed} on {result.medium}: {result.events} events, {result.seconds:.1f} s, "
        f"{result.job_managers} JobManagers, {result.checkpoints} checkpoints, trace {result.digest}"
    )
    if result.violation is None:
        return f"{facts}: holds{' (stopped because a transaction timed out)' if result.stopped_for_loss else ''}"
    replay = f"tidegate-sim --seed {result.seed} --medium {result.medium} --trace"
    return f"{facts}\n  VIOLATED: {result.violation}\n  replay: {replay}"


if __name__ == "__main__":
    sys.exit(main())

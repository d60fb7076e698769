"""`python -m tidegate.testing.sim`: runs seeds one after another and says which of them break what must hold."""

import argparse
import sys
from collections.abc import Sequence

from tidegate.testing.sim.world import Result, run_seed


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 when a seed found something."""
    parser = argparse.ArgumentParser(prog="python -m tidegate.testing.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--step", type=int, default=1, help="run only every so manieth, to share the work")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--trace", action="store_true", help="with --seed: show every event")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        result = run_seed(options.seed, print if options.trace else None)
        print(_line(result))
        return int(result.violation is not None)
    return _run_all(range(options.first, options.first + options.seeds, options.step))


def _run_all(seeds: range) -> int:
    bad = 0
    events = checkpoints = 0
    for seed in seeds:
        result = run_seed(seed)
        events += result.events
        checkpoints += result.checkpoints
        if result.violation is not None:
            bad += 1
            print(_line(result), flush=True)
    print(f"{len(seeds)} seeds, {events} events, {checkpoints} checkpoints, {bad} violations")
    return int(bad > 0)


def _line(result: Result) -> str:
    facts = (
        f"seed {result.seed}: {result.events} events, {result.seconds:.1f} s, {result.job_managers} JobManagers, "
        f"{result.checkpoints} checkpoints, trace {result.digest}"
    )
    if result.violation is None:
        return f"{facts}: holds{' (stopped because a transaction timed out)' if result.stopped_for_loss else ''}"
    replay = f"python -m tidegate.testing.sim --seed {result.seed} --trace"
    return f"{facts}\n  VIOLATED: {result.violation}\n  replay: {replay}"


if __name__ == "__main__":
    sys.exit(main())

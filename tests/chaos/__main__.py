"""`python -m tests.chaos --minutes 10 [--seed N] [--nodes 1|3] [--kinds a,b] [--json PATH]`: chaos on the real thing.

Exit code 0: everything was right; 1: a violation, shown with the seed and the timeline; 2: the run could not be made,
or was ended with Ctrl-C.
"""

import argparse
import signal
import sys
import time
import traceback
from pathlib import Path

from tests.chaos.checker import Violation
from tests.chaos.run import Options, Run
from tests.chaos.schedule import Kind
from tidegate.connectors.kafka.connection import DEFAULT_CLIENT


def options_of(arguments: argparse.Namespace) -> Options:
    kinds = tuple(Kind(name) for name in arguments.kinds.split(",") if name) or tuple(Kind)
    return Options(
        # Nine digits, so that it is typed again without a mistake.
        seed=arguments.seed or time.time_ns() % 1_000_000_000,
        minutes=arguments.minutes,
        nodes=arguments.nodes,
        kinds=kinds,
        rate=arguments.rate,
        disk=arguments.disk,
        folder=arguments.folder,
        delivery=arguments.delivery,
        client=arguments.client,
    )


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Chaos on real processes and brokers.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0, help="0: a new one")
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="of Kafka")
    parser.add_argument("--kinds", default="", help=f"of {', '.join(kind.value for kind in Kind)}; all by default")
    parser.add_argument("--rate", type=int, default=2000, help="orders a second")
    parser.add_argument("--disk", choices=("auto", "mount", "limit"), default="auto", help="how it becomes full")
    parser.add_argument("--folder", type=Path, help="for logs and data")
    parser.add_argument("--keep", action="store_true", help="keep the folder also when everything was right")
    delivery = ("exactly-once", "at-least-once")
    parser.add_argument("--delivery", choices=delivery, default=delivery[0], help="a run with the other one must fail")
    parser.add_argument("--client", choices=("librdkafka", "batches"), default=DEFAULT_CLIENT, help="of the job")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there")
    return parser.parse_args(words)


def show(text: str) -> None:
    print(text, flush=True)


def main(words: list[str]) -> int:
    arguments = parse(words)
    try:
        options = options_of(arguments)
    except ValueError as error:
        show(str(error))
        return 2
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = Run(options, show)
    code = _outcome(run)
    # A second Ctrl-C must not keep what is left from being ended.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    run.close(keep=code != 0 or arguments.keep)
    if arguments.json is not None:
        run.report.write(arguments.json)
    for line in run.report.lines():
        show(line)
    if code != 0 or arguments.keep:
        show(f"logs, checkpoints and the brokers' data: {run.folder}")
        kinds = f" KINDS={arguments.kinds}" if arguments.kinds else ""
        show(f"the same again: make chaos SEED={options.seed} NODES={options.nodes} MINUTES={options.minutes:g}{kinds}")
    return code


def _outcome(run: Run) -> int:
    try:
        run.run()
    except KeyboardInterrupt:
        run.report.violation = "ended with Ctrl-C"
        show("ended with Ctrl-C")
        return 2
    except Violation as violation:
        run.timeline.tell(f"VIOLATION {violation}")
        run.report.violation = str(violation)
        show("\n".join(["timeline, in seconds:", *run.timeline.lines]))
        return 1
    except Exception as error:
        run.report.violation = f"the run could not be made: {error}"
        traceback.print_exc()
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

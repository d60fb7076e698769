"""Measures stream processors from Kafka to Kafka, in turns, checks what they write, and makes tables and a chart of it:
`python -m benchmarks.suite`. Ends with 1 when a system could not be prepared, failed, or wrote a wrong result.
"""

import argparse
import pstats
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

from benchmarks.suite import chart, report, results, session, systems
from benchmarks.suite.contracts import Guarantee, System, Workload
from benchmarks.suite.measure import Measuring, say_on_terminal
from benchmarks.suite.places import ROOT
from benchmarks.suite.systems.tidegate import Tidegate
from benchmarks.suite.workloads import PARTITIONS, RECORDS, USERS, VALUE_BYTES, Data
from tidegate.deploy.dev_kafka import DevKafka
from tidegate.errors import TidegateError

DOCUMENT = ROOT / "docs" / "benchmarks.md"
CHART = DOCUMENT.with_suffix(".svg")
SYSTEMS = ("tidegate", "bare-loop")
PROFILE_LINES = 30


def main() -> int:
    # Also when a shell started this in the background, where Ctrl-C would be ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = _parser().parse_args()
    try:
        if options.profile:
            return _profile(options)
        if options.report_only:
            _report(options.results or results.newest(), options)
            return 0
        path = options.results or results.FOLDER / f"{_now():%Y-%m-%dT%H%M%S}.jsonl"
        is_well = _measure(options, path)
        _report(path, options)
        return 0 if is_well else 1
    except TidegateError as error:
        say(f"error: {error}")
        return error.failure.exit_code
    except KeyboardInterrupt:
        say("stopped")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite", description=__doc__)
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, choices=systems.MODULES, metavar="NAME")
    parser.add_argument("--workloads", nargs="+", type=Workload, default=list(Workload), metavar="NAME")
    parser.add_argument("--slots", nargs="+", type=int, default=[1, 2], metavar="COUNT", help="workers, subtasks")
    parser.add_argument("--records", type=int, default=RECORDS, metavar="COUNT", help="slow systems take fewer")
    parser.add_argument("--users", type=int, default=USERS, metavar="COUNT", help="keys")
    parser.add_argument("--value-bytes", type=int, default=VALUE_BYTES, metavar="BYTES")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, metavar="COUNT")
    parser.add_argument("--rounds", type=int, default=3, metavar="COUNT", help="all of it so often, in turns")
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="between checkpoints")
    parser.add_argument("--guarantee", nargs="+", type=_guarantee, default=[Guarantee.EXACTLY_ONCE], metavar="NAME")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker, instead of one that is started")
    parser.add_argument("--results", type=Path, metavar="FILE", help="to which results are appended")
    parser.add_argument("--report-only", action="store_true", help="tables of the last results, without measuring")
    parser.add_argument("--reference", metavar="NAME", help="the system to which ratios are")
    parser.add_argument("--write", action="store_true", help=f"tables and chart into {DOCUMENT.relative_to(ROOT)}")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="of Tidegate's worker 0, instead of measuring")
    return parser


def _guarantee(text: str) -> Guarantee:
    """`exactly-once` or `at-least-once`."""
    return Guarantee(text.replace("-", " "))


def say(text: str) -> None:
    say_on_terminal("")
    print(text, file=sys.stderr, flush=True)


def _now() -> datetime:
    return datetime.now().astimezone()


@contextmanager
def _measuring(bootstrap: str | None) -> Iterator[Measuring]:
    """With the broker that there is, or one that is started, whose CPU time is known."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-bench-")))
        if bootstrap is not None:
            yield Measuring(bootstrap, folder, None, say_on_terminal)
        else:
            kafka = stack.enter_context(DevKafka(folder / "kafka"))
            yield Measuring(kafka.bootstrap, folder, kafka.pid(), say_on_terminal)


def _measure(options: argparse.Namespace, path: Path) -> bool:
    asked = [systems.load(name) for name in options.systems]
    ready = session.prepared(asked, say)
    choice = _choice(options, ready)
    with _measuring(options.bootstrap) as measuring:
        own = results.this_session(f"{_now():%Y-%m-%d %H:%M %z}", sys.argv[1:])
        is_well = session.run(choice, measuring, own, path, say)
    return is_well and len(ready) == len(asked)


def _choice(options: argparse.Namespace, ready: Sequence[System]) -> session.Choice:
    return session.Choice(
        systems=ready,
        workloads=options.workloads,
        slots=options.slots,
        guarantees=options.guarantee,
        data=Data(options.records, options.users, options.value_bytes, options.partitions),
        checkpoint_seconds=options.interval,
        rounds=options.rounds,
    )


def _profile(options: argparse.Namespace) -> int:
    """The profile of the first run that is asked for; no measure, since it slows it down."""
    system = Tidegate("tidegate", profile=options.profile)
    _, plan = next(session.plans(_choice(options, [system]), 1))
    with _measuring(options.bootstrap) as measuring:
        measuring.measure(system, plan)
    pstats.Stats(str(options.profile)).sort_stats("tottime").print_stats(PROFILE_LINES)
    return 0


def _report(path: Path, options: argparse.Namespace) -> None:
    measured = results.read([path])
    text = report.report(measured, options.reference)
    print(text)
    if options.write:
        image = f"![Records per second, and per second of CPU time, of each system]({CHART.name})"
        report.write_between(DOCUMENT, "throughput", f"{image}\n\n{text}")
        chart.write(CHART, report.rows(measured))


if __name__ == "__main__":
    sys.exit(main())

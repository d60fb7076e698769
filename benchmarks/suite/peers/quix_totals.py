"""Running totals by user with Quix Streams, Kafka to Kafka, until SIGTERM.

Orders have their user as key, so that its state by key needs no regrouping. With more than one slot there are as many
processes, which share the partitions as members of one consumer group.
"""

# mypy: disable-error-code="import-not-found, misc"

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import side_by_side
from quixstreams import Application, State


def add(order: dict[str, Any], state: State) -> dict[str, Any]:
    total = state.get("total", 0) + order["amount"]
    state.set("total", total)
    return {"user": order["user"], "total": total}


def run(options: Namespace) -> None:
    application = Application(
        broker_address=options.bootstrap,
        consumer_group=options.sink,
        auto_offset_reset="earliest",
        commit_interval=options.interval,
        processing_guarantee=options.guarantee,
        state_dir=options.folder / f"state-{options.number}",
        loglevel="WARNING",
        consumer_extra_config=dict(setting.split("=") for setting in options.consumer),
        producer_extra_config=dict(setting.split("=") for setting in options.producer),
    )
    orders, totals = application.topic(options.source), application.topic(options.sink)
    application.dataframe(orders).apply(add, stateful=True).to_topic(totals)
    application.run()


def main() -> None:
    parser = ArgumentParser()
    for name in ("bootstrap", "source", "sink", "guarantee"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--interval", type=float, required=True, help="seconds between commits")
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--number", type=int, default=0, help="of this process among those of the job")
    parser.add_argument("--consumer", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--producer", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    if options.slots == 1:
        run(options)
    else:
        side_by_side.run([[*sys.argv, "--slots=1", f"--number={number}"] for number in range(options.slots)])


if __name__ == "__main__":
    main()

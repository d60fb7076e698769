"""Running totals by user with Bytewax, Kafka to Kafka, until the input is read.

With more than one slot there are as many processes, since threads of one would wait for each other. Whole batches are
decoded and encoded at once, which is faster than a step for each record.
"""

# mypy: disable-error-code="import-not-found, misc"

import socket
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import side_by_side
from bytewax import operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main


class RunningTotal(op.StatefulBatchLogic[int, int, int]):
    def __init__(self, total: int | None) -> None:
        self._total = total or 0

    def on_batch(self, amounts: list[int]) -> tuple[Iterable[int], bool]:
        total, totals = self._total, []
        for amount in amounts:
            total += amount
            totals.append(total)
        self._total = total
        return totals, op.StatefulBatchLogic.RETAIN

    def snapshot(self) -> int:
        return self._total


def decode(messages: list[KafkaSourceMessage[bytes, bytes]]) -> list[tuple[str, int]]:
    orders: list[dict[str, Any]] = [orjson.loads(message.value) for message in messages]
    return [(order["user"], order["amount"]) for order in orders]


def encode(totals: list[tuple[str, int]]) -> list[KafkaSinkMessage[bytes, bytes]]:
    dumps = orjson.dumps
    return [KafkaSinkMessage(user.encode(), dumps({"user": user, "total": total})) for user, total in totals]


def flow(options: Namespace) -> Dataflow:
    brokers = options.bootstrap.split(",")
    consumer = dict(setting.split("=") for setting in options.consumer)
    producer = dict(setting.split("=") for setting in options.producer)
    source = KafkaSource(brokers, [options.source], tail=False, add_config=consumer, batch_size=options.batch)
    dataflow = Dataflow("totals")
    orders = op.flat_map_batch("decode", op.input("orders", dataflow, source), decode)
    totals = op.stateful_batch("totals", orders, RunningTotal)
    messages = op.flat_map_batch("encode", totals, encode)
    op.output("output", messages, KafkaSink(brokers, options.sink, producer))
    return dataflow


def run(options: Namespace) -> None:
    addresses = options.addresses.split(",") if options.addresses else None
    cli_main(
        flow(options),
        workers_per_process=1,
        process_id=options.number if addresses else None,
        addresses=addresses,
        epoch_interval=timedelta(seconds=options.interval),
        recovery_config=RecoveryConfig(str(recovery(options)), timedelta(0)),
    )


def recovery(options: Namespace) -> Path:
    folder: Path = options.folder / "recovery"
    return folder


def free_addresses(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def main() -> None:
    parser = ArgumentParser()
    for name in ("bootstrap", "source", "sink"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument(
        "--interval", type=float, required=True, help="seconds of an epoch, behind which state is saved"
    )
    parser.add_argument("--batch", type=int, default=1000, help="records in a poll at most")
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--number", type=int, default=-1, help="of this process among those of the job")
    parser.add_argument("--addresses", default="", help="of all processes of the job")
    parser.add_argument("--consumer", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--producer", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    if options.number < 0:
        recovery(options).mkdir()
        init_db_dir(recovery(options), options.slots)
    if options.slots == 1 or options.number >= 0:
        run(options)
    else:
        addresses = "--addresses=" + ",".join(free_addresses(options.slots))
        side_by_side.run([[*sys.argv, addresses, f"--number={number}"] for number in range(options.slots)])


if __name__ == "__main__":
    main()

"""`tidegate dev-kafka`: a Kafka on this machine to try things out with, until Ctrl-C.

Only words to calls: everything that is done is done in `deploy.dev_kafka`.
"""

from pathlib import Path
from typing import Annotated

import typer

from tidegate.errors import InvalidError

_DEFAULT_PORT = 9092


def dev_kafka(
    nodes: Annotated[int, typer.Option(metavar="1|3", help="How many brokers.")] = 1,
    port: Annotated[
        int, typer.Option(metavar="PORT", min=1, max=65533, help="Of the first broker; others take the next ones.")
    ] = _DEFAULT_PORT,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep data there, and go on with it next time.")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="NAME:PARTITIONS", help="Make this topic; may be repeated.")
    ] = None,
    version: Annotated[str | None, typer.Option(metavar="VERSION", help="Of Kafka, from 3.9.0 on.")] = None,
) -> None:
    """Run a Kafka for development, without any safety: one machine, one disk."""
    from tidegate.deploy.dev_kafka import DEFAULT_VERSION
    from tidegate.deploy.dev_kafka.foreground import serve

    if nodes not in (1, 3):
        raise InvalidError(f"--nodes {nodes} is not possible", remedy="Take 1, or 3.")
    topics = dict(map(parse_topic, topic or ()))
    serve(folder, list(range(port, port + nodes)), version or DEFAULT_VERSION, topics, _say)


def parse_topic(text: str) -> tuple[str, int]:
    """Name and partitions of 'orders:4'. Raises InvalidError."""
    name, _, partitions = text.rpartition(":")
    if not name or not partitions.isascii() or not partitions.isdecimal() or int(partitions) == 0:
        raise InvalidError(f"--topic {text} names no topic and partitions", remedy="Write --topic orders:4.")
    return name, int(partitions)


def _say(text: str) -> None:
    print(text, flush=True)

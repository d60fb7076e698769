"""What a data wire carries over Unix sockets, and over TCP with CURVE, with the CPU time of both of its ends.

Both ends are in one process with contexts of their own, and take turns; as much is in flight as a few channels have
credit for. The best of several rounds that alternate is printed: what else runs can only slow a round down.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass

from tidegate.deploy.curve import Context, new_pair, worker_keys
from tidegate.deploy.wires import DataWires
from tidegate.ids import WorkerIndex

IN_FLIGHT = 1 << 19
"""Bytes."""
SIZES = (2048, 32768)


@dataclass(frozen=True)
class Round:
    """One way over one wire."""

    megabytes_per_second: float
    cpu_seconds_per_gigabyte: float


def connected(is_tcp: bool, folder: str, contexts: list[Context]) -> list[DataWires]:
    if is_tcp:
        keys = worker_keys(new_pair(), 2)
        wires = [DataWires(context, "tcp://127.0.0.1:*", one) for context, one in zip(contexts, keys, strict=True)]
    else:
        wires = [DataWires(context, f"ipc://{folder}/{index}") for index, context in enumerate(contexts)]
    for one in wires:
        one.connect([one.address for one in wires])
    while not all(one.is_complete for one in wires):
        for one in wires:
            one.let_peers_in()
            one.has_broken()
    return wires


def carry(is_tcp: bool, size: int, total: int) -> Round:
    """`total` bytes in frames of `size`."""
    contexts = [Context(), Context()]
    with tempfile.TemporaryDirectory() as folder:
        sender, receiver = connected(is_tcp, folder, contexts)
        frame, count, sent, received = bytes(size), total // size, 0, 0
        begun, cpu = time.perf_counter(), time.process_time()
        while received < count:
            while sent < count and (sent - received) * size < IN_FLIGHT:
                sender.send(WorkerIndex(1), frame)
                sent += 1
            while receiver.receive() is not None:
                received += 1
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        for context in contexts:
            context.destroy(linger=0)
    return Round(total / seconds / 1e6, cpu * 1e9 / total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=150)
    options = parser.parse_args()
    for size in SIZES:
        rounds: dict[bool, list[Round]] = {False: [], True: []}
        for _ in range(options.rounds):
            for is_tcp, done in rounds.items():
                done.append(carry(is_tcp, size, options.megabytes * 1_000_000))
        for is_tcp, done in rounds.items():
            fastest = max(one.megabytes_per_second for one in done)
            least = min(one.cpu_seconds_per_gigabyte for one in done)
            name = "tcp with CURVE" if is_tcp else "ipc"
            print(f"{name:15} frames of {size:6} B: {fastest:6.0f} MB/s, {least:.2f} CPU seconds per GB")


if __name__ == "__main__":
    main()

"""Free ports on loopback, out of the range that the kernel gives to connections.

A port of that range can go to any client's own end while its server is down for a moment, even to the client that tries
to reach it, which then talks to itself.
"""

import random
import socket

from tidegate.deploy.dev_kafka.settings import HOST

_FIRST, _END = 20_000, 32_000
"""Connections begin at 32768 on Linux, at 49152 elsewhere."""
_ATTEMPTS = 1000


def free_ports(count: int) -> list[int]:
    """Different ports on which nobody listens. Raises OSError when there are none."""
    found: dict[int, None] = {}
    for _ in range(_ATTEMPTS):
        if len(found) == count:
            return list(found)
        port = random.randrange(_FIRST, _END)
        if is_free(port):
            found[port] = None
    raise OSError(f"no free port between {_FIRST} and {_END} on {HOST}")


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        # As servers do: connections that have just ended hold nobody back.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True

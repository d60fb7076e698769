"""A process of its own that appends numbered orders to a log until it is told to stop, and says how many there are.

    python -m tests.integration.order_writer LOG

It stops when its standard input ends, between two appends, and prints the number of orders.
"""

import select
import sys
import time
from pathlib import Path

from tests.integration.running import append, orders

USERS = 37
AT_ONCE = 40
PAUSE = 0.02
"""Seconds between two appends."""


def main() -> None:
    log, count = Path(sys.argv[1]), 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        append(log, orders(count, AT_ONCE, USERS))
        count += AT_ONCE
        time.sleep(PAUSE)
    print(count)


if __name__ == "__main__":
    main()

"""When a worker's process looks for cyclic garbage: not before its job runs, and then seldom.

What was imported and restored lives as long as the process, and is never looked through. Only thresholds are set, so a
program that sets its own, or switches the collector off, has its way; nothing here may switch collection off for good.
"""

import gc

NEVER = 0
"""As the first threshold."""
THRESHOLDS = (10_000, 5, 20)
"""More objects than are made and given up again with a batch, and few enough that a collection of the middle generation
takes milliseconds. The reasons are in decision 45."""


def put_off_collecting() -> None:
    """Until `begin_collecting`: what is made now is kept."""
    gc.set_threshold(NEVER)


def begin_collecting() -> None:
    """What there is now is kept, and what comes from now on is looked through now and then."""
    gc.freeze()
    if gc.get_threshold()[0] == NEVER:
        gc.set_threshold(*THRESHOLDS)

"""Chooses what an example leaves to the defaults, the Kafka client and the guarantee of its sink, and profiles worker
0, in each process whose PYTHONPATH has this folder: Python imports this by its name when it starts. So the examples
stay what users read.

The profile is of the worker's main thread, which steps the tasks.
"""

import json
import os
from typing import NoReturn

if client := os.environ.get("BENCH_CLIENT"):
    from tidegate.connectors.kafka import connection

    connection.DEFAULT_CLIENT = client

if delivery := os.environ.get("BENCH_DELIVERY"):
    from tidegate.connectors.kafka.sink import KafkaSink

    defaults = KafkaSink.__init__.__kwdefaults__
    assert defaults is not None
    assert "delivery" in defaults
    defaults["delivery"] = delivery

if (path := os.environ.get("BENCH_PROFILE")) and json.loads(os.environ.get("TIDEGATE_WORKER", "{}")).get("worker") == 0:
    import cProfile

    profile = cProfile.Profile()
    end_process = os._exit

    def write_profile_and_exit(code: int) -> NoReturn:
        """A worker ends by `os._exit`, which runs nothing that was registered for the end."""
        profile.disable()
        profile.dump_stats(path)
        end_process(code)

    os._exit = write_profile_and_exit
    profile.enable()

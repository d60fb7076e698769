"""Chooses the Kafka client of a job that names none, and profiles worker 0: Python imports this by its name at the
start of every process whose PYTHONPATH has this folder. So the examples stay what users read.

The profile is of the worker's main thread, which steps the tasks; what the threads of librdkafka do is not in it.
"""

import cProfile
import json
import os
from typing import NoReturn

from tidegate.connectors.kafka import connection

WORKER = json.loads(os.environ.get("TIDEGATE_WORKER", "{}")).get("worker")
PROFILE = os.environ.get("BENCH_PROFILE")

if client := os.environ.get("BENCH_CLIENT"):
    connection.DEFAULT_CLIENT = client

if WORKER == 0 and PROFILE:
    profile = cProfile.Profile()
    end_process = os._exit

    def write_profile_and_exit(code: int) -> NoReturn:
        """A worker ends by `os._exit`, which runs nothing that was registered for the end."""
        profile.disable()
        profile.dump_stats(PROFILE)
        end_process(code)

    os._exit = write_profile_and_exit
    profile.enable()

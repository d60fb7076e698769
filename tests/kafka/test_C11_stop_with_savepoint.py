"""The broker is away when a job that is to stop with a savepoint commits: there is a savepoint when everything is
committed, and not before (C11)."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.streams import Stream
from tests.kafka import medium
from tests.kafka.conftest import OwnKafka
from tests.kafka.medium import kafka_bench
from tidegate.connectors.kafka.connection import Client
from tidegate.savepoints.format import SavepointReader
from tidegate.storage.local import LocalStorage

STREAM = Stream(medium.STREAM.pause, ("--checkpoint-interval", "2m"))
"""The only checkpoint is the one to stop with."""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", ["the broker", "the broker and the job"])
def test_C11_a_stop_with_a_savepoint_is_answered_when_the_broker_has_committed_and_otherwise_never(
    own_kafka: OwnKafka, tmp_path: Path, job_client: Client, victim: str
) -> None:
    broker, path = own_kafka(), tmp_path / "savepoint"
    with kafka_bench(broker, tmp_path, job_client) as bench, ThreadPoolExecutor(1) as side:
        answer = STREAM.fill(bench, 100)
        started = STREAM.start(bench, "commit:before@worker-0=stop")
        started.wait_until(lambda: "running, attempt 1" in started.said, "the attempt")
        asked = side.submit(bench.command, "stop", bench.job, "--savepoint", str(path))
        started.wait_for_fail_point()
        started.wait_until_stopped()
        STREAM.assert_is_in_the_middle(bench)
        assert bench.pending() != set()
        broker.kafka.kill()
        if victim == "the broker":
            started.send_to_all(signal.SIGCONT)
            # Who answered without a commit would do so at once.
            with pytest.raises(TimeoutError):
                asked.result(2)
            assert not (path / "savepoint.json").exists()
        else:
            started.send_to_all(signal.SIGKILL)
        broker.kafka.restart()
        stopped = asked.result()
        started.wait()
        assert (stopped.returncode == 0) is (path / "savepoint.json").exists() is (victim == "the broker")
        if victim == "the broker":
            assert not bench.pending() & set(bench.open_transactions()), "the stop left something uncommitted"
            manifest = SavepointReader(LocalStorage(path)).manifest()
            assert [one for record in manifest.operators for one in record.pending] == []
        STREAM.finish(bench, STREAM.start(bench))
        bench.assert_right(answer)

"""A whole job that logs in at Kafka: its password is in nothing that it stores, says or shows, right or wrong."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.programs import TIDEGATE, wait_until
from tests.kafka.brokers import PATIENCE, VERSION, Broker, login
from tests.unit.enemy import secret_program
from tidegate.deploy.dev_kafka import DevKafka
from tidegate.deploy.dev_kafka.settings import USERS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks at processes as Linux shows them"),
]
WRONG = "wr0ng-wr0ng"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevKafka]:
    """A broker that wants a login."""
    kafka = DevKafka(tmp_path_factory.mktemp("guarded"), version=VERSION, security="sasl")
    kafka.start()
    try:
        kafka.create_topics({"orders": 2, "totals": 2})
        Broker(kafka, login("admin")).produce("orders", [b"%d" % number for number in range(10)])
        yield kafka
    finally:
        kafka.kill_all()


class Run:
    """The job of `secret_program`, on its way."""

    def __init__(self, kafka: DevKafka, folder: Path, password: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SHOP_KAFKA", kafka.bootstrap)
        monkeypatch.setenv("SHOP_USER", "admin")
        monkeypatch.setenv("SHOP_PASSWORD", password)
        self.checkpoints = folder / "checkpoints"
        self._said = folder / "said"
        options = ["--parallelism", "2", "--restart", "none", "--checkpoint-interval", "200ms"]
        command = [*TIDEGATE, "run", secret_program.__file__, *options, "--checkpoint-dir", str(self.checkpoints)]
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=subprocess.STDOUT)

    @property
    def stored(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.checkpoints.rglob("*")) if path.is_file()}

    @property
    def said(self) -> str:
        return self._said.read_text()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)


def arguments_of_processes() -> dict[str, bytes]:
    """What everybody may see of each process of this machine: the words that it was started with."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found[path.parent.name] = path.read_bytes()
        except OSError:
            continue
    return found


def test_a_job_that_logs_in_stores_and_says_nothing_of_its_password(
    guarded: DevKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = USERS["admin"]
    run = Run(guarded, tmp_path, password, monkeypatch)
    try:
        wait_until(lambda: sum(b'"completed"' in data for data in run.stored.values()) >= 2, "two checkpoints")
        workers = [words for words in arguments_of_processes().values() if b"tidegate.worker" in words]
        assert len(workers) >= 2
        assert not any(password.encode() in words for words in arguments_of_processes().values())
    finally:
        run.stop()
    assert any(b"sasl.password" in data for data in run.stored.values())
    assert not any(password.encode() in data for data in run.stored.values())
    assert password not in run.said


def test_a_job_whose_password_is_wrong_says_so_without_it(
    guarded: DevKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(guarded, tmp_path, WRONG, monkeypatch)
    started = time.monotonic()
    try:
        assert run.process.wait(PATIENCE) == 2, run.said
    finally:
        run.process.kill()
    assert time.monotonic() - started < PATIENCE
    assert "uthentication" in run.said or "AUTHENTICATION" in run.said
    assert WRONG not in run.said
    assert not any(WRONG.encode() in data for data in run.stored.values())

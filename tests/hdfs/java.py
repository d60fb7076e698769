"""Hadoop's classes as processes: the jars that they need, fetched as those of Kafka are, and how one is started.

A process dies with the thread that started it, and only those that were started here are ever signalled.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tidegate.deploy.dev_kafka import maven
from tidegate.deploy.dev_kafka.tools import find_java, install_missing

VERSION = os.environ.get("TIDEGATE_TEST_HADOOP", "3.4.2")
HOST = "127.0.0.1"
PATIENCE = 90.0
QUICK = {
    # What a DataNode waits, by default 400 ms, when it closes a file before the NameNode has heard of the last block.
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",
}
_ARTIFACTS = (
    ("org.apache.hadoop", "hadoop-client-minicluster", VERSION),
    ("org.slf4j", "slf4j-reload4j", "1.7.36"),
    # Part of Java no more, and not of the minicluster's jar.
    ("javax.xml.bind", "jaxb-api", "2.3.1"),
)
_LOGGING = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""

Process = subprocess.Popen[bytes]


def ensure_jars() -> Path:
    """The folder with the jars; also Java and Maven are installed where they are missing and that is allowed."""
    folder = maven.cache_folder(f"hadoop-minicluster-{VERSION}")
    install_missing(maven=not folder.is_dir(), say=print)
    maven.fill(folder, _ARTIFACTS, f"Hadoop's minicluster {VERSION}")
    return folder


def start_java(main_class: str, arguments: Iterable[str], log: Path) -> Process:
    """Run `main_class` in the folder of `log`, which is also where it looks for configuration files."""
    folder = log.parent
    (folder / "log4j.properties").write_text(_LOGGING)
    guard = [sys.executable, "-P", "-m", "tidegate.deploy.dev_kafka.node_process", str(os.getpid())]
    java = [find_java(), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    java += ["-cp", f"{folder}:{ensure_jars()}/*", main_class]
    with log.open("ab") as output:
        return subprocess.Popen(
            [*guard, *java, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def run_java(main_class: str, arguments: Iterable[str], log: Path) -> None:
    """The same, to its end."""
    code = start_java(main_class, arguments, log).wait(PATIENCE)
    assert code == 0, f"{main_class} ended with {code}: {tail(log)}"


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-4000:]


def wait_until(has_happened: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not has_happened():
        assert time.monotonic() < deadline, f"{what} did not happen within {patience:g} s"
        time.sleep(0.02)

"""An HDFS of two NameNodes, one of which is active, that share their journal; each is a process that can be killed.

Who is active is said by the test, as an operator says it, and never decided by the cluster.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tests.hdfs.java import HOST, QUICK, Process, run_java, start_java, tail, wait_until
from tidegate.deploy.dev_kafka.ports import free_ports
from tidegate.storage.hdfs import HdfsStorage, open_hdfs
from tidegate.storage.port import StorageUnavailable

Name = Literal["one", "two"]
NAMES: tuple[Name, Name] = ("one", "two")
_NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_ADMIN = "org.apache.hadoop.hdfs.tools.DFSHAAdmin"


class Pair:
    """Made with `with`; 'one' is active then. The thread that does so must outlive it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "hdfs.log"
        self._processes: dict[str, Process] = {}
        ports = [f"{HOST}:{port}" for port in free_ports(7)]
        self.addresses = dict(zip(NAMES, ports[:2], strict=True))
        self._configure(ports)

    def _configure(self, ports: list[str]) -> None:
        settings = {
            "fs.defaultFS": "hdfs://pair",
            "dfs.nameservices": "pair",
            "dfs.ha.namenodes.pair": ",".join(NAMES),
            "dfs.ha.fencing.methods": "shell(/bin/true)",
            "dfs.client.failover.proxy.provider.pair": "org.apache.hadoop.hdfs.server.namenode.ha."
            "ConfiguredFailoverProxyProvider",
            "dfs.namenode.shared.edits.dir": (self._folder / "journal").as_uri(),
            "dfs.datanode.data.dir": str(self._folder / "blocks"),
            "dfs.replication": "1",
            **{f"dfs.namenode.http-address.pair.{name}": ports[index] for index, name in enumerate(NAMES)},
            **{f"dfs.namenode.rpc-address.pair.{name}": ports[index + 2] for index, name in enumerate(NAMES)},
            "dfs.datanode.address": ports[4],
            "dfs.datanode.http.address": ports[5],
            "dfs.datanode.ipc.address": ports[6],
            **QUICK,
        }
        for name in ("core-site.xml", "hdfs-site.xml"):
            (self._folder / name).write_text(_xml(settings))

    def __enter__(self) -> Self:
        run_java(_NAMENODE, [*self._own_settings("one"), "-format", "-nonInteractive"], self._log)
        shutil.copytree(self._folder / "one", self._folder / "two")
        for name in NAMES:
            self._processes[name] = start_java(_NAMENODE, self._own_settings(name), self._log)
        self._processes["blocks"] = start_java(_DATANODE, [], self._log)
        self.activate("one")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _own_settings(self, name: Name) -> list[str]:
        return ["-D", f"dfs.ha.namenode.id={name}", "-D", f"dfs.namenode.name.dir={self._folder / name}"]

    # ---- what a test does ------------------------------------------------------------------------------------------

    def activate(self, name: Name) -> None:
        """Where the other may be dead; and wait until this one takes writes."""
        wait_until(lambda: self._is_listening(name), f"the start of NameNode {name} ({self._log})")
        run_java(_ADMIN, ["-transitionToActive", "--forceactive", name], self._log)
        wait_until(lambda: self._takes_writes(name), f"the writes of NameNode {name} ({self._log})")

    def stand_by(self, name: Name) -> None:
        run_java(_ADMIN, ["-transitionToStandby", name], self._log)

    def kill(self, name: Name) -> None:
        self._processes[name].kill()
        self._processes[name].wait()

    def _is_listening(self, name: Name) -> bool:
        assert self._processes[name].poll() is None, f"NameNode {name} has ended: {tail(self._log)}"
        try:
            self._alone(name).check_writable()
        except StorageUnavailable as error:
            return "is not active" in str(error)
        return True

    def _takes_writes(self, name: Name) -> bool:
        try:
            self._alone(name).check_writable()
        except StorageUnavailable:
            return False
        return True

    def _alone(self, name: Name) -> HdfsStorage:
        return open_hdfs(f"webhdfs://{self.addresses[name]}/ready")

    def url(self, path: str) -> str:
        return f"webhdfs://{','.join(self.addresses[name] for name in NAMES)}/{path}"


def _xml(settings: Mapping[str, str]) -> str:
    properties = (
        f"<property><name>{name}</name><value>{value}</value></property>\n" for name, value in settings.items()
    )
    return f"<configuration>\n{''.join(properties)}</configuration>\n"

"""Hadoop's own minicluster for tests: NameNode and DataNode in one Java process on loopback, which can be killed."""

import signal
from collections.abc import Mapping
from pathlib import Path

from tests.hdfs.java import HOST, QUICK, Process, run_java, start_java, tail, wait_until
from tidegate.deploy.dev_kafka.ports import free_ports
from tidegate.storage.hdfs import HdfsStorage, open_hdfs
from tidegate.storage.port import StorageUnavailable
from tidegate.storage.webhdfs import WebHdfs


class MiniCluster:
    """An HDFS that keeps its data in `folder`, and its ports for as long as this object lives. The thread that starts
    it must outlive it."""

    def __init__(self, folder: Path, settings: Mapping[str, str] = {}) -> None:
        self._data = folder / "data"
        self._log = folder / "hdfs.log"
        self._settings = {"hdfs.minidfs.basedir": str(self._data), **QUICK, **settings}
        self._rpc_port, self._http_port = free_ports(2)
        self._process: Process | None = None

    # ---- life ------------------------------------------------------------------------------------------------------

    def begin_start(self) -> None:
        """Start it, with the data that is there, and do not wait until it answers."""
        arguments = ["-nnport", str(self._rpc_port), "-httpport", str(self._http_port)]
        if not self._data.exists():
            self._data.mkdir()
            arguments.append("-format")
        for name, value in self._settings.items():
            arguments += ["-D", f"{name}={value}"]
        self._process = start_java("org.apache.hadoop.test.MiniDFSClusterManager", arguments, self._log)

    def start(self) -> None:
        """Start it, with the data that is there, and wait until it takes writes."""
        self.begin_start()
        wait_until(self._takes_writes, f"the start of HDFS ({self._log})")

    def _takes_writes(self) -> bool:
        assert self._running().poll() is None, f"HDFS has ended: {tail(self._log)}"
        try:
            self.open("ready").check_writable()
        except StorageUnavailable:
            return False
        return True

    def kill(self) -> None:
        """End it by SIGKILL; it is gone when this returns."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """It keeps its connections, takes new ones and answers nothing."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def _running(self) -> Process:
        assert self._process is not None, "it does not run"
        return self._process

    def administer(self, *arguments: str) -> None:
        """`hdfs dfsadmin ARGUMENTS`."""
        where = ["-fs", f"hdfs://{self.rpc_address}"]
        run_java("org.apache.hadoop.hdfs.tools.DFSAdmin", [*where, *arguments], self._log)

    # ---- for clients -----------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return f"{HOST}:{self._http_port}"

    @property
    def rpc_address(self) -> str:
        """That of Hadoop's own protocol."""
        return f"{HOST}:{self._rpc_port}"

    def url(self, path: str) -> str:
        return f"webhdfs://{self.address}/{path}"

    def open(self, path: str) -> HdfsStorage:
        return open_hdfs(self.url(path))

    def client(self) -> WebHdfs:
        """WebHDFS itself, as the cluster's own user."""
        return self.open("").hdfs

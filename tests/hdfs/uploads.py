"""Uploads to HDFS that come to a halt in the middle, as a killed or paused writer leaves them."""

import http.client
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, urlsplit

from tests.hdfs.java import wait_until
from tests.hdfs.minicluster import MiniCluster
from tidegate.storage.webhdfs import Refused


@contextmanager
def half_an_upload(cluster: MiniCluster, path: str, data: bytes) -> Iterator[socket.socket]:
    """A connection to a DataNode through which half of `data` was sent into a new file at `path`, which is there before
    this goes on. Leaving it closes the connection."""
    node, target = _where_to(cluster, path)
    host, _, port = node.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        head = f"PUT {target} HTTP/1.1\r\nHost: {node}\r\nContent-Length: {len(data)}\r\nExpect: 100-continue\r\n\r\n"
        connection.sendall(head.encode())
        assert b"100 Continue" in connection.recv(4096)
        connection.sendall(data[: len(data) // 2])
        # The NameNode may hear of it behind the answer.
        wait_until(lambda: _is_there(cluster, path), f"the file {path}")
        yield connection


def _is_there(cluster: MiniCluster, path: str) -> bool:
    """In the listing of its folder, which comes with it."""
    parent, _, name = path.strip("/").rpartition("/")
    try:
        return name in [one.path_suffix for one in cluster.client().children(f"/{parent}")]
    except Refused as refused:
        if refused.name != "FileNotFoundException":
            raise
        return False


def _where_to(cluster: MiniCluster, path: str) -> tuple[str, str]:
    connection = http.client.HTTPConnection(cluster.address, timeout=30)
    try:
        user = cluster.client().user
        connection.request("PUT", f"/webhdfs/v1{quote(path)}?op=CREATE&overwrite=false&user.name={user}")
        location = urlsplit(connection.getresponse().headers["Location"])
    finally:
        connection.close()
    return location.netloc, f"{location.path}?{location.query}"


def make_old(cluster: MiniCluster, path: str, milliseconds: int) -> None:
    """As if the file at `path` had been written so much earlier."""
    time = cluster.client().status(path).modification_time - milliseconds
    connection = http.client.HTTPConnection(cluster.address, timeout=30)
    try:
        user = cluster.client().user
        query = f"op=SETTIMES&modificationtime={time}&user.name={user}"
        connection.request("PUT", f"/webhdfs/v1{quote(path)}?{query}")
        assert connection.getresponse().status == http.client.OK
    finally:
        connection.close()

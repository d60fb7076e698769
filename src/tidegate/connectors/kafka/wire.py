"""Requests to brokers, one at a time, over blocking sockets: kafka-python's message classes and SASL mechanisms, and
neither its event loop nor its threads.

Every request carries its version, every wait is bounded, and a connection on which anything went wrong is closed and
never used again. Nothing is logged here: requests may contain credentials.
"""

import itertools
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, NamedTuple, TypeVar

from kafka.errors import for_code
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kafka.version import __version__ as kafka_python_version

from tidegate.connectors.kafka import errors
from tidegate.errors import InvalidError, UnavailableError

T = TypeVar("T")

API_VERSIONS_VERSION = 3
SASL_VERSION = 1
RESPONSE_BYTES_MAX = 1 << 28
RECEIVE_BYTES = 1 << 16

_LENGTH = struct.Struct(">i")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(server: str) -> Address:
    """'HOST:PORT' or '[HOST]:PORT' taken apart."""
    host, _, port = server.rpartition(":")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def name_of(code: int) -> str:
    """A broker's error code as Kafka's protocol guide spells it, 'NOT_COORDINATOR'."""
    return str(getattr(for_code(code), "message", code))


def check(code: int, doing: str, text: str | None = "", subject: errors.Subject = errors.NOTHING_KNOWN) -> None:
    """Raise what `errors.of_code` makes of the code of a response, unless it is zero."""
    if code:
        raise errors.of_code(code, doing, f"{name_of(code)}, {text}" if text else name_of(code), subject)


def check_version(request: Any, supported: Mapping[int, tuple[int, int]], place: str) -> None:
    """Raise InvalidError unless the request's version is among those that the broker speaks, by API key."""
    lowest, highest = supported.get(request.API_KEY, (0, -1))
    if not lowest <= request.API_VERSION <= highest:
        what = f"version {request.API_VERSION} of {request.name} is not among its versions {lowest} to {highest}"
        raise errors.of_code(errors.UNSUPPORTED_VERSION, place, what)


class BrokerConnection:
    """One connection to one broker, authenticated. `config` is that of `Connection.kafka_python_config`, `timeout` in
    seconds, for connecting and for each request. After an error it can only be closed."""

    def __init__(self, address: Address, config: Mapping[str, Any], timeout: float) -> None:
        self._place = f"Kafka broker {address}"
        self._client_id: str = config["client_id"]
        self._timeout = timeout
        self._numbers = itertools.count(1)
        self._supported: dict[int, tuple[int, int]] = {}
        self.levels: dict[str, int] = {}
        """Of what the whole cluster has agreed on, by name, such as 'transaction.version'."""
        self._socket = socket.create_connection(address, timeout)
        try:
            self._open(address, config)
        except BaseException:
            self.close()
            raise

    def _open(self, address: Address, config: Mapping[str, Any]) -> None:
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if "ssl_context" in config:
            self._socket = config["ssl_context"].wrap_socket(self._socket, server_hostname=address.host)
        request = ApiVersionsRequest(
            client_software_name="tidegate-kafka-python",
            client_software_version=kafka_python_version,
            version=API_VERSIONS_VERSION,
        )
        versions = self._exchange(request)
        check(versions.error_code, self._place)
        self._supported = {each.api_key: (each.min_version, each.max_version) for each in versions.api_keys}
        self.levels = {each.name: each.max_version_level for each in versions.finalized_features or ()}
        if "sasl_mechanism" in config:
            self._authenticate(address, config)

    def _authenticate(self, address: Address, config: Mapping[str, Any]) -> None:
        name = config["sasl_mechanism"]
        doing = f"{self._place}, SASL {name}"
        handshake = self._exchange(SaslHandshakeRequest(mechanism=name, version=SASL_VERSION))
        check(handshake.error_code, doing, f"it offers {', '.join(handshake.mechanisms)}")
        mechanism = get_sasl_mechanism(name)(host=address.host, **config)
        while not mechanism.is_done():
            request = SaslAuthenticateRequest(mechanism.auth_bytes(), version=SASL_VERSION)
            response = self._exchange(request)
            check(response.error_code, doing, response.error_message)
            try:
                mechanism.receive(response.auth_bytes)
            except ValueError as error:
                raise InvalidError(f"{doing}: the broker did not prove that it knows the password") from error
        if not mechanism.is_authenticated():
            raise InvalidError(f"{doing}: the broker did not authenticate the user")

    def send(self, request: Any) -> Any:
        """The broker's response. Raises InvalidError when the broker does not speak the request's version, and what
        sockets raise."""
        check_version(request, self._supported, self._place)
        return self._exchange(request)

    def release(self) -> tuple[socket.socket, Mapping[int, tuple[int, int]]]:
        """The socket, for who goes on with it in a way of his own, and the versions of requests that the broker speaks.
        This connection must not be used any more, nor closed."""
        return self._socket, self._supported

    def _exchange(self, request: Any) -> Any:
        deadline = time.monotonic() + self._timeout
        number = next(self._numbers)
        request.with_header(correlation_id=number, client_id=self._client_id)
        self._limit(deadline)
        self._socket.sendall(request.encode(framed=True, header=True))
        (length,) = _LENGTH.unpack(self._receive(_LENGTH.size, deadline))
        if not 0 < length <= RESPONSE_BYTES_MAX:
            raise ConnectionError(f"what answers is no Kafka broker, or expects TLS: length {length} of {request.name}")
        response_class = request.header.get_response_class()
        buffer = BytesIO(self._receive(length, deadline))
        if response_class.parse_header(buffer).correlation_id != number:
            raise ConnectionError(f"the answer is not to the request {request.name}")
        return response_class.decode(buffer)

    def _receive(self, size: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            self._limit(deadline)
            part = self._socket.recv(min(size - len(parts), RECEIVE_BYTES))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return bytes(parts)

    def _limit(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)

    def close(self) -> None:
        self._socket.close()


class Brokers:
    """The brokers of a cluster, each with a connection once it is needed. One thread."""

    def __init__(self, bootstrap: str, config: Mapping[str, Any], timeout: float) -> None:
        self._bootstrap = bootstrap
        self._config = config
        self._timeout = timeout
        self._open: dict[Address, BrokerConnection] = {}
        self._known = [address_of(server) for server in bootstrap.split(",")]

    def learn(self, addresses: Sequence[Address]) -> None:
        """Brokers that `send_any` may ask, too: those of `bootstrap` may all have been replaced."""
        self._known += [address for address in addresses if address not in self._known]

    def send(self, address: Address, request: Any) -> Any:
        """The response of one broker. Raises what `errors.of_kafka_python` makes of anything that goes wrong."""
        return self._of(address, lambda connection: connection.send(request))

    def level(self, address: Address, name: str) -> int:
        """What the cluster has agreed on, as the broker knows it; 0 where that is nothing. Raises as `send` does."""
        return self._of(address, lambda connection: connection.levels.get(name, 0))

    def _of(self, address: Address, ask: Callable[[BrokerConnection], T]) -> T:
        try:
            return ask(self._connected(address))
        except TimeoutError as error:
            self._drop(address)
            raise UnavailableError(f"Kafka broker {address}: no answer in {self._timeout:g} s") from error
        except Exception as error:
            self._drop(address)
            raise errors.of_kafka_python(error, f"Kafka broker {address}") from error

    def send_any(self, request: Any) -> Any:
        """The response of any broker, those first that are connected already."""
        reasons = []
        for address in [*self._open, *(each for each in self._known if each not in self._open)]:
            try:
                return self.send(address, request)
            except UnavailableError as error:
                reasons.append(error.failure.message)
        raise UnavailableError(
            f"no broker of {self._bootstrap} answers: {'; '.join(reasons)}",
            remedy="Look whether the brokers run and bootstrap= and security.protocol fit them.",
        )

    def _connected(self, address: Address) -> BrokerConnection:
        if address not in self._open:
            self._open[address] = BrokerConnection(address, self._config, self._timeout)
        return self._open[address]

    def _drop(self, address: Address) -> None:
        connection = self._open.pop(address, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        for address in [*self._open]:
            self._drop(address)

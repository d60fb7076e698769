"""Opening a connection on a thread of its own, which ends with it: the only thing here that may wait.

Looking a name up, connecting, TLS and SASL all block, and all of it is `wire.BrokerConnection`'s work. The thread
touches nothing but the connection that it makes, and whoever asked for it takes the result when it is there.
"""

import threading
from collections.abc import Mapping
from typing import Any

from tidegate.connectors.kafka import errors
from tidegate.connectors.kafka.wire import Address, BrokerConnection
from tidegate.errors import TidegateError, UnavailableError


class Opening:
    """One attempt. `config` is that of `Connection.kafka_python_config`; `timeout` in seconds, for each step of it."""

    def __init__(self, address: Address, config: Mapping[str, Any], timeout: float) -> None:
        self._address = address
        self._config = config
        self._timeout = timeout
        self._lock = threading.Lock()
        self._result: BrokerConnection | TidegateError | None = None
        self._is_abandoned = False
        threading.Thread(target=self._open, name=f"tidegate-kafka-opens-{address}", daemon=True).start()

    @property
    def result(self) -> BrokerConnection | TidegateError | None:
        """None while it is not known."""
        return self._result

    def abandon(self) -> None:
        """Nobody wants it any more."""
        with self._lock:
            self._is_abandoned = True
            if isinstance(self._result, BrokerConnection):
                self._result.close()

    def _open(self) -> None:
        result: BrokerConnection | TidegateError
        try:
            result = BrokerConnection(self._address, self._config, self._timeout)
        except TimeoutError:
            result = UnavailableError(f"Kafka broker {self._address}: no answer in {self._timeout:g} s")
        except Exception as error:
            result = errors.of_kafka_python(error, f"Kafka broker {self._address}")
        with self._lock:
            self._result = result
            if self._is_abandoned and isinstance(result, BrokerConnection):
                result.close()

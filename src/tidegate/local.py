"""The embedded log's public names. `tidegate.connectors.local` is where they live and may move."""

from tidegate.connectors.local.log import LocalLog, LogRecord
from tidegate.connectors.local.sink import LocalSink
from tidegate.connectors.local.source import LocalSource
from tidegate.connectors.local.transactions import TransactionDescription, TransactionState

__all__ = ["LocalLog", "LocalSink", "LocalSource", "LogRecord", "TransactionDescription", "TransactionState"]

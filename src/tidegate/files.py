"""The file sources' public names. `tidegate.connectors.files` is where they live and may move."""

from tidegate.connectors.files import CsvSource, JsonLinesSource

__all__ = ["CsvSource", "JsonLinesSource"]

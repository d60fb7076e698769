"""Formats turn the bytes that connectors carry into the values of a stream, and back; they know nothing of
connectors."""

from tidegate.formats.json import Json
from tidegate.formats.plain import Bytes, String
from tidegate.formats.serializer import Serializer

__all__ = ["Bytes", "Json", "Serializer", "String"]

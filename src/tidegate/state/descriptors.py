"""Placeholder."""
from typing import Generic, TypeVar
T = TypeVar("T")
class StateDescriptor(Generic[T]): ...

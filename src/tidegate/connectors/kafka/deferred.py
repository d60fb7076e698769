"""Packages of which a part is used: their own beginning, which imports all their parts, waits until it is wanted.

A worker is started anew after each failure, and importing whole clients that nobody calls is a tenth of its start. Such
a package must be the same to everybody else: its beginning runs when a name is asked for that only it gives.
"""

import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

_LOCK = threading.RLock()
_RUNNING: list[str] = []
"""The packages whose beginnings run at the moment, by the holder of the lock."""


class _Deferred(ModuleType):
    def __getattr__(self, name: str) -> Any:
        with _LOCK:
            if type(self) is _Deferred and self.__name__ not in _RUNNING:
                self._begin()
        if name in self.__dict__:
            return self.__dict__[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)

    def _begin(self) -> None:
        assert self.__spec__ is not None
        assert self.__spec__.loader is not None
        _RUNNING.append(self.__name__)
        try:
            self.__spec__.loader.exec_module(self)
            object.__setattr__(self, "__class__", ModuleType)
        finally:
            _RUNNING.remove(self.__name__)


def defer(package: str) -> None:
    """From now on `package.part` can be imported without what else the package imports. Nothing happens where it has
    been imported already, or is not installed; of a package in a package, where the outer one is not deferred."""
    outer, _, name = package.rpartition(".")
    if package in sys.modules or (outer and type(sys.modules.get(outer)) is not _Deferred):
        return
    # To look for a package in another would import the other; its place is known.
    beginning = Path(sys.modules[outer].__path__[0]) / name / "__init__.py" if outer else None
    if beginning is None:
        spec = importlib.util.find_spec(package)
    else:
        spec = importlib.util.spec_from_file_location(
            package, beginning, submodule_search_locations=[str(beginning.parent)]
        )
    if spec is None or spec.loader is None or spec.submodule_search_locations is None:
        return
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _Deferred
    sys.modules[package] = module
    if outer:
        setattr(sys.modules[outer], name, module)

"""Reaching an operator's external system by what a manifest says of it, without the program that wrote it.

It only imports and calls what a `RecoverySpec` names; what is then asked of the system is its caller's business.
"""

import inspect
from typing import Any

from tidegate.checkpoint.protocol import RecoverySpec
from tidegate.errors import InvalidError
from tidegate.operators.contracts import SourceInspection, TransactionRecovery
from tidegate.state.keys import import_stored


def open_recovery(spec: RecoverySpec) -> TransactionRecovery:
    """A sink's transactions. Raises InvalidError when the factory is not there, and what it raises."""
    opened: TransactionRecovery = _open(spec)
    return opened


def open_inspection(spec: RecoverySpec) -> SourceInspection:
    """A source's system. Raises as `open_recovery`."""
    opened: SourceInspection = _open(spec)
    return opened


def _open(spec: RecoverySpec) -> Any:
    module, _, name = spec.factory.partition(":")
    # A module that is imported runs, and may raise anything; a script without a guard ends itself.
    try:
        make = getattr(import_stored(module), name)
    except (Exception, SystemExit) as error:
        raise InvalidError(
            f"the checkpoint names {spec.factory} to reach an external system, and it cannot be imported: {error}",
            remedy="Install what the program that wrote the checkpoint had.",
        ) from error
    try:
        inspect.signature(make).bind(**spec.arguments)
    except (TypeError, ValueError) as error:
        raise InvalidError(
            f"the checkpoint names {spec.factory} to reach an external system, and it does not take what the "
            f"checkpoint says of that: {error}",
            remedy="Install the version that the program that wrote the checkpoint had.",
        ) from error
    return make(**spec.arguments)

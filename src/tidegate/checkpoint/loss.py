"""What is said when a transaction of a completed checkpoint is lost, or nobody knows what became of it.

The worst that can happen to a job: records that count as put out are not there. So the text says everything that is
known, for whoever has to decide: which transaction of which checkpoint, why, which input its records came from, and
what may be done. Pure; it decides nothing.
"""

from collections.abc import Sequence

import msgspec

from tidegate.checkpoint.manifest import Manifest, OperatorRecord
from tidegate.checkpoint.protocol import Committable
from tidegate.errors import ErrorKind, Failure

SPLITS_SHOWN = 100
"""More are counted; `tidegate checkpoints show` lists them."""


def lost_transaction(kind: ErrorKind, committable: Committable, why: str) -> Failure:
    """The failure as far as a sink knows it; `explain_loss` adds what the log knows."""
    what = "is lost" if kind is ErrorKind.LOST else "has an unknown outcome"
    return Failure(
        kind,
        f"transaction {committable.id} of a completed checkpoint {what}: {why}",
        "Nothing was skipped. Start with --accept-lost-transactions to go on without its records, or with "
        "--from-checkpoint to go back (which emits again what came after it).",
        transaction=committable.id,
    )


def explain_loss(failure: Failure, manifests: Sequence[Manifest]) -> Failure:
    """`failure` with checkpoint, input and choices. `manifests`: the completed checkpoints that count, oldest first.

    Every failure may be given: one that is not about a transaction, or about one that no checkpoint names, stays as it
    is.
    """
    named = [i for i, manifest in enumerate(manifests) if failure.transaction in _pending(manifest)]
    if not failure.transaction or not named or named[-1] != len(manifests) - 1:
        return failure
    place = len(manifests) - 1
    committable = _pending(manifests[place])[failure.transaction]
    # The first that holds it: what was not confirmed at one barrier is listed again at the next.
    while place > 0 and _pending(manifests[place - 1]).get(failure.transaction) == committable:
        place -= 1
    checkpoint, before = manifests[place], manifests[place - 1] if place > 0 else None
    details = [_belongs(checkpoint, failure.kind), *_input(checkpoint, before)]
    return msgspec.structs.replace(
        failure,
        message="\n".join((failure.message, *details)),
        remedy=_choices(checkpoint, before),
        where=failure.where or f"checkpoint {checkpoint.checkpoint}",
    )


def _pending(manifest: Manifest) -> dict[str, Committable]:
    return {pending.committable.id: pending.committable for record in manifest.operators for pending in record.pending}


def _belongs(manifest: Manifest, kind: ErrorKind) -> str:
    visible = "but not in the output" if kind is ErrorKind.LOST else "and perhaps not in the output"
    number = len(_pending(manifest))
    return (
        f"It belongs to checkpoint {manifest.checkpoint}, which has {number} transaction{'s' if number != 1 else ''}; "
        f"its records are in the state, {visible}."
    )


def _input(checkpoint: Manifest, before: Manifest | None) -> list[str]:
    """For each split, the positions whose results the transaction may have held."""
    number = checkpoint.checkpoint
    if before is not None:
        head = f"They are results of input between checkpoint {before.checkpoint} and checkpoint {number}:"
    elif number == 1:
        head = "They are results of input before checkpoint 1, the first:"
    else:
        head = (
            f"They are results of input before checkpoint {number}; the checkpoint before it is not kept any "
            "more, so where that input begins is not known:"
        )
    lines = [
        line
        for record in checkpoint.operators
        for line in _positions(record, None if before is None else before.operator(record.name))
    ]
    hidden = len(lines) - SPLITS_SHOWN
    shown = lines[:SPLITS_SHOWN] + ([f"  and {hidden} splits more"] if hidden > 0 else [])
    return [head, *shown] if shown else []


def _positions(record: OperatorRecord, before: OperatorRecord | None) -> list[str]:
    then = {split.id: split.position for split in before.splits} if before is not None else {}
    return [
        f"  source {record.name}, split {split.id}: "
        + (f"from {then[split.id]} " if split.id in then else "")
        + f"up to {split.position}, not included"
        for split in record.splits
        if then.get(split.id) != split.position
    ]


def _choices(checkpoint: Manifest, before: Manifest | None) -> str:
    go_on = (
        "Nothing was skipped: decide. With --accept-lost-transactions the job goes on from its newest checkpoint, "
        "without these records for ever"
    )
    if before is None:
        return (
            f"{go_on}. It cannot go back before checkpoint {checkpoint.checkpoint}, because no earlier one is kept; "
            "with --fresh it begins anew, as far as its input is still there, and everything is put out again."
        )
    return (
        f"{go_on}. With --from-checkpoint {before.checkpoint} it goes back and makes them again, and what its other "
        f"transactions have committed since checkpoint {before.checkpoint} is put out a second time."
    )

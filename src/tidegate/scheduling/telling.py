"""What a JobManager says to the person who watches, in one place. Texts only; nothing is decided by them."""

from collections.abc import Sequence

from tidegate.checkpoint import recovery
from tidegate.checkpoint.loss import explain_loss
from tidegate.checkpoint.manifest import Manifest
from tidegate.errors import ErrorKind, Failure
from tidegate.ids import Attempt, WorkerIndex
from tidegate.scheduling.protocol import Tell


def completed(manifest: Manifest) -> Tell:
    text = f"checkpoint {manifest.checkpoint} completed in {manifest.duration * 1000:.0f} ms"
    return Tell("info", text, {"checkpoint": manifest.checkpoint, "state_bytes": manifest.state_bytes})


def imported(manifest: Manifest) -> Tell:
    text = f"the savepoint is checkpoint {manifest.checkpoint} of this job"
    return Tell("info", text, {"checkpoint": manifest.checkpoint, "state_bytes": manifest.state_bytes})


def restarting(number: int, delay: float, failure: Failure, attempt: Attempt) -> Tell:
    separator = "\n" if failure.traceback else " "
    text = f"restart {number} in {delay:.1f} s after a failure:{separator}{failure.render()}"
    return Tell("error", text, {"kind": failure.kind.value, "attempt": attempt})


def failed_while_stopping(failure: Failure) -> Tell:
    return Tell("warning", f"a failure while stopping; the next run commits what is due: {failure.message}")


def not_confirmed_in_time() -> Tell:
    return Tell("warning", "commits under way were not confirmed in time; the next run goes on")


def leftovers_remain(failure: Failure) -> Tell:
    return Tell("warning", f"leftover transactions could not be looked after: {failure.message}")


def recovered(done: recovery.Done, manifests: Sequence[Manifest]) -> list[Tell]:
    """Nothing, when nothing was to be done. Each transaction that was given up in full: it is the only trace of it."""
    lost = [explain_loss(failure, manifests).message for failure in done.given_up]
    told = [Tell("warning", f"given up by --accept-lost-transactions: {text}") for text in lost]
    if done.committed or done.aborted:
        text = f"recovery committed {done.committed} and aborted {done.aborted} transactions"
        told.append(Tell("info", text, {"committed": done.committed, "aborted": done.aborted}))
    return told


def worker_died(worker: WorkerIndex, how: str) -> Failure:
    return Failure(ErrorKind.UNAVAILABLE, f"worker {worker} died: {how}")

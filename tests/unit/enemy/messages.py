"""What goes between the processes of a job, and what is asked of it by other processes of its user."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.unit.checkpoint import records
from tests.unit.enemy.decoder import INTERNAL, NAMES, SMALL, TEXTS, Decoder
from tidegate.checkpoint.protocol import (
    Acknowledge,
    CheckpointCompleted,
    CommitsReported,
    Decline,
    OperatorSnapshot,
    SplitState,
    TriggerCheckpoint,
)
from tidegate.deploy.cluster import WorkerParameters, decode_parameters, encode_parameters
from tidegate.deploy.program import ProgramSpec
from tidegate.elements import Barrier, Batch, Element, EndOfInput, Watermark
from tidegate.errors import ErrorKind, Failure, UserCodeError
from tidegate.graph.logical import Fingerprint
from tidegate.graph.physical import ChannelId
from tidegate.ids import Attempt, CheckpointId, SubtaskIndex, TaskId, WorkerIndex
from tidegate.runtime import control
from tidegate.runtime.frames import (
    FrameKind,
    decode_credit,
    decode_element,
    decode_frame,
    encode_credit,
    encode_element,
    encode_frame,
)
from tidegate.runtime.link import Link

# ---- control messages and links --------------------------------------------------------------------------------------

TASK = TaskId("totals", 1)  # type: ignore[arg-type]
SNAPSHOT = OperatorSnapshot("totals", handles=(records.INLINE,), splits=(SplitState("a/0", 7),))  # type: ignore[arg-type]
DEPLOY = control.Deploy(
    records.JOB,
    Attempt(3),
    records.INSTANCE,
    2,
    128,
    (control.RestoredOperator("totals", False, (SNAPSHOT,)),),  # type: ignore[arg-type]
    ("ipc:///a", "ipc:///b"),
    control.RuntimeOptions(),
    "/checkpoints",
    CheckpointId(4),
)
TO_WORKER: tuple[Any, ...] = (
    DEPLOY,
    TriggerCheckpoint(CheckpointId(5)),
    CheckpointCompleted(Attempt(3), CheckpointId(5)),
    control.StopWorker(),
    control.AssignSplits("read", TASK, SNAPSHOT.splits, True),  # type: ignore[arg-type]
)
TO_JOB_MANAGER: tuple[Any, ...] = (
    Acknowledge(Attempt(3), CheckpointId(5), TASK, (SNAPSHOT,)),
    Decline(Attempt(3), CheckpointId(5), TASK, "the disk is full"),
    control.WorkerReady(WorkerIndex(1), Attempt(3), Fingerprint("ab", ("read",)), "ipc:///a"),
    control.TaskFailed(TASK, Failure(ErrorKind.USER_CODE, "it failed")),
    control.WorkerMetrics(
        (control.OperatorMetrics(TASK, "totals", 1, 2, 3, 4),),  # type: ignore[arg-type]
        (control.TaskTimes(TASK, 100, 200, 700, 1.5, 0.25, 3.0),),
    ),
    CommitsReported(Attempt(3), CheckpointId(5), TASK),
)


def _through_links(messages: list[bytes]) -> bytes:
    """The frames of a link, one behind another."""
    link = Link(Attempt(3))
    return msgspec.msgpack.encode([frame for message in messages for frame in link.send(message, 0.0)])


def _out_of_links(data: bytes) -> list[bytes]:
    link = Link(Attempt(3))
    delivered: list[bytes] = []
    for frame in _as_frames(data):
        messages, answers = link.receive(frame, 0.0)
        assert len(answers) <= 2
        delivered += messages
    return delivered


def _as_frames(data: bytes) -> list[bytes]:
    """What is no list of frames is one frame."""
    try:
        return msgspec.msgpack.decode(data, type=list[bytes])
    except (msgspec.MsgspecError, RecursionError):
        return [data]


# ---- data frames -----------------------------------------------------------------------------------------------------

CHANNEL = ChannelId(3, SubtaskIndex(1), SubtaskIndex(2))


def columns(element: Element) -> Any:
    """A batch does not compare by what it holds."""
    if isinstance(element, Batch):
        return (element.values, element.keys, element.timestamps, element.tag)
    return element


def _frame_of(found: Any) -> bytes:
    element = Batch(*found) if isinstance(found, tuple) else found
    kind, payload = encode_element(element)
    return encode_frame(kind, Attempt(3), CHANNEL, 17, payload)


def _element_of(data: bytes) -> Any:
    return columns(decode_element(decode_frame(data)))


def _seal_frame(data: bytes) -> bytes:
    """What `encode_frame` makes of the same header and payload."""
    try:
        frame = decode_frame(data)
    except Exception:
        # Beyond the header nothing is fixed: its kind is kept, if it has one.
        kind = FrameKind(data[1]) if len(data) > 34 and data[1] in range(1, 5) else FrameKind.BATCH
        return encode_frame(kind, Attempt(3), CHANNEL, 17, data[34:])
    return encode_frame(frame.kind, frame.attempt, frame.channel, frame.sequence, bytes(frame.payload))


PLAIN = st.lists(st.none() | TEXTS.filter(lambda text: text.isascii()) | st.binary(max_size=6), max_size=4)
BATCHES = PLAIN.flatmap(
    lambda values: st.tuples(
        st.just(values),
        st.none() | st.just(["k"] * len(values)),
        st.none() | st.just([1_700_000_000_000] * len(values)),
        st.none() | NAMES,
    )
)

# ---- worker parameters -----------------------------------------------------------------------------------------------


def parameters(target: str = "/flows/totals.py", arguments: tuple[str, ...] = ("--day", "\udcff")) -> WorkerParameters:
    return WorkerParameters(
        program=ProgramSpec(target, "job", arguments, ("/flows",), "/flows"),
        max_parallelism=128,
        attempt=Attempt(3),
        worker=WorkerIndex(1),
        control_address="ipc:///run/control",
        data_address="ipc:///run/data-3-1",
        life_fd=7,
        parent=4711,
    )


MESSAGES = (
    Decoder("to worker", st.sampled_from(TO_WORKER), TO_WORKER, control.encode, control.decode_to_worker, INTERNAL),
    Decoder(
        "to job manager",
        st.sampled_from(TO_JOB_MANAGER),
        TO_JOB_MANAGER,
        control.encode,
        control.decode_to_job_manager,
        INTERNAL,
    ),
    Decoder(
        "link frame",
        st.lists(st.binary(max_size=9), max_size=3),
        ([b"first", b"second"],),
        _through_links,
        _out_of_links,
        INTERNAL,
        hostile=(
            b"\x96\x01\x03\x01\x00\xc4\x00" + b"\x91" * 100_000,  # deep behind the fields that are known
            b"\x95\x01\x03\xd3" + b"\xff" * 8 + b"\x00\xc4\x00",
            b"\x95\x01\x03\x00\xcf" + b"\xff" * 8 + b"\xc4\x00",
        ),
    ),
    Decoder(
        "data frame",
        st.one_of(
            BATCHES,
            st.builds(EndOfInput, st.booleans()),
            st.builds(Barrier, SMALL),
            st.builds(Watermark, st.integers(-(2**63), 2**63 - 1), st.booleans()),
        ),
        (
            (["a", b"b", None], ["x", "y", "z"], [1, 2, 3], None),
            Barrier(CheckpointId(9)),
            EndOfInput(),
            Watermark(-5, True),
        ),
        _frame_of,
        _element_of,
        (*INTERNAL, UserCodeError),
        _seal_frame,
        damage_shows=True,
    ),
    Decoder(
        "credit frame",
        SMALL,
        (4096,),
        lambda amount: encode_frame(FrameKind.CREDIT, Attempt(3), CHANNEL, 1, encode_credit(amount)),
        lambda data: decode_credit(decode_frame(data)),
        INTERNAL,
        _seal_frame,
        damage_shows=True,
    ),
    Decoder(
        "worker parameters",
        st.builds(parameters, NAMES, st.lists(TEXTS, max_size=2).map(tuple)),
        (parameters(),),
        lambda given: encode_parameters(given).encode(),
        lambda data: decode_parameters(data.decode("utf-8", "surrogateescape")),
        INTERNAL,
    ),
)

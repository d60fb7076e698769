"""A job as the program sees it: a name, sources, and the graph that grows from them. Nothing runs here."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from tidegate.api.builder import GraphBuilder
from tidegate.api.stream import OnErrorArgument, Stream
from tidegate.api.validation import check_instance, check_name, check_parallelism, check_watermarks, error_policy
from tidegate.config import Config
from tidegate.errors import InternalError
from tidegate.event_time.strategies import WatermarkStrategy
from tidegate.graph.logical import LogicalGraph, LogicalNode
from tidegate.ids import JobName
from tidegate.metrics import JobResult
from tidegate.operators.contracts import Deserializer, Source
from tidegate.state.key_groups import DEFAULT_MAX_PARALLELISM

Record = TypeVar("Record", covariant=True)


class TypedDeserializer(Deserializer, Protocol[Record]):
    """A deserialiser whose type says what it makes."""

    def decode_one(self, raw: Any) -> Record: ...


class TypedSource(Source, Protocol[Record]):
    """A source whose type says what its records are, through the type of its `deserializer`. Every `Source` is one;
    type checkers take the records of one that says no more as Any."""

    @property
    def deserializer(self) -> TypedDeserializer[Record] | None: ...


class Job:
    """A graph of named operators from sources to sinks.

    Making the same calls in the same order always gives the same graph: every process of the job runs the program and
    compares. Mistakes raise InvalidError at the call that makes them, or from `graph`.
    """

    def __init__(self, name: str, *, config: Config | None = None) -> None:
        """`name` is what checkpoints and transactions are found again by; `[A-Za-z0-9_-]{1,64}`. `config` is what the
        program sets; variables and the command line are stronger."""
        self._builder = GraphBuilder(JobName(check_name("a job", name)))
        self.config = config

    @property
    def name(self) -> JobName:
        return self._builder.job

    def source(
        self,
        source: TypedSource[Record],
        *,
        name: str,
        parallelism: int | None = None,
        on_error: OnErrorArgument = "fail",
        watermarks: WatermarkStrategy[Record] | None = None,
    ) -> Stream[Record]:
        """The records that `source` reads. `on_error` says what happens to one that cannot be decoded: a side output
        gets it undecoded. `watermarks` says where their timestamps come from and how event time goes on; without it the
        stream has none until its end."""
        operator = self._builder.name("source", name)
        check_instance(operator, "a source", source, ("discover", "open_reader"))
        if watermarks is not None:
            check_watermarks(operator, watermarks)
        policy, tag = error_policy(operator, on_error)
        self._builder.add(
            LogicalNode(
                operator,
                "source",
                parallelism=check_parallelism(operator, parallelism),
                source=source,
                side_outputs=(tag,) if tag is not None else (),
                on_error=policy,
                error_tag=tag,
                watermarks=watermarks,
            )
        )
        return Stream(self._builder, operator)

    def graph(self, max_parallelism: int = DEFAULT_MAX_PARALLELISM) -> LogicalGraph:
        """The validated graph, as data. Raises InvalidError, naming the operator, when it cannot run."""
        return self._builder.build(max_parallelism)

    def run(self, *, in_process: bool = False) -> JobResult:
        """Run the job until it is finished or stopped by Ctrl-C; the last line of a program, under
        `if __name__ == "__main__":`.

        In a program that can be imported (`python app.py`) workers are processes that import it, unless `in_process`.
        An error is shown, and ends the process with its exit code. In a notebook everything runs in this process, and
        the TidegateError is raised.
        """
        if _runner is None:
            raise InternalError("a job was run without the package 'tidegate' being imported")
        return _runner(self, in_process)

    def __repr__(self) -> str:
        return f"Job({self.name!r})"


_runner: Callable[[Job, bool], JobResult] | None = None


def run_jobs_with(runner: Callable[[Job, bool], JobResult]) -> None:
    """What `Job.run` does: where jobs run is above this layer."""
    global _runner
    _runner = runner

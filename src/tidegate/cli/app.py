"""The commands and their options: from words to calls.

Everything that is done is done elsewhere, and imported when it is needed.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from tidegate.cli import checkpoints, dev_kafka, running, state, transactions
from tidegate.cli.text import render_table
from tidegate.cli.version import describe_version
from tidegate.config import ConfigLayers, ResolvedConfig, StartOptions
from tidegate.errors import InvalidError
from tidegate.ids import is_name

WITHOUT_VALUE = {"--fresh": "1", "--profile": ""}
"""What options stand for that are given without a value."""
_ARGUMENTS = "tidegate.arguments"

app = typer.Typer(
    name="tidegate",
    help="Stateful stream processing with end-to-end exactly-once results.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(checkpoints.commands, name="checkpoints")
app.add_typer(transactions.commands, name="transactions")
app.add_typer(state.commands, name="state")
app.command("dev-kafka")(dev_kafka.dev_kafka)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(describe_version())
        raise typer.Exit


@app.callback()
def _tidegate(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


# ---- run -----------------------------------------------------------------------------------------------------------


def split_arguments(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The command's own words, and the program's, behind the first `--`. An option whose value may be left out, such as
    `--fresh`, becomes `--fresh=1` when it stands alone."""
    end = words.index("--") if "--" in words else len(words)
    own = [f"{word}={WITHOUT_VALUE[word]}" if word in WITHOUT_VALUE else word for word in words[:end]]
    return own, list(words[end + 1 :])


class _RunCommand(TyperCommand):
    """`run`, with what stands behind `--` kept for the program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own, ctx.meta[_ARGUMENTS] = split_arguments(args)
        return super().parse_args(ctx, own)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGS...]"]


@app.command(cls=_RunCommand)
def run(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="FILE|MODULE[:NAME]", help="The program; NAME is `job` or `build`.")
    ] = "",
    parallelism: Annotated[
        str | None, typer.Option("--parallelism", "-p", metavar="N", help="Workers, one process each.")
    ] = None,
    checkpoint_interval: Annotated[str | None, typer.Option(metavar="DURATION", help="500ms, 10s, 5m ...")] = None,
    checkpoint_timeout: Annotated[str | None, typer.Option(metavar="DURATION")] = None,
    checkpoint_dir: Annotated[str | None, typer.Option(metavar="DIR", help="Where checkpoints and logs are.")] = None,
    state_backend: Annotated[str | None, typer.Option(metavar="memory|fs|rocksdb")] = None,
    restart: Annotated[
        str | None,
        typer.Option(
            metavar="STRATEGY",
            help="none, fixed-delay:N:DELAY, failure-rate:N:PER:DELAY, exponential-delay, "
            "exponential-delay:INITIAL:MAX[:RESET].",
        ),
    ] = None,
    log_format: Annotated[str | None, typer.Option(metavar="text|json")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting; may be repeated.")
    ] = None,
    fresh: Annotated[
        str | None,
        typer.Option(metavar="[LABEL]", help="Begin without any state, once for each new LABEL; --fresh=LABEL."),
    ] = None,
    from_checkpoint: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Go back to checkpoint N, once; what came later is redone.")
    ] = None,
    accept_lost_transactions: Annotated[
        bool, typer.Option("--accept-lost-transactions", help="Go on although committed results are lost.")
    ] = False,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="Everything in one process and thread, for debuggers.")
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="[FILE|FOLDER]",
            help="See which operators and functions take the time; writes JOB.speedscope.json; --profile=FILE.",
        ),
    ] = None,
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print each setting and where it came from; run nothing.")
    ] = False,
    from_savepoint: Annotated[
        str | None, typer.Option(metavar="PATH", help="Begin from this savepoint, once for each new PATH.")
    ] = None,
    claim: Annotated[
        bool, typer.Option("--claim", help="The savepoint is the job's from now on, and removed once it is not needed.")
    ] = False,
    allow_non_restored_state: Annotated[
        bool, typer.Option("--allow-non-restored-state", help="Drop state that the program has no operator for.")
    ] = False,
) -> None:
    """Run a job. Started again by the same command, it goes on from its last checkpoint."""
    beginnings = {"--fresh": fresh, "--from-checkpoint": from_checkpoint, "--from-savepoint": from_savepoint}
    if len(given := [option for option, value in beginnings.items() if value is not None]) > 1:
        raise InvalidError(f"{' and '.join(given)} contradict each other", remedy="Give one of them.")
    if claim and from_savepoint is None:
        raise InvalidError("--claim says nothing without --from-savepoint", remedy="Give the savepoint, too.")
    options = StartOptions(
        _label(fresh),
        from_checkpoint,
        running.absolute_place(from_savepoint),
        claim,
        allow_non_restored_state,
        accept_lost_transactions,
        in_process,
        profile,
    )
    own = {
        "parallelism": ("--parallelism", parallelism),
        "checkpoints.interval": ("--checkpoint-interval", checkpoint_interval),
        "checkpoints.timeout": ("--checkpoint-timeout", checkpoint_timeout),
        "checkpoints.dir": ("--checkpoint-dir", checkpoint_dir),
        "state.backend": ("--state-backend", state_backend),
        "restart": ("--restart", restart),
        "log.format": ("--log-format", log_format),
    }
    set_here = [(name, value, option) for name, (option, value) in own.items() if value is not None]
    layers = ConfigLayers.of_this_process([*set_here, *map(_assignment, settings or ())])
    _run(target, context.meta[_ARGUMENTS], layers, options, show_config=show_config)


def _run(
    target: str, arguments: Sequence[str], layers: ConfigLayers, options: StartOptions, *, show_config: bool
) -> None:
    from tidegate.deploy.program import load, spec_of_target

    if not target:
        if not show_config:
            raise InvalidError(
                "no program is given", remedy="Write tidegate run FILE, or MODULE, with :NAME if need be."
            )
        print(render_config(layers.resolve()))
        return
    spec = spec_of_target(target, arguments, Path.cwd(), sys.path)
    if show_config:
        print(render_config(layers.with_program(load(spec).config).resolve()))
        return
    from tidegate.cli.status import open_reporter
    from tidegate.clock import SystemClock
    from tidegate.deploy.launch import launch

    launch(spec, layers, options, lambda log_format: open_reporter(log_format, sys.stderr, SystemClock()))


def render_config(config: ResolvedConfig) -> str:
    """Each setting, its value, and where that came from."""
    return render_table(("setting", "value", "from"), [(row.name, row.value, row.place) for row in config.explain()])


def _label(fresh: str | None) -> str | None:
    if fresh is not None and not is_name(fresh):
        raise InvalidError(f"--fresh={fresh} is not a label", remedy="Use 1 to 64 letters, digits, '_' and '-'.")
    return fresh


def _assignment(text: str) -> tuple[str, str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise InvalidError(f"--set {text} has no '='", remedy="Write --set KEY=VALUE, as in --set batch.size=4096.")
    return name.strip(), value.strip(), f"--set {name.strip()}"


# ---- demo ----------------------------------------------------------------------------------------------------------


@app.command()
def demo(
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep topics, checkpoints and logs there to look at.")
    ] = None,
) -> None:
    """Run a job on the embedded log, kill its processes, and check that nothing was lost or doubled."""
    from tidegate.deploy.demo import run_demo

    run_demo(keep)


# ---- running jobs --------------------------------------------------------------------------------------------------


class _StopCommand(TyperCommand):
    """`stop`, whose `--savepoint` may stand without a path."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, running.with_default_place(args))


app.command("status")(running.status)
app.command("savepoint")(running.savepoint)
app.command("stop", cls=_StopCommand)(running.stop)

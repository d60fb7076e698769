"""What a chaos run says in the end: the figures, and where to look when something was wrong."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tests.chaos.schedule import Plan


@dataclass
class Report:
    """Of one run; `violation` is empty when everything was right."""

    seed: int
    nodes: int
    seconds: float = 0.0
    """Of chaos, without what follows it."""
    kills: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    starts: int = 0
    attempts: int = 0
    checkpoints: int = 0
    records: int = 0
    lost: int | None = None
    """None: not known, since the run did not come to its end."""
    doubled: int | None = None
    longest_gap: float = 0.0
    """Seconds without output, during the chaos or after it."""
    longest_gap_at: float = 0.0
    recovered_after: float | None = None
    """Seconds from the end of all faults to the next output."""
    caught_up_after: float | None = None
    """The same to output of what was written after that end."""
    exit_codes: dict[str, int] = field(default_factory=dict)
    disk: str = ""
    violation: str = ""
    folder: str = ""

    @property
    def kill_count(self) -> int:
        return sum(self.kills.values())

    def lines(self) -> list[str]:
        return [
            f"SEED={self.seed} NODES={self.nodes}: {self.seconds:.0f} s of chaos",
            f"kills       {self.kill_count}: {_counts(self.kills)}",
            f"faults      {_counts(self.faults)}",
            f"starts      {self.starts}, ended with {_counts(self.exit_codes)}",
            f"attempts    {self.attempts}, checkpoints {self.checkpoints}",
            f"records     {self.records}, lost {_known(self.lost)}, doubled {_known(self.doubled)}",
            f"longest gap {self.longest_gap:.1f} s in the output, from second {self.longest_gap_at:.0f} on",
            f"healing     output in {_known(self.recovered_after)} s, up to date in {_known(self.caught_up_after)} s",
        ]

    def write(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")


def plan_line(plan: Plan) -> str:
    """What the seed has drawn for the whole run."""
    weights = ", ".join(f"{kind.value} {weight}" for kind, weight in plan.weights.items())
    job = f"-p {plan.parallelism}, {plan.backend}, channels of {plan.channel}"
    checkpoints = f"a checkpoint every {plan.interval} ms within {plan.timeout} s"
    starts = f"fail points {plan.fail_point_chance:g}, slow disk {plan.slow_chance:g}"
    return f"{plan.users} users, {job}, {checkpoints}, {starts}; {weights}"


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items())) or "none"


def _known(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"

"""The text of `docs/job-life.md`, made from the table of moves. Run as a module it writes the document."""

from pathlib import Path

from tidegate.scheduling.job import MOVES, Phase

DOCUMENT = Path(__file__).parents[3] / "docs" / "job-life.md"
INTRODUCTION = (
    "A JobManager process takes a job through these phases. Each phase is named by what the process waits for, and "
    "what happens in a phase that has no arrow for it changes nothing. A failure that a restart may mend leads through "
    "*ending a failed attempt* to a new attempt; a stop, a failure that a restart cannot mend, and being fenced by "
    "another JobManager lead through *ending workers* to the end of the process. The diagram is made from the table in "
    "`tidegate.scheduling.job`."
)


def document() -> str:
    lines = ["# The life of a job", "", INTRODUCTION, "", "```mermaid", "stateDiagram-v2"]
    lines += [f"    {phase.name} : {phase.value}" for phase in Phase]
    lines += [f"    [*] --> {Phase.READING_LOG.name}"]
    order = {phase: index for index, phase in enumerate(Phase)}
    for source, targets in MOVES.items():
        lines += [f"    {source.name} --> {target.name}" for target in sorted(targets, key=order.__getitem__)]
    lines += [f"    {Phase.DONE.name} --> [*]", "```", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")

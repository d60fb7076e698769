"""`python -m tests.sim.mutations`: how many seeds each error needs until it is found, as the table of
`docs/simulation.md`. Names may be given, for some of them only.
"""

import sys
from collections.abc import Iterator

from tests.sim.mutations import MOST_SEEDS, MUTATIONS, SCRIPTED, Apply, Mutation, kafka

HEAD = ("| the protocol … | on | seeds needed | what was seen first |", "| --- | --- | ---: | --- |")
LONGEST = 110


def row(mutation: Mutation) -> str:
    """Of the table."""
    found = mutation.found_by(range(MOST_SEEDS))
    needed, seen = ("none found it", "") if found is None else (str(found.seed + 1), found.violation or "")
    return f"| {spoken(mutation.apply)} | {mutation.medium} | {needed} | {shortened(seen)} |"


def spoken(apply: Apply) -> str:
    return apply.__name__.replace("_", " ")


def shortened(seen: str) -> str:
    """What a violation says, in a cell."""
    text = " ".join(seen.split()).replace("|", "/")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def table(names: list[str]) -> Iterator[str]:
    yield from HEAD
    yield from (row(MUTATIONS[name]) for name in names or MUTATIONS)
    if not names:
        yield from (f"| {spoken(apply)} | {medium_of(apply)} | a script | |" for apply in SCRIPTED)


def medium_of(apply: Apply) -> str:
    """On which a script shows it."""
    return "kafka" if apply.__module__ == kafka.__name__ else "log"


if __name__ == "__main__":
    for line in table(sys.argv[1:]):
        print(line, flush=True)

"""The simulated world finds every deliberate error of `mutations`, and finds nothing in the protocol as it is.

Each time a few seeds are tried, from one on that found the error; the slow test begins at the first.
"""

from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest

from tests.sim.mutations import MOST_SEEDS, MUTATIONS, SCRIPTED
from tests.sim.mutations.__main__ import HEAD, spoken
from tidegate.testing.sim.__main__ import main
from tidegate.testing.sim.world import run_seed

TRIED = 12
"""Seeds from one on that found the error: what else a seed draws may change with the world."""
TABLE = Path(__file__).parents[2] / "docs" / "simulation.md"


@cache
def violation_of(seed: int, medium: str) -> str | None:
    """Of the protocol as it is."""
    return run_seed(seed, medium=medium).violation


@pytest.mark.parametrize("name", MUTATIONS)
def test_an_error_of_the_protocol_is_found(name: str) -> None:
    mutation = MUTATIONS[name]
    found = mutation.found_by(range(mutation.first, mutation.first + TRIED))
    assert found is not None, f"no seed from {mutation.first} on shows that the protocol {spoken(mutation.apply)}"
    assert violation_of(found.seed, mutation.medium) is None, "the protocol as it is"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTATIONS)
def test_an_error_of_the_protocol_is_found_by_one_of_the_first_seeds(name: str) -> None:
    assert MUTATIONS[name].found_by(range(MOST_SEEDS)) is not None


def test_the_table_of_errors_has_each_of_them() -> None:
    lines = TABLE.read_text().splitlines()
    start = lines.index(HEAD[1]) + 1
    rows = [line.split("|")[1].strip() for line in takewhile(lambda line: line.startswith("|"), lines[start:])]
    assert rows == [spoken(apply) for apply in (*(m.apply for m in MUTATIONS.values()), *SCRIPTED)]


def test_a_violation_is_printed_with_the_command_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    mutation = MUTATIONS["log-runs_without_taking_over"]
    with pytest.MonkeyPatch.context() as patch:
        mutation.apply(patch)
        assert main(["--seeds", "1"]) == 1
    out = capsys.readouterr().out
    assert "VIOLATED: " in out
    assert "replay: tidegate-sim --seed 0 --medium " in out

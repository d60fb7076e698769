"""The simulated world finds every deliberate error of `mutations`, and finds nothing in the protocol as it is."""

import pytest

from tests.sim.mutations import MUTATIONS, Mutation
from tidegate.testing.sim.__main__ import main
from tidegate.testing.sim.world import Result, run_seed


def first_found(mutation: Mutation) -> Result | None:
    with pytest.MonkeyPatch.context() as patch:
        mutation.apply(patch)
        found = (result for result in map(run_seed, mutation.seeds) if result.violation is not None)
        return next(found, None)


@pytest.mark.parametrize("name", MUTATIONS)
def test_an_error_of_the_protocol_is_found(name: str) -> None:
    found = first_found(MUTATIONS[name])
    assert found is not None, f"no seed of {MUTATIONS[name].seeds} shows that the protocol {name}"
    assert run_seed(found.seed).violation is None, "the protocol as it is"


def test_a_violation_is_printed_with_the_command_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    mutation = MUTATIONS["commits_when_prepared"]
    with pytest.MonkeyPatch.context() as patch:
        mutation.apply(patch)
        assert main(["--seeds", "1"]) == 1
    out = capsys.readouterr().out
    assert "VIOLATED: " in out
    assert "replay: python -m tidegate.testing.sim --seed 0 --trace" in out

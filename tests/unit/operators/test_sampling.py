"""A sample is the same records everywhere and always, about as many as asked for, and independent of routing."""

import os
import subprocess
import sys

import pytest

import tidegate as tg
from tests.unit.operators.bench import rows, run
from tests.unit.runtime.harness import HandSource
from tidegate.elements import Batch
from tidegate.errors import InvalidError
from tidegate.ids import OperatorName
from tidegate.operators.contracts import Operator
from tidegate.operators.sampling import Sampler
from tidegate.state.key_groups import key_group

USERS = [f"user-{number}" for number in range(20_000)]


def itself(record: str) -> str:
    return record


def sample_of(fraction: float, seed: int = 0) -> set[str]:
    return set(filter(Sampler(fraction, itself, seed), USERS))


def operator(**arguments: object) -> Operator:
    job = tg.Job("shop")
    job.source(HandSource(), name="src").sample(0.5, name="some", **{"by": itself, **arguments})  # type: ignore[arg-type]
    factory = job._builder.node(OperatorName("some")).factory
    assert factory is not None
    return factory()


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5, 0.9])
def test_it_is_about_as_large_as_asked_for(fraction: float) -> None:
    assert abs(len(sample_of(fraction)) / len(USERS) - fraction) < 0.01


def test_nothing_and_everything_can_be_asked_for() -> None:
    assert sample_of(0) == set()
    assert sample_of(1) == set(USERS)


def test_a_larger_fraction_takes_what_a_smaller_one_takes_and_more() -> None:
    assert sample_of(0.1) < sample_of(0.2)


def test_another_seed_is_an_independent_sample() -> None:
    both = sample_of(0.5) & sample_of(0.5, seed=1)
    assert abs(len(both) / len(USERS) - 0.25) < 0.01


def test_every_key_group_has_its_part_in_a_sample() -> None:
    taken = sample_of(0.5)
    for group in range(4):
        members = [user for user in USERS if key_group(user, 4) == group]
        assert abs(len(taken.intersection(members)) / len(members) - 0.5) < 0.03


def test_the_members_of_a_sample_are_fixed_for_ever() -> None:
    assert sorted(sample_of(0.0003)) == ["user-13413", "user-15613", "user-19910", "user-5032", "user-6877"]


def test_it_is_the_same_in_another_process_with_another_seed_of_its_hashes() -> None:
    program = (
        "from tidegate.operators.sampling import Sampler;"
        "print(*filter(Sampler(0.01, lambda user: user, 0), (f'user-{n}' for n in range(5000))))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert answers == {" ".join(user for user in USERS[:5000] if Sampler(0.01, itself, 0)(user)) + "\n"}


def test_records_keep_their_timestamps_and_their_order() -> None:
    taken = [user for user in USERS[:20] if Sampler(0.5, itself, 0)(user)]
    (batch,) = run(operator(), Batch(USERS[:20], None, list(range(20))))
    assert rows([batch]) == [(None, taken)]
    assert batch.timestamps == [USERS.index(user) for user in taken]


def test_what_could_be_no_key_is_refused_with_what_to_use() -> None:
    with pytest.raises(InvalidError, match=r"(?s)float cannot be a key.*Decimal"):
        run(operator(by=lambda user: 0.5), Batch(["ada"]))


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan"), True, "0.5", None])
def test_a_fraction_lies_between_none_and_all(fraction: object) -> None:
    job = tg.Job("shop")
    with pytest.raises(InvalidError, match="operator some samples"):
        job.source(HandSource(), name="src").sample(fraction, by=itself, name="some")  # type: ignore[arg-type]


def test_a_seed_is_a_whole_number() -> None:
    with pytest.raises(InvalidError, match="seed 'x'"):
        operator(seed="x")

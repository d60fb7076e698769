"""What a chaos run does is a function of its seed, and over many seeds every kind of fault comes, kills most often."""

import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from tests.chaos.schedule import KILLS, OF_A_START, Kind, Plan, StartDraw, Strike, plan_of, start_draw, strikes
from tidegate.deploy.fail_points import parse

EVERYTHING = tuple(Kind)
SEEDS = range(25)
STRIKES = 200
"""About as many as ten minutes have."""


def drawn(seed: int, kinds: tuple[Kind, ...] = EVERYTHING) -> tuple[Plan, list[Strike], list[StartDraw]]:
    plan = plan_of(seed, 1, kinds)
    return plan, list(islice(strikes(plan), STRIKES)), [start_draw(plan, number) for number in range(1, 50)]


def test_the_same_seed_draws_the_same_again() -> None:
    assert drawn(7) == drawn(7)


def test_another_process_draws_the_same() -> None:
    program = (
        "from tests.chaos.test_schedule import drawn\nimport hashlib\n"
        "print(hashlib.sha256(repr(drawn(7)).encode()).hexdigest())"
    )
    root = Path(__file__).parents[2]
    said = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=root,
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert said[0] == said[1]


def test_other_seeds_draw_something_else() -> None:
    assert len({repr(drawn(seed)) for seed in SEEDS}) == len(SEEDS)


def test_a_start_is_drawn_without_regard_to_those_before_it() -> None:
    plan, _, starts = drawn(7)
    assert start_draw(plan, 30) == starts[29]


def test_over_the_seeds_every_kind_strikes_and_every_kind_is_sometimes_off() -> None:
    found = [{strike.kind for strike in drawn(seed)[1]} for seed in SEEDS]
    for kind in set(Kind) - set(OF_A_START):
        assert any(kind in kinds for kinds in found), f"{kind} never strikes"
        assert any(kind not in kinds for kinds in found), f"{kind} is never off"
    points = [point for seed in SEEDS for start in drawn(seed)[2] for point in start.fail_points]
    assert {"kill", "stop"} <= {point.partition("=")[2] for point in points}
    assert any(":*=delay-" in point for point in points)


def test_in_every_run_kills_are_about_half_of_all_strikes() -> None:
    for seed in SEEDS:
        kills = sum(strike.kind in KILLS for strike in drawn(seed)[1])
        assert kills >= STRIKES * 0.4, f"seed {seed} kills {kills} times in {STRIKES}"


def test_only_the_kinds_that_are_asked_for_come() -> None:
    for seed in SEEDS:
        _, struck, starts = drawn(seed, (Kind.KILL_WORKER, Kind.CALM))
        assert {strike.kind for strike in struck} <= {Kind.KILL_WORKER, Kind.CALM}
        assert Kind.KILL_WORKER in {strike.kind for strike in struck}
        assert all(start.fail_points == () for start in starts)


def test_without_any_kind_nothing_strikes() -> None:
    assert drawn(1, ())[1] == []


def test_some_strikes_wait_for_output_and_some_do_not() -> None:
    assert {strike.waits_for_output for strike in drawn(7)[1]} == {True, False}


def test_a_strike_picks_one_of_those_who_are_there() -> None:
    picked = {strike.pick([10, 11, 12]) for strike in drawn(7)[1]}
    assert picked == {10, 11, 12}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_fail_point_that_is_drawn_is_one(seed: int) -> None:
    for start in drawn(seed)[2]:
        parse({"TIDEGATE_FAIL_POINT": ",".join(start.fail_points)})

"""The check of growth fails for what grows, however slowly, and for nothing else."""

import os
import random
from pathlib import Path

import pytest

from tests.load.held import Course, files_under, held_by

pytestmark = pytest.mark.slow
CHECKPOINTS = range(0, 3600, 15)


def test_one_that_stays_for_each_hundred_checkpoints_is_told_with_both_figures() -> None:
    course = Course({"threads": 1})
    for number in CHECKPOINTS:
        course.take(number, {"worker-0 threads": 9 + number // 100, "worker-1 threads": 9})
    assert course.growths() == ["worker-0 threads: from 22 to 40"]


def test_a_kilobyte_for_each_checkpoint_is_told_in_spite_of_noise() -> None:
    course, chance = Course({"rss": 1024}), random.Random(1)
    for number in CHECKPOINTS:
        course.take(number, {"steady rss": 40_000 + chance.randrange(3000), "leaking rss": 40_000 + number})
    assert course.growths() == ["leaking rss: from 41342.5 to 43142.5"]


def test_warming_up_and_what_falls_is_no_growth() -> None:
    course = Course({})
    for number in CHECKPOINTS:
        course.take(number, {"warming files": min(number, 900), "falling files": 5000 - number})
    assert course.growths() == []


def test_what_is_not_allowed_to_grow_may_not_grow_by_one() -> None:
    course = Course({"rss": 1024})
    for number in CHECKPOINTS:
        course.take(number, {"transactional ids": 8 if number < 2700 else 9})
    assert course.growths() == ["transactional ids: from 8 to 9"]


def test_what_a_process_opens_is_seen(tmp_path: Path) -> None:
    before = held_by(os.getpid())
    with (tmp_path / "one").open("w"), (tmp_path / "two").open("w"):
        assert held_by(os.getpid()).files == before.files + 2
    assert held_by(os.getpid()).files == before.files
    assert files_under(tmp_path) == 2

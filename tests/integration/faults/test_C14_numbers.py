"""The numbers of attempts and checkpoints when what was counted so far is lost: none is used a second time for
something else (C14)."""

import shutil
from pathlib import Path

import pytest

from tests.integration.retaining import JOB, USERS, Totals, kept
from tests.integration.totals_program import Total
from tidegate.checkpoint.log import Completed, Created, Entry, view_log
from tidegate.errors import InvalidError, UnknownOutcomeError


@pytest.fixture
def job(tmp_path: Path) -> Totals:
    made = Totals(tmp_path, "fs", retained=2)
    made.feed(USERS)
    made.run_totals(2, 6)
    return made


def test_C14_of_a_log_that_has_lost_all_but_its_newest_checkpoint_the_numbers_go_on(job: Totals) -> None:
    entries = [entry for entry in job.store.read_log() if isinstance(entry, Entry)]
    newest = max(entry.position for entry in entries if isinstance(entry.body, Completed))
    for entry in entries:
        if entry.position < newest and not isinstance(entry.body, Created):
            (job.checkpoints / JOB / "log" / f"{entry.position:020d}.json").unlink()
    before = job.newest
    assert before is not None
    names = set(job.store.state_files())
    job.feed(USERS)
    job.run_totals(3, 2)
    after = [manifest for manifest in kept(job.store) if manifest.checkpoint > before.checkpoint]
    assert after != []
    assert min(manifest.attempt for manifest in after) > before.attempt
    assert {path.partition("/")[2].partition("/")[0] for path in set(job.store.state_files()) - names} == {
        str(after[-1].attempt)
    }
    job.assert_right()


def test_C14_where_the_whole_log_is_lost_no_file_of_it_is_replaced_and_a_person_decides(
    job: Totals, tmp_path: Path
) -> None:
    instance = view_log(job.store.read_log()).instance
    shutil.rmtree(job.checkpoints / JOB / "log")
    old, out = job.stored_files(), len(job.output(Total))
    with pytest.raises(InvalidError, match=r"belongs to an earlier log of this job(.|\n)*Move .* away"):
        job.run_totals(2, 3)
    now = job.stored_files()
    assert {path: now[path] for path in old} == old
    assert len(job.output(Total)) == out
    shutil.move(job.checkpoints / JOB, tmp_path / "away")
    # Nobody knows what was out. What the refused start had opened belongs to a log that is not here.
    with pytest.raises(UnknownOutcomeError, match="open transactions of another checkpoint log"):
        job.run_totals(2)
    assert len(job.output(Total)) == out
    job.run_totals(2, fresh="again")
    assert view_log(job.store.read_log()).instance != instance
    assert job.held() == job.answer().held
    assert len(job.output(Total)) == out + len(job.fed)

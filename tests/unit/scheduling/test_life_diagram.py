"""`docs/job-life.md` shows the table of moves as it is."""

from tests.unit.scheduling.life_diagram import DOCUMENT, document
from tidegate.scheduling.job import MOVES, Phase


def test_the_diagram_in_the_documents_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "run python -m tests.unit.scheduling.life_diagram"


def test_the_diagram_has_every_move_and_every_phase_once() -> None:
    lines = [line.strip() for line in document().splitlines()]
    for phase in Phase:
        assert lines.count(f"{phase.name} : {phase.value}") == 1
    arrows = [line for line in lines if "-->" in line and "[*]" not in line]
    assert len(arrows) == len(set(arrows)) == sum(len(targets) for targets in MOVES.values())


def test_every_phase_but_the_last_leads_to_the_end() -> None:
    leads = {Phase.DONE}
    for _ in Phase:
        leads |= {source for source, targets in MOVES.items() if targets & leads}
    assert leads == set(Phase)

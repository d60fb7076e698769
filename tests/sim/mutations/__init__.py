"""Deliberate errors of the protocol, applied to the real classes: what the simulated world is there to find.

Each is something that a reasonable person might write.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.sim.mutations import checkpoints, kafka, records, recoveries, sinks, times
from tidegate.testing.sim.world import Result, run_seed

Apply = Callable[[pytest.MonkeyPatch], None]
MOST_SEEDS = 400
"""Among so many one has to find each error, from the first on."""
BROKEN = ("AttributeError", "TypeError", "NameError", "KeyError")
"""What is wrong with the code of an error itself would be found, too, and would prove nothing."""


@dataclass(frozen=True)
class Mutation:
    """`first`: a seed that found it, from which `make test` begins. `medium`: on which it is an error."""

    apply: Apply
    first: int = 0
    medium: str = "log"

    @property
    def name(self) -> str:
        return f"{self.medium}-{self.apply.__name__}"

    def found_by(self, seeds: range) -> Result | None:
        """What the first of these seeds that shows it has seen."""
        with pytest.MonkeyPatch.context() as patch:
            self.apply(patch)
            results = (run_seed(seed, medium=self.medium) for seed in seeds)
            found = next((result for result in results if result.violation is not None), None)
        seen = "" if found is None else str(found.violation)
        assert not any(kind in seen for kind in BROKEN), f"the error is made in a way that cannot run: {seen}"
        return found


MUTATIONS: dict[str, Mutation] = {
    mutation.name: mutation
    for mutation in (
        Mutation(sinks.commits_when_prepared),
        Mutation(sinks.forgets_what_was_prepared_for_an_abandoned_checkpoint, 6),
        Mutation(sinks.lists_only_the_newest_pending_transaction, 6),
        Mutation(sinks.reuses_a_slot_as_soon_as_it_is_committed, 1),
        Mutation(sinks.writes_on_while_the_last_transaction_is_flushed, 23),
        Mutation(sinks.shares_transactional_ids_between_attempts),
        Mutation(sinks.lets_a_checkpoint_fail_alone_when_its_transaction_failed, 159),
        Mutation(sinks.asks_for_a_commit_only_once, 209),
        Mutation(sinks.reports_commits_before_they_are_answered),
        Mutation(sinks.forgets_what_waits_for_the_new_transaction, 1),
        Mutation(sinks.uses_the_slot_of_an_abandoned_checkpoint_again, 6),
        Mutation(recoveries.aborts_before_it_commits_at_recovery, 3),
        Mutation(recoveries.aborts_nothing_at_recovery, 1),
        Mutation(recoveries.commits_nothing_at_recovery, 3),
        Mutation(recoveries.tries_the_next_position_after_a_conflict),
        Mutation(recoveries.goes_back_to_an_older_checkpoint_silently, 50),
        Mutation(recoveries.counts_from_savepoint_twice, 105),
        Mutation(recoveries.takes_an_entry_that_is_there_for_its_own),
        Mutation(recoveries.appends_without_asking_whether_the_place_is_free),
        Mutation(recoveries.aborts_what_its_own_attempt_has_open, 13),
        Mutation(recoveries.asks_only_once_at_recovery, 1),
        Mutation(recoveries.goes_on_when_nobody_knows_what_became_of_a_commit, 345),
        Mutation(checkpoints.triggers_before_the_commits_are_reported),
        Mutation(checkpoints.takes_the_acknowledgements_of_any_checkpoint, 63),
        Mutation(checkpoints.exports_before_the_commits_are_reported, 19),
        Mutation(checkpoints.exports_what_it_has_deleted, 166),
        Mutation(checkpoints.takes_a_drained_operator_for_ended, 21),
        Mutation(checkpoints.commits_before_the_log_has_it, 2),
        Mutation(checkpoints.ends_the_job_before_its_last_commits),
        Mutation(checkpoints.counts_checkpoints_anew_in_each_attempt),
        Mutation(checkpoints.begins_before_the_splits_are_known),
        Mutation(checkpoints.takes_an_append_without_an_answer_for_failed, 47),
        Mutation(checkpoints.repeats_an_append_with_other_bytes, 6),
        Mutation(checkpoints.goes_on_when_an_append_is_refused),
        Mutation(checkpoints.runs_without_taking_over),
        Mutation(checkpoints.sends_a_control_message_only_once),
        Mutation(checkpoints.deletes_before_the_later_entry_is_won, 1),
        Mutation(checkpoints.deletes_files_before_the_entries_that_name_them, 1),
        Mutation(checkpoints.deletes_all_that_earlier_attempts_stored),
        Mutation(checkpoints.leaves_what_abandoned_checkpoints_stored, 1),
        Mutation(checkpoints.prunes_the_newest_takeover),
        Mutation(records.acknowledges_before_it_is_stored),
        Mutation(records.acknowledges_what_may_not_be_stored, 6),
        Mutation(records.does_not_align, 2),
        Mutation(records.captures_mutable_state_by_reference, 1),
        Mutation(records.loses_a_data_frame_and_does_not_notice),
        Mutation(records.lets_a_barrier_overtake_what_waits_for_company, 2),
        Mutation(records.bases_changes_on_an_abandoned_checkpoint, 63),
        Mutation(records.lets_a_trigger_overtake_an_assignment),
        Mutation(records.lets_a_barrier_overtake_the_rest_of_a_batch, 3),
        Mutation(records.forgets_a_value_that_was_changed_in_place, 1),
        Mutation(records.restores_too_few_key_groups, 7),
        Mutation(records.spreads_key_groups_in_another_way_than_state),
        Mutation(records.restores_only_its_own_lists),
        Mutation(records.loses_timers_at_a_restore, 2),
        Mutation(records.fires_timers_again_after_a_restore),
        Mutation(times.waits_for_the_fastest_split),
        Mutation(times.takes_a_reader_without_splits_yet_for_idle),
        Mutation(times.forgets_the_watermark_of_a_split_at_a_restore, 2),
        Mutation(times.lets_a_watermark_overtake_what_waits_for_company, 80),
        Mutation(times.fires_event_timers_before_their_time),
        Mutation(kafka.trusts_the_offsets_of_its_group, 47, medium="kafka"),
        Mutation(kafka.takes_a_refused_end_for_a_commit, medium="kafka"),
        Mutation(kafka.believes_the_coordinator_alone, medium="kafka"),
        Mutation(kafka.takes_an_epoch_that_its_commit_raised_for_somebody_elses, 3, medium="kafka"),
        Mutation(kafka.prepares_without_waiting_for_what_was_sent, medium="kafka"),
        Mutation(sinks.writes_on_while_the_last_transaction_is_flushed, 15, medium="kafka"),
        Mutation(sinks.reuses_a_slot_as_soon_as_it_is_committed, 3, medium="kafka"),
        Mutation(sinks.shares_transactional_ids_between_attempts, medium="kafka"),
        Mutation(sinks.lets_a_checkpoint_fail_alone_when_its_transaction_failed, 1, medium="kafka"),
        Mutation(recoveries.aborts_nothing_at_recovery, 1, medium="kafka"),
    )
}
"""Those that chance finds."""
SCRIPTED: tuple[Apply, ...] = (
    recoveries.wins_a_position_that_was_pruned,
    recoveries.says_lost_without_asking_the_log,
    recoveries.imports_without_logging,
    recoveries.keeps_to_itself_what_it_begins_from,
    kafka.aborts_by_ending_the_transaction,
)
"""Those that chance seldom finds. Each has a script: in `test_scenarios`, `test_savepoints`, `test_broker_worlds`."""

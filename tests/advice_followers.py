"""Which tests do what an error says, to the letter, for each place that says something.

A place is named as ``advice_places`` finds it; a test by its path below the repository
and its name.
"""

from __future__ import annotations

_ANOTHER = "tests/source/test_another_numbering.py::"
_ADVICE = "integration/operations/test_advice.py::"
_ANEW = "integration/source/test_source_anew.py::"
_CONNECT = "tests/spark/test_connect.py::"
_NO_RECORDS = (
    "integration/source/test_connect.py"
    "::test_a_batch_without_records_stops_there_and_a_classic_session_finishes_it"
)
_BESIDE = "tests/source/test_sinks_beside.py::"
_BATCHES = "tests/source/test_microbatches.py::"
_CLI = "tests/cli/test_offsets.py::"
_STORED = "tests/test_stored.py::"
_DAMAGED = "integration/source/test_damaged_records.py::"
_FAULTS = "integration/source/test_source_faults.py::"
_FORGOTTEN = (
    "tests/source/test_forgotten_store.py"
    "::test_a_store_that_forgot_is_told_and_both_are_put_back"
)
_LAKE = "integration/sinks/test_lakehouse.py::"
_MERGES = "integration/sinks/test_iceberg_statements.py::"
_MOVING = "tests/cli/test_moving.py::"
_NUMBERS = "integration/source/test_numbering.py::"
_RECORD_LOSSES = "tests/offsets/test_manager_losses.py::"
_REPLAYS = "integration/sinks/test_sink_replays.py::"
_SIMULATED = (
    "tests/properties/test_source.py"
    "::test_every_record_counts_once_or_a_documented_error_says_what_to_do"
)
_SECOND_WRITES = (
    _NUMBERS + "test_a_second_write_of_a_batch_is_refused_and_every_record_comes_once"
    "_as_it_says"
)
_SCHEMAS = "integration/source/test_schemas.py::"
_SEVERAL = "integration/source/test_several_sources.py::"
_SEVERAL_SIMULATED = (
    "tests/properties/test_several.py"
    "::test_records_of_both_sources_count_once_or_an_error_says_what_to_do"
)
_SEVERAL_SOURCES = "tests/source/test_several_sources.py::"
_PEOPLE = (
    "tests/properties/test_people.py"
    "::test_whatever_people_do_nothing_is_lost_or_doubled"
)
_MEMORIES = "integration/source/test_sink_memories.py::"
_FILES = _MEMORIES + "test_files_get_every_record_after_the_checkpoint_was_deleted"
_STORED_IDS = (
    _MEMORIES + "test_code_that_stores_batch_ids_is_not_committed_after_code_that_asks"
    "_for_txids"
)
_SINKS_SEEN = _MEMORIES + "test_attach_knows_console_and_file_sinks"
_TAKING_OVER = "tests/source/test_taking_over.py::"
_WITH_FILES = (
    "tests/properties/test_people.py"
    "::test_a_sink_that_remembers_batch_ids_gets_every_record"
)
_STARTS = "tests/planning/test_batch_starts.py::"
_TRANSACTIONS = "tests/source/test_transactional.py::"
_PUT_BACK = _ANEW + "test_a_store_that_was_put_back_is_refused_and_the_advice_is_safe"
_CHECKPOINT_PUT_BACK = (
    _ANEW + "test_a_checkpoint_that_was_put_back_is_refused_and_the_advice_is_safe"
)
_ONE_BEHIND = (
    _ANEW + "test_a_store_that_is_one_txid_behind_its_sinks_is_found_out_by_them"
)
_IMPOSSIBLE = _ADVICE + "test_a_batch_that_cannot_be_replayed_is_left_as_the_error_says"
_LOST_MARKERS = (
    _REPLAYS + "test_a_marker_topic_that_lost_the_sink_is_refused",
    _REPLAYS + "test_another_marker_topic_is_refused_until_the_former_one_is_given",
)

FOLLOWED: dict[str, tuple[str, ...]] = {
    "foreach::_ForEach._try": (
        "tests/spark/test_typed_source.py"
        "::test_a_sink_that_refuses_a_replay_names_both_schemas_and_the_way_out",
    ),
    "typed_batches::_error": (
        _SCHEMAS + "test_broken_records_are_dead_letters_with_their_bytes",
        "tests/schemas/test_framed.py"
        "::test_a_record_that_neither_schema_reads_is_named_with_both",
        "tests/schemas/test_framed.py"
        "::test_a_record_whose_schema_has_a_rule_names_a_way_that_load_takes",
    ),
    "typed_batches::_reading": (
        "tests/schemas/test_framed.py"
        "::test_a_plans_schema_that_is_gone_is_registered_again",
    ),
    "typed_batches::_planned_otherwise": (
        "tests/spark/test_typed_source.py"
        "::test_columns_that_cannot_hold_the_plans_are_refused_and_the_text_helps",
    ),
    "stored::_EARLIER": (
        _STORED + "test_a_job_of_a_version_before_begins_anew_where_it_ended",
    ),
    "stored::Format.check": (_STORED + "test_the_version_that_wrote_it_goes_on",),
    "stored::check_same_version": (
        "integration/topologies/test_topology.py"
        "::test_tasks_of_another_version_than_the_driver_read_nothing_and_say_so",
    ),
    "letter_log::LetterLog._read": (
        "integration/sinks/test_dead_letters.py"
        "::test_a_damaged_record_of_what_was_sent_is_named_with_a_way_out",
    ),
    "meeting::ConnectRun.ask": (
        _CONNECT
        + "test_a_query_whose_planner_died_goes_on_with_its_batch_when_started_again",
    ),
    "database_failures::_of_statement": (
        "tests/sql/test_tables.py"
        "::test_a_table_of_somebody_else_is_left_for_another_name",
        "tests/sql/test_tables.py::test_a_table_that_was_changed_gets_its_columns_back",
    ),
    "database_refusals::REFUSALS": (
        "integration/stores/test_database_rights.py"
        "::test_a_right_that_a_second_user_lacks_is_named",
        "integration/stores/test_came_back.py"
        "::test_a_database_that_was_put_back_from_a_copy_stops_the_job",
    ),
    "permit::permit": (
        "integration/topologies/test_topology_commits.py"
        "::test_what_outlives_its_time_out_writes_nothing_after_the_replay_began",
    ),
    "meeting::ConnectRun._own_planner": (
        _CONNECT + "test_two_that_were_started_at_once_are_both_refused",
        _CONNECT + "test_a_planner_that_never_planned_is_no_planner",
        _NO_RECORDS,
    ),
    "other_sources::how_to_start": (
        "tests/source/test_several_sources.py"
        "::test_a_batch_that_is_gone_is_left_by_all_sources_at_once",
    ),
    "moving::check_offsets_unused": (
        _MOVING + "test_a_copy_is_not_laid_over_the_offsets_of_another_topology",
    ),
    "moving::check_unused": (
        _MOVING + "test_a_job_that_began_under_the_new_id_keeps_what_it_did",
        _MOVING + "test_no_copy_is_laid_over_what_a_job_went_on_with",
    ),
    "skip::_moved": (_MOVING + "test_a_batch_that_moved_meanwhile_is_not_skipped",),
    "skip::skip": (
        "tests/cli/test_skip.py::"
        "test_a_txid_or_records_are_needed_and_an_error_names_the_other",
        "integration/operations/test_command_line.py::"
        "test_a_record_that_always_fails_is_skipped_and_the_topology_goes_on",
    ),
    "skip::_skip_records": (
        "tests/cli/test_skip.py::test_what_is_no_open_record_is_refused",
    ),
    "skip::_check_log": (
        "tests/cli/test_skip.py::test_what_is_no_open_record_is_refused",
    ),
    "targets::_refused": (_CLI + "test_set_refuses_what_the_logs_do_not_hold",),
    "handover::_compared": (
        "tests/cli/test_handover.py"
        "::test_a_topic_that_no_broker_knows_is_left_out_only_by_name",
    ),
    "manual_changes::not_first": (
        _MOVING + "test_only_the_first_unfinished_txid_can_be_skipped",
    ),
    "store::_check": (_MOVING + "test_offsets_of_a_topology_never_go_back",),
    "offsets::_repair_of": (
        _CLI + "test_what_no_record_tells_is_not_made_up_and_resetting_begins_anew",
    ),
    "offsets::_lost_offsets": (
        _CLI + "test_a_damaged_offset_is_named_and_reset_begins_anew_as_the_text_says",
        _CLI + "test_damaged_owners_are_deleted_by_hand_and_the_offsets_stay",
    ),
    "assembly::_UNREADABLE[GROUP]": (
        "integration/topologies/test_spout_groups.py"
        "::test_a_group_that_is_reset_stops_it_and_a_restart_goes_on_there",
    ),
    "manual_changes::beside_unfinished": (
        _CLI + "test_a_txid_with_records_of_others_is_not_dropped_and_its_ends_are_set",
    ),
    "manual_changes::without_topics": (
        _CLI + "test_forget_waits_until_a_topology_has_finished_what_it_planned",
    ),
    "other_sources::unfinished_beside": (
        _SEVERAL_SOURCES
        + "test_a_part_of_a_batch_that_another_source_has_committed_is_finished"
        "_by_a_start",
    ),
    "positions::refuse_copied": (
        "tests/cli/test_handover.py::test_the_offsets_of_an_id_that_was_copied_are_old",
        "tests/cli/test_lag.py::test_who_asks_for_a_moved_id_is_told_where_it_goes_on",
    ),
    "positions::only_of_a_source": (
        _CLI + "test_set_refuses_a_transactional_topology_by_name",
        _CLI + "test_an_at_least_once_topology_is_not_set_and_the_text_names_reset",
        _CLI + "test_reset_deletes_the_offsets_of_an_at_least_once_topology",
    ),
    "txid_layout::goes_on_elsewhere": (
        f"{_MOVING}test_an_id_is_copied_back_as_the_refusal_says",
    ),
    "txid_layout::another_door": (
        "tests/transactions/test_txid_layout.py"
        "::test_a_topology_refuses_the_id_of_a_source_and_another_id_is_new",
    ),
    "group_offsets::KafkaGroupOffsetStore._read": (
        "integration/topologies/test_spout_groups.py"
        "::test_metadata_that_cannot_be_read_is_mended_by_resetting_the_offset",
    ),
    "marker_log::MarkerLog._corrupted": (
        _REPLAYS + "test_an_overwritten_marker_is_taken_from_the_group_or_named",
    ),
    "marker_topic::MarkerTopic.check_policy": (
        "integration/sinks/test_sink_markers.py"
        "::test_a_topic_that_forgets_is_refused_until_it_is_set_as_the_text_says",
    ),
    "marker_topic::MarkerTopic._forbidden": (
        "integration/sinks/test_sink_rights.py::test_a_missing_right_is_named_with_what_it_is_for",
        "integration/sinks/test_sink_rights.py::test_the_rights_of_the_readme_are_enough",
    ),
    "mirror::GroupMirror.store_positions": (
        "integration/source/test_cluster_view.py"
        "::test_a_group_with_members_refuses_the_mirror",
    ),
    "part_transaction::_lost": _LOST_MARKERS,
    "owners::Owners.check": (
        "tests/running/test_at_least_once_spout.py"
        "::test_a_former_owner_of_the_same_id_stores_nothing_more",
    ),
    "jvm::_streams": (
        _NUMBERS + "test_a_source_that_is_joined_with_itself_is_refused_by_name",
    ),
    "spout::SpoutManagers._check_vanished": (
        "integration/topologies/test_spout_groups.py"
        "::test_offsets_that_expired_in_part_are_no_fresh_start",
    ),
    "admission::second_write": (_SECOND_WRITES,),
    "transaction::write_transaction": (
        _SECOND_WRITES,
        _REPLAYS + "test_two_writes_of_one_batch_are_refused_by_name",
    ),
    "agreement::_ADVICE[RENAMED]": (
        _ANOTHER + "test_a_renamed_tx_id_is_refused_and_set_back",
        _ANOTHER + "test_a_tx_id_is_renamed_where_the_checkpoint_decides_for_one_run",
    ),
    "agreement::_ADVICE[ANOTHER]": (
        _ANOTHER
        + "test_another_store_is_refused_and_the_checkpoint_brings_its_numbering",
        _ANOTHER + "test_a_store_that_is_the_right_one_again_goes_on",
    ),
    "agreement::_ADVICE[UNNUMBERED]": (
        _ANOTHER + "test_a_tx_id_taken_away_and_given_again_goes_on_at_the_checkpoint",
    ),
    "agreement::_ADVICE[FOREIGN]": (
        _ANOTHER + "test_the_checkpoint_of_another_id_decides_nothing",
    ),
    "agreement::_ADVICE[EMPTY]": (_PUT_BACK, _SIMULATED),
    "agreement::_ADVICE[AHEAD]": (_PUT_BACK, _SIMULATED),
    "agreement::in_another_mode": (
        _TRANSACTIONS
        + "test_an_opaque_owner_leaves_an_unfinished_transactional_batch_alone",
    ),
    "agreement::IS_OLDER": (_PEOPLE,),
    "agreement::_RENUMBERED": (
        _ANOTHER
        + "test_another_store_is_refused_and_the_checkpoint_brings_its_numbering",
        _PEOPLE,
    ),
    "agreement::_COUNTED_IN_STORE": (_PEOPLE,),
    "agreement::_TXIDS_AGAIN": (_PUT_BACK, _PEOPLE),
    "agreement::_SEVERAL[RENAMED]": (_PEOPLE,),
    "agreement::_SEVERAL[UNNUMBERED]": (_PEOPLE,),
    "agreement::_SEVERAL[ANOTHER]": (_PEOPLE,),
    "agreement::_SEVERAL[APART]": (_PEOPLE,),
    "agreement::_IS_BEHIND": (_PEOPLE,),
    "agreement::_SEVERAL[EMPTY]": (_PEOPLE,),
    "joint_batches::_parted": (
        _SEVERAL + "test_beside_a_source_without_tx_id_a_new_checkpoint_waits"
        "_for_the_unfinished_batch",
        _SEVERAL_SIMULATED,
    ),
    "joint_batches::_committed": (
        "tests/properties/test_several.py"
        "::test_a_checkpoint_that_adds_a_source_to_a_committed_batch_is_refused",
        _SEVERAL_SIMULATED,
    ),
    "joint_batches::_without_checkpoint": (_SEVERAL_SIMULATED, _PEOPLE),
    "joint_batches::JointBatches.check_done": (_PEOPLE,),
    "joint_batches::JointBatches._check_numbers": (_PEOPLE,),
    "joint_batches::_one_alone": (
        _SEVERAL_SOURCES + "test_a_checkpoint_that_knows_of_one_source_decides_nothing",
        _SEVERAL_SOURCES + "test_one_source_does_not_begin_anew_without_the_others",
        _PEOPLE,
    ),
    "new_checkpoints::BEGIN_ANEW": (_PEOPLE,),
    "batch_ids::ids_again": (_FILES, _WITH_FILES),
    "batch_ids::unproven": (_STORED_IDS,),
    "batch_ids::_emptied": (_FILES, _STORED_IDS, _WITH_FILES),
    "batch_ids::used_ids": (_SINKS_SEEN,),
    "replays::set_to": (_SEVERAL_SIMULATED, _PEOPLE),
    "replays::_forget": (
        "integration/operations/test_advice.py"
        "::test_a_batch_whose_topic_was_deleted_is_left_as_the_error_says",
    ),
    "planned_topic::_way_past": (
        _DAMAGED + "test_damaged_records_are_named_and_left_out",
        _DAMAGED
        + "test_a_query_stops_and_goes_on_with_the_option_under_its_checkpoint",
        _DAMAGED + "test_a_transactional_topology_ends_after_some_tries",
    ),
    "poller::SpoutPoller._with_command": (
        _DAMAGED + "test_an_at_least_once_topology_reads_the_other_partitions_and_ends",
    ),
    "marker_log::MarkerLog._damaged": (
        _DAMAGED + "test_damaged_markers_stop_a_sink_and_name_the_way_out",
    ),
    "letter_log::LetterLog._damaged": (
        _DAMAGED + "test_damaged_dead_letters_hold_up_no_other",
    ),
    "part_transaction::_check_same": (
        "integration/sinks/test_sink_markers.py"
        "::test_a_marker_that_the_sink_did_not_commit_is_refused_with_the_truth",
    ),
    "agreement::_ADVICE[TOGETHER]": (
        _BESIDE + "test_what_went_back_as_a_whole_goes_on_where_the_store_is",
    ),
    "agreement::_ADVICE[ALONE]": (
        _BESIDE + "test_records_that_alone_went_back_go_on_where_the_checkpoint_is",
    ),
    "agreement::_ADVICE[SCATTERED]": (
        _BESIDE + "test_sinks_that_are_at_neither_are_not_written",
    ),
    "agreement::_ADVICE[BEHIND]": (_CHECKPOINT_PUT_BACK, _SIMULATED),
    "agreement::_ADVICE[APART]": (
        _TRANSACTIONS + "test_offsets_set_by_hand_are_where_both_ways_out_go_on",
        _SIMULATED,
    ),
    "logged_batches::_start_not_known": (
        _BATCHES + "test_a_first_batch_of_another_source_does_not_begin_at_a_guess",
        _BATCHES
        + "test_a_first_batch_that_began_at_an_end_is_not_read_from_another_one",
        "integration/source/test_source_parity.py"
        "::test_an_unfinished_first_batch_of_sparks_own_source_is_read_from_its_start",
    ),
    "loss::Losses.added_late": (
        _BATCHES + "test_a_partition_that_appears_late_and_trimmed_is_a_loss",
    ),
    "loss::_lost": (
        _BATCHES + "test_a_log_that_lost_its_end_is_not_read_again",
        _ANEW + "test_a_topic_made_anew_is_read_once_from_its_start",
        _FAULTS + "test_trimmed_records_are_skipped_if_losses_are_allowed",
        _RECORD_LOSSES + "test_what_was_completed_of_a_cut_log_is_not_read_again",
    ),
    "batch_starts::_BEYOND": (
        "tests/running/test_kafka_spouts.py::test_an_offset_beyond_the_end_is_refused",
    ),
    "loss::OF_SPOUTS": (
        _STARTS + "test_a_log_that_lost_its_end_fails_or_goes_on_at_the_new_end",
    ),
    "loss::Losses.deleted": (
        _FAULTS + "test_a_deleted_topic_is_left_out_if_losses_are_allowed",
    ),
    "start_positions::committed_or": (
        _BATCHES + "test_committed_takes_the_groups_offsets_and_the_rule_for_the_rest",
    ),
    "microbatches::MicroBatches.plan": (
        _FAULTS
        + "test_a_bounded_run_does_not_end_without_a_partition_that_has_no_leader",
    ),
    "other_topics::check_shared": (
        _NUMBERS + "test_a_source_that_is_joined_with_itself_is_refused_by_name",
        _TAKING_OVER
        + "test_who_moves_an_id_to_another_topic_and_back_does_as_the_text_says",
        _TAKING_OVER
        + "test_a_query_begins_where_somebody_has_set_the_offsets_of_its_new_topic",
    ),
    "other_topics::check_topics": (
        "tests/running/test_at_least_once_spout.py"
        "::test_a_job_on_other_topics_is_refused_before_it_takes_over",
    ),
    "other_topics::check_read_again": (
        _TAKING_OVER
        + "test_a_planned_batch_of_a_topic_that_is_left_out_is_read_as_the_text_says",
    ),
    "replays::_WAS_OPAQUE": (_PEOPLE,),
    "replays::_advice": (_IMPOSSIBLE, _SIMULATED),
    "replays::readable_batch": (_SIMULATED,),
    "progress::check_same": (
        "tests/sql/test_maps.py"
        "::test_a_second_update_of_a_batch_is_no_replay_and_is_told",
    ),
    "spout::_cannot_be_replayed": (
        "integration/topologies/test_topology.py"
        "::test_records_that_are_gone_stop_a_transactional_replay_and_say_which",
    ),
    "retry_policy::RetryPolicy._given_up": (
        "integration/stores/test_silent_servers.py"
        "::test_a_read_only_database_is_waited_for_and_then_given_up",
    ),
    "records::REPAIR_COMMAND": (
        _CLI + "test_the_command_an_error_prints_repairs_what_it_names",
    ),
    "records::corrupted": (
        _CLI + "test_the_command_an_error_prints_repairs_what_it_names",
    ),
    "refusals::PUT_BACK": (_FORGOTTEN,),
    "owners::lost_offsets": (
        "tests/conformance/offset_store_suite.py::test_a_store_that_went_back_is_left_alone",
        "tests/running/test_spout_managers.py"
        "::test_another_deployments_offset_can_be_ignored",
    ),
    "progress::Progress._check_left": (
        "tests/sql/test_beside.py"
        "::test_a_sink_that_alone_went_back_is_known_by_who_wrote_it",
    ),
    "refusals::AFTER_A_FILE": (
        "tests/sql/test_sqlite_file.py"
        "::test_a_file_that_was_put_back_with_all_its_writes_goes_on",
        _PUT_BACK,
    ),
    "refusals::LEFT_BEHIND": (
        "tests/sql/test_beside.py"
        "::test_a_former_store_beside_a_sink_is_removed_as_the_text_says",
        _PEOPLE,
    ),
    "refusals::AFTER_A_LOSS": (
        "tests/spark/test_transactional_runner.py::"
        "test_a_database_that_went_back_stops_the_topology_and_a_restart_loses_nothing",
    ),
    "admission::_check_plan": (_ONE_BEHIND, _FORGOTTEN),
    "refusals::at_work": (
        "tests/source/test_taking_over.py"
        "::test_of_bounded_runs_that_overlap_the_first_one_gets_through",
    ),
    "refusals::fenced": (
        _FAULTS + "test_a_second_query_with_the_same_id_takes_over",
        _NUMBERS + "test_a_source_that_is_joined_with_itself_is_refused_by_name",
    ),
    "delta::DeltaSink._rolled_back": (
        _LAKE + "test_rows_that_were_restored_away_are_not_taken_for_written",
        _LAKE + "test_a_table_that_lost_its_batches_is_not_taken_for_the_former_one",
    ),
    "delta::DeltaStatement._check_session": (
        _LAKE + "test_a_statement_in_another_session_is_noticed_and_the_advice_is_safe",
    ),
    "delta::DeltaStatement._second": (
        _LAKE + "test_a_second_statement_is_refused_and_the_advice_is_safe",
    ),
    "iceberg::IcebergStatement._past_the_target": (
        _MERGES
        + "test_a_statement_on_the_table_itself_is_refused_and_the_advice_is_safe",
    ),
    "table_writes::write_batch": (
        "tests/sinks/test_table_writes.py"
        "::test_who_is_overtaken_again_and_again_gives_up_and_the_batch_comes_again",
    ),
    "publications::Publication.of_line": (
        "integration/sinks/test_files.py"
        "::test_a_publication_that_somebody_has_changed_stops_readers_and_writers",
    ),
    "model::TransactionAttempt.of_json": (
        "tests/running/test_transactional_sink.py"
        "::test_an_attempt_that_somebody_has_changed_stops_the_sink_until_it_is_back",
    ),
    "table_writes::_lost": (
        "integration/sinks/table_suite.py"
        "::test_a_table_that_was_made_anew_under_a_program_stops_it",
    ),
    "marker_rules::_differs": (
        "integration/sinks/test_sink.py::test_a_replay_with_other_rows_is_refused",
        _REPLAYS + "test_a_half_written_batch_cut_in_another_way_is_refused"
        "_and_the_old_cut_finishes_it",
    ),
    "marker_rules::_OF_RECORDS": (
        "integration/sinks/test_sink.py::test_a_replay_with_other_rows_is_refused",
        _REPLAYS + "test_a_half_written_batch_cut_in_another_way_is_refused"
        "_and_the_old_cut_finishes_it",
    ),
    "marker_rules::_OF_LETTERS": (
        "integration/sinks/test_dead_letters.py::test_other_rejected_rows_of_a_replay",
    ),
    "marker_rules::_out_of_order": (
        _REPLAYS + "test_a_half_written_batch_is_finished_in_its_old_parts"
        "_and_the_next_in_new_ones",
    ),
    "marker_rules::check_lives": (
        _REPLAYS + "test_a_query_that_another_took_over_from_is_refused",
    ),
    "admission::check_numbering": (
        _CLI + "test_an_id_counts_on_where_a_sink_is_that_knew_a_lost_store",
        _ANOTHER
        + "test_another_store_is_refused_and_the_checkpoint_brings_its_numbering",
        _REPLAYS + "test_a_sink_belongs_to_one_source",
    ),
    "offsets::unreadable": (
        "tests/zookeeper/test_offsets.py"
        "::test_a_record_that_cannot_be_read_is_deleted_or_written_by_hand",
    ),
    "store::ZooKeeperStore._check_size": (
        _ANOTHER
        + "test_another_store_is_refused_and_the_checkpoint_brings_its_numbering",
        _SIMULATED,
    ),
    "store_place::no_default": (
        "tests/spark/test_default_store.py"
        "::test_others_and_those_that_name_a_store_go_on",
        _ANOTHER
        + "test_another_store_is_refused_and_the_checkpoint_brings_its_numbering",
    ),
    "coordinator::TransactionCoordinator._endless": (
        "tests/transactions/test_coordinator_failures.py"
        "::test_a_commit_phase_that_never_ends_stops_everything_in_time",
    ),
    "sender::Sender._check_refusal": (
        "integration/operations/test_secured.py"
        "::test_authorities_that_were_replaced_on_disk_are_read_by_who_lives",
    ),
    "redrive::Redrive.send": (
        "tests/running/test_redrive.py"
        "::test_what_another_sender_sent_between_two_tries_is_not_sent_twice",
    ),
    "redrive::Redrive._moved": (
        "tests/running/test_redrive.py"
        "::test_letters_of_a_commit_without_answer_were_sent_if_it_was_done",
    ),
    "transaction::Transaction._lost": (
        "integration/sinks/test_sink_faults.py"
        "::test_a_newer_run_ends_the_older_ones_part_and_writes_the_batch",
    ),
    "database_failures::_of_sqlite": (
        "tests/sql/test_sqlite_file.py"
        "::test_a_damaged_file_is_put_back_with_all_its_writes",
    ),
    "file_sink::published": (
        "integration/sinks/test_files.py"
        "::test_a_publication_that_somebody_has_removed_is_missed",
    ),
    "running::RunningTopology._end": (
        "tests/spark/test_transactional_runner.py"
        "::test_what_does_not_finish_in_time_is_cut_off_with_an_error",
    ),
    "client::ZooKeeperClient._check_open": (
        "tests/zookeeper/test_client.py"
        "::test_who_is_closed_just_before_a_read_opens_its_session_opens_none",
    ),
    "store::ZooKeeperStore._check_apart": (
        "tests/zookeeper/test_store.py"
        "::test_an_id_inside_another_ones_nodes_is_refused_at_its_first_write",
    ),
    "start_positions::_unmatched": (
        "tests/running/test_kafka_spouts.py"
        "::test_a_start_time_after_the_last_record_is_refused_or_the_end",
    ),
    "start_positions::positions_of": (
        _BATCHES + "test_given_offsets_must_name_every_partition_and_no_other",
    ),
}
"""Where following could lose or repeat records, if the text were wrong."""

_AGAIN = "it is tried again by itself, and nothing was changed"
_MEANT = "names legal values, or what exists: nothing was begun"
_OUTSIDE = "names rights, addresses or settings to look at: nothing was written"
_TOLD = "says what happened, and what stops; there is nothing to choose"
_CALLER = "for who calls the parts of the package wrongly: nothing was changed"

NOTHING_AT_RISK: dict[str, str] = {
    "avro::_Parser._definition": _MEANT,
    "avro::_check_size": _MEANT,
    "avro::parse": _MEANT,
    "avro::_Parser._field": _MEANT,
    "avro::_Parser._fields": _MEANT,
    "avro::_Parser._named": _MEANT,
    "avro::_Parser._part": _MEANT,
    "avro::_Parser._union": _MEANT,
    "avro::_Parser.parse": _MEANT,
    "avro::_Parser.type": _MEANT,
    "avro::_enum": _MEANT,
    "avro::_json": _MEANT,
    "avro::_name_of": _MEANT,
    "avro::_size": _MEANT,
    "avro::_texts": _MEANT,
    "columns::_check_names": _MEANT,
    "columns::_leaf": _MEANT,
    "columns::_other_than_null": _MEANT,
    "defaults::encode": _MEANT,
    "framed::_reshaped_leaf": _MEANT,
    "registry::Registry._add_references": _MEANT,
    "registry::Registry._check_rules": _MEANT,
    "registry::Registry._with_references": _MEANT,
    "resolution::_Code.add": _MEANT,
    "registry::Registry._asked": _AGAIN,
    "registry::Registry._judged": _OUTSIDE,
    "stored::GROUPS": "names a place",
    "kafka_logs::positions_of": "names a command that only shows",
    "redrive::_answered": _AGAIN,
    "transactional_sink::_Batch._waiting": _AGAIN,
    "redrive::Redrive._recalled": _MEANT,
    "meeting::ConnectRun.__init__": _CALLER,
    "meeting::_reply": _TOLD,
    "moving::copy": _MEANT,
    "moving::renamed": _MEANT,
    "doctor::_folder": _OUTSIDE,
    "doctor::_store": _OUTSIDE,
    "moving::_check": _MEANT,
    "moving::_moves_offsets": _MEANT,
    "handover::_Comparison.result": _OUTSIDE,
    "handover::_known": _MEANT,
    "handover::_of_group": _MEANT,
    "positions::only_one": _MEANT,
    "stores::StoreOption": _MEANT,
    "stores::unknown_id": _MEANT,
    "errors::refused": _OUTSIDE,
    "errors::translated": _TOLD,
    "errors::unreachable": _OUTSIDE,
    "group_offsets::KafkaGroupOffsetStore._reachable": _AGAIN,
    "marker_topic::MarkerTopic.silent": _AGAIN,
    "planned_topic::not_in_log": _TOLD,
    "planned_topic::replaced": _TOLD,
    "planned_topic::_check": _AGAIN,
    "planned_topic::unread": _AGAIN,
    "planned_topic::damaged": "its advice is in _way_past",
    "planned_topic::ReaderAround._located": "its advice is in _way_past",
    "translations::REFUSED_FOR_READING[auto.offset.reset]": _MEANT,
    "tokens::_asked": _OUTSIDE,
    "reader::translated": _OUTSIDE,
    "manager::PartitionManager.emitted": _CALLER,
    "running::too_many_hang": _OUTSIDE,
    "kafka_spouts::_NOT_FOR_SPOUTS[tx]": _MEANT,
    "kafka_spouts::_policy": _MEANT,
    "jvm::RunningQuery._asking": _TOLD,
    "jvm::error_of": _TOLD,
    "errors_first::own_error_first": "repeats the text of another error",
    "record_outcomes::RecordOutcomes.fail": _TOLD,
    "spout::SpoutManagers._settled": _AGAIN,
    "spout::SpoutManagers.open": _AGAIN,
    "offset_keeper::OffsetKeeper.__init__": "names a thread",
    "offset_keeper::OffsetKeeper._wait": _AGAIN,
    "spout::KafkaSpout._servers": _OUTSIDE,
    "kafka_sink_bolt::_asking_for_replay": _AGAIN,
    "config::SourceConfig.start_without_match": _MEANT,
    "config::TransactionsConfig.sink_batch_ids": _MEANT,
    "config::TransactionsConfig.store": _MEANT,
    "sink::SINK": _MEANT,
    "source::SOURCE": _MEANT,
    "spout_config::SpoutConfig.store": _MEANT,
    "topology::TopologySettings.store": _MEANT,
    "sink::_marker_topic": _MEANT,
    "transaction::_check_not_read": _MEANT,
    "agreement::contradiction": "its advice is in _ADVICE",
    "microbatches::MicroBatches.ranges_from_log": _AGAIN,
    "source::_check_batch": _MEANT,
    "start_positions::_unanswered": _AGAIN,
    "start_positions::assigned_partitions": _MEANT,
    "start_positions::check_given": _MEANT,
    "start_positions::ranges_between": _MEANT,
    "ranges::lost": "the replay that follows says what to do",
    "replays::replay_impossible": "its advice is that of its callers",
    "engine::SparkEngine._to_table": _AGAIN,
    "job_failures::job_failure": _OUTSIDE,
    "permit::_connect": _OUTSIDE,
    "database::SqliteFile._begun": "its advice is in AFTER_A_FILE",
    "database_failures::translate": _OUTSIDE,
    "store::_existing": _MEANT,
    "admission::check_newest": "its advice is in PUT_BACK",
    "task_failures::component_error": _TOLD,
    "progress::Progress._raced": _AGAIN,
    "spout::KafkaBatch._gone": _AGAIN,
    "batch_starts::_waits": _AGAIN,
    "memory_spouts::MemoryEmitter.read": _AGAIN,
    "ledger::Ledger._out_of_order": _CALLER,
    "ledger::Ledger._plan": _CALLER,
    "refusals::conflict": _AGAIN,
    "owners::LOST_BY": "its advice is in AFTER_A_LOSS and lost_offsets",
    "store_beside::check_store_beside": "its advice is in AFTER_A_LOSS",
    "refusals::lost": "its advice is in AFTER_A_LOSS",
    "refusals::unpicklable": _CALLER,
    "uncommitted::MetadataChain.keep": _CALLER,
    "brokers::ZooKeeperTopics._translated": _OUTSIDE,
    "client::ZooKeeperClient._check_tls": _OUTSIDE,
    "client::ZooKeeperClient._refused": _OUTSIDE,
    "client::ZooKeeperClient.silent": _AGAIN,
    "store::ZooKeeperStore._restless": _AGAIN,
}
"""Where there is nothing to follow, or following cannot touch what is stored; why."""

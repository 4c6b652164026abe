"""Former names of expectations, which the table `quality_results` of older lakes still contains."""

from __future__ import annotations

from collections.abc import Mapping

FORMER_NAMES: Mapping[str, str] = {
    "messages_are_of_this_age": "no_message_is_from_before_2010",
    "no_message_is_dead": "no_dead_letters",
    "queues_do_not_start_again": "queue_offsets_do_not_restart",
    "offsets_are_given_once": "queue_offsets_are_unique",
    "messages_are_not_of_the_future": "no_message_is_from_the_future",
    "producers_tell_their_time": "producers_set_a_time",
    "message_ids_are_there": "every_message_has_an_id",
    "hosts_are_there": "every_message_has_hosts",
    "sizes_are_of_records": "sizes_are_valid_for_records",
    "places_are_those_of_the_bodies": "body_places_match_the_messages",
    "windows_are_there_once": "windows_are_unique",
    "records_fit_into_their_stretch": "records_fit_into_their_range",
    "logs_are_whole": "logs_have_no_gaps",
}
"""The present name for each former one."""


def present_name(name: str) -> str:
    """Return the present name of an expectation."""
    return FORMER_NAMES.get(name, name)

"""The redrive, which sends dead letters to their topics again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.arguments.times import time_text
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.damaged_file_errors import explain_invalid_where
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.dlq.arguments import DlqOptions
from commitlake.jobs.dlq.outcome import print_replay_outcome
from commitlake.jobs.dlq.selection import ChosenDeadLetters, choose_dead_letters
from commitlake.jobs.replay.message_selection import SelectedMessages
from commitlake.jobs.replay.message_source import lake_source
from commitlake.jobs.replay.send import send_selected_messages
from commitlake.pipelines.dead_letters.cause_conditions import exclude_letters_sql, find_replayed_offsets
from commitlake.pipelines.dead_letters.dead_letter_rows import count_letters, is_replayed_sql
from commitlake.pipelines.replay.ledger import read_replay_states
from commitlake.pipelines.replay.plan_part_rows import log_ranges_condition
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.replays import ReplayEvent

_SHOWN = 3
_FINISHED = (ReplayEvent.FINISHED, ReplayEvent.VERIFIED, ReplayEvent.UNDONE, ReplayEvent.WITHDRAWN)


def redrive_dead_letters(arguments: DlqOptions, lake: Lake) -> ExitCode:
    """Send the selected dead letters again, and with `--follow` track their outcome."""
    chosen = choose_dead_letters(arguments, lake, max_samples_per_cause=None)
    with explain_invalid_where(arguments.where, lake):
        condition = chosen.condition_of_cause()
        if not arguments.include_replayed:
            condition = _exclude_replayed_letters(chosen, condition)
        before = find_replayed_offsets(lake, chosen.table, condition)
    if before:
        if not arguments.again:
            condition = exclude_letters_sql(condition, before.values())
        _print_earlier_redrives(lake, before, sends_again=arguments.again)
    if not arguments.again:
        _check_unfinished_replays(lake, chosen, condition)
    source, letters = lake_source(lake, chosen.table), SelectedMessages(condition)
    sent = send_selected_messages(arguments, lake, source, letters, _redrive_command(arguments, chosen))
    if sent.plan is None or not arguments.follow or sent.exit_code == ExitCode.INTERRUPTED:
        if sent.plan is not None and not arguments.quiet:
            print_line(f"'commitlake dlq outcome {sent.plan.replay_id} --lake {lake.root}' shows what becomes of them")
        return sent.exit_code or chosen.exit_code
    return max(sent.exit_code, print_replay_outcome(arguments, lake, sent.plan)) or chosen.exit_code


def _exclude_replayed_letters(chosen_letters: ChosenDeadLetters, condition: str) -> str:
    again = count_letters(chosen_letters.table, f"{condition} AND {is_replayed_sql()}")
    if again:
        print_line(
            f"{format_count(again, 'dead letter is', 'dead letters are')} skipped: dead again after a replay; "
            "--include-replayed sends them, too"
        )
    return f"{condition} AND NOT {is_replayed_sql()}"


def _print_earlier_redrives(
    lake: Lake, replayed_offsets: Mapping[str, Mapping[str, Sequence[int]]], *, sends_again: bool
) -> None:
    count = len(
        {(broker, offset) for places in replayed_offsets.values() for broker in places for offset in places[broker]}
    )
    states = read_replay_states(lake)
    names = [
        f"{name} (to {states[name].plan.target.name_servers} at {time_text(states[name].plan.created_at)})"
        for name in sorted(replayed_offsets, reverse=True)
        if name in states
    ]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    what = "sent once more" if sends_again else "skipped; --again sends them, too"
    print_line(
        f"{format_count(count, 'dead letter was', 'dead letters were')} sent before, by replay "
        f"{', '.join(names[:_SHOWN])}{more}: {what}"
    )


def _check_unfinished_replays(lake: Lake, chosen_letters: ChosenDeadLetters, condition: str) -> None:
    """Raise an error if a selected dead letter belongs to an unfinished replay, which may already have sent it."""
    for name, state in read_replay_states(lake).items():
        if state.owner is None or state.event in _FINISHED:
            continue
        plan = state.plan
        of_plan = (
            log_ranges_condition([part for parts in plan.parts for part in parts])
            if plan.is_changed
            else plan.condition
        )
        count = count_letters(chosen_letters.table, f"{condition} AND ({of_plan})")
        if count:
            raise JobError(
                f"{format_count(count, 'of these dead letters belongs', 'of these dead letters belong')} to the "
                f"replay {name}, which is not finished ({state.event}): nothing was sent",
                f"'commitlake replay resume {name}' continues it; --again sends them anyway",
                ExitCode.REFUSED,
            )


def _redrive_command(arguments: DlqOptions, chosen_letters: ChosenDeadLetters) -> str:
    names = ("group", "topic", "tag", "key", "broker", "where")
    values = {name: getattr(arguments, name) for name in names}
    given = [
        f"--{name} {one}"
        for name, value in values.items()
        for one in (value if isinstance(value, tuple) else [value])
        if one is not None
    ]
    given += [
        f"--{name} {time_text(moment)}" for name, moment in (("from", arguments.start), ("to", arguments.end)) if moment
    ]
    if chosen_letters.cause is not None:
        given.append(f"--cause {chosen_letters.cause[1].digest}")
    return " ".join(["dlq redrive", *given])

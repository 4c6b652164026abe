"""Tests of confirmations: they are asked on a terminal only, and once."""

from __future__ import annotations

import io

import pytest

from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.confirm import confirm_action
from commitlake.schemas.errors import ExitCode


class Terminal(io.StringIO):
    """A terminal with typed input."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def ask(monkeypatch: pytest.MonkeyPatch, typed: io.StringIO, *, is_agreed: bool = False) -> None:
    monkeypatch.setattr("sys.stdin", typed)
    confirm_action(
        "Set 3 offsets",
        intended_action="3 offsets would be set",
        refusal_message="no offset was set",
        is_confirmed=is_agreed,
    )


@pytest.mark.parametrize("answer", ["y\n", "YES\n", " yes \n"])
def test_yes_confirms(answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ask(monkeypatch, Terminal(answer))
    assert capsys.readouterr().err == "Set 3 offsets? [y/N] "


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "yess\n"])
def test_any_other_answer_means_no(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobError, match=r"^no offset was set$") as refused:
        ask(monkeypatch, Terminal(answer))
    assert refused.value.exit_code == ExitCode.REFUSED


def test_confirmation_without_a_terminal_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        JobError, match="3 offsets would be set, but there is no terminal to ask for confirmation: no offset was set"
    ):
        ask(monkeypatch, io.StringIO("y\n"))


def test_a_closed_standard_input_is_not_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(JobError, match="no terminal"):
        confirm_action(
            "Set 3 offsets",
            intended_action="3 offsets would be set",
            refusal_message="no offset was set",
            is_confirmed=False,
        )


def test_the_line_of_the_question_is_ended_if_there_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(JobError):
        ask(monkeypatch, Terminal(""))
    assert capsys.readouterr().err == "Set 3 offsets? [y/N] \n"


def test_no_question_is_asked_if_the_user_has_already_agreed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(monkeypatch, io.StringIO(), is_agreed=True)
    assert capsys.readouterr().err == ""

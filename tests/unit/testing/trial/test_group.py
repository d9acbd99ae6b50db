"""Members as processes: names, ends and error messages."""

import os

import pytest

from coopgroup.testing.trial import Trial, TrialError


def test_group_when_members_are_frozen_killed_and_replaced_keeps_their_names(
    trial: Trial,
) -> None:
    group = trial.group("eager")
    group.prepare("m1", "m2")
    group.start("m1", "m2")
    first = group.member("m1").process.pid
    group.freeze("m1")
    assert os.waitid(os.P_PID, first, os.WSTOPPED | os.WNOWAIT) is not None
    group.resume("m1")
    assert os.waitid(os.P_PID, first, os.WCONTINUED | os.WNOWAIT) is not None
    group.kill("m1")
    assert (group.living, group.names) == (("m2",), ("m1", "m2"))
    group.start("m1")
    assert group.member("m1").process.pid != first
    assert group.living == ("m1", "m2")
    assert [incarnation.member for incarnation in group.incarnations] == ["m1", "m2", "m1"]


def test_group_when_a_member_fails_tells_its_last_words(trial: Trial) -> None:
    group = trial.group("eager", extra_config={"no.such.key": 1})
    group.start("m1")
    with pytest.raises(TrialError, match=r"m1 ended with status 1: .*no\.such\.key"):
        group.wait_stopped("m1")
    with pytest.raises(TrialError, match=r"m1 ended with status 1: .*no\.such\.key"):
        group.wait_settled()


def test_group_when_a_member_is_unknown_says_so(trial: Trial) -> None:
    with pytest.raises(TrialError, match="eager-0 has no member m9"):
        trial.group("eager").stop("m9")

"""`coopgroup group migrate --check` beside real groups: its output at each step of a bounce."""

import pytest

from coopgroup.cli import app
from tests.support.mixed_group import MixedGroup

pytestmark = pytest.mark.verify


@pytest.mark.parametrize("protocol", ["cooperative-sticky", "range"])
def test_each_step_of_a_bounce_is_told(
    mixed: MixedGroup, protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only Java, Java beside ours, only ours; the marks identify the clients."""
    server = mixed.cluster.client_config()["bootstrap.servers"]

    def said() -> list[str]:
        asked = ["group", "migrate", "--check", mixed.group_id, "--bootstrap-server", server]
        assert app.run(asked) == 0
        return capsys.readouterr().out.splitlines()

    mixed.java_client("j", protocol)
    mixed.settle("j", protocol=protocol)
    lines = said()
    assert lines[0] == f"group {mixed.group_id}: Stable, protocol {protocol}, 1 member"
    assert lines[1] == "other clients: 1 member (subscriptions: v3 1)"
    assert f"    coopgroup.protocols=coopgroup,{protocol}" in lines
    mixed.ours("a", f"coopgroup,{protocol}")
    mixed.settle("j", "a", protocol=protocol)
    assert said()[1:3] == [
        "coopgroup: 1 member (subscriptions: v3 1)",
        "other clients: 1 member (subscriptions: v3 1)",
    ]
    mixed.stop("j")
    mixed.settle("a", protocol="coopgroup")
    assert "done: all members are coopgroup" in said()

"""The server answers probes from its own thread."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from attrs import define, evolve

from coopgroup.errors import ConfigurationError
from coopgroup.health import HealthLimits, HealthServer, serve
from coopgroup.kafka.health.value import Health

FINE = Health(group_id="g", generation=1, state="stable", is_joined=True)


@define(eq=False)
class Member:
    state: Health = FINE
    error: Exception | None = None

    def health(self) -> Health:
        if self.error is not None:
            raise self.error
        return self.state


class Metrics:
    def text(self) -> str:
        return "coopgroup_members 3\n"


@pytest.fixture
def member() -> Member:
    return Member()


@pytest.fixture
def server(member: Member) -> Iterator[HealthServer]:
    with serve(0, member, metrics=Metrics()) as server:
        yield server


def _get(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_probes_are_green_for_a_healthy_member(server: HealthServer) -> None:
    assert _get(server, "/livez")[0] == 200
    assert _get(server, "/readyz?verbose")[0] == 200


def test_liveness_turns_red_and_green_again(server: HealthServer, member: Member) -> None:
    member.state = evolve(FINE, since_poll_s=301.0)
    status, content = _get(server, "/livez")
    assert (status, "poll was not called for 301.0 s" in content) == (503, True)
    member.state = FINE
    assert _get(server, "/livez/")[0] == 200


def test_metrics_are_those_that_were_given(server: HealthServer) -> None:
    assert _get(server, "/metrics") == (200, "coopgroup_members 3\n")


def test_head_has_no_content(server: HealthServer) -> None:
    assert _get(server, "/livez", "HEAD") == (200, "")


def test_other_paths_are_not_found(server: HealthServer, member: Member) -> None:
    assert _get(server, "/")[0] == 404
    with serve(0, member) as without_metrics:
        assert _get(without_metrics, "/metrics")[0] == 404


def test_error_is_an_answer(server: HealthServer, member: Member) -> None:
    member.error = LookupError("a bug")
    assert _get(server, "/livez") == (500, "LookupError('a bug')\n")


def test_limits_are_those_of_the_caller(member: Member) -> None:
    member.state = evolve(FINE, since_poll_s=5.0)
    with serve(0, member, limits=HealthLimits(poll_s=4.0)) as strict:
        assert _get(strict, "/livez")[0] == 503


def test_server_that_is_closed_leaves_no_thread_and_no_port(member: Member) -> None:
    server = serve(0, member)
    port = server.port
    server.close()
    server.close()
    assert [one for one in threading.enumerate() if one.name == "coopgroup-health"] == []
    serve(port, member).close()


def test_server_listens_on_the_loopback_address_only(server: HealthServer) -> None:
    assert server._server.server_address[0] == "127.0.0.1"  # noqa: SLF001  (what it is bound to)


@pytest.mark.parametrize("port", [-1, 70_000, True, "80"])
def test_port_that_is_none_is_refused(port: int, member: Member) -> None:
    with pytest.raises(ConfigurationError, match=r"port: got .* expected a whole number from 0"):
        serve(port, member)


def test_server_without_members_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"members: got .* expected at least one consumer"):
        serve(0)
    with pytest.raises(ConfigurationError, match=r"expected an object with health\(\)"):
        serve(0, "billing")  # type: ignore[arg-type]

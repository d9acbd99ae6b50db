"""The server answers probes from its own thread."""

from __future__ import annotations

import urllib.request

import pytest
from attrs import define, evolve

from coopgroup.errors import ConfigurationError
from coopgroup.health import HealthServer, serve
from coopgroup.health.server import _Answers
from coopgroup.kafka.health.value import DEFAULT_LIMITS, Health

LIMIT_S = 60.0  # of a request; only a broken server reaches it
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


def _answer(path: str, member: Member) -> tuple[int, str]:
    answer = _Answers((member,), Metrics(), DEFAULT_LIMITS).answer(path)
    return answer.status, answer.content.decode()


def _get(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", method=method)
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:  # noqa: S310
        return answer.status, answer.read().decode()


def test_liveness_turns_red_and_green_again() -> None:
    member = Member(evolve(FINE, since_poll_s=301.0))
    status, content = _answer("/livez", member)
    assert (status, "poll was not called for 301.0 s" in content) == (503, True)
    member.state = FINE
    assert _answer("/livez/", member)[0] == 200
    assert _answer("/readyz?verbose", Member())[0] == 200


def test_other_paths_are_not_found() -> None:
    assert _answer("/", Member())[0] == 404
    assert _Answers((Member(),), None, DEFAULT_LIMITS).answer("/metrics").status == 404


def test_error_is_an_answer() -> None:
    assert _answer("/livez", Member(error=LookupError("a bug"))) == (500, "LookupError('a bug')\n")


def test_server_answers_and_leaves_no_port_when_it_is_closed() -> None:
    member = Member()
    with serve(0, member, metrics=Metrics()) as server:
        port = server.port
        assert server._server.server_address[0] == "127.0.0.1"  # noqa: SLF001  (what it is bound to)
        assert _get(server, "/metrics") == (200, "coopgroup_members 3\n")
        assert _get(server, "/livez", "HEAD") == (200, "")
        server.close()
    serve(port, member).close()


@pytest.mark.parametrize("port", [-1, 70_000, True, "80"])
def test_port_that_is_none_is_refused(port: int) -> None:
    with pytest.raises(ConfigurationError, match=r"port: got .* expected a whole number from 0"):
        serve(port, Member())


def test_server_without_members_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"members: got .* expected at least one consumer"):
        serve(0)
    with pytest.raises(ConfigurationError, match=r"expected an object with health\(\)"):
        serve(0, "billing")  # type: ignore[arg-type]

"""A provider of OAuth tokens on loopback, for tests: its token endpoint, and the keys of its JWTs.

Kafka's broker reads the keys (`jwks_url`) to check the tokens.
"""

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from attrs import define, field
from joserfc import jwt
from joserfc.jwk import ECKey

CLIENT_ID: Final = "the:client"
CLIENT_SECRET: Final = "s3cret-%/&-canary"  # noqa: S105 -- known to this provider only
AUDIENCE: Final = "kafka"
_KEY_ID: Final = "key-1"


@define(kw_only=True)
class Seen:
    """One request for a token."""

    path: str
    headers: dict[str, str]
    body: str
    at: float = field(factory=time.monotonic)


@define(eq=False, kw_only=True)
class OidcProvider:
    """The provider.

    Attributes:
        life_s: life of each token.
        claims: claims that replace the usual ones.
        answer: status, headers and body in place of a token.
        asked: released by each request for a token.
    """

    life_s: float = 600.0
    claims: dict[str, Any] = field(factory=dict)
    answer: tuple[int, dict[str, str], bytes] | None = None
    seen: list[Seen] = field(factory=list, init=False)
    asked: threading.Semaphore = field(factory=lambda: threading.Semaphore(0), init=False)
    origin: str = field(default="", init=False)
    _key: ECKey = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._key = ECKey.generate_key("P-256", {"kid": _KEY_ID, "alg": "ES256", "use": "sig"})

    @property
    def token_url(self) -> str:
        return f"{self.origin}/token?realm=test"

    @property
    def jwks_url(self) -> str:
        return f"{self.origin}/jwks"

    def configuration(self) -> dict[str, str]:
        """Return the keys of a client that gets its tokens here."""
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": CLIENT_ID,
            "sasl.oauthbearer.client.secret": CLIENT_SECRET,
            "sasl.oauthbearer.token.endpoint.url": self.token_url,
        }

    def token(self) -> str:
        now = time.time()
        usual = {"sub": "member", "aud": AUDIENCE, "iat": int(now), "exp": now + self.life_s}
        return jwt.encode({"alg": "ES256", "kid": _KEY_ID}, usual | self.claims, self._key)

    def respond(self, path: str) -> tuple[int, dict[str, str], bytes]:
        if path == "/jwks":
            return 200, {}, json.dumps({"keys": [self._key.as_dict(private=False)]}).encode()
        if self.answer is not None:
            return self.answer
        return 200, {}, json.dumps({"access_token": self.token(), "expires_in": 1}).encode()


@contextlib.contextmanager
def oidc_provider(tls: ssl.SSLContext | None = None, **options: Any) -> Iterator[OidcProvider]:  # noqa: ANN401
    provider = OidcProvider(**options)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(*provider.respond(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            provider.seen.append(Seen(path=self.path, headers=dict(self.headers), body=body))
            provider.asked.release()
            self._send(*provider.respond(self.path))

        def log_message(self, *_: object) -> None:
            pass

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            usual = {"Content-Type": "application/json", "Content-Length": str(len(body))}
            for name, value in (usual | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme = "http" if tls is None else "https"
    provider.origin = f"{scheme}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""Network faults without help of the kernel: a namespace for each member, and a proxy.

A member in a network namespace has its own loopback interface, and no other. The proxy listens
there on the addresses that the brokers advertise, and forwards bytes to the brokers outside. So
members need no special configuration, and cannot avoid the proxy. Neither netem nor iptables is
needed. Root is needed to make namespaces.

Namespaces have no names: a namespace ends with the last process or open file that refers to it.
"""

import asyncio
import ctypes
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any, Final, Literal, TypeVar

from attrs import define, field, frozen

CLONE_NEWNET: Final = 0x40000000
SIOCGIFFLAGS: Final = 0x8913
SIOCSIFFLAGS: Final = 0x8914
IFF_UP: Final = 0x1
CHUNK_BYTES: Final = 65_536
# TCP sends a lost segment again after 200 ms, then after 400 ms, and so on.
RETRANSMISSION_S: Final = 0.2
RETRANSMISSIONS_MAX: Final = 4
ANSWER_S: Final = 30.0

_T = TypeVar("_T")


def enter_namespace(path: str) -> None:
    """Put the calling thread into a network namespace; only root may."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _checked("setns", descriptor, CLONE_NEWNET)
    finally:
        os.close(descriptor)


def _checked(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


class Namespace:
    """A network namespace with a loopback interface that is up; only root may make one."""

    def __init__(self) -> None:
        self._descriptor, self._control = _in_thread(self._make)

    @property
    def path(self) -> str:
        """Return the file by which another process of this user may enter the namespace."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def listen(self, port: int) -> socket.socket:
        """Return a socket that listens on a port of the namespace's loopback."""

        def bind() -> socket.socket:
            enter_namespace(self.path)
            return _listener(port)

        return _in_thread(bind)

    def set_up(self, *, is_up: bool) -> None:
        """Bring the loopback interface up or down. If it is down, every packet is dropped."""
        request = struct.pack("16sh", b"lo", 0)
        name, flags = struct.unpack("16sh", fcntl.ioctl(self._control, SIOCGIFFLAGS, request))
        flags = flags | IFF_UP if is_up else flags & ~IFF_UP
        fcntl.ioctl(self._control, SIOCSIFFLAGS, struct.pack("16sh", name, flags))

    def close(self) -> None:
        """Release the namespace; it ends with the last process in it."""
        self._control.close()
        os.close(self._descriptor)

    def _make(self) -> tuple[int, socket.socket]:
        _checked("unshare", CLONE_NEWNET)
        descriptor = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self._control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.set_up(is_up=True)
        return descriptor, self._control


def _listener(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    listener.setblocking(False)  # noqa: FBT003 - the name of its only argument is "flag"
    return listener


def _in_thread(call: Callable[[], _T]) -> _T:
    """Call in a new thread: a thread that changed its namespace must not be used again."""
    answers: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return answers[0]


@frozen(kw_only=True)
class Effect:
    """The effect of one fault on a link.

    Bytes from the member or the broker wait, new connections are reset, each chunk of bytes has a
    delay that varies by half, or a share of the chunks waits for a retransmission.
    """

    holds_requests: bool = False
    holds_answers: bool = False
    refuses: bool = False
    delay_s: float = 0.0
    loss: float = 0.0


@define(eq=False)
class Connection:
    """Both halves of a connection through the proxy; a half-open connection drops all bytes."""

    member: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    is_half_open: bool = False


@define(eq=False)
class Link:
    """The link of one member to one broker; only the proxy's thread uses it."""

    port: int
    effects: list[Effect] = field(factory=list)
    connections: set[Connection] = field(factory=set)
    requests_pass: asyncio.Event = field(factory=asyncio.Event)
    answers_pass: asyncio.Event = field(factory=asyncio.Event)

    def refresh(self) -> None:
        """Open or close the gates, after the effects have changed."""
        for gate, is_held in (
            (self.requests_pass, any(one.holds_requests for one in self.effects)),
            (self.answers_pass, any(one.holds_answers for one in self.effects)),
        ):
            if is_held:
                gate.clear()
            else:
                gate.set()


class Proxy:
    """The proxy in front of all members: one thread, one event loop.

    Held bytes arrive late, as retransmitted segments do, even if the sender has closed its end. So
    a commit that timed out may still reach the broker.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(f"network {seed}")
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()

    def connect(self, listeners: Sequence[socket.socket]) -> tuple[Link, ...]:
        """Make a link for each listening socket, to the broker on the same port outside."""
        return tuple(self._run(self._listen(one)) for one in listeners)

    def add(self, links: Sequence[Link], effect: Effect) -> None:
        """Begin a fault on some links; with `refuses`, their connections are reset."""
        self._run(self._change(links, lambda effects: effects.append(effect)))
        if effect.refuses:
            self._run(self._reset(links, ("member", "broker")))

    def remove(self, links: Sequence[Link], effect: Effect) -> None:
        """End a fault on some links."""
        self._run(self._change(links, lambda found: found.remove(effect) if effect in found else 0))

    def half_open(self, links: Sequence[Link], gone: Literal["broker", "member"]) -> None:
        """Close one end of all connections; the other end stays open and silent."""
        self._run(self._reset(links, (gone,)))

    def heal(self, links: Sequence[Link]) -> None:
        """End every fault on some links; half-open connections stay as they are."""
        self._run(self._change(links, list.clear))

    def close(self) -> None:
        """Close every connection and end the thread."""
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(ANSWER_S)

    # --- in the proxy's thread ------------------------------------------------------------------

    async def _listen(self, listener: socket.socket) -> Link:
        link = Link(port=listener.getsockname()[1])
        link.refresh()
        self._servers.append(await asyncio.start_server(partial(self._serve, link), sock=listener))
        return link

    async def _change(
        self, links: Sequence[Link], change: Callable[[list[Effect]], object]
    ) -> None:
        for link in links:
            change(link.effects)
            link.refresh()

    async def _reset(self, links: Sequence[Link], ends: Sequence[str]) -> None:
        for link in links:
            for one in tuple(link.connections):
                one.is_half_open |= len(ends) == 1
                for end in ends:
                    _abort(one.broker if end == "broker" else one.member)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(
        self, link: Link, requests: asyncio.StreamReader, member: asyncio.StreamWriter
    ) -> None:
        """Forward one connection, until both ends have closed it."""
        broker: asyncio.StreamWriter | None = None
        try:
            if any(one.refuses for one in link.effects):
                return
            await link.requests_pass.wait()  # a lost SYN is sent again
            await link.answers_pass.wait()
            answers, broker = await asyncio.open_connection("127.0.0.1", link.port)
            connection = Connection(member=member, broker=broker)
            link.connections.add(connection)
            try:
                await asyncio.gather(
                    self._pass_on(link, connection, requests, broker, link.requests_pass),
                    self._pass_on(link, connection, answers, member, link.answers_pass),
                )
            finally:
                link.connections.discard(connection)
        except (OSError, asyncio.CancelledError):
            pass  # the broker is down: the member's connection is reset, as without a proxy
        finally:
            _abort(member)
            if broker is not None:
                _abort(broker)

    async def _pass_on(
        self,
        link: Link,
        connection: Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        gate: asyncio.Event,
    ) -> None:
        try:
            while chunk := await reader.read(CHUNK_BYTES):
                if connection.is_half_open:
                    continue
                await asyncio.sleep(self._delay_s(link))
                await gate.wait()
                if not connection.is_half_open:
                    writer.write(chunk)
                    await writer.drain()
        except OSError:
            if not connection.is_half_open:
                raise
        if not connection.is_half_open:
            await gate.wait()
            writer.close()

    def _delay_s(self, link: Link) -> float:
        delay_s = sum(one.delay_s for one in link.effects) * self._random.uniform(0.5, 1.5)
        for effect in link.effects:
            for attempt in range(RETRANSMISSIONS_MAX):
                if self._random.random() >= effect.loss:
                    break
                delay_s += RETRANSMISSION_S * 2**attempt
        return delay_s


def _abort(writer: asyncio.StreamWriter) -> None:
    """Close a connection with RST, so that the peer notices despite unsent bytes."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()

"""The stage of a run: brokers, members, load, and each fault as an action on them.

A fault without a target is not counted: for example, a second broker cannot be killed while a
broker is down. Otherwise the faults of a run overlap. `heal` ends every fault.
"""

import contextlib
import heapq
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka.admin import AdminClient, MemberAssignment

from coopgroup.errors import ClusterError
from coopgroup.testing import KafkaCluster
from coopgroup.testing.processes import Reaper
from tests.chaos.cast import Life, Seat
from tests.chaos.checkers import Violation
from tests.chaos.faults import KINDS, Fault
from tests.chaos.load import Load
from tests.chaos.member import MemberSpec
from tests.chaos.network import Effect, Link, Namespace, Proxy
from tests.support.coordinators import partition_of

GROUP: Final = "chaos"
TOPICS: Final = {"chaos-1": 8, "chaos-2": 6}
IDLE: Final = ("chaos-idle", 4)
"""A topic whose partitions get their first records one after the other, during the faults."""
PARTITIONS_MAX: Final = 30
TICK_S: Final = 0.05
CLOSE_S: Final = 45.0
EXPLAIN_S: Final = 12.0
RECOVERY_S: Final = 90.0
LOG_LINES: Final = 15
# A broker with a slow disk is stopped most of the time: seconds stopped, then seconds running.
STUTTER_S: Final = (0.25, 0.12)
CUT: Final = Effect(holds_requests=True, holds_answers=True)


def can_disturb_network() -> bool:
    """Return whether network namespaces can be made here: on Linux, as root."""
    try:
        Namespace().close()
    except (OSError, AttributeError):
        return False
    return True


class Stage:
    """Brokers, members and load of one run; with a network, members are behind the proxy."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        network: bool,
        brokers: int = 3,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.violations: list[Violation] = []
        self.seats: list[Seat] = []
        self.performed: list[tuple[Fault, str]] = []
        replicas = {"min.insync.replicas": "2", "default.replication.factor": "3"}
        wanted = {**(properties or {}), **(replicas if brokers > 1 else {})}
        self.cluster = KafkaCluster(brokers, properties=wanted)
        self._seed = seed
        self._network = network
        self._stack = ExitStack()
        self._agenda: list[tuple[float, int, Callable[[], object]]] = []
        self._entries = 0
        self._busy: set[int] = set()
        self._over = threading.Event()
        self._chores: list[Future[None]] = []
        self._closed: set[str] = set()
        self._topics_made = len(TOPICS)

    def __enter__(self) -> Self:
        """Start brokers, proxy and load."""
        try:
            self.scratch = Path(tempfile.mkdtemp(prefix="coopgroup-chaos-"))
            self._stack.callback(shutil.rmtree, self.scratch, ignore_errors=True)
            self._stack.enter_context(self.cluster)
            self._reaper = Reaper(self.scratch)
            self._stack.callback(self._reaper.close)
            self._pool = ThreadPoolExecutor(8)
            self._stack.callback(self._pool.shutdown, cancel_futures=True)
            if self._network:
                self._proxy = Proxy(self._seed)
                self._stack.callback(self._proxy.close)
            self.load = Load(self.cluster.client_config())
            self._stack.callback(self.load.finish, 0.0)
            self._stack.callback(self._kill_members)
            self._stack.callback(self._keep_broker_logs)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every process and namespace, and keep the logs of the brokers."""
        self._over.set()
        self._stack.close()

    @property
    def lives(self) -> list[Life]:
        """Return all processes of all members, past ones too."""
        return [life for seat in self.seats for life in seat.lives]

    # --- members --------------------------------------------------------------------------------

    def add_member(self, spec: MemberSpec) -> Seat:
        """Add a member to the group, whose name is `spec.process`, and start it."""
        namespace: Namespace | None = None
        links: Sequence[Link] = ()
        if self._network:
            namespace = Namespace()
            self._stack.callback(namespace.close)
            ports = [int(one.rpartition(":")[2]) for one in self._addresses()]
            links = self._proxy.connect([namespace.listen(port) for port in ports])
        seat = Seat(
            name=spec.process, spec=spec, reaper=self._reaper, namespace=namespace, links=links
        )
        self.seats.append(seat)
        seat.start()
        return seat

    def cut_off(self, seat: Seat) -> None:
        """Hold every byte between a member and all brokers, until `heal`."""
        self._proxy.add(seat.links, CUT)

    def read(self) -> None:
        """Read what all processes have logged since the last call."""
        for life in self.lives:
            life.read()

    def watch(self) -> None:
        """Note members that ended by themselves, and start them again as a supervisor would."""
        for seat in self.seats:
            life = seat.life
            if life.is_wanted and not seat.is_restarting and not life.process.is_running:
                life.is_wanted = False
                self._note("member ended", life, f"status {life.process.exit_status}")
                seat.start()

    def explain(self) -> None:
        """Let every member write its positions and stacks to the logs, for debugging."""
        for seat in self.seats:
            if seat.life.has_begun:
                seat.life.signal(signal.SIGHUP)
        with contextlib.suppress(Exception):  # the brokers may be what does not answer
            found = self._admin().describe_consumer_groups([GROUP])[GROUP].result(EXPLAIN_S)
            lines = [
                f"{one.member_id} of {one.client_id}: has {_places(one.assignment)}, "
                f"should have {_places(one.target_assignment)}\n"
                for one in found.members
            ]
            (self.folder / "group.log").write_text("".join(lines))
        self.play(EXPLAIN_S)

    def close_members(self) -> None:
        """Close every member, as at the end of a deployment, and wait for them."""
        begin = time.monotonic()
        while not all(seat.life.has_begun for seat in self.seats):
            self.play(TICK_S)
            if time.monotonic() > begin + CLOSE_S:
                break
        for seat in self.seats:
            seat.life.is_wanted = False
            seat.life.signal(signal.SIGTERM)
        until = time.monotonic() + CLOSE_S
        for seat in self.seats:
            self._await_end(seat.life, until)

    def _await_end(self, life: Life, until: float) -> None:
        while life.process.is_running and time.monotonic() < until and not self._over.is_set():
            time.sleep(TICK_S)
        if life.process.is_running:
            self._note("close hangs", life, f"still there after {CLOSE_S:g} s")
            life.kill()
        elif life.process.exit_status != 0:
            self._note("close fails", life, f"status {life.process.exit_status}")

    def _note(self, kind: str, life: Life, text: str) -> None:
        lines = life.path("log").read_text(errors="replace").splitlines()[-LOG_LINES:]
        last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        self.violations.append(Violation(kind=kind, text=f"{life.name}: {text}: {last.strip()}"))

    def _kill_members(self) -> None:
        for life in self.lives:
            if life.process.is_running:
                life.process.kill()  # a supervisor must not try to leave without brokers

    # --- the agenda -----------------------------------------------------------------------------

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Put an action on the agenda; actions must be short."""
        self._entries += 1
        heapq.heappush(self._agenda, (time.monotonic() + seconds, self._entries, action))

    def play(self, seconds: float) -> None:
        """Run the agenda for a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            while self._agenda and self._agenda[0][0] <= time.monotonic():
                heapq.heappop(self._agenda)[2]()
            self.watch()
            time.sleep(TICK_S)

    def perform(self, fault: Fault) -> None:
        """Begin a fault, and put its end on the agenda."""
        action = getattr(self, "_on_" + KINDS[fault.kind].on)
        hit = action(fault)
        if hit is not None:
            self.performed.append((fault, hit))

    def heal(self) -> None:
        """End every fault: all brokers and members run, all bytes pass."""
        self._agenda.clear()
        for seat in self.seats:
            if seat.namespace is not None:
                seat.namespace.set_up(is_up=True)
                self._proxy.heal(seat.links)
            seat.life.thaw()
            seat.life.path("clock").unlink(missing_ok=True)
        for chore in self._chores:
            chore.result(CLOSE_S + RECOVERY_S)
        self._chores.clear()
        for broker in self.cluster.brokers:
            self._revive(broker)
        self._busy.clear()
        self.cluster.wait_ready()
        self._settle_topics()
        for seat in self.seats:
            # The supervisor of a killed member may still be leaving for it.
            if not seat.life.is_wanted or not seat.life.process.is_running:
                seat.start()
            seat.is_restarting = False

    # --- faults of members ----------------------------------------------------------------------

    def _on_member(self, fault: Fault) -> str | None:
        seats = [seat for seat in self.seats if not seat.is_restarting]
        seats = [seat for seat in seats if seat.life.process.is_running]
        if not fault.kind.startswith("kill"):
            seats = [seat for seat in seats if seat.life.frozen_since_ns is None]
            seats = [seat for seat in seats if seat.life.has_begun]
        if not seats:
            return None
        seat = seats[fault.target % len(seats)]
        if fault.kind.endswith("group leader"):
            seat = max(seats, key=lambda one: one.life.led_generation())
        life = seat.life
        match fault.kind:
            case "kill member" | "kill group leader":
                seat.is_restarting = True
                life.thaw()
                life.kill()
                self.later(fault.seconds, seat.start)
            case "freeze member" | "freeze group leader":
                life.freeze()
                self.later(fault.seconds, life.thaw)
            case "close member" | "hand over member":
                seat.is_restarting = True
                life.is_wanted = False
                hands_over = fault.kind == "hand over member"
                life.signal(signal.SIGUSR1 if hands_over else signal.SIGTERM)
                self._chore(lambda: self._restart_after_close(seat, fault.seconds))
            case "application does not poll":
                life.path("stall").write_text(str(fault.seconds))
                life.signal(signal.SIGUSR2)
            case "wall clock jumps":
                life.path("clock").write_text(str((2 * fault.size - 1) * 86_400))
                self.later(fault.seconds, lambda: life.path("clock").unlink(missing_ok=True))
            case _:
                raise AssertionError(fault.kind)
        return life.name

    def _restart_after_close(self, seat: Seat, seconds: float) -> None:
        self._await_end(seat.life, time.monotonic() + CLOSE_S)
        if not self._over.wait(seconds):
            seat.start()

    # --- faults of brokers ----------------------------------------------------------------------

    def _on_broker(self, fault: Fault) -> str | None:
        if fault.kind == "leaders move back":
            self._chore(self._elect_preferred)
            return "all partitions"
        free = [one for one in self.cluster.running if one not in self._busy]
        ends = fault.kind.startswith(("kill", "stop"))
        # Two dead brokers of three would leave the cluster without a quorum.
        if not free or (ends and len(self.cluster.running) < len(self.cluster.brokers)):
            return None
        broker = free[fault.target % len(free)]
        if fault.kind.endswith("coordinator"):
            broker = self._coordinator()
            if broker not in free:
                return None
        self._busy.add(broker)
        with contextlib.suppress(ClusterError):
            match fault.kind:
                case "kill broker" | "kill coordinator":
                    self.cluster.kill(broker)
                    self._chore(lambda: self._restart(broker, fault.seconds))
                case "stop broker":
                    self._chore(lambda: self._stop_and_restart(broker, fault.seconds))
                case "freeze broker" | "freeze coordinator":
                    self.cluster.pause(broker)
                    self.later(fault.seconds, lambda: self._thaw_broker(broker))
                case "slow broker":
                    self._chore(lambda: self._stutter(broker, fault.seconds))
                case _:
                    raise AssertionError(fault.kind)
        return f"broker {broker}"

    def _restart(self, broker: int, seconds: float) -> None:
        if not self._over.wait(seconds):
            self._revive(broker)
        self._busy.discard(broker)

    def _stop_and_restart(self, broker: int, seconds: float) -> None:
        with contextlib.suppress(ClusterError):
            self.cluster.stop_broker(broker, 15_000)
        self._restart(broker, seconds)

    def _thaw_broker(self, broker: int) -> None:
        with contextlib.suppress(ClusterError):
            self.cluster.resume(broker)
        self._busy.discard(broker)

    def _stutter(self, broker: int, seconds: float) -> None:
        until = time.monotonic() + seconds
        with contextlib.suppress(ClusterError):
            while time.monotonic() < until and not self._over.is_set():
                self.cluster.pause(broker)
                time.sleep(STUTTER_S[0])
                self.cluster.resume(broker)
                time.sleep(STUTTER_S[1])
        self._thaw_broker(broker)

    def _revive(self, broker: int) -> None:
        """Ensure that a broker runs and is not paused."""
        until = time.monotonic() + RECOVERY_S
        while True:
            try:
                if broker in self.cluster.running:
                    self.cluster.resume(broker)
                    return
                self.cluster.start_broker(broker)
            except ClusterError:  # another broker was killed during this start
                if self._over.is_set() or time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def _elect_preferred(self) -> None:
        """Elect the preferred replicas: a planned move, of the coordinator as well."""
        from confluent_kafka import ElectionType  # noqa: PLC0415 - only this fault needs it

        with contextlib.suppress(Exception):  # partitions that need no election raise errors
            client = self._admin()
            client.elect_leaders(ElectionType.PREFERRED, request_timeout=10).result(12)

    def _coordinator(self) -> int:
        """Return the group coordinator, from metadata alone: no request goes to a coordinator."""
        try:
            return self.cluster.leader_of("__consumer_offsets", partition_of(GROUP))
        except ClusterError:
            return 0

    # --- faults of the network ------------------------------------------------------------------

    def _on_link(self, fault: Fault) -> str | None:
        seat = self.seats[fault.target % len(self.seats)]
        links = seat.links
        one = links[fault.target // len(self.seats) % len(links)]
        hit = f"{seat.name} to all brokers"
        if fault.kind == "interface down" and (namespace := seat.namespace) is not None:
            namespace.set_up(is_up=False)
            self.later(fault.seconds, lambda: namespace.set_up(is_up=True))
            return hit
        if fault.kind.startswith("half open"):
            is_broker_gone = fault.kind.endswith("broker gone")
            self._proxy.half_open(links, "broker" if is_broker_gone else "member")
            return hit
        effects = {
            "cut off from one broker": CUT,
            "cut off from all brokers": CUT,
            "requests do not arrive": Effect(holds_requests=True),
            "answers do not arrive": Effect(holds_answers=True),
            "connections reset": Effect(refuses=True),
            "delay": Effect(delay_s=0.02 + fault.size**2),
            "loss": Effect(loss=0.05 + 0.4 * fault.size),
        }
        if fault.kind == "cut off from one broker":
            links, hit = (one,), f"{seat.name} to the broker on port {one.port}"
        self._proxy.add(links, effects[fault.kind])
        self.later(fault.seconds, lambda: self._proxy.remove(links, effects[fault.kind]))
        return hit

    # --- faults of topics -----------------------------------------------------------------------

    def _on_topic(self, fault: Fault) -> str | None:
        topics = sorted(set(self.load.topics) - {IDLE[0]})
        topic = topics[fault.target % len(topics)]
        room = PARTITIONS_MAX - len(self.load.partitions)
        if fault.kind == "topic closes":
            if len(topics) == len(TOPICS):
                return None
            self._closed.add(topic)
            self._chore(lambda: self._close_topic(topic))
        elif room <= 0:
            return None
        elif fault.kind == "topic grows":
            self._chore(lambda: self.grow(topic, self.load.topics[topic] + min(2, room)))
        else:
            self._topics_made += 1
            topic = f"chaos-{self._topics_made}"
            self._chore(lambda: self.open_topic(topic, min(4, room)))
        return topic

    def open_topic(self, topic: str, partitions: int) -> None:
        """Create a topic and begin to produce to it."""
        with contextlib.suppress(ClusterError):  # `heal` checks the result
            self.cluster.create_topic(topic, partitions, len(self.cluster.brokers))
            self.load.open(topic, partitions)

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic, and produce to all partitions."""
        with contextlib.suppress(ClusterError):
            self.cluster.add_partitions(topic, partitions)
            self.load.open(topic, partitions)

    def _close_topic(self, topic: str) -> None:
        with contextlib.suppress(ClusterError):
            if self.load.close_topic(topic):
                self.cluster.delete_topic(topic)

    def _settle_topics(self) -> None:
        """Match load and cluster: a request that timed out may have created a topic."""
        for topic, known in self._admin().list_topics(timeout=20).topics.items():
            if topic in self._closed:
                self._close_topic(topic)
            elif topic.startswith("chaos-"):
                self.load.open(topic, len(known.partitions))

    # --- inside ---------------------------------------------------------------------------------

    def _chore(self, call: Callable[[], None]) -> None:
        self._chores.append(self._pool.submit(call))

    def _addresses(self) -> Sequence[str]:
        return self.cluster.bootstrap_servers.split(",")

    def _admin(self) -> AdminClient:
        return AdminClient({**self.cluster.client_config(), "log_level": 0})

    def _keep_broker_logs(self) -> None:
        for broker in self.cluster.brokers:
            log = self.cluster.data_folder / f"broker-{broker}" / "broker.log"
            if log.exists():
                shutil.copyfile(log, self.folder / f"broker-{broker}.log")


def _places(assignment: MemberAssignment | None) -> str:
    """Return the partitions of an assignment; only groups of KIP-848 have a target."""
    partitions = [] if assignment is None else assignment.topic_partitions
    return ", ".join(f"{one.topic} [{one.partition}]" for one in partitions) or "nothing"

"""The internal topic to tables: accepted and rejected records, each of them once.

`test_follow` tests a job that is killed.
"""

from __future__ import annotations

import json
import shutil
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from coopgroup.errors import PipelineError
from coopgroup.pipeline.history import commit_records, commits_of, start_history, write_history
from coopgroup.pipeline.scope import ALL, Scope
from coopgroup.pipeline.tables import Tables
from coopgroup.pipeline.topic.codec import (
    ConsumerKey,
    ConsumerKind,
    ConsumerValue,
    GroupKey,
    GroupMember,
    GroupValue,
    OffsetKey,
    OffsetValue,
)
from coopgroup.pipeline.topic.decoding import RAW
from tests.spark.frames import rows
from tests.spark.simulated import frames_of, raw_frame
from tests.support.internal_topic import (
    MEMBER,
    encode_consumer_value,
    encode_group_value,
    encode_key,
    encode_offset_value,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VECTORS = Path(__file__).resolve().parents[2] / "protocol" / "vectors"
TABLE_NAMES = ("commits", "generations", "members", "assignments", "rejected")


def commit_record(
    at_ms: int, committed: int | None, group: str = "g", topic: str = "orders"
) -> tuple[int, bytes, bytes | None]:
    """Return a commit of partition 1, or a tombstone."""
    key = encode_key(OffsetKey(group=group, topic=topic, partition=1))
    if committed is None:
        return at_ms, key, None
    return at_ms, key, encode_offset_value(OffsetValue(committed=committed, commit_ms=at_ms))


def group_record(at_ms: int, generation: int, *members: GroupMember) -> tuple[int, bytes, bytes]:
    value = GroupValue(
        protocol_type="consumer",
        generation=generation,
        protocol="range",
        leader="a-1",
        state_ms=at_ms,
        members=members,
    )
    return at_ms, encode_key(GroupKey(group="g")), encode_group_value(value)


def test_records_become_rows_of_their_tables(spark: SparkSession) -> None:
    """A commit, a round with a member and its two partitions, and a tombstone of each kind."""
    raw = raw_frame(
        spark,
        [
            group_record(1_000, 1, MEMBER),
            commit_record(2_000, 10),
            commit_record(3_000, None),
            (4_000, encode_key(GroupKey(group="g")), None),
        ],
    )
    frames = frames_of(raw)
    assert rows(frames["commits"], "group", "topic", "partition", "at_ms", "committed") == [
        ("g", "orders", 1, 2_000, 10),
        ("g", "orders", 1, 3_000, None),
    ]
    assert rows(frames["generations"], "at_ms", "generation", "is_tombstone", "member_count") == [
        (1_000, 1, False, 1),
        (4_000, None, True, None),
    ]
    assert rows(frames["members"], "generation", "member_id", "client_host", "topics") == [
        (1, "a-1", "/10.0.0.1", ["orders"])
    ]
    assert rows(frames["assignments"], "generation", "member_id", "topic", "partition") == [
        (1, "a-1", "orders", 0),
        (1, "a-1", "orders", 2),
    ]
    assert rows(frames["rejected"]) == []


def test_what_cannot_be_read_is_kept_with_its_reason(spark: SparkSession) -> None:
    """Unknown versions, broken bytes and records without a key are in `rejected`."""
    broken = GroupMember(
        member_id="b-1",
        client_id="b",
        client_host="/10.0.0.2",
        rebalance_timeout_ms=1,
        session_timeout_ms=1,
        subscription=MEMBER.subscription,
        assignment=b"\0\0\0\0",
    )
    key = encode_key(OffsetKey(group="g", topic="orders", partition=1))
    raw = spark.createDataFrame(
        [
            (key, b"\0\x09", 0, 0, 5),
            (b"\0\x0b\0\1g", b"\0\0", 0, 1, 6),
            (None, b"x", 0, 2, 7),
            (*group_record(8, 3, MEMBER, broken)[1:], 0, 3, 8),
            (key, None, 0, 4, 9),
            (b"\0\3\0\1g", b"\0\0", 0, 5, 10),
        ],
        RAW,
    )
    frames = frames_of(raw)
    found = rows(frames["rejected"], "source_offset", "source", "part", "at_ms", "reason")
    assert [row[:4] for row in found] == [
        (0, "__consumer_offsets", "value", 5),
        (1, "__consumer_offsets", "key", 6),
        (2, "__consumer_offsets", "key", 7),
        (3, "__consumer_offsets", "assignment", 8),
        (5, "__consumer_offsets", "value", 10),
    ]
    assert "version: 9" in found[0][4]
    assert "share group" in found[1][4]
    assert "b-1" in found[3][4]
    assert rows(frames["members"], "member_id", "assigned_count") == [("a-1", 2), ("b-1", None)]
    assert len(rows(frames["commits"])) == 1


def consumer_records(*given: tuple[int, str, int | None]) -> list[tuple[int, bytes, bytes | None]]:
    """Return records (time, kind, number of the value or None) of a group, as Kafka writes them."""
    vectors = json.loads((VECTORS / "internal_topic" / "java.json").read_text())["vectors"]
    found = []
    for at_ms, name, number in given:
        (key,) = (row for row in vectors if (row["kind"], row["name"]) == ("consumer_key", name))
        values = [
            bytes.fromhex(row["hex"])
            for row in vectors
            if (row["kind"], row["name"]) == ("consumer_value", name)
        ]
        raw_key = bytes.fromhex(key["hex"]).replace("größe".encode(), b"billing")
        found.append((at_ms, raw_key, None if number is None else values[number]))
    return found


JOINED = [(10, "member", 1), (10, "regex", 0), (10, "group", 0), (10, "assignment", 0)]
LEFT: list[tuple[int, str, int | None]] = [(20, one, None) for one in ("member", "assignment")]


def test_records_of_kip_848_become_rows_of_the_same_tables(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Micro-batches continue each other. Commits name a topic that the brokers do not know."""
    tables = Tables(spark=spark, folder=str(tmp_path))
    topic_id = UUID(bytes=urlsafe_b64decode("ASNFZ4mrze8AAAAAAAAATQ=="))
    value = OffsetValue(committed=1, commit_ms=5, topic_id=topic_id)
    key = encode_key(OffsetKey(group="other", topic="orders", partition=0))
    asked = []

    def names() -> dict[str, str]:
        asked.append("names")
        return {"__________tAAAAAAAAAAA": "paid"}

    batches: list[list[tuple[int, bytes, bytes | None]]] = [
        [(5, key, encode_offset_value(value))],
        consumer_records(*JOINED[:3]),
        consumer_records(*JOINED[3:]),
        consumer_records(*LEFT, (20, "group", 1)),
    ]
    first = 0
    for batch, records in enumerate(batches):
        raw = [(*record[1:], 0, first + at, record[0]) for at, record in enumerate(records)]
        first += len(raw)
        write_history(spark.createDataFrame(raw, RAW), tables, batch, names=names)
    read = tables.current().read
    assert rows(read("generations"), "group", "at_ms", "generation", "member_count") == [
        ("billing", 10, 7, 1),
        ("billing", 10, 7, 1),
        ("billing", 20, 7, 0),
    ]
    assert rows(read("members"), "member_id", "topics", "assigned_count") == [
        ("m-1", ["orders"], 0),
        ("m-1", ["orders"], 4),
    ]
    assert rows(read("assignments"), "at_ms", "topic", "partition") == [
        (10, "orders", 0),
        (10, "orders", 1),
        (10, "orders", 3),
        (10, "paid", 0),
    ]
    assert read("consumer_records").count() == 7
    assert read("rejected").isEmpty()
    assert len(asked) == 2  # batches with owned partitions


HOUR_MS = 3_600_000
FIRST_MS, AWAY_MS = 24 * HOUR_MS, 72 * HOUR_MS


def epoch_records(at_ms: int, epoch: int, *members: str) -> list[tuple[int, bytes, bytes | None]]:
    """Return what a coordinator writes in an epoch in which all members are as they should be."""
    found = [
        (ConsumerKind.MEMBER, name, ConsumerValue(client_id=name, rebalance_timeout_ms=300_000))
        for name in members
    ]
    found += [
        (kind, "", ConsumerValue(epoch=epoch)) for kind in (ConsumerKind.GROUP, ConsumerKind.TARGET)
    ]
    found += [(ConsumerKind.ASSIGNMENT, name, ConsumerValue(epoch=epoch)) for name in members]
    return [
        (
            at_ms,
            encode_key(ConsumerKey(group="g", kind=kind, name=name)),
            encode_consumer_value(kind, value),
        )
        for kind, name, value in found
    ]


@pytest.mark.parametrize(
    ("read_ms", "second"),
    [(AWAY_MS + 2 * HOUR_MS, ["b"]), (AWAY_MS + HOUR_MS // 2, ["a", "b"])],
    ids=["known", "not known yet"],
)
def test_a_member_whose_deletion_was_compacted_is_gone_when_its_time_is_over(
    read_ms: int, second: list[str], tables: Tables
) -> None:
    """It owned nothing, so no other member can show that it is gone; only its old epoch does."""
    batches = [
        epoch_records(FIRST_MS, 1, "a", "b"),
        [*epoch_records(AWAY_MS, 2, "b"), commit_record(read_ms, 1)],
        epoch_records(read_ms + 3 * HOUR_MS, 3, "b", "c"),
    ]
    first = 0
    for batch, records in enumerate(batches):
        raw = [(*record[1:], 0, first + at, record[0]) for at, record in enumerate(records)]
        first += len(raw)
        write_history(tables.spark.createDataFrame(raw, RAW), tables, batch)
    found: dict[int, list[str]] = {}
    for at_ms, name in rows(tables.current().read("members"), "at_ms", "member_id"):
        found.setdefault(at_ms, []).append(name)
    assert [*found.values()] == [["a", "b"], second, ["b", "c"]]


def test_groups_of_spark_itself_are_left_out(spark: SparkSession) -> None:
    """Reading the topic would otherwise add to its own input."""
    own = "spark-kafka-source-1f0d-driver-0"
    raw = raw_frame(spark, [commit_record(1, 1, own), commit_record(2, 2)])
    assert rows(frames_of(raw)["commits"], "group") == [("g",)]


def test_records_of_other_groups_are_skipped_before_they_are_decoded(spark: SparkSession) -> None:
    """Also those of groups whose names begin alike, and records without a readable key."""
    value = encode_offset_value(OffsetValue(committed=1, commit_ms=1))
    named = [
        (1, encode_key(OffsetKey(group=group, topic="t", partition=0)), value)
        for group in ("a", "ab", "ü", "b", "")
    ]
    raw = raw_frame(spark, [*named, (1, b"\0\1\0", value), (1, b"", value)])

    def kept(*groups: str) -> list[str]:
        some = Scope(groups=groups).of_records(raw)
        return [name for (name,) in rows(commits_of(commit_records(some)), "group")]

    assert kept("ab") == ["ab"]
    assert kept("ü", "a") == ["a", "ü"]
    assert kept("c") == []
    assert ALL.of_records(raw).count() == len(named) + 2


# --- exactly once ---------------------------------------------------------------------------------


def write_input(
    spark: SparkSession, folder: Path, parts: int = 3, *, only_commits: bool = False
) -> None:
    """Write files of records; each file becomes a micro-batch."""
    for part in range(parts):
        first = part * 10
        records = [commit_record(first + number, number) for number in range(5)]
        if not only_commits:
            records += [group_record(first + 9, part, MEMBER), (first + 9, b"\0\x0b", None)]
        frame = raw_frame(spark, records).coalesce(1)
        frame.write.mode("append").parquet(f"file://{folder}/{part}")


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    return (
        spark.readStream.schema(RAW)
        .option("maxFilesPerTrigger", 1)
        .option("recursiveFileLookup", "true")
        .parquet(f"file://{folder}")
    )


def contents(tables: Tables) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of all tables."""
    read = tables.current().read
    return {name: rows(read(name)) for name in TABLE_NAMES}


@pytest.mark.verify
def test_a_job_that_fails_between_tables_leaves_each_row_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any failed write, the next run adds the missing rows of the batch only."""
    write_input(spark, tmp_path / "in", parts=2)
    clean = Tables(spark=spark, folder=str(tmp_path / "clean"))
    start_history(stream(spark, tmp_path / "in"), clean).awaitTermination()
    expected = contents(clean)
    assert len(expected["commits"]) == 10
    tables = Tables(spark=spark, folder=str(tmp_path / "out"))
    original = Tables._commit  # noqa: SLF001 - where a job is made to die
    written = []

    def dying(self: Tables, name: str, *others: Any) -> None:  # noqa: ANN401 - passed on
        original(self, name, *others)
        written.append(name)
        # After the second table, after the last table of the first batch, and in the second batch.
        if len(written) in {2, 7, 14}:
            raise RuntimeError("killed")

    monkeypatch.setattr(Tables, "_commit", dying)
    deaths = 0
    for _ in range(6):
        query = start_history(stream(spark, tmp_path / "in"), tables)
        try:
            query.awaitTermination()
            break
        except Exception:  # noqa: BLE001 - whatever Spark makes of it
            deaths += 1
            seen = contents(tables)
            assert all(set(seen[name]) <= set(expected[name]) for name in ("generations",))
            assert len(seen["commits"]) in {0, 5, 10}
    assert deaths == 3
    assert contents(tables) == expected


def test_a_batch_reads_its_source_once(spark: SparkSession, tmp_path: Path) -> None:
    """Though commits and groups are decoded apart, and written to several tables."""
    write_input(spark, tmp_path / "in", parts=1)
    query = start_history(
        stream(spark, tmp_path / "in"), Tables(spark=spark, folder=str(tmp_path / "out"))
    )
    query.awaitTermination()
    assert sum(one["numInputRows"] for one in query.recentProgress) == 7


@pytest.fixture
def copies(spark: SparkSession, tmp_path: Path) -> dict[str, Path]:
    """Return copies of a folder of tables: after the first batch, and after the second one."""
    found = {}
    for age in ("older", "newer"):
        write_input(spark, tmp_path / "in", parts=1)
        tables = Tables(spark=spark, folder=str(tmp_path / "out"))
        start_history(stream(spark, tmp_path / "in"), tables).awaitTermination()
        found[age] = shutil.copytree(tmp_path / "out" / "v1", tmp_path / age)
    return found


CHECKPOINT = "checkpoints/history"
NOT_KNOWN = "has rows of history that its checkpoint does not know"


@pytest.mark.verify
def test_tables_and_a_checkpoint_of_different_times_are_refused(
    spark: SparkSession, tmp_path: Path, copies: dict[str, Path]
) -> None:
    """A part of the folder is deleted, or is a copy from before the last batch.

    Records would be read again, or never. A batch without its commit is only repeated.
    """
    cases = {
        "checkpoint": ([CHECKPOINT], NOT_KNOWN),
        "offsets": ([f"{CHECKPOINT}/offsets"], NOT_KNOWN),
        "checkpoint and commits": ([CHECKPOINT, "commits"], NOT_KNOWN),
        "generations": (["generations"], "v1/generations lacks rows that history has written"),
        "commit": ([f"{CHECKPOINT}/commits"], None),
    }
    for number, (names, said) in enumerate(cases.values()):
        for age in ("deleted", "older"):
            tables = Tables(spark=spark, folder=str(tmp_path / f"{age}-{number}"))
            root = shutil.copytree(copies["newer"], tables.root)
            for name in names:
                shutil.rmtree(Path(root) / name)
                if age == "older":
                    shutil.copytree(copies[age] / name, Path(root) / name)
            if said is not None:
                with pytest.raises(PipelineError, match=said) as refused:
                    start_history(stream(spark, tmp_path / "in"), tables)
                assert "\n" not in str(refused.value)
            else:
                start_history(stream(spark, tmp_path / "in"), tables).awaitTermination()
                assert len(rows(tables.read("commits"))) == 10
                assert len(rows(tables.read("generations"))) == 2

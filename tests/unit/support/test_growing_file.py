"""Lines of files that other processes write."""

from pathlib import Path

from tests.support.growing_file import GrowingFile, whole_lines


def test_torn_line_counts_when_its_end_is_there(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    reader = GrowingFile(path)
    assert reader.read_new() == []
    path.write_bytes(b"1 2\n\n3")
    assert reader.read_new() == [b"1 2", b""]
    assert reader.read_new() == []
    with path.open("ab") as file:
        file.write(b" 4\n5")
    assert reader.read_new() == [b"3 4"]
    assert whole_lines(path) == [b"1 2", b"", b"3 4"]

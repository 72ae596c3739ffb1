"""What becomes of a final message."""

from __future__ import annotations

import pytest

from perdure.errors import UsageError
from perdure.operations.stage_options import StageOptions
from perdure.operations.stage_output import bounded_message, check_reads, output_path, receipt_text, write_message


def test_a_message_within_its_bounds_is_kept_as_it_is():
    assert bounded_message("a\nb\n", 4, 2) == "a\nb\n"


def test_too_many_bytes_or_lines_are_cut_at_the_end_with_a_mark():
    assert bounded_message("éé", 3).startswith("é\n[... cut: 2 of 4 bytes")
    assert bounded_message("a\nb\nc\nd", 100, 2).startswith("a\nb\n[... cut: 3 of 7 bytes")


@pytest.mark.parametrize("given", ["../out.md", "/elsewhere/out.md", ".", "folder", "link/out.md"])
def test_a_file_outside_the_stages_folder_is_refused(tmp_path, given):
    cwd = tmp_path / "cwd"
    (cwd / "folder").mkdir(parents=True)
    (cwd / "link").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="inside"):
        output_path(StageOptions.of({"output": given}), cwd)


def test_a_message_is_written_whole_and_receipted(tmp_path):
    path = output_path(StageOptions.of({"output": "sub/out.md"}), tmp_path)
    write_message(path, "old", "node")
    receipt = write_message(path, "new\nlinés", "node")
    assert path.read_text() == "new\nlinés"
    assert (receipt["bytes"], receipt["lines"], receipt["transcript"]) == (10, 2, "node")
    assert [p.name for p in path.parent.iterdir()] == ["out.md"]
    assert str(path) in receipt_text(receipt)


def test_every_missing_file_is_named(tmp_path):
    (tmp_path / "here.md").touch()
    with pytest.raises(UsageError, match=r"a\.md, b\.md"):
        check_reads(StageOptions.of({"reads": ["a.md", "here.md", "b.md"]}), tmp_path)

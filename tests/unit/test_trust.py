from __future__ import annotations

import pytest

from perdure.errors import ConfigInvalid
from perdure.trust import is_trusted, trust


def test_trust_covers_the_folder_and_all_below_it(tmp_path):
    data = tmp_path / "data"
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert not is_trusted(tmp_path / "a", data)
    assert trust(tmp_path / "a", data) == (tmp_path / "a").resolve()
    trust(data, data)
    assert is_trusted(tmp_path / "a" / "b", data)
    assert not is_trusted(tmp_path, data)
    assert not is_trusted(tmp_path / "ab", data)
    assert (data / "trust.json").stat().st_mode & 0o777 == 0o600


def test_a_link_is_trusted_by_where_it_leads(tmp_path):
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
    (tmp_path / "good" / "link").symlink_to(tmp_path / "bad")
    trust(tmp_path / "good", tmp_path)
    assert not is_trusted(tmp_path / "good" / "link", tmp_path)


def test_what_is_no_folder_and_a_broken_list_are_refused(tmp_path):
    with pytest.raises(ConfigInvalid, match="not a folder"):
        trust(tmp_path / "gone", tmp_path)
    (tmp_path / "trust.json").write_text("{")
    with pytest.raises(ConfigInvalid, match=r"trust\.json"):
        is_trusted(tmp_path, tmp_path)

from __future__ import annotations

import sys
import textwrap
from importlib import metadata
from pathlib import Path

import pytest

from perdure.config import load_config
from perdure.discovery import Catalog, declared_workflows, discover, split_target
from perdure.errors import DefinitionInvalid, NotTrusted, TargetAmbiguous, TargetNotFound
from perdure.loading import load_definition, load_file
from perdure.trust import trust

IMPORT = "from perdure.definitions import workflow\n"


class Project:
    """A folder with workflow files; `catalog` looks from inside it."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "project"
        self.environ = {"HOME": str(root / "home"), "PERDURE_DATA_DIR": str(root / "data")}
        (self.folder / ".perdure" / "workflows").mkdir(parents=True)

    def write(self, name: str, source: str, folder: Path | None = None) -> Path:
        path = (folder or self.folder / ".perdure" / "workflows") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(IMPORT + textwrap.dedent(source))
        return path

    def trust(self) -> None:
        trust(self.folder, load_config(self.folder, self.environ).data_dir)

    def catalog(self, explicit: str | None = None) -> Catalog:
        return discover(self.folder, load_config(self.folder, self.environ), explicit)


@pytest.fixture
def project(tmp_path):
    made = Project(tmp_path)
    made.trust()
    return made


def names(catalog: Catalog, origin: str = "project") -> list[str]:
    return [entry.name for entry in catalog.entries.values() if entry.origin == origin]


def flow(name: str, doc: str = "Do.") -> str:
    return f'@workflow\nasync def {name}(ctx, n: int = 1):\n    """{doc}"""\n'


# --- listing


def test_workflows_of_the_project_are_listed_with_their_descriptions(project):
    project.write("a.py", flow("first_one", "Says\n    something.\n\n    More.") + flow("second"))
    catalog = project.catalog()
    assert names(catalog) == ["first-one", "second"]
    assert catalog.entries["first-one"].description == "Says something."
    assert catalog.entries["first-one"].load().name == "first-one"
    assert catalog.diagnostics == []


def test_a_file_that_fails_on_import_is_one_diagnostic_with_its_line(project):
    bad = project.write("bad.py", "x = 1\nx.nothing\n" + flow("lost"))
    project.write("good.py", flow("good"))
    catalog = project.catalog()
    assert names(catalog) == ["good"]
    [diagnostic] = catalog.diagnostics
    assert (diagnostic.code, diagnostic.path, diagnostic.line) == ("IMPORT_FAILED", str(bad), 3)
    assert "AttributeError" in diagnostic.message


@pytest.mark.parametrize(
    ("source", "code", "line"),
    [
        ("def f(:\n", "IMPORT_FAILED", 2),
        ("raise SystemExit(3)\n", "IMPORT_FAILED", 2),
        ("import nothing_of_that_name\n", "IMPORT_FAILED", 2),
        ("\n@workflow\nasync def f(ctx, a): ...\n", "INVALID_DEFINITION", 3),
    ],
)
def test_each_kind_of_broken_file_is_told_with_its_line(project, source, code, line):
    project.write("bad.py", source)
    [diagnostic] = project.catalog().diagnostics
    assert (diagnostic.code, diagnostic.line) == (code, line)


def test_a_file_that_was_fixed_is_imported_anew(project):
    project.write("a.py", "1 / 0\n")
    assert project.catalog().diagnostics
    project.write("a.py", flow("fixed"))
    assert names(project.catalog()) == ["fixed"]


def test_helpers_and_tests_beside_workflows_are_not_workflow_files(project):
    for name in ("_shared.py", "test_a.py", "conftest.py"):
        project.write(name, "raise RuntimeError\n")
    assert project.catalog().diagnostics == []


def test_a_workflow_that_a_file_only_imports_is_not_listed_twice(project):
    project.write("_base.py", flow("base"))
    project.write("uses.py", "from _base import base\n" + flow("uses"))
    assert names(project.catalog()) == ["uses"]


def test_earlier_origins_hide_later_ones_with_a_warning(project):
    project.write("a.py", flow("same", "Project."))
    project.write("b.py", flow("same", "Again."))
    project.write(
        "u.py", flow("same", "User.") + flow("mine"), Path(project.environ["HOME"]) / ".config/perdure/workflows"
    )
    explicit = project.write("x.py", flow("same", "Named."), project.folder)
    assert project.catalog().entries["same"].description == "Project."
    assert [d.code for d in project.catalog().diagnostics] == ["DUPLICATE_NAME"] * 2
    assert project.catalog(f"{explicit}").entries["same"].description == "Named."
    assert names(project.catalog(), "user") == ["mine"]


def test_the_config_names_files_and_folders(project):
    project.write("a.py", flow("a"), project.folder / "flows")
    project.write("b.py", flow("b"), project.folder / "more")
    (project.folder / "perdure.toml").write_text('workflows = ["flows/a.py", "more", "gone.py"]')
    catalog = project.catalog()
    assert names(catalog) == ["a", "b"]
    assert [(d.code, d.path) for d in catalog.diagnostics] == [("PATH_NOT_FOUND", str(project.folder / "gone.py"))]


def test_installed_packages_bring_workflows(project, monkeypatch, tmp_path):
    project.write("shipped_flows.py", flow("shipped"), tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    points = [
        metadata.EntryPoint("all", "shipped_flows", "perdure.workflows"),
        metadata.EntryPoint("broken", "no_such_module:x", "perdure.workflows"),
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda group: points if group == "perdure.workflows" else [])
    catalog = project.catalog()
    assert names(catalog, "package") == ["shipped"]
    assert catalog.find("shipped").load().name == "shipped"
    assert [d.code for d in catalog.diagnostics] == ["IMPORT_FAILED"]


# --- trust


def test_files_of_an_untrusted_project_are_listed_but_never_run(tmp_path):
    project = Project(tmp_path)
    project.write("a.py", "open('ran', 'w')\n" + flow("fix_it", "Fix."))
    project.write("b.py", flow("flow_b"), project.folder / "flows")
    (project.folder / "perdure.toml").write_text('workflows = ["flows"]')
    catalog = project.catalog()
    assert names(catalog) == ["fix-it", "flow-b"]
    assert catalog.entries["fix-it"].description == "Fix."
    for name in ("fix-it", "flow-b"):
        with pytest.raises(NotTrusted, match=f"perdure trust {project.folder}"):
            catalog.find(name).load()
    assert not (project.folder / "ran").exists()
    assert not Path("ran").exists()


def test_naming_the_file_trusts_it(tmp_path):
    project = Project(tmp_path)
    project.write("a.py", flow("fix_it"))
    target = ".perdure/workflows/a.py"
    assert project.catalog(target).find(target).load().name == "fix-it"


def test_names_are_read_from_the_syntax_tree(tmp_path):
    path = tmp_path / "a.py"
    path.write_text('''
import perdure
from perdure import workflow as wf, tool
@perdure.workflow(name="By_Option", description="Given.")
async def one(ctx): ...
@wf
async def two(ctx):
    """Two
    lines.

    Rest."""
@wf(name=compute())
async def three(ctx): ...
@tool
async def no_workflow(): ...
''')
    assert declared_workflows(path) == [("by-option", "Given."), ("two", "Two lines."), ("", "")]


# --- finding


def test_finding_imports_only_the_file_that_has_the_name(project):
    project.write("a.py", "raise RuntimeError('imported')\n" + flow("other"))
    project.write("b.py", flow("wanted"))
    assert project.catalog().find("Wanted").load().name == "wanted"


def test_a_name_that_is_computed_is_found_too(project):
    project.write("a.py", "@workflow(name='com' + 'puted')\nasync def f(ctx): ...\n")
    project.write("b.py", "@globals()['workflow']\nasync def hidden(ctx): ...\n")
    assert project.catalog().find("computed").load().name == "computed"
    assert project.catalog().find("hidden").load().name == "hidden"


def test_an_unknown_name_is_refused_with_the_nearest_ones(project):
    project.write("a.py", flow("review_changes_here"))
    with pytest.raises(TargetNotFound, match="Did you mean review-changes-here") as refusal:
        project.catalog().find("review-change-here")
    assert "review-changes-here" in refusal.value.details["nearest"]
    with pytest.raises(TargetNotFound, match="perdure list"):
        project.catalog().find("zzzzzz")


def test_a_broken_file_that_has_the_name_is_what_the_refusal_is_about(project):
    bad = project.write("bad.py", "import os\n1 / 0\n" + flow("wanted"))
    project.write("u.py", flow("wanted"), Path(project.environ["HOME"]) / ".config/perdure/workflows")
    with pytest.raises(DefinitionInvalid, match=f"{bad}:3 cannot be loaded: ZeroDivisionError"):
        project.catalog().find("wanted")
    bad.write_text("def (")
    (Path(project.environ["HOME"]) / ".config/perdure/workflows/u.py").unlink()
    with pytest.raises(TargetNotFound, match=f"could not be loaded: {bad}"):
        project.catalog().find("wanted")


def test_a_name_that_a_file_takes_back_is_looked_for_further_down(project):
    project.write("a.py", flow("gone", "Deleted.") + "del gone\n")
    project.write("b.py", flow("gone", "Here."))
    assert project.catalog().find("gone").description == "Here."


def test_files_that_the_user_lists_need_no_trust(tmp_path):
    project = Project(tmp_path)
    project.write("a.py", flow("mine"), tmp_path / "flows")
    project.environ["PERDURE_WORKFLOWS"] = str(tmp_path / "flows")
    assert project.catalog().find("mine").load().name == "mine"


@pytest.mark.parametrize(
    ("target", "split"),
    [("a.py", ("a.py", None)), ("d/a.py:x", ("d/a.py", "x")), ("review", (None, "review")), ("a:b", (None, "a:b"))],
)
def test_a_target_is_a_name_or_a_file_with_a_name(target, split):
    assert split_target(target) == split


def test_a_file_target_names_one_of_its_workflows(project):
    project.write("many.py", flow("one") + flow("two_b"), project.folder)
    assert project.catalog("many.py:two_b").find("many.py:two_b").name == "two-b"
    with pytest.raises(TargetAmbiguous, match=r"many\.py:one"):
        project.catalog("many.py").find("many.py")
    with pytest.raises(TargetNotFound, match="one, two-b"):
        project.catalog("many.py:three").find("many.py:three")
    with pytest.raises(TargetNotFound, match="does not exist"):
        project.catalog("gone.py").find("gone.py")
    project.write("many.py", "1 / 0\n", project.folder / "sub")
    with pytest.raises(DefinitionInvalid, match="ZeroDivisionError"):
        project.catalog("sub/many.py").find("sub/many.py")
    with pytest.raises(TargetNotFound, match="discovering"):
        project.catalog().find("many.py")


# --- loading


def test_a_file_is_loaded_once_and_modules_beside_it_can_be_imported(project):
    project.write("_beside.py", "VALUE = 3\n")
    path = project.write("a.py", "import _beside\n@workflow\nasync def uses(ctx, n: int = _beside.VALUE): ...\n")
    before = list(sys.path)
    assert load_file(path) is load_file(path.parent / ".." / "workflows" / "a.py")
    assert load_definition(str(path), "uses").validate_inputs({}) == {"n": 3}
    assert sys.path == before
    assert load_definition(str(path), "uses").location() == str(path.resolve())


def test_a_workflow_file_named_like_a_standard_module_hides_nothing(project, monkeypatch):
    monkeypatch.delitem(sys.modules, "this", raising=False)
    monkeypatch.setattr("builtins.print", lambda *_: None)
    project.write("this.py", flow("mine"))
    path = project.write("a.py", "import this\nassert hasattr(this, 'c')\n" + flow("fine"))
    assert load_definition(str(path), "fine").name == "fine"


def test_models_in_a_workflow_file_resolve_their_own_names(project):
    path = project.write(
        "models.py",
        """
        from dataclasses import dataclass
        @dataclass
        class Point:
            x: "int"
            next: "Point | None" = None
        @workflow
        async def uses(ctx, point: "Point"): ...
        """,
    )
    [point] = load_definition(str(path), "uses").validate_stored({"point": {"x": 1, "next": {"x": 2}}}).values()
    assert point.next.x == 2


def test_a_definition_in_a_package_is_found_by_its_module(project, monkeypatch, tmp_path):
    package = tmp_path / "site" / "pkg_of_flows"
    project.write("__init__.py", "", package)
    project.write("base.py", "LIMIT = 2\n", package)
    project.write("flows.py", "from .base import LIMIT\n" + flow("packed"), package)
    monkeypatch.syspath_prepend(tmp_path / "site")
    made = load_definition("pkg_of_flows.flows", "packed")
    assert made.location() == "pkg_of_flows.flows"


def test_a_definition_that_is_gone_says_what_is_there(project):
    path = project.write("a.py", flow("now") + flow("twice") + "first = twice\n" + flow("twice"))
    with pytest.raises(TargetNotFound, match="It has: now, twice"):
        load_definition(str(path), "before")
    with pytest.raises(TargetAmbiguous):
        load_definition(str(path), "twice")
    with pytest.raises(DefinitionInvalid, match="ZeroDivisionError"):
        load_definition(str(project.write("bad.py", "1 / 0\n")), "now")
    with pytest.raises(DefinitionInvalid, match="no_such_module"):
        load_definition("no_such_module", "now")
    with pytest.raises(TargetNotFound, match="Put it back"):
        load_definition(str(path.with_name("gone.py")), "now")

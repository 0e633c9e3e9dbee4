"""docs/api.md lists all public names, including the types and exceptions that users meet."""

import ast
import builtins
import importlib
import inspect
import re
import sys

import pytest

from tests.paths import ROOT
from tests.signatures import is_ours, signature_types
from tools.api_page import PAGE, PUBLIC, page

PACKAGES = {name: importlib.import_module(name) for name in PUBLIC}
OURS = ("devicemanager", "checkpoint", "podresources")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def listed(text):
    """Return name and description of each row, by package."""
    return {
        package: re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE)
        for package, section in re.findall(r"^## `([\w.]+)`(.*?)(?=^## |\Z)", text, re.M | re.S)
    }


def test_page_lists_exactly_public_names():
    found = {
        package: sorted(name for name, _ in rows)
        for package, rows in listed(PAGE.read_text()).items()
    }
    expected = {name: sorted(package.__all__) for name, package in PACKAGES.items()}
    assert found == expected, "run python -m tools.api_page"


def test_every_public_name_has_description():
    bare = [name for rows in listed(page()).values() for name, text in rows if not text.strip()]
    assert bare == []


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_imported(name):
    package = PACKAGES[name]
    for member in package.__all__:
        value = getattr(package, member)
        if (inspect.isclass(value) or inspect.isfunction(value)) and is_ours(value):
            assert value.__name__ == member
    assert set(package.__all__) <= set(dir(package))


@pytest.mark.parametrize("name", PUBLIC)
def test_unknown_name_is_attribute_error(name):
    with pytest.raises(AttributeError, match=f"'{name}' has no attribute 'Nothing'"):
        _ = PACKAGES[name].Nothing


NOT_YET_PUBLIC: dict[str, set[str]] = {}
"""Accepted private types in public signatures, by the package that should export them or by the
reason why it does not. This list may only shrink."""


def test_types_in_public_signatures_are_public():
    """A user of a strict type checker must be able to name every argument and result.

    A member whose docstring begins with ``Internal:`` is not for users and is not checked.
    """
    members = {
        f"{package}.{member}": getattr(module, member)
        for package, module in PACKAGES.items()
        for member in module.__all__
    }
    public = [*members.values()]
    hidden = {}
    for name, member in members.items():
        for place, type_ in signature_types(name, member):
            if is_ours(type_) and not any(type_ is each for each in public):
                hidden.setdefault(type_.__name__, place)
    accepted = set().union(*NOT_YET_PUBLIC.values())
    new = {name: place for name, place in hidden.items() if name not in accepted}
    assert new == {}, "add these types to an __all__, then run python -m tools.api_page"
    assert accepted - set(hidden) == set(), "remove these unused names from NOT_YET_PUBLIC"


@pytest.mark.parametrize("name", ["checkpoint", "podresources", "devicemanager.core.types"])
def test_self_contained_package_exports_all_types_of_its_signatures(name):
    """Annotating a call of the package requires no import from another package."""
    package = PACKAGES[name]
    members = [getattr(package, member) for member in package.__all__]
    named = [type_ for member in members for _, type_ in signature_types(name, member)]
    ours = {type_ for type_ in named if is_ours(type_)}
    assert len(ours) > 5
    assert {type_.__name__ for type_ in ours if type_ not in members} == set()


def exceptions():
    """Return the names of all exceptions that modules of this project define or import."""
    for package in PACKAGES.values():
        for member in package.__all__:
            getattr(package, member)  # imports the module that defines it
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in OURS:
            for member, value in list(vars(module).items()):
                if inspect.isclass(value) and issubclass(value, BaseException):
                    yield member


def documentation(value):
    """Return the docstrings of a function, or of a class and its public members."""
    yield inspect.getdoc(value) or ""
    if inspect.isclass(value):
        for name in vars(value):
            if not name.startswith("_"):
                yield inspect.getdoc(inspect.getattr_static(value, name)) or ""


@pytest.mark.parametrize("name", PUBLIC)
def test_exceptions_in_public_docstrings_are_public(name):
    known = set(exceptions()) - set(vars(builtins))
    public = {member for package in PACKAGES.values() for member in package.__all__}
    for member in PACKAGES[name].__all__:
        for text in documentation(getattr(PACKAGES[name], member)):
            hidden = (set(re.findall(r"\b[A-Z]\w+\b", text)) & known) - public
            assert not hidden, f"{name}.{member} documents {hidden}"


def test_errors_of_starts_and_allocations_are_public():
    from devicemanager import AllocationError, DeviceManagerError, StartError, TopologyConfigError

    for error in (AllocationError, StartError, TopologyConfigError):
        assert issubclass(error, DeviceManagerError)


def imports(source):
    """Return module and name of each import; the name is None for a whole module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.stem)
def test_pages_import_public_names_only(document):
    for block in re.findall(r"^```python\n(.*?)^```$", document.read_text(), re.M | re.S):
        for module, name in imports(block):
            if module.partition(".")[0] in OURS:
                assert module in PUBLIC, f"{document.name} imports {module}"
                assert name is None or name in PACKAGES[module].__all__, f"{module}.{name}"


def test_examples_import_public_names_only():
    for program in sorted((ROOT / "examples/python").glob("*.py")):
        for module, name in imports(program.read_text()):
            if module.partition(".")[0] in OURS:
                assert name in PACKAGES[module].__all__, f"{program.name}: {module}.{name}"

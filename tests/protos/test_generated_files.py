"""The generated files agree with the .proto files."""

import ast
import re
import shutil
import types
from pathlib import Path

import pytest

from protos import deviceplugin_v1beta1, deviceplugin_v1beta1_grpc, podresources_v1

pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed: nothing to compare with")

from tests.paths import ROOT
from tools import generate_protos


@pytest.fixture(scope="module")
def contents():
    return generate_protos.generated(generate_protos.compiled())


def test_generated_files_are_up_to_date(contents):
    assert generate_protos.outdated(contents) == []


def test_every_file_is_written_by_hand_or_generated(contents):
    by_hand = {"protos/__init__.py", "protos/_pool.py", "protos/_service.py", "protos/py.typed"}
    protos = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("protos/*.proto")}
    found = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("protos/*.*")}
    assert found == by_hand | protos | set(contents)


def test_changed_field_makes_files_outdated(contents, tmp_path):
    shutil.copytree(ROOT / "protos", tmp_path / "protos")
    assert generate_protos.outdated(contents, tmp_path) == []
    proto = tmp_path / "protos/pluginregistration_v1.proto"
    proto.write_text(proto.read_text().replace("string error = 2;", "string reason = 3;"))
    changed = generate_protos.generated(generate_protos.compiled(tmp_path))
    assert generate_protos.outdated(changed, tmp_path) == [
        "protos/pluginregistration_v1.binpb",
        "protos/pluginregistration_v1.pyi",
    ]


def test_comments_of_proto_files_are_docstrings():
    stub = ast.parse((ROOT / "protos/deviceplugin_v1beta1.pyi").read_text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    assert ast.get_docstring(classes["Mount"]) == "A mount into a container."
    assert all(ast.get_docstring(node) for node in classes.values())


@pytest.mark.parametrize("module", [deviceplugin_v1beta1, podresources_v1])
def test_stubs_declare_the_fields_the_messages_have(module):
    stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
    declared = {
        node.name: sorted(name for entry in node.body for name in _field(entry))
        for node in stub.body
        if isinstance(node, ast.ClassDef)
    }
    messages = module.DESCRIPTOR.message_types_by_name
    assert declared == {name: sorted(m.fields_by_name) for name, m in messages.items()}


def test_stubs_declare_the_services_names_and_values():
    stub = ast.parse((ROOT / "protos/deviceplugin_v1beta1_grpc.pyi").read_text())
    declared: dict[str, object] = {}
    for node in stub.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            declared[node.name] = types.FunctionType
        elif isinstance(node, ast.AnnAssign):
            declared[node.target.id] = ast.literal_eval(node.value)
    assert sorted(declared) == sorted(deviceplugin_v1beta1_grpc.__all__)
    for name, value in declared.items():
        if re.fullmatch("[A-Z_]+", name):
            assert getattr(deviceplugin_v1beta1_grpc, name) == value


def _field(entry):
    if isinstance(entry, ast.AnnAssign):
        yield entry.target.id
    if isinstance(entry, ast.FunctionDef) and entry.decorator_list:
        yield entry.name

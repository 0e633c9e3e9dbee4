"""Tests of ``devicemanager.io.typed_json``."""

import ast
import subprocess
import sys

import msgspec
import pytest

from devicemanager.io import typed_json
from tests.paths import ROOT

FIRST_USE = """
import sys, threading
import msgspec
from devicemanager.io import typed_json

sys.setswitchinterval(1e-6)
for _ in range(100):
    class Inner(msgspec.Struct):
        x: int = 0

    class Outer(msgspec.Struct):
        inner: Inner
        others: list[Inner] = []
        named: dict[str, Inner] = {}

    barrier = threading.Barrier(8)

    def use(kind=Outer, number=0):
        barrier.wait()
        if number % 2:
            typed_json.decode(b'{"inner": {}}', kind)
        else:
            typed_json.convert({"inner": {}}, kind)

    threads = [threading.Thread(target=use, args=(Outer, number)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


class Point(msgspec.Struct):
    x: int


def test_values_are_decoded_and_converted():
    assert typed_json.decode(b'{"x": 1}', Point) == Point(1)
    assert typed_json.convert({"x": "2"}, Point, strict=False) == Point(2)
    with pytest.raises(msgspec.ValidationError, match=r"^Expected `int`, got `str` - at `\$\.x`$"):
        typed_json.convert({"x": "2"}, Point)
    with pytest.raises(msgspec.DecodeError, match=r"^Input data was truncated$"):
        typed_json.decode(b"{", Point)


@pytest.mark.parametrize(
    "use",
    [
        lambda kind: typed_json.decode(b'{"x": 1}', kind),
        lambda kind: typed_json.convert({"x": 1}, kind),
    ],
)
def test_only_the_first_use_of_a_type_takes_the_lock(use, monkeypatch):
    class Fresh(msgspec.Struct):
        x: int

    taken = []

    class Lock:
        def __enter__(self):
            taken.append(Fresh)

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(typed_json, "_lock", Lock())
    assert use(Fresh) == use(Fresh) == Fresh(1)
    assert taken == [Fresh]


def test_first_use_of_a_type_in_several_threads_does_not_crash():
    subprocess.run([sys.executable, "-c", FIRST_USE], check=True, timeout=60, cwd=ROOT)


def test_packages_decode_into_types_only_with_typed_json():
    unsafe = []
    for package in ("devicemanager", "checkpoint", "podresources"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            if path.name == "typed_json.py" or "msgspec" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call):
                    name = ast.unparse(node.func)
                    typed = (
                        name == "msgspec.json.decode" and len(node.keywords) + len(node.args) > 1
                    )
                    if typed or name in {"msgspec.convert", "msgspec.json.Decoder"}:
                        unsafe.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert unsafe == []

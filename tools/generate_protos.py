"""Generate modules, type stubs and descriptors of ``protos`` from the .proto files.

``python -m tools.generate_protos`` writes the files. With ``--check``, it only lists outdated
files, and exits with status 1 if there are any.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from tools import proto_modules

ROOT = Path(__file__).resolve().parent.parent


def compiled(root: Path = ROOT) -> FileDescriptorSet:
    """Compile all .proto files of ``protos``. The result includes their comments."""
    sources = sorted(path.relative_to(root).as_posix() for path in root.glob("protos/*.proto"))
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "set"
        protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}"]
        options = ["--include_source_info", f"--descriptor_set_out={out}"]
        if subprocess.run([*protoc, *options, *sources], check=False).returncode != 0:
            raise SystemExit("protoc rejected the .proto files: see its messages above")
        return FileDescriptorSet.FromString(out.read_bytes())


def generated(files: FileDescriptorSet) -> dict[str, bytes]:
    """Return the contents of the generated files by path in the repository."""
    result: dict[str, bytes] = {}
    for file in files.file:
        stem = file.name.removesuffix(".proto")
        result[stem + ".binpb"] = _stripped(file)
        for suffix, text in proto_modules.render(file).items():
            result[stem + suffix] = text.encode()
    return result


def _stripped(file: FileDescriptorProto) -> bytes:
    lean = FileDescriptorProto()
    lean.CopyFrom(file)
    # Remove comments: they are three quarters of the bytes and not needed at run time.
    lean.ClearField("source_code_info")
    return lean.SerializeToString(deterministic=True)


def outdated(contents: dict[str, bytes], root: Path = ROOT) -> list[str]:
    """Return the paths of files that are missing or outdated."""
    return [
        name
        for name, data in contents.items()
        if not (root / name).is_file() or (root / name).read_bytes() != data
    ]


def main(arguments: list[str] | None = None) -> int:
    """Write or check the files. Return 0 if all files are then up to date, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate_protos")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if outdated")
    options = parser.parse_args(arguments)
    contents = generated(compiled())
    for name in (stale := outdated(contents)):
        if options.check:
            print(f"{name}: out of date, run python -m tools.generate_protos")
        else:
            (ROOT / name).write_bytes(contents[name])
            print(f"wrote {name}")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())

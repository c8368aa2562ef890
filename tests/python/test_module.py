# SPDX-License-Identifier: Apache-2.0
"""The package itself: imports, exceptions, types."""

from __future__ import annotations

import ast
import inspect
import pathlib
import subprocess
import sys

import ckpress
import pytest
from ckpress import _core, errors

WITHOUT = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "numpy", "ml_dtypes"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import array, ckpress
assert "torch" not in sys.modules and "numpy" not in sys.modules
state = {"bytes": b"x" * 1000, "array": array.array("d", [1.5, 2]), "view": memoryview(b"abcd"), "plain": (1, None, {"a": {2}})}
path = sys.argv[1]
ckpress.save(path + "/x.ckp", state)
assert ckpress.load(path + "/x.ckp") == state
with ckpress.Checkpointer(path + "/run") as ck:
    ck.save(1, state=state)
other = {}
with ckpress.Checkpointer(path + "/run") as ck:
    assert ck.restore(state=other) == 1 and other == state
with ckpress.open(path + "/x.ckp") as f:
    assert f["array/1"][1:].tolist() == [2.0] if "array/1" in f else True
from_torch = ckpress.load(path + "/torch.ckp")
assert from_torch["t"].tolist() == [[0.0, 1.0], [2.0, 3.0]] and from_torch["dtype"] == "torch.float32", from_torch
"""


def test_without_torch_and_numpy(tmp_path):
    import torch

    ckpress.save(tmp_path / "torch.ckp", {"t": torch.arange(4.0).view(2, 2), "dtype": torch.float32})
    subprocess.run([sys.executable, "-c", WITHOUT, str(tmp_path)], check=True)


def test_import_is_light():
    code = "import sys, ckpress; sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'ml_dtypes')))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_status_has_a_class():
    for status, cls in errors.BY_STATUS.items():
        assert _core.status_name(status) != "unknown"
        e = errors.from_status(status, _core.status_name(status), 28, "what happened", "f.ckp", "w", 7)
        assert type(e) is cls and str(e) == "what happened" and (e.status, e.file, e.tensor, e.offset) == (status, "f.ckp", "w", 7)
        if isinstance(e, OSError):
            assert e.errno == 28
    header = pathlib.Path(__file__).parents[2] / "include/ckpress/base.h"
    known = {
        int(line.split("=")[1].split(",")[0].split("/")[0])
        for line in header.read_text().splitlines()
        if line.strip().startswith("CKP_E") and "= -" in line
    }
    assert known == set(errors.BY_STATUS)


def test_everything_public_is_documented():
    for name in ckpress.__all__:
        obj = getattr(ckpress, name)
        if inspect.isclass(obj) or inspect.isfunction(obj):
            assert obj.__doc__ and obj.__doc__.strip(), name
            for attr, member in vars(obj).items() if inspect.isclass(obj) else ():
                if (
                    not attr.startswith("_")
                    and (inspect.isfunction(member) or isinstance(member, property))
                    and attr not in ("name", "shape", "ndim")
                ):
                    assert inspect.getdoc(getattr(obj, attr)), f"{name}.{attr}"


def test_stub_names_what_the_module_has():
    stub = ast.parse((pathlib.Path(ckpress.__file__).parent / "_core.pyi").read_text())
    declared, members = set(), {}
    for node in stub.body:
        if isinstance(node, ast.FunctionDef):
            declared.add(node.name)
        elif isinstance(node, ast.ClassDef):
            declared.add(node.name)
            members[node.name] = {n.name for n in node.body if isinstance(n, ast.FunctionDef)} - {"__init__", "__len__"}
        elif isinstance(node, ast.AnnAssign):
            declared.add(node.target.id)
    assert declared == {n for n in vars(_core) if not n.startswith("__")}
    for cls, names in members.items():
        assert names == {n for n in vars(getattr(_core, cls)) if not n.startswith("__")}, cls


def tree_of_a_tensor_that_is_not_there():
    state = _core.State()
    state.put_tensor(0, 0)
    _core.save("x.ckp", state, (0, 1.0, 0, 0, 0), None, True, None)


def test_abi():
    assert ".abi3." in _core.__file__ and (pathlib.Path(ckpress.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize(
    "call",
    [
        lambda: _core.State(1),
        lambda: _core.State().add("x", 0, "f33", (1,), None, b"1234"),
        lambda: _core.State().add("x", 0, "f32", (2,), None, b"1234"),
        lambda: _core.State().add("x", 0, "f32", (1 << 40, 1 << 40), None, b"1234"),
        lambda: _core.State().add("x", 0, "f32", (1,), (1, 2), b"1234"),
        lambda: _core.State().add("x", 0, "f32", [1], None, b"1234"),
        lambda: _core.State().add("x", 0, "f32", (-1,), None, b"1234"),
        lambda: _core.State().add("x", 0, "f32", (1,), None, 0),
        lambda: _core.State().add("", 0, "f32", (1,), None, b"1234"),
        lambda: _core.State().put(99),
        lambda: _core.State().put_int(1 << 63),
        lambda: tree_of_a_tensor_that_is_not_there(),
        lambda: _core.Checkpoint(),
        lambda: _core.ObjectBytes(),
        lambda: _core.list_run(object()),
        lambda: _core.save("/x", 1, (0, 1.0, 0, 0, 0), None, True, None),
        lambda: _core.open_file("/x", [1]),
        lambda: _core.Run("/proc/no", (0, 1.0, 0, 0, 0, {}), 1, (0, 0, 0, None, False, 0), False, 60, None),
    ],
)
def test_misuse_of_the_core_is_an_exception(call):
    with pytest.raises((TypeError, ValueError, OverflowError, OSError, ckpress.Error)):
        call()


def test_readme_runs(tmp_path, monkeypatch):
    """The Python of the README, as it stands there."""
    import re

    import torch
    from helpers import steps, training

    monkeypatch.chdir(tmp_path)
    readme = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
    model, optimizer, scheduler = training()
    names = {
        "model": model,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "batches": [torch.randint(0, 64, (32,)) for _ in range(4)],
        "train_one_step": lambda: steps(model, optimizer, scheduler, 1)[0],
    }
    weights = tmp_path / "all-MiniLM-L6-v2" / "model.safetensors"
    weights.parent.mkdir()
    pytest.importorskip("safetensors.torch").save_model(model, str(weights))
    code = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert code
    for block in code:
        exec(compile(block, "README.md", "exec"), names)

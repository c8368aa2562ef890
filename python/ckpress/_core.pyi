# SPDX-License-Identifier: Apache-2.0
# The C module, for type checkers; tests/python/test_module.py compares its names with the real one.
import os
from collections.abc import Callable
from typing import Any

Place = Any  # a path, or a ckpress._url.Store
Config = tuple[int, int, float, int, float]  # bins, bins_embedding, prune, prune_by, protect

class State:
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def add(
        self,
        name: str,
        role: int,
        dtype: str,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        memory: Any,
        owner: str | None = ...,
        lossless: bool = ...,
        keep: Any = ...,
        /,
    ) -> int: ...
    def add_absent(self, name: str, dtype: str, shape: tuple[int, ...], /) -> int: ...
    def set_adam(self, owner: str, beta1: float, beta2: float, step: int, /) -> None: ...
    def put(self, type: int, count: int = ..., /) -> None: ...
    def put_int(self, value: int, /) -> None: ...
    def put_float(self, value: float, /) -> None: ...
    def put_complex(self, re: float, im: float, /) -> None: ...
    def put_data(self, type: int, data: bytes, name: str | None = ..., /) -> None: ...
    def put_tensor(self, index: int, as_: int, /) -> None: ...

class ObjectBytes:
    def __len__(self) -> int: ...
    def read(self, offset: int, n: int, /) -> bytes: ...

class Run:
    def __init__(
        self,
        dir: Place,
        coding: tuple[int, float, int, int, int, dict[str, float] | None, int],
        key_every: int,
        rules: tuple[int, int, int, str | None, bool, int],
        skip_when_busy: bool,
        lock_seconds: int,
        base: str | bytes | os.PathLike[str] | None,
        target_bits: float = 0.0,
        group: Any = None,
        memory: int = -1,
        /,
    ) -> None: ...
    def save(
        self,
        step: int,
        state: State,
        final: bool = ...,
        key: bool = ...,
        wait: bool = ...,
        metrics: dict[str, float] | None = ...,
        quality: float = ...,
        dynaquant: tuple[Any, ...] | None = ...,
        alike: int = ...,
        /,
    ) -> bool: ...
    def stage(
        self,
        step: int,
        state: State,
        key: bool = ...,
        metrics: dict[str, float] | None = ...,
        quality: float = ...,
        dynaquant: tuple[Any, ...] | None = ...,
        /,
    ) -> bool | None: ...
    def restage(self, state: State, quality: float, /) -> None: ...
    def restage_dynaquant(self, state: State, dynaquant: tuple[Any, ...], /) -> None: ...
    def staged_bytes(self, role: int, /) -> int: ...
    def staged_read(self, targets: list[tuple[Any, ...]], /) -> None: ...
    def commit(self, metrics: dict[str, float] | None = ..., /) -> None: ...
    def unstage(self) -> None: ...
    def wait(self) -> None: ...
    def keep_memory(self) -> None: ...
    def close(self) -> None: ...
    def refuse(self, step: int, status: int, text: str, /) -> None: ...
    def agree(self, status: int, text: str, /) -> None: ...
    def open(self, step: int, all: bool = ..., /) -> Checkpoint: ...
    def adopt(self, checkpoint: Checkpoint, /) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    @property
    def busy(self) -> bool: ...
    @property
    def closed(self) -> bool: ...

class Checkpoint:
    def __len__(self) -> int: ...
    def close(self) -> None: ...
    def info(self) -> dict[str, Any]: ...
    def notes(self) -> str: ...
    def tensor(self, index: int, /) -> dict[str, Any]: ...
    def find(self, name: str, /) -> int | None: ...
    def tree(self) -> list[tuple[Any, ...]]: ...
    def hold(self, max_bytes: int, /) -> None: ...
    def read(self, targets: list[tuple[Any, ...]], threads: int = ..., /) -> None: ...
    def read_range(self, index: int, first: int, count: int, memory: Any, /) -> None: ...
    @property
    def closed(self) -> bool: ...

class Optim:
    def __init__(self, threads: int, /) -> None: ...
    def adamw(self, settings: list[tuple[Any, ...]], tensors: list[tuple[Any, ...]], /) -> list[tuple[float, float, int, int]]: ...
    def momentum(self, settings: list[tuple[Any, ...]], tensors: list[tuple[Any, ...]], /) -> list[tuple[float, float, int, int]]: ...
    @staticmethod
    def state_bytes(numel: int, cols: int, bits: int, /) -> int: ...
    @staticmethod
    def unpack(code: int, packed: int, numel: int, cols: int, bits: int, is_signed: bool, /) -> None: ...
    @staticmethod
    def pack(packed: int, code: int, numel: int, cols: int, bits: int, /) -> None: ...
    @staticmethod
    def read(state: tuple[Any, ...], m: int, v: int, /) -> None: ...
    @staticmethod
    def write(state: tuple[Any, ...], seed: int, id: int, step: int, m: int, v: int, /) -> None: ...

class Search:
    def __init__(
        self,
        neighbourhood: bool,
        loss_live: float,
        epsilon: float,
        last: Config | None,
        group: int,
        radius: int,
        sensitivity: bool,
        embeddings: bool,
        sizes: list[int] | None,
        /,
    ) -> None: ...
    def ask(self) -> list[Config]: ...
    def tell(self, results: list[tuple[float, int]], /) -> None: ...
    def best(self) -> tuple[Config, float, int, bool] | None: ...
    def stats(self) -> dict[str, int]: ...
    def why(self) -> str: ...
    @staticmethod
    def grid() -> list[Config]: ...
    @property
    def done(self) -> bool: ...

def open_run(
    dir: Place, step: int, verify_payload: bool, base: str | bytes | os.PathLike[str] | None = ..., /
) -> Checkpoint: ...
def prune(dir: Place, rules: tuple[int, int, int, str | None, bool, int], dry_run: bool, /) -> dict[str, Any]: ...
def export_to(
    checkpoint: Checkpoint, dir: str | bytes | os.PathLike[str], name: str, kind: int, only: str | None, max_file_bytes: int, replace: bool,
    threads: int, progress: Any, /
) -> tuple[str, int, int, int, int]: ...
def import_run(
    dir: str | bytes | os.PathLike[str], files: Any, steps: tuple[int, ...] | None, in_order: bool, coding: Any, progress: Any, /
) -> list[tuple[str, int, int, int]]: ...
def rewrite(
    dir: str | bytes | os.PathLike[str], step: int | None, older_than: int, dry_run: bool, base: str | bytes | os.PathLike[str] | None, threads: int,
    progress: Any, /
) -> dict[str, Any]: ...
def repair(dir: str | bytes | os.PathLike[str], dry_run: bool, remove: bool, data: bool, progress: Any, /) -> dict[str, Any]: ...
def copy_run(
    dir: str | bytes | os.PathLike[str],
    dest: str | bytes | os.PathLike[str],
    steps: tuple[int, ...],
    newest: bool,
    dry_run: bool,
    progress: Callable[[int, int], Any] | None,
    /,
) -> dict[str, Any]: ...
def open_file(path: str | bytes | os.PathLike[str], bases: Any, /) -> Checkpoint: ...
def save(
    path: str | bytes | os.PathLike[str],
    state: State,
    coding: tuple[int, float, int, int, int, dict[str, float] | None, int],
    base: Checkpoint | None,
    replace: bool,
    progress: Callable[[int, int], Any] | None,
    /,
) -> None: ...
def compress(
    src: str | bytes | os.PathLike[str],
    dst: str | bytes | os.PathLike[str],
    coding: tuple[int, float, int, int, int, dict[str, float] | None, int],
    bases: Any,
    replace: bool,
    progress: Callable[[int, int], Any] | None,
    /,
) -> dict[str, Any]: ...
def decompress(
    src: str | bytes | os.PathLike[str],
    dst: str | bytes | os.PathLike[str],
    coding: tuple[int, float, int, int, int, dict[str, float] | None, int],
    bases: Any,
    replace: bool,
    progress: Callable[[int, int], Any] | None,
    only: str | None = ...,
    /,
) -> dict[str, Any]: ...
def plan(
    source: State | str | bytes | os.PathLike[str],
    coding: tuple[int, float, int, int, int, dict[str, float] | None, int],
    target: int,
    value: float,
    scores: dict[str, float] | None,
    encodes: int,
    progress: Callable[[int, int], Any] | None,
    /,
) -> dict[str, Any]: ...
def export(checkpoint: Checkpoint, dst: str | bytes | os.PathLike[str], coding: tuple[Any, ...], replace: bool, progress: Any, only: str | None = ..., /) -> dict[str, Any]: ...
def verify(
    path: Place, bases: Any, level: int, threads: int, share: float, seed: int, max_seconds: float,
    findings: list[tuple[str, int, str]], progress: Any, /
) -> dict[str, Any]: ...
def salvage(
    src: str | bytes | os.PathLike[str], bases: Any, out: str | bytes | os.PathLike[str], replace: bool, /
) -> list[tuple[str, int, int]]: ...
def list_run(dir: Place, /) -> list[dict[str, Any]]: ...
def dtype_bits(name: str, /) -> int: ...
def status_name(status: int, /) -> str: ...

version: str
NONE: int
FALSE: int
TRUE: int
INT: int
BIGINT: int
FLOAT: int
COMPLEX: int
STR: int
BYTES: int
LIST: int
TUPLE: int
DICT: int
ORDERED_DICT: int
SET: int
FROZENSET: int
TORCH_SIZE: int
DTYPE: int
DEVICE: int
NUMPY_SCALAR: int
TENSOR: int
NAMED: int
BYTEARRAY: int
AS_TORCH: int
AS_TORCH_PARAMETER: int
AS_NUMPY: int
AS_TORCH_REQUIRES_GRAD: int
AS_PYTHON_BYTES: int
AS_PYTHON_INTS: int
AS_SPARSE_PART: int
OTHER: int
WEIGHT: int
MASTER: int
COPY: int
M: int
V: int
MOMENTUM: int
AVERAGE: int
PROFILE_LOSSLESS: int
PROFILE_RESUME: int
PROFILE_SMALL: int
PROFILE_WEIGHTS: int
STATES_PROFILE: int
STATES_CLUSTER: int
STATES_CODEBOOK: int
VERIFY_STRUCTURE: int
VERIFY_DATA: int
VERIFY_DECODE: int

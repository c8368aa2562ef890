# SPDX-License-Identifier: Apache-2.0
"""Whole states to and from one file or run: ``save``, ``load``, ``open`` and the checks and conversions of files."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Union

from . import _core
from ._coding import OptimizerStates, Profile, coding, whole
from ._collect import Collector, rounding_of
from ._decode import AS_BUFFER, Leaf, Named, build, leaves, parse
from ._lazy import LazyTensor
from ._tensors import builder, check_framework, read_all
from ._url import Storage, Store, is_url, local, place, run_and_step
from .errors import Error, FormatError, InvalidError, UnsupportedError, make

PathLike = Union[str, "os.PathLike[str]"]
Progress = Callable[[int, int], Any]
Framework = Literal["torch", "numpy", "buffer"]
Stored = Union[Storage, Mapping[str, Any], None]


def _bases(base: PathLike | Sequence[PathLike] | None) -> tuple[str, ...]:
    if base is None:
        return ()
    return (os.fspath(base),) if isinstance(base, (str, os.PathLike)) else tuple(os.fspath(b) for b in base)


_TORCH = "a file of torch.save (or a pickle): torch.load() reads it, ckpress.compress() makes a .ckp file of it"
_HINTS = [
    (b"\x80", _TORCH),
    (b"\x93NUMPY", "an array of numpy.save: numpy.load() reads it"),
    (b"\x89HDF", "an HDF5 file"),
    (b"GGUF", "a GGUF file"),
    (b"{", "JSON, as beside the checkpoints of a run: give the run's directory"),
]


def _hint(path: str) -> str | None:
    """What a file that is no .ckp file seems to be, by its first bytes, and what reads it."""
    try:
        with builtins.open(path, "rb") as f:
            head = f.read(64)
    except OSError:
        return None
    if head.startswith(b"PK\3\4"):
        return "a .npz archive: numpy.load() reads it" if path.endswith(".npz") else _TORCH
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= 100_000_000:  # the cap of safetensors' own reader
        return "a safetensors file: safetensors reads it, ckpress.compress() makes a .ckp file of it"
    return next((what for magic, what in _HINTS if head.startswith(magic)), None)


def _open_file(name: str, bases: tuple[str, ...]) -> Any:
    try:
        return _core.open_file(name, bases)
    except FormatError as e:
        hint = _hint(e.file or name)
        if hint is not None:
            e.args = (f"{e}; it looks like {hint}",)
        raise


def open_checkpoint(
    path: PathLike, base: PathLike | Sequence[PathLike] | None = None, *, verify: bool = True, storage: Stored = None
) -> Any:
    """An open ``_core.Checkpoint`` of a file, a run (its newest valid one) or ``run@step``."""
    name = os.fspath(path)
    run = _in_run(name, storage)
    if run is not None:
        return _core.open_run(*run, verify, _base_model(base))
    file = place(name, storage)
    assert isinstance(file, str)
    return _open_file(file, _bases(base))


def _base_model(base: PathLike | Sequence[PathLike] | None) -> str | None:
    """The one file that a run may need."""
    bases = _bases(base)
    if len(bases) > 1:
        raise make(InvalidError, f"a run has one base model, not {len(bases)}")
    return bases[0] if bases else None


def run_place(path: PathLike, storage: Stored) -> str | Store:
    """A run, not one of its steps."""
    where = place(path, storage)
    if isinstance(where, Store) and where.url.endswith(".ckp"):
        raise make(UnsupportedError, f"{where.url}: behind a URL a run can be read, a single file cannot: copy it here first")
    return where


def _in_run(name: str, storage: Stored = None) -> tuple[str | Store, int] | None:
    """Place and step (-1: the newest) of ``run`` or ``run@step``; None for a file."""
    if is_url(name):
        url, number = run_and_step(name)
        where = run_place(url, storage)
        if isinstance(where, Store):
            whole = run_place(name, storage) if number >= 0 else where
            if whole is not where and isinstance(whole, Store) and whole.is_run():  # its own name ends so
                return whole, -1
            return where, number
        name = os.fspath(local(name))
    if os.path.isdir(name):
        return name, -1
    run, at, step = name.rpartition("@")
    if at and step.isascii() and step.isdigit() and not os.path.lexists(name) and os.path.isdir(run):
        return run, int(step)
    return None


def raw_tree(ck: Any) -> Any:
    """The tree with leaves; of a checkpoint without one (a bare table, a safetensors file) a dict of its tensors by name."""
    nodes = ck.tree()
    raw = parse(nodes, len(ck)) if nodes else None
    if not nodes or (isinstance(raw, Named) and raw.name == "safetensors"):
        return {ck.tensor(i)["name"]: Leaf(i, _core.AS_TORCH) for i in range(len(ck))}
    return raw


def save(
    path: PathLike,
    obj: Any,
    *,
    profile: Profile = "lossless",
    quality: float = 1.0,
    effort: int = 0,
    threads: int = 0,
    memory_budget: int | str | None = None,
    base: PathLike | File | None = None,
    steps: Mapping[str, float] | None = None,
    optimizer_states: OptimizerStates = "profile",
    overwrite: bool = True,
    progress: Progress | None = None,
) -> None:
    """Saves an object to one ``.ckp`` file: written beside it, synced and renamed, so the old file is whole until the new one is.

    Args:
        path: the file.
        obj: anything made of dicts, lists, tuples, sets, plain values, torch tensors, numpy arrays, buffers; live modules and
            optimizers may be in it (:func:`load` gives their state as dicts, a module's as its ``state_dict()``, an optimizer's with
            parameters by name), and only their weights and moments are coded lossily by a lossy ``profile``.
        profile: ``"lossless"`` (every bit comes back), ``"resume"``, ``"small"``, ``"weights"``.
        quality: scales the steps of lossy weights: 0.5 is twice as fine. At 0.2 and below first moments are finer too.
        effort: 0 fast, 1 normal, 2 smallest; lossless coding only.
        threads: 0: one a processor.
        memory_budget: bytes of extra memory; None: by the size of the state.
        base: a checkpoint to make a delta against; it is needed to read the file again.
        steps: for a lossy ``profile``, the steps of weights by the names of their tensors (the names that :func:`open` shows), in units of
            the weight; 0 keeps one lossless. What is not named gets the profile's. A tensor of f32, bf16 or f16 that is named may be lossy
            wherever it stands, also in a ``state_dict``. Without optimizer state all elements have that step, and values ``k * step`` (whole k
            from -127 to 127, as float32) come back exactly; with it, elements' steps follow the moments within 1/4 and 3/2 of it.
        optimizer_states: beside lossless weights, what becomes of float32 moments of 4096 elements or more: ``"cluster"``, 16 bits a value (one of 256
            clusters, and 8 bits within it), ``"codebook"``, 8 bits (the cluster's mean), both before lossless coding. BitSnap's way, to compare with
            ``profile="resume"`` (docs/quality.md, "Clusters").
        overwrite: replace an existing file.
        progress: called with bytes done and bytes in all; may raise to stop.

    Raises:
        UnsupportedError: a value that would not come back as it is, named by its path; nothing was written.
        InvalidError: a lossy profile and nothing in ``obj`` that may be lossy; a step for a tensor that ``obj`` does not have.
        OSError: the file system refuses; the old file is untouched.
    """
    path = local(path)
    options = coding(profile, quality, threads, effort, memory_budget, steps, optimizer_states)
    collector = Collector(obj, **rounding_of(profile), steps=steps)
    collector.value(obj, ())
    if profile != "lossless" and not collector.lossy_possible:
        text = f"profile {profile!r} needs the live module (and optimizer) in the object: in a state_dict no tensor says what it is"
        raise make(InvalidError, text)
    if optimizer_states != "profile" and not collector.moments:
        raise make(InvalidError, f"optimizer_states={optimizer_states!r} needs the live optimizer in the object: in a state_dict no tensor says what it is")
    state = collector.done(1)
    if base is None or isinstance(base, File):
        _core.save(path, state, options, None if base is None else base.checkpoint, overwrite, progress)
        return
    ck = open_checkpoint(base)
    try:
        _core.save(path, state, options, ck, overwrite, progress)
    finally:
        ck.close()


def load(
    path: PathLike,
    *,
    base: PathLike | Sequence[PathLike] | None = None,
    framework: Framework | None = None,
    device: Any = None,
    threads: int = 0,
    storage: Stored = None,
) -> Any:
    """Loads what was saved: an object like the one given to :func:`save` (modules and optimizers as their state), or of a run a dict of
    its objects by name.

    Nothing is unpickled, imported or executed on the word of the file.

    Args:
        path: a ``.ckp`` file, a run directory (its newest valid checkpoint), or ``"runs/gpt@12000"`` (that step); a run also by its URL
            (``"s3://bucket/gpt@12000"``).
        storage: of a URL: as for :class:`Checkpointer`.
        base: the file or files that a delta file was made against; of a run its base model, if that is no longer where training found it.
        framework: ``"torch"``, ``"numpy"`` or ``"buffer"``; None: as saved, else what is installed.
        device: move torch tensors there.
        threads: 0: one a processor.

    Raises:
        NotFoundError, CorruptError, TruncatedError, BaseMismatchError: with file, tensor and offset.
        FormatError: no .ckp file; the message says what it looks like and what reads it.
    """
    with open(path, base=base, framework=framework, storage=storage) as f:
        return f.load(device=device, threads=threads)


def open(
    path: PathLike, *, base: PathLike | Sequence[PathLike] | None = None, framework: Framework | None = None, storage: Stored = None
) -> File:
    """Opens a file or run for reading parts of it; arguments as for :func:`load`."""
    check_framework(framework)
    return File(open_checkpoint(path, base, storage=storage), framework)


class File(Mapping[str, LazyTensor]):
    """An open checkpoint: a mapping from names to tensors that are read when asked for.

    ``f["wte.weight"][1000:1010]`` reads and decodes only the chunks that hold those rows. Safe to use from several threads.
    """

    def __init__(self, checkpoint: Any, framework: str | None) -> None:
        self.checkpoint = checkpoint
        self._framework = framework
        self._names = [checkpoint.tensor(i)["name"] for i in range(len(checkpoint))]
        self._tree: Any = None
        self._kinds: dict[int, int] | None = None  # what the tree wants of each tensor

    def __getitem__(self, name: str) -> LazyTensor:
        index = self.checkpoint.find(name)
        if index is None:
            raise KeyError(name)
        return LazyTensor(self.checkpoint, index, self._as().get(index, _core.AS_TORCH), self._framework)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _raw(self) -> Any:
        if self._tree is None:
            self._tree = raw_tree(self.checkpoint)
        return self._tree

    def _as(self) -> dict[int, int]:
        if self._kinds is None:
            self._kinds = {leaf.index: leaf.as_ if leaf.as_ != AS_BUFFER else _core.AS_NUMPY for leaf in leaves(self._raw())}
        return self._kinds

    def load(self, *, device: Any = None, threads: int = 0) -> Any:
        """Everything, as :func:`load` gives it."""
        raw = self._raw()
        made = read_all(self.checkpoint, leaves(raw), self._framework, whole("threads", threads, 0, 1024))
        return build(raw, builder(made, device))

    @property
    def info(self) -> dict[str, Any]:
        """Step, lineage, profile, sizes in bytes; of a run's checkpoint metrics and settings, else none."""
        return dict(self.checkpoint.info())

    @property
    def tensors(self) -> dict[str, dict[str, Any]]:
        """What each tensor is and what it takes, by name: ``role``, ``dtype``, ``shape``, ``raw_bytes``, ``stored_bytes``, ``bits_per_element``, ``codec`` (how its first piece
        was coded), ``lossy`` with the errors that were recorded, and whose it is: ``owner``, ``alias_of`` and ``copy_of`` are names, or None."""
        rows = [dict(self.checkpoint.tensor(i)) for i in range(len(self.checkpoint))]
        for row in rows:
            row.update({k: None if row[k] is None else self._names[row[k]] for k in ("owner", "alias_of", "copy_of")})
        return {row["name"]: row for row in rows}

    def close(self) -> None:
        """Closes the file; lazy tensors can no longer be read. Closing twice is fine."""
        self.checkpoint.close()

    def __enter__(self) -> File:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<ckpress.File, closed>" if self.checkpoint.closed else f"<ckpress.File {self.info['name']!r}, {len(self)} tensors>"


class Finding(NamedTuple):
    """One thing that :func:`verify` found: the file, tensor or place, and what is wrong with it (None: it is whole)."""

    what: str
    error: str | None


class Verified(list[Finding]):
    """What :func:`verify` looked at, newest checkpoint first; as a list, what it reports beside damage.

    Attributes:
        checkpoints: in the run. ``looked_at``: of these, to the end; ``whole``: of these, with nothing wrong in it or in what it needs.
        chunks, bytes: read and checked, of ``stored_bytes`` of all files. ``seed`` takes the same sample again. ``out_of_time``: it ended early.
    """

    checkpoints: int
    looked_at: int
    whole: int
    chunks: int
    bytes: int
    stored_bytes: int
    out_of_time: bool
    seed: int


def verify(
    path: PathLike,
    *,
    base: PathLike | Sequence[PathLike] | None = None,
    level: Literal["structure", "data", "decode"] = "data",
    threads: int = 0,
    share: float = 1.0,
    seed: int | None = None,
    max_seconds: float = 0.0,
    progress: Progress | None = None,
    storage: Stored = None,
) -> Verified:
    """Checks a ``.ckp`` file or every checkpoint of a run.

    Args:
        path: a file, a run's directory or its URL.
        level: ``"structure"`` (lengths, tables, indexes), ``"data"`` (and hashes of what is stored; the default here, while the command
            ``ckpress verify`` needs ``--data``), ``"decode"`` (and of every decoded chunk).
        share: of the chunks of each file whose data is checked: a sample, another one each time unless ``seed`` is given.
        max_seconds: then it ends, newest checkpoints being first; 0: no limit.
        progress: called with bytes done and bytes in all; may raise to stop.
        storage: of a URL: as for :class:`Checkpointer`.

    Returns:
        how far it came; as a list, a finding for each thing that the library reports and that is no error.

    Raises:
        Error: of the class of the first thing that is wrong; ``findings`` has all.
    """
    levels = {"structure": _core.VERIFY_STRUCTURE, "data": _core.VERIFY_DATA, "decode": _core.VERIFY_DECODE}
    if level not in levels:
        raise make(InvalidError, f"level must be one of {', '.join(levels)}, not {level!r}")
    found: list[tuple[str, int, str]] = []
    seed = int.from_bytes(os.urandom(4), "little") if seed is None else whole("seed", seed, 0, (1 << 64) - 1)
    try:
        done = _core.verify(run_place(path, storage), _bases(base), levels[level], threads, float(share), seed, float(max_seconds), found, progress)
    except Error as e:
        e.findings = _findings(found)  # type: ignore[attr-defined]
        raise
    result = Verified(_findings(found))
    result.__dict__.update(done, seed=seed)
    return result


def _findings(found: list[tuple[str, int, str]]) -> list[Finding]:
    return [Finding(what, text if status != 0 else None) for what, status, text in found]


class Salvaged(NamedTuple):
    """What is left of one tensor, in elements."""

    tensor: str
    have: int
    of: int


def salvage(path: PathLike, out: PathLike, *, base: PathLike | Sequence[PathLike] | None = None, overwrite: bool = False) -> list[Salvaged]:
    """Writes what a damaged file still holds as safetensors files into the directory ``out``."""
    return [Salvaged(*row) for row in _core.salvage(path, _bases(base), out, overwrite)]


class Converted(NamedTuple):
    """What a conversion did: sizes in bytes, tensors, the kind of the foreign file, and what the user should know."""

    in_bytes: int
    out_bytes: int
    tensors: int
    kind: str
    notices: list[str]


def compress(
    src: PathLike,
    dst: PathLike | None = None,
    *,
    profile: Profile = "lossless",
    quality: float = 1.0,
    effort: int = 0,
    threads: int = 0,
    memory_budget: int | str | None = None,
    base: PathLike | Sequence[PathLike] | None = None,
    steps: Mapping[str, float] | None = None,
    optimizer_states: OptimizerStates = "profile",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Compresses a safetensors or PyTorch file; ``dst`` None: the same name with ``.ckp``. ``steps`` and ``optimizer_states`` are as for :func:`save`.

    A pickle in the file is read by an allow-list machine and never executed.

    Raises:
        UnsafeError: the pickle asks for something else than tensors and plain values.
    """
    target = os.path.splitext(os.fspath(src))[0] + ".ckp" if dst is None else dst
    options = coding(profile, quality, threads, effort, memory_budget, steps, optimizer_states)
    return Converted(**_core.compress(src, target, options, _bases(base), overwrite, progress))


def decompress(
    src: PathLike,
    dst: PathLike,
    *,
    threads: int = 0,
    memory_budget: int | str | None = None,
    base: PathLike | Sequence[PathLike] | None = None,
    only: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    storage: Stored = None,
) -> Converted:
    """The way back: a file that came from safetensors byte for byte, anything else as ``.pt`` (or safetensors if ``dst`` ends so).

    Args:
        src: a ``.ckp`` file, a run's directory or URL (its newest whole checkpoint) or ``"run@step"``.
        dst: the file to write.
        only: just the tensors of one object of a run, by their own names: ``"model"`` makes a file that ``model.load_state_dict`` takes. Without plain values.
        base: of a delta file: its base, and the base's own bases, nearest first; of a run its base model, if that was moved.

    Raises:
        NotFoundError, CorruptError, TruncatedError, BaseMismatchError: with file, tensor and offset; ExistsError: ``dst``, without ``overwrite``.
    """
    options = coding("lossless", 1.0, threads, 0, memory_budget)
    run = _in_run(os.fspath(src), storage)
    if run is not None:
        ck = _core.open_run(*run, False, _base_model(base))
        try:
            return Converted(**_core.export(ck, dst, options, overwrite, progress, only))
        finally:
            ck.close()
    return Converted(**_core.decompress(local(src), dst, options, _bases(base), overwrite, progress, only))


class Listed(NamedTuple):
    """One checkpoint of a run; sizes in bytes, ``metrics`` as save() was given them.

    ``settings``: what a lossy save was coded with (docs/runs.md): quality, step of the weights in their RMS, movement, threshold of m ...;
    ``base_model``: of a key, the file that it is predicted from. ``parent_dir``: of the checkpoint that this state was trained from, ``""`` at the start.
    ``dropped``: what :func:`thin` left out of it, as a sentence.
    """

    step: int
    sequence: int
    is_delta: bool
    stored_bytes: int
    raw_bytes: int
    params: int
    saved_unix: int
    base_step: int
    dir: str
    base_dir: str
    health: str
    profile: str
    restore_count: int
    parent_dir: str
    metrics: dict[str, float]
    settings: dict[str, float]
    base_model: str | None = None
    dropped: str | None = None


def list_run(path: PathLike, *, storage: Stored = None) -> list[Listed]:
    """The checkpoints of a run in the order in which they were committed; ``health`` says ``"ok"`` or what is wrong."""
    return [Listed(**row) for row in _core.list_run(run_place(path, storage))]

# SPDX-License-Identifier: Apache-2.0
"""Optimizers whose moments stay in memory as codes of a few bits: what all of them share, and Adam and AdamW."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.adam import adam as torch_adam
from torch.optim.adamw import adamw as torch_adamw

from ..errors import InvalidError, UnsupportedError
from . import _cuda, _optim_state, _sharded, _torch_step
from ._optim_state import DTYPES, MASTERS, Packed, Wide, is_wide, refuse
from ._policy import AUTO, Policy, bits_of, kept_from
from ._report import Report
from ._sharded import Part, Ranks
from ._torch_step import Job


@dataclasses.dataclass
class _Work:
    """What one step has to do: all parameters in order, those of C as it takes them, those on other devices, and groups that are torch's own."""

    settings: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    jobs: list[Job] = dataclasses.field(default_factory=list)  # of `tensors`
    tensors: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    elsewhere: list[Job] = dataclasses.field(default_factory=list)
    wide: list[tuple[dict[str, Any], list[Tensor]]] = dataclasses.field(default_factory=list)


class Resident(torch.optim.Optimizer):
    """What optimizers with coded moments share: a step over all groups, widths, state in and out. A class of its own says which moments and which formula.

    ``state_bits``: width of each moment, 2, 3, 4, 5, 6 or 8; or 32 (or None), torch's own step. An option of each group. Tensors of fewer than
    ``small`` elements get ``small_bits`` where that is more. Rounding is unbiased and depends on ``seed``, the step, the parameter's place
    and the element alone: not on threads, the CPU or the number of ranks. Parameters in f32, bf16 or f16 (bf16 weights are rounded without bias), on a CPU by a kernel in C;
    on an NVIDIA GPU by one in CUDA where the package was built with it (it has not run on a GPU yet), elsewhere by the same arithmetic in torch's operations, in several passes over memory. Parameters of one dimension or none have no rows, and keep
    moments in f32, as torch's class does; ``report()`` counts them. What is frozen may be of any type.

    Sharded parameters are FSDP2's (``fully_shard``): DTensors of whole rows, ``Shard(0)`` along one dimension of the mesh. All ranks step the same parameters; at few steps
    they add integers up. ``state_dict()`` has DTensors then, for torch.distributed.checkpoint. Under DistributedDataParallel there is nothing to do.

    An element whose gradient is NaN, infinite or 2^40 and more stays as it is in that step, weight and moments; ``skipped`` counts
    them. ``state_dict()`` is a copy, with codes in uint8 of the parameter's shape, and takes that memory, of groups of 32 bits their moments' too; where all
    groups have 32 it has the live moments, as torch's class does. ``load_state_dict()`` takes that, with the widths in it, or the state of torch's class.
    ``torch_state_dict()``, a copy in f32, is for going back to one.

    ``master``: what is kept of bf16 weights beyond their own bits, so that they are updated in f32: "split16" keeps all (bf16 is the master to nearest),
    "split8" 8 bits, rounded without bias; both are exact where bf16 alone needs its unbiased rounding. An option of each group; weights of other types
    have nothing to keep. ``report()`` counts it.
    """

    _moments: ClassVar[tuple[str, ...]]  # by the names that torch's class has for them
    _counts_steps: ClassVar[bool] = True  # torch's class does
    _rule: ClassVar[str]  # of _core.Optim
    _by_torch: bool = False  # in torch's operations wherever parameters are: for tests
    _begins: bool = False  # its first groups are being added
    _torchs: ClassVar[dict[str, Any]]  # options of torch's groups that this class does not have

    def __init__(self, params: Any, defaults: dict[str, Any], refused: dict[str, Any], small: int, small_bits: Any, budget_bits: float = 4.0, every: int = 100) -> None:
        for name in (name for name, asked in refused.items() if asked):
            raise UnsupportedError(f"{self._name}: {name} is not supported with state of a few bits; torch.optim.{self._name} has it")
        self.small, self.small_bits = small, self._bits(small_bits)
        self.skipped = self.rows_raised = 0
        self._agreed = False  # ranks have compared what they step
        self._calls = 0  # of step(), from the first one that ranks agreed upon
        self._exchanged = self._gradients = 0  # bytes, of sharded parameters
        self.policy = Policy(budget_bits, every, small)
        self._begins = True
        super().__init__(params, {**defaults, "policy": None})
        self._begins = False
        self._refuse_twice()

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _bits(self, value: Any) -> tuple[int, int] | None:
        return bits_of(value, len(self._moments))

    def _settings(self, group: dict[str, Any]) -> tuple[Any, ...]:
        """As _core takes them."""
        raise NotImplementedError

    def _check(self, group: dict[str, Any]) -> None:
        """InvalidError for options that make no sense."""
        raise NotImplementedError

    def _wide_step(self, group: dict[str, Any], params: list[Tensor]) -> None:
        """torch's own step, with moments in f32."""
        raise NotImplementedError

    def _correction(self, group: dict[str, Any], steps: float) -> tuple[float, float]:
        """Of torch's moments after that many steps."""
        raise NotImplementedError

    def _stays_wide(self, group: dict[str, Any]) -> bool:
        """Whether parameters that have no codes are torch's own step's."""
        return self._bits(group["state_bits"]) is None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        group = {**self.defaults, **param_group}
        self._check(group)
        bits = self._bits(group["state_bits"])
        if group["master"] not in MASTERS or (bits is None and group["master"] is not None):
            raise InvalidError(f"{self._name}: master must be None, 'split8' or 'split16', the latter with state of a few bits: {group['master']!r}")
        bits = None if self._stays_wide(group) else bits
        super().add_param_group(param_group)
        try:
            for i, p in enumerate(self.param_groups[-1]["params"] if bits is not None else ()):
                if p.requires_grad:  # what is frozen is looked at when it gets a gradient
                    refuse(p, f"{self._name}: parameter {i} of group {len(self.param_groups) - 1}")
            if bits is not None and not self._begins:
                self._refuse_twice()
        except BaseException:
            self.param_groups.pop()  # or every step would fail
            raise
        self._agreed = False
        self.policy.forget(self)

    def _refuse_twice(self) -> None:
        _optim_state.refuse_twice([(p, name) for _, p, name, g in self._each(self.param_groups) if not self._stays_wide(g)], self._name)

    # ---- the step ----

    @torch.compiler.disable
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._opens():
            return loss
        work = self._collect()
        self._columns(work)
        results = _optim_state.step(self._rule, work.settings, work.tensors) if work.tensors else []
        self._finish(work.jobs + work.elsewhere, results + _cuda.step(self._rule, work.settings, work.elsewhere, self._by_torch))
        self._exchanged += self.policy.after_step(self, work.settings, work.jobs, work.tensors)
        for group, ps in work.wide:
            self._wide_step(group, ps)
        return loss

    def _opens(self) -> bool:
        """A step without a rate, gradients or state is how torch's helpers for checkpoints ask for a state to write into: it gets one, and counts for nothing."""
        if any(float(g["lr"]) != 0 for g in self.param_groups) or any(self.state.values()):
            return False
        given = [p for g in self.param_groups for p in g["params"] if p.grad is not None and not p.grad.is_sparse]
        moves = torch.tensor([int(any(bool(_sharded.local(p.grad).any()) for p in given))], device="cpu")
        ranks = self._all_ranks()
        self._exchanged += _sharded.add_up([(r, moves) for r in ranks])
        if not given or int(moves):
            return False
        work = self._collect()
        for group, ps in work.wide:
            self._wide_step(group, ps)
        self.policy.opened(self)
        return True

    def _all_ranks(self) -> list[Ranks]:
        """Those of all sharded parameters that have state of a few bits, in order, each once."""
        found: dict[int, Ranks] = {}
        for _, p, name, group in self._each(self.param_groups):
            if _sharded.is_dtensor(p) and not self._stays_wide(group) and (p.requires_grad or self.state.get(p)):
                _, ranks = _sharded.place_of(p, f"{self._name}: {name}")
                if ranks is not None:
                    found.setdefault(id(ranks.group), ranks)
        return list(found.values())

    def _collect(self) -> _Work:
        work, number = _Work(), 0
        for gi, group in enumerate(self.param_groups):
            bits, stays_wide, wide_here = self._bits(group["state_bits"]), self._stays_wide(group), []
            work.settings.append(self._settings(group))
            for i, p in enumerate(group["params"]):
                if p.grad is not None:
                    name = f"parameter {i} of group {gi}"
                    if p.grad.is_sparse:
                        raise UnsupportedError(f"{self._name}: {name} has a sparse gradient, which is not supported")
                    if stays_wide and not isinstance(self.state[p].get("packed"), Packed):
                        wide_here.append(p)
                    else:
                        self._add_job(work, p, name, bits, gi, number)
                number += 1
            if wide_here:
                work.wide.append((group, wide_here))
        return work

    def _add_job(self, work: _Work, p: Tensor, name: str, bits: tuple[int, int] | None, group: int, number: int) -> None:
        part, ranks = refuse(p, f"{self._name}: {name}")
        held = self._held(p, part, name, bits, int(self.param_groups[group]["seed"]), number)
        assert p.grad is not None
        if p.grad.shape != p.shape:
            raise InvalidError(f"{self._name}: {name} has the shape {tuple(p.shape)} and its gradient {tuple(p.grad.shape)}")
        if p.grad.dtype not in DTYPES:
            raise UnsupportedError(f"{self._name}: {name} has a gradient of {p.grad.dtype}")
        here = _sharded.local(p)
        job = Job(held, p, here, here.contiguous(), _sharded.gradient_of(p, f"{self._name}: {name}").contiguous(), group, number, ranks, name)
        rest = held.keep_rest(MASTERS[self.param_groups[group]["master"]] if p.dtype == torch.bfloat16 else None)
        if here.device.type != "cpu" or self._by_torch:
            work.elsewhere.append(job)
            return
        work.jobs.append(job)
        pointers = job.p.data_ptr(), job.g.data_ptr(), *rest
        work.tensors.append((held.view(name), group, number, held.step + 1, part.first, DTYPES[p.dtype][0], DTYPES[job.g.dtype][0], *pointers, 0))

    def _held(self, p: Tensor, part: Part, name: str, bits: tuple[int, int] | None, seed: int, number: int) -> Packed | Wide:
        """The moments of a parameter, which begin here."""
        state = self.state[p]
        if is_wide(part.whole):
            if state.get(self._moments[0]) is None:
                Wide.open(state, p, self._moments)
            if "step" not in state:
                state["step"] = torch.tensor(1.0, dtype=torch.float32, device="cpu")
            wide = Wide(state, p, part, self._moments)
            if not wide.fits():
                raise InvalidError(f"{self._name}: {name} has moments of another shape or type: load_state_dict(state_dict()) converts them")
            return wide
        if "packed" not in state:
            if state.get(self._moments[0]) is not None:
                raise InvalidError(f"{self._name}: {name} has f32 state and its group now asks for fewer bits: load_state_dict(state_dict()) converts it")
            assert bits is not None
            state["packed"] = Packed.empty(part, self._widths(p, bits))
        packed: Packed = state["packed"].settled(seed, number, name).to(_sharded.local(p).device)
        state["packed"] = packed
        if packed.part != part:
            raise InvalidError(f"{self._name}: {name} has changed its shape or its part from {packed.part} to {part}")
        return packed

    def _columns(self, work: _Work) -> None:
        """Sums by column of parameters of which others have rows, where this step fits factors to them; and before that whether all ranks are about to do the same."""
        jobs = [(job, i) for i, job in enumerate(work.jobs)] + [(job, -1) for job in work.elsewhere]
        shared = [(job, i) for job, i in jobs if job.ranks is not None]
        self._gradients += sum(job.held.part.total * job.g.element_size() for job, _ in shared)
        due = [(job, i) for job, i in shared if job.held.fits_columns()]
        self._calls = 1 + (self._calls if self._agreed else max((job.held.step for job, _ in shared), default=0))
        # powers of two by calls too: a parameter that has missed a step on some ranks is not due on them, and the others would wait for ever
        if not self._agreed or due or self._calls & (self._calls - 1) == 0:
            said = [(job.ranks, (job.number, job.held.part.whole, job.g.dtype, job.held.step, job.held.bits)) for job, _ in shared]
            by_ranks = [(r, [what for ranks, what in said if ranks is not None and ranks.group is r.group]) for r in self._all_ranks()]
            self._exchanged += _sharded.agree(self._name, by_ranks)
            self._agreed = True
        pieces = []
        for job, i in due:
            if i < 0:
                job.sums = _torch_step.column_sums(job)
            else:
                job.sums = torch.empty((job.packed.cols, 2), dtype=torch.int64, device="cpu")
                work.tensors[i] = (*work.tensors[i][:-1], job.sums.data_ptr())
            pieces.append((job.ranks, job.sums))
        if any(i >= 0 for _, i in due):
            _optim_state.sums([work.tensors[i] for _, i in due if i >= 0])
        self._exchanged += _sharded.add_up(pieces)

    def _finish(self, jobs: list[Job], results: list[tuple[float, float, int, int]]) -> None:
        unusable = 0
        for job, (m_corr, v_corr, bad, raised) in zip(jobs, results, strict=True):
            job.held.stepped(m_corr, v_corr)
            if job.p.data_ptr() != job.here.data_ptr():
                job.here.copy_(job.p)
            torch.autograd.graph.increment_version(job.of)  # autograd must hear of what C has written
            unusable += bad
            self.rows_raised += raised
        if unusable and not self.skipped:
            warnings.warn(f"{self._name}: {unusable} elements of gradients were NaN, infinite or 2^40 and more: these elements stay as they are (optimizer.skipped counts them)", stacklevel=3)
        self.skipped += unusable

    def _widths(self, p: Tensor, bits: tuple[int, int], loaded: bool = False) -> tuple[int, int]:
        """`loaded`: of a state that is being loaded, whatever states are here."""
        if bits == AUTO:
            bits = self.policy.loaded(p) if loaded else self.policy.admit(p, self.param_groups, self._widths, self.state)
        if p.numel() >= self.small or self.small_bits is None:
            return bits
        return max(bits[0], self.small_bits[0]), max(bits[1], self.small_bits[1])

    # ---- widths ----

    @torch.no_grad()
    def set_state_bits(self, state_bits: Any, group: int = 0) -> None:
        """Other widths for a group from now on; moments that are there are coded anew, or from now on by the policy ("auto"). Not to or from 32:
        load_state_dict() does that."""
        bits = self._bits(state_bits)
        if bits is None or self._bits(self.param_groups[group]["state_bits"]) is None:
            raise InvalidError(f"{self._name}: set_state_bits() is for widths of 2 to 8 bits")
        before = sum(len(g["params"]) for g in self.param_groups[:group])
        self.policy.forget(self)
        self.param_groups[group]["policy"] = None
        if bits == AUTO:
            self.param_groups[group]["state_bits"] = "auto"
            return
        for i, p in enumerate(self.param_groups[group]["params"]):
            state = self.state.get(p, {})
            if "packed" in state:
                old: Packed = state["packed"]
                name = f"parameter {i} of group {group}"
                _, ranks = _sharded.place_of(p, name)
                state["packed"] = old.coded(ranks, self._widths(p, bits), int(self.param_groups[group]["seed"]), before + i, name)
        self.param_groups[group]["state_bits"] = state_bits

    # ---- what it holds ----

    def report(self) -> Report:
        """Bytes and average bits of a moment and each parameter's widths, everything counted that is kept for them, on this rank. With "auto" ``policy`` has
        the budget, its groups' average and the last changes; of sharded parameters ``sharded`` has the bytes that were exchanged, and those of whole gradients.
        ``print(optimizer.report())`` is a table."""
        rows, kept, numel = [], 0, 0
        for gi, group in enumerate(self.param_groups):
            for i, p in enumerate(group["params"]):
                state = self.state.get(p, {})
                if isinstance(state.get("packed"), Packed):
                    nbytes, bits = state["packed"].nbytes, state["packed"].bits[: len(self._moments)]
                elif state:
                    nbytes, bits = sum(_sharded.local(t).nbytes for t in state.values() if t is not None), (32,) * len(self._moments)
                else:
                    continue
                rows.append({"group": gi, "index": i, "shape": tuple(p.shape), "bits": bits, "bytes": nbytes})
                kept, numel = kept + nbytes, numel + _sharded.local(p).numel()
        kept += self.policy.nbytes()
        average = 8.0 * kept / numel / len(self._moments) if numel else 0.0
        out = Report(bytes=kept, bits=average, skipped=self.skipped, rows_raised=self.rows_raised, parameters=rows)
        ranks = self._all_ranks()
        if ranks:
            out["sharded"] = {"ranks": max(r.size for r in ranks), "exchanged": self._exchanged, "gradients": self._gradients}
        policy = self.policy.report(self)
        if policy is not None:
            out["policy"] = policy
        return out

    # ---- state in and out ----

    def __getstate__(self) -> dict[str, Any]:
        self.policy.hold(self)
        names = ("small", "small_bits", "skipped", "rows_raised", "policy", "_agreed", "_calls", "_exchanged", "_gradients")
        return {**super().__getstate__(), **{k: self.__dict__[k] for k in names}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "policy" not in self.__dict__ and "small" in self.__dict__:  # pickled before there were policies
            self.policy = Policy(4.0, 100, self.small)
        for name in ("_agreed", "_calls", "_exchanged", "_gradients"):
            self.__dict__.setdefault(name, 0)
        for group in self.param_groups:
            group.setdefault("master", None)
            group.setdefault("policy", None)
        for number, p, name, group in self._each(self.param_groups):
            packed = self.state.get(p, {}).get("packed")
            if isinstance(packed, Packed) and packed.in_blocks:  # pickled when they had no rows
                self.state[p] = self._one_in(packed.codes(p, self._moments), p, name, group, number)

    @staticmethod
    def _each(groups: list[dict[str, Any]]) -> Iterator[tuple[int, Tensor, str, dict[str, Any]]]:
        """Number, parameter, what errors call it, and group."""
        number = 0
        for gi, group in enumerate(groups):
            for i, p in enumerate(group["params"]):
                yield number, p, f"parameter {i} of group {gi}", group
                number += 1

    def state_dict(self) -> dict[str, Any]:
        params = [p for group in self.param_groups for p in group["params"]]
        numbers = {id(p): i for i, p in enumerate(params)}
        out: dict[str, Any] = super().state_dict()
        as_it_is = all(self._stays_wide(group) for group in self.param_groups)  # torch's own then
        for k, state in out["state"].items():
            p = params[k] if isinstance(k, int) and k < len(params) else k
            if "packed" in state:
                out["state"][k] = self._out(state, p, numbers.get(id(p), -1))
            elif not as_it_is:
                out["state"][k] = _optim_state.copied(state)
        for group in out["param_groups"]:
            group["policy"] = copy.copy(group["policy"])  # the optimizer goes on writing into its own
        return out

    def _out(self, state: dict[str, Any], p: Any, number: int) -> dict[str, Any]:
        if "packed" not in state:
            return state
        kept = {k: t.to(_sharded.local(p).device) for k, t in self.policy.kept(self, number).items()}
        return {**state["packed"].codes(p, self._moments), **kept}

    def ckpress_state(self, p: Tensor, lossy: bool = False) -> tuple[dict[str, Any], bool]:
        """What a checkpoint holds of one parameter's state, and whether all of it stays as it is. A profile that rounds moments has them as the
        floats that codes stand for; not beside further bits of weights, which are of no use but with all others."""
        state, packed, number = self.state[p], self.state[p].get("packed"), self.policy.number_of(self, p)
        if lossy and isinstance(packed, Packed) and packed.rest is None and not _sharded.is_dtensor(p):
            kept = self.policy.kept(self, number)
            return {**packed.as_floats(self._moments, bool(kept)), **kept}, False
        return self._out(state, p, number), packed is not None or "master_rest" in state

    def ckpress_take(self, states: dict[Tensor, dict[str, Any]]) -> None:
        """State that a checkpoint gave back, in the place of all that is here."""
        with self.policy.loading(self.param_groups, [p for p in states if states[p]], self._widths):
            new = {p: self._one_in(states[p], p, name, group, number) for number, p, name, group in self._each(self.param_groups) if states.get(p)}
        self.state.clear()
        self.state.update(new)
        self._agreed = False
        self.policy.reload()

    def torch_state_dict(self) -> dict[str, Any]:
        """The state as ``load_state_dict`` of torch's class takes it, moments in f32."""
        params = [p for group in self.param_groups for p in group["params"]]
        out: dict[str, Any] = super().state_dict()
        for k, state in out["state"].items():
            if "packed" in state:
                out["state"][k] = self._as_torchs(state["packed"], params[k])
                continue
            if "step" in state and is_wide(params[k].shape):
                state = {key: state[key] for key in (("step",) if self._counts_steps else ()) + self._moments}
            out["state"][k] = _optim_state.copied(state)
        for group in out["param_groups"]:
            del group["state_bits"], group["seed"], group["master"], group["policy"]
            group.update(self._torchs)
        return out

    def _as_torchs(self, packed: Packed, p: Tensor) -> dict[str, Any]:
        step = {"step": torch.tensor(float(packed.step), dtype=torch.float32, device="cpu")} if self._counts_steps else {}
        return {**step, **{k: _sharded.like(p, t, packed.part.whole) for k, t in zip(self._moments, packed.moments(), strict=False)}}

    @torch._disable_dynamo
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """This class's own state, which keeps the widths it was saved with, or that of torch's. All or nothing."""
        state_dict = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = hook(self, state_dict) or state_dict
        saved = copy.deepcopy(state_dict["param_groups"])
        if [len(g["params"]) for g in saved] != [len(g["params"]) for g in self.param_groups]:
            raise InvalidError(f"{self._name}: the state's groups are not those of this optimizer, or have other numbers of parameters")
        groups = []
        for mine, theirs in zip(self.param_groups, saved, strict=True):
            if theirs.get("amsgrad"):
                raise UnsupportedError(f"{self._name}: the state is one with amsgrad, which is not supported")
            kept = {k: v for k, v in theirs.items() if k not in self._torchs}
            groups.append({**{k: v for k, v in mine.items() if k not in kept}, "policy": None, **kept, "params": mine["params"]})
        state = self._state_in(state_dict["state"], saved, groups)
        self.policy.check(groups)
        self.__setstate__({"state": state, "param_groups": groups})
        self._agreed = False
        self.policy.reload()
        for post in self._optimizer_load_state_dict_post_hooks.values():
            post(self)

    def _state_in(self, saved: dict[Any, Any], ids: Iterable[dict[str, Any]], groups: list[dict[str, Any]]) -> dict[Any, Any]:
        names = [n for g in ids for n in g["params"]]
        known = set(names)
        state: dict[Any, Any] = {k: copy.deepcopy(v) for k, v in saved.items() if k not in known}
        each = [(key, *one) for key, one in zip(names, self._each(groups), strict=True) if saved.get(key)]
        with self.policy.loading(groups, [p for _, _, p, _, _ in each], self._widths):
            for key, number, p, name, group in each:
                state[p] = self._one_in(saved[key], p, name, group, number)
        return type(self.state)(dict, state)

    def _one_in(self, saved: dict[str, Any], p: Tensor, name: str, group: dict[str, Any], number: int) -> dict[str, Any]:
        bits = self._bits(group["state_bits"])
        part, ranks = _sharded.place_of(p, f"{self._name}: {name}")
        coded, correction = None, None
        if f"{self._moments[0]}_code" in saved:
            coded = Packed.from_codes(p, part, saved, self._moments, name)
            coded.kept = kept_from(_sharded.whole(saved.get("policy")), name)
            coded = coded if ranks is None else coded.settled_now(ranks, int(group["seed"]), number, name)
            if bits is not None and not coded.in_blocks:
                return {"packed": coded}
            correction, saved = (coded.m_corr, coded.v_corr), self._moments_of(coded, p, part)
        wanted = ("step", *self._moments) if self._counts_steps else self._moments
        if not set(wanted) <= saved.keys():
            raise InvalidError(f"{self._name}: {name}: neither this class's state nor a torch.optim.{self._name}'s: {sorted(saved)}")
        if saved[self._moments[0]] is None:  # torch's SGD before it needs a momentum
            return {}
        steps = _optim_state.steps_of(_sharded.whole(saved.get("step", 1)), f"{self._name}: {name}")
        moments = [_sharded.here(saved[k], p, part) for k in self._moments]
        _optim_state.check_tensors(moments, f"{self._name}: {name}")
        if bits is None or is_wide(part.whole):
            dtype = torch.float32 if bits is not None else p.dtype
            out = _optim_state.wide_state(saved, p, part, dict(zip(self._moments, moments, strict=True)), dtype, f"{self._name}: {name}")
            if self._counts_steps or bits is not None:
                out["step"] = torch.tensor(float(steps), dtype=torch.float32, device="cpu")
            if bits is None:
                out.pop("master_rest", None)
            return out
        widths = coded.bits if coded is not None else _optim_state.widths_of(saved, len(moments), name) or self._widths(p, bits, loaded=True)
        make = Packed.with_room if coded is None else Packed.from_moments
        packed = make(part, ranks, widths, moments, steps, correction or self._correction(group, steps), int(group["seed"]), number, name)
        kept = kept_from(_sharded.whole(saved.get("policy")), name) if coded is None else coded.kept
        return {"packed": dataclasses.replace(packed, kept=kept, rest=None if coded is None else _sharded.here(coded.rest, p, part))}

    def _moments_of(self, coded: Packed, p: Tensor, part: Part) -> dict[str, Any]:
        """Of codes whose parameter has none now, as torch would have them."""
        moments = {k: _sharded.here(t, p, part) for k, t in zip(self._moments, coded.moments(), strict=False)}
        return {"step": torch.tensor(float(coded.step), dtype=torch.float32, device="cpu"), **moments, **({} if coded.rest is None else {"master_rest": coded.rest})}


class Adam(Resident):
    """``torch.optim.Adam`` with m and v of ``state_bits`` bits: weight_decay is added to the gradient. Everything else is as in :class:`AdamW`."""

    _moments = ("exp_avg", "exp_avg_sq")
    _rule = "adamw"
    _decoupled: ClassVar[bool] = False
    _torchs: ClassVar[dict[str, Any]] = {
        "amsgrad": False, "foreach": None, "capturable": False, "differentiable": False, "fused": None, "decoupled_weight_decay": False
    }  # fmt: skip

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool | None = None,
        state_bits: Any = (4, 4),
        small: int = 4096,
        small_bits: Any = (8, 8),
        seed: int = 0,
        master: str | None = None,
        budget_bits: float = 4.0,
        every: int = 100,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        defaults |= {"state_bits": state_bits, "seed": seed, "master": master}
        refused = {"amsgrad": amsgrad, "capturable": capturable, "differentiable": differentiable}
        if decoupled_weight_decay not in (None, self._decoupled):
            raise InvalidError(f"{self._name}: decoupled_weight_decay is what tells AdamW from Adam: use the other class")
        super().__init__(params, defaults, refused, small, small_bits, budget_bits, every)

    def set_budget(self, budget_bits: float) -> None:
        """Another average for ``state_bits="auto"``; widths follow over the next rounds. A state that is loaded brings its own: call it after that."""
        self.policy.set_budget(self, budget_bits)

    def _check(self, group: dict[str, Any]) -> None:
        lr, (b1, b2) = float(group["lr"]), group["betas"]
        if not (lr >= 0 and group["eps"] >= 0 and group["weight_decay"] >= 0 and 0 <= b1 < 1 and 0 <= b2 < 1):
            raise InvalidError(
                f"{self._name}: lr, eps and weight_decay must not be negative, betas 0 or more and below 1: {lr}, {group['eps']}, {group['weight_decay']}, {b1}, {b2}"
            )

    def _settings(self, group: dict[str, Any]) -> tuple[Any, ...]:
        b1, b2 = group["betas"]
        return float(group["lr"]), b1, b2, group["eps"], group["weight_decay"], not self._decoupled, group["maximize"], int(group["seed"])

    def _correction(self, group: dict[str, Any], steps: float) -> tuple[float, float]:
        b1, b2 = group["betas"]
        return 1 - b1**steps, 1 - b2**steps

    def _wide_step(self, group: dict[str, Any], params: list[Tensor]) -> None:
        for p in params:
            if not self.state[p]:
                self.state[p] = {"step": torch.tensor(0.0, dtype=torch.float32, device="cpu"), "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        states = [self.state[p] for p in params]
        b1, b2 = group["betas"]
        (torch_adamw if self._decoupled else torch_adam)(
            params, [p.grad for p in params], [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states], [], [s["step"] for s in states],
            foreach=False, amsgrad=False, beta1=b1, beta2=b2, lr=group["lr"], weight_decay=group["weight_decay"], eps=group["eps"],
            maximize=group["maximize"],
        )  # fmt: skip


class AdamW(Adam):
    """``torch.optim.AdamW`` with m and v of ``state_bits`` bits: same arguments, same formula, same groups.

        optimizer = ckpress.torch.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
        ckpress.torch.AdamW([{"params": matrices}, {"params": norms, "state_bits": 32}], lr=3e-4)
        ckpress.torch.AdamW(model.parameters(), lr=3e-4, state_bits="auto", budget_bits=4.0)

    ``state_bits``: widths of m and v, each 2, 3, 4, 5, 6 or 8; or 32, torch's own step. An option of each group. Tensors of fewer than
    ``small`` elements get ``small_bits`` where that is more. Rounding is unbiased and depends on ``seed``, the step, the parameter's place
    and the element alone: not on threads, the CPU or the number of ranks. Parameters in f32, bf16 or f16 (bf16 weights are rounded without bias), on any device;
    those of one dimension or none keep moments in f32. DistributedDataParallel and FSDP2 (``fully_shard``) need no more than they do; see :class:`Resident`.

    ``state_bits="auto"``: widths of each tensor's m and v follow what the training does, ``budget_bits`` on average over all groups that say "auto", with
    everything counted that is kept for them; never more, but for the steps after a restore of rounded moments, and where the least widths take more (a warning says so). In ``every`` steps each tensor is looked at once; the next round gives bits where they do the most: up at once,
    down after two looks, one level at a time, so that widths settle in some six rounds: ``every`` should be a small part of the training. ``report()`` prints them;
    ``set_budget()`` changes the average. A resumed training takes the same decisions: a state that is loaded brings its ``budget_bits`` and ``every`` along, whatever the constructor was given. Parameters that are not on a CPU keep the widths they start with.

    An element whose gradient is NaN, infinite or 2^40 and more stays as it is in that step, weight and moments; ``skipped`` counts
    them. ``state_dict()`` is a copy, with codes in uint8 of the parameter's shape; ``load_state_dict()`` takes that, with the widths in it, or the state of a
    ``torch.optim.AdamW``. ``torch_state_dict()`` is for going back to one.
    """

    _decoupled = True
    _torchs: ClassVar[dict[str, Any]] = {**Adam._torchs, "decoupled_weight_decay": True}

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2,
        amsgrad: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **options)

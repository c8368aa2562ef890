# SPDX-License-Identifier: Apache-2.0
"""Live modules and optimizers into a state: what each tensor is to the training, and whose moments are whose."""

from __future__ import annotations

import bisect
import itertools
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from . import _core
from ._context import Context, is_module, is_optimizer, keeps_more, module_entries, prefixed
from ._encode import Encoder
from ._group import Division
from ._names import Attr, Path, join, show
from ._views import Coded, View, is_torch_tensor, refuse, torch_module
from .errors import InvalidError, make

Betas = tuple[float, float]
_LOSSY_DTYPES = ("f32", "bf16", "f16")
# What ckpress.torch's optimizers, as torch's, call their moments.
_MOMENTS = {"exp_avg": _core.M, "exp_avg_sq": _core.V, "momentum_buffer": _core.MOMENTUM}
# What optimizers call the fp32 values of a parameter that is held in bf16 or fp16.
_MASTERS = ("master_param", "master_weight", "master", "fp32_param", "param_fp32", "main_param", "param")


class Collector(Encoder):
    """An encoder that also takes live modules and optimizers.

    Args:
        root: what will be given to ``value()``: parameters are named by looking through it.
        weights_only: leave optimizers out (profile ``weights``).
        steps: by name; a tensor of floats with a step above 0 is a weight that may be coded lossily, wherever it stands.
        floats: so is every other tensor of floats of which nothing is known.
        lossy: the profile may round moments: those that ckpress.torch keeps as codes are collected as the floats that they stand for.
        averages: names below ``root`` of running averages of weights.
        division: of tensors in modules and optimizers among the ranks of a group; None: this process saves all.
    """

    def __init__(self, root: Any, *, weights_only: bool = False, steps: Mapping[str, float] | None = None, floats: bool = False,
                 lossy: bool = False, averages: Collection[str] = (), division: Division | None = None) -> None:
        super().__init__()
        self._division = division
        self._divided = False  # what is added now is the same on all ranks
        self._belongs: str | None = None  # then: to which tensor it belongs; None: to none
        self._absent: set[str] = set()
        self._floats = floats
        self._averages = frozenset(averages)
        self._stepped = {name for name, step in (steps or {}).items() if step > 0}
        self._exact = {name for name, step in (steps or {}).items() if step == 0}
        self.context = Context(root)
        self.weights_only = weights_only
        self._lossy_moments = lossy
        self.moments = False  # first or second ones, or momentum, of some parameter are among them
        self.second_moments = False  # Adam's v of some parameter is among them
        self.lossy_possible = False  # some tensor may be coded lossily
        self.special += [(is_module, self._module), (is_optimizer, self._optimizer)]
        self.lossy: list[tuple[Any, int]] = []  # parameters that training may have coded lossily, and their index
        self.changed: list[tuple[Any, int]] = []  # others that may come back otherwise: copies of masters, averages, those that have a step of their own
        self._adam: list[tuple[str, float, float, int]] = []
        self._places: set[int] = set()  # where what is saved lies
        self._saved: dict[str, Any] = {}  # tensors of torch, by name
        self._stepped_by: list[tuple[str, Any]] = []  # parameters of optimizers, and what errors call them

    def done(self, depth: int = 2) -> Any:
        """The finished state; ``depth``: how far above is the user's call, for warnings."""
        self._warn_of_unsaved(depth + 2)
        self._warn_of_strangers(depth + 2)
        for owner, beta1, beta2, step in self._adam:
            if owner not in self._absent:
                self.state.set_adam(owner, beta1, beta2, step)
        return self.state

    def leaf(self, view: View, path: Path, as_: int, **how: Any) -> int:
        if type(view.memory) is int:
            self._places.add(view.memory)
        if is_torch_tensor(view.keep):
            self._saved[how.get("name") or join(path)] = view.keep
        return super().leaf(view, path, as_, **how)

    def _warn_of_unsaved(self, depth: int) -> None:
        """An optimizer over tensors that are nobody's, such as masters of a model in bf16, saves their moments and not their values."""
        torch = torch_module()
        lost = [
            (name, p)
            for name, p in self._stepped_by
            if torch is not None and type(p) in (torch.Tensor, torch.nn.Parameter) and p.device.type == "cpu" and p.numel() and p.data_ptr() not in self._places
        ]
        if lost:
            elsewhere = self._elsewhere()
            lost = [(name, p) for name, p in lost if not elsewhere(p)]
        if lost:
            text = f"ckpress: {lost[0][0]}{f' and {len(lost) - 1} more' if len(lost) > 1 else ''}: parameters of an optimizer that are in nothing that is saved: "
            warnings.warn(text + "a restore brings their moments back and not their values. Save them too, masters=torch.nn.ParameterList(...)", RuntimeWarning, stacklevel=depth + 1)

    def _warn_of_strangers(self, depth: int) -> None:
        """Weights are coded lossily with the moments of the optimizer that trains them: where it trains tensors that no module has, nothing is, and files are
        twenty times as large as they might be."""
        trained = self.context.trained
        if self._lossy_moments and trained and self.context.stepped_alone == trained and not self.lossy_possible:
            text = "ckpress: no parameter that an optimizer trains is one of a module that is saved: everything is coded losslessly. Save the module itself; of masters "
            warnings.warn(text + "the very tensors that the optimizer steps (masters = torch.nn.ParameterList(...), the optimizer over masters.parameters())", RuntimeWarning, stacklevel=depth + 1)

    def _elsewhere(self) -> Callable[[Any], bool]:
        """Whether a parameter is saved though no saved tensor begins where it does: its module's state_dict() gives copies, it is a piece of a saved buffer, or
        something of its values is saved."""
        spans = sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in self._saved.values())
        starts, ends = [s[0] for s in spans], list(itertools.accumulate((s[1] for s in spans), max))
        alike: dict[Any, list[Any]] = {}
        for t in self._saved.values():
            alike.setdefault((t.dtype, t.shape), []).append(t)

        def saved(p: Any) -> bool:
            below = bisect.bisect_right(starts, p.data_ptr())
            if self.context.owner(p) in self._saved or (below and p.data_ptr() < ends[below - 1]):
                return True
            return any(bool((_few(p) == _few(t)).all()) for t in alike.get((p.dtype, p.shape), ()))

        return saved

    def absent(self, name: str, view: View) -> bool:
        if self._division is None or not self._divided or not self._division.absent(self._belongs, name, view.dtype, view.shape):
            return False
        self._absent.add(name)
        return True

    @contextmanager
    def _dividing(self, divided: bool, belongs: str | None = None) -> Iterator[None]:
        before = self._divided, self._belongs
        self._divided, self._belongs = divided, belongs
        try:
            yield
        finally:
            self._divided, self._belongs = before

    def subclass(self, t: Any, path: Path) -> None:
        with self._dividing(False):  # such as a DTensor: each rank has a part of its own in it
            super().subclass(t, path)

    def role_of(self, name: str, view: View, role: int, lossless: bool) -> tuple[int, bool]:
        if self._averages and name.partition("/")[0] in self._averages and view.dtype in _LOSSY_DTYPES and view.shape:
            if role in (_core.WEIGHT, _core.COPY) or (role == _core.OTHER and not lossless):  # a module's buffers are no weights, and numbers beside them no tensors
                self.lossy_possible = True
                return _core.AVERAGE, False
        named = name in self._stepped and role in (_core.OTHER, _core.WEIGHT, _core.COPY)
        unknown = self._floats and role == _core.OTHER and not lossless
        if not (named or unknown) or view.dtype not in _LOSSY_DTYPES:
            return role, lossless
        self.lossy_possible = True
        return _core.WEIGHT, False

    # ---- modules ----

    def _module(self, module: Any, path: Path) -> None:
        entries = module_entries(module, show(path))
        prefix = "" if not path else join(path)
        self.state.put(_core.DICT, len(entries))
        for key, entry in entries.items():
            self.value(key, path)
            if is_torch_tensor(entry.value):
                self._entry(entry.value, prefixed(prefix, key), (*path, key))
            else:
                self.value(entry.value, (*path, key))

    def _entry(self, t: Any, name: str, path: Path) -> None:
        torch = torch_module()
        assert torch is not None
        if type(t) not in (torch.Tensor, torch.nn.Parameter):
            self.subclass(t, path)
            return
        parameter = isinstance(t, torch.nn.Parameter)
        with self._dividing(True, (self.context.owner(t) or name) if parameter else None):  # buffers are rank 0's, as in DistributedDataParallel
            self._plain_entry(t, name, path)

    def _plain_entry(self, t: Any, name: str, path: Path) -> None:
        torch = torch_module()
        assert torch is not None
        weight = isinstance(t, torch.nn.Parameter) and t.is_floating_point()
        lossy = weight and self.context.is_trained(t)
        if lossy and self._averages and path and path[0] in self._averages and self.context.trained is not None:
            raise make(InvalidError, f"averages: {show(path)} is a weight that an optimizer of this save trains", tensor=name)
        self.lossy_possible |= lossy
        # Weights of 16 bits that training changes but no optimizer of this save does: its masters are elsewhere, and what they are the rounding of is looked for.
        copy = weight and self._lossy_moments and t.requires_grad and self.context.trained is not None and not lossy and t.dtype in (torch.bfloat16, torch.float16)
        role = _core.COPY if copy else _core.WEIGHT if weight else _core.OTHER
        index = self.torch_leaf(t, path, _core.AS_TORCH, name=name, role=role, lossless=not (lossy or copy))
        named = name in self._stepped or (bool(path) and path[0] in self._averages)
        if index is not None and (lossy or copy or (weight and named)):
            (self.lossy if lossy else self.changed).append((t, index))

    # ---- optimizers ----

    def _optimizer(self, optimizer: Any, path: Path) -> None:
        if self.weights_only:
            self.state.put(_core.NONE)
            return
        if more := keeps_more(optimizer):
            raise refuse(show(path), f"cannot save a {type(optimizer).__name__} in there: its state_dict() has {more[0]!r} of its own. A Checkpointer saves it under a name of its own")
        names = self.context.optimizer_names(optimizer)
        prefix = "" if not path else join(path)
        pairs = [(n, p, group) for ns, group in zip(names, optimizer.param_groups) for n, p in zip(ns, group["params"])]
        self._stepped_by += [(prefixed(prefix, n), p) for n, p, _ in pairs]
        pairs = [(n, p, g) for n, p, g in pairs if p in optimizer.state]
        others = {key: value for key, value in optimizer.state.items() if not is_torch_tensor(key)}  # of no parameter
        self.state.put(_core.DICT, 3 if others else 2)
        self.value("state", path)
        self.state.put(_core.DICT, len(pairs))
        state_of = getattr(optimizer, "ckpress_state", None) or (lambda p, lossy: (optimizer.state[p], False))
        for name, param, group in pairs:
            self.value(name, path)
            whole = prefixed(prefix, name)
            with self._dividing(True, self.context.owner(param) or whole):
                state, exact = state_of(param, self._lossy_moments and self._is_rounded(param))
                self._param_state(state, param, group, whole, (*path, Attr("state"), name), exact)
        self.value("param_groups", path)
        self._groups(optimizer.param_groups, names, (*path, Attr("param_groups")))
        if others:
            self.value("other", path)
            self._dict(_core.DICT, others, (*path, Attr("state")))

    def _groups(self, groups: list[dict[str, Any]], names: list[list[str]], path: Path) -> None:
        self.state.put(_core.LIST, len(groups))
        for g, (group, params) in enumerate(zip(groups, names)):
            self._dict(_core.DICT, {**group, "params": params}, (*path, g))

    def _is_rounded(self, param: Any) -> bool:
        """Whether a lossy profile rounds a parameter's weight and moments; what is kept exactly is smaller as the codes that it is."""
        owner = self.context.owner(param)
        return owner is not None and owner not in self._exact and owner not in self.context.claimed and self.context.is_trained(param)

    def _param_state(self, state: dict[str, Any], param: Any, group: dict[str, Any], prefix: str, path: Path, exact: bool) -> None:
        torch = torch_module()
        assert torch is not None
        roles = {} if exact else moment_roles(state, param)
        owner = self.context.owner(param)
        if owner is None or owner in self.context.claimed or not self.context.is_trained(param):
            roles = {}
        if roles and owner is not None:
            self.second_moments |= _core.V in roles.values()
            self.moments |= bool({_core.M, _core.V, _core.MOMENTUM} & set(roles.values()))
            self.context.claimed.add(owner)
            self._bias(state, group, owner, roles)
        self.state.put(_core.DICT, len(state))
        for key, value in state.items():
            self.value(key, path)
            role = roles.get(key, _core.OTHER)
            name = prefixed(prefix, str(key))
            if type(value) is torch.Tensor:
                self.torch_leaf(value, (*path, key), _core.AS_TORCH, name=name, role=role, owner=owner if key in roles else None)
            elif isinstance(value, Coded):
                self.coded_leaf(value, name, role, owner if key in roles else None)
            else:
                self.value(value, (*path, key))

    def _bias(self, state: dict[str, Any], group: dict[str, Any], owner: str, roles: dict[str, int]) -> None:
        """Adam's constants, where there are any: without them moments are coded as if their bias were gone."""
        betas, step = group.get("betas"), state.get("step", group.get("step"))
        if _core.V not in roles.values() or not isinstance(betas, (tuple, list)) or len(betas) != 2 or step is None:
            return
        try:
            beta1, beta2, count = float(betas[0]), float(betas[1]), float(step)
        except (TypeError, ValueError, RuntimeError):
            return
        if 1 <= count < 1 << 53 and 0 <= beta1 < 1 and 0 <= beta2 < 1:  # a training gone wrong is saved too
            self._adam.append((owner, beta1, beta2, int(count)))


def _few(t: Any) -> Any:
    """Elements that lie evenly over a tensor."""
    flat = t.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // 64)]


def rounding_of(profile: str) -> dict[str, bool]:
    """What a profile makes of optimizers, as :class:`Collector` takes it."""
    return {"weights_only": profile == "weights", "lossy": profile in ("resume", "small")}


def master_key(state: dict[str, Any], param: Any) -> str | None:
    """Under which key a parameter's optimizer state holds the parameter itself, in fp32."""
    torch = torch_module()
    assert torch is not None
    if param.dtype not in (torch.bfloat16, torch.float16):
        return None
    for key in _MASTERS:
        t = state.get(key)
        if type(t) is torch.Tensor and t.dtype is torch.float32 and t.layout is torch.strided and t.shape == param.shape:
            return key
    return None


def moment_roles(state: dict[str, Any], param: Any) -> dict[str, int]:
    """What the tensors of one parameter's optimizer state are.

    Only what is surely a moment of known meaning gets a role; the rest is OTHER and lossless: amsgrad's maximum, Adamax' norm,
    RMSprop's averages, a moment of another shape or integer codes of a low-bit optimizer.
    """
    torch = torch_module()
    assert torch is not None
    coded = {key: _MOMENTS[key] for key, t in state.items() if isinstance(t, Coded)}
    if coded:
        return coded

    def fits(key: str) -> bool:
        t: Any = state.get(key)
        return type(t) is torch.Tensor and t.layout is torch.strided and t.is_floating_point() and t.shape == param.shape

    master = master_key(state, param)
    roles = {} if master is None else {master: _core.MASTER}
    others = set(state) - set(roles) - {"step"}
    if fits("exp_avg") and fits("exp_avg_sq"):
        roles |= {"exp_avg": _core.M, "exp_avg_sq": _core.V}
    elif fits("exp_avg") and others == {"exp_avg"}:  # Lion
        roles["exp_avg"] = _core.M
    elif fits("momentum_buffer") and others == {"momentum_buffer"}:  # SGD
        roles["momentum_buffer"] = _core.MOMENTUM
    return roles

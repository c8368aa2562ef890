# SPDX-License-Identifier: Apache-2.0
"""How each kind of object takes a saved state: modules, optimizers, generators, anything with state_dict(), plain values."""

from __future__ import annotations

import copy
import functools
import random
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import _core, _rng
from ._context import Context, Entry, is_module, is_optimizer, is_place, keeps_more, module_entries
from ._decode import Leaf, Named, parse
from ._dtypes import to_torch
from ._group import Division, Talk, check_writers, too_few
from ._in_place import copy_of, fill, holds_live, is_array, is_buffer, is_live, parameters_in, put, same_plain, strange
from ._names import strip_wrappers
from ._plan import Plan, elements_share, memory_of
from ._tensors import finish
from ._views import is_ndarray, is_torch_tensor, numpy_module, torch_module
from .errors import CorruptError, FormatError, InvalidError, make, mismatch

LAYOUT = 1  # of a run's trees, as Checkpointer writes them

#: State that optimizers of torch and of ckpress.torch keep for each element of a parameter. A parameter of a module is compared with what was saved of it; of one that is of
#: none, these are all that says of which shape it was. Optimizers of others may mean something else by them.
_OF_EACH_ELEMENT = frozenset(
    ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "momentum_buffer", "square_avg", "grad_avg", "acc_delta", "sum", "prev", "step_size", "ax")
    + ("exp_avg_code", "exp_avg_sq_code", "momentum_buffer_code")
)


def kind_of(obj: Any) -> str:
    """Which of the kinds an object of a save is; kept in the tree, so that a restore into another kind is refused."""
    if is_module(obj):
        return "module"
    if is_optimizer(obj):
        return "stateful" if keeps_more(obj) else "optimizer"
    if _generator(obj):
        return "generator"
    if hasattr(obj, "state_dict") and hasattr(obj, "load_state_dict"):
        return "stateful"
    return "value"


def class_of(obj: Any) -> str:
    """Qualified name of an object's class; kept in the tree, so that a restore into another class can be told."""
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


def _generator(obj: Any) -> bool:
    torch, numpy = torch_module(), numpy_module()
    if isinstance(obj, random.Random):
        return True
    if torch is not None and hasattr(torch, "Generator") and isinstance(obj, torch.Generator):
        return True
    return numpy is not None and hasattr(numpy, "random") and isinstance(obj, numpy.random.Generator)


def generator_state(obj: Any) -> Any:
    """The state of a random number generator as a plain value."""
    if isinstance(obj, random.Random):
        return obj.getstate()
    if hasattr(obj, "bit_generator"):
        return _rng.plain(obj.bit_generator.state)
    return obj.get_state()


def set_generator_state(obj: Any, state: Any) -> None:
    if isinstance(obj, random.Random):
        obj.setstate(state)
    elif hasattr(obj, "bit_generator"):
        obj.bit_generator.state = state
    else:
        obj.set_state(state)


def saved_form(obj: Any) -> Any:
    """What is given to the encoder for an object: live modules and optimizers as they are, of others their state."""
    kind = kind_of(obj)
    if kind == "generator":
        return generator_state(obj)
    return obj.state_dict() if kind == "stateful" else obj


#: Parameters of which a fingerprint has elements.
SAMPLED = 16


def fingerprint(objects: Mapping[str, Any]) -> list[Any]:
    """Changes whenever a parameter of a module that is trained is written: torch counts in-place changes of every tensor, but those through ``p.data``, as some
    optimizers make them; so a few elements of some are compared too (of all it would cost a save milliseconds). []: no module has any, so that nobody can tell."""
    here = [p for obj in objects.values() for p in parameters_in(obj) if is_torch_tensor(p) and p.requires_grad and not p.is_inference()]
    seen = [p for p in here if _strided(p) and p.device.type != "meta" and p.numel()]
    few: dict[Any, list[Any]] = {}
    for p in seen[:: -(-len(seen) // SAMPLED) or 1]:
        few.setdefault(p.device, []).append(_first_column(p.detach()))
    torch = torch_module()
    return [(id(p), p.data_ptr(), p._version) for p in here] + [bytes(torch.cat(parts).tolist()) for parts in few.values()]  # type: ignore[union-attr]


def _first_column(t: Any) -> Any:
    """The bytes of some elements of it, without a copy of all."""
    some = t[(slice(None, None, max(1, t.shape[0] // 8)), *(0 for _ in t.shape[1:]))] if t.dim() else t.reshape(1)
    return some.resolve_conj().resolve_neg().contiguous().view(torch_module().uint8)  # type: ignore[union-attr]


class Restorer:
    """Plans a restore of named objects.

    Args:
        plan: filled here.
        objects: live objects by name.
        values: filled with what cannot be restored in place: plain values by name.
    """

    def __init__(self, plan: Plan, objects: dict[str, Any], values: dict[str, Any]) -> None:
        self.plan = plan
        self.objects = objects
        self.values = values
        self.context = Context(objects)
        self._containers: list[tuple[Any, Any, str, Callable[[Any], Any]]] = []  # live, saved, label, what takes the value
        self._modules: set[int] = set()  # what parameters and buffers of modules lie in
        self._filled: dict[Any, int] = {}  # where tensors of containers lie, and what goes there

    def finish(self) -> None:
        """After all objects: tensors in dicts and lists are read in place, unless they are another object's too, such as a model's own as placeholders, or
        of another dtype or shape, as what grows is."""
        taken = self._modules | self.plan.memory
        for obj, raw, label, take in self._containers:
            self.plan.final(_taker(take, self.plan.fresh(self._kept(obj, raw, label, taken))))

    def add(self, name: str, raw: Any, saved_kind: str, saved_class: str | None) -> None:
        """One object and what was saved of it; ``saved_class`` None: not known."""
        obj = self.objects[name]
        kind = kind_of(obj)
        if kind != saved_kind:
            self.plan.mismatched.append(f"{name} ({saved_kind} saved, {kind} here)")
            return
        other = saved_class != class_of(obj)
        why = _layout_differs(obj, kind, raw, saved_class is not None) if other and raw is not None else None
        if why is not None:
            was = saved_class or "an unknown class"
            other_way = f"; its load_state_dict() takes load(...)[{name!r}]" if hasattr(obj, "ckpress_take") and str(saved_class).startswith("torch.optim.") else ""
            self.plan.mismatched.append(f"{name} (saved from {was}, here is {class_of(obj)}: {why}{other_way}; left out, with strict=False, it starts anew)")
            return
        getattr(self, f"_{kind}")(name, obj, raw)
        if kind == "optimizer" and other and raw is not None:
            self.plan.final(lambda: _settle(obj))

    # ---- modules ----

    def _module(self, name: str, module: Any, raw: Any) -> None:
        live = module_entries(module, name)
        self.plan.names(live, raw, name)
        own = [t for t in (*module.parameters(), *module.buffers()) if _strided(t)]
        places = {t.data_ptr() for t in own}
        self._modules |= {memory_of(t) for t in own}
        loose: dict[str, Any] = {}
        for key, entry in live.items():
            if key not in raw:
                continue
            saved = raw[key]
            if is_torch_tensor(entry.value) and isinstance(saved, Leaf) and _strided(entry.value) and entry.value.data_ptr() in places:
                self.plan.in_place(saved, entry.value, f"{name}/{key}")
            elif isinstance(saved, Named) and saved.name == "torch.subclass" and hasattr(entry.value, "__tensor_flatten__"):
                self._subclass(saved, entry.value, f"{name}/{key}")
            elif self._loose_fits(entry, saved, f"{name}/{key}"):
                loose[entry.key] = saved
        if loose:
            self._load_loose(name, module, loose)

    def _loose_fits(self, entry: Entry, saved: Any, label: str) -> bool:
        """Entries that are no live tensors (extra state, values computed by the module): the module has to load them itself."""
        if is_torch_tensor(entry.value) and isinstance(saved, Leaf):
            why = self.plan.fits(saved, entry.value)
            # Extra state may be a tensor of any length.
            if why is not None and not entry.key.endswith("_extra_state"):
                self.plan.mismatched.append(f"{label} ({why})")
                return False
        return True

    def _load_loose(self, name: str, module: Any, loose: dict[str, Any]) -> None:
        value = self.plan.fresh(loose)
        before: dict[str, Any] = {}

        def apply() -> None:
            now = module.state_dict()
            before.update((k, copy.deepcopy(now[k])) for k in loose)
            found = module.load_state_dict(value(), strict=False)
            lost = [f"{name}/{strip_wrappers(key)}" for key in getattr(found, "unexpected_keys", ())]
            if lost and self.plan.strict:
                text = f"nothing was restored; its state_dict() gives what its load_state_dict() does not take: {', '.join(lost)} (strict=False leaves it out)"
                raise mismatch(f"{name}: {text}", [], lost, [])

        self.plan.step(apply, lambda: module.load_state_dict(before, strict=False) if before else None)

    def _subclass(self, saved: Named, live: Any, label: str) -> None:
        attrs, context = live.__tensor_flatten__()
        cls = f"{type(live).__module__}.{type(live).__qualname__}"
        v = saved.value
        if v["class"] != cls or set(v["inner"]) != set(attrs) or v["context"] != context:
            self.plan.mismatched.append(f"{label} ({v['class']} saved, {cls} here, or of another context)")
            return
        for attr in attrs:
            inner, part = getattr(live, attr), v["inner"][attr]
            if isinstance(part, Leaf):
                self.plan.in_place(part, inner, f"{label}/{attr}")
            elif isinstance(part, Named) and part.name == "torch.subclass":
                self._subclass(part, inner, f"{label}/{attr}")
            else:
                self.plan.mismatched.append(f"{label}/{attr} (cannot be restored in place)")

    # ---- optimizers ----

    def _optimizer(self, name: str, optimizer: Any, raw: Any) -> None:
        if raw is None:  # profile "weights": a fresh optimizer is what was asked for
            return
        names = self.context.optimizer_names(optimizer)
        groups = raw["param_groups"]
        if len(groups) != len(names):
            self.plan.mismatched.append(f"{name} ({len(groups)} param_groups saved, {len(names)} here)")
            return
        known = {n for group in groups for n in group["params"]}
        if known and known.isdisjoint(n for group in names for n in group):  # with strict=False it would lose all that it has
            self.plan.mismatched.append(f"{name} (none of its parameters was saved: {_an(known)} there, {_an(names[0])} here; name the modules that they are of)")
            return
        loose = [n for group in names for n in group if n not in known and is_place(n)]
        gone = [n for n in known.difference(n for group in names for n in group) if not is_place(n)]
        if loose and gone:  # most likely the same parameters, of a module that was not named: their state would be lost
            self.plan.mismatched.append(f"{name} (its parameter {_an(loose)} is of no module here, and {_an(gone)} was saved: name the modules that they are of)")
            return
        for g, (live, saved) in enumerate(zip(names, groups)):
            self.plan.names(live, saved["params"], f"{name}.param_groups[{g}]")
        state: dict[Any, Any] = {}
        others = self.plan.fresh(raw.get("other", {}))
        own = hasattr(optimizer, "ckpress_take")  # ckpress.torch's: codes are read beside the live state, and taken at the end
        known_state = own or type(optimizer).__module__.startswith("torch.optim.")
        for param_names, group in zip(names, optimizer.param_groups):
            for key, param in zip(param_names, group["params"]):
                if key in raw["state"] and (not known_state or self._of_its_shape(param, raw["state"][key], f"{name}/{key}")):
                    live = {} if own else optimizer.state.get(param, {})
                    state[param] = self._param_state(live, param, group, raw["state"][key], f"{name}/{key}")
        for group, saved in zip(optimizer.param_groups, groups):
            if own:
                _tell_widths(name, group, saved)
            self._group(group, {k: v for k, v in saved.items() if k != "params"}, name)
        # After the groups: ckpress.torch's take codes by the widths that their groups ask for.
        self.plan.final(lambda: self._set_state(optimizer, state, others()))

    def _set_state(self, optimizer: Any, state: dict[Any, Any], others: dict[Any, Any]) -> None:
        # Absent stays absent: a parameter without saved state starts without.
        made = {param: {k: v() if isinstance(v, _Later) else v for k, v in values.items()} for param, values in state.items()}
        if hasattr(optimizer, "ckpress_take"):
            optimizer.ckpress_take(made)
            return
        optimizer.state.clear()
        optimizer.state.update(made)
        optimizer.state.update(others)

    def _of_its_shape(self, param: Any, saved: dict[str, Any], label: str) -> bool:
        """Whether state fits its parameter: where torch's takes any shape, the next step fails; and ckpress.torch's are taken after all else is written."""
        for key, value in saved.items():
            if not (isinstance(value, Leaf) and key in _OF_EACH_ELEMENT and _strided(param)):
                continue
            shape = self.plan.infos[value.index]["shape"]
            if shape != tuple(param.shape):
                self.plan.mismatched.append(f"{label} ({key} of shape {list(shape)} saved, the parameter here is {list(param.shape)})")
                return False
        return True

    def _param_state(self, live: dict[str, Any], param: Any, group: dict[str, Any], saved: dict[str, Any], label: str) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in saved.items():
            if not isinstance(value, Leaf):
                out[key] = _Later(self.plan.fresh(value))
                continue
            now = live.get(key)
            if not (is_torch_tensor(now) and _strided(now) and self.plan.fits(value, now) is None):
                now = self._make_state(value, param, group, now)
                if now is None:
                    self.plan.mismatched.append(f"{label}/{key} (torch has no dtype {self.plan.infos[value.index]['dtype']})")
                    continue
            self.plan.in_place(value, now, f"{label}/{key}")
            out[key] = now
        return out

    def _make_state(self, leaf: Leaf, param: Any, group: dict[str, Any], now: Any) -> Any:
        """Memory for a state tensor that the optimizer has not made yet, where the optimizer would have put it."""
        torch = torch_module()
        assert torch is not None
        info = self.plan.infos[leaf.index]
        dtype = to_torch(info["dtype"])
        if dtype is None:
            return None
        if info["shape"] == tuple(param.shape) and param.dim() > 0:
            return torch.zeros_like(param, dtype=dtype, requires_grad=False, memory_format=torch.preserve_format)
        if is_torch_tensor(now):
            device = now.device
        else:
            counter = info["shape"] == () and not (group.get("capturable") or group.get("fused"))
            device = torch.device("cpu") if counter else param.device
        return torch.zeros(info["shape"], dtype=dtype, device=device)

    def _group(self, group: dict[str, Any], saved: dict[str, Any], label: str) -> None:
        for key, value in saved.items():
            if isinstance(value, Leaf) and is_torch_tensor(group.get(key)) and self.plan.fits(value, group[key]) is None:
                self.plan.in_place(value, group[key], f"{label}.param_groups[{key!r}]")
            else:
                self.plan.final(_setter(group, key, self.plan.fresh(value)))

    # ---- others ----

    def _stateful(self, name: str, obj: Any, raw: Any) -> None:
        value = self.plan.fresh(raw)
        before: list[Any] = []

        def apply() -> None:
            try:
                before.append(copy.deepcopy(obj.state_dict()))
            except RuntimeError:  # each rank has a part (ZeroRedundancyOptimizer), and can't tell what all have together
                if not is_optimizer(obj):
                    raise
            obj.load_state_dict(value())

        step = self.plan.last_step if is_optimizer(obj) else self.plan.step
        step(apply, lambda: obj.load_state_dict(before[0]) if before else None)

    def _generator(self, name: str, obj: Any, raw: Any) -> None:
        self.generator(obj, raw)

    def generator(self, obj: Any, raw: Any) -> None:
        value = self.plan.fresh(raw)
        before = generator_state(obj)
        self.plan.step(lambda: set_generator_state(obj, value()), lambda: set_generator_state(obj, before))

    def _value(self, name: str, obj: Any, raw: Any) -> None:
        if is_torch_tensor(obj) and isinstance(raw, Named) and raw.name == "torch.nn.Parameter":  # one without a gradient
            raw = raw.value
        self.values[name] = obj  # in most cases; else by _assign
        if is_torch_tensor(obj) and isinstance(raw, Leaf) and _strided(obj):
            self.plan.in_place(raw, obj, name)
        elif is_ndarray(obj) and isinstance(raw, Leaf):
            self.plan.in_place_array(raw, obj, name)
        elif holds_live(obj, self.context.stepped_alone):
            self._container(name, obj, raw)
        elif strange(obj, raw):
            self.plan.mismatched.append(f"{name} (something else was saved than the {class_of(obj)} that is here)")
        elif hasattr(obj, "__tensor_flatten__") and isinstance(raw, Named) and raw.name == "torch.subclass":
            self._subclass(raw, obj, name)
        elif is_array(obj) or is_buffer(obj):
            self._array(name, obj, raw)
        else:
            self._containers.append((obj, raw, name, lambda value: self._assign(name, obj, value)))

    def _assign(self, name: str, obj: Any, value: Any) -> None:
        """Containers are changed in place, so that the caller's variable sees it; the rest is only in ``values``."""
        self.values[name] = fill(obj, value)

    def _kept(self, obj: Any, raw: Any, label: str, taken: set[int]) -> Any:
        """What was saved, and in it the live tensors themselves where it is read into them."""
        leaf = raw.value if isinstance(raw, Named) and raw.name == "torch.nn.Parameter" else raw
        if isinstance(leaf, Leaf) and self._fillable(obj, leaf, taken):
            live = obj if self.plan.fits(leaf, obj) is None else made_beside(obj, leaf, self.plan.infos[leaf.index])
            if live is None:
                return raw
            self.plan.in_place(leaf, live, label)
            return live if live is obj or raw is leaf else Named(raw.name, live)
        if isinstance(raw, Named) and raw.name in _DICT_AT and type(raw.value) is tuple and len(raw.value) == 2:
            at = _DICT_AT[raw.name]
            return Named(raw.name, tuple(self._kept(obj, v, label, taken) if i == at else v for i, v in enumerate(raw.value)))
        if isinstance(obj, dict) and isinstance(raw, dict):
            return type(raw)((k, self._kept(obj[k], v, f"{label}/{k}", taken) if k in obj else v) for k, v in raw.items())
        if isinstance(obj, list) and type(raw) is list:
            return [self._kept(obj[i], v, f"{label}/{i}", taken) if i < len(obj) else v for i, v in enumerate(raw)]
        return raw

    def _fillable(self, t: Any, leaf: Leaf, taken: set[int]) -> bool:
        if not (is_torch_tensor(t) and _strided(t)) or t.device.type == "meta" or elements_share(t) or (t.numel() > 0 and memory_of(t) in taken):
            return False
        alias = self.plan.infos[leaf.index]["alias_of"]
        root = leaf.index if alias is None else alias
        return t.numel() == 0 or self._filled.setdefault((t.device, t.data_ptr(), t.shape, t.stride()), root) == root  # one placeholder for several

    def _array(self, name: str, obj: Any, raw: Any) -> None:
        value = self.plan.fresh(raw)
        before = copy_of(obj)
        self.plan.step(lambda: put(obj, value(), name), lambda: put(obj, before, name))

    # ---- modules, optimizers and parameters in dicts, lists and tuples ----

    def _container(self, label: str, obj: Any, raw: Any) -> None:
        """Whoever else holds what is in it must see it restored, so it is, in place."""
        fits = isinstance(raw, dict) if isinstance(obj, dict) else type(raw) is type(obj) and len(raw) == len(obj)
        if not fits:
            self.plan.mismatched.append(f"{label} (something else was saved than the {class_of(obj)} that is here)")
            return
        keys = raw if isinstance(obj, dict) else range(len(obj))
        live = {key: item for key, item in (obj.items() if isinstance(obj, dict) else enumerate(obj)) if is_live(item, self.context.stepped_alone)}
        self.plan.missing += [f"{label}/{key}" for key in live if key not in keys]
        for key in keys:
            if key in live:
                self._live(f"{label}/{key}", live[key], raw[key])
            elif isinstance(obj, tuple):
                if not same_plain(obj[key], raw[key]):
                    self.plan.mismatched.append(f"{label}/{key} (a value in a tuple cannot be changed: use a list)")
            else:
                here = obj[key] if not isinstance(obj, dict) or key in obj else None
                self._containers.append((here, raw[key], f"{label}/{key}", functools.partial(obj.__setitem__, key)))
        if isinstance(obj, dict):
            gone = [key for key in obj if key not in raw and key not in live]
            self.plan.final(lambda: [obj.pop(key) for key in gone])

    def _live(self, label: str, obj: Any, raw: Any) -> None:
        if is_torch_tensor(obj) and isinstance(raw, Leaf) and _strided(obj):
            self.plan.in_place(raw, obj, label)
        elif is_module(obj) and isinstance(raw, dict):
            self._module(label, obj, raw)
        elif is_optimizer(obj) and (raw is None or (isinstance(raw, dict) and {"state", "param_groups"} <= set(raw))):
            why = None if raw is None else _layout_differs(obj, "optimizer", raw, False)
            if why is None:
                self._optimizer(label, obj, raw)
            else:
                self.plan.mismatched.append(f"{label} (here is {class_of(obj)}: {why})")
        elif isinstance(obj, dict) or type(obj) in (list, tuple):
            self._container(label, obj, raw)
        else:
            self.plan.mismatched.append(f"{label} (something else was saved than the {class_of(obj)} that is here)")


#: Keys of param_groups that belong to no optimizer class: parameters, and what schedulers note.
_COMMON = {"params", "param_names", "initial_lr"}


def _layout_differs(obj: Any, kind: str, raw: Any, known: bool) -> str | None:
    """Why an object cannot go on from what another class saved; None when it can.

    A class may be renamed or wrapped, and AdamW takes Adam's state: what counts is whether the two keep the same things by the same names.
    Within one class differences are those of versions of torch, which bring keys with defaults; ``known`` False: it may be the same.
    """
    sides: list[tuple[set[Any], set[Any]]] = []
    if kind == "stateful":
        live = obj.state_dict()
        if isinstance(raw, dict) and isinstance(live, dict):
            sides = [(set(raw) - set(live), set(live) - set(raw))]
    elif kind == "optimizer":
        groups = zip(obj.param_groups, raw["param_groups"])
        sides = [(set(saved) - set(group) - _COMMON, set(obj.defaults) - set(saved) - _COMMON) for group, saved in groups]
    for there, here in sides:
        if (there or here) and (known or (there and here)):
            parts = [f"{', '.join(sorted(map(repr, keys)))} only {where}" for keys, where in ((there, "there"), (here, "here")) if keys]
            return "; ".join(parts)
    return None


def _tell_widths(name: str, group: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """State comes in the widths that it was saved in, whatever the constructor was given."""
    there, here = (tuple(bits) if isinstance(bits, (list, tuple)) else bits for bits in (saved.get("state_bits"), group.get("state_bits")))
    if there != here and there is not None:
        way = "to change them: new.load_state_dict(old.torch_state_dict())"
        warnings.warn(f"ckpress: {name}: goes on with the checkpoint's state_bits={there!r}, not {here!r} as given here ({way})", RuntimeWarning, stacklevel=7)


def _an(names: Iterable[str]) -> str:
    return repr(next(iter(sorted(names)), None))


def _settle(optimizer: Any) -> None:
    """What torch's own load_state_dict() ends with: AdamW that took Adam's groups makes them its own."""
    optimizer.__setstate__({"state": optimizer.state, "param_groups": optimizer.param_groups})


#: Where a NAMED dict has its items.
_DICT_AT = {"collections.OrderedDict": 0, "collections.defaultdict": 1}


def _taker(take: Callable[[Any], Any], make_value: Callable[[], Any]) -> Callable[[], None]:
    return lambda: take(make_value())


def _setter(group: Any, key: Any, make_value: Callable[[], Any]) -> Callable[[], None]:
    def assign() -> None:
        group[key] = make_value()

    return assign


class _Later:
    """A plain value of an optimizer's state that has tensors in it, or none: made when everything has been read."""

    def __init__(self, make_value: Any) -> None:
        self._make = make_value

    def __call__(self) -> Any:
        return self._make()


def made_beside(live: Any, leaf: Leaf, info: Mapping[str, Any]) -> Any:
    """Memory for a saved tensor on the device of one that it does not fit into; None: on the CPU it is made as everything else is."""
    torch, dtype = torch_module(), to_torch(info["dtype"])
    if live.device.type == "cpu" or dtype is None or leaf.as_ not in (_core.AS_TORCH, _core.AS_TORCH_PARAMETER, _core.AS_TORCH_REQUIRES_GRAD):
        return None
    return finish(torch.empty(info["shape"], dtype=dtype, device=live.device), leaf.as_)  # type: ignore[union-attr]


def _strided(t: Any) -> bool:
    torch = torch_module()
    if torch is None or type(t) not in (torch.Tensor, torch.nn.Parameter):
        return False
    return t.layout is torch.strided and not t.is_quantized


def check_object_name(name: str, reserved: tuple[str, ...]) -> None:
    """Raises InvalidError for names that the tree uses itself."""
    if name in reserved:
        raise make(InvalidError, f"an object cannot be named {name!r}: reserved")


def planned(ck: Any, objects: dict[str, Any], strict: bool, values: dict[str, Any], rng: bool, talk: Talk | None, division: Division | None) -> tuple[Plan, int]:
    """The plan of a restore of named objects from a run's checkpoint, and the steps that it has finished.

    Args:
        values: as of :class:`Restorer`.
        rng: global random states, too.

    Raises:
        FormatError: no Checkpointer has written it. MismatchError: other ranks than these.
    """
    nodes = ck.tree()
    raw: Any = parse(nodes, len(ck)) if nodes else None
    try:
        meta = raw["ckpress"]
        kinds, done, layout = dict(meta["kinds"]), raw["step"], meta["layout"]
        classes = dict(meta.get("classes", {}))  # early checkpoints note none
    except (TypeError, KeyError, ValueError):
        text = "was not saved by a Checkpointer, which notes what goes where (a file that was imported?): take it with load(), and give each object its part by load_state_dict()"
        raise make(FormatError, f"{ck.info()['name']}: {text}") from None
    if layout != LAYOUT or type(done) is not int:
        raise make(CorruptError, f"{ck.info()['name']}: a tree of layout {layout!r}, known is {LAYOUT}")
    check_writers(meta, ck.info(), talk, division)
    plan = Plan(ck, strict)
    restorer = Restorer(plan, objects, values)
    plan.missing += [name for name in objects if name not in kinds]
    plan.unexpected += [name for name in kinds if name not in objects]
    for name in objects:
        if name in kinds:
            restorer.add(name, raw[name], kinds[name], classes.get(name))
    restorer.finish()
    if rng and talk is not None and (text := too_few(ck.info(), talk)):
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    elif rng and "rng" in raw:
        state = plan.fresh(raw["rng"])
        before = _rng.get()
        plan.step(lambda: _rng.put(state()), lambda: _rng.put(before))
    return plan, done

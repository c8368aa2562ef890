# SPDX-License-Identifier: Apache-2.0
"""Which parameter is which: names of the parameters of all modules in a save, by identity of the parameter object."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ._names import Path, join, strip_wrappers
from ._views import torch_module
from .errors import InvalidError, make


def is_module(obj: Any) -> bool:
    torch = torch_module()
    return torch is not None and hasattr(torch, "nn") and isinstance(obj, torch.nn.Module)


def is_optimizer(obj: Any) -> bool:
    torch = torch_module()
    return torch is not None and hasattr(torch, "optim") and isinstance(obj, torch.optim.Optimizer)


def keeps_more(optimizer: Any) -> list[str]:
    """What an optimizer's own state_dict() has beside torch's state and param_groups, such as the state of an optimizer inside it; "state" where that
    itself is elsewhere than in ``optimizer.state`` (ZeroRedundancyOptimizer: in an optimizer inside it, and each rank has a part)."""
    torch = torch_module()
    if torch is None or type(optimizer).state_dict is torch.optim.Optimizer.state_dict or hasattr(optimizer, "ckpress_state"):
        return []
    try:
        own = optimizer.state_dict()
    except RuntimeError:  # only a part of it is on this rank
        return ["state"]
    more = sorted(str(key) for key in set(own) - {"state", "param_groups"})
    return more or (["state"] if len(own.get("state", ())) > len(optimizer.state) else [])


@dataclass
class Entry:
    """One entry of a module's state_dict: its own key there, and the live value."""

    key: str
    value: Any


def module_entries(module: Any, label: str) -> dict[str, Entry]:
    """The module's state_dict by keys without wrapper prefixes; parameters as the live objects.

    Raises:
        InvalidError: two keys are the same without their prefixes.
    """
    try:
        state = module.state_dict(keep_vars=True)
    except TypeError:  # an override of the old signature
        state = module.state_dict()
    out: dict[str, Entry] = {}
    for key, value in state.items():
        short = strip_wrappers(key)
        if short in out:
            raise make(InvalidError, f"{label}: {key!r} and {out[short].key!r} are both {short!r} without the prefixes of wrappers")
        out[short] = Entry(key, value)
    return out


def prefixed(prefix: str, *keys: str) -> str:
    """Name of a tensor below an object; at the root there is no prefix."""
    return "/".join(p for p in (prefix, *(join((k,)) for k in keys)) if p)


def _place(group: int, index: int) -> str:
    """Names a parameter of an optimizer that is of no module."""
    return f"group{group}.{index}"


def is_place(name: str) -> bool:
    return re.fullmatch(r"group[0-9]+\.[0-9]+", name) is not None


class Context:
    """Names of parameters, for owners of optimizer state.

    Args:
        obj: what is saved; modules and optimizers are looked for in its dicts, lists and tuples.
    """

    def __init__(self, obj: Any) -> None:
        self._params: dict[int, tuple[str, str]] = {}  # id -> (prefix of its module, key)
        self._alive: list[Any] = []  # ids are only names while their objects live
        self.trained: set[int] | None = None
        self.claimed: set[str] = set()  # owners whose moments some optimizer has already given
        self._walk(obj, (), 0)

    def _walk(self, obj: Any, path: Path, depth: int) -> None:
        if is_module(obj):
            self._add_module(obj, "" if not path else join(path))
        elif is_optimizer(obj):
            self.trained = self.trained or set()
            self.trained.update(id(p) for group in obj.param_groups for p in group["params"])
        elif depth < 100:
            items = obj.items() if isinstance(obj, dict) else enumerate(obj) if type(obj) in (list, tuple) else ()
            for key, item in items:
                self._walk(item, (*path, key), depth + 1)

    def _add_module(self, module: Any, prefix: str) -> None:
        for key, p in module.named_parameters(remove_duplicate=False):
            self._params.setdefault(id(p), (prefix, strip_wrappers(key)))
            self._alive.append(p)

    def owner(self, param: Any) -> str | None:
        """Name of the weight that holds this parameter, if a module in the save has it as a plain float tensor."""
        torch = torch_module()
        assert torch is not None
        found = self._params.get(id(param))
        plain = type(param) is torch.nn.Parameter and param.layout is torch.strided and param.is_floating_point()
        return prefixed(*found) if found is not None and plain else None

    @property
    def stepped_alone(self) -> set[int]:
        """Ids of the parameters of optimizers that no module of the save has."""
        return (self.trained or set()) - self._params.keys()

    def is_trained(self, param: Any) -> bool:
        """Whether training changes it, as far as can be seen: only such weights may be coded lossily."""
        return bool(param.requires_grad) and (self.trained is None or id(param) in self.trained)

    def optimizer_names(self, optimizer: Any) -> list[list[str]]:
        """A name for each parameter of each group: its key in the module; with the module's name before it when two modules are
        trained by this optimizer; its place when it is of no module."""
        found = [[self._params.get(id(p)) for p in group["params"]] for group in optimizer.param_groups]
        many = len({f[0] for group in found for f in group if f is not None}) > 1
        out = []
        for g, group in enumerate(found):
            given = optimizer.param_groups[g].get("param_names")
            names = []
            for i, f in enumerate(group):
                if f is not None:
                    names.append(f"{f[0]}/{f[1]}" if many else f[1])
                elif given is not None and len(given) == len(group):
                    names.append(strip_wrappers(str(given[i])))
                else:
                    names.append(_place(g, i))
            out.append(names)
        flat = [name for names in out for name in names]
        if len(set(flat)) != len(flat):
            twice = next(name for name in flat if flat.count(name) > 1)
            raise make(InvalidError, f"optimizer: two parameters are named {twice!r}")
        return out

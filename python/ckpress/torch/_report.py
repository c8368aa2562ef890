# SPDX-License-Identifier: Apache-2.0
"""What an optimizer holds, as a dict that prints itself."""

from __future__ import annotations

from typing import Any

LAST = 8  # transitions that are printed


class Report(dict[str, Any]):
    """``report()`` of an optimizer: its keys are for programs, ``print()`` of it for people, ``log_to()`` for plots over steps."""

    def log_to(self, writer: Any, step: int) -> None:
        """Writes scalars: ``ckpress/optimizer/bits``, ``bytes``, ``skipped``, a policy's ``raised`` and ``lowered``, and the widths of each parameter,
        ``ckpress/moment_bits/GROUP.INDEX/m`` and ``v`` (``momentum`` where it is alone).

        Args:
            writer: anything with ``add_scalar(name, value, step)``, such as torch.utils.tensorboard's SummaryWriter.
        """
        figures = {name: self[name] for name in ("bits", "bytes", "skipped")}
        figures |= {name: self["policy"][name] for name in ("raised", "lowered") if "policy" in self}
        for name, value in figures.items():
            writer.add_scalar(f"ckpress/optimizer/{name}", value, step)
        for r in self["parameters"]:
            for moment, bits in zip(("m", "v") if len(r["bits"]) == 2 else ("momentum",), r["bits"], strict=True):
                writer.add_scalar(f"ckpress/moment_bits/{r['group']}.{r['index']}/{moment}", bits, step)

    def __str__(self) -> str:
        rows = self["parameters"]
        both = not rows or len(rows[0]["bits"]) == 2  # or a momentum alone
        lines = [f"optimizer state: {_size(self['bytes'])}, {self['bits']:.2f} bits a value of {'m and v' if both else 'the momentum'}, everything counted"]
        lines.append(f"{self['skipped']} elements skipped, {self['rows_raised']} rows rewritten")
        sharded = self.get("sharded")
        if sharded is not None:
            share = 100 * sharded["exchanged"] / max(1, sharded["gradients"])
            lines.append(f"this rank's part of {sharded['ranks']} ranks', which exchanged {_size(sharded['exchanged'])} for it, {share:.4f} % of gradients")
        policy = self.get("policy")
        if policy is not None:
            lines.append(
                f"widths by a budget of {policy['budget_bits']:.2f} bits: now {policy['bits']:.3f}; {policy['rounds']} rounds of {policy['every']} steps, "
                f"{policy['raised']} raised, {policy['lowered']} lowered"
            )
        lines.append(f"{'parameter':<14}{'shape':<20}{'m':>3}{'v' if both else '':>4}{'bytes':>14}")
        for r in rows:
            name, shape = f"{r['group']}.{r['index']}", "x".join(map(str, r["shape"])) or "scalar"
            lines.append(f"{name:<14}{shape:<20}{r['bits'][0]:>3}{r['bits'][1] if both else '':>4}{r['bytes']:>14,}")
        if policy is not None and policy["history"]:
            lines.append("last changes:")
            lines += [f"  step {h['step']}: parameter number {h['parameter']}: {_pair(h['from'])} to {_pair(h['to'])}" for h in policy["history"][-LAST:]]
        return "\n".join(lines)


def _pair(bits: tuple[int, int]) -> str:
    return f"{bits[0]}/{bits[1]}"


def _size(n: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= scale:
            return f"{n / scale:.1f} {unit}"
    return f"{n} bytes"

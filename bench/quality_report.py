# SPDX-License-Identifier: Apache-2.0
"""Tables of the quality bench for docs/quality.md, and its MUST lines."""

from __future__ import annotations

import math
import pathlib
from typing import Any

from baselines import CODERS, WEIGHTS_ONLY
from quality_curve import bits_at
from quality_figures import Group, groups, plains, with_interval
from quality_plot import plot

Row = dict[str, Any]
LARGE = 8e6  # parameters
BITS = {"resume": 0.80, "small": 0.45}
BITS_LARGE = {"resume": 0.64, "small": 0.45}
BITS_SGD = {"resume": 1.0, "small": 1.0}  # task resnet: weights and momentum
RAW, DYNAQUANT_TIMES, FEWER = 32, 26, 1.5
BEGIN, END = "<!-- bench-quality: begin -->", "<!-- bench-quality: end -->"


def noise_table(rows: list[Row]) -> list[str]:
    lines = ["| task | parameters | steps | uninterrupted seeds | end loss | standard deviation | slope a step | s a step |", "|---" * 8 + "|"]
    for p in plains(rows).values():
        lines.append(f"| {p.task} | {p.params / 1e6:.2f} M | {p.steps} | {p.seeds} | {p.loss:.4f} | {p.sd:.4f} | {p.slope:.2e} | {p.step_s:.3f} |")
    return lines


def main_table(found: list[Group]) -> list[str]:
    lines = ["| task | system | setting | restores | seeds | bits: all | without moments | loss gap (95 %) | in noise sd | steps lost a restore (95 %) "
             "| last lossy save | last save | stall, steps | cost, steps a save | of it evaluating | restore, s |", "|---" * 16 + "|"]  # fmt: skip
    for g in found:
        weights = f"{g.bits_w:.3f}" if g.bits_w else ""
        final = "" if math.isnan(g.final) else f"{g.final:+.2%}"
        lines.append(f"| {g.task} | {g.system} | {g.setting} | {g.restores} | {g.seeds} | {g.bits:.3f} | {weights} | {with_interval(g.gap, g.gap_half, 4)} "
                     f"| {g.sd:+.2f} | {with_interval(g.lost, g.lost_half, 2)} | {g.saved:+.2%} | {final} | {g.stall:.2f} | {g.cost:.2f} | {g.evaluating:.2f} "
                     f"| {g.restore:.2f} |")  # fmt: skip
    return lines


def chain_table(rows: list[Row]) -> list[str]:
    lines = ["| task | profile | checkpoints read | restore, processor seconds | in steps |", "|---" * 5 + "|"]
    for r in rows:
        if r["system"] == "chain":
            profile, length = r["setting"].split(" ")
            lines.append(f"| {r['task']} | {profile} | {length} | {float(r['restore_s']):.2f} | {float(r['restore_s']) / float(r['step_s']):.1f} |")
    return lines


def compare(found: list[Group], task: str) -> list[tuple[Group, str, float, float]]:
    """(rival, which bits, its bits, ckpress's at the rival's gap) at 10 restores."""
    own = [g for g in found if g.task == task and g.restores == 10]
    ckpress = [g for g in own if g.system == "ckpress" and "+" not in g.setting]
    out = []
    for g in own:
        if g.system in CODERS or g.system == "dynaquant":
            field = "bits_w" if g.system in WEIGHTS_ONLY or g.system == "dynaquant" else "bits"
            curve = [(getattr(c, field), c.gap) for c in ckpress]
            out.append((g, field, getattr(g, field), bits_at(curve, g.gap, g.noise)))
    return out


def compare_table(found: list[Group]) -> list[str]:
    lines = ["| task | rival | setting | loss gap | bits | its | ckpress's at that gap | times |", "|---" * 8 + "|"]
    for task in dict.fromkeys(g.task for g in found):
        for g, field, theirs, ours in compare(found, task):
            what = "all" if field == "bits" else "without moments"
            lines.append(f"| {task} | {g.system} | {g.setting} | {g.gap:+.4f} | {what} | {theirs:.3f} | {ours:.3f} | {theirs / ours:.2f} |")
    return lines


def page(rows: list[Row], found: list[Group]) -> str:
    commits = ", ".join(dict.fromkeys(r["commit"] for r in rows))
    where = ", ".join(dict.fromkeys(f"{r['machine']}, {r['compiler']}" for r in rows))
    return "\n".join([
        "Trainings left alone:", "", *noise_table(rows), "",
        "With restores:", "", *main_table(found), "",
        "Rivals beside ckpress's curve at the same gap (gaps below one noise standard deviation count as one):", "", *compare_table(found), "",
        "Restores by length of chain:", "", *chain_table(rows), "",
        f"Measured at {commits}; {where}; one thread a run.", ""])  # fmt: skip


def put(document: pathlib.Path, begin: str, end: str, text: str) -> None:
    """Between its markers."""
    before, _, rest = document.read_text().partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"{document}: no {begin} and {end}")
    document.write_text(f"{before}{begin}\n\n{text}\n{end}{after}")


def report(rows: list[Row], out: pathlib.Path, prefix: str, document: pathlib.Path | None) -> None:
    """Writes the tables to ``document`` between its markers (None: to PREFIX.md in ``out``) and the plots to ``out``."""
    if not rows:
        print("no rows: no report")
        return
    found = groups(rows)
    text = page(rows, found)
    if document is None:
        (out / f"{prefix}.md").write_text(text)
    else:
        put(document, BEGIN, END, text)
    plot(found, plains(rows), out, prefix)


def line(name: str, value: float, bar: float, least: bool = False) -> str:
    """``least``: the bar is to be reached from above. A figure that cannot be told (nan: too few seeds, a gap not reached) is short."""
    ok = value >= bar if least else value <= bar
    return f"MUST {name.replace(' ', '_')} {value:.4g} {bar:g} {'ok' if ok else 'short'}"


def profile_musts(g: Group) -> list[str]:
    name = f"{g.task}_{g.setting}_{g.restores}"
    bits = BITS_SGD if g.task == "resnet" else BITS_LARGE if g.params >= LARGE else BITS
    out = [line(f"{name}_bits", g.bits, bits[g.setting]), line(f"{name}_final_gap", g.final, 0.002),
           line(f"{name}_cost_steps", g.cost, 3)]  # fmt: skip
    if g.setting == "resume":
        return [*out, line(f"{name}_gap_sd", g.sd, 2)]
    return [*out, line(f"{name}_steps_lost", g.lost - g.lost_half, 10)]


def musts(rows: list[Row]) -> list[str]:
    found, out = groups(rows), []
    for g in found:
        if g.system == "ckpress" and g.setting in BITS:
            out += profile_musts(g)
        if g.system == "ckpress" and g.setting.endswith("+eval"):
            out.append(line(f"{g.task}_{g.setting}_cost_steps", g.cost, 3))
    for task in dict.fromkeys(g.task for g in found):
        for g, _, theirs, ours in compare(found, task):
            bar = FEWER if g.system == "dynaquant" else 1.0
            out.append(line(f"{task}_times_{g.system}_{g.setting}", theirs / ours, bar, least=True))
    coded = [RAW / g.bits_w for g in found if g.system == "dynaquant" and g.setting == "search:0.05"]
    if coded:
        out.append(line("dynaquant_weights_times", max(coded), DYNAQUANT_TIMES, least=True))
    return out

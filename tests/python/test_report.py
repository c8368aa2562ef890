# SPDX-License-Identifier: Apache-2.0
"""The command's report of a real training: its numbers are those of list_run and info, and no name breaks out of it."""

from __future__ import annotations

import html.parser
import json
import shutil
import subprocess
from typing import Any

import ckpress
import pytest
import torch

COMMAND = shutil.which("ckpress")
pytestmark = pytest.mark.skipif(COMMAND is None, reason="no ckpress command in the path")

HOSTILE = ["<script>alert(1)</script>", "\"quoted\" 'twice' & more", "größe\u202e☃", "</title></svg><b>"]
VOID = {"meta"}


class Page(html.parser.HTMLParser):
    """Tables by caption, text, and what elements there are; refuses whatever could load or run something."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.kinds: set[str] = set()
        self.tables: dict[str, list[list[str]]] = {}
        self.titles: list[str] = []
        self._caption = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.kinds.add(tag)
        for key, _ in attrs:
            assert not key.startswith("on") and key not in ("href", "src", "action"), (tag, key)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self._caption = ""
        elif tag == "tr":
            self.tables.setdefault(self._caption, []).append([])
        elif tag in ("td", "th"):
            self.tables[self._caption][-1].append("")
        elif tag == "title":
            self.titles.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "caption" in self.open:
            self._caption += data
        elif "td" in self.open or "th" in self.open:
            self.tables[self._caption][-1][-1] += data
        elif "title" in self.open:
            self.titles[-1] += data

    def table(self, caption: str) -> list[dict[str, str]]:
        """Rows of the table whose caption begins so, by heading."""
        (rows,) = (rows for name, rows in self.tables.items() if name.startswith(caption))
        return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def parse(path: Any) -> Page:
    page = Page()
    text = path.read_text(encoding="utf-8")
    page.feed(text)
    page.close()
    assert page.open == [] and not page.kinds & {"script", "link", "img", "iframe", "b"} and "http" not in text
    return page


def report(*args: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, "report", *map(str, args)], capture_output=True, text=True, check=False)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleDict({"in": torch.nn.Linear(48, 160), "<td><script>": torch.nn.Linear(160, 48)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers["<td><script>"](torch.tanh(self.layers["in"](x)))


def train(run: Any, steps: int, *, every: int = 5, seed: int = 0, **options: Any) -> None:
    """Goes on from what the run has, up to `steps`."""
    torch.manual_seed(seed)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    x = torch.randn(256, 48, generator=torch.Generator().manual_seed(1))
    y = torch.roll(x, 1, 1)

    def loss(m: torch.nn.Module) -> torch.Tensor:
        return torch.nn.functional.mse_loss(m(x), y)

    with ckpress.Checkpointer(run, profile="resume", eval_fn=loss, max_loss_increase=0.02, eval_every=2, **options) as ck:
        done = ck.restore(model=model, optimizer=optimizer) or 0
        while done < steps:
            optimizer.zero_grad()
            value = loss(model)
            value.backward()
            optimizer.step()
            done += 1
            if done % every == 0:
                metrics = {"train": value.item(), **{name: float(i) for i, name in enumerate(HOSTILE)}}
                ck.save(done, metrics=metrics, model=model, optimizer=optimizer, wait=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("report") / "a <b> run"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    train(path, 30, key_every=4, final_on_close=False)
    train(path, 60, key_every=4, seed=3)
    torch.set_num_threads(threads)
    return path


def number(text: str) -> float | None:
    return None if text == "–" else float(text.replace(",", ""))


def close(shown: str, value: float | None) -> bool:
    """Four digits of it, or nothing of nothing."""
    return number(shown) is None if value is None else number(shown) == pytest.approx(value, rel=6e-4, abs=1e-12)


def test_the_numbers_are_those_of_list_and_info(run, tmp_path):
    done = report(run, "-o", tmp_path / "r.html")
    assert done.returncode == 0, done.stderr
    page = parse(tmp_path / "r.html")
    rows = page.table("Bits are those of a parameter")
    listed = ckpress.list_run(run)
    assert len(rows) == len(listed) > 10
    for row, entry in zip(rows, listed, strict=True):
        assert int(row["step"]) == entry.step and int(row["number"]) == entry.sequence and row["health"] == entry.health == "ok"
        assert number(row["bytes"]) == entry.stored_bytes and row["profile"] == entry.profile == "resume"
        assert row["kind"].startswith("delta" if entry.is_delta else "key") and int(row["restores"]) == entry.restore_count
        for name, column in (("quality", "quality"), ("step", "step, RMS"), ("movement", "movement, RMS"), ("m_share", "m share")):
            assert close(row[column], entry.settings.get(name)), (name, row)
        assert close(row["loss, live"], entry.metrics.get("ckpress.loss_live")) and close(
            row["loss, decoded"], entry.metrics.get("ckpress.loss_decoded")
        )
        assert float(row["all, bits"]) == pytest.approx(8 * entry.stored_bytes / entry.params, abs=6e-4)
    summary = {row["what"]: row["value"] for row in page.table("All checkpoints")}
    assert (
        summary["stored bytes"].startswith(f"{sum(e.stored_bytes for e in listed):,} ")
        and summary["raw bytes"] == f"{sum(e.raw_bytes for e in listed):,}"
    )
    assert sum(1 for e in listed if e.metrics.get("ckpress.loss_live")) > 5 and {e.restore_count for e in listed} == {0, 1}


def test_parts_and_tensors_of_one_checkpoint(run, tmp_path):
    assert report(run, "-o", tmp_path / "r.html").returncode == 0
    page = parse(tmp_path / "r.html")
    (row,) = (r for r in page.table("Bits are those") if r["step"] == "25")
    with ckpress.open(f"{run}@25") as f:
        info = f.info
        tensors = [f.checkpoint.tensor(i) for i in range(len(f))]
    params, stored = info["params_by_role"]["weight"], info["stored_by_role"]
    rest = info["overhead_bytes"] + stored.get("other", 0)
    for column, size in (("weights, bits", stored["weight"]), ("m, bits", stored["m"]), ("v, bits", stored["v"]), ("rest, bits", rest)):
        assert float(row[column]) == pytest.approx(8 * size / params, abs=6e-4), column
    sizes = {r["tensor"]: r for r in page.table("The largest tensors")}
    column = next(k for k in next(iter(sizes.values())) if k.startswith("bits at"))
    with ckpress.open(f"{run}@{column.rsplit(' ', 1)[1]}") as f:
        first = {t["name"]: t for t in (f.checkpoint.tensor(i) for i in range(len(f)))}
    big = [t["name"] for t in sorted(tensors, key=lambda t: t["numel"])[-6:]]
    assert set(big) <= set(sizes) and all(close(r[column], first[name]["bits_per_element"]) for name, r in sizes.items())
    assert any("<td><script>" in name for name in sizes)


def test_errors_of_the_newest(tmp_path):
    train(tmp_path / "run", 20, final_on_close=False)
    assert report(tmp_path / "run").returncode == 0
    rows = parse(tmp_path / "run-report.html").table("Step 20: tensors with the largest errors")
    with ckpress.open(tmp_path / "run") as f:
        tensors = {t["name"]: t for t in (f.checkpoint.tensor(i) for i in range(len(f))) if t["max_rel_error"] > 0}
    assert {r["tensor"] for r in rows} == set(tensors) and {r["role"] for r in rows} == {"weight", "v"}
    for r in rows:
        t = tensors[r["tensor"]]
        assert close(r["largest error"], t["max_rel_error"]) and close(r["RMS error"], None if r["role"] == "v" else t["rms_rel_error"])


def test_hostile_names_stay_text(run, tmp_path):
    assert report(run, "-o", tmp_path / "r.html").returncode == 0
    page = parse(tmp_path / "r.html")
    metrics = {r["name"]: r for r in page.table("Metrics")}
    assert set(HOSTILE) <= set(metrics) and all(float(metrics[n]["last"]) == i for i, n in enumerate(HOSTILE))
    assert page.titles[0] == "ckpress: a <b> run" and set(HOSTILE) <= set(page.titles)


def test_json_has_all_of_it(run):
    done = report(run, "--json")
    figures = json.loads(done.stdout)
    listed = ckpress.list_run(run)
    assert done.returncode == 0 and [c["dir"] for c in figures["checkpoints"]] == [e.dir for e in listed]
    for c, e in zip(figures["checkpoints"], listed, strict=True):
        assert c["metrics"] == e.metrics and c["settings"] == e.settings and (c["parent"] or "") == e.parent_dir
    assert not list(run.parent.glob("*.html"))


def test_deleted_checkpoints_are_counted_and_damage_is_named(tmp_path):
    path = tmp_path / "run"
    train(path, 60, key_every=2, keep_last=3, final_on_close=False)
    page = parse_report(path, tmp_path / "kept.html")
    listed = ckpress.list_run(path)
    assert f"{len(listed)} of 12 saves are here" in page
    shard = next((path / listed[-1].dir).glob("*.ckp"))
    shard.write_bytes(shard.read_bytes()[:-100])
    page = parse_report(path, tmp_path / "damaged.html")
    assert "wrong length" in page and f"<bdi>{listed[-1].dir}</bdi>" in page


def parse_report(run: Any, out: Any) -> str:
    assert report(run, "-o", out).returncode == 0
    parse(out)
    return out.read_text(encoding="utf-8")


def test_losses_that_are_no_numbers_are_seen(tmp_path):
    model = torch.nn.Linear(4, 4)
    with ckpress.Checkpointer(tmp_path / "run") as ck:
        for step, loss in enumerate((1.0, float("nan"), 2.0, float("inf"))):
            ck.save(step, model=model, metrics={"loss": loss}, wait=True)
    text = parse_report(tmp_path / "run", tmp_path / "r.html")
    page = parse(tmp_path / "r.html")
    (row,) = page.table("Metrics")
    assert (row["checkpoints"], row["not finite"], row["first"], row["last"], row["least"], row["most"]) == ("4", "2", "1", "inf", "1", "2")
    assert {"step 1: NaN", "step 3: infinite"} <= set(page.titles) and text.count("×</text>") == 2
    figures = json.loads(report(tmp_path / "run", "--json").stdout)
    assert [c["metrics"]["loss"] for c in figures["checkpoints"]] == [1.0, "NaN", 2.0, "Infinity"]
    done = subprocess.run([COMMAND, "ls", str(tmp_path / "run"), "--json"], capture_output=True, text=True, check=True)
    assert [c["metrics"] for c in json.loads(done.stdout)] == [c["metrics"] for c in figures["checkpoints"]]


def test_a_try_that_was_thrown_away_is_no_measurement(tmp_path):
    """Weights that could not meet the budget are kept exactly: the decoded loss of the last try is not theirs."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(8, 48)).square().mean().backward()
    optimizer.step()
    answers = iter([1.0, 1.001] + [1.0] + [2.0] * 4)
    with ckpress.Checkpointer(tmp_path / "run", profile="small", final_on_close=False, eval_fn=lambda m: next(answers), eval_every=1) as ck:
        ck.save(1, model=model, optimizer=optimizer, wait=True)
        with pytest.warns(RuntimeWarning, match="losslessly"):
            ck.save(2, model=model, optimizer=optimizer, wait=True)
    parse_report(tmp_path / "run", tmp_path / "r.html")
    titles = parse(tmp_path / "r.html").titles
    assert "step 1: decoded weights 1.001" in titles and "step 2: live weights 1" in titles
    assert not any(t.startswith("step 2: decoded weights") for t in titles)
    said = [subprocess.run([COMMAND, "info", f"{tmp_path}/run@{n}"], capture_output=True, text=True, check=True).stdout for n in (1, 2)]
    assert "measured: loss 1 of the live weights, 1.001 decoded (+0.10 %), quality 1, evaluations 1\n" in said[0]
    assert "kept exactly" in said[1] and "evaluations 4;" in said[1]


def resident(run: Any, make: Any, steps: int = 24, every: int = 3, **options: Any) -> None:
    """Trains with moments in a few bits; sizes of gradients change places on the way, so that widths move."""
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"in": torch.nn.Linear(64, 128), "<td><script>": torch.nn.Linear(128, 64), "small": torch.nn.Linear(64, 2)})
    optimizer = make(model.parameters())
    with ckpress.Checkpointer(run, final_on_close=False, **options) as ck:
        for step in range(1, steps + 1):
            for i, p in enumerate(model.parameters()):
                p.grad = torch.randn(p.shape) * 1e-3 * 8.0 ** ((i + step // 9) % 4)
            optimizer.step()
            if step % every == 0:
                ck.save(step, model=model, optimizer=optimizer, extra={"bits": torch.tensor([3, 4], dtype=torch.uint8)}, wait=True)


def widths(run: Any, step: int) -> dict[str, list[int]]:
    """As the checkpoint has them."""
    with ckpress.open(f"{run}@{step}") as f:
        found = {n.removesuffix("/bits"): [b for b in x[:].tolist() if b] for n, x in f.items() if n.endswith("/bits")}
        return {n: bits for n, bits in found.items() if any(k.startswith(f"{n}/") and k.endswith("_code") for k in f.keys())}


def test_widths_of_resident_moments(tmp_path):
    resident_torch = pytest.importorskip("ckpress.torch")
    path = tmp_path / "run"
    resident(path, lambda ps: resident_torch.AdamW(ps, lr=1e-3, state_bits="auto", budget_bits=4.0, every=3), key_every=4)
    done = report(path, "--json", "-o", tmp_path / "r.html")
    assert done.returncode == 0, done.stderr
    points = {c["step"]: c["moment_bits"] for c in json.loads(done.stdout)["checkpoints"]}
    assert list(points) == list(range(3, 25, 3)) and all(points[step] == widths(path, step) for step in points)
    names = list(points[24])
    assert len(names) == 3 and any("<td><script>" in n for n in names)  # those with rows: the others' moments stay in f32
    page, text = parse(tmp_path / "r.html"), (tmp_path / "r.html").read_text(encoding="utf-8")
    steps = sorted(points)
    changes = [(str(b), n, "/".join(map(str, points[a][n])), "/".join(map(str, points[b][n]))) for a, b in zip(steps, steps[1:], strict=False)
               for n in names if points[a][n] != points[b][n]]  # fmt: skip
    rows = [tuple(r.values()) for r in page.table("Changes of widths from one checkpoint to the next: ")]
    assert len(changes) > 2 and rows == changes
    for which, heading in enumerate(("Bits of m", "Bits of v")):
        assert f"<h3>{heading}</h3>" in text
        for n in names:
            own = [points[s][n][which] for s in steps]
            last = max((i for i in range(1, len(own)) if own[i] != own[i - 1]), default=0)
            assert f"{n}: {own[-1]} bits, step {steps[last]} to 24" in page.titles
    assert not any("extra" in n for n in points[24]) and "could not be read" not in text


def test_widths_of_moments_that_a_profile_rounds(tmp_path):
    """They are saved where a policy has chosen them. First moments that have room for some steps have 8 bits."""
    resident_torch = pytest.importorskip("ckpress.torch")
    path, p = tmp_path / "run", torch.nn.Parameter(torch.ones(64, 64))
    resident(path, lambda ps: resident_torch.AdamW(ps, lr=1e-3, state_bits="auto", budget_bits=4.0, every=3), profile="resume", steps=6)
    for point in json.loads(report(path, "--json", "-o", tmp_path / "a.html").stdout)["checkpoints"]:
        with ckpress.open(f"{path}@{point['step']}") as f:
            assert point["moment_bits"] == {n.removesuffix("/bits"): x[:].tolist() for n, x in f.items() if n.startswith("optimizer/") and n.endswith("/bits")} != {}
    optimizer = resident_torch.AdamW([p], small=0)
    far = {"step": torch.tensor(9000.0), "exp_avg": 4.0 * (torch.arange(4096) % 32 == 0).float().view(64, 64), "exp_avg_sq": torch.ones(64, 64)}
    optimizer.load_state_dict({"state": {0: far}, "param_groups": torch.optim.AdamW([p]).state_dict()["param_groups"]})
    with ckpress.Checkpointer(tmp_path / "room", final_on_close=False) as ck:
        ck.save(1, p=p, optimizer=optimizer, wait=True)
    (point,) = json.loads(report(tmp_path / "room", "--json", "-o", tmp_path / "b.html").stdout)["checkpoints"]
    assert list(point["moment_bits"].values()) == [[8, 4]]


def test_widths_of_a_momentum_alone_and_of_none(tmp_path):
    resident_torch = pytest.importorskip("ckpress.torch")
    resident(tmp_path / "sgd", lambda ps: resident_torch.SGD(ps, lr=1e-3, momentum=0.9, state_bits=5), steps=3)
    done = report(tmp_path / "sgd", "--json", "-o", tmp_path / "sgd.html")
    (point,) = json.loads(done.stdout)["checkpoints"]
    assert point["moment_bits"] == widths(tmp_path / "sgd", 3) and [5] in point["moment_bits"].values()
    text = (tmp_path / "sgd.html").read_text(encoding="utf-8")
    assert "<h3>Bits of the momentum</h3>" in text and "Bits of v" not in text and "Changes of widths" not in text
    resident(tmp_path / "plain", lambda ps: torch.optim.AdamW(ps), steps=3)
    done = report(tmp_path / "plain", "--json", "-o", tmp_path / "plain.html")
    assert "moment_bits" not in json.loads(done.stdout)["checkpoints"][0] and "Widths of" not in (tmp_path / "plain.html").read_text(encoding="utf-8")


def test_widths_that_cannot_be_read_are_counted(tmp_path):
    resident_torch = pytest.importorskip("ckpress.torch")
    safetensors = pytest.importorskip("safetensors.torch")
    path, base = tmp_path / "run", tmp_path / "base.safetensors"
    safetensors.save_file({"in.weight": torch.zeros(128, 64)}, base)
    resident(path, lambda ps: resident_torch.AdamW(ps, lr=1e-3), steps=6, base=base)
    assert "could not be read" not in parse_report(path, tmp_path / "r.html")
    base.unlink()
    assert "could not be read from 2 checkpoints." in parse_report(path, tmp_path / "without.html")
    done = report(path, "--json")
    assert done.returncode == 0 and all("moment_bits" not in c for c in json.loads(done.stdout)["checkpoints"])

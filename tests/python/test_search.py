# SPDX-License-Identifier: Apache-2.0
"""Planners that search: what is asked, what is chosen, by one rank and by two."""

import math
import os
import types
import warnings

import pytest

import ckpress
from ckpress import _core, _search
from ckpress._evaluate import loss_of
from ckpress._ranks import Alone
from ckpress._sizes import coded_of, embeddings_of, estimate

torch = pytest.importorskip("torch")

EVERY = dict(profile="resume", final_on_close=False, eval_every=1, threads=1)


def training(seed=0, steps=60):
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Embedding(128, 64), torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.BatchNorm1d(128), torch.nn.Linear(128, 64)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    x = torch.randint(0, 128, (256,))
    y = torch.randn(128, 64)[x] + torch.randn(256, 64)  # half of it is noise: a loss that is not near 0

    def loss(m):
        m.eval()
        return torch.nn.functional.mse_loss(m(x), y)

    def step():
        model.train()
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    for _ in range(steps):
        step()
    return model, optimizer, loss, step


def bytes_of(config):
    bins, embedding, prune, _, protect = config
    return int(1000 * (10 * math.log2(bins) * (1 - prune) + math.log2(embedding) + 16 * protect * 10))


def test_first_guided_then_near(tmp_path):
    model, optimizer, loss, step = training()
    asked = []

    def count(m):
        asked.append(1)
        return loss(m)

    with ckpress.Checkpointer(tmp_path / "run", planner="neighbourhood", eval_fn=count, max_loss_increase=0.05, **EVERY) as ck:
        for done in range(1, 5):
            asked.clear()
            ck.save(done, model=model, optimizer=optimizer, wait=True, metrics={"mine": 1})
            m = ck.measured
            assert not m.lossless and m.loss_decoded <= m.loss_live * 1.05 and m.config in _core.Search.grid()
            assert len(asked) == m.evaluations + 1 == sum(m.by_method.values()) + 1 and "smallest that is good enough" in m.why
            if done == 1:
                assert m.by_method["neighbourhood"] == 0 and not m.fell_back
            else:
                assert m.by_method["neighbourhood"] >= 1 and m.fell_back == (m.by_method["guided"] > 0)
            step()
        assert m.evaluations <= 3
    rows = ckpress.list_run(tmp_path / "run")
    assert rows[-1].metrics["mine"] == 1 and rows[-1].metrics["ckpress.evaluations_neighbourhood"] == m.by_method["neighbourhood"]
    assert tuple(rows[-1].settings[name] for name in _search.CHOICE) == m.config
    assert "ckpress.quality" not in rows[-1].metrics

    model2, optimizer2, _, _ = training(1, 1)
    with ckpress.Checkpointer(tmp_path / "run", planner="neighbourhood", eval_fn=count, max_loss_increase=0.05, **EVERY) as ck:
        assert ck.restore(model=model2, optimizer=optimizer2) == 4
        ck.save(5, wait=True)
        assert ck.measured.by_method["neighbourhood"] >= 1  # goes on near the restored one


def test_guided_each_time(tmp_path):
    model, optimizer, loss, _ = training()
    with ckpress.Checkpointer(tmp_path / "run", planner="guided", eval_fn=loss, max_loss_increase=0.05, **EVERY) as ck:
        for done in (1, 2):
            ck.save(done, model=model, optimizer=optimizer, wait=True)
            assert ck.measured.by_method == {"guided": ck.measured.evaluations, "neighbourhood": 0}


def test_the_choice_is_the_smallest_of_all(tmp_path):
    """Against trying all, with a coder whose losses follow precision."""
    penalty = {c: 0.3 * (c[2] ** 2 + 1 / c[0] + 0.5 / c[1] + 0.0001 / c[4]) for c in _core.Search.grid()}
    model = torch.nn.Sequential(torch.nn.Embedding(4, 4), torch.nn.Linear(4, 4))
    state = {"config": None}
    collector = types.SimpleNamespace(lossy=[], changed=[], second_moments=False)

    class Run:
        def staged_read(self, targets): ...

        def restage(self, run, state_, config):
            assert config[5:] == ((), (("x", 0, 0),))
            state["config"] = config[:5]
            return bytes_of(config[:5])

    def loss(m):
        return 1.0 if state["config"] is None else 1 + penalty[state["config"]]

    for epsilon in (0.0, 0.02, 0.05, 0.1, 0.2, 0.5):
        state["config"] = None
        run = Run()
        s = _search.Searcher("guided", loss, max(epsilon, 1e-9), 1, 1.0, Alone(), run.restage)
        good = [bytes_of(c) for c in penalty if penalty[c] <= epsilon and c[1] == 16]  # there is no embedding
        if good:
            m = s.judge(run, 1, None, collector, {"model": model}, (16, 32, 0.2, 0, 0.005, (), (("x", 0, 0),)))
            assert bytes_of(m.config) == min(good) and state["config"] == m.config and m.evaluations <= 150
        else:
            with pytest.warns(RuntimeWarning, match="losslessly: loss 1 of the weights; guided search.*none is good enough"):
                m = s.judge(run, 1, None, collector, {"model": model}, (16, 32, 0.2, 0, 0.005, (), (("x", 0, 0),)))
            assert m.lossless and m.config is None and s.config is None


def test_what_is_not_measured_is_coded_as_before(tmp_path):
    model, optimizer, loss, _ = training()
    how = dict(planner="guided", profile="resume", final_on_close=False, max_loss_increase=0.05, eval_every=3)
    with ckpress.Checkpointer(tmp_path / "run", eval_fn=loss, **how) as ck:
        for done in range(1, 5):
            ck.save(done, model=model, optimizer=optimizer, wait=True)
        config = ck.measured.config
    rows = ckpress.list_run(tmp_path / "run")
    assert ["ckpress.evaluations" in row.metrics for row in rows] == [True, False, True, False]
    found = [tuple(row.settings[name] for name in _search.CHOICE) for row in rows]
    assert found[0] == found[1] and found[2] == found[3] == config


def test_out_of_reach_is_lossless_and_says_what_was_reached(tmp_path):
    model, optimizer, loss, _ = training()
    first = []

    def fussy(m):
        first.append(1)
        return 1.0 if len(first) == 1 else 3.0

    with ckpress.Checkpointer(tmp_path / "run", planner="guided", profile="resume", final_on_close=False, eval_fn=fussy) as ck:
        with pytest.warns(RuntimeWarning, match="none is good enough; the best is .* loss 3, at most 1.01 wanted") as caught:
            assert ck.save(1, model=model, optimizer=optimizer, wait=True)
        assert caught[0].filename == __file__
        assert ck.measured.lossless and ck.measured.evaluations == len(first) - 1 and ck.measured.config is None
        n = len(first)
        assert ck.save(2, wait=True) and len(first) == n  # not due, and nothing was found to go on with: lossless
    other, optimizer2, _, _ = training(5, 1)
    for step in (1, 2):
        with ckpress.Checkpointer(tmp_path / "run", profile="resume", final_on_close=False) as ck:
            ck.restore(model=other, optimizer=optimizer2, step=step)
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters()))


def test_candidates_that_break_the_model_are_no_good(tmp_path):
    model, optimizer, loss, _ = training()
    calls = []

    def sometimes(m):
        calls.append(1)
        return math.nan if len(calls) == 2 else loss(m)

    with ckpress.Checkpointer(tmp_path / "run", planner="guided", eval_fn=sometimes, max_loss_increase=0.5, **EVERY) as ck:
        ck.save(1, model=model, optimizer=optimizer, wait=True)
        assert not ck.measured.lossless and math.isfinite(ck.measured.loss_decoded)

    def raises(m):
        calls.append(1)
        return loss(m) if len(calls) < 3 else 1 / 0

    calls.clear()
    with ckpress.Checkpointer(tmp_path / "other", planner="guided", eval_fn=raises, **EVERY) as ck:
        with pytest.warns(RuntimeWarning, match="losslessly: eval_fn raised ZeroDivisionError"):
            ck.save(1, model=model, optimizer=optimizer, wait=True)
        assert ck.measured.lossless and ck.measured.evaluations in (0, 1)


@pytest.mark.parametrize(
    "bad, text",
    [
        (dict(planner="best"), "planner must be one of rd, guided, neighbourhood, not 'best'"),
        (dict(planner=None), "planner must be one of"),
        (dict(planner="guided", eval_fn=None), "needs eval_fn"),
        (dict(planner="rd", eval_group=1), "eval_group needs planner"),
        (dict(planner="guided", steps={"model/w": 0.1}), "steps are for grids"),
        (dict(planner="guided", eval_group=1), "torch.distributed"),
        (dict(planner="guided", eval_fn=3), "eval_fn must be a function"),
        (dict(planner="neighbourhood", max_loss_increase=0), "max_loss_increase"),
    ],
)
def test_bad_arguments(tmp_path, bad, text):
    with pytest.raises(ckpress.InvalidError, match=text):
        ckpress.Checkpointer(tmp_path / "run", profile="resume", **{"eval_fn": lambda m: 1.0, **bad})
    assert not (tmp_path / "run").exists()
    with pytest.raises(ckpress.InvalidError, match="torch.distributed"):
        ckpress.assist(lambda m: 1.0, group=None)


def test_a_damaged_configuration_is_searched_anew(tmp_path):
    s = _search.Searcher("neighbourhood", lambda m: 1.0, 0.1, 1, 1.0, Alone())
    for values, known in (((8, 16, 0.3, 1, 0.005), True), ((9, 16, 0.3, 1, 0.005), False), ((8, 16, 0.3, 1, math.nan), False)):
        s.config = None
        s.resume({}, dict(zip(_search.CHOICE, map(float, values))))
        assert (s.config is not None) == known
    s.config = None
    s.resume({}, {"dynaquant_bins": 8.0})
    assert s.config is None


# ---- two ranks -----------------------------------------------------------------------------------------------------------------


KEYS = {**EVERY, "key_every": 1}  # in deltas small tensors are rounded by a phase of the run's own


def one_rank(dir, saves):
    out = []
    model, optimizer, loss, step = training()
    with ckpress.Checkpointer(dir, planner="neighbourhood", eval_fn=loss, max_loss_increase=0.05, **KEYS) as ck:
        for done in range(1, saves + 1):
            ck.save(done, model=model, optimizer=optimizer, wait=True)
            out.append((ck.measured.config, ck.measured.loss_decoded, ck.measured.rounds, ck.measured.evaluations))
            step()
    return out


def as_rank(rank, dir, results):
    from torch import distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{dir}/store", rank=rank, world_size=2)
    group = dist.group.WORLD
    results.put((rank, saver(dir, group) if rank == 0 else helper(group)))
    dist.barrier()
    os._exit(0)  # the answer is in the queue; how torch's threads end is not what is tested


SAVES = 4


def saver(dir, group):
    out = []
    model, optimizer, loss, step = training()
    how = {**KEYS, "final_on_close": True}
    with ckpress.Checkpointer(f"{dir}/run", planner="neighbourhood", eval_fn=loss, max_loss_increase=0.05, eval_group=group, **how) as ck:
        for done in range(1, SAVES + 1):
            ck.save(done, model=model, optimizer=optimizer, wait=True)
            out.append((ck.measured.config, ck.measured.loss_decoded, ck.measured.rounds, ck.measured.evaluations))
            step()
        ck.save(SAVES + 1, final=True, wait=True)  # evaluates nothing, and says so
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ck.save(SAVES + 2)  # the other rank's function raises there
            ck.save(SAVES + 3)  # its model is another one
        texts = [str(w.message) for w in caught]
        with pytest.raises(ckpress.Error):
            ck.save(SAVES + 4, metrics={"x": "no number"})  # refused: the other must not wait
        ck.save(SAVES + 5, wait=True)
    return out, texts, ck.measured.evaluations


def helper(group):
    model, _, loss, _ = training(seed=0, steps=0)  # the same batches; its weights and statistics are others
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1)
    stranger = torch.nn.Linear(2, 2)
    states = torch.get_rng_state()
    before = [p.detach().clone() for p in model.parameters()]
    done = [ckpress.assist(loss, group=group, model=torch.nn.DataParallel(model)) for _ in range(SAVES)]
    none = ckpress.assist(loss, group=group, model=model)
    failed = ckpress.assist(lambda m: 1 / 0, group=group, model=model)
    try:
        ckpress.assist(loss, group=group, model=stranger)
        other = "taken"
    except ckpress.InvalidError as e:
        other = str(e)
    refused = ckpress.assist(loss, group=group, model=model)
    last = ckpress.assist(loss, group=group, model=model)
    kept = all(torch.equal(a, b) for a, b in zip(before, model.parameters())) and torch.equal(states, torch.get_rng_state())
    return done, none, failed, other, refused, last, kept


def test_two_ranks_choose_what_one_does(tmp_path):
    alone = one_rank(tmp_path / "alone", SAVES)
    context = torch.multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    os.makedirs(tmp_path / "two")
    workers = [context.Process(target=as_rank, args=(rank, str(tmp_path / "two"), results)) for rank in range(2)]
    for w in workers:
        w.start()
    found = dict(results.get() for _ in workers)
    for w in workers:
        w.join(60)
        assert w.exitcode == 0
    (together, texts, last_evaluations), (done, none, failed, other, refused, last, kept) = found[0], found[1]
    assert [row[:2] for row in together] == [row[:2] for row in alone]  # configurations and losses, bit for bit
    assert sum(row[2] for row in together) < sum(row[2] for row in alone)  # in fewer rounds
    assert done == [evaluations - rounds for _, _, rounds, evaluations in together] and done[0] >= 1  # one of each group is the saver's
    assert none == 0 and refused == 0 and failed in (0, 1) and last >= 1 and last_evaluations >= 2 and kept
    assert "eval_fn raised ZeroDivisionError" in texts[0] and "rank 1" in texts[0]
    assert "another one" in texts[1] and "another one" in other


def test_losses_that_are_not_finite(tmp_path):
    copies = {"model": torch.nn.Linear(1, 1)}
    assert math.isnan(loss_of(lambda m: math.nan, copies, finite=False))
    with pytest.raises(_search.CannotMeasure):
        loss_of(lambda m: math.nan, copies)


# ---- estimated sizes -----------------------------------------------------------------------------------------------------------


def entropy_of_codes(x, bins, prune, protect):
    """Bits a weight, coded with levels of least squared error: Lloyd's iterations on the values themselves."""
    size = x.abs()
    top, gone = size.quantile(1 - protect), size.quantile(prune)
    middle = x[(size < top) & (size >= gone)].sort().values
    centre = middle[((torch.arange(bins) + 0.5) / bins * len(middle)).long()]
    for _ in range(100):
        code = torch.searchsorted((centre[1:] + centre[:-1]) / 2, middle)
        n = torch.bincount(code, minlength=bins)
        centre = torch.where(n > 0, torch.zeros(bins).index_add_(0, code, middle) / n.clamp(min=1), centre)
    p = torch.cat([n / len(x), torch.tensor([prune, protect])])
    p = p[p > 0]
    return float(-(p * p.log2()).sum()) + 16 * protect


def test_sizes_are_those_of_codes():
    torch.manual_seed(1)
    linear, embedding = torch.nn.Linear(256, 64, bias=False), torch.nn.Embedding(200, 64)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(64, 256) * torch.randn(64, 256).abs())
        embedding.weight.normal_(std=3)
    weights = [linear.weight, embedding.weight]
    assert (
        embeddings_of({"a": linear, "b": embedding}) == {id(embedding.weight)}
        and coded_of([*weights, torch.ones(5000), torch.ones(2, 9)]) == weights
    )
    sizes = estimate(weights, {id(embedding.weight)})
    grid = _core.Search.grid()
    for i in range(5, len(grid), 31):
        bins, bins_embedding, prune, _, protect = grid[i]
        bits = entropy_of_codes(linear.weight.detach().reshape(-1), bins, prune, protect) * linear.weight.numel()
        bits += entropy_of_codes(embedding.weight.detach().reshape(-1), bins_embedding, prune, protect) * embedding.weight.numel()
        assert sizes[i] == pytest.approx((bits + 32 * (bins + bins_embedding)) / 8, rel=0.06), grid[i]


def test_sizes_of_odd_weights():
    odd = [torch.zeros(64), torch.full((64,), math.nan), torch.full((64,), 3.0), torch.tensor([1e30] + [1e-30] * 63), torch.empty(0)]
    for t in odd:
        sizes = estimate([t], set())
        assert sizes is None if t.numel() == 0 else len(sizes) == 432 and min(sizes) > 0
    assert estimate([], set()) is None


def test_sizes_spare_evaluations(tmp_path, monkeypatch):
    model, optimizer, loss, _ = training()
    found = []
    for known in (True, False):
        if not known:
            monkeypatch.setattr(_search, "estimate", lambda coded, embeddings: None)
        with ckpress.Checkpointer(tmp_path / str(known), planner="guided", eval_fn=loss, max_loss_increase=0.05, **EVERY) as ck:
            ck.save(1, model=model, optimizer=optimizer, wait=True)
            found.append(ck.measured)
    assert found[0].evaluations < found[1].evaluations and found[0].bytes <= 1.1 * found[1].bytes

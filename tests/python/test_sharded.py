# SPDX-License-Identifier: Apache-2.0
"""Resident optimizers under DDP and FSDP2, in real processes: what comes out does not depend on how many share the work."""

from __future__ import annotations

import ranks
import sharded_ranks
import torch

STEPS = 50
WAYS = [("adamw", False), ("adam", False), ("auto", False), ("sgd", False), ("lion", False), ("bf16", False)]
BY_TORCH = [("adamw", True), ("sgd", True)]


def run(fn, dir, *args, world):
    out = []
    for answer in ranks.run(fn, dir, *args, world=world):
        assert answer[0] == "ok", answer
        out.append(answer[1])
    return out


def equal(a, b):
    assert a.keys() == b.keys()
    for k in a:
        assert torch.equal(a[k], b[k]), k
    return True


def test_ranks_and_threads_do_not_matter(tmp_path):
    """The same global gradients give the same codes, factors, widths and weights on 1, 2 and 3 ranks, on a mesh with replicas, and in torch's operations."""
    (alone,) = run(sharded_ranks.one_alone, tmp_path, WAYS, STEPS, world=1)
    for world, replicas, ways, steps in ((1, 1, WAYS[:1], STEPS), (2, 1, WAYS, STEPS), (3, 1, WAYS, STEPS), (4, 2, WAYS[:1], STEPS)):
        for answers in run(sharded_ranks.same_as_one, tmp_path, ways, steps, replicas, world=world):
            for way in ways:
                assert equal(answers[way][0], alone[way]), (world, way)
    (alone,) = run(sharded_ranks.one_alone, tmp_path, BY_TORCH, 18, world=1)
    for answers in run(sharded_ranks.same_as_one, tmp_path, BY_TORCH, 18, world=3):
        for way in BY_TORCH:
            assert equal(answers[way][0], alone[way]), way
    (kernels,) = run(sharded_ranks.one_alone, tmp_path, [("adamw", False), ("sgd", False)], 18, world=1)
    assert equal(kernels["adamw", False], alone["adamw", True]) and equal(kernels["sgd", False], alone["sgd", True])


def test_room_ends_where_ranks_share(tmp_path):
    """They would have to settle at the same step: they do when they read the state, with factors of all rows."""
    for settle, mine, alone in run(sharded_ranks.out_of_room, tmp_path, world=2):
        assert settle == (4, 4, 1032) and equal(mine, alone)


def test_what_is_exchanged(tmp_path):
    """Two numbers a column at steps that are powers of two, a visit's sums, and a word to compare: nothing that grows with rows."""
    answers = run(sharded_ranks.same_as_one, tmp_path, [("adamw", False), ("auto", False), ("sgd", False)], STEPS, world=2)
    columns = sum(s[-1] if len(s) == 2 else s[1] * s[2] * s[3] for s in sharded_ranks.SHAPES if len(s) > 1 and s[0] >= 16 and s[-1] >= 7 and s != (70, 9))
    fits = len({1, 2, 4, 8, 16, 32})
    gradients = STEPS * sum(4 * torch.Size(s).numel() for s in sharded_ranks.SHAPES)
    for answer in answers:
        fixed, auto, sgd = (answer[rule, False][1] for rule in ("adamw", "auto", "sgd"))
        assert fixed == {"ranks": 2, "exchanged": fits * (16 * columns + 16), "gradients": gradients}
        assert sgd == {"ranks": 2, "exchanged": fits * 16, "gradients": gradients}
        visits = (auto["exchanged"] - fixed["exchanged"]) / (48 * 8)
        assert 0 < visits <= len(sharded_ranks.SHAPES) * -(-STEPS // 3)
        assert answer["auto", False][3], "no width changed"
        assert "this rank's part of 2 ranks', which exchanged" in answer["adamw", False][4]
    # what that is for a run of GPT-2 (124 million parameters) over a thousand steps
    columns = 12 * (768 + 768 + 3072 + 768) + 2 * 768
    exchanged = 11 * (16 * columns + 16) + 1000 * 48 * 8
    assert exchanged < 0.001 * 1000 * 4 * 124e6 / 10


def test_trainings_agree(tmp_path):
    losses = {"ddp": [], "fsdp": []}
    for world in (1, 2, 3):
        answers = run(sharded_ranks.real_trainings, tmp_path, 60, world=world)
        for a in answers[1:]:  # ranks of one training have the same
            assert equal(a["ddp"][1], answers[0]["ddp"][1])
            assert a["ddp"][0] == answers[0]["ddp"][0] and a["fsdp"][2] == answers[0]["fsdp"][2]
        for kind, seen in losses.items():
            seen.append(answers[0][kind][0])
    answers = run(sharded_ranks.with_replicas, tmp_path, 60, world=4)
    assert all(equal(a[0], answers[0][0]) and a[1] == 2 for a in answers)
    assert answers[0][2] < 0.1
    assert all(x < 0.5 for seen in losses.values() for x in seen), losses
    every = [x for seen in losses.values() for x in seen]
    assert max(every) < 1.01 * min(every), losses  # seeds differ by a twentieth


def test_through_distributed_checkpoints(tmp_path):
    """Saved on two ranks after widths have changed, loaded by fresh optimizers on 1, 2 and 3."""
    saved = run(sharded_ranks.through_dcp, tmp_path, True, 21, world=2)[0]
    (tmp_path / "lion").mkdir()
    assert len({tuple(t.tolist()) for k, t in saved[0].items() if k.endswith(".bits")}) > 1
    for world in (1, 2, 3):
        for state, policy, weights in run(sharded_ranks.through_dcp, tmp_path, False, 21, world=world):
            assert equal(state, saved[0]) and policy == saved[1]
            assert all(torch.equal(a, b) for a, b in zip(weights, saved[2], strict=True))
    lion = run(sharded_ranks.through_dcp, tmp_path / "lion", True, 3, True, world=3)[0]
    for state, _, _ in run(sharded_ranks.through_dcp, tmp_path / "lion", False, 3, True, world=2):
        assert equal(state, lion[0])


def test_other_doors(tmp_path):
    for answers in run(sharded_ranks.full_states, tmp_path, world=3):
        assert equal(answers["rank"], answers["back"]) and equal(answers["taken"], answers["by_one"])
        assert torch.equal(*answers["moments"])
        if "alone" in answers:
            assert equal(answers["rank"], answers["alone"])
    for asked, plain in run(sharded_ranks.asked_for_a_state, tmp_path, world=2):
        assert equal(asked[0], plain[0]) and asked[1] == plain[1]
    for skipped, scale in run(sharded_ranks.scaled, tmp_path, world=2):
        assert skipped == [False, True, False] and scale == 2.0


def test_refusals_name_the_parameter(tmp_path):
    for by_column, twice, state, missing, later, behind, mixed, moved in run(sharded_ranks.refusals, tmp_path, world=2):
        assert by_column.startswith("UnsupportedError") and "parameter 1 of group 0" in by_column and "Shard(dim=1)" in by_column
        assert twice.startswith("UnsupportedError") and "parameter 0 of group 0" in twice
        assert "exp_avg_code" in state
        assert missing == later == behind and missing.startswith("InvalidError") and "do not step the same parameters" in missing
        assert mixed.startswith("InvalidError: parameter 0 of group 0: a state of torch's class")
        assert moved.startswith("UnsupportedError") and "gradient" in moved

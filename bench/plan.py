# SPDX-License-Identifier: Apache-2.0
"""make bench-plan: the planner's quantile sketch beside numpy.quantile on 10^8 normal numbers, its codebook fit (histogram included) beside
scikit-learn's KMeans (k = 32, n_init = 1, max_iter = 100) on 10^7, the codec for codes under the base's codes, one core each; and how many evaluations the searches
for a configuration need, on made-up monotone losses: no model is trained here.
Ends with lines `MUST name value bar ok|short`; all figures are in build/bench/plan.json."""
import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ONE_CORE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
if any(os.environ.get(k) != v for k, v in ONE_CORE.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_CORE})  # libraries read these when they are loaded

import numpy as np  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
FIT = 10_000_000
QUANTILES = (0.1, 0.3, 0.5, 0.99, 0.9995)


def numbers(path: Path, n: int) -> "np.ndarray":
    x = np.random.default_rng(5).standard_normal(n, dtype=np.float32)
    x.tofile(path)
    return x


def ours(program: Path, path: Path) -> dict[str, float]:
    out = subprocess.run([program, path], check=True, capture_output=True, text=True).stdout
    return {name: float(value) for name, value in (line.split() for line in out.splitlines())}


def timed(f, times: int):
    best, result = float("inf"), None
    for _ in range(times):
        t = time.perf_counter()
        result = f()
        best = min(best, time.perf_counter() - t)
    return best, result


def peer_quantiles(x: "np.ndarray") -> tuple[float, "np.ndarray"]:
    """Of the magnitudes, which numpy is given ready-made."""
    size = np.abs(x)
    return timed(lambda: np.quantile(size, QUANTILES), 2)


def error(x: "np.ndarray", centres: "np.ndarray") -> float:
    c = np.sort(centres.ravel())
    level = np.searchsorted((c[1:] + c[:-1]) / 2, x)
    return float(np.mean((x - c[level]) ** 2, dtype=np.float64))


def peer_fit(x: "np.ndarray") -> tuple[float, "np.ndarray"]:
    from sklearn.cluster import KMeans

    column = x.reshape(-1, 1)
    return timed(lambda: KMeans(32, n_init=1, max_iter=100, random_state=0).fit(column).cluster_centers_, 1)


def must(name: str, value: float, bar: float, below: bool = False) -> None:
    ok = value <= bar if below else value >= bar
    print(f"MUST {name} {value:.4g} {bar:g} {'ok' if ok else 'short'}")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", type=Path, default=ROOT / "build/release/bench/bench_plan")
    p.add_argument("--numbers", type=int, default=100_000_000)
    o = p.parse_args()
    data = ROOT / "build/bench/plan.f32"
    data.parent.mkdir(parents=True, exist_ok=True)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    try:
        x = numbers(data, o.numbers)
        f = ours(o.program, data)
    finally:
        data.unlink(missing_ok=True)
    f["numpy_quantile_s"], exact = peer_quantiles(x)
    f["quantile_max_error"] = max(abs(f[f"quantile_{q:g}"] / e - 1) for q, e in zip(QUANTILES, exact))
    x = x[:FIT].copy()
    f["kmeans_s"], centres = peer_fit(x)
    f["kmeans_error"] = error(x, centres)
    f["fit_error"] = error(x, np.array([f[f"centre_{k}"] for k in range(32)], np.float32))
    (data.parent / "plan.json").write_text(json.dumps({"numbers": o.numbers, **f}, indent=1))
    for name in ("sketch_s", "numpy_quantile_s", "fit_s", "fit_alone_s", "kmeans_s", "fit_error", "kmeans_error", "assign_best_gps", "assign_avx2_gps"):
        print(f"{name:28} {f[name]:.5g}")
    for name in sorted(k for k in f if k.startswith("codes_")):
        print(f"{name:28} {f[name]:.5g}")
    for name in sorted(k for k in f if k.startswith("search_")):
        print(f"{name:36} {f[name]:.5g}")
    must("quantile_vs_numpy", f["numpy_quantile_s"] / f["sketch_s"], 10)
    must("quantile_max_error", f["quantile_max_error"], 0.01, True)
    must("fit_vs_kmeans", f["kmeans_s"] / f["fit_s"], 50)
    must("fit_error_vs_kmeans", f["fit_error"] / f["kmeans_error"], 1.005, True)
    must("codes_encode_gps", f["codes_v_best_encode_gps"], 1.5)
    must("codes_decode_gps", f["codes_v_best_decode_gps"], 2)
    must("codes_size_vs_differences", f["codes_v_bits"] / f["codes_v_difference_bits"], 0.9, True)
    must("search_evaluations_vs_paper", f["search_guided_evaluations"] / f["search_paper_evaluations"], 1, True)


if __name__ == "__main__":
    main()

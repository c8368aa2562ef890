# SPDX-License-Identifier: Apache-2.0
"""A training run that saves itself: the object that a training loop talks to."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from . import _core, _rng
from ._arguments import close_quietly, floats, names_of
from ._coding import OptimizerStates, Profile, coding, whole
from ._collect import Collector, rounding_of
from ._dynaquant import Bound, Config, DynaQuant
from ._file import PathLike
from ._group import Division, Talk, status_of, written_by
from ._guard import Guard, Measured
from ._names import Attr
from ._notes import hardly_moved, nothing_to_restore, passed_over
from ._retention import rules
from ._restore import LAYOUT, check_object_name, class_of, fingerprint, kind_of, planned, saved_form
from ._search import Planner, guard_for
from ._signals import Signals
from ._stats import Log, figures, memory_of
from ._url import Storage, Store, outlive, place
from .errors import Error, InvalidError, LimitError, NotFoundError, make

RESERVED = ("step", "rng", "ckpress")
STEP_MAX = (1 << 63) - 1


class Checkpointer:
    """Saves and restores a training run in a directory, or behind a URL (docs/runs.md, "Object stores").

    One process writes to a run at a time; any number reads. Use it from one thread, or from several: calls wait for each other.

    Args:
        dir: the run's directory; created when there is none. Or a URL that fsspec knows, such as ``"s3://bucket/runs/gpt"`` (needs the package s3fs).
        profile: ``"lossless"``, or ``"resume"`` or ``"small"`` (lossy, to train on), or ``"weights"`` (optimizers are not saved).
        keep_last: restorable checkpoints to keep, at least 1; None: all. Older ones that the kept ones are deltas of stay too, up to
            ``key_every``: more directories than ``keep_last`` is no fault. The lossless last save of :meth:`close` is one of the kept.
        keep_every: keep the first checkpoint of each stretch of so many steps too.
        keep_best: keep the best by a metric that :meth:`save` is given too: ``"val_loss"`` (the lowest), ``"accuracy:max"``, ``"val_loss:3"``.
        max_bytes: or as ``"50GB"``: then delete the oldest until all that stays fits, but never the newest. With any of these rules, the newest
            checkpoint whose metrics are all finite stays as well.
        key_every: a checkpoint that needs no other at least every so many.
        quality: scales the steps of lossy weights: 0.5 is twice as fine. At 0.2 and below first moments are finer too.
        steps: steps of single weights, by the names of their tensors (``"model/fc.weight"``), instead of the profile's: see :func:`ckpress.save`.
            Keys are finer by 2, as always. A name that a saved state does not have fails the save.
        optimizer_states: beside lossless weights, ``"cluster"`` or ``"codebook"``: moments in 16 or 8 bits a value (see :func:`ckpress.save`);
            :attr:`stats` tells their errors, ``mre_by_role`` and ``mse_by_role``.
        effort: 0 fast, 1 normal, 2 smallest; lossless coding only.
        threads: 0: one a processor.
        target_bits: bits a parameter that a lossy run may cost, everything counted, in the mean of a key and the deltas up to the next. Saves then get a
            quality between an eighth of ``quality`` and twice that, by what those before have cost: coarser as soon as that is needed, finer
            with the next key. A target out of reach is a warning. Not with ``eval_fn``, which sets the quality by the loss.
        memory_budget: bytes (or as ``"2GiB"``) of extra memory that saving may take; None: by the size of the state.
        base: the file that training starts from, for fine-tuning: a ``.safetensors``, ``.pt`` or ``.ckp`` file of weights. Saves then hold how weights
            differ from it, so that coarse steps cost what was learned before nothing. Not copied: it must stay as it is, where it is or by its
            name in the run's directory; restores prove that it is the same. Tensors are matched by the longest common ending of their names
            and equal shapes.
        averages: names of saved objects that are running averages of weights (EMA, SWA), such as ``("ema",)``: modules or trees of tensors. Lossy profiles
            take steps of a fifth of their RMS (``small``: two fifths) instead of keeping them losslessly; ``final=True`` keeps them exact, as it does weights.
        rng: save and restore the global random states of torch, numpy and random.
        when_busy: what save() does while the save before it is still being written: ``"wait"`` or ``"skip"``.
        lock_seconds: a writer that has been silent for so long no longer holds the run.
        eval_fn: measures what a lossy save loses, before it is committed: called with a copy of the registered module (with copies of all,
            by name, when there are several); gives a loss, lower is better. Weights are coded finer until ``max_loss_increase`` is met,
            at last losslessly (docs/quality.md, "A budget for the loss"). It runs on the thread that calls save(), in addition to the stall.
        max_loss_increase: by how much the decoded weights' loss may exceed the live ones', as a share of it: 0.01 is one per cent.
        eval_every: measure every so many saves; the first of a process and keys are always measured.
        dynaquant: lossy weights by codebooks instead of steps: a dict of ``bins`` (16), ``bins_embedding`` (32), ``prune`` (0.2), ``prune_by``
            (``"magnitude"``, or ``"sensitivity"``), ``protect`` (0.005) and ``sensitivity`` (docs/quality.md, "DynaQuant"). For matrices of
            4096 elements or more, whatever the optimizer; the rest as the profile does.
        planner: how the coding of weights is chosen. ``"rd"``: by the profile, finer where ``eval_fn`` asks for it. ``"guided"`` and
            ``"neighbourhood"``: DynaQuant's codebooks, the smallest configuration that ``eval_fn`` lets pass, searched in the whole grid
            each time, or near the last choice after the first time (docs/quality.md, "Searching for a configuration"). Of ``dynaquant`` only ``sensitivity``.
        eval_group: a process group of torch.distributed whose backend knows CPU tensors (gloo) and whose rank 0 this process is. A search's candidates
            are then evaluated by all its ranks at once, which call :func:`ckpress.assist` beside each ``save()``. The choice is this rank's.
        group: ``"world"``, or a process group of torch.distributed, of any backend: all its ranks make this object, with the same arguments, and then call
            :meth:`save` and :meth:`restore` together. They write one checkpoint, a shard each, and every call fails on all of them or on none, with
            the rank that failed in its text (docs/runs.md, "Several writers"). Parameters and what optimizers keep of them are divided among the ranks by size, as
            all have them alike (DistributedDataParallel); buffers are rank 0's; everything else, such as random states, is kept per rank. Not with ``base``,
            ``dynaquant``, ``eval_fn``, ``when_busy="skip"``; close() makes no last save.
        divide: False: each rank saves all that it has, which need not be the same, and gets that back; restores then need as many ranks.
        group_seconds: for how long a rank may be silent during a save before the others give up. A living one speaks every second.
        join_seconds: for how long ranks wait for the last of them to call.
        storage: of a URL: a :class:`ckpress.Storage`, or a dict of options for fsspec's file system.
        memory: bytes of shared memory (or as ``"512MB"``; 0: none) for a copy of the newest checkpoint, which outlives the process: :meth:`restore` reads it instead of the
            run's files, proved by the hashes in the run's manifests (docs/runs.md, "In memory"). None: 512 MB behind a URL where four times as much is left. Not with ``group``.
        final_on_close: see :meth:`close`.
        signals: e.g. ``(signal.SIGTERM,)`` or ``("SIGTERM",)``: they set :attr:`should_save` instead of ending the process (earlier handlers are called too, but Python's own for
            SIGINT). Main thread only; in a forked child they do what they did before.

    Attributes:
        dir: absolute, or the URL.
        values: immutable plain values of the last restore, by name.
        restored: what the restored checkpoint says of itself (step, name, metrics, sizes ...); None before a restore.

    Raises:
        BusyError: another live process writes to this run, or this one has it open already.
        UnsupportedError: a URL whose package is not installed (named), or that fsspec does not know.
        NotFoundError, FormatError ...: ``base`` is not there, or no file of weights.
        FormatError: there is a run.json that is none. Other files in the directory are left alone.
    """

    def __init__(
        self,
        dir: PathLike,
        profile: Profile = "lossless",
        *,
        keep_last: int | None = None,
        keep_every: int | None = None,
        keep_best: str | None = None,
        max_bytes: int | str | None = None,
        key_every: int = 32,
        quality: float = 1.0,
        target_bits: float | None = None,
        steps: Mapping[str, float] | None = None,
        optimizer_states: OptimizerStates = "profile",
        effort: int = 0,
        threads: int = 0,
        memory_budget: int | str | None = None,
        base: PathLike | None = None,
        averages: Sequence[str] = (),
        rng: bool = True,
        when_busy: Literal["wait", "skip"] = "wait",
        lock_seconds: int = 60,
        eval_fn: Callable[..., Any] | None = None,
        max_loss_increase: float = 0.01,
        eval_every: int = 10,
        dynaquant: Mapping[str, Any] | None = None,
        planner: Planner = "rd",
        eval_group: Any = None,
        group: Any = None,
        divide: bool = True,
        group_seconds: float = 30.0,
        join_seconds: float = 600.0,
        storage: Storage | Mapping[str, Any] | None = None,
        memory: int | str | None = None,
        final_on_close: bool = True,
        signals: Sequence[int | str] = (),
    ) -> None:
        if when_busy not in ("wait", "skip"):
            raise make(InvalidError, f"when_busy must be 'wait' or 'skip', not {when_busy!r}")
        keep = rules(keep_last, keep_every, keep_best, max_bytes)
        seconds = whole("lock_seconds", lock_seconds, 2, 86400)
        options = coding(profile, quality, threads, effort, memory_budget, steps, optimizer_states)
        every = whole("eval_every", eval_every, 1, 1 << 31)
        self._guard = guard_for(planner, eval_fn, max_loss_increase, every, quality, eval_group, profile == "lossless")
        if planner != "rd" and options[5]:
            raise make(InvalidError, f"planner={planner!r} codes weights by codebooks, steps are for grids: give one of them")
        self._dynaquant = DynaQuant.of(dynaquant)
        if self._dynaquant is not None and profile == "lossless":
            raise make(InvalidError, "dynaquant is for lossy profiles")
        where = place(dir, storage)
        self._place = where if isinstance(where, Store) else os.path.abspath(where)  # a training may change its working directory
        self.dir = self._place.url if isinstance(self._place, Store) else self._place
        self._profile = profile
        self._threads = threads
        self._skips = when_busy == "skip"
        self._steps = options[5]
        self._rng = rng
        self._averages = names_of(averages)
        self._final_on_close = final_on_close
        self._objects: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._by_grids = False  # the last judged save's weights, for want of a budget that codebooks meet
        self._saves = 0
        self._told = ""
        self._log: Log | None = None
        self._from_scratch = base is None and profile in ("resume", "small")  # as far as is known; a restore says otherwise
        # Step, fingerprint of the live tensors ([]: it needs no lossless one after it, or nobody can tell), metrics: of the last save.
        self._last: tuple[int, list[Any], dict[str, float]] | None = None
        self.values: dict[str, Any] = {}
        self.restored: dict[str, Any] | None = None
        every_key = whole("key_every", key_every, 1, 4096)
        bits = 0.0 if target_bits is None else float(target_bits)
        if target_bits is not None and not bits > 0:
            raise make(InvalidError, f"target_bits must be above 0, not {target_bits!r}")
        if bits and eval_fn is not None:
            raise make(InvalidError, "target_bits sets the quality by size, eval_fn by the loss: give one of them")
        alike = {"profile": profile, "quality": quality, "target_bits": target_bits, "key_every": key_every, "optimizer_states": optimizer_states}
        alike |= {"keep_* or max_bytes": keep, "steps": sorted((k, float(v)) for k, v in (steps or {}).items()), "averages": self._averages, "when_busy": when_busy, "divide": divide, "rng": rng}
        alone = {"base": base, "dynaquant": dynaquant, "eval_fn": eval_fn, "memory": memory or None}
        self._talk = None if group is None else Talk(group, group_seconds, join_seconds, alike, **alone)
        self._division = Division(self._talk.rank, self._talk.world) if self._talk is not None and divide else None
        self._run = _core.Run(self._place, options, every_key, keep, when_busy == "skip", seconds, base, bits, self._talk, memory_of(memory))
        # At the end of the process, too, a save in flight is finished.
        self._finalizer = weakref.finalize(self, close_quietly, self._run)
        if isinstance(self._place, Store) or self._talk is not None:
            outlive(self._finalizer)
        self._signals: Signals | None = None
        try:
            self._signals = Signals(signals, self) if signals else None
        except BaseException:
            self._end()
            raise

    @property
    def measured(self) -> Measured | None:
        """What ``eval_fn`` found at the last save that it was asked at: losses, quality, evaluations, seconds; None before.

        After a search also ``config``, ``by_method``, ``rounds``, ``fell_back`` and ``why``.
        """
        return None if self._guard is None else self._guard.last

    # ---- objects ----

    def register(self, **objects: Any) -> None:
        """Names objects to save, as :meth:`restore` does, without restoring them.

        Args:
            objects: modules, optimizers, random generators, anything with ``state_dict`` and ``load_state_dict``, tensors, arrays,
                dicts, lists or plain values. The name ``model`` gives tensors ``model/wte.weight``.
        """
        with self._lock:
            self._objects = self._with(objects)

    # ---- saving ----

    def save(
        self,
        step: int,
        *,
        metrics: Mapping[str, float] | None = None,
        final: bool = False,
        key: bool = False,
        wait: bool = False,
        **objects: Any,
    ) -> bool:
        """Saves the registered objects (and ``objects``, which are registered with it) and all random states.

        Returns when the live tensors may change; coding, writing and committing go on in the background. Immutable plain values are saved
        as restore() gave them (:attr:`values`) or as they were passed: pass those that change again.

        Args:
            step: finished steps.
            metrics: numbers kept with the checkpoint: :attr:`restored` has them after a restore, :func:`ckpress.list_run` of every
                checkpoint, ``ckpress.open(...).info`` of one.
            final: the run's last save: weights lossless, whatever the profile.
            key: ask for a checkpoint that needs no other.
            wait: return when it is committed.

        Returns:
            False when it was skipped (``when_busy="skip"``).

        Raises:
            UnsupportedError: a value that would not come back as it is, named by its path; nothing was saved.
            Error: this save's failure, or that of the *previous* one, found out only now; then this state was not saved either and
                the call may be repeated. In a group this state is saved all the same, and repeating is another save of all ranks.
        """
        with self._lock:
            came = 0 if self._signals is None else self._signals.mark()
            try:
                taken = self._save(step, metrics, final, key, wait, objects) if self._talk is None else self._save_together(step, metrics, final, key, wait, objects)
                if taken and self._signals is not None:
                    self._signals.served(came)
                return taken
            finally:
                if self._guard is not None:
                    self._guard.release()

    def _save(self, step: int, metrics: Mapping[str, float] | None, final: bool, key: bool, wait: bool, objects: Mapping[str, Any]) -> bool:
        step = whole("step", step, 0, STEP_MAX)
        if self._run.closed:
            raise ValueError("the checkpointer is closed")
        together = self._with(objects)
        collector = self._collect(step, together)
        self._objects = together  # what cannot be saved is not registered either
        numbers = {} if metrics is None else floats(metrics)
        self._tell_log()
        bound, config = self._bind(together, collector)
        if self._guard is None or final:
            taken = self._run.save(step, collector.done(), final, key, wait, numbers, 0.0, config)
        else:
            taken = self._save_judged(self._guard, step, collector, key, wait, numbers, config)
        del bound  # its memory was in use until here
        if taken:
            self._saves += 1
            unsaid = not final and collector.lossy_possible and self._may_end_lossless()
            self._last = (step, fingerprint(self._objects) if unsaid else [], numbers)
        self._tell()
        return bool(taken)

    def _save_together(self, step: int, metrics: Mapping[str, float] | None, final: bool, key: bool, wait: bool, objects: Mapping[str, Any]) -> bool:
        """Each call is one save of all ranks, also where this one cannot: the others must hear why."""
        if self._run.closed:
            raise ValueError("the checkpointer is closed")
        try:
            number = whole("step", step, 0, STEP_MAX)
            together = self._with(objects)
            if self._division is not None:
                self._division.begin()
            collector = self._collect(number, together)
            state, numbers = collector.done(), {} if metrics is None else floats(metrics)
        except BaseException as e:
            with contextlib.suppress(Error):  # of the save before: told here, it would hide this one
                self._run.refuse(step if type(step) is int and 0 <= step <= STEP_MAX else 0, *status_of(e))
            raise
        self._objects = together
        alike = 0 if self._division is None else self._division.alike()
        taken = self._run.save(number, state, final, key, wait, numbers, 0.0, None, alike)
        if self._log is not None:
            self._log.look(self._run)
        self._tell()
        return bool(taken)

    def _tell(self) -> None:
        """Warns, once each, of what the saving thread noticed, and of a training that looks like fine-tuning."""
        text = self._run.stats()["warning"]
        if text and text != self._told:
            self._told = text
            warnings.warn(f"ckpress: {text}", RuntimeWarning, stacklevel=4)
        if self._saves == 3 and self._from_scratch:
            self._from_scratch = False  # once is enough
            if (text := hardly_moved(self._place, self._profile)) is not None:
                warnings.warn(f"ckpress: {text}", RuntimeWarning, stacklevel=4)

    def _bind(self, objects: Mapping[str, Any], collector: Collector) -> tuple[Bound | None, Config | None]:
        settings = self._dynaquant if self._guard is None else self._guard.settings(self._dynaquant)
        if settings is None:
            return None, None
        bound = Bound(objects, collector, settings.sensitivity)
        return bound, bound.config(settings)

    def _save_judged(
        self, guard: Guard, step: int, collector: Collector, key: bool, wait: bool, metrics: dict[str, float], config: Config | None
    ) -> bool:
        state = collector.done()
        # Codebooks that missed the budget are not tried again before steps of the caller's quality meet it; then they are measured.
        config = config if guard.relaxed else None
        again = config is not None and self._by_grids
        try:
            is_key = self._run.stage(step, state, key, metrics, guard.quality, config)
        except LimitError as e:
            warnings.warn(f"ckpress: step {step}: weights are saved losslessly: {e}", RuntimeWarning, stacklevel=4)
            return bool(self._run.save(step, state, True, True, wait, metrics))
        if is_key is None:
            return False
        try:
            if guard.due(is_key) or again:
                found = guard.judge(self._run, step, state, collector, self._objects, config)
                more, lossless = found.metrics(), found.lossless
            else:
                more, lossless = {}, not guard.trusts()
            if not lossless:
                self._run.commit(more)
            self._by_grids = not guard.relaxed or config is None
        finally:
            self._run.unstage()  # nothing after a commit
        if lossless:
            return bool(self._run.save(step, state, True, True, wait, {**metrics, **more}))
        if wait:
            self._run.wait()
        return True

    def _with(self, objects: Mapping[str, Any]) -> dict[str, Any]:
        for name in objects:
            check_object_name(name, RESERVED)
        return {**self._objects, **objects}

    def _collect(self, step: int, objects: dict[str, Any]) -> Collector:
        if not objects:
            raise make(InvalidError, "nothing to save: give objects to restore(), register() or save()")
        root: dict[str, Any] = {"step": step}
        root.update((name, saved_form(obj)) for name, obj in objects.items())
        if self._rng:
            root["rng"] = _rng.get()
        root["ckpress"] = {
            "layout": LAYOUT,
            "kinds": {name: kind_of(obj) for name, obj in objects.items()},
            "classes": {name: class_of(obj) for name, obj in objects.items()},
            **written_by(self._talk, self._division),
        }
        absent = next((name for name in self._averages if name not in objects), None)
        if absent is not None:
            raise make(InvalidError, f"averages: nothing is saved under the name {absent!r}")
        # Parameters are known by the objects themselves, not by what they gave.
        collector = Collector(objects, **rounding_of(self._profile), steps=self._steps, averages=self._averages, division=self._division)
        collector.state.put(_core.DICT, len(root))
        for name, value in root.items():
            collector.value(name, ())
            collector.value(value, (Attr(name),))
        return collector

    def wait(self) -> None:
        """Waits until the save in flight is committed; raises its failure."""
        with self._lock:
            self._run.wait()
            self._tell_log()

    @property
    def busy(self) -> bool:
        """True while a save is being written."""
        return bool(self._run.busy)

    @property
    def stats(self) -> dict[str, Any]:
        """Figures of the last save that has ended (``ckp_save_stats`` in run.h): ``stall_ms`` (inside save()), ``encode_ms``, ``write_ms`` (in the background),
        ``bytes_written``, ``ratio``, ``bits_per_param`` ..., and ``totals``. ``memory_bytes``, ``memory_peak``: extra memory, now and at most; ``copy_bytes``: the copy in
        shared memory; ``copy_note``: why there is none. After close(): as it was then."""
        with self._lock:
            return figures(self._run.stats())

    def log_to(self, writer: Any) -> None:
        """Writes scalars of each committed save: ``ckpress/stall_ms``, ``encode_ms``, ``write_ms``, ``bits_per_param``, ``ratio``, ``memory_bytes``.

        A save is told of when the next one begins, or in :meth:`wait` or :meth:`close`; the next save then waits for it here, but for ``when_busy="skip"`` and ranks of a group.

        Args:
            writer: anything with ``add_scalar(name, value, step)``, such as torch.utils.tensorboard's SummaryWriter. None: no more.
        """
        with self._lock:
            self._log = None if writer is None else Log(writer)

    def _tell_log(self, last: bool = False) -> None:
        if self._log is not None and not self._run.closed:
            self._log.ended(self._run, not last and (self._skips or self._talk is not None))  # of ranks none waits alone, but all at the end

    @property
    def should_save(self) -> bool:
        """True after one of ``signals`` came, until a save that was begun after it has been taken. A loop that is to end then asks first::

            stop = ck.should_save
            if stop or done % every == 0:
                ck.save(done)
            if stop:
                break
        """
        return self._signals is not None and self._signals.pending

    # ---- restoring ----

    def restore(self, *, step: int | None = None, strict: bool = True, **objects: Any) -> int | None:
        """Restores the newest valid checkpoint (or the one of ``step``) into live objects, and registers them for saving.

        All or nothing: names, dtypes and shapes are compared first and every hash of the whole chain is checked before a live tensor is
        written; when it fails, live tensors have the bits they had. Tensors are copied into the live ones; none is cast. Random states
        are set last. dicts, lists, sets and deques are changed in place, and modules, optimizers and the parameters of optimizers in them as if
        they had names of their own. So are tensors in dicts and lists where dtype and shape fit; where they do not, as of a log that has grown, the container gets
        a new one, on the same device. It also gets new ones for those that are a registered module's. Immutable plain values are in :attr:`values` afterwards.

        Args:
            step: finished steps of the wanted checkpoint; None: the newest valid one, with a warning for each cause that made it pass over
                newer ones.
            strict: a name that only one side has is an error.
            objects: as for :meth:`register`.

        Returns:
            finished steps; None when the run has no checkpoint (then nothing is changed). If there is a step directory with a shard and
            without a manifest, as a first save that was cut short leaves it, a RuntimeWarning says so.

        Raises:
            MismatchError: names, dtypes or shapes differ; ``missing``, ``unexpected``, ``mismatched`` list them. Also when an optimizer or
                scheduler is of another class than the saved one and keeps other things (AdamW's state into SGD), or has other param_groups,
                with ``strict=False`` too: to go on with a new optimizer, leave it out.
            PartlyWrittenError: the disk failed for good after everything had been proved, while live tensors were written, and the files are
                too large to be kept in memory: ``tensors`` names what must not be used (docs/runs.md).
            NotFoundError: no such step; or checkpoints are there but none is whole, or lost their manifests (docs/runs.md): training
                from scratch is not what was meant. For that, move the directory away.
        """
        with self._lock:
            if self._run.closed:
                raise ValueError("the checkpointer is closed")
            together = self._with(objects)
            ck = self._open(step)  # of a group: on all ranks the same
            if ck is None:
                self._objects = together
                return None
            try:
                return self._restore_from(ck, dict(objects), together, strict)
            finally:
                ck.close()

    def _why_not(self, step: int) -> str:
        """What the restore of a step finds. Not asked in a group: its ranks would have to ask together."""
        if self._division is None:
            try:
                self._run.open(step, False).close()
            except Error as e:
                return str(e)
        return "what their shards hold is damaged"

    def _open(self, step: int | None) -> Any:
        try:
            ck = self._run.open(-1 if step is None else whole("step", step, 0, STEP_MAX), self._division is not None)
        except NotFoundError:
            if step is not None:
                raise
            why = nothing_to_restore(self._place, self.dir, self._why_not)
            if why is not None:
                warnings.warn(f"ckpress: {why}", RuntimeWarning, stacklevel=3)
            return None
        for text in passed_over(ck.notes()):
            warnings.warn(f"ckpress: {text}", RuntimeWarning, stacklevel=3)
        if (dropped := ck.info()["dropped"]) is not None:
            warnings.warn(f"ckpress: {ck.info()['name']}: {dropped}", RuntimeWarning, stacklevel=3)
        return ck

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """In a group the block fails on all ranks or on none, before any of them goes on."""
        if self._talk is None:
            yield
            return
        try:
            yield
        except BaseException as e:
            with contextlib.suppress(Error):
                self._run.agree(*status_of(e))
            raise
        self._run.agree(0, "")

    def _adopt(self, ck: Any) -> None:
        """The restore has succeeded, and must not seem to have failed only because the next save will be larger."""
        try:
            self._run.adopt(ck)
        except Error as e:
            warnings.warn(f"ckpress: restored, but the next checkpoint cannot be a delta against it: {e}", RuntimeWarning, stacklevel=4)

    def _restore_from(self, ck: Any, objects: dict[str, Any], together: dict[str, Any], strict: bool) -> int:
        values: dict[str, Any] = {}
        with self._together():
            plan, done = planned(ck, objects, strict, values, self._rng, self._talk, self._division)
            plan.prepare(self._threads)
        with plan.held():  # no other rank hears of a signal, and what is restored is registered too
            with self._together():
                plan.apply(self._threads)
            self.values = values
            self._adopt(ck)
            self.restored = ck.info()
            self._from_scratch = False
            if self._guard is not None:
                self._guard.resume(self.restored.get("metrics", {}), self.restored.get("settings", {}))
            self._objects = {**together, **values}
            self._last = None
        return done

    # ---- the end ----

    def close(self) -> None:
        """Finishes the save in flight and gives the run back. Closing twice is fine.

        A lossy run should end with lossless weights. ``save(step, final=True)`` says so; without it close() makes that save itself, under
        the last save's step and with its metrics, if ``final_on_close`` is set and the live tensors are still those of the last save. If training went on
        after it, or no registered module that is trained tells whether it did, nothing is saved: no step would be right for it. Nothing is saved either when a ``with`` block ends by an exception.
        The copy in shared memory goes (``memory``); it stays after an exception, and where nothing was closed.
        """
        with self._lock:
            if self._run.closed:
                return
            in_order = False
            try:
                if self._last is not None and self._final_is_due():
                    self._save_final(self._last[0], self._last[2])
                self._tell_log(last=True)
                in_order = True
            finally:
                self._end(in_order)

    def _may_end_lossless(self) -> bool:
        return self._profile != "lossless" and self._final_on_close and self._talk is None

    def _final_is_due(self) -> bool:
        return self._last is not None and bool(self._last[1]) and self._last[1] == fingerprint(self._objects)

    def _save_final(self, step: int, metrics: dict[str, float]) -> None:
        try:
            self._run.wait()
        except Error as e:  # of the last save: this one has all of it
            warnings.warn(f"ckpress: step {step}: the last save failed and is made again: {e}", RuntimeWarning, stacklevel=4)
        self._save(step, metrics, True, False, True, {})  # no other rank waits for it

    def _end(self, in_order: bool = False) -> None:
        if not in_order:
            self._run.keep_memory()
        if self._signals is not None:
            self._signals.end()
        self._objects = {}
        self._finalizer.detach()
        self._run.close()

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: object, exc: object, tb: object) -> None:
        if kind is None:
            self.close()
            return
        with self._lock:
            try:
                if not self._run.closed:
                    self._end()
            except Error as e:  # the exception in flight says more
                warnings.warn(f"ckpress: while closing: {e}", RuntimeWarning, stacklevel=2)

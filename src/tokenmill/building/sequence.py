"""The one sequence of every build: lock, plan, explain, encode what is missing, publish.

A folder of the user, the cache and a repair are destinations (see destination.py); a trial is a request with a limit.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain

from tokenmill.building.build_plan import BuildPlan, make_plan
from tokenmill.building.build_start import choose_engine, first_manifest
from tokenmill.building.changes import record_speed
from tokenmill.building.destination import Destination
from tokenmill.building.document_sampler import Sample
from tokenmill.building.downloads import downloading
from tokenmill.building.executors.base import Executor, Failures
from tokenmill.building.executors.choose import executor_for
from tokenmill.building.machine import Needs, needs_of
from tokenmill.building.plan import Task, task_of
from tokenmill.building.publish import ShardEntry, publish, tokenizer_files, write_tokenizer
from tokenmill.building.reporting import event_sink, warn_of_large_document
from tokenmill.building.request import BuildRequest, ResolvedRequest, resolve
from tokenmill.building.slices import Slice, SliceNotes, missing_slices, slices_key
from tokenmill.building.spot_check import SpotCheck
from tokenmill.building.streams import StreamTasks
from tokenmill.building.task_context import TaskContext, TaskResult
from tokenmill.building.task_rows import locate
from tokenmill.child_process import end_idle_children
from tokenmill.documents import BLANK
from tokenmill.encoding.selection.characters import normalizes
from tokenmill.encoding.selection.proof import refuse
from tokenmill.encoding.tokenizer import Tokenizer, differs_around
from tokenmill.errors import BuildError, DifferenceError, InputError, StoreError
from tokenmill.events import Explained, FileFailed, Finished, Listener, Planned, SliceDone, Started, UpToDate
from tokenmill.io import disk
from tokenmill.io.atomic import naming_files, writing
from tokenmill.option_types import values_of
from tokenmill.options import ReadOptions
from tokenmill.reading import text_weight
from tokenmill.store.columns import ColumnSpec, columns_with
from tokenmill.store.manifest import Manifest
from tokenmill.store.reuse import link_shard
from tokenmill.store.shard import read_receipt
from tokenmill.store.store import Store

UNKNOWN_BYTES = 1 << 30  # of a stream that does not end soon


@dataclass(slots=True)
class Results:
    """What the tasks of a build became."""

    tasks: list[Task]  # that make up the store, in order
    shards: dict[str, str] = field(default_factory=dict)  # task id -> name of its shard, where that is another
    failures: Failures = field(default_factory=dict)
    spot_check: SpotCheck | None = None
    by_reference: int = 0  # documents that the engine has left to the reference

    def shard_ids(self) -> list[str]:
        return [self.shards.get(task.id, task.id) for task in self.tasks]

    def failed_files(self) -> list[dict[str, str]]:
        """The files that failed, sorted. A file that was cut into pieces may have failed several times."""
        entries = sorted(chain(*self.failures.values()), key=lambda entry: entry["file"])
        return list({entry["file"]: dict(entry) for entry in entries}.values())


@naming_files()
def run_build(request: BuildRequest, destination: Destination, listener: Listener) -> Store:
    """Build the store of a request at a destination, or find that it is there already."""
    with ExitStack() as stack:
        store = destination.open(stack, listener)
        if store is not None:
            return report_up_to_date(store, listener)
        with event_sink(listener, destination.folder) as emit:
            store, plan = _build(request, destination, emit)
        assert store is not None, "only a slice leaves a store unfinished"
        return store if plan is None else destination.finish(store, plan)


@naming_files()
def run_slice(request: BuildRequest, destination: Destination, notes: SliceNotes, listener: Listener) -> Store | bool:
    """Do the tasks of one slice. Returns the store if it is finished already; else whether all slices are done."""
    assert request.slice is not None
    mine = Slice.parse(request.slice)
    with ExitStack() as stack:
        destination.open(stack, listener)
        with event_sink(listener, destination.folder) as emit:
            store, plan = _build(request, destination, emit, mine)
            if store is not None:
                return store if plan is None else destination.finish(store, plan)
            assert plan is not None
            notes.note(mine, slices_key(plan))
            missing, differing = missing_slices(notes, mine.count, slices_key(plan))
            emit(SliceDone(slice=str(mine), shards=len(plan.todo), missing=missing, differing=differing))
    return not missing


def report_up_to_date(store: Store, emit: Listener) -> Store:
    """Emit that there is nothing to build, and return the store."""
    emit(UpToDate(path=store.name, documents=len(store), tokens=store.num_tokens))
    return store


def _build(
    request: BuildRequest, destination: Destination, emit: Listener, mine: Slice | None = None
) -> tuple[Store | None, BuildPlan | None]:
    """The store, and the plan unless the list of input files was enough to find it. A slice leaves the store unfinished."""
    began = time.monotonic()
    with ExitStack() as stack:
        resolved, executor = _resolved(request, destination, emit, stack)
        prior = destination.prior_work(resolved)
        if isinstance(prior, Store):
            return report_up_to_date(prior, emit), None
        plan = make_plan(resolved, destination.folder, prior, emit)
        store = destination.existing_store(plan)
        if store is not None:
            return report_up_to_date(store, emit), plan
        if mine is not None:
            all_todo, plan.todo = plan.todo, mine.of(plan)
            plan.left_to_others = len(all_todo) - len(plan.todo)
            if not plan.todo:
                return None, plan
        if reasons := destination.reasons(plan):
            emit(Explained(reasons=reasons))
        if plan.has_work and not plan.prior.is_repair:
            warn_of_large_document(resolved.source, emit)
        streams = None
        if resolved.source._streams:
            streams = StreamTasks(plan, emit, plan.limit)
            stack.callback(disk.remove_tree, streams.folder)
        weight = _weight(plan, streams)
        if executor is None or resolved.is_slow:  # a slow tokenizer may need another executor than was started
            if executor is not None:
                executor.stop()
            executor = stack.enter_context(_executor(resolved, emit, weight))
        store = _carry_out(plan, streams, weight, executor, emit, began, publishes=mine is None)
        if streams is not None:
            streams.finish()
        return store, plan


def _resolved(
    request: BuildRequest, destination: Destination, emit: Listener, stack: ExitStack
) -> tuple[ResolvedRequest, Executor | None]:
    """The request with its tokenizer loaded; and an executor whose workers start meanwhile, if they are needed for sure."""
    if isinstance(request, ResolvedRequest):
        return request, None
    executor = None
    # With a limit it is known first how much the tokenizer takes.
    if destination.is_new and not request.source._streams and request.memory is None:
        executor = stack.enter_context(_executor(request, emit))
        executor.start()
    return resolve(request), executor


def _weight(plan: BuildPlan, streams: StreamTasks | None) -> int:
    """About how many bytes of text there are to encode."""
    if streams is None or plan.limit is not None:
        return plan.weight
    size = streams.size_of_first()
    return plan.weight + (UNKNOWN_BYTES if size is None else size)


def _executor(request: BuildRequest, emit: Listener, text_bytes: int | None = None) -> Executor:
    """The executor for a request. `text_bytes` is the text to encode, all of the source if not given."""
    tokenizer = request.tokenizer if isinstance(request, ResolvedRequest) else None
    is_slow = tokenizer is not None and tokenizer._reference_traits.is_slow
    if text_bytes is None and not request.source._streams:
        text_bytes = sum(map(text_weight, request.source.files))
    return executor_for(
        emit,
        workers=request.workers,
        memory=request.memory,
        text_bytes=text_bytes,
        is_trial=request.is_trial,
        is_slow=is_slow,
        needs=_needs(request, text_bytes) if isinstance(request, ResolvedRequest) else None,
        live=tokenizer._live if tokenizer is not None and is_slow and tokenizer._traits.in_process_only else None,
        backend=request.backend,
        address=request.address,
    )


def _needs(request: ResolvedRequest, text_bytes: int | None) -> Needs | None:
    """The memory that the tokenizer of a build takes, if the memory is limited."""
    tokenizer = request.tokenizer
    if request.memory is None or request.backend != "local":
        return None
    text_bytes = UNKNOWN_BYTES if text_bytes is None else text_bytes
    definition, wanted = tokenizer._definition, tokenizer._wanted
    leaves = request.is_slow or (wanted == "auto" and tokenizer._leaves_to_reference(text_bytes))
    return needs_of(
        len(definition.json or "") or sum(map(len, definition.files.values())),
        by_reference=leaves or wanted in ("reference", definition.reference),
        is_unigram=definition.settings.get("model", {}).get("type") == "Unigram",
        proof=not request.is_trial and tokenizer._needs_proof(text_bytes),
        normalizes=normalizes(definition),
    )


def _carry_out(
    plan: BuildPlan,
    streams: StreamTasks | None,
    weight: int,
    executor: Executor,
    emit: Listener,
    began: float,
    *,
    publishes: bool,
) -> Store | None:
    """Encode what is missing, and publish. `began` is when the build began."""
    tokenizer = choose_engine(plan, weight, executor, emit) if plan.has_work or plan.origin is None else plan.tokenizer
    manifest = first_manifest(plan, tokenizer)
    manifest.files |= write_tokenizer(plan.folder, tokenizer)
    if plan.prior.bucket is not None:
        plan.prior.bucket.push_files(manifest.files)
    _link_borrowed_shards(plan, manifest.columns)
    if plan.prior.published is None:
        manifest.write(plan.folder)  # so that an interrupted build is recognised
    results = Results(plan.tasks)
    setup_seconds = time.monotonic() - began
    if plan.has_work:
        results = _run_tasks(plan, streams, tokenizer, executor, emit)
        if streams is not None:
            plan.tasks = results.tasks
            manifest.source["files"] += streams.files
            manifest.source_bytes += streams.nbytes
            streams.check_kept(results.shard_ids(), is_whole=True)
        if (plan.limit is not None or streams is not None) and not results.failures:
            store = plan.published_store(results.shard_ids())
            if store is not None:
                return report_up_to_date(store, emit)
    if not publishes:
        return None
    if plan.prior.is_repair and results.failures:
        raise StoreError(
            f"{plan.folder} cannot be repaired: {results.failed_files()[0]['error']}. It was left as it is: repair it when"
            " its input can be read"
        )
    _add_untried_failures(plan, results, emit)
    failed = results.failed_files()
    try:
        manifest = publish(plan.folder, manifest, _shard_entries(plan, results), failed, plan.source)
    except InputError:
        if not failed:  # shards of files that failed are kept for the next try; else it may have other options
            _discard_results(plan)
        raise
    seconds = time.monotonic() - began
    new_bytes = _new_bytes(plan) + (streams.nbytes if streams is not None else 0)
    record_speed(tokenizer, new_bytes, seconds - setup_seconds)
    finished = _finished_event(plan, manifest, results)
    emit(replace(finished, source_bytes=new_bytes, seconds=seconds, setup_seconds=setup_seconds))
    return Store(plan.folder, manifest)


def _link_borrowed_shards(plan: BuildPlan, columns: Sequence[ColumnSpec]) -> None:
    """Take shards from donors by hard links; by copies where the file system has no links."""
    with writing(plan.shards):
        disk.make_folder(plan.shards)
        for name, donor in plan.borrowed.items():
            link_shard(donor, plan.shards, name, columns)
        disk.sync_folder(plan.shards)


def _run_tasks(
    plan: BuildPlan, streams: StreamTasks | None, tokenizer: Tokenizer, executor: Executor, emit: Listener
) -> Results:
    """Encode the tasks of a plan, while some of their documents are encoded by the reference too."""
    results = Results(list(plan.tasks))
    emit(_planned_event(plan, tokenizer, executor))
    spot_check = results.spot_check = _spot_check(plan, results, tokenizer, executor.processes)
    if executor.is_isolated:
        end_idle_children()  # they have read for the plan; workers read for themselves
    executor.begin(_task_context(plan, tokenizer), None if spot_check is None else spot_check.offer)
    if spot_check is not None and not executor.is_isolated:
        spot_check.load_ahead()
    emit(Started(source_bytes=_new_bytes(plan) if streams is None else 0))

    def note(task: Task, result: TaskResult) -> None:
        assert result.shard is not None
        plan.fetch_receipt(result.shard.id)
        results.shards[task.id] = result.shard.id
        results.by_reference += result.shard.by_reference
        if streams is not None:
            streams.done(task, result.shard.id, results.tasks[0])
        for piece, content in zip(task.pieces, result.contents, strict=True):
            if content is not None:
                plan.index.record(piece, plan.source._looked_at, content)

    def run(tasks: Iterable[Task]) -> None:
        results.failures |= executor.run(tasks, lambda task: plan.has_shard(task, plan.shards), note)

    try:
        if plan.limit is not None:
            _run_trial(plan, streams, results, run)
        else:
            with downloading(plan.todo, emit) as tasks:
                run(tasks)
            if streams is not None:
                run(streams.tasks(results.tasks, columns_with(tokenizer.dtype)))
        if spot_check is not None:
            spot_check.finish()
    except DifferenceError as error:
        executor.stop()  # so that it writes no receipt after this
        _discard_results(plan)
        refuse(tokenizer._definition, tokenizer.choose_engine(), f"was caught: {str(error)[:200]}")
        raise
    return results


def _run_trial(
    plan: BuildPlan, streams: StreamTasks | None, results: Results, run: Callable[[Iterable[Task]], None]
) -> None:
    """Do tasks one after the other until the limit is reached. Where each stops depends on those before it."""
    left = plan.limit
    assert left is not None
    for pieces in chain(plan.trial, streams.pieces() if streams is not None else ()):
        task = task_of(pieces, plan.build_key, left)
        results.tasks.append(task)
        run([task])
        receipt = read_receipt(plan.shards, results.shards.get(task.id, task.id))
        if receipt is None:
            continue
        for piece in receipt["pieces"]:
            blank = sum(count for _, count, reason, _ in piece.get("skips", ()) if reason == BLANK)
            left = left.less(piece["rows"] - blank, piece["documents"], piece["tokens"])
        if streams is not None:
            streams.left = left
        if left.reached or receipt.get("stopped"):
            break


def _spot_check(plan: BuildPlan, results: Results, tokenizer: Tokenizer, processes: int) -> SpotCheck | None:
    """None if the engine is the reference itself."""
    if tokenizer._runs_reference:
        return None

    def place(sample: Sample) -> str:
        task = next(task for task in (*plan.todo, *results.tasks) if task.id == sample.task)
        return locate(task, plan.source, sample.number)

    return SpotCheck(tokenizer, plan.options["bos"], plan.options["eos"], processes, place)


def _discard_results(plan: BuildPlan) -> None:
    """Remove every receipt that was not published before: its shard may be from an engine that was caught."""
    published = plan.prior.published
    keep = set(published.shard_ids) - plan.prior.damaged if published is not None else set()
    discarded = [receipt for receipt in disk.matching(plan.shards, "*.json") if receipt.stem not in keep]
    for receipt in discarded:
        disk.unlink(receipt)
    if plan.prior.bucket is not None:
        plan.prior.bucket.discard_receipts(receipt.stem for receipt in discarded)


def _add_untried_failures(plan: BuildPlan, results: Results, emit: Listener) -> None:
    """Add failures of files that were not tried: copies of a file that failed, and files known to be unreadable."""
    tried = {task.id: task for task in plan.todo}
    results.failures[""] = plan.prior.unreadable
    untried = list(plan.prior.unreadable)
    for task in plan.tasks:
        failures = results.failures.get(task.id)
        if failures is None or task.id not in tried:
            continue
        errors = {entry["file"]: entry["error"] for entry in failures}
        for piece, tried_piece in zip(task.pieces, tried[task.id].pieces, strict=True):
            name, tried_name = piece.file.shown, tried_piece.file.shown
            if tried_name in errors and name not in errors:
                untried.append({"file": name, "error": errors[tried_name].replace(tried_name, name)})
                failures.append(untried[-1])
    for entry in untried:
        emit(FileFailed(**entry))


def _shard_entries(plan: BuildPlan, results: Results) -> Iterator[ShardEntry]:
    """The shards of the store in order. A file is in it as a whole, or not at all."""
    failed = {entry["file"] for entry in chain(*results.failures.values())}
    for task, shard in zip(results.tasks, results.shard_ids(), strict=True):
        if failed and failed.issuperset(piece.file.shown for piece in task.pieces):
            continue
        receipt = read_receipt(plan.shards, shard)
        if receipt is None:
            raise BuildError(f"shard {shard} has no receipt after the build; run the build again")
        failed_here = {entry["file"] for entry in results.failures.get(task.id, ())}
        files = [piece.file.shown for piece in task.pieces if piece.file.shown not in failed_here]
        yield ShardEntry(shard, files[: len(receipt["pieces"])], receipt)  # a trial may stop before the last piece


def _new_bytes(plan: BuildPlan) -> int:
    return sum(task.new_bytes for task in plan.todo)


def _task_context(plan: BuildPlan, tokenizer: Tokenizer) -> TaskContext:
    return TaskContext(
        shards=str(plan.shards),
        build_key=plan.build_key,
        reading=values_of(ReadOptions, plan.source),
        tokenizer=str(plan.folder / "tokenizer"),
        python_class=tokenizer._definition.python_class,
        python_path=sys.path if tokenizer._definition.python_class else [],
        encoder=tokenizer._encoder_options(plan.options["bos"], plan.options["eos"]),
        refuse_special_tokens=tokenizer.special_tokens == "error",
        journals=str(plan.index.folder),
        reading_key=plan.index.reading,
        listed_at=plan.source._looked_at,
        bucket=plan.prior.bucket.url if plan.prior.bucket is not None else None,
        tokenizer_files=tokenizer_files(tokenizer) if plan.prior.bucket is not None else {},
    )


def _planned_event(plan: BuildPlan, tokenizer: Tokenizer, executor: Executor) -> Planned:
    source = plan.source
    return Planned(
        files=len(source.files),
        streams=len(source._streams),
        source_bytes=source.num_bytes,
        ignored=source.ignored_by_reason,
        shards=len(plan.tasks),
        done=len(plan.tasks) - len(plan.todo) - plan.left_to_others,
        linked=len(plan.borrowed),
        tasks=len(plan.todo),
        tokenizer=tokenizer.name,
        vocab_size=tokenizer.vocab_size,
        dtype=tokenizer.dtype.name,
        bos=tokenizer.describe(plan.options["bos"]),
        eos=tokenizer.describe(plan.options["eos"]),
        note=differs_around(tokenizer, plan.options["bos"], plan.options["eos"]),
        engine=f"{tokenizer.choose_engine()} {tokenizer.engine_version}",
        proof=tokenizer.proof,
        workers=executor.describe(),
    )


def _finished_event(plan: BuildPlan, manifest: Manifest, results: Results) -> Finished:
    spot_check = results.spot_check
    return Finished(
        seconds=0.0,
        setup_seconds=0.0,
        source_bytes=0,
        documents=manifest.documents,
        tokens=manifest.tokens,
        quarantined=manifest.quarantined,
        failed_files=len(manifest.failed),
        doubts=manifest.source.get("doubts", []),
        special_documents=manifest.special_documents,
        special_tokens=plan.tokenizer._definition.special_tokens,
        by_reference=results.by_reference,
        spot_checked=spot_check.checked if spot_check else 0,
        spot_check_seconds=round(spot_check.seconds, 4) if spot_check else 0.0,
        fingerprint=manifest.fingerprint,
    )

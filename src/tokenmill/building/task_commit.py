"""A task from its pieces to a durable shard: encoded by a `TaskRun`, noted, committed under the name of what it holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenmill.building.plan import Task, shard_name
from tokenmill.building.source_index import Journal
from tokenmill.building.task import Enough, TaskRun
from tokenmill.encoding import Encoder
from tokenmill.reading import Source
from tokenmill.store import ShardWriter, is_done, read_receipt


@dataclass(slots=True)
class Encoded:
    """A task that is done but for making it durable: what it became, and what could not be read."""

    task: Task
    writer: ShardWriter
    facts: dict[str, Any]
    contents: list[str | None]  # of each piece; None where it could not be read, or not to its end
    failed: list[dict[str, str]]

    @property
    def is_nothing(self) -> bool:
        return bool(self.failed) and not self.facts["pieces"]

    def commit(self, made: str, journal: Journal) -> str:
        """Make it durable. Returns the shard's name; a shard of that name that is there already stays as it is."""
        journal.note(self.task, self.contents)
        name = self.task.id
        if not self.task.known or self.failed:
            contents: Any = [piece["content"] for piece in self.facts["pieces"]]
            if self.task.limit is not None:  # of files that were not read to their end: what came out of them
                contents = [asdict(self.task.limit), self.facts, self.writer.finish()]
            name = shard_name(made, contents)
            there = read_receipt(self.writer.folder, name)
            if there is not None and is_done(self.writer.folder, there):
                self.writer.discard()
                return name
        self.writer.commit(name, **self.facts)
        return name


def encode_task(task: Task, source: Source, encoder: Encoder, shards: Path, **options: Any) -> Encoded:
    """Everything of a task but making it durable."""
    writer = ShardWriter(shards, task.id, encoder.dtype)
    try:
        run = TaskRun(task, source, encoder, writer, **options)
        try:
            facts = run.run()
        except Enough as enough:  # once more, up to the last document that fits
            writer.discard()
            writer = ShardWriter(shards, task.id, encoder.dtype)
            run = TaskRun(task, source, encoder, writer, **{**options, "advance": lambda *done: None})
            facts = {**run.run(enough.documents), "stopped": True}
        return Encoded(task, writer, facts, run.contents, run.failed)
    except BaseException:
        writer.discard()
        raise

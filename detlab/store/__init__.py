"""The trace on disk: one folder a run, one append-only Arrow stream a rank, an index that can be rebuilt."""

from detlab.store.batches import Batches, FileBatches, MemoryBatches
from detlab.store.header import Manifest, RankHeader, read_manifest, write_manifest
from detlab.store.metrics import MetricLog, read_metric_logs
from detlab.store.names import NameFile, NameTables
from detlab.store.reader import RankTrace, memory_trace, open_rank
from detlab.store.selection import Selectable, Selection, Subset, empty_selection, spans
from detlab.store.subset import select_segments, select_steps
from detlab.store.writer import TraceWriter

__all__ = [
    "Batches",
    "FileBatches",
    "Manifest",
    "MemoryBatches",
    "MetricLog",
    "NameFile",
    "NameTables",
    "RankHeader",
    "RankTrace",
    "Selectable",
    "Selection",
    "Subset",
    "TraceWriter",
    "empty_selection",
    "memory_trace",
    "open_rank",
    "read_manifest",
    "read_metric_logs",
    "select_segments",
    "select_steps",
    "spans",
    "write_manifest",
]

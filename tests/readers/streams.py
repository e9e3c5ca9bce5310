"""Small Megatron-Bridge streams made by code: a word stands for the bits of a tensor."""

import gzip
import json

from detlab import load_run
from detlab.testing import word_digest

TWO_RANKS = {"world_size": 2, "tp": 1, "pp": 1, "cp": 1, "dp": 2, "ep": 1, "etp": 1}


def tensor(word, shape=(4, 8), dtype="torch.float32", **fields):
    """A signature; a word of 16 hexadecimal digits is the digest itself."""
    digest = word if len(word) == 16 else f"{word_digest(word):016x}"
    numel = 1
    for length in shape:
        numel *= length
    return {"shape": list(shape), "dtype": dtype, "digest": digest, "numel": numel, **fields}


ZERO = "0" * 16


def record(op, inputs=(), outputs=(), **fields):
    """A record without its order; words and ready signatures may be mixed."""
    sides = [[tensor(each) if isinstance(each, str) else each for each in side] for side in (inputs, outputs)]
    plain = {
        "window": 1, "op": op, "group": "aten", "align_idx": 0, "scope": None, "phase": "fwd",
        "caller": None, "reduce_op": None,
    }  # fmt: skip
    return {**plain, "input": sides[0], "output": sides[1], **fields}


def header(rank=0, config=TWO_RANKS, **coords):
    place = {"global_rank": rank, "tp": 0, "pp": 0, "cp": 0, "dp": rank, "ep": 0, "etp": 0, "edp": rank}
    return {"_header": True, "coords": {**place, **coords}, "config": config}


def lines(records, **place):
    """The lines of one stream, numbered in order."""
    numbered = [{"seq_id": seq, **each} for seq, each in enumerate(records)]
    return [json.dumps(each).encode() + b"\n" for each in [header(**place), *numbered]]


def write(folder, rank, content, *, compress=False):
    folder.mkdir(parents=True, exist_ok=True)
    raw = b"".join(content)
    path = folder / f"stream_pp0_tp0_cp0_dp{rank}.fp{'.gz' if compress else ''}"
    path.write_bytes(gzip.compress(raw) if compress else raw)
    return path


def bridge_run(folder, *ranks, config=TWO_RANKS):
    """Load a folder with one stream for each list of records, on the data-parallel axis."""
    for rank, records in enumerate(ranks):
        write(folder, rank, lines(records, rank=rank, config={**config, "dp": len(ranks)}))
    return load_run(folder)


def rows(run, *names, rank=0):
    """Columns of all events of one rank, as a list for each."""
    trace = run.ranks[rank]
    columns = trace.columns(0, trace.num_events, names)
    return [columns[name].tolist() for name in names]


def callees(run, rank=0):
    trace = run.ranks[rank]
    return [trace.names.callees[number] for number in rows(run, "callee", rank=rank)[0]]


def metas(run, rank=0):
    trace = run.ranks[rank]
    return [trace.names.metas[number] for number in rows(run, "meta", rank=rank)[0]]

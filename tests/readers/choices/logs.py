"""Logs in the forms that cuBLASLt, Triton and Inductor write, with what a test wants to say."""

import json

SPLIT = (
    "algoId=21 tile=MATMUL_TILE_64x64 stages=MATMUL_STAGES_32x3 reductionScheme=REDUCTION_SCHEME_INPLACE "
    "numSplitsK=3"
)
WHOLE = "algoId=21 tile=MATMUL_TILE_128x128 stages=MATMUL_STAGES_32x3"
HOPPER = (
    "algoId=66 tile=MATMUL_TILE_128x128 stages=MATMUL_STAGES_128xAUTO customOption=3 "
    "clusterShape=CLUSTER_SHAPE_1x1x1"
)


def product(m, n, k, algo=WHOLE, *, pid=53055, layout="NN", dtype="R_16BF", time="2026-05-04 15:08:47",
            function="cublasLtTSTMatmul", beta="0", workspace="0", address="32F6"):  # fmt: skip
    """One product as cuBLASLt logs it; m, n and k as the library counts them, columns first."""
    a = (m, k) if layout[0] == "N" else (k, m)
    b = (k, n) if layout[1] == "N" else (n, k)
    descs = [
        f"{name}=0X{address}{at}0000 {name}desc=[type={dtype} rows={rows} cols={cols} ld={rows}]"
        for at, (name, (rows, cols)) in enumerate({"A": a, "B": b, "C": (m, n), "D": (m, n)}.items())
    ]
    turned = "".join(f" trans{x}=OP_T" for x, letter in zip("ab", layout, strict=True) if letter == "T")
    head = f"[{time}]" if time else ""
    return (
        f"{head}[cublasLt][{pid}][Trace][{function}] {' '.join(descs)} "
        f"computeDesc=[computeType=COMPUTE_32F scaleType=R_32F{turned}] algo=[{algo}] "
        f"workSpace=0X{address}9000 workSpaceSizeInBytes={workspace} beta={beta} outOfPlace=0 stream=0X0\n"
    )


def heuristic(m, n, k, pid=53055):
    """A question to the heuristic, which level 5 logs before the product."""
    return (
        f"[2026-05-04 15:08:47][cublasLt][{pid}][Api][cublasLtTSTMatmulAlgoGetHeuristic] "
        f"Adesc=[type=R_16BF rows={m} cols={k} ld={m}] Bdesc=[type=R_16BF rows={k} cols={n} ld={k}] "
        f"Cdesc=[type=R_16BF rows={m} cols={n} ld={m}] Ddesc=[type=R_16BF rows={m} cols={n} ld={m}] "
        "preference=[maxWavesCount=0.0 maxWorkspaceSizeinBytes=33554432] "
        "computeDesc=[computeType=COMPUTE_32F scaleType=R_32F]\n"
    )


def tuned(name, key, config, tag=""):
    """A print of Triton's autotuner since it names the key, over four lines."""
    lines = [
        f"Triton autotuning for function {name},", f"with key as {key},", "finished after 0.12s,",
        f"best config selected: {config};",
    ]  # fmt: skip
    return "".join(f"{tag}{line}\n" for line in lines)


def tuned_before(name, config):
    """The older print, on one line and without a key."""
    return f"Triton autotuning for function {name} finished after 9.09s; best config selected: {config};\n"


def config(block, warps, stages=3):
    """A configuration as Triton 3.9 prints it."""
    sizes = f"num_warps: {warps}, num_ctas: 1, num_stages: {stages}"
    return f"BLOCK: {block}, {sizes}, maxnreg: None, ir_override: None"


def table(op, sizes, *rows, dtypes="torch.float16, torch.float16"):
    """A table of Inductor's autotuner."""
    body = "".join(f"  {row}\n" for row in rows)
    return (
        f"AUTOTUNE {op}({sizes})\nstrides: [4096, 1], [1, 4096]\ndtypes: {dtypes}\n{body}"
        "SingleProcess AUTOTUNE benchmarking takes 0.3031 seconds and 0.3110 seconds precompiling for "
        f"{len(rows)} choices\n"
    )


def triton_cache(folder, name, key, timings, digest="ABCDEF"):
    """A file of Triton's autotune cache: (block, warps, times) of each configuration."""
    entries = [
        (
            {"kwargs": {"BLOCK": block}, "num_warps": warps, "num_ctas": 1, "num_stages": 3, "maxnreg": None,
             "pre_hook": None, "ir_override": None},
            times,
        )
        for block, warps, times in timings
    ]  # fmt: skip
    (folder / digest).mkdir(parents=True, exist_ok=True)
    path = folder / digest / f"{name}.autotune.json"
    path.write_text(json.dumps({"key": key, "configs_timings": entries}))
    return path


def kineto(path, *launches, rank=None):
    """A trace of torch.profiler: (op, shapes, kernel) of each launch, in order."""
    events = []
    for at, (op, shapes, kernel) in enumerate(launches, 1):
        start = 100.0 * at
        args = {"External id": at, "Input Dims": shapes}
        events.append(
            {"ph": "X", "cat": "cpu_op", "name": op, "pid": 1, "tid": 1, "ts": start, "dur": 50, "args": args}
        )
        args = {"External id": at, "device": 0, "stream": 7, "correlation": at}
        events.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": kernel,
                "pid": 0,
                "tid": 7,
                "ts": start + 60,
                "dur": 5,
                "args": args,
            }
        )
    beside = {} if rank is None else {"distributedInfo": {"rank": rank}}
    path.write_text(json.dumps({"schemaVersion": 1, **beside, "traceEvents": events}))
    return path

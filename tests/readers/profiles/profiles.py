"""Small profiles with planted times, as PyTorch's profiler and Nsight Systems write them."""

import json

MAIN, ENGINE = 7, 8
"""Threads of the host: that of the program, and that of the backward pass."""


def event(name, start, duration, *, cat="cpu_op", tid=MAIN, pid=1, **args):
    place = {"pid": pid, "tid": tid, "args": args}
    return {
        "ph": "X", "cat": cat, "name": name, "ts": start, "dur": duration, **place,
    }  # fmt: skip


def step(number, start, duration):
    return event(f"ProfilerStep#{number}", start, duration, cat="user_annotation")


def launched(op, kernel, start, duration, *, number, late=0.0, **options):
    """An op that launches one kernel, which runs on the device ``late`` microseconds later."""
    return [
        event(op, start, 4.0, **{"External id": number}, **options),
        event("cudaLaunchKernel", start + 1, 2.0, cat="cuda_runtime", correlation=number),
        event(
            kernel, start + late, duration, cat="kernel", pid=0, tid=20,
            **{"correlation": number, "External id": number, "stream": 20, "device": 0},
        ),
    ]  # fmt: skip


def write_kineto(path, events, **beside):
    path.write_text(json.dumps({"schemaVersion": 1, **beside, "traceEvents": events, "traceName": path.name}))
    return path


NVTX = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range"
KERNELS = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
TRACE = (
    "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl,NumChild,RangeId,"
    "ParentId,RangeStack,NameTree"
)


def notice(report):
    return f"Processing [run.sqlite] with [/opt/nsight/reports/{report}.py]... \n"


def nvtx_row(name, total_ns, count):
    return f'1.0,{total_ns},{count},1,1,1,1,0,PushPop,"{name}"\n'


def kernel_row(name, total_ns, count):
    return f'1.0,{total_ns},{count},1,1,1,1,0,"{name}"\n'


def nvtx_sum(rows):
    return notice("nvtx_sum") + NVTX + "\n" + "".join(nvtx_row(*row) for row in rows)


def kern_sum(rows):
    return notice("cuda_gpu_kern_sum") + KERNELS + "\n" + "".join(kernel_row(*row) for row in rows)


def trace_row(name, start, duration, own):
    return f'{start},{start + duration},{duration},0,{own},"{name}",1,2,0,0,1,,:1,"{name}"\n'

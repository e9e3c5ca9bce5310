"""What is published of the libraries under torch: cuBLAS, cuDNN, oneMKL, flash-attention, NCCL, Triton."""

from __future__ import annotations

from typing import Final

from detlab.catalog.entry import (
    COMPARE,
    CUBLAS_DOCS,
    CUDNN_DOCS,
    FLAG,
    MEGATRON_GUIDE,
    MEGATRON_OPS,
    REPLAY,
    TORCH_DOCS,
    Entry,
    Source,
    aten,
    github,
)

LIBRARIES: Final = (
    Entry(
        "gemm",
        aten("mm addmm bmm baddbmm mv addmv linear matmul"),
        "`torch.mm` and its kin through cuBLAS; split-K products; weight gradients",
        "CUDA",
        "race",
        "streams that share a cuBLAS handle make it choose other implementations; a product split along its "
        "inner dimension adds its parts in the order in which they finish",
        "`CUBLAS_WORKSPACE_CONFIG=:4096:8` or `:16:8`, set before the first cuBLAS call; with cuBLASLt "
        "`CUBLASLT_REDUCTION_SCHEME_NONE`; `detlab.kernel.fixed.split_k_mm`",
        REPLAY,
        (
            CUBLAS_DOCS,
            MEGATRON_GUIDE,
            github("NVIDIA/CUDALibrarySamples#243"),
            github("NVIDIA/Megatron-LM!7262"),
        ),
    ),
    Entry(
        "mkl",
        (),
        "matrix products through oneMKL",
        "CPU",
        "selection",
        "the order of a sum may follow the number of threads and the instruction set",
        "hold the number of threads, `MKL_DYNAMIC=FALSE` and `OMP_DYNAMIC=FALSE`; or strict CNR mode",
        f"{REPLAY} --threads 1",
        (
            Source(
                "oneMKL: reproducibility conditions",
                "https://www.intel.com/content/www/us/en/docs/onemkl/developer-reference-c/2026-0/"
                "reproducibility-conditions.html",
            ),
        ),
    ),
    Entry(
        "convolution",
        aten("convolution convolution_backward cudnn_convolution cudnn_convolution_transpose"),
        "`Conv1d/2d/3d`, `ConvTranspose1d/2d/3d` and their backward through cuDNN",
        "CUDA",
        "race",
        "the algorithms `BWD_FILTER_ALGO_0`, `BWD_FILTER_ALGO_3` and `BWD_DATA_ALGO_0` add with atomics",
        f"`torch.backends.cudnn.deterministic = True` or {FLAG}; `cudnn.benchmark = False`, as it chooses by "
        "time",
        REPLAY,
        (
            CUDNN_DOCS,
            TORCH_DOCS,
            Source("torch: reproducibility", "https://docs.pytorch.org/docs/stable/notes/randomness.html"),
        ),
    ),
    Entry(
        "flash-attention",
        aten("_scaled_dot_product_flash_attention_backward _flash_attention_backward"),
        "backward of flash-attention",
        "CUDA",
        "race",
        "the gradient of the queries is added up with atomics; keys and values repeat",
        "`deterministic=True`, and a replay: in one report dQ differed in 29 of 30 repeats under it",
        REPLAY,
        (
            github("Dao-AILab/flash-attention#2244"),
            github("Dao-AILab/flash-attention#414"),
            github("Dao-AILab/flash-attention#988"),
        ),
    ),
    Entry(
        "all-reduce",
        ("c10d.allreduce_", "_c10d_functional.all_reduce", "_c10d_functional.all_reduce_", "all_reduce"),
        "NCCL all-reduce through NVLS (reduction in the switch)",
        "CUDA, several devices",
        "collective",
        "the switch adds in an order that differs from call to call; all ranks get the same result",
        "`NCCL_NVLS_ENABLE=0` or `NCCL_ALGO=^NVLS` before the first communicator; torch sets the latter "
        f"itself under {FLAG}",
        COMPARE,
        (github("NVIDIA/nccl#1497"), github("pytorch/pytorch#154880"), github("pytorch/pytorch!156381")),
    ),
    Entry(
        "reduction-topology",
        (
            "c10d._reduce_scatter_base_",
            "c10d.reduce_scatter_",
            "_c10d_functional.reduce_scatter_tensor",
            "reduce_scatter",
            "reduce_scatter_tensor",
        ),
        "NCCL all-reduce and reduce-scatter of other allocations; `NCCL_ALGO=Tree`",
        "CUDA, several devices",
        "collective",
        "the ring or tree follows from the topology of the allocation, and the order of the sum from it; "
        "`Ring` pins the algorithm, not the ring",
        "`NCCL_ALGO=Ring` holds within an allocation or on equal topologies; across others it is an open gap",
        COMPARE,
        (MEGATRON_OPS, MEGATRON_GUIDE, github("NVIDIA/Megatron-LM#1881")),
    ),
    Entry(
        "triton-autotune",
        (),
        "autotuned Triton kernels",
        "CUDA",
        "selection",
        "the autotuner chooses by time, and the tiles it chooses fix the order of the sum: on 8 ranks 13 of "
        "22 kernel and shape pairs disagreed between ranks",
        "`TRITON_CACHE_AUTOTUNING=1` with a `TRITON_CACHE_DIR` that all share, or one fixed configuration",
        COMPARE,
        (github("NVIDIA/Megatron-LM!6966"),),
    ),
    Entry(
        "triton-race",
        (),
        "Triton kernels that race only at full size, such as chunked delta-rule forwards of "
        "flash-linear-attention",
        "CUDA",
        "race",
        "a race of the compiled kernel on one GPU model and for some `num_warps`, which needs about 128 to "
        "256 blocks or load to show",
        "another launch configuration, found by replaying at the captured shapes and under load",
        f"{REPLAY} --trials 3000",
        (
            github("fla-org/flash-linear-attention#945"),
            github("fla-org/flash-linear-attention#1228"),
            github("triton-lang/triton#10590"),
        ),
    ),
)
"""Libraries under torch."""

"""What torch documents of its own ops, and what tests of this repository show of them on a CPU."""

from __future__ import annotations

from typing import Final

from detlab.catalog.entry import (
    CUDNN_DOCS,
    FLAG,
    MEGATRON_OPS,
    REPLAY,
    TORCH_ATOMICS,
    TORCH_DOCS,
    Entry,
    Source,
    aten,
    github,
    shown_by,
)

_SWITCHES: Final = f"{FLAG} switches to a deterministic algorithm"
_RAISES: Final = f"none in torch: {FLAG} makes it raise"
_ATOMICS: Final = "its kernel adds with atomics, in the order in which the threads come"


def _docs(name: str) -> Source:
    return Source(name, f"https://docs.pytorch.org/docs/stable/generated/{name}.html")


TORCH_OPS: Final = (
    Entry(
        "index-put",
        aten("index_put index_put_ _index_put_impl_"),
        "`Tensor.index_put_`, `x[index] = y`, backward of `x[index]` for a list of tensors",
        "CPU, CUDA",
        "race",
        "with `accumulate=True`, float32 and several threads of a CPU these add to one place in no order; "
        "without it, which of several rows for one place is written last is open on any device",
        f"{_SWITCHES}; `detlab.kernel.fixed.index_put_` adds sorted segments along a fixed tree",
        f"{REPLAY} --threads 4",
        (
            TORCH_DOCS,
            _docs("torch.Tensor.index_put_"),
            shown_by("kernel/test_fixed.py"),
            shown_by("kernel/test_real_kernels.py"),
        ),
    ),
    Entry(
        "put",
        aten("put put_"),
        "`Tensor.put_`",
        "CPU, CUDA",
        "race",
        "several values for one place are added, or overwrite each other, in no order",
        f"on the CPU with `accumulate=True`, {FLAG}; else that makes it raise",
        REPLAY,
        (TORCH_DOCS, _docs("torch.Tensor.put_")),
    ),
    Entry(
        "index-add",
        aten("index_add index_add_"),
        "`Tensor.index_add_`, backward of `torch.index_select`, MoE combine",
        "CUDA",
        "race",
        "rows for one place are added with atomics; in 40 repeats of one MoE batch 40 different losses",
        f"{_SWITCHES}; `detlab.kernel.fixed.index_add_`",
        REPLAY,
        (
            TORCH_DOCS,
            TORCH_ATOMICS,
            github("huggingface/transformers!43362"),
            github("unslothai/unsloth-zoo!1258"),
        ),
    ),
    Entry(
        "scatter-add",
        aten("scatter_add scatter_add_"),
        "`Tensor.scatter_add_`, backward of `torch.gather`, MoE unpermute",
        "CUDA",
        "race",
        "elements for one place are added with atomics",
        f"{_SWITCHES} (by sorting, from torch 2.9 without the expanded index); "
        "`detlab.kernel.fixed.scatter_add_`",
        REPLAY,
        (TORCH_DOCS, TORCH_ATOMICS, MEGATRON_OPS),
    ),
    Entry(
        "scatter",
        aten("scatter scatter_"),
        "`Tensor.scatter_` with a tensor `src`",
        "CUDA",
        "race",
        "of several elements for one place, which is written last is open",
        f"{_SWITCHES}; Megatron writes rows with `index_put_(accumulate=False)` instead",
        REPLAY,
        (TORCH_DOCS, _docs("torch.Tensor.scatter_"), MEGATRON_OPS),
    ),
    Entry(
        "scatter-reduce",
        aten("scatter_reduce scatter_reduce_"),
        "`Tensor.scatter_reduce_` with `sum`, `mean` or `prod`",
        "CUDA",
        "race",
        "torch lists it without giving the reason",
        f"for `sum` and `mean` {_SWITCHES}; for `prod` it makes it raise",
        REPLAY,
        (TORCH_DOCS,),
    ),
    Entry(
        "index-copy",
        aten("index_copy index_copy_"),
        "`Tensor.index_copy_`",
        "CPU, CUDA",
        "race",
        "of several rows for one place, which is written last is open",
        _SWITCHES,
        REPLAY,
        (TORCH_DOCS, _docs("torch.Tensor.index_copy_")),
    ),
    Entry(
        "embedding-backward",
        aten("embedding_dense_backward"),
        "backward of `torch.nn.Embedding`",
        "CUDA",
        "race",
        "depending on version and shape, rows of one token are added with atomics",
        f"{FLAG}, set before the model is built; `detlab.kernel.fixed.embedding_dense_backward`",
        REPLAY,
        (MEGATRON_OPS, github("pytorch/pytorch!187682"), github("areal-project/AReaL!1544")),
    ),
    Entry(
        "embedding-bag-backward",
        aten("_embedding_bag_backward _embedding_bag_dense_backward"),
        "backward of `torch.nn.EmbeddingBag` with `mode='max'`",
        "CUDA",
        "race",
        _ATOMICS,
        _RAISES,
        REPLAY,
        (TORCH_DOCS, TORCH_ATOMICS),
    ),
    Entry(
        "repeat-interleave-backward",
        (),
        "backward of `torch.repeat_interleave`",
        "CUDA",
        "race",
        "torch lists it without giving the reason",
        _SWITCHES,
        REPLAY,
        (TORCH_DOCS,),
    ),
    Entry(
        "topk",
        aten("topk"),
        "`torch.topk`, routers of MoE layers",
        "any",
        "race",
        "which of several equal elements is taken, and in which order they are listed, is open; a sum in "
        "that order then varies",
        "a stable sort: `detlab.kernel.fixed.topk` (ties to the lowest index)",
        REPLAY,
        (
            _docs("torch.topk"),
            github("pytorch/torchtitan#3336"),
            github("ROCm/aiter!4415"),
            github("NVIDIA/Megatron-LM!7441"),
        ),
    ),
    Entry(
        "cumsum",
        aten("cumsum cumsum_"),
        "`torch.cumsum` of floating point or complex numbers",
        "CUDA",
        "race",
        "torch lists it without giving the reason",
        _RAISES,
        REPLAY,
        (TORCH_DOCS,),
    ),
    Entry(
        "histc-bincount",
        aten("histc bincount"),
        "`torch.histc`, `torch.bincount` with `weights`",
        "CUDA",
        "race",
        "`bincount` adds with atomics; of `histc` torch gives no reason",
        _RAISES,
        REPLAY,
        (TORCH_DOCS, TORCH_ATOMICS),
    ),
    Entry(
        "median",
        aten("median"),
        "`torch.median` with indices",
        "CUDA",
        "race",
        "torch lists its indices without giving the reason",
        _RAISES,
        REPLAY,
        (TORCH_DOCS,),
    ),
    Entry(
        "pooling-backward",
        aten(
            "avg_pool3d_backward _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward "
            "adaptive_max_pool2d_backward fractional_max_pool2d_backward fractional_max_pool3d_backward "
            "max_pool3d_with_indices_backward max_unpool2d max_unpool3d"
        ),
        "backward of `AvgPool3d`, `AdaptiveAvgPool2d/3d`, `AdaptiveMaxPool2d`, `FractionalMaxPool2d/3d`, "
        "`MaxPool3d`; `MaxUnpool1d/2d/3d` (on any device)",
        "CUDA",
        "race",
        "many poolings add their gradients with atomics; so does cuDNN's `cudnnPoolingBackward` with "
        "`CUDNN_POOLING_MAX`",
        f"for `MaxPool3d` {_SWITCHES}; the others raise under it",
        REPLAY,
        (TORCH_DOCS, TORCH_ATOMICS, CUDNN_DOCS),
    ),
    Entry(
        "sampling-backward",
        aten(
            "upsample_linear1d_backward upsample_bilinear2d_backward upsample_bicubic2d_backward "
            "upsample_trilinear3d_backward grid_sampler_2d_backward grid_sampler_3d_backward"
        ),
        "backward of `interpolate` (linear, bilinear, bicubic, trilinear) and of `grid_sample`",
        "CUDA",
        "race",
        "gradients of samples that share a source are added with atomics",
        _RAISES,
        REPLAY,
        (TORCH_DOCS, TORCH_ATOMICS),
    ),
    Entry(
        "padding-backward",
        aten(
            "reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward "
            "replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward"
        ),
        "backward of `ReflectionPad1d/2d/3d` and `ReplicationPad1d/2d/3d`",
        "CUDA",
        "race",
        "gradients of copies of one element are added with atomics",
        f"for replication {_SWITCHES}; reflection raises under it",
        REPLAY,
        (TORCH_DOCS, TORCH_ATOMICS),
    ),
    Entry(
        "losses",
        aten("nll_loss2d_forward _ctc_loss_backward _cudnn_ctc_loss"),
        "`NLLLoss`, backward of `CTCLoss`",
        "CUDA",
        "race",
        "the backward of `CTCLoss` adds with atomics; of `NLLLoss` torch gives no reason",
        _RAISES,
        REPLAY,
        (TORCH_DOCS, TORCH_ATOMICS, CUDNN_DOCS),
    ),
    Entry(
        "sparse-bmm",
        (),
        "`torch.bmm` of a sparse with a dense tensor",
        "CUDA",
        "race",
        "torch lists it without giving the reason",
        _SWITCHES,
        REPLAY,
        (TORCH_DOCS,),
    ),
    Entry(
        "quantized-resize",
        (),
        "`Tensor.resize_` of a quantized tensor",
        "CPU, CUDA",
        "uninitialised",
        "torch lists it without giving the reason",
        _RAISES,
        REPLAY,
        (TORCH_DOCS,),
    ),
    Entry(
        "sum-threads",
        aten("sum native_layer_norm_backward"),
        "`torch.sum`, weight gradient of `LayerNorm`",
        "CPU",
        "selection",
        "the number of threads decides how the sum is split, and so its order; with that number held the "
        "bits repeat",
        "hold `torch.set_num_threads` and `OMP_NUM_THREADS` in all runs",
        f"{REPLAY} --threads 1",
        (shown_by("kernel/test_catalog_facts.py"),),
    ),
    Entry(
        "fresh-memory",
        aten("empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize resize_"),
        "`torch.empty` and its kin, `Tensor.resize_`",
        "CPU, CUDA",
        "uninitialised",
        "the memory holds what was there before; a kernel that reads it, also as padding, varies with the "
        "allocator",
        "write before reading; that torch fills such memory under the flag, where "
        "`torch.utils.deterministic.fill_uninitialized_memory` is on, hides the read and is no cure",
        f"{REPLAY} --deterministic",
        (
            TORCH_DOCS,
            shown_by("kernel/test_real_kernels.py"),
            github("pytorch/pytorch#193317"),
            github("NVIDIA/Megatron-LM!7093"),
        ),
    ),
    Entry(
        "compiled-accumulate",
        (),
        "`torch.compile` of an accumulating `index_put`",
        "CPU",
        "race",
        "the C++ that inductor writes adds with atomics",
        "one thread",
        REPLAY,
        (shown_by("kernel/test_real_kernels.py"),),
    ),
)
"""Ops of torch's dispatcher."""

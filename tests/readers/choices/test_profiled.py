"""Kernel names of profilers, and what they tell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.readers.choices import read_choices
from detlab.readers.choices.kernel_names import kernel_name, told_by
from tests.readers.choices.logs import kineto

NVJET = "nvjet_tst_64x8_64x16_1x4_h_bz_splitK_bias_TNT"


@pytest.mark.parametrize(
    ("name", "kernel", "choice"),
    [
        (NVJET, "gemm", NVJET),
        ("ampere_sgemm_64x32_sliced1x4_nn", "gemm", "ampere_sgemm_64x32_sliced1x4_nn"),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_bf16_128x64_64x3_nn_align8>"
            "(cutlass_80_tensorop_s16816gemm_bf16_128x64_64x3_nn_align8::Params)",
            "gemm",
            "cutlass_80_tensorop_s16816gemm_bf16_128x64_64x3_nn_align8",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)",
            "at::native::vectorized_elementwise_kernel",
            "at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >",
        ),
        ("triton_poi_fused_add_0", "triton_poi_fused_add", "triton_poi_fused_add_0"),
        ("_swiglu_fwd_kernel", "_swiglu_fwd_kernel", "_swiglu_fwd_kernel"),
        ("norm_kernel_0123456789abcdef0123", "norm_kernel", "norm_kernel"),
        ("sm80_xmma_fprop_implicit_gemm_bf16_128x64", "sm80_xmma_fprop_implicit_gemm_bf16_128x64",
         "sm80_xmma_fprop_implicit_gemm_bf16_128x64"),
    ],
)  # fmt: skip
def test_a_name_is_a_kernel_and_what_was_chosen_for_it(name, kernel, choice):
    assert kernel_name(name)[:2] == (kernel, choice)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (NVJET, "tile 64x8, split along k"),
        ("ampere_sgemm_64x32_sliced1x4_nn", "tile 64x32, split along k (1x4)"),
        ("sm90_xmma_gemm_bf16bf16_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_cublas", "tile 128x128x64"),
        ("softmax_warp_forward", ""),
    ],
)
def test_tile_and_split_are_named(name, says):
    assert told_by(name) == says


def test_what_adds_the_parts_of_a_split_product_is_no_product_of_its_own():
    found = kernel_name("void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasSplitKParams<float>)")
    assert found.is_helper


@given(st.text(max_size=60))
def test_any_text_has_a_name(text):
    assert kernel_name(text).choice or not text.strip("_")


def test_launches_of_a_profile_have_the_op_and_the_shapes_that_it_was_given(tmp_path):
    shapes = [[16, 4096], [4096, 3584]]
    kineto(tmp_path / "trace.json", ("aten::mm", shapes, NVJET), ("aten::mm", shapes, NVJET), rank=3)
    found = read_choices(tmp_path)
    assert found.frame.select("source", "rank", "kernel", "problem", "choice", "num").rows() == [
        ("kineto", 3, "gemm", "aten::mm [[16, 4096], [4096, 3584]]", NVJET, 2)
    ]


def test_the_rank_in_the_file_goes_before_that_in_its_name(tmp_path):
    kineto(tmp_path / "rank7.json", ("aten::mm", [[1, 2], [2, 3]], NVJET), rank=3)
    assert read_choices(tmp_path).frame["rank"].to_list() == [3]


def test_tables_of_nsys_about_the_same_launches_are_counted_once(tmp_path):
    spread = "Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns)"
    summed = f"Time (%),Total Time (ns),Instances,{spread},Name\n50,100,4,1,1,1,1,0,{NVJET}\n"
    ranges = (
        f"NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),{spread},Kernel Name\n"
        f"layer,PushPop,1,1,1,4,100,1,1,1,1,0,{NVJET}\n"
    )
    (tmp_path / "rank0.csv").write_text(summed + "\n" + ranges)
    assert read_choices(tmp_path).frame.select("source", "rank", "num").rows() == [("nsys", 0, 4)]

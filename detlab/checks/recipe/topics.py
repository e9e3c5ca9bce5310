"""What must be equal in two runs before their comparison means anything: a table of names, grouped."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, Literal

Group = Literal["breaks the comparison", "may explain a difference", "harmless"]

SEVERITY: Final[dict[Group, str]] = {
    "breaks the comparison": "error",
    "may explain a difference": "warning",
    "harmless": "note",
}
"""How much a difference of each group weighs."""


@dataclass(frozen=True, slots=True)
class Topic:
    """Settings that belong together, what a difference of theirs is worth, and why.

    Attributes
    ----------
    name
        What they are about.
    group
        What a difference is worth.
    patterns
        Their names, with ``*`` for any text.
    why
        Why it is worth that, in one sentence.
    required
        Whether a comparison should say that nothing is known of it.
    """

    name: str
    group: Group
    patterns: tuple[str, ...]
    why: str
    required: bool = True


def _args(names: str) -> tuple[str, ...]:
    return tuple(f"args.{name}" for name in names.split())


def _env(names: str) -> tuple[str, ...]:
    return tuple(f"env.{name}" for name in names.split())


TOPICS: Final = (
    Topic(
        "paths, logs and ports",
        "harmless",
        (
            *_args(
                "save save_interval *tensorboard* *wandb* *log_* log_* *_log *logging* *profile* "
                "profile_* *_port rdzv_* job_name exp_name *experiment_name name exit_* local_rank "
                "rank *data_cache_path *output_dir log_dir *exp_dir *run_dir *cache_dir *dump_folder* "
                "timing_* *run_name* *checkpoint.folder *save_dir async_save "
                "use_persistent_ckpt_worker *description*"
            ),
            *_env(
                "*_PORT *_PID PWD OLDPWD HOME USER LOGNAME SHELL SHLVL TERM* TMPDIR _ COLUMNS LINES "
                "MAIL SSH_* XDG_* LS_COLORS LESS* PS1 EDITOR HIST* DISPLAY WANDB_* TENSORBOARD* "
                "NCCL_DEBUG* TORCH_NCCL_TRACE* TORCH_LOGS SLURM_JOB_ID SLURM_JOBID SLURM_JOB_NAME "
                "SLURM_SUBMIT_* SLURM_JOB_START* SLURM_JOB_END* SLURM_*_LOG* TORCHELASTIC_* RANK "
                "LOCAL_RANK GROUP_RANK ROLE_RANK SLURM_PROCID SLURM_LOCALID SLURM_TASK_PID MASTER_ADDR "
                "DETLAB_*"
            ),
            "time.*",
            "recorder.*",
            "place.local_rank",
            "place.max_restarts",
            "version.detlab",
            "torch.grad_mode",
            "torch.cuda_initialized",
        ),
        "names of places, processes and moments reach no number",
        required=False,
    ),
    Topic(
        "seeds",
        "breaks the comparison",
        _args(
            "*seed* data_parallel_random_init *te_rng_tracker inference_rng_tracker "
            "perform_initialization use_cpu_initialization"
        ),
        "another seed gives other weights, dropout and order of the data",
    ),
    Topic(
        "data",
        "breaks the comparison",
        _args(
            "*data_path* *data_prefix* blend *.blend split *.split *dataset* *dataloader* "
            "*data_loader* *in_order *shuffle* *tokenizer* *vocab_file *merge_file *vocab_size "
            "make_vocab_size_divisible_by mock_data *.mock_data *reset_position_ids "
            "*reset_attention_mask *eod_mask_loss *data_args* *mid_level* vocabulary num_tokens_in_use"
        ),
        "other samples, or the same in another order, give other losses from the first step on",
    ),
    Topic(
        "batch sizes",
        "breaks the comparison",
        _args(
            "*batch_size* *batch_size_* *num_microbatches* *rampup* *seq_length* *sequence_length "
            "sequence *max_position_embeddings *gradient_accumulation_steps"
        ),
        "other batches are summed in another order, and are other batches",
    ),
    Topic(
        "parallel layout",
        "breaks the comparison",
        (
            *_args(
                "*parallel_size* *parallel_degree *_degree *sequence_parallel *distributed_optimizer "
                "*fsdp* *optimizer_instances tp pp cp dp ep etp vpp *tp_size *pp_size *cp_size "
                "*ep_size *zero* *sharding_strategy* *parallel_layout num_layers_in_* *pipeline_stage "
                "*devices *num_nodes nnodes nproc_per_node world_size num_gpus *moe_extended_tp "
                "*hybrid_context_parallel *bucket_size"
            ),
            "place.layout.*",
            "place.world_size",
            "place.nodes",
            "place.processes_per_node",
            *_env("WORLD_SIZE LOCAL_WORLD_SIZE SLURM_NTASKS* SLURM_NNODES SLURM_JOB_NUM_NODES NNODES"),
        ),
        "other shards are other calls, and sums over other groups",
    ),
    Topic(
        "model",
        "breaks the comparison",
        _args(
            "*num_layers *hidden_size *num_attention_heads *num_query_groups *kv_channels *head_dim "
            "*normalization *dropout *activation* *position_embedding* *rotary* *rope* *num_experts "
            "*num_moe_experts *moe_router_* *moe_ffn* *moe_shared* *moe_layer_freq *moe_*coeff "
            "*moe_token* *expert_capacity* *layernorm* *add_bias* *add_qkv* *gated_linear* swiglu "
            "squared_relu *untie* *share_embeddings* *init_method* *softmax* *mtp_* *mla* *latent* "
            "*hybrid_* is_hybrid_model mamba_* *model_type *flavor hidden num_heads *residual*"
        ),
        "another model is another function",
    ),
    Topic(
        "optimizer and schedule",
        "breaks the comparison",
        _args(
            "lr lr_* *.lr *.lr_* *min_lr *decoupled_lr *weight_decay* *clip_grad *adam_* optimizer "
            "*sgd_* *train_iters *train_samples num_steps *loss_scale* *hysteresis *start_iteration "
            "finetune *override_opt_param_scheduler *use_checkpoint_opt_param_scheduler *muon*"
        ),
        "another update gives other weights after the first step",
    ),
    Topic(
        "precision",
        "breaks the comparison",
        (
            *_args(
                "bf16 fp16 *.bf16 *.fp16 fp8* *.fp8* fp4* *dtype* *precision* *autocast* *fp32* "
                "*reduced_precision*"
            ),
            "torch.float32_matmul_precision",
            "torch.autocast",
            "torch.*tf32*",
            "torch.*reduced_precision*",
            "torch.*accumulation",
            *_env("NVIDIA_TF32_OVERRIDE"),
        ),
        "another precision rounds otherwise",
    ),
    Topic(
        "choice of kernels",
        "breaks the comparison",
        (
            *_args(
                "*deterministic* *fusion* *fused* *attention_backend *flash* *transformer_impl "
                "*tp_comm_* *overlap* *recompute* *cuda_graph* *grouped_gemm* *compile* *op_fuser "
                "*optimizer_step*"
            ),
            "torch.deterministic*",
            "torch.fill_uninitialized_memory",
            "torch.cudnn_*",
            "torch.mkldnn",
            "torch.*threads",
            "torch.cpu_capability",
            "torch.*sdp*",
            "torch.preferred*",
            "module.*",
            *_env(
                "NVTE_* CUBLAS* CUDNN_* NCCL_ALGO NCCL_PROTO NCCL_NVLS* NCCL_M*_NCHANNELS "
                "NCCL_COLLNET_ENABLE MAMBA_* CAUSAL_CONV1D_* TRITON_CACHE_AUTOTUNING "
                "TORCHINDUCTOR_DETERMINISTIC TORCHINDUCTOR_MAX_AUTOTUNE FLASH_* OMP_NUM_THREADS "
                "MKL_NUM_THREADS MKL_CBWR MKL_DYNAMIC CUDA_DEVICE_MAX_CONNECTIONS"
            ),
        ),
        "other kernels, or sums in another order, give other bits by right",
    ),
    Topic(
        "packages",
        "breaks the comparison",
        ("version.*",),
        "other versions have other kernels",
    ),
    Topic(
        "container",
        "breaks the comparison",
        (
            *_args("*container* *image_tag *docker*"),
            *_env(
                "*CONTAINER_IMAGE* *DOCKER_IMAGE* *IMAGE_TAG* *BUILD_VERSION NVIDIA_*_VERSION "
                "CUDA_VERSION CUDNN_VERSION NCCL_VERSION"
            ),
            "place.container*",
        ),
        "another image has other libraries and compilers",
    ),
    Topic(
        "hosts and topology",
        "may explain a difference",
        (
            "place.*",
            *_env(
                "HOSTNAME SLURM_NODELIST SLURM_JOB_NODELIST SLURM_NODEID SLURM_TOPOLOGY* NCCL_TOPO* "
                "NCCL_IB_* NCCL_SOCKET_* NCCL_NET* NCCL_P2P_* CUDA_VISIBLE_DEVICES "
                "NVIDIA_VISIBLE_DEVICES GPU_DEVICE*"
            ),
            "torch.device_name",
        ),
        "another allocation has another ring, so sums over ranks are taken in another order; "
        "`NCCL_ALGO=Ring` pins the algorithm, not the ring",
    ),
    Topic(
        "environment",
        "may explain a difference",
        ("env.*", "torch.*"),
        "nothing is known of these, so nothing rules them out",
    ),
    Topic(
        "other arguments",
        "may explain a difference",
        ("args.*", "*"),
        "nothing is known of these, so nothing rules them out",
        required=False,
    ),
)
"""Every topic; a setting is of the first that has its name. One that no pattern names may explain."""


@lru_cache(maxsize=8_192)
def topic_of(name: str) -> Topic:
    """Find the topic of a setting."""
    return next(topic for topic in TOPICS if any(fnmatchcase(name, each) for each in topic.patterns))

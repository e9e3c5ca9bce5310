"""What settings are called: fields of configurations and flags of command lines, in Megatron's spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from detlab.checks.recipe.settings import Value

_MODEL: Final = frozenset(
    """
    num_moe_experts tensor_model_parallel_size pipeline_model_parallel_comm_backend
    pipeline_model_parallel_size
    virtual_pipeline_model_parallel_size sequence_parallel context_parallel_size
    hierarchical_context_parallel_sizes max_seqlen_per_dp_cp_rank hybrid_context_parallel
    expert_model_parallel_size expert_tensor_parallel_size moe_extended_tp perform_initialization
    use_cpu_initialization fp16 bf16 params_dtype deterministic_mode enable_autocast autocast_dtype
    num_microbatches_with_partial_activation_checkpoints gradient_accumulation_fusion
    async_tensor_model_parallel_allreduce use_te_rng_tracker tp_comm_overlap tp_comm_bulk_wgrad
    tp_comm_bulk_dgrad tp_comm_overlap_ag tp_comm_overlap_rs tp_comm_overlap_rs_dgrad tp_comm_split_ag
    tp_comm_atomic_ag tp_comm_split_rs tp_comm_atomic_rs cross_entropy_loss_fusion
    cross_entropy_fusion_impl tp_comm_overlap_disable_qkv tp_comm_overlap_disable_fc1
    tp_comm_bootstrap_backend overlap_moe_expert_parallel_comm delay_wgrad_compute
    ep_overlap_early_attn_memory_release pipeline_dtype variable_seq_lengths overlap_p2p_comm
    batch_p2p_comm batch_p2p_sync use_ring_exchange_p2p deallocate_pipeline_outputs
    defer_embedding_wgrad_compute wgrad_deferral_limit overlap_p2p_comm_warmup_flush
    microbatch_group_size_per_vp_stage mtp_standalone cpu_offloading cpu_offloading_num_layers
    cpu_offloading_activations cpu_offloading_weights cpu_offloading_double_buffering
    barrier_with_L1_time num_layers mtp_num_layers mtp_loss_scaling_factor
    num_layers_in_first_pipeline_stage num_layers_in_last_pipeline_stage pipeline_model_parallel_layout
    account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split hidden_size
    num_attention_heads attention_backend softmax_scale softmax_type num_query_groups ffn_hidden_size
    kv_channels hidden_dropout attention_dropout fp32_residual_connection
    apply_residual_connection_post_layernorm layernorm_epsilon layernorm_zero_centered_gamma
    add_bias_linear add_qkv_bias gated_linear_unit activation_func activation_func_fp8_input_store
    glu_linear_offset activation_func_clamp_value rotary_interleaved window_size window_attn_skip_freq
    normalization qk_layernorm qk_l2_norm qk_clip qk_clip_alpha qk_clip_threshold
    log_max_attention_logit attention_output_gate calculate_per_token_loss multi_latent_attention
    no_rope_freq experimental_attention_variant dsa_indexer_n_heads dsa_indexer_head_dim
    dsa_indexer_topk dsa_indexer_loss_coeff dsa_indexer_use_sparse_loss linear_attention_freq
    linear_conv_kernel_dim linear_key_head_dim linear_value_head_dim linear_num_key_heads
    linear_num_value_heads init_method_std embedding_init_method_std init_model_with_meta_device
    apply_query_key_layer_scaling attention_softmax_in_fp32 disable_bf16_reduced_precision_matmul
    bias_activation_fusion masked_softmax_fusion persist_layer_norm memory_efficient_layer_norm
    bias_dropout_fusion apply_rope_fusion use_fused_weighted_squared_relu fused_single_qkv_rope
    recompute_granularity recompute_method recompute_num_layers distribute_saved_activations
    recompute_modules fp8 fp8_recipe fp8_param fp8_quantizer_factory fp8_margin fp8_interval
    fp8_amax_history_len fp8_amax_compute_algo fp8_wgrad fp8_dot_product_attention
    fp8_multi_head_attention tp_only_amax_red first_last_layers_bf16 num_layers_at_start_in_bf16
    num_layers_at_end_in_bf16 use_kitchen use_kitchen_attention kitchen_attention_backend fp4 fp4_recipe
    fp4_param fp4_quantizer_factory moe_shared_expert_intermediate_size moe_shared_expert_gate
    moe_shared_expert_overlap moe_layer_freq moe_ffn_hidden_size moe_router_load_balancing_type
    moe_router_topk moe_enable_routing_replay moe_router_topk_limited_devices
    moe_router_padding_for_quantization moe_router_padding_for_fp8 moe_router_num_groups
    moe_router_group_topk moe_router_pre_softmax moe_router_topk_scaling_factor
    moe_router_score_function moe_router_dtype moe_router_enable_expert_bias moe_router_bias_update_rate
    moe_router_force_load_balancing moe_grouped_gemm moe_use_legacy_grouped_gemm moe_aux_loss_coeff
    moe_z_loss_coeff moe_input_jitter_eps moe_token_dropping moe_token_dispatcher_type moe_enable_deepep
    moe_flex_dispatcher_backend moe_per_layer_logging moe_expert_capacity_factor
    moe_pad_expert_input_to_capacity moe_token_drop_policy moe_layer_recompute moe_permute_fusion
    moe_router_fusion moe_apply_probs_on_input moe_latent_size moe_deepep_num_sms moe_hybridep_num_sms
    cp_comm_type enable_cuda_graph cuda_graph_use_single_mempool cuda_graph_retain_backward_graph
    cuda_graph_warmup_steps external_cuda_graph cuda_graph_impl cuda_graph_scope
    clone_scatter_output_in_embedding disable_parameter_transpose_cache flash_decode
    batch_invariant_mode use_te_activation_func inference_rng_tracker inference_sampling_seed
    symmetric_ar_type use_inference_optimized_layers inference_fuse_tp_communication mrope_section
    is_hybrid_model mamba_state_dim mamba_head_dim mamba_num_groups mamba_num_heads
    use_mamba_mem_eff_path mlp_chunks_for_prefill heterogeneous_block_specs
    hetereogenous_dist_checkpoint quant_recipe transformer_impl fine_grained_activation_offloading
    offload_modules min_offloaded_tensor_size make_vocab_size_divisible_by seq_length
    max_position_embeddings vocab_size position_embedding_type rotary_base rotary_percent
    share_embeddings_and_output_weights fp16_lm_cross_entropy parallel_output bias_gelu_fusion
    bias_swiglu_fusion megatron_amp_O2 moe_aux_loss_fusion data_parallel_random_init rerun_mode
    moe_router_aux_loss_fusion use_transformer_engine_op_fuser use_flash_attn hybrid_override_pattern
    hybrid_layer_pattern hybrid_attention_ratio
    """.split()
)
"""Fields of megatron-core's TransformerConfig and of the model providers above it that Megatron-LM's
arguments call the same (megatron/core/transformer/transformer_config.py, model_parallel_config.py, 0.16)."""

_OPTIMIZER: Final = frozenset(
    """
    optimizer lr min_lr decoupled_lr decoupled_min_lr weight_decay clip_grad adam_beta1 adam_beta2 adam_eps
    sgd_momentum loss_scale initial_loss_scale min_loss_scale loss_scale_window hysteresis
    use_distributed_optimizer overlap_param_gather overlap_param_gather_with_optimizer_step
    use_precision_aware_optimizer main_grads_dtype main_params_dtype exp_avg_dtype exp_avg_sq_dtype
    optimizer_cpu_offload optimizer_offload_fraction overlap_cpu_optimizer_d2h_h2d log_num_zeros_in_grad
    reuse_grad_buf_for_mxfp8_param_ag
    """.split()
)

_DDP: Final = frozenset(
    """
    overlap_grad_reduce overlap_param_gather align_param_gather use_distributed_optimizer
    num_distributed_optimizer_instances check_for_nan_in_grad bucket_size average_in_collective
    grad_reduce_in_fp32 fp8_param_gather reuse_grad_buf_for_mxfp8_param_ag use_megatron_fsdp use_custom_fsdp
    data_parallel_sharding_strategy gradient_reduce_div_fusion nccl_ub pad_buckets_for_high_nccl_busbw
    keep_fp8_transpose_cache reduce_scatter_with_fp32_accumulation
    """.split()
)

_TRAINING: Final = frozenset(
    """
    seed micro_batch_size global_batch_size rampup_batch_size train_iters train_samples eval_iters
    eval_interval exit_interval manual_gc manual_gc_interval seq_length data_parallel_random_init
    te_rng_tracker inference_rng_tracker lr_decay_style lr_decay_iters lr_warmup_iters lr_warmup_fraction
    start_weight_decay end_weight_decay weight_decay_incr_style override_opt_param_scheduler
    use_checkpoint_opt_param_scheduler split data_path blend data_cache_path num_workers dataloader_type
    reset_position_ids reset_attention_mask eod_mask_loss save load pretrained_checkpoint save_interval
    save_optim save_rng load_optim load_rng finetune ckpt_format fully_parallel_save fully_parallel_load
    ckpt_fully_parallel_load async_save dist_ckpt_strictness use_persistent_ckpt_worker
    distributed_backend distributed_timeout_minutes use_tp_pp_dp_mapping use_gloo_process_groups
    tokenizer_type tokenizer_model vocab_file merge_file tp_comm_overlap overlap_grad_reduce
    overlap_param_gather overlap_param_gather_with_optimizer_step align_param_gather bucket_size
    error_injection_rate error_injection_type rerun_mode fp8 fp8_recipe fp8_param_gather
    grad_reduce_in_fp32 bf16 fp16 deterministic_mode
    """.split()
)

_PARALLEL: Final = frozenset(name for name in _MODEL if name.endswith(("_parallel_size", "_parallel")))

_SECTIONS: Final[dict[str, frozenset[str]]] = {
    "model": _MODEL,
    "model.config": _MODEL,
    "model.transformer": _MODEL,
    "model.optim": _OPTIMIZER,
    "model.data": _TRAINING,
    "config": _MODEL | _TRAINING,
    "optimizer": _OPTIMIZER,
    "optim": _OPTIMIZER,
    "optim.config": _OPTIMIZER,
    "ddp": _DDP,
    "trainer.strategy": _PARALLEL | {"sequence_parallel"},
    "trainer.strategy.ddp": _DDP,
    "strategy": _PARALLEL | {"sequence_parallel"},
    **dict.fromkeys(
        "train training scheduler dataset data rng checkpoint dist tokenizer comm_overlap mixed_precision "
        "rerun_state_machine".split(),
        _TRAINING,
    ),
}
"""For each section of a configuration the fields whose meaning does not hang on the section.

Any other field keeps its whole dotted name, for two sections may call different things the same.
"""

_RENAMED: Final[dict[str, str]] = {
    "trainer.deterministic": "torch.deterministic",
    "trainer.benchmark": "torch.cudnn_benchmark",
    "trainer.max_steps": "args.train_iters",
    "trainer.gradient_clip_val": "args.clip_grad",
    "model.micro_batch_size": "args.micro_batch_size",
    "model.global_batch_size": "args.global_batch_size",
    "model.seed": "args.seed",
    "model.encoder_seq_length": "args.seq_length",
    "model.data.data_prefix": "args.data_path",
    "dataset.sequence_length": "args.seq_length",
}
"""Fields of Megatron-Bridge and NeMo by their dotted names."""

_TORCHTITAN: Final[dict[str, str]] = {
    "training.deterministic": "args.deterministic_mode",
    "debug.deterministic": "args.deterministic_mode",
    "training.seed": "args.seed",
    "debug.seed": "args.seed",
    "debug.deterministic_warn_only": "torch.deterministic_warn_only",
    "training.batch_size": "args.micro_batch_size",
    "training.local_batch_size": "args.micro_batch_size",
    "training.global_batch_size": "args.global_batch_size",
    "training.seq_len": "args.seq_length",
    "training.steps": "args.train_iters",
    "training.max_norm": "args.clip_grad",
    "training.dataset": "args.data_path",
    "optimizer.lr": "args.lr",
    "optimizer.name": "args.optimizer",
    "optimizer.weight_decay": "args.weight_decay",
    "lr_scheduler.warmup_steps": "args.lr_warmup_iters",
    "checkpoint.interval": "args.save_interval",
    "parallelism.tensor_parallel_degree": "args.tensor_model_parallel_size",
    "parallelism.pipeline_parallel_degree": "args.pipeline_model_parallel_size",
    "parallelism.context_parallel_degree": "args.context_parallel_size",
    "parallelism.expert_parallel_degree": "args.expert_model_parallel_size",
    "parallelism.expert_tensor_parallel_degree": "args.expert_tensor_parallel_size",
}
"""Fields of torchtitan's job configuration (torchtitan/config/job_config.py): ``debug`` is newer than
``training.deterministic``."""

_ALIASES: Final[dict[str, str]] = {
    "num_moe_experts": "num_experts",
    "bucket_size": "ddp_bucket_size",
    "check_for_nan_in_grad": "check_for_nan_in_loss_and_grad",
    "sequence_length": "seq_length",
    "overlap_p2p_communication": "overlap_p2p_comm",
    "barrier_with_level_1_timing": "barrier_with_L1_time",
    "initialization": "perform_initialization",
    "rope_fusion": "apply_rope_fusion",
    "query_key_layer_scaling": "apply_query_key_layer_scaling",
    "position_embedding": "add_position_embedding",
    "position_embeddings": "add_position_embedding",
    "fp8_format": "fp8",
    "fp8_recipe_name": "fp8_recipe",
}
"""Other spellings of Megatron's arguments."""

_NOT_NEGATIONS: Final = frozenset(
    """
    no_load_optim no_load_rng no_save_optim no_save_rng no_persist_layer_norm no_rope_freq
    no_log_loss_scale_to_tensorboard no_log_learning_rate_to_tensorboard no_python no_sync_func
    """.split()
)
"""Names that begin with ``no_`` and are arguments of their own (megatron/training/arguments.py)."""

_NEGATIONS: Final[dict[str, str]] = {
    "disable_bias_linear": "add_bias_linear",
    "disable_tp_comm_overlap_ag": "tp_comm_overlap_ag",
    "disable_tp_comm_overlap_rs": "tp_comm_overlap_rs",
    "disable_tp_comm_bulk_dgrad": "tp_comm_bulk_dgrad",
    "disable_tp_comm_bulk_wgrad": "tp_comm_bulk_wgrad",
    "disable_tp_comm_split_ag": "tp_comm_split_ag",
    "disable_tp_comm_split_rs": "tp_comm_split_rs",
    "disable_gloo_process_groups": "enable_gloo_process_groups",
    "disable_mamba_mem_eff_path": "use_mamba_mem_eff_path",
    "disable_jit_fuser": "jit_fuser",
}
"""Flags that turn off what they name, beside those that begin with ``--no-``."""


_SWITCHES: Final = frozenset(
    """
    deterministic_mode cross_entropy_loss_fusion tp_comm_overlap moe_router_fusion
    moe_router_aux_loss_fusion moe_aux_loss_fusion moe_grouped_gemm use_transformer_engine_op_fuser
    use_flash_attn bf16 fp16 sequence_parallel use_distributed_optimizer overlap_grad_reduce
    overlap_param_gather swiglu use_mcore_models finetune async_save manual_gc mock_data
    """.split()
)
"""Arguments of Megatron-LM that are flags and take no value."""


def is_switch(name: str) -> bool:
    """Say whether a flag of a command line, written without its dashes in front, takes no value."""
    plain = name.replace("-", "_")
    return plain in _SWITCHES or plain in _NEGATIONS or plain.startswith("no_")


def flag(name: str, value: Value, framework: str = "") -> tuple[str, Value]:
    """Give the argument that a flag of a command line sets, and its value.

    Parameters
    ----------
    name
        The flag without its dashes in front, such as ``no-gradient-accumulation-fusion``.
    value
        What is given with it; True for a flag that stands alone.

    framework
        Whose command line it is, as `field` takes it.

    Returns
    -------
    A name with its prefix and the value: ``("args.gradient_accumulation_fusion", False)``.
    """
    plain = name.replace("-", "_")
    positive = _NEGATIONS.get(plain, plain)
    if plain.startswith("no_") and plain not in _NOT_NEGATIONS:
        positive = plain.removeprefix("no_")
    if positive != plain and isinstance(value, bool):
        value = not value
    elif positive != plain:
        positive = plain  # it takes a value, so it turns nothing off
    return field(positive.split("."), framework), value


def field(path: Sequence[str], framework: str) -> str:
    """Give the name of a field of a configuration, with its prefix.

    Parameters
    ----------
    path
        The keys that lead to it, such as ``("model", "deterministic_mode")``.
    framework
        Whose configuration it is; empty where that is not known.
    """
    dotted = ".".join(path)
    *sections, last = dotted.split(".")
    renamed: Mapping[str, str] = _TORCHTITAN if framework == "torchtitan" else _RENAMED
    if dotted in renamed:
        return renamed[dotted]
    if framework != "torchtitan" and last in _SECTIONS.get(".".join(sections), ()):
        sections = []
    name = _ALIASES.get(last, last) if not sections else last
    return "args." + ".".join([*sections, name])

// The fields of a config.json that say nothing of the model's numbers: what transformers' PretrainedConfig writes for
// every model (to_dict() of 4.38 to 5.24), and what other programs add.
#pragma once

#include <pentad/io/detail/config_fields.hpp>

#include <array>
#include <cstddef>
#include <utility>

namespace pentad::io::detail {

/// How the model was made, is stored, is run, or generates text. The names of generation are those of GenerationConfig,
/// which older files have here.
inline constexpr std::array neutral_fields{
    // the file and where it is from
    "_commit_hash", "_name_or_path", "architectures", "auto_map", "internal_version", "is_llama_config", "model_type",
    "name_or_path", "tokenizer_class", "transformers.js_config", "transformers_version", "unsloth_fixed",
    "unsloth_version", "xla_device",
    // how it is run
    "_attn_implementation", "_attn_implementation_autoset", "_experts_implementation", "_flash_attn_2_enabled",
    "attn_implementation", "chunk_size_feed_forward", "dtype", "experts_implementation", "gradient_checkpointing",
    "is_decoder", "max_position_embeddings", "output_attentions", "output_hidden_states", "pretraining_tp",
    "return_dict", "tf_legacy_loss", "torch_dtype", "torchscript", "use_bfloat16", "use_cache", "use_return_dict",
    // how it was made, and trained for what
    "finetuning_task", "id2label", "initializer_range", "label2id", "loss_type", "num_labels", "prefix", "problem_type",
    "task_specific_params",
    // special tokens
    "bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id",
    // generation
    "bad_words_ids", "begin_suppress_tokens", "cache_implementation", "diversity_penalty", "do_sample",
    "early_stopping", "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "epsilon_cutoff", "eta_cutoff",
    "exponential_decay_length_penalty", "force_words_ids", "forced_bos_token_id", "forced_decoder_ids",
    "forced_eos_token_id", "guidance_scale", "length_penalty", "max_length", "max_new_tokens", "max_time", "min_length",
    "min_new_tokens", "min_p", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences",
    "output_logits", "output_scores", "penalty_alpha", "remove_invalid_values", "renormalize_logits",
    "repetition_penalty", "return_dict_in_generate", "sequence_bias", "stop_strings", "suppress_tokens", "temperature",
    "top_k", "top_p", "typical_p"};

/// Fields of other kinds of models, or of training, each with the value under which it does nothing.
inline void read_off_values(ConfigFields& fields) {
    for (auto const* const flag : {"add_cross_attention", "is_encoder_decoder", "qk_layer_norms", "qk_layernorm",
                                   "tie_encoder_decoder", "use_qk_norm"})
        fields.off(flag, false);
    for (auto const* const rate : {"attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "embd_pdrop",
                                   "hidden_dropout", "hidden_dropout_prob", "neftune_noise_alpha", "resid_pdrop"})
        fields.off(rate, 0.0);
    fields.off("pruned_heads", Json::object());
    fields.refuse("quantization_config", "its weights are quantized, and f64, f32, bf16 and f16 are read: take the "
                                         "model before quantization");
}

} // namespace pentad::io::detail

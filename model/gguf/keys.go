package gguf

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"glimpse/internal/listing"
)

// neutral are keys of any architecture that change nothing, or change nothing if they have one of
// these values.
var neutral = map[string][]string{
	"tensor_data_layout": nil, "rope.scaling.finetuned": {"true", "false"}, // what was done to the weights before
	"expert_count": {"0"}, "expert_used_count": {"0"}, "nextn_predict_layers": {"0"},
	"expert_shared_count": {"0"}, "expert_group_count": {"0", "1"}, "expert_group_used_count": {"0", "1"}, "expert_weights_scale": {"0", "1"},
	"leading_dense_block_count": {"0"}, "n_deepstack_layers": {"0"}, "swin_norm": {"false"},
	"attention.causal": {"true"}, "pooling_type": {"0"}, "use_parallel_residual": {"true"},
	"attention.sliding_window": {"0"}, "attention.max_alibi_bias": {"0"}, "attention.clamp_kqv": {"0"},
	"attention.scale": {"0"}, "attention.temperature_scale": {"0"}, "attention.shared_kv_layers": {"0"},
	"logit_scale": {"0", "1"}, "residual_scale": {"0", "1"}, "embedding_scale": {"0", "1"}, // llama.cpp takes 0 for none
	"attn_logit_softcapping": {"0"}, "final_logit_softcapping": {"0"}, "router_logit_softcapping": {"0"},
	"rope.scaling.attn_factor": {"1"}, "rope.scaling.yarn_ext_factor": {"1", "-1"}, "rope.scaling.alpha": {"0"},
	"rope.scaling.yarn_beta_fast": nil, "rope.scaling.yarn_beta_slow": nil, // which count where the scaling is YaRN
}

// computed are the keys, and groups of keys ("rope." and all below it), that llama.cpp computes with in some architecture
// (llama-arch.cpp, LLM_KV_NAMES). One that this architecture does not know is refused.
var computed = []string{
	"attention.", "rope.", "ssm.", "kda.", "wkv.", "posnet.", "convnext.", "shortconv.", "hyper_connection.", "altup.",
	"vocab_size", "context_length", "embedding_length", "embedding_length_out", "embedding_length_per_layer_input", "features_length",
	"block_count", "leading_dense_block_count", "hash_layer_count", "feed_forward_length",
	"expert_feed_forward_length", "expert_shared_feed_forward_length", "expert_chunk_feed_forward_length",
	"expert_count", "expert_used_count", "expert_shared_count", "expert_group_count", "expert_group_used_count",
	"expert_weights_scale", "expert_weights_norm", "expert_gating_func", "expert_group_scale", "experts_per_group",
	"moe_every_n_layers", "moe_latent_size", "interleave_moe_layer_step", "swiglu_clamp_exp", "swiglu_clamp_shexp", "activation_sparsity_scale",
	"use_parallel_residual", "tensor_data_layout", "nextn_predict_layers", "n_deepstack_layers", "deepstack_mapping", "hidden_activation", "pooling_type",
	"logit_scale", "residual_scale", "embedding_scale", "attn_logit_softcapping", "router_logit_softcapping", "final_logit_softcapping",
	"swin_norm", "norm_before_residual", "rescale_every_n_layers", "time_mix_extra_dim", "time_decay_extra_dim", "token_shift_count",
	"full_attention_interval", "decoder_start_token_id", "decoder_block_count", "target_layers", "target_hidden_size",
	"dense_2_feat_in", "dense_2_feat_out", "dense_3_feat_in", "dense_3_feat_out",
}

// computes tells whether llama.cpp computes by a key of some architecture.
func computes(key string) bool {
	return slices.ContainsFunc(computed, func(known string) bool {
		return key == known || strings.HasSuffix(known, ".") && strings.HasPrefix(key, known)
	})
}

// done is an error about all keys of the architecture that nobody asked for and that could change
// what the model computes. Those that cannot are noted.
func (m *metadata) done(arch *architecture) error {
	var errs []error
	for _, key := range m.file.Keys() {
		own, ok := strings.CutPrefix(key, m.prefix)
		if !ok || m.used[key] {
			continue
		}
		values, known := neutral[own]
		got := m.textValue(key)
		switch {
		case known && (values == nil || slices.Contains(values, got)):
		case known:
			errs = append(errs, fmt.Errorf("key %q: got %.60s, want %s of %s", key, got, strings.Join(values, " or "), arch.class))
		case computes(own):
			errs = append(errs, fmt.Errorf("key %q: unknown of %s, got %.60s, which could change what the model computes", key, arch.class, got))
		default:
			m.note("key %q: got %.60s, which is ignored: llama.cpp computes by no key of this name", key, got)
		}
	}
	return errors.Join(m.err, listing.JoinErrors(errs))
}

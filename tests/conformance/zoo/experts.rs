//! Decoders with a mixture of experts.

use serde_json::json;

use super::inputs::{config, decode};
use super::language::small;
use super::transformers::models;
use super::weights::weights;
use super::{Visit, AGAIN, FRESH};

pub fn visit(visitor: &mut impl Visit) {
    mixtral(visitor);
    qwen2_moe(visitor);
    qwen3_moe(visitor);
    deepseek2(visitor);
}

fn mixtral(visitor: &mut impl Visit) {
    let more = json!({ "num_local_experts": 4, "num_experts_per_tok": 2, "use_flash_attn": false });
    visitor.exclusive(
        "mixtral",
        FRESH,
        || models::mixtral::Model::new(&config(small(), more.clone())?, weights()),
        |model| decode(|ids, position| model.forward(ids, position)),
    );
}

fn qwen2_moe(visitor: &mut impl Visit) {
    let more = json!({
        "decoder_sparse_step": 1, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 32,
        "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": true,
    });
    visitor.exclusive(
        "qwen2_moe",
        AGAIN,
        || models::qwen2_moe::Model::new(&config(small(), more.clone())?, weights()),
        |model| {
            model.clear_kv_cache();
            decode(|ids, position| model.forward(ids, position))
        },
    );
}

fn qwen3_moe(visitor: &mut impl Visit) {
    let more = json!({
        "decoder_sparse_step": 2, "moe_intermediate_size": 24, "num_experts": 4,
        "num_experts_per_tok": 2, "norm_topk_prob": true,
    });
    visitor.exclusive(
        "qwen3_moe",
        AGAIN,
        || models::qwen3_moe::ModelForCausalLM::new(&config(small(), more.clone())?, weights()),
        |model| {
            model.clear_kv_cache();
            decode(|ids, position| model.forward(ids, position))
        },
    );
}

/// Attention over a latent of the keys and values; a dense layer, then one with experts.
fn deepseek2(visitor: &mut impl Visit) {
    let more = json!({
        "moe_intermediate_size": 24, "n_shared_experts": 1, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "first_k_dense_replace": 1, "q_lora_rank": 16, "kv_lora_rank": 16,
        "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8, "n_group": 1, "topk_group": 1,
        "scoring_func": "softmax", "topk_method": "greedy",
    });
    visitor.exclusive(
        "deepseek2",
        AGAIN,
        || models::deepseek2::DeepSeekV2::new(&config(small(), more.clone())?, weights()),
        |model| {
            model.clear_kv_cache();
            decode(|ids, position| model.forward(ids, position))
        },
    );
}

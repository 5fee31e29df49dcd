// Candle's operations that have something to do with gradients, one row each. Two crates read this list: of these
// `hookpoint-derive` shows all operands, and `hookpoint-grad` says what becomes of the gradient. There it is a link to
// this file, so a new operation is a row here and a function in `rules.rs`; without one, it does not compile.
//
// A row has the name, how many of the operands 0 and 1 are tensors of numbers, and a class. A function also has its
// path, by which it is told from others of its name; a generic one has a path for each type that it is called with.
//
//   Rule(f)   has a gradient, which `rules::f` gives: candle has none, or one that costs too much
//   Wrong(f)  the same, and candle's own is wrong
//   Stops     takes numbers out of the graph
//   Barrier   has no gradient
//   InPlace   writes into the tensor that it is called on
//   Cache     gives out a buffer that is written to later
macro_rules! operations {
    ($with:ident) => {
        $with! {
            methods {
                "add" 2 Rule(add);
                "append" 1 Cache;
                "apply_op1_no_bwd" 1 Barrier;
                "apply_op2_no_bwd" 1 Barrier;
                "apply_op3_no_bwd" 1 Barrier;
                "avg_pool2d" 1 Wrong(avg_pool2d);
                "avg_pool2d_with_stride" 1 Wrong(avg_pool2d_with_stride);
                "broadcast_add" 2 Rule(add);
                "broadcast_div" 2 Rule(div);
                "broadcast_matmul" 2 Rule(matmul);
                "broadcast_mul" 2 Rule(mul);
                "broadcast_sub" 2 Rule(sub);
                "const_set" 1 InPlace;
                "conv1d" 2 Wrong(conv);
                "conv1d_with_algo" 2 Wrong(conv);
                "conv2d" 2 Rule(conv);
                "conv2d_with_algo" 2 Rule(conv);
                "conv_transpose1d" 2 Rule(conv_transpose1d);
                "conv_transpose2d" 2 Rule(conv_transpose2d);
                "detach" 1 Stops;
                "div" 2 Rule(div);
                "gelu" 1 Rule(gelu);
                "gelu_erf" 1 Rule(gelu_erf);
                "inplace_op1" 1 InPlace;
                "inplace_op2" 1 InPlace;
                "inplace_op3" 1 InPlace;
                "interpolate1d" 1 Wrong(nearest1d);
                "interpolate2d" 1 Wrong(nearest2d);
                "matmul" 2 Rule(matmul);
                "max" 1 Rule(extreme);
                "max_all" 1 Rule(extreme_of_all);
                "max_keepdim" 1 Rule(extreme);
                "max_pool2d" 1 Wrong(max_pool2d);
                "max_pool2d_with_stride" 1 Wrong(max_pool2d_with_stride);
                "min" 1 Rule(extreme);
                "min_all" 1 Rule(extreme_of_all);
                "min_keepdim" 1 Rule(extreme);
                "mul" 2 Rule(mul);
                "scatter" 1 Wrong(scatter);
                "scatter_add" 1 Wrong(scatter_add);
                "scatter_add_set" 1 InPlace;
                "scatter_set" 1 InPlace;
                "slice_set" 1 InPlace;
                "sub" 2 Rule(sub);
                "to_scalar" 1 Stops;
                "to_vec0" 1 Stops;
                "to_vec1" 1 Stops;
                "to_vec2" 1 Stops;
                "to_vec3" 1 Stops;
                "unfold" 1 Wrong(unfold);
                "upsample_bilinear2d" 1 Rule(bilinear);
                "upsample_bilinear2d_with_scale" 1 Rule(bilinear_with_scale);
                "upsample_nearest1d" 1 Wrong(nearest1d);
                "upsample_nearest2d" 1 Wrong(nearest2d);
                "where_cond" 2 Rule(where_cond);
                "zero_set" 1 InPlace;
            }
            operators {
                "+" 2 Rule(add);
                "-" 2 Rule(sub);
                "*" 2 Rule(mul);
                "/" 2 Rule(div);
            }
            functions {
                "flash_attn" 2 Rule(flash_attn): candle_nn::attention::flash_attn::<f32>, candle_nn::attention::flash_attn::<f64>;
                "layer_norm" 2 Rule(layer_norm): candle_nn::ops::layer_norm;
                "rms_norm" 2 Rule(rms_norm): candle_nn::ops::rms_norm;
                "rope" 2 Rule(rope): candle_nn::rotary_emb::rope;
                "rope_i" 2 Rule(rope_i): candle_nn::rotary_emb::rope_i;
                "rope_thd" 2 Rule(rope_thd): candle_nn::rotary_emb::rope_thd;
                "sdpa" 2 Rule(sdpa): candle_nn::ops::sdpa;
                "softmax_last_dim" 1 Rule(softmax_last_dim): candle_nn::ops::softmax_last_dim;
            }
        }
    };
}

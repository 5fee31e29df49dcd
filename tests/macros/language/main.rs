//! What may stand in annotated code: every construct once with the macros and once without, with
//! equal bits and the points that one would expect.

#![deny(warnings, clippy::all)]
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]
// What some of the cases are about.
#![allow(
    clippy::assign_op_pattern,
    clippy::boxed_local,
    clippy::explicit_auto_deref,
    clippy::needless_late_init,
    clippy::never_loop,
    clippy::non_minimal_cfg,
    clippy::redundant_pattern_matching,
    clippy::toplevel_ref_arg,
    clippy::unnecessary_map_on_constructor,
    clippy::unused_unit
)]

mod twin;
mod weights;

twin::twins! {
    types {
        named_fields,
        tuple_struct,
        unit_struct,
        enum_of_modules,
        generic_over_types_and_constants,
        lifetimes,
    }
    fields {
        other_fields_need_no_annotation,
        skipped_fields_have_no_points,
        skipped_variants_have_no_points,
        fields_can_have_other_names,
        raw_identifiers_lose_their_prefix,
    }
    containers {
        option_adds_nothing_to_a_path,
        boxes_add_nothing_to_a_path,
        lists_add_a_position,
        tuples_add_a_position,
        maps_add_a_key,
        cells_and_locks_add_nothing_to_a_path,
        containers_nest,
        a_shared_module_has_the_path_of_its_caller,
    }
    objects {
        boxed_dyn_module,
        a_trait_of_ones_own,
    }
    layers {
        linear_and_embedding,
        norms,
        convolutions,
        layers_that_are_told_whether_they_train,
        recurrent_layers,
        activations_and_functions,
        quantized_matmul,
    }
    foreign {
        a_foreign_module_is_a_leaf,
    }
    methods {
        inherent_and_trait_impls,
        methods_that_change_the_module,
        generic_methods,
        a_forward_that_calls_another_is_one_call,
        recursion,
        methods_without_points,
        receivers_of_every_kind,
    }
    returns {
        plain_tensor,
        option,
        tuple,
        list,
        map,
        a_struct_of_ones_own,
        parts_of_another_name_at_every_call,
        a_reference,
        smart_pointers,
        what_is_borrowed_or_owned,
        an_impl_trait,
        anyhow_result,
        an_error_of_ones_own,
        an_error_that_nothing_converts_to,
        nothing,
        itself,
    }
    flow {
        early_return,
        question_marks_in_closures,
        a_body_that_diverges,
        loops_that_give_values,
        closures_that_capture,
        nested_functions_keep_to_themselves,
        if_let_and_let_else,
        match_with_guards,
    }
    bindings {
        shadowing_numbers_the_points,
        destructuring_names_every_part,
        deferred_initialization,
        a_mut_that_is_only_written_through,
        references_are_seen,
        arguments_that_are_changed,
        names_of_constants_are_patterns,
        results_that_are_not_unwrapped_yet,
        assigned_fields_and_elements,
    }
    temporaries {
        references_to_results,
        guards_in_every_position,
        iterators,
    }
    calls {
        through_the_trait,
        apply_in_every_form,
        helpers_that_are_given_modules,
        apply_of_a_rotary_table,
        more_arguments_than_one,
        arguments_that_hold_several_tensors,
        arguments_of_a_type_under_another_name,
        struct_literals_as_receivers,
        generic_functions_as_arguments,
    }
    parameters {
        as_an_argument_of_a_method,
        as_the_receiver_of_a_method,
        as_an_operand_in_all_four_forms,
        as_an_argument_of_a_function,
        through_an_alias,
        inside_an_option,
        through_a_copy,
        through_an_accessor,
        after_an_operation_with_nothing_to_do,
        a_parameter_that_is_only_looked_at,
    }
    syntax {
        cfgs_keep_their_meaning,
        macros_in_bodies,
        unsafe_blocks,
        attributes_stay_where_they_are,
        numbers_and_strings_are_left_alone,
    }
    macros {
        lists,
        a_list_of_one_value,
        conditions,
        patterns,
        texts,
        macros_in_macros,
        macros_of_ones_own,
    }
    modules {
        everything_in_a_module,
        annotated_blocks_without_forward_code,
    }
    hygiene {
        shadowed_prelude,
        names_that_generated_code_uses,
    }
}

/// An assertion shows the code that stands in the source, not what became of it.
#[test]
fn a_failing_assertion_shows_its_code() {
    let message = |model: fn() -> bool| {
        let panic = std::panic::catch_unwind(model).unwrap_err();
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap()
    };
    let plain = message(|| plain::macros::conditions::fails(&plain::macros::conditions::model()));
    let hooked = message(|| hooked::macros::conditions::fails(&hooked::macros::conditions::model()));
    assert_eq!(hooked, plain);
    assert!(plain.contains("self.is_wide(&self.a.forward(x)?)?"), "{plain}");
}

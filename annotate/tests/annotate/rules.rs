use hookpoint_annotate::{annotate_source, annotate_sources, Source};

/// The lines that annotation adds to a file, trimmed, each attribute with the line below it.
fn added(source: &str) -> Vec<String> {
    let text = annotate_source(source).unwrap().text;
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let ours =
        |line: &str| line.contains("AutoHook") || line.contains("auto_hook") || line.contains("HookValue");
    let item = |i: usize| lines[i..].iter().find(|line| !line.starts_with('#')).unwrap();
    let shown = |i: usize| match lines[i] {
        line if line.starts_with("use ") => line.to_string(),
        line => format!("{line} {}", item(i).trim_end_matches('{').trim_end()),
    };
    (0..lines.len()).filter(|i| ours(lines[*i])).map(shown).collect()
}

/// The names of the types that get `AutoHook`.
fn modules(source: &str) -> Vec<String> {
    let lines = added(source).into_iter().filter(|line| line.starts_with("#[derive(AutoHook)]"));
    let name = |line: String| {
        let mut words = line.split(|c: char| !c.is_alphanumeric()).skip_while(|word| *word != "struct");
        words.nth(1).unwrap().to_string()
    };
    lines.map(name).collect()
}

fn is_module(source: &str) -> bool {
    annotate_source(source).unwrap().counts.modules > 0
}

fn is_untouched(source: &str) -> bool {
    annotate_source(source).unwrap().text == source
}

// Which types are modules.

#[test]
fn a_type_with_forward_code_is_a_module() {
    for method in [
        "fn forward(&self, x: &Tensor) -> Tensor { x.clone() }",
        "fn forward_t(&mut self) {}",
        "fn forward(self: Box<Self>) {}",
        "fn run(self) { x.forward_embeds(y) }",
        "fn run(&self) { for l in ls { if a { x.apply(l); } } }",
        "fn run(&self) { x.apply_t(l, true) }",
        "fn run(&self) -> Vec<Tensor> { vec![x, self.0.forward(x)] }",
        "fn run(&self) { Module::forward(&self.0, x) }",
        "fn run(&self) { xs.iter().map(|x| x.apply(m)) }",
    ] {
        assert!(is_module(&format!("struct A(usize); impl A {{ {method} }}")), "{method}");
        assert!(is_module(&format!("enum A {{ B }} impl Local for A {{ {method} }}")), "{method}");
    }
    for method in
        ["fn forward(x: &Tensor) {}", "fn new() -> A { x.apply(y) }", "fn size(&self) -> usize { self.0 }"]
    {
        assert!(is_untouched(&format!("struct A(usize); impl A {{ {method} }}")), "{method}");
    }
}

#[test]
fn a_type_that_holds_a_layer_is_a_module() {
    for field in [
        "Linear",
        "candle_nn::Linear",
        "Option<Linear>",
        "Vec<(usize, Arc<Mutex<nn::LayerNorm>>)>",
        "[Conv1d; 3]",
        "HashMap<String, Func<'static>>",
        "Vec<Box<dyn Module + Send + Sync>>",
        "&'static dyn ModuleT",
        "QMatMul",
    ] {
        assert!(is_module(&format!("struct A {{ a: {field} }}")), "{field}");
        assert!(is_module(&format!("enum A {{ B, C({field}) }}")), "{field}");
    }
    for field in
        ["usize", "Box<dyn Fn(&Linear) -> Tensor>", "fn(Linear)", "LinearConfig", "Tensor", "Linear::Out"]
    {
        assert!(is_untouched(&format!("struct A {{ a: {field} }}")), "{field}");
    }
}

#[test]
fn a_type_that_holds_a_module_is_a_module_at_any_depth() {
    assert_eq!(
        modules("struct A(B);\nstruct B(Vec<C>);\nstruct C(Linear);\nstruct D(E);\nstruct E(u8);"),
        ["A", "B", "C"]
    );
}

#[test]
fn a_parameter_stands_for_its_bounds() {
    assert!(is_module("struct A<M: Module> { inner: M }"));
    assert!(is_module("struct A<M> where M: ModuleT { inner: Vec<M> }"));
    assert!(is_untouched("struct A<Linear> { inner: Linear }"));
}

#[test]
fn aliases_renamed_imports_and_traits_with_forward_are_followed() {
    assert!(is_module("type Lin = candle_nn::Linear; struct A(Lin);"));
    assert!(is_module("use candle_nn::Linear as Lin; struct A(Lin);"));
    assert!(is_module("trait Block { fn forward(&self); } struct A(Vec<Box<dyn Block>>);"));
    assert!(is_module("trait Block: Module {} struct A(Vec<Box<dyn Block>>);"));
}

#[test]
fn a_type_that_implements_module_is_a_module() {
    assert_eq!(
        added("struct Id;\nimpl candle_nn::Module for Id {}\n"),
        ["use hookpoint::AutoHook;", "#[derive(AutoHook)] struct Id;"]
    );
}

#[test]
fn tensors_that_methods_use_make_a_module() {
    for method in ["fn get(&self) -> &Tensor { &self.sin }", "fn get(&self) { let Self { sin } = self; }"] {
        assert!(is_module(&format!("struct Rope {{ sin: Tensor }} impl Rope {{ {method} }}")), "{method}");
    }
    assert!(is_module("enum E { A(Tensor) } impl E { fn get(&self) { match *self { E::A(x) => x } } }"));
    assert!(is_untouched("struct Rope { sin: Tensor } impl Rope { fn name(&self) -> &str { \"rope\" } }"));
    assert!(is_untouched("struct Rope { sin: f32 } impl Rope { fn get(&self) -> f32 { self.sin } }"));
}

#[test]
fn tensors_in_a_struct_of_their_own_belong_to_the_module_that_holds_them() {
    assert_eq!(
        modules("struct A { l: Linear, w: Option<W> }\nstruct W { a: Tensor }\nstruct V { a: Tensor }"),
        ["A", "W"]
    );
}

#[test]
fn configs_builders_unions_and_serde_types_are_no_modules() {
    for source in [
        "struct AConfig { act: Activation }",
        "#[derive(Clone, serde::Deserialize)] struct A { act: Activation }",
        "#[cfg_attr(feature = \"serde\", derive(Serialize))] struct A { act: Activation }",
        "struct A { act: Activation } impl<'de> Deserialize<'de> for A {}",
        "union A { a: ManuallyDrop<Linear> }",
        "struct A<'a> { vb: VarBuilder<'a>, l: Linear }",
        "struct MyVarBuilder { l: Linear }",
        "type A = Linear;",
        "trait A { fn forward(&self) { self.b.forward() } }",
    ] {
        assert!(is_untouched(source), "{source}");
    }
    assert!(is_module("struct Lazy<'a> { vb: VarBuilder<'a> } impl Lazy<'_> { fn forward(&self) {} }"));
}

#[test]
fn a_types_own_file_decides_what_a_name_means() {
    assert!(is_untouched("#[derive(Deserialize)] enum Activation { Gelu } struct A { act: Activation }"));
    let file = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
    let files = [
        file("src/a.rs", "struct Block(Linear);"),
        file("src/b.rs", "struct Block(u8); struct Model(Block);"),
        file("src/c.rs", "use super::a::Block; struct Model(Block);"),
        file("src/d.rs", "use super::b::Block; struct Model(Block);"),
        file("src/e.rs", "use super::a::Block as Inner; struct Model(Inner); impl Inner { fn f(&self) {} }"),
    ];
    let counts: Vec<_> =
        annotate_sources(&files).unwrap().iter().map(|f| (f.counts.modules, f.counts.impls)).collect();
    assert_eq!(counts, [(1, 0), (0, 0), (1, 0), (0, 0), (1, 1)]);
}

// Which structs are results.

#[test]
fn a_struct_with_tensors_that_forward_code_returns_is_a_result() {
    let model = "struct M(Linear);\nimpl M { fn forward(&self) -> Result<(Out, usize)> {} }\n";
    let is_value = |out: &str| annotate_source(&format!("{model}{out}")).unwrap().counts.values == 1;
    assert!(is_value("struct Out { logits: Tensor, n: usize }"));
    assert!(is_value("struct Out { all: Option<Vec<Tensor>> }"));
    assert!(is_value("struct Out { logits: Tensor } impl Out { fn get(&self) -> &Tensor { &self.logits } }"));
    assert!(!is_value("struct Out { n: usize }"));
    assert!(!is_value("struct Out<'a> { logits: &'a Tensor }"));
    assert!(!is_value("struct Other { logits: Tensor }"));
    assert!(!is_value("enum Out { A(Tensor) }"));
    assert!(!is_value("struct Out { logits: Tensor, l: Linear }"));
    assert_eq!(
        added(&format!("{model}struct Out(Tensor);\n"))[..],
        [
            "use hookpoint::{auto_hook, AutoHook, HookValue};",
            "#[derive(AutoHook)] struct M(Linear);",
            "#[auto_hook] impl M { fn forward(&self) -> Result<(Out, usize)> {} }",
            "#[derive(HookValue)] struct Out(Tensor);",
        ]
    );
}

// Which `impl` blocks are annotated.

#[test]
fn impl_blocks_need_a_module_and_a_method_that_can_be_instrumented() {
    let impls = |block: &str| {
        annotate_source(&format!("struct A(Linear);\nstruct B;\n{block}")).unwrap().counts.impls
    };
    assert_eq!(impls("impl A { fn forward(&self) {} }"), 1);
    assert_eq!(impls("impl A { fn anything(&mut self) {} } impl A { fn new() {} }"), 1);
    assert_eq!(impls("impl Local for crate::A { fn f(self: &Arc<Self>) {} }"), 1);
    assert_eq!(impls("unsafe impl Local for A { fn f(&self) {} }"), 1);
    assert_eq!(impls("impl A { const fn f(&self) {} async fn g(&self) {} fn new() -> Self {} }"), 0);
    assert_eq!(impls("impl B { fn f(&self) {} }"), 0);
    assert_eq!(impls("impl Local for &A { fn f(&self) {} }"), 0);
    assert_eq!(impls("impl<A> Local for A { fn f(&self) {} }"), 0);
    for name in
        ["Debug", "std::fmt::Display", "Clone", "Drop", "Deref", "Iterator", "PartialEq", "Index<usize>"]
    {
        assert_eq!(impls(&format!("impl {name} for A {{ fn f(&self) {{}} }}")), 0, "{name}");
    }
}

// Where annotations go.

#[test]
fn attributes_go_after_docs_and_before_attributes_with_the_same_indentation() {
    let text = annotate_source(
        "mod m {\n\t/// Docs.\n\t// note\n\t#[derive(Clone)]\n\t/// More.\n\tpub(crate) struct A(Linear);\n}\n",
    );
    assert_eq!(
        text.unwrap().text,
        "mod m {\n\tuse hookpoint::AutoHook;\n\n\t/// Docs.\n\t// note\n\t#[derive(AutoHook)]\n\t#[derive(Clone)]\n\t\
         /// More.\n\tpub(crate) struct A(Linear);\n}\n"
    );
}

#[test]
fn code_on_one_line_stays_on_one_line() {
    let text = annotate_source("mod m { struct A(Linear); impl A { fn f(&self) {} } }").unwrap().text;
    assert_eq!(
        text,
        "mod m { use hookpoint::{auto_hook, AutoHook}; #[derive(AutoHook)] struct A(Linear); \
         #[auto_hook] impl A { fn f(&self) {} } }"
    );
}

#[test]
fn the_use_goes_below_everything_that_must_be_first() {
    let uses = "use hookpoint::AutoHook;\n\n";
    let cases = [
        ("", "struct A(Linear);"),
        ("//! Docs.\n\n", "struct A(Linear);"),
        ("#![allow(dead_code)]\n", "use a::b;\nstruct A(Linear);"),
        ("\u{feff}", "struct A(Linear);"),
        ("\u{feff}//! ü\n", "struct A(Linear);"),
        ("#!/usr/bin/env run\n\n", "struct A(Linear);"),
        ("#!/usr/bin/env run\n#![allow(dead_code)]\n", "use a::b;\nstruct A(Linear);"),
        ("// Copyright\n", "use a::b;\nstruct A(Linear);"),
        ("// Copyright\n\n", "// About B.\n// More.\nstruct B;\nstruct A(Linear);"),
        ("/* \n// inside */\n", "struct B;\nstruct A(Linear);"),
        ("//! Docs.\n", "// About B.\nstruct B;\nstruct A(Linear);"),
        ("#![allow(a)] // why\n", "/// Docs.\nstruct B;\nstruct A(Linear);"),
    ];
    for (head, tail) in cases {
        let annotated = annotate_source(&format!("{head}{tail}")).unwrap().text;
        let tail = tail.replace("struct A", "#[derive(AutoHook)]\nstruct A");
        assert_eq!(annotated, format!("{head}{uses}{tail}"));
    }
}

#[test]
fn only_missing_names_are_imported() {
    for import in
        ["use hookpoint::AutoHook;", "use hookpoint::prelude::*;", "use ::hookpoint::{self, AutoHook};"]
    {
        let text = annotate_source(&format!("{import}\nstruct A(Linear);")).unwrap().text;
        assert_eq!(text, format!("{import}\n#[derive(AutoHook)]\nstruct A(Linear);"));
    }
    assert_eq!(
        added("use hookpoint::AutoHook;\nstruct A(Linear);\nimpl A { fn f(&self) {} }")[0],
        "use hookpoint::auto_hook;"
    );
}

#[test]
fn a_name_that_means_something_else_is_written_with_its_path() {
    let line = "#[derive(::hookpoint::AutoHook)] struct A(Linear);";
    for other in
        ["trait AutoHook {}", "use other::AutoHook;", "use other::{Hook as AutoHook};", "mod hookpoint {}"]
    {
        let lines = added(&format!("{other}\nstruct A(Linear);\n"));
        assert_eq!(lines.last().unwrap(), line, "{other}");
        assert!(!lines.iter().any(|line| line.starts_with("use hookpoint")), "{other}");
    }
    assert_eq!(
        added("struct A(Linear);\nimpl A { fn f(&self) {} }\nfn auto_hook() {}"),
        [
            "use hookpoint::AutoHook;",
            "#[derive(AutoHook)] struct A(Linear);",
            "#[::hookpoint::auto_hook] impl A { fn f(&self) {} }",
            "fn auto_hook() {} fn auto_hook() {}",
        ]
    );
}

// What is left alone.

#[test]
fn annotations_that_are_there_are_recognized() {
    for source in [
        "#[derive(Debug, AutoHook)] struct A(Linear);",
        "#[derive(hookpoint::AutoHook)] struct A(Linear);",
        "#[cfg_attr(feature = \"hooks\", derive(AutoHook))] struct A(Linear);",
        "#[derive(Hook)] struct A(Linear); use hookpoint::AutoHook as Hook;",
        "#[derive(AutoHook)] struct A(Linear); #[hookpoint::auto_hook] impl A { fn f(&self) {} }",
        "struct A(Linear); impl AutoHook for A { fn visit(&self) {} }",
        "#[auto_hook] mod m { struct A(Linear); impl A { fn f(&self) {} } }",
        "#[derive(HookValue)] struct Out { a: Tensor } impl Out { fn get(&self) { &self.a } }",
    ] {
        assert!(is_untouched(source), "{source}");
    }
    // What somebody says is a module is one.
    let counts = annotate_source("#[derive(AutoHook)] struct A(u8); impl A { fn f(&self) {} } struct B(A);")
        .unwrap()
        .counts;
    assert_eq!((counts.modules, counts.impls), (1, 1));
}

#[test]
fn functions_macros_and_tests_are_left_alone() {
    for source in [
        "fn f() { struct A(Linear); impl A { fn forward(&self) {} } }",
        "macro_rules! m { () => { struct A(Linear); } }",
        "make! { struct A(Linear); }",
        "#[cfg(test)] mod tests { struct A(Linear); }",
        "#[cfg(all(test, unix))] mod tests { struct A(Linear); }",
        "#[cfg(test)] struct A(Linear); #[cfg(test)] impl A { fn forward(&self) {} }",
        "#![cfg(test)] struct A(Linear);",
        "mod other;",
        "",
    ] {
        assert!(is_untouched(source), "{source}");
    }
    assert!(is_module("#[cfg(not(test))] struct A(Linear);"));
}

#[test]
fn a_file_that_does_not_parse_is_an_error_with_its_place() {
    let error = annotate_source("#!/bin/run\n\nstruct A {\n    ü: B C,\n}\n").unwrap_err();
    assert_eq!((error.line, error.column), (4, 10), "{error}");
    let error = annotate_source("fn f() {\r\n  \"open\r\n").unwrap_err();
    assert_eq!(error.line, 2, "{error}");
    let file = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
    let errors =
        annotate_sources(&[file("a.rs", "struct"), file("b.rs", ""), file("c.rs", "}")]).unwrap_err();
    assert_eq!(errors.0.len(), 2);
    assert!(errors.to_string().contains("\nc.rs:1:1: "), "{errors}");
}

// Which functions are instrumented.

#[test]
fn a_function_that_is_given_tensors_is_seen_into() {
    for function in [
        "fn rotate_half(x: &Tensor) -> Result<Tensor> { x.clone() }",
        "pub(crate) fn mask(x: Option<&Tensor>, size: usize) {}",
        "/// Doc.\n#[inline]\npub fn all(xs: &[Tensor]) {}",
        "pub unsafe fn raw(x: candle_core::Tensor) {}",
        "fn pair((a, b): (Tensor, Tensor)) {}",
        "mod inner { fn repeat_kv(x: Tensor, times: usize) {} }",
    ] {
        let counts = annotate_source(function).unwrap().counts;
        assert_eq!((counts.functions, counts.impls), (1, 0), "{function}");
        let once = annotate_source(function).unwrap().text;
        assert_eq!(annotate_source(&once).unwrap().text, once, "{function}");
    }
    let text = annotate_source("/// Doc.\n#[inline]\npub fn f(x: &Tensor) {}\n").unwrap().text;
    assert_eq!(
        text,
        "use hookpoint::auto_hook;\n\n/// Doc.\n#[auto_hook]\n#[inline]\npub fn f(x: &Tensor) {}\n"
    );
    for function in [
        "fn linear(i: usize, o: usize, vb: VarBuilder) -> Result<Linear> { linear(i, o, vb) }",
        "const fn f(x: &Tensor) {}",
        "async fn f(x: &Tensor) {}",
        "#[cfg(test)] fn f(x: &Tensor) {}",
        "#[cfg(test)] mod tests { fn f(x: &Tensor) {} }",
        "#[hookpoint::auto_hook] fn f(x: &Tensor) {}",
        "fn f() -> Tensor { let x: &Tensor = y; }",
    ] {
        assert!(is_untouched(function), "{function}");
    }
}

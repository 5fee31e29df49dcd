//! Trait objects in modules: their traits get `AutoHook` as a supertrait, or a note says why not.

use hookpoint_annotate::{annotate_source, annotate_sources, Source};

const LAYER: &str =
    "struct Dense(Linear);\nimpl Block for Dense { fn run(&self, x: &Tensor) -> Tensor {} }\n";
const NET: &str = "struct Net { head: Linear, blocks: Vec<Box<dyn Block>> }\n";

/// The line of the trait `Block` after annotation, without what follows the brace.
fn trait_line(source: &str) -> String {
    let text = annotate_source(source).unwrap().text;
    let line = text.lines().find(|line| line.contains("trait Block")).unwrap();
    line.split('{').next().unwrap().trim_end().to_string()
}

/// The only note on a source with a trait, a layer and a net.
fn note(block: &str, more: &str) -> String {
    let annotated = annotate_source(&format!("{block}\n{LAYER}{NET}{more}")).unwrap();
    let notes: Vec<String> = annotated.notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    notes.into_iter().next().unwrap()
}

fn is_hooked(block: &str, more: &str) -> bool {
    let source = format!("{block}\n{LAYER}{NET}{more}");
    let annotated = annotate_source(&source).unwrap();
    let again = annotate_source(&annotated.text).unwrap();
    assert_eq!(again.text, annotated.text, "it changes again");
    assert!(again.counts.is_zero());
    annotated.counts.traits == 1
}

const BLOCK: &str = "trait Block { fn run(&self, x: &Tensor) -> Tensor; }";

// `dyn Block` was a point without anything inside, and nothing said so.
#[test]
fn a_trait_behind_dyn_in_a_module_gets_the_supertrait() {
    for (block, expected) in [
        ("trait Block {}", "trait Block: AutoHook"),
        ("trait Block{}", "trait Block: AutoHook"),
        ("trait Block: {}", "trait Block: AutoHook"),
        ("pub(crate) unsafe trait Block: Send {}", "pub(crate) unsafe trait Block: AutoHook + Send"),
        (
            "trait Block: 'static + for<'a> Of<'a> + Sync {}",
            "trait Block: AutoHook + 'static + for<'a> Of<'a> + Sync",
        ),
        ("trait Block<T: Copy, const N: usize> {}", "trait Block<T: Copy, const N: usize>: AutoHook"),
        ("trait Block<T>: Debug where T: Copy {}", "trait Block<T>: AutoHook + Debug where T: Copy"),
        ("trait Block<'a, T = f32> where T: Copy {}", "trait Block<'a, T = f32>: AutoHook where T: Copy"),
        ("\u{feff}/// ü\ntrait Block where Self: Send {}", "trait Block: AutoHook where Self: Send"),
        ("use other::AutoHook;\ntrait Block {}", "trait Block: ::hookpoint::AutoHook"),
    ] {
        let source = format!("{block}\n{LAYER}{NET}");
        assert_eq!(trait_line(&source), expected);
        syn::parse_file(annotate_source(&source).unwrap().text.trim_start_matches('\u{feff}')).unwrap();
    }
    let text =
        annotate_source("trait Block:\n    Send\n    + Sync\n{\n}\nstruct Net(Linear, Box<dyn Block>);\n");
    assert!(text.unwrap().text.contains("trait Block:\n    AutoHook + Send\n    + Sync\n{"));
}

#[test]
fn it_does_not_matter_how_the_field_holds_it() {
    for field in [
        "Box<dyn Block>",
        "Option<Arc<dyn Block + Send + Sync + 'static>>",
        "HashMap<String, Mutex<Box<dyn Block>>>",
        "&'static dyn Block",
        "Box<dyn crate::blocks::Block<f32, Cache = Tensor>>",
        "Alias",
        "Vec<Nested>",
    ] {
        let aliases = "type Alias = Vec<Box<dyn Block>>; type Nested = Option<Alias>;";
        let source = format!("{BLOCK}{aliases} struct Net {{ head: Linear, field: {field} }}");
        assert_eq!(annotate_source(&source).unwrap().counts.traits, 1, "{field}");
        let source = format!("{BLOCK}{aliases} enum Net {{ A(Linear), B {{ field: {field} }} }}");
        assert_eq!(annotate_source(&source).unwrap().counts.traits, 1, "{field}");
    }
    for field in ["Box<dyn Fn(&dyn Block)>", "fn(Box<dyn Block>)", "usize"] {
        let source = format!("{BLOCK} struct Net {{ head: Linear, field: {field} }}");
        assert_eq!(annotate_source(&source).unwrap().counts.traits, 0, "{field}");
    }
    // A trait of the same name in another place.
    let counts = annotate_source("mod other { trait Send {} } struct Net(Linear, Box<dyn Fn() + Send>);")
        .unwrap()
        .counts;
    assert_eq!(counts.traits, 0);
    // A type that is no module has no points.
    assert_eq!(
        annotate_source("trait Block {} struct Registry(Vec<Box<dyn Block>>);").unwrap().counts.traits,
        0
    );
}

#[test]
fn a_trait_that_has_it_already_is_left_alone() {
    for block in [
        "trait Block: AutoHook {}",
        "trait Block: hookpoint::AutoHook + Send {}",
        "use hookpoint::AutoHook as Hooked; trait Block: Hooked {}",
        "trait Base: AutoHook {} trait Block: Base {}",
    ] {
        assert!(!is_hooked(block, ""), "{block}");
        let annotated = annotate_source(&format!("{block}\n{LAYER}{NET}")).unwrap();
        assert_eq!(annotated.notes, [], "{block}");
    }
}

#[test]
fn every_type_that_implements_it_gets_the_derive() {
    let more = "struct Nothing;\nimpl Block for Nothing {}\nstruct BlockConfig { n: usize }\nimpl Block for BlockConfig {}\n\
                #[derive(Serialize)]\nenum Either { A, B }\nimpl Block for Either {}\nstruct Inner;\nstruct Outer<T>(T);\n\
                impl Block for Outer<Inner> {}\ntype Other = Renamed;\nstruct Renamed;\nimpl Block for Other {}\n\
                impl Block for Linear {}\nimpl Block for Box<dyn Block> {}\nimpl Block for (Tensor, f32) {}\n\
                struct Unrelated;\n";
    let source = format!("{BLOCK}\n{LAYER}{NET}{more}");
    let text = annotate_source(&source).unwrap().text;
    for name in [
        "struct Nothing;",
        "struct BlockConfig",
        "#[derive(Serialize)]\nenum Either",
        "struct Inner",
        "struct Outer<T>",
        "struct Renamed",
    ] {
        assert!(text.contains(&format!("#[derive(AutoHook)]\n{name}")), "{name}\n{text}");
    }
    assert!(text.contains("\nstruct Unrelated;"));
    assert!(is_hooked(BLOCK, more));
}

// It was annotated once, and a type came later: that did not compile, and annotating it again changed nothing.
#[test]
fn a_type_that_comes_later_gets_the_derive() {
    let block = "trait Block: AutoHook { fn run(&self, x: &Tensor) -> Tensor; }";
    let more = "struct New;\nimpl Block for New {}\nstruct Of<T>(T);\nimpl<T> Block for Of<T> where Self: AutoHook {}\n\
                struct Around<T>(T);\nimpl<T: Module> Block for Around<T> {}\nimpl Block for other::Known {}\n\
                struct Own<T>(T);\nimpl<T: AutoHook> Block for Own<T> {}\n";
    for net in [NET, ""] {
        let text = annotate_source(&format!("{block}\n{LAYER}{net}{more}")).unwrap().text;
        assert!(text.contains("#[derive(AutoHook)]\nstruct New;"), "{text}");
        assert!(text.contains("impl<T> Block for Of<T> where Self: AutoHook {}"), "{text}");
        assert!(text.contains("impl<T: AutoHook> Block for Own<T> {}"), "{text}");
        assert!(text.contains("impl<T: Module> Block for Around<T> where Self: AutoHook {}"), "{text}");
    }
    assert!(!is_hooked(block, more));
}

#[test]
fn a_trait_may_wait_for_another() {
    let more = "trait Else { fn run(&self, x: &Tensor) -> Tensor; }\nstruct Second(Linear, Box<dyn Else>);\n\
                impl Block for Box<dyn Else> {}\n";
    let annotated = annotate_source(&format!("{BLOCK}\n{LAYER}{NET}{more}")).unwrap();
    assert_eq!(annotated.counts.traits, 2, "{:?}", annotated.notes);
    assert_eq!(annotated.notes.len(), 2);
}

// They are left alone otherwise. Here the tests would not compile any more.
#[test]
fn types_of_tests_get_it_too_where_a_trait_needs_it() {
    let tests = "#[cfg(test)]\nmod tests {\n    use super::*;\n    struct Fake;\n    struct Other(Linear);\n    impl Block for Fake {}\n}\n";
    let text = annotate_source(&format!("{BLOCK}\n{LAYER}{NET}{tests}")).unwrap().text;
    let expected = "mod tests {\n    use hookpoint::AutoHook;\n\n    use super::*;\n    #[derive(AutoHook)]\n    struct Fake;\n    struct Other(Linear);\n";
    assert!(text.contains(expected), "{text}");
    assert!(is_hooked(BLOCK, tests));
    // A type of the tests has nothing to do with one of the same name outside.
    let tests = "#[cfg(test)] mod tests { struct Dense; impl Block for Dense {} }\n";
    assert!(is_hooked(BLOCK, tests));
    assert!(!is_hooked(BLOCK, "#[cfg(test)] mod tests { impl Block for Foreign {} }\n"));
}

// The layer had a point that no run reached.
#[test]
fn a_block_for_a_layer_is_instrumented() {
    let impls = |more: &str| {
        let source = format!("{BLOCK}\n{LAYER}{NET}{more}");
        annotate_source(&source).unwrap().counts.impls
    };
    assert_eq!(impls(""), 1);
    assert_eq!(impls("impl Block for candle_nn::Linear { fn run(&self, x: &Tensor) -> Tensor {} }"), 2);
    assert_eq!(impls("impl Block for Vec<Linear> { fn run(&self, x: &Tensor) -> Tensor {} }"), 1);
    assert_eq!(impls("impl Other for Linear { fn run(&self, x: &Tensor) -> Tensor {} }"), 1);
}

#[test]
fn a_block_with_parameters_asks_for_it() {
    let cases = [
        (
            "impl<M: Module> Block for Around<M> {}",
            "impl<M: Module> Block for Around<M> where Self: AutoHook {}",
        ),
        ("impl<M> Block for Around<M>{}", "impl<M> Block for Around<M> where Self: AutoHook {}"),
        (
            "impl<M> Block for Around<M> where M: Module {}",
            "impl<M> Block for Around<M> where M: Module, Self: AutoHook {}",
        ),
        (
            "impl<M> Block for Around<M> where M: Module, {}",
            "impl<M> Block for Around<M> where M: Module, Self: AutoHook, {}",
        ),
        ("impl<M> Block for Around<M> where {}", "impl<M> Block for Around<M> where Self: AutoHook {}"),
        ("impl<M: Block> Block for Around<M> {}", "impl<M: Block> Block for Around<M> {}"),
        (
            "impl<M> Block for Around<M> where M: Block + Send {}",
            "impl<M> Block for Around<M> where M: Block + Send {}",
        ),
        ("impl<B: Block + ?Sized> Block for Box<B> {}", "impl<B: Block + ?Sized> Block for Box<B> {}"),
        ("impl<'a> Block for Of<'a> {}", "impl<'a> Block for Of<'a> {}"),
    ];
    for (block, expected) in cases {
        let source =
            format!("{BLOCK}\n{LAYER}{NET}struct Around<M>(M);\nstruct Of<'a>(&'a usize);\n{block}\n");
        let text = annotate_source(&source).unwrap().text;
        assert!(text.contains(&format!("{expected}\n")), "{expected}\n{text}");
        syn::parse_file(&text).unwrap();
    }
}

#[test]
fn a_trait_from_elsewhere_is_said() {
    for field in ["Box<dyn other::Block>", "Vec<Arc<dyn Block + Send>>"] {
        let annotated = annotate_source(&format!("\nstruct Net {{ head: Linear, b: {field} }}\n")).unwrap();
        assert_eq!(annotated.counts.modules, 1);
        let note = annotated.notes[0].to_string();
        assert!(
            note.starts_with("<source>:2: `Net` holds `dyn Block`, and this trait is not in the source"),
            "{note}"
        );
    }
    for field in
        ["dyn Module", "dyn Fn(&Tensor) -> Tensor", "dyn std::any::Any + Send", "dyn Iterator<Item = u8>"]
    {
        let annotated = annotate_source(&format!("struct Net {{ head: Linear, b: Box<{field}> }}")).unwrap();
        assert_eq!(annotated.notes, [], "{field}");
    }
}

#[test]
fn a_trait_that_cannot_have_it_is_said_with_the_reason() {
    let refused = [
        ("trait Block { fn visit(&self); }", "", "both have a method `visit`"),
        ("trait Base { fn hook_dict(&self); } trait Block: Base {}", "", "both have a method `hook_dict`"),
        (BLOCK, "impl<T: Module> Block for T {}", "implemented for all types of a kind"),
        (BLOCK, "impl Block for other::Foreign {}", "`Foreign`, which implements it, is not in the source"),
        (
            BLOCK,
            "use other::with_tracing::Linear; impl Block for Linear {}",
            "`Linear`, which implements it, is not",
        ),
        (
            BLOCK,
            "impl Block for Box<dyn other::Else> {}",
            "`Else`, which implements it, is not in the source",
        ),
        (BLOCK, "trait Else {} impl Block for Box<dyn Else> {}", "`Else`, which cannot have the derive"),
        (BLOCK, "impl Block for fn(&Tensor) -> Tensor {}", "`fn`, which implements it, is not in the source"),
        (BLOCK, "impl<T> Block for Vec<*mut T> {}", "`*const`, which implements it, is not in the source"),
        (BLOCK, "impl Block for Box<dyn Fn(&Tensor)> {}", "`Fn`, which implements it, is not in the source"),
        (BLOCK, "union U { a: u8 } impl Block for U {}", "`U`, which cannot have the derive"),
        (BLOCK, "fn f() { struct Local; impl Block for Local {} }", "in the body of a function"),
        (BLOCK, "macro_rules! m { ($t:ty) => { impl Block for $t {} } }", "in a macro"),
        (BLOCK, "make! { impl<T> crate::Block<Vec<T>> for A {} }", "in a macro"),
    ];
    for (block, more, reason) in refused {
        let source = format!("{block}\n{LAYER}{NET}{more}");
        let annotated = annotate_source(&source).unwrap();
        assert_eq!(annotated.counts.traits, 0, "{more}");
        assert!(!annotated.text.contains(": AutoHook"), "{}", annotated.text);
        let note = note(block, more);
        assert!(note.starts_with("<source>:1: `Block` does not get `AutoHook` as a supertrait"), "{note}");
        assert!(note.contains(reason), "{note}");
    }
    let note = note(BLOCK, "");
    assert!(note.contains("`Block` has `AutoHook` as a supertrait now"), "{note}");
    assert!(note.contains("types in other source that implement it need `#[derive(AutoHook)]`"), "{note}");
}

#[test]
fn what_holds_such_objects_is_a_module_if_what_implements_them_is() {
    let source = format!("{BLOCK}\n{LAYER}struct Stack {{ blocks: Vec<Box<dyn Block>> }}\nimpl Stack {{ fn go(&self) {{}} }}\n");
    let counts = annotate_source(&source).unwrap().counts;
    assert_eq!((counts.modules, counts.impls, counts.traits), (2, 2, 1));
    // Neither a trait without tensors nor one that no module implements.
    for block in
        ["trait Named { fn name(&self) -> String; }", "trait Named { fn pick(&self, x: &Tensor) -> u32; }"]
    {
        let implementor = if block.contains("Tensor") { "struct Top(u8);" } else { "struct Top(Linear);" };
        let source =
            format!("{block} {implementor} impl Named for Top {{}} struct All(Vec<Box<dyn Named>>);");
        let annotated = annotate_source(&source).unwrap();
        assert!(!annotated.text.contains("#[derive(AutoHook)] struct All"), "{}", annotated.text);
        assert_eq!(annotated.counts.traits, 0);
    }
}

#[test]
fn trait_types_and_holders_may_be_in_three_files() {
    let file = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
    let files = [
        file("src/block.rs", "pub trait Block { fn run(&self, x: &Tensor) -> Tensor; }\n"),
        file("src/dense.rs", "use crate::block::Block as Part;\npub struct Dense;\nimpl Part for Dense {}\n"),
        file(
            "src/net.rs",
            "use crate::block::Block;\nstruct Net { head: Linear, blocks: Vec<Box<dyn Block>> }\n",
        ),
        file("src/other.rs", "trait Block { fn other(&self); }\nstruct Other;\nimpl Block for Other {}\n"),
    ];
    let annotated = annotate_sources(&files).unwrap();
    let counts: Vec<_> = annotated.iter().map(|file| (file.counts.traits, file.counts.modules)).collect();
    assert_eq!(counts, [(1, 0), (0, 1), (0, 1), (0, 0)]);
    assert!(annotated[0].text.starts_with("use hookpoint::AutoHook;\n\npub trait Block: AutoHook {"));
    assert_eq!(annotated[0].notes[0].path, files[0].path);
}

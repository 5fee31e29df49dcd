//! All of candle-transformers 0.11.1, as cargo downloaded it.

use hookpoint_annotate::{annotate_sources, Annotated, Counts, Source};
use hookpoint_cli::registry::{cargo_home, find, CrateName};
use hookpoint_cli::target::Target;
use syn::visit::Visit;

/// The files below `only`; none, and a line that says so, where cargo has not downloaded the crate.
fn corpus(only: &str) -> Option<Vec<Source>> {
    let wanted = CrateName::parse("candle-transformers@0.11.1").unwrap();
    match cargo_home().and_then(|home| find(&home, &wanted)) {
        Ok(root) => Some(Target::Crate(root).sources(&[only.to_string()]).unwrap().read().unwrap()),
        Err(error) => {
            eprintln!("SKIPPED, candle-transformers 0.11.1 is not there: {error}");
            None
        }
    }
}

fn total(annotated: &[Annotated]) -> Counts {
    let mut counts = Counts::default();
    annotated.iter().for_each(|file| counts += file.counts);
    counts
}

/// Takes our lines out again, knowing only what they look like. A blank line below our `use` is ours:
/// it went directly in front of an item.
fn stripped(text: &str) -> String {
    let mut lines = text.split_inclusive('\n');
    let mut result = String::new();
    while let Some(line) = lines.next() {
        match line.trim() {
            "#[derive(AutoHook)]" | "#[derive(HookValue)]" | "#[auto_hook]" => {}
            ours if ours.starts_with("use hookpoint::") => assert_eq!(lines.next(), Some("\n")),
            ours if ours.contains("trait ") => {
                result.push_str(&line.replace(": AutoHook + ", ": ").replace(": AutoHook", ""));
            }
            _ => result.push_str(line),
        }
    }
    result
}

/// Counts annotations where they have an effect.
#[derive(Default)]
struct Found(Counts);

impl Found {
    fn derives(&mut self, attrs: &[syn::Attribute]) {
        for attr in attrs.iter().filter(|attr| attr.path().is_ident("derive")) {
            let _ = attr.parse_nested_meta(|meta| {
                self.0.modules += usize::from(meta.path.is_ident("AutoHook"));
                self.0.values += usize::from(meta.path.is_ident("HookValue"));
                Ok(())
            });
        }
    }
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.derives(&item.attrs);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.derives(&item.attrs);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let is_ours = |bound: &syn::TypeParamBound| matches!(bound, syn::TypeParamBound::Trait(bound) if bound.path.is_ident("AutoHook"));
        self.0.traits += usize::from(item.supertraits.iter().any(is_ours));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.0.functions += item.attrs.iter().filter(|attr| attr.path().is_ident("auto_hook")).count();
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.0.impls += item.attrs.iter().filter(|attr| attr.path().is_ident("auto_hook")).count();
    }
}

#[test]
fn every_file_parses_afterwards_and_is_the_same_without_our_lines() {
    let Some(files) = corpus("src") else { return };
    let annotated = annotate_sources(&files).unwrap();
    let counts = total(&annotated);
    println!(
        "{} files: {} types, {} impl blocks, {} result structs, {} functions, {} traits",
        files.len(),
        counts.modules,
        counts.impls,
        counts.values,
        counts.functions,
        counts.traits
    );
    for note in annotated.iter().flat_map(|file| &file.notes) {
        println!("{note}");
    }
    for (file, result) in files.iter().zip(&annotated) {
        let name = file.path.display();
        let tree = syn::parse_file(&result.text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut found = Found::default();
        found.visit_file(&tree);
        assert_eq!(found.0, result.counts, "{name}");
        assert!(stripped(&result.text) == file.text, "{name} is changed elsewhere");
        assert_eq!(result.text == file.text, result.counts.is_zero(), "{name}");
    }
    assert!((900..1000).contains(&counts.modules), "{counts:?}");
    assert!((930..1050).contains(&counts.impls), "{counts:?}");
}

#[test]
fn models_that_are_annotated_do_not_change_again() {
    let Some(mut files) = corpus("src/models") else { return };
    let once = annotate_sources(&files).unwrap();
    for (file, result) in files.iter_mut().zip(once) {
        file.text = result.text;
    }
    let twice = annotate_sources(&files).unwrap();
    for (file, result) in files.iter().zip(&twice) {
        assert!(result.text == file.text, "{} changes again", file.path.display());
    }
    assert!(total(&twice).is_zero());
}

#[test]
fn crlf_files_keep_crlf() {
    let Some(mut files) = corpus("src/models/llama*.rs") else { return };
    let with_lf = annotate_sources(&files).unwrap();
    for file in &mut files {
        file.text = file.text.replace('\n', "\r\n");
    }
    let with_crlf = annotate_sources(&files).unwrap();
    for (lf, crlf) in with_lf.iter().zip(&with_crlf) {
        assert!(lf.text.replace('\n', "\r\n") == crlf.text);
    }
}

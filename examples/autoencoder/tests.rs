#![allow(clippy::unwrap_used)]

use clap::Parser;
use hookpoint_examples::screen::{Colours, Screen};

use crate::args::Args;
use crate::findings::Findings;
use crate::{look, page, terminal};

fn args(more: &[&str]) -> Args {
    let few = ["autoencoder", "--steps", "8", "--features", "32", "--top", "3", "--texts", "8"];
    Args::parse_from(few.iter().chain(more))
}

const PLAIN: Screen = Screen { colours: Colours::None, width: 80, light: false };

#[test]
fn features_are_shown_with_words_and_tokens_and_are_the_same_each_time() {
    let args = args(&[]);
    let findings = look(&args).unwrap();
    let text = terminal::text(&findings, &args, &PLAIN);
    for part in ["32 features of `blocks.1.hook_resid_post`", "excited by", "promotes", "% recovered"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "plain where there is no terminal");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert_eq!(text, terminal::text(&look(&args).unwrap(), &args, &PLAIN));
    let coloured = Screen { colours: Colours::True, ..PLAIN };
    assert!(terminal::text(&findings, &args, &coloured).contains('\u{1b}'));
}

#[test]
fn what_looks_like_html_stays_text_and_the_page_needs_nothing() {
    let args = args(&["--architecture", "jumprelu"]);
    let mut findings: Findings = look(&args).unwrap();
    let hostile = "</script><script>alert(1)</script>\u{2028}&amp;";
    findings.features[0].words.push((hostile.to_string(), 1.));
    findings.point = hostile.to_string();
    let page = page::text(&findings).unwrap();
    assert!(!page.contains("<script>alert"), "escaped");
    assert_eq!(page.matches("</script>").count(), 2);
    for link in ["http:", "https:", "src=", "url("] {
        assert!(!page.contains(link), "{link}");
    }
}

#[test]
fn a_point_that_is_not_there_is_an_error_that_says_so() {
    let error = look(&args(&["--point", "blocks.9.hook_resid_post"])).unwrap_err();
    assert!(error.to_string().contains("selects nothing"), "{error:#}");
    let error = look(&args(&["--point", "blocks.*.hook_resid_post"])).unwrap_err();
    assert!(error.to_string().contains("has to be one point"), "{error:#}");
}

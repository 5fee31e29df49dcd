//! The page for users of other libraries: what its tables say is what its code compiles.

const PAGE: &str = include_str!("../../docs/coming-from.md");

/// The sections, each as its heading, its text, and its code.
fn sections() -> Vec<(String, Vec<String>, String)> {
    let mut sections: Vec<(String, Vec<String>, String)> = Vec::new();
    let mut in_code = false;
    for line in PAGE.lines() {
        if line.starts_with("```") {
            in_code = !in_code;
        } else if let (Some(heading), false) = (line.strip_prefix("## "), in_code) {
            sections.push((heading.to_string(), Vec::new(), String::new()));
        } else if let Some((_, text, code)) = sections.last_mut() {
            match in_code {
                true => code.push_str(&format!("{line}\n")),
                false => text.push(line.to_string()),
            }
        }
    }
    sections
}

/// Text without what rustfmt may put between tokens.
fn squeezed(code: &str) -> String {
    code.split_whitespace().collect::<String>().replace(",)", ")").replace(",]", "]")
}

#[test]
fn every_expression_of_a_table_is_in_the_code_below_it() {
    let sections = sections();
    assert_eq!(sections.len(), 6);
    for (heading, text, code) in sections {
        let code = squeezed(&code);
        let rows: Vec<&String> = text.iter().filter(|line| line.starts_with('|')).skip(2).collect();
        assert!(rows.len() >= 5, "{heading} has {} rows", rows.len());
        for row in rows {
            let row = row.replace("\\|", "\u{1}");
            let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
            let [_, here] = cells[..] else { panic!("{row} has {} cells", cells.len()) };
            // What stands between backquotes.
            for expression in here.split('`').skip(1).step_by(2) {
                let expression = squeezed(&expression.replace('\u{1}', "|"));
                let known = code.contains(&expression) || expression == "impl";
                assert!(known, "{heading}: `{expression}` is in no code");
            }
        }
    }
}

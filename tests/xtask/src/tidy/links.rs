//! Links between Markdown files lead to a file of the tree, and an anchor to a heading of it.
//!
//! Addresses on the web are not followed: a check that needs the network fails for reasons of its own.

use crate::tree::Tree;

pub fn broken(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_extension("md") {
        for (link, line) in links(text) {
            if let Some(why) = why_broken(tree, path, link) {
                findings.push(format!("{path}:{line}: ({link}) {why}"));
            }
        }
    }
    findings
}

fn why_broken(tree: &Tree, from: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = match target {
        "" => from.to_string(),
        _ => match resolve(from, target) {
            Some(path) => path,
            None => return Some("leads out of the repository".into()),
        },
    };
    if !tree.exists(&path) {
        return Some(format!("leads to {path}, which is not there"));
    }
    let headings = tree.text(&path).unwrap_or_default();
    (!anchor.is_empty() && !anchors(headings).any(|a| a == anchor))
        .then(|| format!("names a heading that {path} does not have"))
}

/// `link` as seen from the directory of `from`; `None` above the root.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Targets of `[text](target)` outside code, with their lines.
fn links(text: &str) -> Vec<(&str, usize)> {
    let mut links = Vec::new();
    let mut fenced = false;
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        // Every second piece between backticks is code, unless a link's text is.
        for (at, _) in line.match_indices("](") {
            let in_code = line[..at].matches('`').count() % 2 == 1;
            let target = line[at + 2..].split([')', ' ']).next().unwrap_or_default();
            if !in_code {
                links.push((target, number));
            }
        }
    }
    links
}

/// Anchors of headings as the usual renderers make them.
fn anchors(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| slug(line.trim_start_matches('#').trim()))
}

fn slug(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_that_lead_somewhere_pass() {
        let cases = [
            ("[a](b.md)", true),
            ("[a](../README.md)", true),
            ("[a](./spec/)", true),
            ("[`a`](b.md#d-1-so-it-is)", true),
            ("[a](#here-too)", true),
            ("[a](https://example.org/x)", true),
            ("`[a](nothing.md)`", true),
            ("```\n[a](nothing.md)\n```", true),
            ("[a](nothing.md)", false),
            ("[a](b.md) and [c](nothing.md)", false),
            ("[a](b.md#nothing)", false),
            ("[a](#nothing)", false),
            ("[a](../../x.md)", false),
        ];
        for (text, passes) in cases {
            let doc = format!("## Here, too!\n{text}\n");
            let tree = Tree::of(&[
                ("docs/a.md", &doc),
                ("docs/b.md", "# B\n## D-1 So it is\n"),
                ("docs/spec/x.tsv", ""),
                ("README.md", ""),
            ]);
            assert_eq!(broken(&tree).is_empty(), passes, "{text}");
        }
    }

    #[test]
    fn a_finding_names_file_line_and_link() {
        let tree = Tree::of(&[("a.md", "x\n[a](b.md)\n")]);
        assert_eq!(
            broken(&tree),
            ["a.md:2: (b.md) leads to b.md, which is not there"]
        );
    }
}

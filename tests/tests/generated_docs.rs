//! The tables in `docs/_generated` are what the code declares, to the letter.

use xtask::{
    docs,
    tree::{self, Tree},
};

#[test]
fn generated_docs_are_up_to_date() {
    let tree = Tree::read(&tree::root()).expect("the tree can be read");
    let findings = docs::compare(&tests::pages(), &docs::committed(&tree));
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

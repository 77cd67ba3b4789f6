//! Scenario files: any text parses or is refused in one line.

use sim::scenario::Scenario;

pub fn run(text: &str) {
    if let Err(error) = Scenario::parse("fuzz", "fuzz.toml", text) {
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
}

//! Configuration files: any text loads or is refused with at least one line, never a panic.

use ron_core::{admission::AdmissionConfig, config::Sources};

pub fn run(text: &str) {
    let sources = Sources {
        file: Some(("fuzz.toml".to_owned(), text.to_owned())),
        ..Sources::default()
    };
    if let Err(errors) = sources.load::<AdmissionConfig>("RON_FUZZ_", |_| Vec::new()) {
        assert!(!errors.0.is_empty());
        assert!(
            errors
                .0
                .iter()
                .all(|error| error.to_string().lines().count() == 1)
        );
    }
    let sources = Sources {
        cli: text.lines().map(str::to_owned).collect(),
        ..Sources::default()
    };
    let _ = sources.load::<AdmissionConfig>("RON_FUZZ_", |_| Vec::new());
}

//! Which paths a disk accepts: relative, `/`-separated, made of plain names. Nothing else can leave the
//! root, so every disk, real or simulated, asks here first.

use std::io;

/// Checks the path of a file (or of a directory below the root).
pub fn check(path: &str) -> io::Result<&str> {
    let plain = |name: &str| !matches!(name, "" | "." | "..") && !name.contains(['\0', '\\']);
    if path.split('/').all(plain) {
        Ok(path)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{path}` is no relative path of plain names"),
        ))
    }
}

/// Checks the path of a directory; the empty one is the root.
pub fn check_dir(path: &str) -> io::Result<&str> {
    if path.is_empty() {
        Ok(path)
    } else {
        check(path)
    }
}

#[cfg(test)]
mod tests {
    use super::{check, check_dir};

    #[test]
    fn only_relative_paths_of_plain_names_pass() {
        for good in ["a", "a/b", "a.b/..c", "x y/ü"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in [
            "", "/", "/a", "a/", "a//b", ".", "a/./b", "..", "../a", "a/../b", "a\0b", "a\\b",
        ] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
        assert!(check_dir("").is_ok());
        assert!(check_dir("..").is_err());
    }
}

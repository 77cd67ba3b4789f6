//! A file with a secret of a known length, such as a key, that only its owner can read.
//!
//! Always: under its name it is whole, and stays after a loss of power; of two that make it at once one is refused; one
//! that others can read is not used.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    #[error("it does not exist")]
    Missing,
    #[error("it can be read by others (mode {0:o})")]
    Open(u32),
    #[error("it has {found} bytes: exactly {expected} are expected")]
    Length { found: u64, expected: u64 },
    #[error(transparent)]
    Io(#[from] io::Error),
}

pub fn read_secret_file(path: &Path, expected: u64) -> Result<Vec<u8>, SecretFileError> {
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(SecretFileError::Missing);
        }
        found => found?,
    };
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(SecretFileError::Open(mode));
    }
    if found.len() != expected {
        let found = found.len();
        return Err(SecretFileError::Length { found, expected });
    }
    // Whoever made it may have been killed before its name was durable.
    sync_directory(path)?;
    Ok(fs::read(path)?)
}

/// Fails if there is one already. The directory is made too.
pub fn make_secret_file(path: &Path, secret: &[u8]) -> io::Result<()> {
    crate::disk::make_dir(directory(path))?;
    let beside = beside(path);
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => write_new(&beside, secret)?,
    }
    // A rename would replace what somebody else has made meanwhile.
    match fs::hard_link(&beside, path) {
        // File systems without links: there a crash may leave a file that is too short, which is told.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => write_new(path, secret)?,
        linked => linked?,
    }
    fs::remove_file(&beside)?;
    sync_directory(path)
}

fn write_new(path: &Path, secret: &[u8]) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(secret)?;
    file.sync_all()
}

fn beside(path: &Path) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

fn directory(path: &Path) -> &Path {
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

fn sync_directory(path: &Path) -> io::Result<()> {
    fs::File::open(directory(path))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("ron-secret-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn a_secret_is_made_once_for_its_owner_alone_and_read_back() {
        let dir = scratch("made");
        let path = dir.join("deep/node.key");
        assert!(matches!(
            read_secret_file(&path, 3),
            Err(SecretFileError::Missing)
        ));
        make_secret_file(&path, b"abc").unwrap();
        assert_eq!(read_secret_file(&path, 3).unwrap(), b"abc");
        let refused = make_secret_file(&path, b"xyz").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(read_secret_file(&path, 3).unwrap(), b"abc");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_a_killed_start_left_beside_is_no_obstacle_and_no_secret() {
        let dir = scratch("left");
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("node.key");
        fs::write(dir.join("node.key.new"), b"a").unwrap();
        make_secret_file(&path, b"abc").unwrap();
        assert_eq!(read_secret_file(&path, 3).unwrap(), b"abc");
        let names = fs::read_dir(&dir).unwrap().count();
        assert_eq!(names, 1);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_file_that_others_can_read_or_of_another_length_is_not_used() {
        let dir = scratch("bad");
        let path = dir.join("node.key");
        make_secret_file(&path, b"abc").unwrap();
        let told = read_secret_file(&path, 32).unwrap_err().to_string();
        assert_eq!(told, "it has 3 bytes: exactly 32 are expected");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let told = read_secret_file(&path, 3).unwrap_err().to_string();
        assert_eq!(told, "it can be read by others (mode 640)");
        fs::remove_dir_all(&dir).unwrap();
    }
}

//! Disks that are slow or refuse: no verdict is made of what could not be read.

use std::io;

use kit::disk::{Op, ToldDisk};

use crate::{eventful, verify, written::Keys};

#[test]
fn short_reads_are_read_on_and_a_file_that_cannot_be_read_is_no_verdict() {
    let (disk, keys) = (ToldDisk::new(1 << 30), Keys::new(1));
    let size = eventful(&disk, &keys).log.covered();
    disk.read_at_most(7);
    assert_eq!(verify(&disk).unwrap().size, size);
    for file in ["keys.txt", "checkpoint", "log", "tile/0/001", "entries/000"] {
        disk.tell(move |path, op| match op {
            Op::Open if path.ends_with(file) => Err(io::ErrorKind::PermissionDenied.into()),
            _ => Ok(()),
        });
        let error = verify(&disk).unwrap_err();
        assert!(error.is_unreadable(), "{error}");
        assert!(error.file.ends_with(file), "{error}");
        assert!(error.to_string().contains("cannot be read: "), "{error}");
    }
}

//! Disk: positional files under one root. What a crash leaves is the simulator's own affair.

use std::{io, sync::Arc};

use ron_core::seam::{Disk, DiskFile, Open};

use crate::{Pair, list};

list!("disk":
    reads_end_at_the_end_of_the_file,
    writes_beyond_the_end_fill_with_zeros,
    appends_tell_where_they_start_through_any_handle,
    set_len_cuts_and_grows_with_zeros,
    open_modes_treat_present_and_absent_files_as_they_say,
    a_rename_replaces_in_one_step,
    a_removed_file_lives_on_in_its_open_handles,
    lists_are_sorted_and_mark_directories,
    directories_are_created_with_their_parents,
    a_lock_is_exclusive_and_released_on_drop,
    a_replaced_file_has_another_identity,
    paths_that_could_escape_are_refused,
    mistakes_have_the_same_error_on_every_disk,
    syncing_succeeds,
);

/// Runs a case's body on the disk pool.
async fn on_disk(pair: Pair, body: fn(&Arc<dyn Disk>)) {
    let panicked = "the case's own assertion failed: see above";
    pair.client.disk(body).await.expect(panicked);
}

fn create(disk: &Arc<dyn Disk>, path: &str, contents: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.open(path, Open::CreateNew).unwrap();
    file.write_at(0, contents).unwrap();
    file
}

fn contents(file: &Arc<dyn DiskFile>) -> Vec<u8> {
    let mut all = vec![0; file.len().unwrap() as usize + 10];
    let mut at = 0;
    loop {
        match file.read_at(at as u64, &mut all[at..]).unwrap() {
            0 => break,
            n => at += n,
        }
    }
    all.truncate(at);
    all
}

fn kind<T>(result: io::Result<T>) -> Option<io::ErrorKind> {
    result.err().map(|error| error.kind())
}

async fn reads_end_at_the_end_of_the_file(pair: Pair) {
    on_disk(pair, |disk| {
        let file = create(disk, "f", b"hello");
        let mut buf = [9; 8];
        assert_eq!(file.read_at(3, &mut buf).unwrap(), 2);
        assert_eq!(&buf[..3], b"lo\x09");
        assert_eq!(file.read_at(5, &mut buf).unwrap(), 0);
        assert_eq!(file.read_at(5000, &mut buf).unwrap(), 0);
        assert_eq!(file.read_at(0, &mut []).unwrap(), 0);
        assert_eq!(file.len().unwrap(), 5);
        assert!(!file.is_empty().unwrap());
    })
    .await;
}

async fn writes_beyond_the_end_fill_with_zeros(pair: Pair) {
    on_disk(pair, |disk| {
        let file = create(disk, "f", b"ab");
        file.write_at(4, b"cd").unwrap();
        file.write_at(1, b"B").unwrap();
        file.write_at(100, b"").unwrap();
        assert_eq!(contents(&file), b"aB\0\0cd");
    })
    .await;
}

async fn appends_tell_where_they_start_through_any_handle(pair: Pair) {
    on_disk(pair, |disk| {
        let a = create(disk, "f", b"");
        let b = disk.open("f", Open::Existing).unwrap();
        assert_eq!(a.append(b"one").unwrap(), 0);
        assert_eq!(b.append(b"two").unwrap(), 3);
        a.write_at(0, b"O").unwrap();
        assert_eq!(a.append(b"3").unwrap(), 6);
        assert_eq!(contents(&b), b"Onetwo3");
    })
    .await;
}

async fn set_len_cuts_and_grows_with_zeros(pair: Pair) {
    on_disk(pair, |disk| {
        let file = create(disk, "f", b"hello");
        file.set_len(2).unwrap();
        file.set_len(4).unwrap();
        assert_eq!(contents(&file), b"he\0\0");
        assert_eq!(file.append(b"x").unwrap(), 4);
        file.set_len(0).unwrap();
        assert!(file.is_empty().unwrap());
    })
    .await;
}

async fn open_modes_treat_present_and_absent_files_as_they_say(pair: Pair) {
    on_disk(pair, |disk| {
        use io::ErrorKind::{AlreadyExists, NotFound};
        assert_eq!(kind(disk.open("f", Open::Existing)), Some(NotFound));
        assert_eq!(disk.identity("f").unwrap(), None);
        disk.open("f", Open::Create).unwrap().append(b"x").unwrap();
        for how in [Open::Existing, Open::Create] {
            assert_eq!(contents(&disk.open("f", how).unwrap()), b"x", "{how:?}");
        }
        assert_eq!(kind(disk.open("f", Open::CreateNew)), Some(AlreadyExists));
        disk.open("g", Open::CreateNew).unwrap();
    })
    .await;
}

async fn a_rename_replaces_in_one_step(pair: Pair) {
    on_disk(pair, |disk| {
        create(disk, "new", b"new");
        let old = create(disk, "f", b"old");
        disk.rename("new", "f").unwrap();
        assert_eq!(contents(&disk.open("f", Open::Existing).unwrap()), b"new");
        assert_eq!(contents(&old), b"old", "an open handle keeps its file");
        assert_eq!(disk.list("").unwrap(), ["f"]);
        assert_eq!(kind(disk.rename("new", "f")), Some(io::ErrorKind::NotFound));
    })
    .await;
}

async fn a_removed_file_lives_on_in_its_open_handles(pair: Pair) {
    on_disk(pair, |disk| {
        let old = create(disk, "f", b"old");
        disk.remove("f").unwrap();
        assert_eq!(disk.identity("f").unwrap(), None);
        old.append(b"er").unwrap();
        assert_eq!(contents(&old), b"older");
        assert_eq!(contents(&create(disk, "f", b"")), b"");
        assert_eq!(contents(&old), b"older");
    })
    .await;
}

async fn lists_are_sorted_and_mark_directories(pair: Pair) {
    on_disk(pair, |disk| {
        assert!(disk.list("").unwrap().is_empty());
        for name in ["b", "a", "c"] {
            create(disk, name, b"");
        }
        disk.create_dir("bb/inner").unwrap();
        create(disk, "bb/z", b"");
        assert_eq!(disk.list("").unwrap(), ["a", "b", "bb/", "c"]);
        assert_eq!(disk.list("bb").unwrap(), ["inner/", "z"]);
        assert!(disk.list("bb/inner").unwrap().is_empty());
    })
    .await;
}

async fn directories_are_created_with_their_parents(pair: Pair) {
    on_disk(pair, |disk| {
        disk.create_dir("a/b/c").unwrap();
        disk.create_dir("a/b").unwrap();
        create(disk, "a/b/c/f", b"x");
        disk.rename("a/b/c/f", "a/g").unwrap();
        assert_eq!(disk.list("a").unwrap(), ["b/", "g"]);
        disk.sync_dir("a").unwrap();
        disk.sync_dir("").unwrap();
    })
    .await;
}

async fn a_lock_is_exclusive_and_released_on_drop(pair: Pair) {
    on_disk(pair, |disk| {
        let held = disk.lock("lock").unwrap();
        let other = disk.lock("other").unwrap();
        assert_eq!(kind(disk.lock("lock")), Some(io::ErrorKind::WouldBlock));
        drop(held);
        let again = disk.lock("lock").unwrap();
        assert_eq!(kind(disk.lock("lock")), Some(io::ErrorKind::WouldBlock));
        drop((again, other));
        create(disk, "f", b"kept");
        drop(disk.lock("f").unwrap());
        assert_eq!(contents(&disk.open("f", Open::Existing).unwrap()), b"kept");
    })
    .await;
}

async fn a_replaced_file_has_another_identity(pair: Pair) {
    on_disk(pair, |disk| {
        let first = create(disk, "f", b"1");
        let id = first.identity().unwrap();
        assert_eq!(disk.identity("f").unwrap(), Some(id));
        first.append(b"more").unwrap();
        disk.rename("f", "g").unwrap();
        assert_eq!(disk.identity("g").unwrap(), Some(id), "its name is not it");

        create(disk, "f", b"2");
        disk.rename("f", "g").unwrap();
        assert_ne!(disk.identity("g").unwrap(), Some(id));
        disk.remove("g").unwrap();
        create(disk, "g", b"3");
        assert_ne!(disk.identity("g").unwrap(), Some(id));
        assert_eq!(first.identity().unwrap(), id);
    })
    .await;
}

async fn paths_that_could_escape_are_refused(pair: Pair) {
    on_disk(pair, |disk| {
        const REFUSED: Option<io::ErrorKind> = Some(io::ErrorKind::InvalidInput);
        disk.create_dir("d").unwrap();
        create(disk, "f", b"");
        for path in ["", "/f", "..", "../f", "d/../f", "./f", "d//f", "f/", "f\0"] {
            assert_eq!(kind(disk.open(path, Open::Create)), REFUSED, "{path:?}");
            assert_eq!(kind(disk.create_dir(path)), REFUSED, "{path:?}");
            assert_eq!(kind(disk.rename("f", path)), REFUSED, "{path:?}");
            assert_eq!(kind(disk.rename(path, "f")), REFUSED, "{path:?}");
            assert_eq!(kind(disk.remove(path)), REFUSED, "{path:?}");
            assert_eq!(kind(disk.identity(path)), REFUSED, "{path:?}");
            assert_eq!(kind(disk.lock(path)), REFUSED, "{path:?}");
            if !path.is_empty() {
                assert_eq!(kind(disk.list(path)), REFUSED, "{path:?}");
                assert_eq!(kind(disk.sync_dir(path)), REFUSED, "{path:?}");
            }
        }
        assert_eq!(disk.list("").unwrap(), ["d/", "f"]);
    })
    .await;
}

async fn mistakes_have_the_same_error_on_every_disk(pair: Pair) {
    on_disk(pair, |disk| {
        use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
        disk.create_dir("d").unwrap();
        create(disk, "f", b"");
        for (mistake, expected) in [
            (kind(disk.open("none/f", Open::Create)), NotFound),
            (kind(disk.open("f/g", Open::Create)), NotADirectory),
            (kind(disk.open("d", Open::Existing)), IsADirectory),
            (kind(disk.remove("none")), NotFound),
            (kind(disk.remove("d")), IsADirectory),
            (kind(disk.list("none")), NotFound),
            (kind(disk.list("f")), NotADirectory),
            (kind(disk.sync_dir("none")), NotFound),
            (kind(disk.sync_dir("f")), NotADirectory),
            (kind(disk.rename("f", "none/f")), NotFound),
            (kind(disk.rename("f", "d")), IsADirectory),
        ] {
            assert_eq!(mistake, Some(expected));
        }
    })
    .await;
}

async fn syncing_succeeds(pair: Pair) {
    on_disk(pair, |disk| {
        let file = create(disk, "f", b"x");
        file.sync().unwrap();
        file.append(b"y").unwrap();
        file.sync().unwrap();
        disk.sync_dir("").unwrap();
    })
    .await;
}

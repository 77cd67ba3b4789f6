//! Paths, names, and what a loss of power leaves of them.

use std::{io, sync::Arc};

use ron_core::seam::{Disk, Open};

use super::{kind, losing, outcomes, put, put_durably};
use crate::disk::{DiskFaults, SimDisk, enter_offload};

#[test]
fn paths_are_relative_and_without_empty_or_dotted_segments() {
    let _offload = enter_offload();
    let disk = SimDisk::new(1).mount();
    disk.create_dir("d").unwrap();
    let invalid = io::ErrorKind::InvalidInput;
    for path in [
        "/f", "f/", "d//f", ".", "..", "../f", "d/../f", "d/./f", "/", "f\0", "d\\f",
    ] {
        assert_eq!(kind(disk.open(path, Open::Create)), invalid, "{path}");
        assert_eq!(kind(disk.create_dir(path)), invalid, "{path}");
        assert_eq!(kind(disk.rename(path, "x")), invalid, "{path}");
        assert_eq!(kind(disk.rename("x", path)), invalid, "{path}");
        assert_eq!(kind(disk.remove(path)), invalid, "{path}");
        assert_eq!(kind(disk.list(path)), invalid, "{path}");
        assert_eq!(kind(disk.sync_dir(path)), invalid, "{path}");
        assert_eq!(kind(disk.identity(path)), invalid, "{path}");
        assert_eq!(kind(disk.lock(path)), invalid, "{path}");
    }
    assert_eq!(kind(disk.open("", Open::Create)), invalid);
    for path in ["f", "d/f", "..f", "d/f.tmp", "d/ö"] {
        disk.open(path, Open::CreateNew).unwrap();
    }
    // The root has the empty path.
    disk.sync_dir("").unwrap();
    assert_eq!(disk.list("").unwrap(), ["..f", "d/", "f"]);
    for result in [
        disk.create_dir(""),
        disk.identity("").map(drop),
        disk.remove(""),
    ] {
        assert_eq!(kind(result), invalid, "the root is listed and synced only");
    }
}

#[test]
fn open_obeys_what_it_was_asked_about_existence() {
    let _offload = enter_offload();
    let disk = SimDisk::new(1).mount();
    assert_eq!(
        kind(disk.open("f", Open::Existing)),
        io::ErrorKind::NotFound
    );
    disk.open("f", Open::CreateNew).unwrap();
    put(&disk, "f", b"kept");
    assert_eq!(disk.open("f", Open::Existing).unwrap().len().unwrap(), 4);
    assert_eq!(disk.open("f", Open::Create).unwrap().len().unwrap(), 4);
    disk.create_dir("d").unwrap();
    for path in ["f", "d"] {
        assert_eq!(
            kind(disk.open(path, Open::CreateNew)),
            io::ErrorKind::AlreadyExists
        );
    }
    let cases = [
        ("d", io::ErrorKind::IsADirectory),
        ("no/f", io::ErrorKind::NotFound),
        ("f/f", io::ErrorKind::NotADirectory),
    ];
    for (path, expected) in cases {
        assert_eq!(kind(disk.open(path, Open::Create)), expected, "{path}");
        assert_eq!(kind(disk.remove(path)), expected, "{path}");
        assert_eq!(kind(disk.rename("f", path)), expected, "{path}");
    }
    for (path, expected) in &cases[1..] {
        assert_eq!(kind(disk.rename(path, "x")), *expected, "{path}");
    }
    assert_eq!(kind(disk.rename("d", "x")), io::ErrorKind::Unsupported);
    assert_eq!(disk.identity("no/f").unwrap(), None);
    assert_eq!(kind(disk.identity("f/f")), io::ErrorKind::NotADirectory);
    assert_ne!(disk.identity("d").unwrap(), disk.identity("f").unwrap());
    for (dir, expected) in &cases[1..] {
        assert_eq!(kind(disk.list(dir)), *expected, "{dir}");
        assert_eq!(kind(disk.sync_dir(dir)), *expected, "{dir}");
    }
    assert_eq!(kind(disk.remove("gone")), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.rename("gone", "x")), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.create_dir("f")), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.create_dir("f/d")), io::ErrorKind::NotADirectory);
}

#[test]
fn list_is_sorted_and_shows_only_its_own_directory() {
    let _offload = enter_offload();
    let disk = SimDisk::new(1).mount();
    disk.create_dir("b/deep/er").unwrap();
    disk.create_dir("b").unwrap();
    for path in ["c", "b/z", "b/a", "a", "b/deep/x", "b-c"] {
        put(&disk, path, b"");
    }
    assert_eq!(disk.list("").unwrap(), ["a", "b-c", "b/", "c"]);
    assert_eq!(disk.list("b").unwrap(), ["a", "deep/", "z"]);
    assert_eq!(disk.list("b/deep").unwrap(), ["er/", "x"]);
    assert!(disk.list("b/deep/er").unwrap().is_empty());
}

#[test]
fn replaced_file_has_another_identity_and_lives_on_for_who_holds_it() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    let old = put(&disk, "f", b"old");
    let new = put(&disk, "f.tmp", b"newer");
    disk.rename("f.tmp", "f").unwrap();
    assert_ne!(old.identity().unwrap(), new.identity().unwrap());
    let named = disk.identity("f").unwrap();
    assert_eq!(named, Some(new.identity().unwrap()));
    assert_eq!(disk.identity("f.tmp").unwrap(), None);
    assert_eq!(old.append(b"er").unwrap(), 3);
    assert_eq!((sim.bytes_used(), sim.list_files().len()), (10, 1));
    disk.rename("f", "f").unwrap();
    assert_eq!(disk.identity("f").unwrap(), named);
    drop((old, new));
    assert_eq!(sim.bytes_used(), 5);
    disk.sync_dir("").unwrap();
    sim.power_off();
    assert_eq!((sim.list_files(), sim.bytes_used()), (vec!["f".into()], 0));
}

#[test]
fn synced_contents_without_a_synced_name_are_gone() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    disk.create_dir("d").unwrap();
    put(&disk, "d/f", b"x").sync().unwrap();
    disk.sync_dir("d").unwrap();
    assert_eq!(
        sim.read_durable("d/f"),
        None,
        "d itself has no durable name"
    );
    disk.sync_dir("").unwrap();
    assert_eq!(sim.read_durable("d/f").unwrap(), b"x");
    disk.create_dir("e/g").unwrap();
    put(&disk, "e/g/f", b"x").sync().unwrap();
    disk.sync_dir("e/g").unwrap();
    disk.sync_dir("").unwrap();
    sim.power_off();
    assert_eq!(sim.list_files(), ["d/f"]);
    let disk = sim.mount();
    assert_eq!(disk.list("e").unwrap(), [""; 0]);
    disk.create_dir("e/g").unwrap();
    assert_eq!(disk.list("e/g").unwrap(), [""; 0], "nothing comes back");
}

#[test]
fn rename_replaces_in_one_step_even_through_a_power_loss() {
    let left = outcomes(
        losing(),
        |_, disk| {
            put_durably(disk, "f", b"old");
            put(disk, "tmp", b"new").sync().unwrap();
            disk.sync_dir("").unwrap();
            disk.rename("tmp", "f").unwrap();
        },
        |sim| (sim.list_files(), sim.read_file("f").unwrap()),
    );
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(
        left.into_iter().collect::<Vec<_>>(),
        [
            (names(&["f"]), b"new".to_vec()),
            (names(&["f", "tmp"]), b"old".to_vec())
        ]
    );
}

#[test]
fn of_each_directory_a_prefix_of_its_changes_survives() {
    let left = outcomes(
        losing(),
        |_, disk| {
            disk.create_dir("d").unwrap();
            disk.sync_dir("").unwrap();
            put(disk, "a", b"");
            put(disk, "d/x", b"");
            disk.rename("a", "b").unwrap();
            disk.remove("b").unwrap();
        },
        |sim| sim.list_files().join(" "),
    );
    assert_eq!(
        left.into_iter().collect::<Vec<_>>(),
        ["", "a", "a d/x", "b", "b d/x", "d/x"]
    );
}

#[test]
fn rename_between_directories_is_whole_or_nothing() {
    let prepare = |disk: &Arc<dyn Disk>| {
        disk.create_dir("d").unwrap();
        put_durably(disk, "f", b"");
        put(disk, "g", b"");
        disk.rename("g", "f").unwrap();
        put(disk, "d/x", b"");
        disk.rename("f", "d/f").unwrap();
        put(disk, "h", b"");
    };
    let left = outcomes(
        losing(),
        |_, disk| prepare(disk),
        |sim| sim.list_files().join(" "),
    );
    assert_eq!(
        left.into_iter().collect::<Vec<_>>(),
        ["d/f d/x", "d/f d/x h", "d/x f", "d/x f g", "f", "f g"]
    );
    // Syncing one of the two directories carries the other's changes up to the rename.
    let synced = outcomes(
        DiskFaults::default(),
        |_, disk| {
            prepare(disk);
            disk.sync_dir("d").unwrap();
        },
        |sim| sim.list_files().join(" "),
    );
    assert_eq!(synced.into_iter().collect::<Vec<_>>(), ["d/f d/x"]);
}

#[test]
fn unsynced_removal_may_come_back_with_its_contents() {
    let left = outcomes(
        losing(),
        |_, disk| {
            put_durably(disk, "f", b"there");
            disk.remove("f").unwrap();
        },
        |sim| sim.read_file("f"),
    );
    assert_eq!(
        left.into_iter().collect::<Vec<_>>(),
        [None, Some(b"there".to_vec())]
    );
    let synced = outcomes(
        losing(),
        |_, disk| {
            put_durably(disk, "f", b"there");
            disk.remove("f").unwrap();
            disk.sync_dir("").unwrap();
        },
        |sim| sim.read_file("f"),
    );
    assert_eq!(synced.into_iter().collect::<Vec<_>>(), [None]);
}

#[test]
fn file_without_any_way_to_reach_it_is_forgotten() {
    let _offload = enter_offload();
    let sim = SimDisk::new(1);
    let disk = sim.mount();
    let file = put_durably(&disk, "f", b"x");
    disk.remove("f").unwrap();
    disk.sync_dir("").unwrap();
    assert_eq!(sim.lock().files.len(), 1, "held open");
    drop(file);
    assert_eq!(sim.lock().files.len(), 0);
    drop(put_durably(&disk, "g", b"x"));
    disk.remove("g").unwrap();
    assert_eq!(sim.lock().files.len(), 1, "its durable name leads there");
    disk.sync_dir("").unwrap();
    assert_eq!(sim.lock().files.len(), 0);
    let _held = put(&disk, "h", b"x");
    let _kept = put_durably(&disk, "i", b"xyz");
    disk.remove("h").unwrap();
    sim.power_off();
    assert_eq!(sim.lock().files.len(), 2);
    assert_eq!(sim.bytes_used(), 3);
    let disk = sim.mount();
    let held = put_durably(&disk, "j", b"x");
    disk.remove("j").unwrap();
    disk.sync_dir("").unwrap();
    assert_eq!(sim.lock().files.len(), 3);
    sim.kill();
    assert_eq!(sim.lock().files.len(), 2, "no handle outlives its process");
    drop(held);
}

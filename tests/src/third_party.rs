//! A published audit log judged by code that was not written here: each checker takes the directory, the
//! public keys and perhaps an older checkpoint, and rebuilds everything from the bytes.
//!
//! Every checker verifies a signature of the checkpoint, hashes all entries to its root, compares each hash
//! tile, and demands that the older checkpoint is a prefix. Only the one in Python knows ML-DSA.

#![allow(
    clippy::disallowed_methods,
    reason = "reads directories and starts programs, as an auditor would"
)]

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use signed_note::{Note, StandardVerifier, VerifierList};
use tlog_tiles::{Checkpoint, Hash, HashReader, Tile, TileHashReader, TileReader};
use xtask::{third_party, tree};

pub const CRATES: &str = "crates signed_note and tlog_tiles";
pub const GO: &str = "golang.org/x/mod/sumdb";
pub const PYTHON: &str = "hashlib and PyPI cryptography";

/// What a checker says: nothing, or in one line what is wrong.
pub type Verdict = Result<(), String>;

/// Asks every checker about `dir` (with `checkpoint` and `tile/` in it). `keys` has a verifier key a line,
/// Ed25519 first, ML-DSA-44 second; `older` is a checkpoint that was saved before.
///
/// The first call on a machine builds the checkers, which takes some seconds.
pub fn check_directory(
    dir: &Path,
    keys: &str,
    older: Option<&[u8]>,
) -> Vec<(&'static str, Verdict)> {
    let check = |(name, checker): &(_, Checker)| (*name, checker(dir, keys, older));
    CHECKERS.iter().map(check).collect()
}

/// Takes directory, keys and perhaps an older checkpoint, as [`check_directory`].
pub type Checker = fn(&Path, &str, Option<&[u8]>) -> Verdict;

/// All of them, to be asked one by one.
pub const CHECKERS: [(&str, Checker); 3] = [
    (CRATES, check_with_crates),
    (GO, check_with_go),
    (PYTHON, check_with_python),
];

/// Whether each of the older checkpoints is a prefix of the log of `dir`, by the crates: roots are computed
/// from the entries.
pub fn check_prefixes<'a>(
    dir: &Path,
    keys: &str,
    olders: impl IntoIterator<Item = &'a [u8]>,
) -> Verdict {
    let key = keys.lines().next().unwrap_or_default();
    let note = fs::read(dir.join("checkpoint")).map_err(|error| error.to_string())?;
    let head = open_checkpoint(&note, key)?;
    let stored = Site(dir.to_owned()).rebuild(&head)?;
    for older in olders {
        let older = open_checkpoint(older, key)?;
        let size = older.size();
        if size > head.size() {
            return Err(format!("an older checkpoint covers more entries: {size}"));
        }
        if tlog_tiles::tree_hash(size, &stored).map_err(said)? != *older.hash() {
            return Err(format!("the checkpoint of {size} entries is no prefix"));
        }
    }
    Ok(())
}

fn check_with_go(dir: &Path, keys: &str, older: Option<&[u8]>) -> Verdict {
    let checker = third_party::go_checker(&tree::root())?;
    ask(Command::new(checker), dir, keys, older)
}

fn check_with_python(dir: &Path, keys: &str, older: Option<&[u8]>) -> Verdict {
    let mut command = python_script("check.py")?;
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    ask(command, dir, keys, older)
}

/// Signatures by PyPI cryptography: a process that answers one JSON line with another.
pub struct Signatures {
    child: Child,
    jobs: ChildStdin,
    answers: io::BufReader<ChildStdout>,
}

impl Signatures {
    pub fn start() -> Result<Signatures, String> {
        let mut command = python_script("signatures.py")?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(jobs), Some(answers)) => Ok(Signatures {
                child,
                jobs,
                answers: io::BufReader::new(answers),
            }),
            _ => Err("signatures.py has no pipes".into()),
        }
    }

    pub fn ask(&mut self, job: &str) -> Result<String, String> {
        use io::{BufRead, Write};

        let failed = |error: io::Error| format!("signatures.py: {error}");
        writeln!(self.jobs, "{job}").map_err(failed)?;
        let mut answer = String::new();
        match self.answers.read_line(&mut answer).map_err(failed)? {
            0 => Err(format!("signatures.py ended at {job}")),
            _ => Ok(answer),
        }
    }
}

impl Drop for Signatures {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn python_script(name: &str) -> Result<Command, String> {
    let root = tree::root();
    let mut command = Command::new(third_party::python(&root)?);
    command.arg(root.join("tests/third_party/python").join(name));
    Ok(command)
}

/// Runs `command DIR KEYS [OLDER]`.
fn ask(mut command: Command, dir: &Path, keys: &str, older: Option<&[u8]>) -> Verdict {
    let files = Handed::new(keys, older).map_err(|error| error.to_string())?;
    command.arg(dir).arg(files.0.join("keys"));
    if older.is_some() {
        command.arg(files.0.join("older"));
    }
    let out = command.output().map_err(|error| error.to_string())?;
    match out.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&out.stderr);
            Err(said.trim().lines().last().unwrap_or("failed").to_owned())
        }
    }
}

/// What is handed over as files, removed afterwards.
struct Handed(PathBuf);

impl Handed {
    fn new(keys: &str, older: Option<&[u8]>) -> io::Result<Handed> {
        use std::sync::atomic::{AtomicU64, Ordering};

        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ron-third-party-{}-{number}", std::process::id());
        let handed = Handed(std::env::temp_dir().join(name));
        fs::create_dir_all(&handed.0)?;
        fs::write(handed.0.join("keys"), keys)?;
        fs::write(handed.0.join("older"), older.unwrap_or_default())?;
        Ok(handed)
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

// ------------------------------------------------------------------------------------- the crates

fn check_with_crates(dir: &Path, keys: &str, older: Option<&[u8]>) -> Verdict {
    let site = Site(dir.to_owned());
    let key = keys.lines().next().unwrap_or_default();
    let note = fs::read(dir.join("checkpoint")).map_err(|error| error.to_string())?;
    let head = open_checkpoint(&note, key)?;
    let stored = site.rebuild(&head)?;
    for tile in Tile::new_tiles(8, 0, head.size()) {
        let ours = site.read_tile(&tile)?;
        let theirs = tile.read_data(&stored).map_err(said)?;
        if ours != theirs {
            return Err(format!("{} differs", tile.path()));
        }
    }
    let Some(older) = older else {
        return Ok(());
    };
    let older = open_checkpoint(older, key)?;
    match older.size() {
        size if size > head.size() => {
            return Err("the older checkpoint covers more entries".into());
        }
        0 => return Ok(()),
        _ => {}
    }
    // The proof is made from the published tiles alone.
    let tiles = TileHashReader::new(head.size(), *head.hash(), &site);
    let proof = tlog_tiles::prove_tree(head.size(), older.size(), &tiles).map_err(said)?;
    let (new, old) = ((head.size(), *head.hash()), (older.size(), *older.hash()));
    tlog_tiles::check_tree(&proof, new.0, new.1, old.0, old.1).map_err(said)
}

fn open_checkpoint(note: &[u8], key: &str) -> Result<Checkpoint, String> {
    let note = Note::from_bytes(note).map_err(said)?;
    let verifier = StandardVerifier::new(key).map_err(|error| format!("{error:?}"))?;
    let known = VerifierList::new(vec![Box::new(verifier)]);
    let (verified, _) = note.verify(&known).map_err(said)?;
    let head = Checkpoint::from_bytes(note.text()).map_err(said)?;
    match verified.first() {
        Some(line) if line.name() == head.origin() => Ok(head),
        _ => Err("not signed by this key under the log's own name".into()),
    }
}

struct Site(PathBuf);

/// Their store of hashes, filled from the entries.
struct Stored(Vec<Hash>);

impl HashReader for Stored {
    fn read_hashes(&self, indexes: &[u64]) -> Result<Vec<Hash>, tlog_tiles::Error> {
        let hash = |index: &u64| self.0.get(*index as usize).copied();
        let hashes: Option<_> = indexes.iter().map(hash).collect();
        hashes.ok_or(tlog_tiles::Error::InvalidTile)
    }
}

impl TileReader for Site {
    fn height(&self) -> u8 {
        8
    }

    fn read_tiles(&self, tiles: &[Tile]) -> Result<Vec<Vec<u8>>, tlog_tiles::Error> {
        let read = |tile: &Tile| self.read_tile(tile);
        let tiles: Result<_, _> = tiles.iter().map(read).collect();
        tiles.map_err(|_| tlog_tiles::Error::InvalidTile)
    }

    fn save_tiles(&self, _: &[Tile], _: &[Vec<u8>]) {}
}

impl Site {
    /// Their paths name the tile height, those of the published layout do not; and what they call data
    /// tiles are entry bundles.
    fn read_tile(&self, tile: &Tile) -> Result<Vec<u8>, String> {
        let path = tile.path().replacen("tile/8/", "tile/", 1);
        let path = path.replacen("tile/data/", "tile/entries/", 1);
        fs::read(self.0.join(&path)).map_err(|error| format!("{path}: {error}"))
    }

    fn rebuild(&self, head: &Checkpoint) -> Result<Stored, String> {
        let mut stored = Stored(Vec::new());
        let mut n = 0;
        while n < head.size() {
            let width = (head.size() - n).min(256) as u32;
            let bundle = self.read_tile(&Tile::new(8, 0, n / 256, width, true))?;
            let mut bytes = &bundle[..];
            for _ in 0..width {
                let cut = || format!("entry {n} is cut off");
                let (length, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
                let length = usize::from(u16::from_be_bytes(*length));
                let (entry, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
                let hashes = tlog_tiles::stored_hashes(n, entry, &stored).map_err(said)?;
                stored.0.extend(hashes);
                bytes = rest;
                n += 1;
            }
            if !bytes.is_empty() {
                return Err(format!("bytes behind entry {}", n - 1));
            }
        }
        let root = tlog_tiles::tree_hash(head.size(), &stored).map_err(said)?;
        match root == *head.hash() {
            true => Ok(stored),
            false => Err("the entries have another root".into()),
        }
    }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

//! `ron-kms audit`: verification for whoever has the files and the public keys.
//!
//! Exit codes: 0 it verifies, 1 it does not, 2 it cannot be read or the arguments are wrong. What is found
//! goes to standard output, one line of error to standard error.

use std::{
    io::{IsTerminal, Write, stderr, stdout},
    path::{Path, PathBuf},
    process::ExitCode,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ron_core::seam::{Disk, Open};
use ron_io::FileDisk;
use serde_json::{Value, json};

use crate::{
    audit::{
        checkpoint::Trust,
        note::{MAX_NOTE, VerifierKey},
    },
    offline::{
        self, OfflineError, Progress, ProvenEntry, Summary, parse_keys, trust_of, verify_directory,
        verify_receipt,
    },
};

#[derive(Args)]
pub struct AuditArgs {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Subcommand)]
enum AuditCommand {
    /// Check every record, entry, tile and signature of a log
    Verify(VerifyArgs),
    /// Check a receipt
    #[command(subcommand)]
    Receipt(ReceiptCommand),
}

#[derive(Args)]
struct VerifyArgs {
    /// The data directory of the service, or a copy of its `audit` directory
    dir: PathBuf,
    /// A verifier key, or a file with one a line; each must have signed. Without it the directory's own
    /// `keys.txt` is used, which proves only that the directory is whole
    #[arg(long = "key", value_name = "VKEY|FILE")]
    keys: Vec<String>,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum ReceiptCommand {
    /// Check that an entry is in the log that signed the receipt
    Verify(ReceiptArgs),
}

#[derive(Args)]
struct ReceiptArgs {
    /// The receipt
    file: PathBuf,
    /// The entry, if the receipt does not carry it, or to check this one instead
    #[arg(long, value_name = "FILE")]
    entry: Option<PathBuf>,
    /// A verifier key, or a file with one a line; at least one is needed, and each must have signed
    #[arg(long = "key", value_name = "VKEY|FILE")]
    keys: Vec<String>,
}

pub fn run(args: AuditArgs) -> ExitCode {
    let done = match args.command {
        AuditCommand::Verify(args) => verify(&args),
        AuditCommand::Receipt(ReceiptCommand::Verify(args)) => receipt(&args),
    };
    let (code, text) = match done {
        Ok(found) => {
            // A reader that went away has seen enough: the code still tells.
            let _ = stdout().write_all(found.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(Failure::DoesNotVerify(text)) => (1, text),
        Err(Failure::Unreadable(text)) => (2, text),
    };
    let _ = writeln!(stderr(), "error: {text}");
    ExitCode::from(code)
}

enum Failure {
    DoesNotVerify(String),
    Unreadable(String),
}

/// Files beyond this are no keys, entries or receipts.
const MAX_FILE: u64 = 4 * MAX_NOTE as u64;

fn verify(args: &VerifyArgs) -> Result<String, Failure> {
    let trust = match &args.keys[..] {
        [] => None,
        keys => Some(read_keys(keys)?),
    };
    let shown = args.dir.display();
    // Opening a disk makes its root; a name mistyped must not leave a directory behind.
    if !args.dir.is_dir() {
        return Err(Failure::Unreadable(format!("{shown}: no such directory")));
    }
    let dir = match args.dir.join("audit").is_dir() {
        true => "audit",
        false => "",
    };
    let inside = args.dir.join(dir);
    if !inside.join(offline::LOG).exists() && !inside.join(offline::CHECKPOINT).exists() {
        let text = format!("{shown}: no audit log: neither log nor checkpoint is there");
        return Err(Failure::Unreadable(text));
    }
    let disk = FileDisk::open(&args.dir).map_err(|error| unreadable(&args.dir, &error))?;
    let bar = bar();
    let mut progress = |now: Progress| {
        bar.set_length(now.total);
        bar.set_position(now.done);
    };
    let verified = verify_directory(&disk, dir, trust.as_ref(), &mut progress);
    bar.finish_and_clear();
    let summary = verified.map_err(|error: OfflineError| {
        let text = inside.join(&error.file).display().to_string();
        let text = format!("{text}: {}", error.fault);
        match error.is_unreadable() {
            true => Failure::Unreadable(text),
            false => Failure::DoesNotVerify(text),
        }
    })?;
    Ok(match args.json {
        true => format!("{}\n", to_json(&summary)),
        false => to_text(&summary),
    })
}

fn receipt(args: &ReceiptArgs) -> Result<String, Failure> {
    let trust = read_keys(&args.keys)?;
    let receipt = read_file(&args.file)?;
    let entry = args.entry.as_deref().map(read_file).transpose()?;
    let shown = args.file.display();
    let proven = verify_receipt(&receipt, entry.as_deref(), &trust)
        .map_err(|fault| Failure::DoesNotVerify(format!("{shown}: {fault}")))?;
    Ok(proven_text(&proven))
}

/// A verifier key has a plus in it; a file name that has one too can be given as ./name.
fn read_keys(keys: &[String]) -> Result<Trust, Failure> {
    let mut all = Vec::new();
    for key in keys {
        let refused = |what: String| Failure::Unreadable(format!("--key: {what}"));
        match VerifierKey::parse(key) {
            Ok(key) => all.push(key),
            Err(error) if looks_like_a_key(key) => return Err(refused(error.to_string())),
            Err(_) => {
                let bytes = read_file(Path::new(key))?;
                let text = String::from_utf8_lossy(&bytes);
                let read = parse_keys(&text).map_err(|error| refused(format!("{key}: {error}")))?;
                all.extend(read.keys);
            }
        }
    }
    trust_of(all).map_err(|error| Failure::Unreadable(format!("--key: {error}")))
}

fn looks_like_a_key(text: &str) -> bool {
    text.matches('+').count() >= 2 && !Path::new(text).exists()
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let whole = std::path::absolute(path).map_err(|error| unreadable(path, &error))?;
    let parts = (whole.parent(), whole.file_name().and_then(|n| n.to_str()));
    let (Some(parent), Some(name)) = parts else {
        let text = format!("{}: not the name of a file", path.display());
        return Err(Failure::Unreadable(text));
    };
    if !whole.is_file() {
        let text = format!("{}: no such file", path.display());
        return Err(Failure::Unreadable(text));
    }
    let disk = FileDisk::open(parent).map_err(|error| unreadable(path, &error))?;
    read_bounded(&disk, name).map_err(|error| unreadable(path, &error))
}

fn read_bounded(disk: &dyn Disk, name: &str) -> std::io::Result<Vec<u8>> {
    let file = disk.open(name, Open::Existing)?;
    let len = file.len()?;
    if len > MAX_FILE {
        let text = format!("has {len} bytes, at most {MAX_FILE} are allowed");
        return Err(std::io::Error::other(text));
    }
    let mut bytes = vec![0; len as usize];
    let mut at = 0;
    while at < bytes.len() {
        match file.read_at(at as u64, &mut bytes[at..])? {
            0 => break,
            read => at += read,
        }
    }
    bytes.truncate(at);
    Ok(bytes)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Unreadable(format!("{}: {error}", path.display()))
}

fn bar() -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {eta}");
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn to_json(summary: &Summary) -> Value {
    let hex: String = summary.log_id.iter().map(|b| format!("{b:02x}")).collect();
    json!({
        "verified": true,
        "origin": summary.origin,
        "log_id": hex,
        "size": summary.size,
        "root": STANDARD.encode(summary.root),
        "checkpoint_times_s": summary.times_s,
        "first_at_ms": summary.first_at_ms,
        "last_at_ms": summary.last_at_ms,
        "operations": summary.operations,
        "gap_records": summary.gap_records,
        "lost": summary.lost,
        "restart_gaps": summary.restart_gaps,
        "missing_at_most": summary.missing_at_most,
        "unused": summary.unused,
        "open": summary.open.map_or(0, |open| open.at_most),
        "checkpoints_told": summary.checkpoints_told,
        "beyond_checkpoint": summary.beyond_checkpoint,
        "torn_bytes": summary.torn_bytes,
        "own_keys": summary.own_keys,
    })
}

fn to_text(summary: &Summary) -> String {
    let mut lines = vec![
        format!("verified   {}", summary.origin),
        format!("entries    {}", summary.size),
        format!("root       {}", STANDARD.encode(summary.root)),
        format!("operations {}", summary.operations),
        format!(
            "lost       {} in {} gap records",
            summary.lost, summary.gap_records
        ),
        format!(
            "missing    at most {} in {} restart gaps",
            summary.missing_at_most, summary.restart_gaps
        ),
    ];
    if let Some(open) = summary.open {
        lines.push(format!(
            "open       at most {} numbers: the log was not closed",
            open.at_most
        ));
    }
    if summary.beyond_checkpoint > 0 {
        lines.push(format!(
            "beyond     {} records that the checkpoint does not cover yet",
            summary.beyond_checkpoint
        ));
    }
    if summary.torn_bytes > 0 {
        lines.push(format!(
            "torn       {} bytes of an unfinished append",
            summary.torn_bytes
        ));
    }
    if summary.own_keys {
        lines.push("keys       the directory's own: give --key to know who signed".into());
    }
    lines.join("\n") + "\n"
}

fn proven_text(proven: &ProvenEntry) -> String {
    let head = &proven.verified.checkpoint;
    format!(
        "verified   {}\nindex      {} of {}\nroot       {}\nentry      {}\n",
        head.origin,
        proven.record.index,
        head.size,
        STANDARD.encode(head.root),
        String::from_utf8_lossy(&proven.entry),
    )
}

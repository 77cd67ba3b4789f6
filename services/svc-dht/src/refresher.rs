//! Keeps the table alive: starts a writer for each bucket that comes into use, looks up an id in buckets that
//! were quiet for long, and saves the table, so that the next start is warm.
//!
//! Always: a bucket gets its writer at once, whatever else is under way; the file is replaced as a whole; the
//! last save comes after the last writer has ended.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use ron_core::{
    Env, durable,
    seam::{BoxFuture, Disk, Open},
    supervisor::{SupervisorHandle, TaskContext, TaskSpec},
};

use crate::{
    bootstrapper, bucket_writer,
    dht::Dht,
    identity::NetworkId,
    lookup::Goal,
    metrics::Family,
    node::Node,
    routing::saved::{self, SavedPeer},
};

/// The table of the last life, below the data directory.
pub const FILE: &str = "table.saved";

/// When the table is first saved. A seed that crashed before that would come back with nobody to ask, take itself for the
/// first of its network, and gather whoever else comes back.
const FIRST_SAVE: Duration = Duration::from_secs(3);

/// What it needs to start a writer.
#[derive(Clone)]
pub struct Starter {
    pub handle: SupervisorHandle,
    pub spec: TaskSpec,
}

pub async fn run(dht: Dht, starter: Starter, context: TaskContext) {
    let node = dht.node().clone();
    let ms = Duration::from_millis;
    let (save_every, look_every) = (
        ms(node.config().routing.save_ms),
        ms(node.config().routing.refresh_ms / 8).max(ms(100)),
    );
    let now = node.env.now();
    let (mut save_at, mut look_at) = (now + save_every.min(FIRST_SAVE), now + look_every);
    let mut upkeep: Option<BoxFuture<'_, Upkeep>> = None;
    let mut memory = Memory::default();
    let mut open = true;
    loop {
        let due = async {
            match &mut upkeep {
                Some(work) => Some(work.as_mut().await),
                None => {
                    node.env.sleep_until(save_at.min(look_at)).await;
                    None
                }
            }
        };
        tokio::select! {
            biased;
            start = node.routes.next_start(), if open => match start {
                Some((index, queue)) => {
                    let (shared, peers) = (node.clone(), dht.peers().clone());
                    let factory = move |context| bucket_writer::run(shared.clone(), peers.clone(), index, queue.clone(), context);
                    // Refused only while draining: then nobody needs a writer.
                    // Boxed, as all that is rare here: a node has one refresher, and it waits nearly always.
                    let _ = Box::pin(starter.handle.start(starter.spec, factory)).await;
                }
                None => open = false,
            },
            () = context.stop.wait() => break,
            done = due => match done {
                Some(done) => {
                    upkeep = None;
                    memory = done.memory;
                    let now = node.env.now();
                    match done.saved {
                        true => save_at = now + save_every,
                        false => look_at = now + look_every,
                    }
                }
                None => {
                    let now = node.env.now();
                    let memory = std::mem::take(&mut memory);
                    upkeep = Some(keep_up(&dht, memory, save_at <= now));
                }
            },
        }
    }
    drop(upkeep);
    Box::pin(save(&node, memory.saved)).await;
}

/// What it remembers between two rounds.
#[derive(Default)]
struct Memory {
    /// The end of the last file: its checksum.
    saved: Option<[u8; 8]>,
    /// When buckets were refreshed.
    refreshed: BTreeMap<u8, u32>,
}

struct Upkeep {
    memory: Memory,
    saved: bool,
}

fn keep_up(dht: &Dht, mut memory: Memory, is_save: bool) -> BoxFuture<'_, Upkeep> {
    Box::pin(async move {
        if is_save {
            memory.saved = save(dht.node(), memory.saved).await;
        } else {
            refresh(dht, &mut memory).await;
        }
        Upkeep {
            memory,
            saved: is_save,
        }
    })
}

/// One bucket after the other; who is alone asks the seeds again.
async fn refresh(dht: &Dht, memory: &mut Memory) {
    let node = dht.node();
    let counts = node.table.counts();
    if counts.peers == counts.dead {
        bootstrapper::call_seeds(dht).await;
        let deadline = node.env.now() + node.config().lookup_deadline();
        let _ = dht.ask(Goal::Closest, node.id(), deadline, false).await;
    }
    while let Some(index) = quiet(node, memory) {
        memory.refreshed.insert(index, node.seconds());
        let mut random = [0; 32];
        node.env.fill_random(&mut random);
        let target = node.table.id_in(index, random);
        let deadline = node.env.now() + node.config().lookup_deadline();
        let _ = dht.ask(Goal::Closest, target, deadline, false).await;
        ron_core::sometimes!("dht.bucket_asked_again");
        node.env
            .probe("dht.bucket_refreshed", index.into(), format_args!(""));
    }
}

/// The nearest bucket from which nothing was heard for long, and that was not refreshed since. Nearest first, because a
/// search among the neighbours hears from those of all the nearer buckets too.
fn quiet(node: &Node, memory: &Memory) -> Option<u8> {
    let now = node.seconds();
    let long = (node.config().routing.refresh_ms / 1000).max(1) as u32;
    let is_quiet = |index: u8, heard: u32| {
        let refreshed = memory.refreshed.get(&index).copied().unwrap_or(0);
        now >= heard.max(refreshed).saturating_add(long)
    };
    let heard = node.table.buckets().map(|(index, view)| {
        let heard = view.iter().map(|e| e.last_seen_s()).max();
        (index, heard.unwrap_or(0))
    });
    heard
        .filter(|(index, heard)| is_quiet(*index, *heard))
        .map(|(index, _)| index)
        .min()
}

/// Writes the table if it is another than the last one; the end of what lies on the disk now.
async fn save(node: &Arc<Node>, last: Option<[u8; 8]>) -> Option<[u8; 8]> {
    let bytes = saved::encode(&node.network.0, &saved::peers(&node.table));
    let end = bytes.last_chunk().copied();
    if end == last {
        return last;
    }
    let written = node.env.disk(move |disk| write(disk, &bytes)).await;
    match written.map_err(io::Error::other).flatten() {
        Ok(()) => {
            node.metrics.inc(|hot| &hot.saves);
            end
        }
        Err(error) => {
            node.metrics.count(Family::IoErrors, "table");
            tracing::error!(%error, "the routing table could not be saved");
            None
        }
    }
}

fn write(disk: &Arc<dyn Disk>, bytes: &[u8]) -> io::Result<()> {
    durable::replace(&**disk, FILE, bytes).map(|_| ())
}

/// The peers of an earlier life; a file that is of no use is a cold start, and the reason is told.
pub async fn load(env: &Env, network: NetworkId) -> (Vec<SavedPeer>, Option<String>) {
    let read = env.disk(read).await;
    let bytes = match read.map_err(io::Error::other).flatten() {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return (Vec::new(), None),
        Err(error) => return (Vec::new(), Some(format!("{FILE}: {error}"))),
    };
    match saved::decode(&bytes, &network.0) {
        Ok(peers) => (peers, None),
        Err(error) => (Vec::new(), Some(format!("{FILE}: {error}; a cold start"))),
    }
}

fn read(disk: &Arc<dyn Disk>) -> io::Result<Vec<u8>> {
    let file = disk.open(FILE, Open::Existing)?;
    let len = usize::try_from(file.len()?)
        .unwrap_or(usize::MAX)
        .min(saved::MAX_BYTES);
    let mut bytes = vec![0; len];
    let mut at = 0;
    while at < len {
        match file.read_at(at as u64, &mut bytes[at..])? {
            0 => break,
            n => at += n,
        }
    }
    bytes.truncate(at);
    Ok(bytes)
}

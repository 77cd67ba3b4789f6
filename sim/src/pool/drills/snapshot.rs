//! The snapshot: whoever loads sees the value published last, and keeps what it loaded before.

use std::sync::Arc;

use ron_core::{SnapshotReader, snapshot};

use super::{Bench, Verdict, agree};

pub async fn drill(bench: &mut Bench) -> Verdict {
    let mut last = bench.pick(0, 9);
    let (mut writer, reader) = snapshot(last);
    let mut readers: Vec<SnapshotReader<u64>> = vec![reader];
    let mut kept: Vec<(u64, Arc<u64>)> = Vec::new();
    for n in 0..20 {
        match bench.pick(0, 5) {
            0..=1 => {
                last = 100 * (n + 1) + bench.pick(0, 99);
                writer.publish(last);
            }
            2 => readers.push(writer.reader()),
            3 => readers.push(readers[bench.index(readers.len())].clone()),
            4 if readers.len() > 1 => drop(readers.remove(0)),
            _ => {
                let span = bench.ms(0, 1);
                bench.env.sleep(span).await;
            }
        }
        for reader in &readers {
            agree("load", *reader.load(), last)?;
        }
        agree("the writer's load", *writer.load(), last)?;
        kept.push((last, readers[0].load()));
        for (then, value) in &kept {
            agree("a value loaded earlier", **value, *then)?;
        }
    }
    drop(writer);
    agree("load without a writer", *readers[0].load(), last)
}

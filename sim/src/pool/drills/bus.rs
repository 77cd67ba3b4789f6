//! The bus: each subscriber as a list of its own, cut at the capacity, with a count of what was cut off.

use std::{
    collections::VecDeque,
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
};

use ron_core::bus::{Bus, KernelEvent, Subscriber};

use super::{Bench, Verdict, agree, demand, hands::Woken};

/// A subscriber and what it has yet to read.
struct Reader {
    subscriber: Subscriber,
    unread: VecDeque<u64>,
    /// Lost, and not known to be counted: that happens when it reads on.
    lost: u64,
    woken: Arc<Woken>,
    /// It found nothing and waits.
    waits: bool,
}

pub fn drill(bench: &mut Bench) -> Verdict {
    let capacity = bench.pick(0, 6) as usize;
    let bus = Bus::with_capacity(capacity);
    let capacity = capacity.max(1);
    let (mut readers, mut counted, mut version): (Vec<Reader>, u64, u64) = (Vec::new(), 0, 0);
    for _ in 0..60 {
        match bench.pick(0, 7) {
            0 if readers.len() < 4 => readers.push(Reader::new(&bus)),
            1..=4 => {
                version += 1;
                bus.publish(KernelEvent::ConfigUpdated { version });
                for reader in &mut readers {
                    reader.published(version, capacity)?;
                }
            }
            5..=6 if !readers.is_empty() => {
                let at = bench.index(readers.len());
                counted += readers[at].read()?;
            }
            7 if !readers.is_empty() => {
                // First it reads all, so that nothing it lost is left uncounted.
                let mut reader = readers.remove(bench.index(readers.len()));
                counted += reader.read_all()?;
            }
            _ => {}
        }
        let most = counted + readers.iter().map(|reader| reader.lost).sum::<u64>();
        let told = bus.lagged();
        demand((counted..=most).contains(&told), || {
            format!("lagged: expected {counted} to {most}, came {told}")
        })?;
    }
    for reader in readers.iter_mut().skip(1) {
        counted += reader.read_all()?;
    }
    let mut first = readers.into_iter().next();
    counted += first.as_mut().map_or(Ok(0), Reader::read_all)?;
    agree("lagged once all is read", bus.lagged(), counted)?;
    drop(bus);
    let Some(mut first) = first else {
        return Ok(());
    };
    agree("the end wakes who waits", first.woken.take(), true)?;
    agree("the end", first.poll(), Poll::Ready(None))
}

impl Reader {
    fn new(bus: &Bus) -> Self {
        Reader {
            subscriber: bus.subscribe(),
            unread: VecDeque::new(),
            lost: 0,
            woken: Arc::default(),
            waits: false,
        }
    }

    fn published(&mut self, version: u64, capacity: usize) -> Verdict {
        self.unread.push_back(version);
        if self.unread.len() > capacity {
            self.unread.pop_front();
            self.lost += 1;
        }
        if !std::mem::take(&mut self.waits) {
            return Ok(());
        }
        agree("news wake who waits", self.woken.take(), true)
    }

    /// Reads one event; returns how many it learned that it had lost.
    fn read(&mut self) -> Result<u64, String> {
        let learned = std::mem::take(&mut self.lost);
        let expected = match self.unread.pop_front() {
            Some(version) => Poll::Ready(Some(KernelEvent::ConfigUpdated { version })),
            None => Poll::Pending,
        };
        self.waits = expected.is_pending();
        let came = self.poll();
        agree("the next event", came, expected)?;
        Ok(learned)
    }

    fn read_all(&mut self) -> Result<u64, String> {
        let mut learned = self.read()?;
        while !self.waits {
            learned += self.read()?;
        }
        Ok(learned)
    }

    fn poll(&mut self) -> Poll<Option<KernelEvent>> {
        let waker = self.woken.clone().into();
        pin!(self.subscriber.recv()).poll(&mut Context::from_waker(&waker))
    }
}

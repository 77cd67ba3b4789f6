//! The bounded pools behind `offload`, without threads: first come, first served.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Mutex},
    task::{Poll, Waker},
};

use ron_core::seam::Pool;

#[derive(Default)]
pub struct OffloadPools {
    /// A process uses two or three.
    pools: Mutex<Vec<(Pool, Arc<Mutex<Turns>>)>>,
}

#[derive(Default)]
struct Turns {
    next_ticket: u64,
    running: usize,
    /// Tickets that wait, in order, each with whom to wake.
    waiting: VecDeque<(u64, Option<Waker>)>,
}

impl OffloadPools {
    /// Takes a place in the pool's line.
    pub fn queue(&self, pool: Pool) -> Ticket {
        let turns = self.turns(pool);
        let mut state = turns.lock().unwrap();
        let number = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back((number, None));
        drop(state);
        Ticket {
            turns,
            number,
            threads: pool.threads,
        }
    }
}

impl OffloadPools {
    fn turns(&self, pool: Pool) -> Arc<Mutex<Turns>> {
        let mut pools = self.pools.lock().unwrap();
        if let Some((_, turns)) = pools.iter().find(|(known, _)| *known == pool) {
            return turns.clone();
        }
        let turns = Arc::<Mutex<Turns>>::default();
        pools.reserve_exact(1);
        pools.push((pool, turns.clone()));
        turns
    }
}

/// A place in line, then a thread; given back when dropped.
pub struct Ticket {
    turns: Arc<Mutex<Turns>>,
    number: u64,
    threads: usize,
}

impl Ticket {
    pub async fn turn(&self) {
        poll_fn(|cx| {
            let mut turns = self.turns.lock().unwrap();
            let first = turns
                .waiting
                .front()
                .is_some_and(|(number, _)| *number == self.number);
            if first && turns.running < self.threads {
                turns.waiting.pop_front();
                if turns.waiting.is_empty() {
                    turns.waiting = VecDeque::new();
                }
                turns.running += 1;
                turns.wake_first();
                return Poll::Ready(());
            }
            if let Some(place) = turns
                .waiting
                .iter_mut()
                .find(|(number, _)| *number == self.number)
            {
                place.1 = Some(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut turns = self.turns.lock().unwrap();
        let before = turns.waiting.len();
        turns.waiting.retain(|(number, _)| *number != self.number);
        if turns.waiting.len() == before {
            turns.running -= 1;
        }
        turns.wake_first();
    }
}

impl Turns {
    fn wake_first(&mut self) {
        if let Some((_, Some(waker))) = self.waiting.front() {
            waker.wake_by_ref();
        }
    }
}

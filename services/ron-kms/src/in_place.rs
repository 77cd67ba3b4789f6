//! Operations that their caller's own task carries out, because nobody waits in the sign queue before it.
//!
//! Two hops and two wake-ups less for what is only a short computation. Always: one that entered before the
//! queue was closed is seen by [`InPlace::all_left`], so a drain waits for it as it waits for the signers.

use std::sync::atomic::{AtomicUsize, Ordering};

use ron_core::queue::Queue;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct InPlace {
    now: AtomicUsize,
    left: Notify,
}

/// One operation under way, until this drops.
pub(crate) struct Place<'a>(&'a InPlace);

impl InPlace {
    /// `None` if somebody waits already, or the queue is closed: then the queue decides.
    pub fn enter<T, P>(&self, queue: &Queue<T, P>) -> Option<Place<'_>> {
        // Counted before the queue is asked: whoever sees it closed sees this one too.
        self.now.fetch_add(1, Ordering::AcqRel);
        let place = Place(self);
        queue.pass().then_some(place)
    }

    /// To be asked once the queue is closed.
    pub async fn all_left(&self) {
        loop {
            let left = self.left.notified();
            if self.now.load(Ordering::Acquire) == 0 {
                return;
            }
            left.await;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.0.now.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.left.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use ron_core::queue::RejectNew;

    use super::*;

    #[test]
    fn only_an_empty_open_queue_lets_its_callers_serve_themselves() {
        let (queue, in_place) = (Queue::new("q", 2, RejectNew), InPlace::default());
        assert!(in_place.enter(&queue).is_some());
        queue.push(1).unwrap();
        assert!(in_place.enter(&queue).is_none());
        assert_eq!(queue.try_pop(), Some(1));
        queue.close();
        assert!(in_place.enter(&queue).is_none());
        assert_eq!(in_place.all_left().now_or_never(), Some(()));
    }

    #[test]
    fn a_drain_waits_for_all_who_entered_before_it() {
        let (queue, in_place) = (Queue::<u8, _>::new("q", 2, RejectNew), InPlace::default());
        let first = in_place.enter(&queue);
        let second = in_place.enter(&queue);
        queue.close();
        let mut left = Box::pin(in_place.all_left());
        assert_eq!((&mut left).now_or_never(), None);
        drop(first);
        assert_eq!((&mut left).now_or_never(), None);
        drop(second);
        assert_eq!(left.now_or_never(), Some(()));
    }
}

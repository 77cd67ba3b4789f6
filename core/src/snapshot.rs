//! `Snapshot`: one writer publishes whole values, any number of readers see the latest one.
//!
//! The writer cannot be cloned, so "single writer" is checked by the compiler. Always: a reader gets one
//! published value as a whole, never an older one than it saw before, and keeps it as long as it likes.

use std::{fmt, sync::Arc};

use self::cell::Cell;

/// Starts with `initial` published.
pub fn snapshot<T: Send + Sync>(initial: T) -> (SnapshotWriter<T>, SnapshotReader<T>) {
    let cell = Arc::new(Cell::new(Arc::new(initial)));
    (
        SnapshotWriter { cell: cell.clone() },
        SnapshotReader { cell },
    )
}

/// The one who publishes.
pub struct SnapshotWriter<T> {
    cell: Arc<Cell<T>>,
}

/// One who reads; cheap to clone.
pub struct SnapshotReader<T> {
    cell: Arc<Cell<T>>,
}

impl<T: Send + Sync> SnapshotWriter<T> {
    /// Every `load` from now on sees `value` or a later one.
    pub fn publish(&mut self, value: T) {
        self.cell.store(Arc::new(value));
    }

    pub fn load(&self) -> Arc<T> {
        self.cell.load()
    }

    pub fn reader(&self) -> SnapshotReader<T> {
        SnapshotReader {
            cell: self.cell.clone(),
        }
    }
}

impl<T: Send + Sync> SnapshotReader<T> {
    pub fn load(&self) -> Arc<T> {
        self.cell.load()
    }
}

impl<T> Clone for SnapshotReader<T> {
    fn clone(&self) -> Self {
        SnapshotReader {
            cell: self.cell.clone(),
        }
    }
}

impl<T: Send + Sync + fmt::Debug> fmt::Debug for SnapshotWriter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SnapshotWriter").field(&self.load()).finish()
    }
}

impl<T: Send + Sync + fmt::Debug> fmt::Debug for SnapshotReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SnapshotReader").field(&self.load()).finish()
    }
}

#[cfg(not(feature = "loom"))]
mod cell {
    use std::sync::Arc;

    use arc_swap::ArcSwap;

    pub struct Cell<T>(ArcSwap<T>);

    impl<T> Cell<T> {
        pub fn new(value: Arc<T>) -> Self {
            Cell(ArcSwap::new(value))
        }

        pub fn load(&self) -> Arc<T> {
            self.0.load_full()
        }

        pub fn store(&self, value: Arc<T>) {
            self.0.store(value);
        }
    }
}

/// Loom cannot see into arc-swap: the same contract on a lock it can see.
#[cfg(feature = "loom")]
mod cell {
    use std::sync::Arc;

    use crate::sync::Mutex;

    pub struct Cell<T>(Mutex<Arc<T>>);

    impl<T> Cell<T> {
        pub fn new(value: Arc<T>) -> Self {
            Cell(Mutex::new(value))
        }

        pub fn load(&self) -> Arc<T> {
            self.0.lock().clone()
        }

        pub fn store(&self, value: Arc<T>) {
            let old = std::mem::replace(&mut *self.0.lock(), value);
            drop(old);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn every_reader_sees_what_was_published_last() {
        let (mut writer, reader) = snapshot(1);
        let other = reader.clone();
        assert_eq!(*reader.load(), 1);
        writer.publish(2);
        assert_eq!((*reader.load(), *other.load(), *writer.load()), (2, 2, 2));
        assert_eq!(*writer.reader().load(), 2);
    }

    #[test]
    fn a_loaded_value_stays_as_it_was() {
        let (mut writer, reader) = snapshot(vec![1]);
        let held = reader.load();
        writer.publish(vec![2]);
        drop(writer);
        assert_eq!((*held).as_slice(), [1]);
        assert_eq!((*reader.load()).as_slice(), [2]);
    }

    #[test]
    fn an_old_value_is_freed_once_nobody_holds_it() {
        let (mut writer, reader) = snapshot(1);
        let first = Arc::downgrade(&reader.load());
        writer.publish(2);
        assert!(first.upgrade().is_none());
    }
}

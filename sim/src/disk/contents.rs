//! The bytes of a file as sparse pages that are shared until they are written.
//!
//! Invariant: no page lies wholly beyond `len`, and every stored byte beyond `len` is zero, so that
//! a file that shrinks and grows again reads zeros, as on a real filesystem. A page holds its bytes up to
//! the last that was written; the rest is zero: a world has many small files.

use std::sync::Arc;

const PAGE: u64 = 4096;
type Page = Vec<u8>;

/// A file of so many pages has room for no more; a larger one grows as it likes.
const SMALL: usize = 8;

/// The contents of a file as a value: cloning shares all pages. Made once from a template and given
/// to [`SimDisk::preload`](super::SimDisk::preload) of every node, it costs no copy of the bytes.
#[derive(Clone, Default)]
pub struct Image {
    len: u64,
    /// By number, and no more room than there are: most files have a few, and nodes are many.
    pages: Vec<(u64, Arc<Page>)>,
}

impl Image {
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.read_at(0, &mut bytes);
        bytes
    }

    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> usize {
        let count = (buf.len() as u64).min(self.len.saturating_sub(offset)) as usize;
        let buf = &mut buf[..count];
        for (index, within, part) in spans(offset, count) {
            match self.page(index) {
                Some(page) => {
                    let held = &page[within.min(page.len())..];
                    let held = &held[..held.len().min(part.len())];
                    let (there, beyond) = buf[part].split_at_mut(held.len());
                    there.copy_from_slice(held);
                    beyond.fill(0);
                }
                None => buf[part].fill(0),
            }
        }
        count
    }

    pub(super) fn write_at(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        for (index, within, part) in spans(offset, data.len()) {
            let page = Arc::make_mut(self.page_or_new(index));
            let target = within..within + part.len();
            if page.len() < target.end {
                page.resize(target.end, 0);
            }
            page[target].copy_from_slice(&data[part]);
        }
        self.len = self.len.max(offset + data.len() as u64);
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            let kept = self
                .pages
                .partition_point(|(at, _)| *at < len.div_ceil(PAGE));
            self.pages.truncate(kept);
            self.pages.shrink_to_fit();
            let tail = (len % PAGE) as usize;
            if tail > 0
                && let Some(page) = self.page_mut(len / PAGE)
            {
                Arc::make_mut(page).truncate(tail);
            }
        }
        self.len = len;
    }

    /// Makes the file at least this long; new bytes read zero.
    pub(super) fn grow_to(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    /// Where `other` holds the same bytes as this one between `offset` and `offset + count`, both hold them once.
    pub(super) fn share(&mut self, other: &Image, offset: u64, count: usize) {
        for (index, ..) in spans(offset, count) {
            if let (Some(mine), Some(theirs)) = (self.page_mut(index), other.page(index))
                && mine == theirs
            {
                *mine = theirs.clone();
            }
        }
    }

    fn place(&self, index: u64) -> Result<usize, usize> {
        self.pages.binary_search_by_key(&index, |(at, _)| *at)
    }

    fn page(&self, index: u64) -> Option<&Arc<Page>> {
        self.place(index).ok().map(|at| &self.pages[at].1)
    }

    fn page_mut(&mut self, index: u64) -> Option<&mut Arc<Page>> {
        self.place(index).ok().map(|at| &mut self.pages[at].1)
    }

    fn page_or_new(&mut self, index: u64) -> &mut Arc<Page> {
        let at = self.place(index).unwrap_or_else(|at| {
            if self.pages.len() < SMALL {
                self.pages.reserve_exact(1);
            }
            self.pages.insert(at, (index, Arc::default()));
            at
        });
        &mut self.pages[at].1
    }

    /// Flips one bit; false if there is no such byte.
    pub(super) fn flip(&mut self, offset: u64, bit: u8) -> bool {
        let mut byte = [0];
        if self.read_at(offset, &mut byte) == 0 {
            return false;
        }
        byte[0] ^= 1 << (bit % 8);
        self.write_at(offset, &byte);
        true
    }

    #[cfg(test)]
    pub(super) fn shares_page(&self, other: &Image, index: u64) -> bool {
        match (self.page(index), other.page(index)) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl From<&[u8]> for Image {
    fn from(bytes: &[u8]) -> Self {
        let mut image = Image::default();
        for (index, chunk) in bytes.chunks(PAGE as usize).enumerate() {
            if chunk.iter().any(|byte| *byte != 0) {
                image.write_at(index as u64 * PAGE, chunk);
            }
        }
        image.grow_to(bytes.len() as u64);
        image
    }
}

/// Equal bytes, however they are held.
impl PartialEq for Image {
    fn eq(&self, other: &Image) -> bool {
        const NONE: &Page = &Vec::new();
        let indexes = self.pages.iter().chain(&other.pages).map(|(at, _)| *at);
        let same = |index: u64| {
            let [mine, theirs] = [self, other].map(|image| image.page(index));
            let [mine, theirs] = [mine, theirs].map(|page| page.map_or(NONE, |page| &**page));
            let both = mine.len().min(theirs.len());
            let rest = mine[both..].iter().chain(&theirs[both..]);
            mine[..both] == theirs[..both] && rest.into_iter().all(|byte| *byte == 0)
        };
        self.len == other.len && indexes.into_iter().all(same)
    }
}

impl Eq for Image {}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({} bytes)", self.len)
    }
}

/// Cuts `count` bytes at `offset` into pages: page number, place within it, place within the buffer.
fn spans(offset: u64, count: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == count {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE) as usize;
        let part = done..count.min(done + PAGE as usize - within);
        done = part.end;
        Some((at / PAGE, within, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_the_way_through_pages() {
        for len in [0, 1, 4095, 4096, 4097, 10_000] {
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            assert_eq!(Image::from(&bytes[..]).to_vec(), bytes);
        }
    }

    #[test]
    fn write_across_a_page_border_lands_on_both_sides() {
        let mut image = Image::default();
        image.write_at(4094, b"abcd");
        let mut buf = [9; 8];
        assert_eq!(image.read_at(4092, &mut buf), 6);
        assert_eq!(&buf[..6], b"\0\0abcd");
        assert_eq!(buf[6..], [9, 9]);
        assert_eq!(image.read_at(4098, &mut buf), 0);
        let mut hole = [9; 2];
        image.grow_to(20_000);
        assert_eq!((image.read_at(9000, &mut hole), hole), (2, [0, 0]));
    }

    #[test]
    fn shrunk_file_that_grows_again_reads_zeros() {
        let mut image = Image::from(&[7; 9000][..]);
        image.set_len(100);
        image.set_len(9000);
        let bytes = image.to_vec();
        assert!(bytes[..100].iter().all(|b| *b == 7));
        assert!(bytes[100..].iter().all(|b| *b == 0));
        image.set_len(0);
        image.grow_to(4096);
        assert_eq!(image.to_vec(), vec![0; 4096]);
    }

    #[test]
    fn write_copies_only_the_pages_it_touches() {
        let template = Image::from(&[1; 3 * 4096][..]);
        let mut copy = template.clone();
        copy.write_at(4096, b"x");
        assert_eq!(
            [0, 1, 2].map(|page| copy.shares_page(&template, page)),
            [true, false, true]
        );
        assert_eq!(template.to_vec(), vec![1; 3 * 4096]);
    }

    #[test]
    fn a_small_file_is_held_in_as_many_bytes_and_once_if_both_layers_agree() {
        let mut image = Image::from(&[7; 10][..]);
        assert_eq!(image.page(0).map(|page| page.len()), Some(10));
        let other = Image::from(&[7; 10][..]);
        image.share(&other, 0, 10);
        assert!(image.shares_page(&other, 0));
        let different = Image::from(&[8; 10][..]);
        image.share(&different, 0, 10);
        assert_eq!(image.to_vec(), [7; 10]);
    }

    #[test]
    fn images_are_equal_by_their_bytes() {
        let mut written = Image::from(&[1, 0, 0, 0][..]);
        let mut grown = Image::from(&[1][..]);
        assert_ne!(written, grown);
        grown.grow_to(4);
        assert_eq!(written, grown);
        written.write_at(9000, b"x");
        assert_ne!(written, grown);
        grown.grow_to(9001);
        assert_ne!(written, grown);
    }

    #[test]
    fn pages_of_zeros_are_not_stored() {
        let image = Image::from(&vec![0; 1 << 20][..]);
        assert_eq!((image.len(), image.pages.len()), (1 << 20, 0));
    }
}

//! Choosing the objects of each page. Pure: sizes in, indices out; no threads.
//!
//! Invariant: a page is filled in order of arrival, so that objects created together lie together;
//! when the next object does not fit, the gap is filled with the largest that does from a short
//! look-ahead. Whole small groups are packed the same way, so that each stays on as few pages as
//! possible.

use crate::format::{BLOCK_BYTES, PAGE_HEADER_BYTES, page_stride_min};

/// Objects by which a stride is chosen; more would only take time.
const STRIDE_SAMPLE: usize = 512;
/// A stride must save more than this part of the space: a full page brings more with one read.
const STRIDE_GAIN_PART: u64 = 32;
/// Objects looked at beyond the first that does not fit.
pub(super) const LOOK_AHEAD: usize = 96;
/// Smaller gaps are not filled: no record is smaller.
const GAP_MIN: u32 = 128;

/// Takes one page's worth from the front of `sizes`; returns the chosen indices in order.
pub(crate) fn fill_page(sizes: &[u32], capacity: u32) -> Vec<usize> {
    let mut chosen = Vec::new();
    let mut room = capacity;
    let mut index = 0;
    while index < sizes.len() && sizes[index] <= room {
        room -= sizes[index];
        chosen.push(index);
        index += 1;
    }
    let mut rest: Vec<usize> = (index..sizes.len().min(index + LOOK_AHEAD)).collect();
    while room >= GAP_MIN {
        let best = rest
            .iter()
            .enumerate()
            .filter(|(_, i)| sizes[**i] <= room)
            .max_by_key(|(_, i)| sizes[**i]);
        let Some((at, _)) = best else { break };
        let index = rest.remove(at);
        room -= sizes[index];
        chosen.push(index);
    }
    chosen
}

/// The distance of pages at which objects of these lengths fill them best: a page, unless less
/// saves much. Objects of 16 KiB go three to a page of 64 KiB, and three to 52 KiB.
pub(super) fn best_stride(lengths: impl Iterator<Item = u32>, page_bytes: u64) -> u64 {
    let sample: Vec<u32> = lengths.take(STRIDE_SAMPLE).collect();
    let whole = filling_ppm(&sample, page_bytes);
    (page_stride_min(page_bytes)..page_bytes)
        .step_by(BLOCK_BYTES as usize)
        .map(|stride| (filling_ppm(&sample, stride), stride))
        .filter(|(filling, _)| whole > 0 && *filling > whole + whole / STRIDE_GAIN_PART)
        .max()
        .map_or(page_bytes, |(_, stride)| stride)
}

/// How much of pages at this distance such objects fill, in millionths. Pages that the sample does
/// not fill do not count.
fn filling_ppm(sample: &[u32], stride: u64) -> u64 {
    let capacity = stride - PAGE_HEADER_BYTES as u64;
    let mut waiting = sample.to_vec();
    let mut left: u64 = waiting.iter().copied().map(u64::from).sum();
    let (mut pages, mut used, mut begin) = (0, 0, 0);
    while left >= 2 * capacity {
        let rest = &mut waiting[begin..];
        let chosen = fill_page(rest, capacity as u32);
        let bytes: u64 = chosen.iter().map(|at| u64::from(rest[*at])).sum();
        (pages, used, left) = (pages + 1, used + bytes, left - bytes);
        // No record is empty.
        chosen.iter().for_each(|at| rest[*at] = 0);
        begin += close_gaps(rest, chosen.iter().max().map_or(0, |last| last + 1));
    }
    used * 1_000_000 / (pages * stride).max(1)
}

/// Moves what is not zero of the first `count` lengths up to those behind; returns where it begins.
fn close_gaps(lengths: &mut [u32], count: usize) -> usize {
    let mut begin = count;
    for at in (0..count).rev() {
        if lengths[at] != 0 {
            begin -= 1;
            lengths.swap(begin, at);
        }
    }
    begin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_arrivals_in_order_and_fills_the_gap() {
        assert_eq!(fill_page(&[400, 300, 500, 100, 290], 1000), [0, 1, 4]);
        assert_eq!(fill_page(&[], 1000), [0; 0]);
        assert_eq!(fill_page(&[1000, 1], 1000), [0]);
    }

    #[test]
    fn waste_is_small_for_thesis_sizes() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut sizes: Vec<u32> = (0..4000).map(|_| rng.u32(1..=256) * 64 + 128).collect();
        let capacity = 65_536 - 64;
        let (mut pages, mut used) = (0_u64, 0_u64);
        while sizes.iter().map(|s| u64::from(*s)).sum::<u64>() > 4 * u64::from(capacity) {
            let mut chosen = fill_page(&sizes, capacity);
            used += chosen.iter().map(|i| u64::from(sizes[*i])).sum::<u64>();
            pages += 1;
            chosen.sort_unstable();
            for index in chosen.into_iter().rev() {
                sizes.remove(index);
            }
        }
        assert!(used * 1000 > pages * u64::from(capacity) * 990, "{used} of {pages} pages");
    }

    #[test]
    fn pages_lie_as_far_apart_as_their_objects_fill_them() {
        let stride = |lengths: &[u32], page_bytes| {
            best_stride(lengths.iter().copied().cycle().take(2000), page_bytes)
        };
        assert_eq!(stride(&[16_576], 65_536), 52 << 10, "three of 16 KiB");
        assert_eq!(stride(&[13_440], 65_536), 56 << 10, "four of 13 KiB");
        assert_eq!(stride(&[16_576, 256], 65_536), 52 << 10, "small ones take what is left");
        assert_eq!(stride(&[8384], 65_536), 60 << 10, "seven of 8 KiB");
        assert_eq!(stride(&[21_760], 65_536), 64 << 10, "three of 21 KiB fill a page");
        assert_eq!(stride(&[1088], 65_536), 64 << 10);
        assert_eq!(stride(&[112], 65_536), 64 << 10, "too few pages to tell");
        assert_eq!(stride(&[4096], 12_288 + 4096), 16 << 10, "three");
        assert_eq!(stride(&[1088], 4096), 4096, "a block is the least");
        assert_eq!(best_stride(std::iter::empty(), 65_536), 65_536);
    }

    #[test]
    fn mixed_lengths_keep_whole_pages() {
        let mut rng = fastrand::Rng::with_seed(7);
        let lengths: Vec<u32> = (0..4000).map(|_| rng.u32(2..=340) * 64).collect();
        assert_eq!(best_stride(lengths.iter().copied(), 65_536), 65_536);
    }
}

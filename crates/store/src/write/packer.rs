//! Choosing the objects of each page. Pure: sizes in, indices out; no threads.
//!
//! Invariant: a page is filled in order of arrival, so that objects created together lie together;
//! when the next object does not fit, the gap is filled with the largest that does from a short
//! look-ahead. Whole small groups are packed the same way, so that each stays on as few pages as
//! possible.

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
}

//! Bytes of a device, of which most are alike: lines of the byte that values consist of, and of
//! zeros, are remembered as that, and only others take memory.
//!
//! The values that the lab stores consist of one byte, so what is kept are records' heads, tables
//! and summaries, a small part of the device: a device in full, or even whole sectors of what is
//! not alike, would cost a page fault for every 4 KiB of it. Invariant: a byte reads as it was last
//! written, as zero before. Threads: one user at a time.

use std::io;

use super::CONTENT_BYTE;

/// What is alike is remembered by blocks of so many bytes, looked for by sectors, and by lines
/// where a sector is not alike.
const BLOCK: usize = 4096;
const SECTOR: usize = 512;
const LINE: usize = 64;
const LINES: usize = BLOCK / LINE;
const _: () = assert!(LINES == u64::BITS as usize);

const CONTENT: [u8; BLOCK] = [CONTENT_BYTE; BLOCK];
const ZEROS: [u8; BLOCK] = [0; BLOCK];

/// What a block holds: zeros, the content's byte, or, from 2 on, what `mixed` says.
type Content = u32;
const OF_ZEROS: Content = 0;
const OF_CONTENT: Content = 1;
const MIXED_FROM: Content = 2;

type Line = [u8; LINE];

/// A block that is not alike: bit n of a mask is for its line n.
#[derive(Debug, Default)]
struct Mixed {
    /// Lines of zeros.
    zeros: u64,
    /// Lines with bytes of their own, in `lines` in order. All others consist of the content's
    /// byte.
    own: u64,
    lines: Vec<Line>,
}

/// The device's bytes.
#[derive(Debug)]
pub(super) struct Sectors {
    contents: Vec<Content>,
    mixed: Vec<Mixed>,
    free: Vec<Content>,
    /// Lines of the block that is being written, for its allocation to be used again.
    gathered: Vec<Line>,
}

impl Mixed {
    /// Lays the block out in full.
    fn expand(&self, block: &mut [u8; BLOCK]) {
        *block = CONTENT;
        let lines = block.as_chunks_mut::<LINE>().0;
        bits(self.zeros).for_each(|n| lines[n] = [0; LINE]);
        bits(self.own).zip(&self.lines).for_each(|(n, line)| lines[n] = *line);
    }

    /// Overwrites a part of one line that has bytes of its own; false for any other part.
    fn patch(&mut self, start: usize, piece: &[u8]) -> bool {
        let (line, at) = (start / LINE, start % LINE);
        let is_own = self.own & (1 << line) != 0 && at + piece.len() <= LINE;
        if is_own {
            let before = (self.own & ((1 << line) - 1)).count_ones() as usize;
            self.lines[before][at..at + piece.len()].copy_from_slice(piece);
        }
        is_own
    }
}

/// Numbers of the bits that are set, in order.
fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = (mask != 0).then(|| mask.trailing_zeros() as usize);
        mask &= mask.wrapping_sub(1);
        next
    })
}

impl Sectors {
    /// A device of zeros; a table of 4 bytes a block is its least memory.
    pub(super) fn new(size_bytes: u64) -> Sectors {
        let count = size_bytes.div_ceil(BLOCK as u64) as usize;
        let contents = vec![OF_ZEROS; count];
        Sectors { contents, mixed: Vec::new(), free: Vec::new(), gathered: Vec::new() }
    }

    /// The first of these bytes, if they lie on the device.
    fn start(&self, offset: u64, len: usize) -> io::Result<usize> {
        let start = usize::try_from(offset).ok();
        let fits = |start: &usize| {
            start.checked_add(len).is_some_and(|end| end <= self.contents.len() * BLOCK)
        };
        start.filter(fits).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut at = self.start(offset, buf.len())?;
        let mut rest = buf;
        while !rest.is_empty() {
            let (first, from) = (at / BLOCK, at % BLOCK);
            let content = self.contents[first];
            let mut len = rest.len().min(BLOCK - from);
            if content < MIXED_FROM {
                // Blocks that are alike are filled at once.
                let more = self.contents[first + 1..].iter().take_while(|next| **next == content);
                let needed = (rest.len() - len).div_ceil(BLOCK);
                len = rest.len().min(BLOCK - from + more.take(needed).count() * BLOCK);
            }
            let (piece, after) = rest.split_at_mut(len);
            match content {
                OF_ZEROS => piece.fill(0),
                OF_CONTENT => piece.fill(CONTENT_BYTE),
                _ => self.read_mixed(content, from, piece),
            }
            (rest, at) = (after, at + len);
        }
        Ok(())
    }

    fn read_mixed(&self, content: Content, from: usize, piece: &mut [u8]) {
        let mixed = &self.mixed[(content - MIXED_FROM) as usize];
        if let Some(block) = piece.as_chunks_mut::<BLOCK>().0.first_mut() {
            return mixed.expand(block);
        }
        let mut block = ZEROS;
        mixed.expand(&mut block);
        piece.copy_from_slice(&block[from..from + piece.len()]);
    }

    pub(super) fn write(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let at = self.start(offset, buf.len())?;
        let head_len = at.next_multiple_of(BLOCK).saturating_sub(at).min(buf.len());
        let (head, rest) = buf.split_at(head_len);
        let (whole, tail) = rest.as_chunks::<BLOCK>();
        self.write_part(at / BLOCK, at % BLOCK, head);
        let first = (at + head_len) / BLOCK;
        for (index, block) in (first..).zip(whole) {
            self.write_block(index, block);
        }
        self.write_part(first + whole.len(), 0, tail);
        Ok(())
    }

    /// Writes a part of one block.
    fn write_part(&mut self, index: usize, start: usize, part: &[u8]) {
        if part.is_empty() {
            return;
        }
        let content = self.contents[index];
        let mut block = match content {
            OF_ZEROS => ZEROS,
            OF_CONTENT => CONTENT,
            _ => {
                let mixed = &mut self.mixed[(content - MIXED_FROM) as usize];
                if mixed.patch(start, part) {
                    return;
                }
                let mut block = ZEROS;
                mixed.expand(&mut block);
                block
            }
        };
        block[start..start + part.len()].copy_from_slice(part);
        self.write_block(index, &block);
    }

    fn write_block(&mut self, index: usize, block: &[u8; BLOCK]) {
        // The ends are looked at first: what is not alike mostly differs there.
        let alike = match block[0] {
            byte if block[BLOCK - 1] != byte => None,
            CONTENT_BYTE => (*block == CONTENT).then_some(OF_CONTENT),
            0 => (*block == ZEROS).then_some(OF_ZEROS),
            _ => None,
        };
        let before = self.contents[index];
        if let Some(content) = alike {
            self.contents[index] = content;
            if before >= MIXED_FROM {
                self.mixed[(before - MIXED_FROM) as usize] = Mixed::default();
                self.free.push(before);
            }
            return;
        }
        let (zeros, own) = self.gather(block);
        if before < MIXED_FROM {
            self.contents[index] = self.free.pop().unwrap_or_else(|| {
                self.mixed.push(Mixed::default());
                MIXED_FROM + (self.mixed.len() - 1) as Content
            });
        }
        let mixed = &mut self.mixed[(self.contents[index] - MIXED_FROM) as usize];
        (mixed.zeros, mixed.own) = (zeros, own);
        mixed.lines.clear();
        mixed.lines.reserve_exact(self.gathered.len());
        mixed.lines.extend_from_slice(&self.gathered);
    }

    /// The masks of a block; its lines with bytes of their own are in `gathered` then.
    fn gather(&mut self, block: &[u8; BLOCK]) -> (u64, u64) {
        let (mut zeros, mut own) = (0, 0);
        self.gathered.clear();
        for (n, sector) in block.as_chunks::<SECTOR>().0.iter().enumerate() {
            if sector[0] == CONTENT_BYTE && *sector == CONTENT[..SECTOR] {
                continue;
            }
            for (m, line) in sector.as_chunks::<LINE>().0.iter().enumerate() {
                let bit = 1 << (n * (SECTOR / LINE) + m);
                if *line == CONTENT[..LINE] {
                    continue;
                }
                if *line == ZEROS[..LINE] {
                    zeros |= bit;
                } else {
                    own |= bit;
                    self.gathered.push(*line);
                }
            }
        }
        (zeros, own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vector of all bytes is the model.
    #[test]
    fn reads_what_was_written() {
        const SIZE: usize = 8 * BLOCK;
        let mut rng = fastrand::Rng::with_seed(11);
        let (mut sectors, mut model) = (Sectors::new(SIZE as u64), vec![0_u8; SIZE]);
        for _ in 0..4_000 {
            let start = rng.usize(0..SIZE);
            let most = if rng.bool() { 3 * BLOCK } else { 2 * LINE };
            let len = rng.usize(0..=(SIZE - start).min(most));
            let mut bytes = vec![rng.choice([0, CONTENT_BYTE, 7]).unwrap(); len];
            for _ in 0..rng.usize(0..4).min(len) {
                bytes[rng.usize(0..len)] = 9;
            }
            sectors.write(start as u64, &bytes).expect("on the device");
            model[start..start + len].copy_from_slice(&bytes);
            let from = rng.usize(0..SIZE);
            let mut got = vec![7; rng.usize(0..=SIZE - from)];
            sectors.read(from as u64, &mut got).expect("on the device");
            assert_eq!(got, model[from..from + got.len()]);
        }
        assert!(sectors.mixed.len() <= 8, "places are used again");
    }

    #[test]
    fn what_is_alike_takes_no_memory_and_the_end_is_the_end() {
        let mut sectors = Sectors::new(1 << 20);
        sectors.write(0, &vec![0x5a; 1 << 20]).expect("on the device");
        assert!(sectors.mixed.is_empty());
        assert!(sectors.write((1 << 20) - 1, &[1, 2]).is_err());
        assert!(sectors.read(u64::MAX, &mut [0]).is_err());
    }
}

//! Bytes of a device, of which most are alike: sectors of one repeated byte are remembered as that, and
//! only others take memory.
//!
//! The values that the lab stores consist of one byte, so what is kept are records' heads, tables and
//! summaries, a small part of the device; a device in full would cost a page fault for every 4 KiB that
//! the engine writes, which was most of the time of a run. Invariant: a sector reads as it was last
//! written, as zeros before. Threads: one user at a time.

use std::io;

use super::CONTENT_BYTE;
use crate::disk::SECTOR_BYTES;

const LEN: usize = SECTOR_BYTES as usize;

/// What a sector holds: a byte repeated, below 256, or where its bytes lie, above.
type Content = u32;
const SLOTS_FROM: Content = 256;

/// The sectors.
#[derive(Debug)]
pub(super) struct Sectors {
    contents: Vec<Content>,
    slots: Vec<[u8; LEN]>,
    free: Vec<Content>,
}

impl Sectors {
    /// A device of zeros; a table of 4 bytes a sector is its least memory.
    pub(super) fn new(size_bytes: u64) -> Sectors {
        let count = size_bytes.div_ceil(SECTOR_BYTES) as usize;
        Sectors { contents: vec![0; count], slots: Vec::new(), free: Vec::new() }
    }

    /// The sectors that a range touches: each one's number, and which of its bytes.
    fn pieces(
        &self,
        offset: u64,
        len: usize,
    ) -> io::Result<impl Iterator<Item = (usize, std::ops::Range<usize>)> + use<>> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(len).filter(|end| *end <= self.contents.len() * LEN);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let last = if len == 0 { start / LEN } else { end.div_ceil(LEN) };
        Ok((start / LEN..last).map(move |sector| {
            let at = sector * LEN;
            (sector, start.max(at) - at..end.min(at + LEN) - at)
        }))
    }

    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut rest = buf;
        let mut pieces = self.pieces(offset, rest.len())?.peekable();
        while let Some((sector, range)) = pieces.next() {
            let content = self.contents[sector];
            let mut len = range.len();
            // Sectors that are alike are filled at once.
            let is_alike = content < SLOTS_FROM;
            let alike = |(next, _): &(usize, _)| is_alike && self.contents[*next] == content;
            while let Some((_, next)) = pieces.next_if(alike) {
                len += next.len();
            }
            let (piece, after) = rest.split_at_mut(len);
            match u8::try_from(content) {
                Ok(byte) => piece.fill(byte),
                Err(_) => piece.copy_from_slice(&self.slots[self.slot(sector)][range]),
            }
            rest = after;
        }
        Ok(())
    }

    pub(super) fn write(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let mut pieces = self.pieces(offset, buf.len())?;
        let Some((first, range)) = pieces.next() else { return Ok(()) };
        let (head, rest) = match range.start {
            0 => (&[][..], buf),
            _ => buf.split_at(range.len()),
        };
        if !head.is_empty() {
            self.write_piece(first, range.start, head);
        }
        let first_whole = first + usize::from(!head.is_empty());
        let (whole, tail) = rest.as_chunks::<LEN>();
        for (sector, bytes) in (first_whole..).zip(whole) {
            if is_repeated(bytes) {
                self.write_repeated(sector, bytes[0]);
            } else {
                let slot = self.slot_for(sector);
                self.slots[slot] = *bytes;
            }
        }
        if !tail.is_empty() {
            self.write_piece(first_whole + whole.len(), 0, tail);
        }
        Ok(())
    }

    fn write_repeated(&mut self, sector: usize, byte: u8) {
        let before = std::mem::replace(&mut self.contents[sector], Content::from(byte));
        if before >= SLOTS_FROM {
            self.free.push(before);
        }
    }

    fn write_piece(&mut self, sector: usize, start: usize, piece: &[u8]) {
        let repeated = u8::try_from(self.contents[sector]).ok();
        if repeated.is_some_and(|byte| piece.iter().all(|other| *other == byte)) {
            return;
        }
        let slot = self.slot_for(sector);
        if let Some(byte) = repeated {
            self.slots[slot].fill(byte);
        }
        self.slots[slot][start..start + piece.len()].copy_from_slice(piece);
    }

    /// Index of the bytes of a sector that is to have some of its own; new ones hold anything.
    fn slot_for(&mut self, sector: usize) -> usize {
        if self.contents[sector] < SLOTS_FROM {
            self.contents[sector] = self.free.pop().unwrap_or_else(|| {
                self.slots.push([0; LEN]);
                SLOTS_FROM + (self.slots.len() - 1) as Content
            });
        }
        self.slot(sector)
    }

    /// Index of the bytes of a sector that has some of its own.
    fn slot(&self, sector: usize) -> usize {
        (self.contents[sector] - SLOTS_FROM) as usize
    }
}

/// True if all bytes are the same. The last is looked at first: what is not alike mostly differs there. The
/// two sectors that are written all the time are compared with as they are.
fn is_repeated(sector: &[u8; LEN]) -> bool {
    const CONTENT: [u8; LEN] = [CONTENT_BYTE; LEN];
    match sector[0] {
        byte if sector[LEN - 1] != byte => false,
        CONTENT_BYTE => *sector == CONTENT,
        0 => *sector == [0; LEN],
        byte => sector.iter().all(|other| *other == byte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vector of all bytes is the model.
    #[test]
    fn reads_what_was_written() {
        const SIZE: usize = 8 * LEN;
        let mut rng = fastrand::Rng::with_seed(11);
        let (mut sectors, mut model) = (Sectors::new(SIZE as u64), vec![0_u8; SIZE]);
        for _ in 0..4_000 {
            let start = rng.usize(0..SIZE);
            let len = rng.usize(0..=(SIZE - start).min(3 * LEN));
            let mut bytes = vec![rng.u8(0..3); len];
            if rng.bool() && len > 0 {
                bytes[rng.usize(0..len)] = 9;
            }
            sectors.write(start as u64, &bytes).expect("on the device");
            model[start..start + len].copy_from_slice(&bytes);
            let from = rng.usize(0..SIZE);
            let mut got = vec![7; rng.usize(0..=SIZE - from)];
            sectors.read(from as u64, &mut got).expect("on the device");
            assert_eq!(got, model[from..from + got.len()]);
        }
        assert!(sectors.slots.len() <= 8, "places are used again");
    }

    #[test]
    fn what_is_alike_takes_no_memory_and_the_end_is_the_end() {
        let mut sectors = Sectors::new(1 << 20);
        sectors.write(0, &vec![0x5a; 1 << 20]).expect("on the device");
        assert!(sectors.slots.is_empty());
        assert!(sectors.write((1 << 20) - 1, &[1, 2]).is_err());
        assert!(sectors.read(u64::MAX, &mut [0]).is_err());
    }
}

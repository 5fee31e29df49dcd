//! Reading a part of a file with all cores.
//!
//! Most of what reading a file that is in memory takes is copying, and new pages for the copy. Cores share both
//! well, if each knows its own place in the file: handles that are cloned share one place, and so cannot be used.

use std::fs::File;
use std::io;

/// Fills `bytes` with what is in the file from `start` on.
#[cfg(unix)]
pub fn read_at(file: &File, start: u64, bytes: &mut [u8]) -> io::Result<()> {
    use std::os::unix::fs::FileExt;

    use rayon::prelude::*;

    let pieces = bytes.par_chunks_mut(PIECE).enumerate();
    pieces.try_for_each(|(number, piece)| file.read_exact_at(piece, start + (number * PIECE) as u64))
}

/// Fills `bytes` with what is in the file from `start` on.
#[cfg(not(unix))]
pub fn read_at(mut file: &File, start: u64, bytes: &mut [u8]) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};

    file.seek(SeekFrom::Start(start))?;
    file.read_exact(bytes)
}

/// What one core reads at a time.
#[cfg(unix)]
const PIECE: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn pieces_come_together() -> io::Result<()> {
        // Longer than some pieces, and not a multiple of one.
        let written: Vec<u8> = (0..(9 << 20) + 77).map(|number: u32| (number * 31 % 251) as u8).collect();
        let mut file = tempfile::tempfile()?;
        file.write_all(&written)?;
        for start in [0, 10, 5 << 20] {
            let mut found = vec![0; written.len() - start];
            read_at(&file, start as u64, &mut found)?;
            assert!(found == written[start..]);
        }
        Ok(())
    }

    #[test]
    fn a_file_that_ends_too_soon_is_an_error() -> io::Result<()> {
        let mut file = tempfile::tempfile()?;
        file.write_all(&[1; 100])?;
        let error = read_at(&file, 50, &mut [0; 51]).err();
        assert_eq!(error.map(|error| error.kind()), Some(io::ErrorKind::UnexpectedEof));
        Ok(())
    }
}

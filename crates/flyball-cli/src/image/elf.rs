//! Reader of ELF headers, see the System V ABI's chapter on object files.

/// A program for Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elf {
    /// The kind of machine that it runs on.
    pub(crate) machine: u16,
    /// Set if it is dynamically linked.
    pub(crate) needs_loader: bool,
    /// Path of its loader, if it is dynamically linked and the path is in the file.
    pub(crate) loader: Option<String>,
}

/// Type of the program header of a loader.
const INTERPRETER: u32 = 3;

impl Elf {
    /// Parses a file; `None` if it is not a Linux program, or is incomplete.
    pub(crate) fn read(file: &[u8]) -> Option<Self> {
        let ident = file.get(..16)?;
        // Little endian only, as all supported platforms.
        if !ident.starts_with(b"\x7fELF") || ident[5] != 1 {
            return None;
        }
        let wide = match ident[4] {
            1 => false,
            2 => true,
            _ => return None,
        };
        let half = |at: usize| Some(u16::from_le_bytes(file.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_le_bytes(file.get(at..at.checked_add(4)?)?.try_into().ok()?));
        let (table, size, count) = match wide {
            true => {
                let low = usize::try_from(word(32)?).ok()?;
                // Tables beyond four gigabytes are not supported.
                (if word(36)? == 0 { low } else { return None }, half(54)?, half(56)?)
            }
            false => (usize::try_from(word(28)?).ok()?, half(42)?, half(44)?),
        };
        let (mut needs_loader, mut loader) = (false, None);
        for at in 0..usize::from(count) {
            let header = table.checked_add(at * usize::from(size))?;
            if word(header)? == INTERPRETER {
                needs_loader = true;
                let (offset, length) = if wide { (header + 8, header + 32) } else { (header + 4, header + 16) };
                loader = word(offset).zip(word(length)).and_then(|(offset, length)| {
                    let begin = usize::try_from(offset).ok()?;
                    let path = file.get(begin..begin.checked_add(usize::try_from(length).ok()?)?)?;
                    String::from_utf8(path.strip_suffix(b"\0")?.to_vec()).ok()
                });
            }
        }
        Some(Self { machine: half(18)?, needs_loader, loader })
    }
}

#[cfg(test)]
mod tests {
    use super::Elf;

    #[test]
    fn own_executable_is_an_elf_file() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let read = Elf::read(&own);
        #[cfg(target_os = "linux")]
        assert!(read.as_ref().is_some_and(|elf| [40, 62, 183, 243].contains(&elf.machine)), "{read:?}");
        for length in 0..own.len().min(128) {
            // Truncated files do not cause panics.
            let _ = Elf::read(&own[..length]);
        }
        let mut odd = own[..128].to_vec();
        odd[32..64].fill(0xff);
        assert_eq!(Elf::read(&odd), None);
        assert_eq!(Elf::read(b"#!/bin/sh\nexit 0\n"), None);
    }
}

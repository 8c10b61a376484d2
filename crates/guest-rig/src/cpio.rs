//! Writes a cpio archive in the "newc" format, as the kernel unpacks an initramfs from
//! (Documentation/driver-api/early-userspace/buffer-format.rst).
//!
//! Not included: owners, times, hard links, device nodes. All of it belongs to root, at time 0, so
//! equal input gives equal bytes.

use std::io::{Result, Write};

/// An archive being written to `out`.
#[derive(Debug)]
pub struct Archive<W> {
    out: W,
    inode: u32,
}

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

impl<W: Write> Archive<W> {
    /// Starts an archive.
    pub const fn new(out: W) -> Self {
        Self { out, inode: 0 }
    }

    /// Adds a folder; its parents must come before it.
    ///
    /// # Errors
    /// Those of writing.
    pub fn directory(&mut self, path: &str) -> Result<()> {
        self.entry(path, DIRECTORY | 0o755, &[])
    }

    /// Adds a file that is also executable where `program` is set.
    ///
    /// # Errors
    /// Those of writing.
    pub fn file(&mut self, path: &str, program: bool, content: &[u8]) -> Result<()> {
        self.entry(path, FILE | if program { 0o755 } else { 0o644 }, content)
    }

    /// Adds a symbolic link to `target`.
    ///
    /// # Errors
    /// Those of writing.
    pub fn link(&mut self, path: &str, target: &str) -> Result<()> {
        self.entry(path, LINK | 0o777, target.as_bytes())
    }

    /// Ends the archive and gives `out` back.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self) -> Result<W> {
        self.entry("TRAILER!!!", 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.inode += 1;
        let too_long =
            |_| std::io::Error::other("a file of 4 GiB or more does not fit a cpio archive");
        let size = u32::try_from(content.len()).map_err(too_long)?;
        let name = u32::try_from(path.len() + 1).map_err(too_long)?;
        // inode, mode, uid, gid, links, time, size, device (2), device of a node (2), length of the
        // name with its NUL, checksum
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name, 0];
        write!(self.out, "070701")?;
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(path.as_bytes())?;
        self.out.write_all(b"\0")?;
        self.pad(HEADER + path.len() + 1)?;
        self.out.write_all(content)?;
        self.pad(content.len())
    }

    /// Name and content each end on a multiple of four bytes.
    fn pad(&mut self, written: usize) -> Result<()> {
        self.out.write_all(&[0; 3][..written.wrapping_neg() % 4])
    }
}

const HEADER: usize = 6 + 13 * 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of an entry as the kernel's documentation lays them out, with the padding spelled
    /// out by the caller.
    fn entry(
        inode: u32,
        mode: &str,
        size: u32,
        name_and_padding: &str,
        content_and_padding: &str,
    ) -> String {
        let name = name_and_padding.find('\0').unwrap() + 1;
        let zero = "00000000";
        format!(
            "070701{inode:08x}{mode}{zero}{zero}00000001{zero}{size:08x}{zero}{zero}{zero}{zero}{name:08x}{zero}\
             {name_and_padding}{content_and_padding}"
        )
    }

    #[test]
    fn an_archive_in_bytes() {
        let mut archive = Archive::new(Vec::new());
        archive.directory("d").unwrap();
        archive.file("d/f", true, b"hello").unwrap();
        archive.link("l", "d/f").unwrap();
        let bytes = archive.finish().unwrap();
        // A header is 110 bytes: a name of 2 bytes ends on a multiple of 4, one of 4 bytes needs 2
        // more.
        let expected = [
            entry(1, "000041ed", 0, "d\0", ""),
            entry(2, "000081ed", 5, "d/f\0\0\0", "hello\0\0\0"),
            entry(3, "0000a1ff", 3, "l\0", "d/f\0"),
            entry(4, "00000000", 0, "TRAILER!!!\0\0\0\0", ""),
        ];
        assert_eq!(String::from_utf8(bytes).unwrap(), expected.concat());
    }
}

//! Bytes on their way to a file, with their digest and their number.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use aws_lc_rs::digest::{Context, SHA256};
use flate2::{Compression, GzBuilder};
use serde::Serialize;
use serde_json::Value;

use crate::tree::Tree;

/// SHA-256 of some bytes, and their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    /// Lower-case hexadecimal digits.
    pub(crate) hex: String,
    /// Number of bytes.
    pub(crate) size: u64,
}

impl Sum {
    /// Returns the digest as images write it.
    pub(crate) fn digest(&self) -> String {
        format!("sha256:{}", self.hex)
    }

    /// Sums up bytes in memory.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut summing = Summing::new(io::sink());
        summing.note(bytes);
        summing.end().0
    }
}

/// Writer that sums up what passes.
pub(crate) struct Summing<W> {
    out: W,
    context: Context,
    size: u64,
}

impl<W> Summing<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, context: Context::new(&SHA256), size: 0 }
    }

    fn note(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
        self.size = self.size.saturating_add(bytes.len().try_into().unwrap_or(u64::MAX));
    }

    /// Returns the sum, and the writer below.
    pub(crate) fn end(self) -> (Sum, W) {
        let hex = self.context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        (Sum { hex, size: self.size }, self.out)
    }
}

impl<W: Write> Write for Summing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.note(bytes.get(..written).unwrap_or(bytes));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A part of an image that others name by its digest.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Descriptor {
    #[serde(rename = "mediaType")]
    pub(crate) media_type: &'static str,
    pub(crate) digest: String,
    pub(crate) size: u64,
}

impl Descriptor {
    fn new(media_type: &'static str, sum: &Sum) -> Self {
        Self { media_type, digest: sum.digest(), size: sum.size }
    }
}

/// Layer of an image: what it is in the registry, and the digest of the archive in it.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) descriptor: Descriptor,
    pub(crate) diff_id: String,
}

/// Folder `blobs/sha256` of a layout.
#[derive(Debug)]
pub(crate) struct Blobs<'f>(pub(crate) &'f Path);

impl Blobs<'_> {
    /// Adds bytes.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn bytes(&self, media_type: &'static str, bytes: &[u8]) -> io::Result<Descriptor> {
        let sum = Sum::of(bytes);
        fs::write(self.0.join(&sum.hex), bytes)?;
        Ok(Descriptor::new(media_type, &sum))
    }

    /// Adds a document. Its keys are sorted.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn json(&self, media_type: &'static str, document: &Value) -> io::Result<Descriptor> {
        self.bytes(media_type, document.to_string().as_bytes())
    }

    /// Adds a layer with these files, compressed or not.
    ///
    /// # Errors
    /// Names the file that cannot be read; or what the system says.
    pub(crate) fn layer(&self, tree: &Tree, time: u64, is_compressed: bool) -> io::Result<Layer> {
        let unnamed = self.0.join("layer.part");
        let out = Summing::new(BufWriter::new(File::create(&unnamed)?));
        let (archive, out, media_type) = if is_compressed {
            let gzip = gzip(out);
            let (sum, gzip) = tree.write(Summing::new(gzip), time)?.end();
            (sum, gzip.finish()?, "application/vnd.oci.image.layer.v1.tar+gzip")
        } else {
            let (sum, out) = tree.write(Summing::new(out), time)?.end();
            (sum, out, "application/vnd.oci.image.layer.v1.tar")
        };
        let (sum, mut out) = out.end();
        out.flush()?;
        fs::rename(&unnamed, self.0.join(&sum.hex))?;
        Ok(Layer { descriptor: Descriptor::new(media_type, &sum), diff_id: archive.digest() })
    }

    /// Adds a tar archive as a layer, as it is.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn archive(&self, from: &Path) -> io::Result<Layer> {
        let unnamed = self.0.join("layer.part");
        let mut out = Summing::new(File::create(&unnamed)?);
        io::copy(&mut File::open(from)?, &mut out)?;
        let (sum, _) = out.end();
        fs::rename(&unnamed, self.0.join(&sum.hex))?;
        let descriptor = Descriptor::new("application/vnd.oci.image.layer.v1.tar", &sum);
        Ok(Layer { descriptor, diff_id: sum.digest() })
    }
}

/// Compresses without a time and without the name of a system.
pub(crate) fn gzip<W: Write>(out: W) -> flate2::write::GzEncoder<W> {
    GzBuilder::new().mtime(0).operating_system(255).write(out, Compression::new(6))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::tree::TEXT;

    #[test]
    fn sum_is_sha_256() {
        let sum = Sum::of(b"abc");
        assert_eq!(sum.digest(), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(sum.size, 3);
    }

    #[test]
    fn layer_is_named_by_its_bytes_and_describes_the_archive_inside() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs(folder.path());
        let mut tree = Tree::default();
        tree.text("a", TEXT, "some text");
        let plain = blobs.layer(&tree, 1, false).unwrap();
        assert_eq!(plain.descriptor.digest, plain.diff_id);
        let packed = blobs.layer(&tree, 1, true).unwrap();
        assert_eq!(packed.diff_id, plain.diff_id);
        let bytes = fs::read(folder.path().join(&packed.descriptor.digest["sha256:".len()..])).unwrap();
        assert_eq!(Sum::of(&bytes).digest(), packed.descriptor.digest);
        let mut unpacked = Vec::new();
        GzDecoder::new(bytes.as_slice()).read_to_end(&mut unpacked).unwrap();
        assert_eq!(Sum::of(&unpacked).digest(), plain.diff_id);
        assert_ne!(blobs.layer(&tree, 2, false).unwrap().diff_id, plain.diff_id);
    }
}

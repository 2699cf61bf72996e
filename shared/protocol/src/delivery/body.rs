//! Encodes the bodies of deliveries for storage, and decodes stored bodies.

use bytes::Bytes;

use crate::format::CorruptRow;

/// The largest body, in bytes: the limit of a Lambda function's event.
pub const LARGEST_BODY: usize = 6 * 1024 * 1024;

#[derive(Debug, Clone)]
pub struct StoredBody {
    pub bytes: Bytes,
    pub encoding: &'static str,
}

impl StoredBody {
    pub fn new(body: &Bytes) -> Self {
        match compression::compress(body) {
            Some(bytes) => Self { bytes, encoding: "zstd" },
            None => Self::plain(body),
        }
    }

    pub(super) fn plain(body: &Bytes) -> Self {
        Self { bytes: body.clone(), encoding: "plain" }
    }
}

/// Decodes a stored body. The parameter `length` is the number of bytes of the decoded body.
pub fn decoded_body(bytes: Bytes, encoding: &str, length: usize) -> Result<Bytes, CorruptRow> {
    let body = match encoding {
        "zstd" if length > LARGEST_BODY => return Err(CorruptRow::Body),
        "zstd" => compression::decompress(&bytes, length).ok_or(CorruptRow::Body)?,
        _ => bytes,
    };
    if body.len() == length { Ok(body) } else { Err(CorruptRow::Body) }
}

#[cfg(feature = "zstd")]
mod compression {
    use bytes::Bytes;

    /// The length of the shortest body that is compressed, in bytes. Shorter bodies shrink too little.
    const WORTH_COMPRESSING: usize = 256;

    /// The compression level of zstd, which is zstd's default. JSON of 6 KB shrinks to a third, of 18 KB to a fifth.
    /// Higher levels cost more function time than they save in write units.
    const COMPRESSION_LEVEL: i32 = 3;

    /// Returns `None` if the body would not shrink.
    pub(super) fn compress(body: &Bytes) -> Option<Bytes> {
        if body.len() < WORTH_COMPRESSING {
            return None;
        }
        let small = zstd::bulk::compress(body, COMPRESSION_LEVEL).ok()?;
        (small.len() < body.len()).then(|| small.into())
    }

    pub(super) fn decompress(bytes: &Bytes, length: usize) -> Option<Bytes> {
        zstd::bulk::decompress(bytes, length).ok().map(Bytes::from)
    }
}

/// Stores every body as it is. Compressed bodies are unreadable.
#[cfg(not(feature = "zstd"))]
mod compression {
    use bytes::Bytes;

    pub(super) fn compress(_: &Bytes) -> Option<Bytes> {
        None
    }

    pub(super) fn decompress(_: &Bytes, _: usize) -> Option<Bytes> {
        None
    }
}

#[cfg(all(test, feature = "zstd"))]
mod tests {
    use super::*;

    #[test]
    fn oversized_body_is_refused_before_decoding() {
        let zeros = |length: usize| zstd::bulk::compress(&vec![0; length], 3).unwrap().into();
        assert_eq!(decoded_body(zeros(LARGEST_BODY), "zstd", LARGEST_BODY).map(|body| body.len()), Ok(LARGEST_BODY));
        assert_eq!(decoded_body(zeros(LARGEST_BODY + 1), "zstd", LARGEST_BODY + 1), Err(CorruptRow::Body));
    }
}

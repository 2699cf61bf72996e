//! The body of a request, which is sent in pieces.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::handlers::event::Document;

/// The body of a request. It is made while it is sent, so that a worker with several long lists holds none of them.
pub struct ForwardBody {
    pieces: Box<dyn Iterator<Item = Bytes> + Send>,
    left: usize,
}

impl ForwardBody {
    pub(super) fn into_pieces(self) -> impl Iterator<Item = Bytes> {
        self.pieces
    }
}

impl From<Bytes> for ForwardBody {
    fn from(body: Bytes) -> Self {
        Self { left: body.len(), pieces: Box::new(std::iter::once(body)) }
    }
}

impl From<Document> for ForwardBody {
    fn from(document: Document) -> Self {
        Self { left: document.bytes(), pieces: Box::new(document.into_pieces()) }
    }
}

impl Body for ForwardBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.find(|piece| !piece.is_empty());
        self.left -= piece.as_ref().map_or(0, Bytes::len);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

impl std::fmt::Debug for ForwardBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Payload").field("left", &self.left).finish_non_exhaustive()
    }
}

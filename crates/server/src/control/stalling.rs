//! A connection that fails when its other side stops reading.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream that fails when its other side reads nothing for `bound`.
#[derive(Debug)]
pub(super) struct Stalling<S> {
    stream: S,
    bound: Duration,
    /// Deadline of a write that waits.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalling<S> {
    pub(super) fn new(stream: S, bound: Duration) -> Self {
        Stalling {
            stream,
            bound,
            waits: None,
        }
    }

    /// Limits the time that a write may wait.
    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let bound = self.bound;
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(bound)));
        if waits.deadline() <= Instant::now() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        ready!(waits.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_is_cut_and_who_reads_slowly_is_not() {
        let bound = Duration::from_secs(10);
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = Stalling::new(near, bound);
        // a reader that takes four bytes in nine seconds is not stalled
        let reads = tokio::spawn(async move {
            let mut bytes = [0; 4];
            for _ in 0..5 {
                sleep(Duration::from_secs(9)).await;
                far.read_exact(&mut bytes).await.unwrap();
            }
            far
        });
        near.write_all(&[7; 20]).await.unwrap();
        let _far = reads.await.unwrap();
        // after that it reads nothing more
        let begun = Instant::now();
        let error = near.write_all(&[7; 20]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= bound && begun.elapsed() < 2 * bound);
    }
}

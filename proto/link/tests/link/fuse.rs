//! A stream that breaks after so many bytes, in the one direction or the other.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::wire::Stream;

/// How a stream breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// It ends, as if its peer had closed it.
    End,
    /// It fails.
    Reset,
    /// Nothing moves any more, and nobody is told.
    Stall,
}

/// When and how a stream breaks. The bytes before that are whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) read: usize,
    pub(crate) written: usize,
    pub(crate) how: Break,
}

pub(crate) struct Fuse {
    /// `None` once it broke, so that the other end hears of it.
    stream: Option<Box<dyn Stream>>,
    left: Option<Plan>,
    broken: Option<Break>,
}

impl Fuse {
    pub(crate) fn new(stream: Box<dyn Stream>, plan: Option<Plan>) -> Self {
        Self { stream: Some(stream), left: plan, broken: None }
    }

    fn break_if(&mut self, used_up: impl Fn(&Plan) -> bool) {
        if let Some(plan) = self.left.filter(used_up) {
            self.left = None;
            self.broken = Some(plan.how);
            if plan.how != Break::Stall {
                self.stream = None;
            }
        }
    }

    fn broken<T>(&self, end: T) -> Option<Poll<io::Result<T>>> {
        self.broken.map(|how| match how {
            Break::End => Poll::Ready(Ok(end)),
            Break::Reset => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Break::Stall => Poll::Pending,
        })
    }

    fn stream(&mut self) -> Pin<&mut (dyn Stream + 'static)> {
        Pin::new(self.stream.as_deref_mut().expect("not broken"))
    }
}

impl AsyncRead for Fuse {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.break_if(|plan| plan.read == 0);
        if let Some(broken) = self.broken(()) {
            return broken;
        }
        let most = self.left.map_or(usize::MAX, |plan| plan.read).min(buffer.remaining());
        let mut bytes = vec![0; most.min(64 * 1024)];
        let mut part = ReadBuf::new(&mut bytes);
        let polled = self.stream().poll_read(context, &mut part);
        let read = part.filled().len();
        buffer.put_slice(part.filled());
        if let Some(plan) = &mut self.left {
            plan.read -= read;
        }
        polled
    }
}

impl AsyncWrite for Fuse {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        self.break_if(|plan| plan.written == 0);
        if self.broken == Some(Break::End) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if let Some(broken) = self.broken(0) {
            return broken;
        }
        let most = self.left.map_or(usize::MAX, |plan| plan.written).min(buffer.len());
        let polled = self.stream().poll_write(context, &buffer[..most]);
        if let (Some(plan), Poll::Ready(Ok(written))) = (&mut self.left, &polled) {
            plan.written -= written;
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.broken(()) {
            Some(broken) => broken,
            None => self.stream().poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.broken(()) {
            Some(broken) => broken,
            None => self.stream().poll_shutdown(context),
        }
    }
}

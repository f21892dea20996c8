//! State machine of one terminal, without sockets and clock: its output, its viewers, their input.
//!
//! All viewers see the same. The size is that of the window in which a user typed last: the smallest one would let a
//! user who looks on from a phone shrink the window in which another one works. That page *leads*: it also answers what
//! programs ask the terminal, once.

mod patience;

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use bytes::{Buf, Bytes};
use thiserror::Error;

pub use self::patience::{PageProgress, Patience, STALL};

use super::message::{Size, ToPage};
use super::ring::Ring;

/// Output that a terminal keeps, in bytes: more than the lines that a page keeps to scroll back.
pub const RING_BYTES_MAX: usize = 1024 * 1024;

/// Most pages that show one terminal at a time.
pub const VIEWERS_MAX: usize = 32;

/// Most pages whose input is remembered, so that one that comes back types nothing twice.
const PAGES_MAX: usize = 2 * VIEWERS_MAX;

/// Most bytes on their way to a page, or waiting there to be shown. Less makes a terminal slow on long paths, more
/// makes it deaf: typed input is answered behind them.
const UNSHOWN_BYTES_MAX: u64 = 256 * 1024;

/// Most output in one message: small enough for others to get their turn on the way.
const OUTPUT_BYTES_MAX: usize = 16 * 1024;

const _: () = assert!(UNSHOWN_BYTES_MAX < patience::BEHIND_BYTES_MAX);
const _: () = assert!(patience::BEHIND_BYTES_MAX <= RING_BYTES_MAX as u64 / 2);

/// A page, by the random number that it gave itself; it keeps it when it connects anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u128);

/// One connection of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewerId(u64);

/// [`VIEWERS_MAX`] pages show the terminal already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{VIEWERS_MAX} pages show this terminal already")]
pub struct TooManyViewers;

/// Action that a page may not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Misuse {
    /// A user who may only look typed.
    #[error("read-only viewers cannot type")]
    ReadOnly,
    /// The page left out something that it typed before, or says that it has shown what it never got.
    #[error("the page's byte numbers do not match")]
    Numbers,
    /// The page's connection does not count any more.
    #[error("the page has connected anew")]
    Gone,
}

/// Next step for a viewer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewerInput {
    /// Send this message.
    Message(ToPage),
    /// There is nothing to send before something changes.
    Nothing,
    /// Its page has connected anew.
    Gone,
}

/// A terminal.
#[derive(Clone, Debug)]
pub struct Terminal {
    ring: Ring,
    size: Size,
    viewers: BTreeMap<ViewerId, Viewer>,
    /// Number of bytes that each page has typed, the page that came last at the end.
    pages: VecDeque<(PageId, u64)>,
    joined: u64,
    typings: u64,
    ended: Option<Option<i32>>,
}

#[derive(Clone, Debug)]
struct Viewer {
    page: PageId,
    may_type: bool,
    window: Option<Size>,
    /// Number of its last input among all of them; 0 before that.
    typed_at: u64,
    sent: u64,
    shown: u64,
    welcome: Option<ToPage>,
    told_size: Option<(Size, bool)>,
    told_viewers: usize,
    told_taken: u64,
    told_end: bool,
}

/// Request of a page to show the terminal.
#[derive(Clone, Copy, Debug)]
pub struct Joining {
    /// The page.
    pub page: PageId,
    /// Whether the user may type.
    pub may_type: bool,
    /// The number of the byte up to which the page has shown this terminal; `None` if it has shown nothing.
    pub from: Option<u64>,
    /// Size of its window.
    pub window: Option<Size>,
}

impl Terminal {
    /// Makes a terminal without output.
    #[must_use]
    pub fn new(size: Size, ring_bytes_max: usize) -> Self {
        Self {
            ring: Ring::new(ring_bytes_max),
            size,
            viewers: BTreeMap::new(),
            pages: VecDeque::new(),
            joined: 0,
            typings: 0,
            ended: None,
        }
    }

    /// Adds output of the shell and its programs.
    pub fn said(&mut self, bytes: &[u8]) {
        self.ring.push(bytes);
    }

    /// Notes that the shell has ended, with a status if it was not killed. It says nothing after that.
    pub fn ended(&mut self, status: Option<i32>) {
        self.ended.get_or_insert(status);
    }

    /// Returns whether the shell has ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Adds a viewer. An earlier connection of the same page is gone: what it typed and showed counts for this one.
    ///
    /// # Errors
    /// [`TooManyViewers`].
    pub fn join(&mut self, joining: Joining) -> Result<ViewerId, TooManyViewers> {
        let Joining { page, may_type, from, window } = joining;
        let before =
            self.viewers.iter().find(|(_, viewer)| viewer.page == page).map(|(id, viewer)| (*id, viewer.typed_at));
        if let Some((id, _)) = before {
            self.viewers.remove(&id);
        }
        if self.viewers.len() >= VIEWERS_MAX {
            // Viewers who may only look never keep out one who may type.
            let first = self.viewers.iter().filter(|(_, viewer)| !viewer.may_type).map(|(id, _)| *id).min();
            let first = first.filter(|_| may_type).ok_or(TooManyViewers)?;
            self.viewers.remove(&first);
        }
        // Nor do they push out the count of a page that is away for a moment.
        let taken = if may_type { self.remember(page) } else { 0 };
        let known = from.filter(|from| (self.ring.start()..=self.ring.end()).contains(from));
        let from = known.unwrap_or_else(|| self.ring.beginning());
        let news_from = known.unwrap_or_else(|| self.ring.end());
        let welcome = ToPage::Welcome { may_type, fresh: known.is_none(), from, news_from, taken };
        self.joined += 1;
        let id = ViewerId(self.joined);
        let viewer = Viewer {
            page,
            may_type,
            window,
            typed_at: before.map_or(0, |(_, typed_at)| typed_at),
            sent: from,
            shown: from,
            welcome: Some(welcome),
            told_size: None,
            told_viewers: 0,
            told_taken: taken,
            told_end: false,
        };
        self.viewers.insert(id, viewer);
        self.fit();
        Ok(id)
    }

    /// Removes a viewer.
    pub fn leave(&mut self, id: ViewerId) {
        self.viewers.remove(&id);
        self.fit();
    }

    /// Returns the number of pages that show the terminal.
    #[must_use]
    pub fn viewers(&self) -> usize {
        self.viewers.len()
    }

    /// Returns the size that the terminal is to have.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// Decides whether a viewer may type.
    ///
    /// # Errors
    /// [`Misuse`] says why not.
    pub fn may_type(&self, id: ViewerId) -> Result<(), Misuse> {
        let viewer = self.viewers.get(&id).ok_or(Misuse::Gone)?;
        if viewer.may_type { Ok(()) } else { Err(Misuse::ReadOnly) }
    }

    /// Takes input that a page typed after `offset` bytes, and returns the new part of it.
    ///
    /// # Errors
    /// [`Misuse`]; then nothing is taken.
    pub fn typed(&mut self, id: ViewerId, offset: u64, mut bytes: Bytes) -> Result<Bytes, Misuse> {
        self.may_type(id)?;
        let viewer = self.viewers.get_mut(&id).ok_or(Misuse::Gone)?;
        let (_, taken) = self.pages.iter_mut().find(|(page, _)| *page == viewer.page).ok_or(Misuse::Gone)?;
        let known = taken.checked_sub(offset).ok_or(Misuse::Numbers)?;
        let known = usize::try_from(known).map_or(bytes.len(), |known| known.min(bytes.len()));
        bytes.advance(known);
        *taken += bytes.len() as u64;
        if !bytes.is_empty() {
            self.typings += 1;
            viewer.typed_at = self.typings;
            self.fit();
        }
        Ok(bytes)
    }

    /// Notes the size of a page's window.
    pub fn resized(&mut self, id: ViewerId, window: Size) {
        if let Some(viewer) = self.viewers.get_mut(&id) {
            viewer.window = Some(window);
            self.fit();
        }
    }

    /// Notes that a page has shown everything before a byte.
    ///
    /// # Errors
    /// [`Misuse::Numbers`] if it did not get that yet.
    pub fn shown(&mut self, id: ViewerId, before: u64) -> Result<(), Misuse> {
        let viewer = self.viewers.get_mut(&id).ok_or(Misuse::Gone)?;
        if before > viewer.sent {
            return Err(Misuse::Numbers);
        }
        // Skipped bytes count as shown already.
        viewer.shown = viewer.shown.max(before);
        Ok(())
    }

    /// Returns the progress of the leading page.
    #[must_use]
    pub fn progress(&self) -> Option<PageProgress> {
        let viewer = self.leader().and_then(|leader| self.viewers.get(&leader))?;
        Some(PageProgress { shown: viewer.shown, end: self.ring.end() })
    }

    /// Returns the next step for a viewer.
    pub fn next(&mut self, id: ViewerId) -> ViewerInput {
        let (leader, count) = (self.leader(), self.viewers.len());
        let Some(viewer) = self.viewers.get_mut(&id) else { return ViewerInput::Gone };
        if let Some(welcome) = viewer.welcome.take() {
            return ViewerInput::Message(welcome);
        }
        let size = (self.size, leader == Some(id));
        if viewer.told_size != Some(size) {
            viewer.told_size = Some(size);
            return ViewerInput::Message(ToPage::Size { size: size.0, leads: size.1 });
        }
        if viewer.told_viewers != count {
            viewer.told_viewers = count;
            return ViewerInput::Message(ToPage::Viewers(u16::try_from(count).unwrap_or(u16::MAX)));
        }
        let taken = self.pages.iter().find(|(page, _)| *page == viewer.page).map_or(0, |(_, taken)| *taken);
        if viewer.told_taken != taken {
            viewer.told_taken = taken;
            return ViewerInput::Message(ToPage::Taken(taken));
        }
        if viewer.sent < self.ring.start() {
            let to = self.ring.beginning();
            (viewer.sent, viewer.shown) = (to, to);
            return ViewerInput::Message(ToPage::Skipped { to });
        }
        let room = UNSHOWN_BYTES_MAX.saturating_sub(viewer.sent - viewer.shown);
        let wanted = usize::try_from(room).unwrap_or(usize::MAX).min(OUTPUT_BYTES_MAX);
        let piece = self.ring.piece(viewer.sent, wanted).filter(|piece| !piece.is_empty());
        if let Some(piece) = piece {
            viewer.sent += piece.len() as u64;
            return ViewerInput::Message(ToPage::Output(piece));
        }
        match self.ended {
            Some(status) if !viewer.told_end && viewer.sent == self.ring.end() => {
                viewer.told_end = true;
                ViewerInput::Message(ToPage::Ended(status))
            }
            Some(_) | None => ViewerInput::Nothing,
        }
    }

    /// Returns the viewer that typed last; before any did, the one that came first.
    fn leader(&self) -> Option<ViewerId> {
        let typists = self.viewers.iter().filter(|(_, viewer)| viewer.may_type);
        typists.max_by_key(|(id, viewer)| (viewer.typed_at, Reverse(**id))).map(|(id, _)| *id)
    }

    /// Makes the size the one of the leader's window.
    fn fit(&mut self) {
        let window = self.leader().and_then(|leader| self.viewers.get(&leader)?.window);
        self.size = window.unwrap_or(self.size);
    }

    /// Returns the number of bytes that a page has typed before, and remembers it as the page that came last.
    fn remember(&mut self, page: PageId) -> u64 {
        let known = self.pages.iter().position(|(known, _)| *known == page).and_then(|at| self.pages.remove(at));
        let taken = known.map_or(0, |(_, taken)| taken);
        if self.pages.len() >= PAGES_MAX {
            let is_here = |page: &PageId| self.viewers.values().any(|viewer| viewer.page == *page);
            let forgotten = self.pages.iter().position(|(page, _)| !is_here(page));
            forgotten.and_then(|at| self.pages.remove(at));
        }
        self.pages.push_back((page, taken));
        taken
    }
}

#[cfg(test)]
mod tests;

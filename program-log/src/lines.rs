//! Stream of this process that many tasks write lines to and none waits for.

use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tracing_subscriber::fmt::MakeWriter;

use super::backlog::{Backlog, recycle};
use super::delivery::Delivery;
use super::report::Form;

/// Interval at which a stream that refused lines is tried again while there are no new ones.
const RETRY: Duration = Duration::from_secs(1);

/// Longest wait of a program's end for its last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Longest wait of a caller with a line for a person until it is out, so that later output comes after it.
const SAY_PATIENCE: Duration = Duration::from_millis(500);

/// Longest wait of a panic's hook for the queue. No thread holds it longer than it takes to copy a line.
const HOOK_PATIENCE: Duration = Duration::from_millis(100);

/// Stack of the writing thread, in bytes: it calls nothing deep.
const STACK_BYTES: usize = 256 * 1024;

/// One stream and the lines that wait for it.
pub struct Lines {
    backlog: Mutex<Backlog>,
    pushed: Condvar,
    written: Condvar,
    lost: AtomicU64,
    is_json: AtomicBool,
    is_started: AtomicBool,
    /// Taken by the writing thread.
    stream: Mutex<Option<LogStream>>,
}

impl fmt::Debug for Lines {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Lines").field("lost", &self.lost).finish_non_exhaustive()
    }
}

/// Returns the lines of standard error.
pub fn stderr() -> &'static Lines {
    static LINES: OnceLock<Lines> = OnceLock::new();
    LINES.get_or_init(|| Lines::new(io::stderr().as_fd().try_clone_to_owned().ok().map(File::from)))
}

/// Returns the lines of standard output.
pub fn stdout() -> &'static Lines {
    static LINES: OnceLock<Lines> = OnceLock::new();
    LINES.get_or_init(|| Lines::new(io::stdout().as_fd().try_clone_to_owned().ok().map(File::from)))
}

/// Waits for the last lines of both streams, a second each at most: for the end of a program.
pub fn finish() {
    for lines in [stdout(), stderr()] {
        lines.flush(LAST_LINES);
    }
}

impl Lines {
    /// Makes the lines of a stream; without one, all are lost and counted.
    fn new(file: Option<File>) -> Self {
        Self {
            backlog: Mutex::default(),
            pushed: Condvar::new(),
            written: Condvar::new(),
            lost: AtomicU64::new(0),
            is_json: AtomicBool::new(false),
            is_started: AtomicBool::new(false),
            stream: Mutex::new(Some(LogStream(file))),
        }
    }

    /// Sets the form of the lines that this crate adds.
    pub fn set_form(&self, form: Form) {
        self.is_json.store(form == Form::Json, Ordering::Relaxed);
    }

    /// Returns the form of the lines.
    pub(crate) fn form(&self) -> Form {
        if self.is_json.load(Ordering::Relaxed) { Form::Json } else { Form::Text }
    }

    /// Returns the number of lines lost since the start.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Hands lines in, with their ends. Never waits for the stream: lines that find no room are dropped and counted.
    pub fn push(&'static self, lines: &[u8]) {
        self.start();
        let refused = self.backlog.lock().push(lines);
        self.note(refused);
    }

    /// Like [`Lines::push`], for a caller that must not wait even for a lock.
    pub(crate) fn push_from_hook(&'static self, lines: &[u8]) {
        self.start();
        let backlog = self.backlog.try_lock_for(HOOK_PATIENCE);
        let refused = backlog.map_or(1, |mut backlog| backlog.push(lines));
        self.note(refused);
    }

    /// Hands in a line for a person and waits, half a second at most, until it is out. A stream that was waited for in vain
    /// is not waited for again before it moves.
    pub fn say(&'static self, line: impl Display) {
        self.push(format!("{line}\n").as_bytes());
        self.flush(SAY_PATIENCE);
    }

    /// Waits until all lines that were handed in are written or lost; returns whether they are.
    pub fn flush(&self, within: Duration) -> bool {
        let mut backlog = self.backlog.lock();
        if backlog.is_idle() {
            return true;
        }
        if backlog.is_worth_waiting() {
            let waited = self.written.wait_while_for(&mut backlog, |backlog| !backlog.is_idle(), within);
            if waited.timed_out() && !backlog.is_idle() {
                backlog.give_up();
            }
        }
        backlog.is_idle()
    }

    /// Returns a writer for `tracing-subscriber`.
    #[must_use]
    pub fn writer(&'static self) -> LineWriter {
        LineWriter(self)
    }

    fn note(&self, refused: u64) {
        if refused > 0 {
            self.lost.fetch_add(refused, Ordering::Relaxed);
        }
        self.pushed.notify_one();
    }

    /// Starts the thread, once. If the system does not give one now, it is asked again with the next line.
    fn start(&'static self) {
        if self.is_started.load(Ordering::Acquire) || self.is_started.swap(true, Ordering::AcqRel) {
            return;
        }
        let thread = thread::Builder::new().name("log".into()).stack_size(STACK_BYTES);
        if thread.spawn(|| self.run()).is_err() {
            self.is_started.store(false, Ordering::Release);
        }
    }

    fn run(&self) {
        let Some(stream) = self.stream.lock().take() else { return };
        let mut delivery = Delivery::new(stream);
        let mut batch = Vec::new();
        loop {
            let refused = self.next(&mut batch, delivery.owes());
            let form = self.form();
            let lost = delivery.deliver(&batch, refused, |lines, because| form.lost(lines, because));
            self.lost.fetch_add(lost, Ordering::Relaxed);
            recycle(&mut batch);
        }
    }

    /// Waits for lines; if a report is owed, not for ever.
    fn next(&self, batch: &mut Vec<u8>, owes: bool) -> u64 {
        let mut backlog = self.backlog.lock();
        backlog.written();
        if backlog.is_idle() {
            self.written.notify_all();
        }
        let has_nothing = |backlog: &mut Backlog| !backlog.has_work();
        if owes {
            self.pushed.wait_while_for(&mut backlog, has_nothing, RETRY);
        } else {
            self.pushed.wait_while(&mut backlog, has_nothing);
        }
        backlog.take(batch)
    }
}

/// Stream that another program which shares it may have set to non-blocking mode; then it is waited for here.
#[derive(Debug)]
struct LogStream(Option<File>);

impl Write for LogStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(file) = &mut self.0 else { return Err(ErrorKind::NotConnected.into()) };
        loop {
            match file.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    match poll(&mut [PollFd::new(file, PollFlags::OUT)], None) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Hands each event that `tracing-subscriber` writes to the queue. Never fails.
#[derive(Clone, Copy, Debug)]
pub struct LineWriter(&'static Lines);

impl Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LineWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::super::backlog::QUEUE_BYTES_MAX;
    use super::*;

    fn lines_into(file: File) -> &'static Lines {
        Box::leak(Box::new(Lines::new(Some(file))))
    }

    #[test]
    fn reader_that_stops_costs_lines_and_no_time_and_is_told_once() {
        let (reader, writer) = io::pipe().unwrap();
        let lines = lines_into(File::from(std::os::fd::OwnedFd::from(writer)));
        let count = 3 * QUEUE_BYTES_MAX / 100;
        // The other end reads nothing meanwhile: this comes back all the same.
        for number in 0..count {
            lines.push(format!("{number:0>99}\n").as_bytes());
        }
        assert!(!lines.flush(Duration::from_millis(1)));
        let lost = lines.lost();
        assert!(lost > 0);
        let count = u64::try_from(count).unwrap();
        let (mut last, mut kept, mut said) = (None, 0, 0);
        // What is lost before the first batch is taken and what is lost behind it is said one after the other, each once.
        let mut read = BufReader::new(reader).lines().map(Result::unwrap);
        while kept + said < count {
            let line = read.next().expect("more is to come");
            if let Some((_, lines)) = line.split_once("lines=\"") {
                said += lines.split('"').next().unwrap().parse::<u64>().unwrap();
                continue;
            }
            let number: u64 = line.parse().unwrap();
            assert!(last.is_none_or(|last| last < number));
            last = Some(number);
            kept += 1;
        }
        assert_eq!((said, kept + said), (lost, count));
        assert!(lines.flush(Duration::from_secs(60)));
    }

    #[test]
    fn streams_that_refuse_are_survived() {
        let (reader, closed) = io::pipe().unwrap();
        drop(reader);
        let full = File::options().write(true).open("/dev/full").unwrap();
        for file in [full, File::from(std::os::fd::OwnedFd::from(closed))] {
            let lines = lines_into(file);
            lines.say("one");
            lines.push(b"two\nthree\n");
            assert!(lines.flush(Duration::from_secs(60)));
            assert_eq!(lines.lost(), 3);
        }
        let none: &'static Lines = Box::leak(Box::new(Lines::new(None)));
        none.say("one");
        assert_eq!(none.lost(), 1);
    }
}

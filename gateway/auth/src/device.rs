//! Sign-in of programs on other machines (RFC 8628): a program shows a short code, its user confirms it in a browser.
//!
//! ```text
//! program   asks              -> a device code (secret, for polling) and a user code (short, for people)
//! browser   confirms or denies the user code, signed in as a user
//! program   polls with the device code until it is told: yes (once), no, or too late
//! ```
//!
//! No I/O and no clock here. The caller makes the token that a confirmation yields. Requests outlive the process:
//! [`persistence`] writes them to the store.

pub mod persistence;
mod shared;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use aws_lc_rs::rand;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::Instant;

use self::shared::SharedDevices;
use crate::fair::FairMap;
use crate::journal::Journal;
use gateway_types::UserName;
use gateway_types::opaque::{Digest, Opaque};
use gateway_types::token::NoRandomness;

/// Time within which a user has to confirm.
pub const DEVICE_AGE_MAX: Duration = Duration::from_secs(10 * 60);

/// Initial interval between a program's polls.
pub const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Added to the interval by each poll that comes too soon (RFC 8628, section 3.5).
const POLL_PENALTY: Duration = Duration::from_secs(5);

/// Tolerance below the interval that is not punished, because clocks and networks jitter.
const POLL_SLACK: Duration = Duration::from_millis(500);

/// Requests that wait for a user at once. Full: the oldest of the block of addresses with the most makes room, so that a flood
/// ends its own and keeps no other user out.
pub const DEVICES_MAX: usize = 4096;

/// Requests of one address that wait at once.
pub const DEVICES_PER_ADDRESS_MAX: usize = 10;

/// Letters of user codes: no vowels, so no words, and none that look alike (RFC 8628, section 6.1). 20 letters, 8 places:
/// 34 bits.
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// Length of a user code without its dash.
const CODE_LETTERS: usize = 8;

/// Longest name of a machine, in characters.
pub const MACHINE_CHARS_MAX: usize = 64;

/// Code that a user types or compares: `BCDF-GHJK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UserCode([u8; CODE_LETTERS]);

/// The text is no user code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a code has eight letters, such as BCDF-GHJK")]
pub struct BadUserCode;

impl UserCode {
    /// Draws a code.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub fn random() -> Result<Self, NoRandomness> {
        let mut code = [0; CODE_LETTERS];
        for place in &mut code {
            *place = loop {
                let mut byte = [0];
                rand::fill(&mut byte).map_err(|_| NoRandomness)?;
                let [byte] = byte;
                // 240 is a multiple of 20: without this, some letters would be likelier.
                if byte < 240
                    && let Some(letter) = LETTERS.get(usize::from(byte) % LETTERS.len())
                {
                    break *letter;
                }
            };
        }
        Ok(Self(code))
    }
}

impl UserCode {
    /// Returns the digest that it is stored under. 34 bits can be tried exhaustively, but not within ten minutes.
    fn digest(self) -> Digest {
        Digest::of(&self.0)
    }
}

impl FromStr for UserCode {
    type Err = BadUserCode;

    /// Reads typed input: in any case, with or without dash and spaces.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > 4 * CODE_LETTERS {
            return Err(BadUserCode);
        }
        let mut letters =
            text.bytes().filter(|byte| !matches!(byte, b'-' | b' ')).map(|byte| byte.to_ascii_uppercase());
        let mut code = [0; CODE_LETTERS];
        for place in &mut code {
            *place = letters.next().filter(|letter| LETTERS.contains(letter)).ok_or(BadUserCode)?;
        }
        if letters.next().is_some() { Err(BadUserCode) } else { Ok(Self(code)) }
    }
}

impl fmt::Display for UserCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, letter) in self.0.iter().enumerate() {
            if place == CODE_LETTERS / 2 {
                formatter.write_str("-")?;
            }
            write!(formatter, "{}", char::from(*letter))?;
        }
        Ok(())
    }
}

/// The requesting machine, as shown to the user before they confirm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestingMachine {
    /// Name that the machine gave itself; unverified.
    pub machine: MachineName,
    /// Address that it asked from.
    pub peer: IpAddr,
}

/// The name that a machine gave itself: printable, and cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineName(String);

impl MachineName {
    /// Keeps a plain subset of a text's printable ASCII; an empty rest becomes `unnamed machine`.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let is_plain = |character: &char| character.is_ascii_alphanumeric() || "-._ ()@/".contains(*character);
        let kept: String = text.chars().filter(is_plain).take(MACHINE_CHARS_MAX).collect();
        let kept = kept.trim();
        Self(if kept.is_empty() { "unnamed machine".to_owned() } else { kept.to_owned() })
    }
}

impl fmt::Display for MachineName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Both codes of a request that was just made. `Debug` hides the device code.
#[derive(Debug)]
pub struct DeviceCodes {
    /// For polling.
    pub device: Opaque,
    /// For the user.
    pub user: UserCode,
}

/// Reason why no request was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoDevice {
    /// The system gave no random bytes.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    /// [`DEVICES_PER_ADDRESS_MAX`] of this address wait.
    #[error("too many sign-ins of this address wait for their users")]
    AddressFull,
}

/// Answer to a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DevicePollAnswer {
    /// The user has not decided yet.
    Pending,
    /// It came too soon; from now on, this is the interval.
    SlowDown(Duration),
    /// The user said no.
    Denied,
    /// The code is unknown, used, or too old: the program does not learn which.
    Expired,
    /// The user said yes. Told once: [`Devices::settle`] has to follow.
    Approved {
        /// The user who confirmed.
        user: UserName,
        /// The machine as it was shown to the user.
        asking: RequestingMachine,
    },
}

/// All requests that wait, or wait for their answer to be fetched.
#[derive(Debug, Default)]
pub struct Devices {
    state: Mutex<DeviceTable>,
    /// By device code.
    journal: Journal<Digest>,
    shared: Option<SharedDevices>,
}

#[derive(Debug)]
struct DeviceTable {
    by_user_code: FairMap<Digest, Request>,
    by_device_code: HashMap<Digest, Digest>,
}

impl Default for DeviceTable {
    fn default() -> Self {
        Self { by_user_code: FairMap::new(DEVICE_AGE_MAX, DEVICES_MAX), by_device_code: HashMap::new() }
    }
}

#[derive(Debug)]
struct Request {
    device: Digest,
    asking: RequestingMachine,
    asked: Instant,
    answer: PollAnswer,
    pace: Pace,
}

/// Pace of a program's polls.
#[derive(Clone, Copy, Debug)]
struct Pace {
    interval: Duration,
    polled: Option<Instant>,
}

impl Pace {
    /// Notes a poll, and returns whether it kept the interval, which grows if it did not.
    fn keep(&mut self, now: Instant) -> bool {
        let since = self.polled.map(|polled| now.saturating_duration_since(polled));
        self.polled = Some(now);
        let is_kept = since.is_none_or(|since| since + POLL_SLACK >= self.interval);
        if !is_kept {
            self.interval += POLL_PENALTY;
        }
        is_kept
    }
}

#[derive(Clone, Debug)]
enum PollAnswer {
    None,
    Yes(UserName),
    /// A poll is being told the yes: see [`Devices::settle`].
    Told(UserName),
    No,
}

impl Devices {
    /// Makes a request.
    ///
    /// # Errors
    /// [`NoDevice`].
    pub fn ask(&self, asking: RequestingMachine, now: Instant) -> Result<DeviceCodes, NoDevice> {
        let mut state = self.state.lock();
        let room = state.by_user_code.make_room(now);
        state.forget_all(room).for_each(|device| self.journal.removed(device));
        if state.by_user_code.count_of(asking.peer) >= DEVICES_PER_ADDRESS_MAX {
            return Err(NoDevice::AddressFull);
        }
        let device = Opaque::random()?;
        let user = loop {
            let user = UserCode::random()?;
            if state.by_user_code.get(&user.digest(), now).is_none() {
                break user;
            }
        };
        let (answer, pace, peer) = (PollAnswer::None, Pace { interval: POLL_INTERVAL, polled: None }, asking.peer);
        let request = Request { device: device.digest(), asking, asked: now, answer, pace };
        state.by_device_code.insert(device.digest(), user.digest());
        state.by_user_code.insert(user.digest(), request, peer, now);
        self.journal.changed(device.digest());
        Ok(DeviceCodes { device, user })
    }

    /// Returns the machine behind a user code and the age of its request; `None` when the code is unknown, too old, or
    /// decided.
    #[must_use]
    pub fn asking(&self, code: UserCode, now: Instant) -> Option<(RequestingMachine, Duration)> {
        let state = self.state.lock();
        let request = state.by_user_code.get(&code.digest(), now).filter(|request| request.waits(now))?;
        Some((request.asking.clone(), now.saturating_duration_since(request.asked)))
    }

    /// Takes a user's decision, once; `None` as with [`Devices::asking`].
    pub fn decide(&self, code: UserCode, user: &UserName, is_yes: bool, now: Instant) -> Option<RequestingMachine> {
        let mut state = self.state.lock();
        let request = state.by_user_code.get_mut(&code.digest(), now).filter(|request| request.waits(now))?;
        request.answer = if is_yes { PollAnswer::Yes(user.clone()) } else { PollAnswer::No };
        self.journal.changed(request.device);
        Some(request.asking.clone())
    }

    /// Answers a poll. A no is told once and then forgotten; a yes waits for [`Devices::settle`], and meanwhile no
    /// other poll is told.
    pub fn poll(&self, device: &Digest, now: Instant) -> DevicePollAnswer {
        let mut state = self.state.lock();
        let Some(user_code) = state.by_device_code.get(device).copied() else { return DevicePollAnswer::Expired };
        let Some(request) = state.by_user_code.get_mut(&user_code, now) else {
            self.forget(&mut state, &user_code);
            return DevicePollAnswer::Expired;
        };
        if !request.pace.keep(now) {
            return DevicePollAnswer::SlowDown(request.pace.interval);
        }
        let (answer, asking) = (request.answer.clone(), request.asking.clone());
        match answer {
            PollAnswer::None | PollAnswer::Told(_) => DevicePollAnswer::Pending,
            PollAnswer::No => {
                self.forget(&mut state, &user_code);
                DevicePollAnswer::Denied
            }
            PollAnswer::Yes(user) => {
                request.answer = PollAnswer::Told(user.clone());
                DevicePollAnswer::Approved { user, asking }
            }
        }
    }

    /// Ends a request whose yes was told and acted on (`is_followed`), or lets the yes be told again.
    pub fn settle(&self, device: &Digest, is_followed: bool, now: Instant) {
        let mut state = self.state.lock();
        let Some(user_code) = state.by_device_code.get(device).copied() else { return };
        let Some(request) = state.by_user_code.get_mut(&user_code, now) else { return };
        match &request.answer {
            PollAnswer::Told(_) if is_followed => self.forget(&mut state, &user_code),
            PollAnswer::Told(user) => request.answer = PollAnswer::Yes(user.clone()),
            PollAnswer::None | PollAnswer::Yes(_) | PollAnswer::No => {}
        }
    }

    fn forget(&self, state: &mut DeviceTable, code: &Digest) {
        if let Some(request) = state.by_user_code.remove(code) {
            state.by_device_code.remove(&request.device);
            self.journal.removed(request.device);
        }
    }
}

impl Request {
    fn waits(&self, now: Instant) -> bool {
        matches!(self.answer, PollAnswer::None) && now.saturating_duration_since(self.asked) < DEVICE_AGE_MAX
    }
}

impl DeviceTable {
    /// Forgets requests that were removed, and returns the digests of their device codes.
    fn forget_all(&mut self, gone: Vec<(Digest, Request)>) -> impl Iterator<Item = Digest> + '_ {
        gone.into_iter().map(|(_, request)| {
            self.by_device_code.remove(&request.device);
            request.device
        })
    }
}

#[cfg(test)]
mod tests;

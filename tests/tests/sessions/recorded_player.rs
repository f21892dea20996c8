//! Plays one side of a recorded conversation against today's program at the other end. The player waits for whatever the
//! other side had said before each of its own messages, and sends those as they were recorded, but for values that differ
//! from run to run.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use e2e::{PATIENCE, TestAgent};

use crate::raw_agent::{RawAgent, prefixed};
use crate::raw_gateway::RawLink;
use crate::recorded_fields::{
    ACCEPT, ACCEPT_CREDIT, ACKNOWLEDGED, CHANNEL, CLOSE, CREDIT, DATA, DATA_PAYLOAD, FINISH, Fields, GRANT_BYTES,
    GRANTS, HELLO, HELLO_CREDIT, HELLO_FEATURES, OPEN, OPEN_CREDIT, OPEN_PAYLOAD, OPEN_PORT, PING, PONG, RESET, RESUME,
    RESUME_RECEIVED, RESUME_SECRET, RESUME_SESSION, RESUMED, RESUMED_RECEIVED, SEQUENCE, TOKEN, VERSION_MAX,
    VERSION_MIN, Value, WELCOME, WELCOME_SECRET, WELCOME_SESSION, differences,
};
use crate::recorded_lines::{Line, Speaker};

/// Protocol version of the recordings.
const VERSION: u64 = 1;

/// A link, at the end that the player speaks for.
pub(crate) enum Link {
    /// To today's gateway.
    OfAgent(Box<RawAgent>),
    /// From today's agent.
    OfGateway(Box<RawLink>),
}

/// A recorded side, with what it has learned of the other.
pub(crate) struct Player {
    lines: std::vec::IntoIter<Line>,
    side: Speaker,
    /// Number of the other side's last numbered frame.
    received: u64,
    /// Channels by their recorded ids.
    channels: BTreeMap<u64, u64>,
    /// Payload that came already, for recorded messages that are still to be heard.
    ahead: BytesMut,
    /// Messages that came while the player waited for credit.
    waiting: VecDeque<Fields>,
    /// Bytes that may be sent on each channel.
    credit: BTreeMap<u64, u64>,
    /// `Hello.open_credit_bytes` of today's agent.
    open_credit: u64,
    /// Session and resume secret by today's gateway.
    resumable: (u64, Bytes),
    /// Port of the app behind today's agent.
    pub(crate) port: u64,
    /// Today's agent: stopped where the recorded one was.
    pub(crate) agent: Option<TestAgent>,
}

impl Link {
    async fn send(&mut self, message: &Fields) {
        let bytes = prefixed(&message.write());
        match self {
            Self::OfAgent(agent) => agent.send(bytes).await,
            Self::OfGateway(link) => link.send(bytes).await,
        }
    }

    async fn next(&mut self) -> Fields {
        let arrived = async {
            match self {
                Self::OfAgent(agent) => agent.arrived().await,
                Self::OfGateway(link) => link.arrived().await,
            }
        };
        let message = tokio::time::timeout(PATIENCE, arrived).await.expect("a message in time");
        Fields::read(message.expect("a message before the end of the link"))
    }

    /// Ends the link, and waits until the other side has.
    async fn finish(self) {
        match self {
            Self::OfAgent(mut agent) => {
                agent.finish();
                while let Some(message) = agent.next_message().await {
                    assert!(!is_said(&Fields::read(message)), "said behind the end");
                }
            }
            Self::OfGateway(link) => link.finish().await,
        }
    }
}

impl Player {
    pub(crate) fn new(lines: Vec<Line>, side: Speaker) -> Self {
        let mut lines = lines.into_iter();
        assert_eq!(lines.next(), Some(Line::Link));
        let resumable = (0, Bytes::new());
        Self {
            lines,
            side,
            received: 0,
            channels: BTreeMap::new(),
            ahead: BytesMut::new(),
            waiting: VecDeque::new(),
            credit: BTreeMap::new(),
            open_credit: 0,
            resumable,
            port: 0,
            agent: None,
        }
    }

    /// Returns whether the agent dials once more.
    pub(crate) fn goes_on(&self) -> bool {
        self.lines.len() > 0
    }

    /// Plays one link, up to the next one or the end.
    pub(crate) async fn play(&mut self, mut link: Link) {
        loop {
            match self.lines.next() {
                None | Some(Line::Link) => break,
                Some(Line::Said(side, message)) if side == self.side => {
                    self.say(&mut link, Fields::read(message)).await;
                }
                Some(Line::Said(_, message)) => self.hear(&mut link, Fields::read(message), true).await,
                // Sent, as far as this side knows; the link broke with it.
                Some(Line::Lost(side, _)) if side == self.side => return self.next_link(),
                Some(Line::Lost(_, message)) => {
                    self.hear(&mut link, Fields::read(message), false).await;
                    return self.next_link();
                }
                Some(Line::Refused(status, message)) => return self.refuse(link, status, &message).await,
            }
        }
        link.finish().await;
    }

    /// Goes on behind a broken link.
    fn next_link(&mut self) {
        assert_eq!(self.lines.next(), Some(Line::Link));
    }

    async fn refuse(&mut self, link: Link, status: u16, message: &str) {
        match link {
            Link::OfAgent(agent) => assert_eq!((*agent).refusal().await.0, status, "{message}"),
            Link::OfGateway(link) => (*link).refuse(status, message).await,
        }
    }

    /// Says a message as soon as it may. Pongs are left out: today's pings have their own.
    async fn say(&mut self, link: &mut Link, recorded: Fields) {
        let payload = recorded.message(DATA).bytes(DATA_PAYLOAD).len() as u64;
        let channel = self.channel(recorded.message(DATA).number(CHANNEL));
        while payload > self.credit.get(&channel).copied().unwrap_or_default() {
            let live = self.next(link, true).await;
            self.waiting.extend(Some(live).filter(is_said));
        }
        if payload > 0 {
            *self.credit.entry(channel).or_default() -= payload;
        }
        self.begin(&recorded.message(WELCOME));
        let open = recorded.message(OPEN);
        if !open.0.is_empty() {
            self.credit.insert(open.number(CHANNEL), self.open_credit - open.bytes(OPEN_PAYLOAD).len() as u64);
        }
        if recorded.all(PONG).next().is_none() {
            link.send(&self.own(recorded)).await;
        }
    }

    /// Hears a message that means what the recorded one did. One that is lost counts as not received.
    async fn hear(&mut self, link: &mut Link, mut recorded: Fields, arrives: bool) {
        if !is_said(&recorded) {
            return;
        }
        let payload = recorded.message(DATA).bytes(DATA_PAYLOAD);
        self.map_channels(&mut recorded);
        if !payload.is_empty() {
            return self.hear_payload(link, &recorded, &payload, arrives).await;
        }
        let stopped = self.agent.take_if(|_| recorded.all(CLOSE).next().is_some());
        let stop = async {
            if let Some(agent) = stopped {
                agent.stop().await;
            }
        };
        let ((), live) = tokio::join!(stop, self.next_said(link, arrives));
        self.learn(&recorded, &live);
        self.map_channels(&mut recorded);
        assert_eq!(differences(&recorded, &live), [""; 0], "\n{recorded:?}\n{live:?}");
    }

    /// Hears the bytes of a recorded message, however many messages carry them today.
    async fn hear_payload(&mut self, link: &mut Link, recorded: &Fields, payload: &Bytes, arrives: bool) {
        while self.ahead.len() < payload.len() {
            let mut live = self.next_said(link, arrives).await;
            self.ahead.extend_from_slice(&live.message(DATA).bytes(DATA_PAYLOAD));
            live.within(DATA, |data| data.change(DATA_PAYLOAD, |_| Value::Bytes(payload.clone())));
            assert_eq!(differences(recorded, &live), [""; 0], "\n{recorded:?}\n{live:?}");
        }
        assert_eq!(self.ahead.split_to(payload.len()), payload);
    }

    /// Waits for the next message that says something for good: no acknowledgement, credit, ping or pong, and nothing that
    /// the recorded version skips.
    async fn next_said(&mut self, link: &mut Link, arrives: bool) -> Fields {
        if let Some(live) = self.waiting.pop_front() {
            return live;
        }
        loop {
            let live = self.next(link, arrives).await;
            if is_said(&live) {
                return live;
            }
        }
    }

    /// Waits for the next message, whatever it says.
    async fn next(&mut self, link: &mut Link, arrives: bool) -> Fields {
        let live = link.next().await;
        let sequence = live.number(SEQUENCE);
        if sequence > 0 && arrives {
            assert_eq!(sequence, self.received + 1, "a frame is missing, or came twice");
            self.received = sequence;
        }
        let is_skipped = live.0.iter().any(|(number, _)| *number > CLOSE);
        assert!(!is_skipped || sequence == 0, "a numbered frame that the recorded version does not know: {live:?}");
        if live.all(PING).next().is_some() {
            let pong = Fields(vec![(TOKEN, Value::Number(live.message(PING).number(TOKEN)))]).write();
            link.send(&Fields(vec![(PONG, Value::Bytes(pong))])).await;
        }
        let (accept, opened, credit) = (live.message(ACCEPT), live.message(OPEN), live.message(CREDIT));
        self.credited(&accept, ACCEPT_CREDIT);
        self.credited(&opened, OPEN_CREDIT);
        credit.messages(GRANTS).iter().for_each(|grant| self.credited(grant, GRANT_BYTES));
        live
    }

    fn credited(&mut self, body: &Fields, bytes: u32) {
        *self.credit.entry(body.number(CHANNEL)).or_default() += body.number(bytes);
    }

    /// Begins to count anew with the welcome of a new session.
    fn begin(&mut self, welcome: &Fields) {
        if !welcome.0.is_empty() && welcome.all(RESUMED).next().is_none() {
            self.received = 0;
            self.channels.clear();
            self.credit.clear();
        }
    }

    /// Takes up what today's side decided.
    fn learn(&mut self, recorded: &Fields, live: &Fields) {
        let (theirs, ours) = (recorded.message(OPEN), live.message(OPEN));
        if !theirs.0.is_empty() {
            self.channels.insert(theirs.number(CHANNEL), ours.number(CHANNEL));
        }
        let welcome = live.message(WELCOME);
        self.begin(&welcome);
        if !welcome.0.is_empty() {
            self.resumable = (welcome.number(WELCOME_SESSION), welcome.bytes(WELCOME_SECRET));
        }
        let (theirs, ours) = (recorded.message(HELLO), live.message(HELLO));
        if !ours.0.is_empty() {
            assert!((ours.number(VERSION_MIN)..=ours.number(VERSION_MAX)).contains(&VERSION), "{ours:?}");
            self.open_credit = ours.number(HELLO_CREDIT);
            let offered: Vec<_> = ours.all(HELLO_FEATURES).collect();
            assert!(theirs.all(HELLO_FEATURES).all(|feature| offered.contains(&feature)), "{ours:?}");
        }
    }

    /// Returns a message of the own side as this run needs it.
    fn own(&self, mut message: Fields) -> Fields {
        message.set(ACKNOWLEDGED, self.received);
        message
            .within(WELCOME, |welcome| welcome.within(RESUMED, |resumed| resumed.set(RESUMED_RECEIVED, self.received)));
        if self.side == Speaker::Agent {
            let (session, secret) = &self.resumable;
            message.within(HELLO, |hello| {
                hello.within(RESUME, |resume| {
                    resume.set(RESUME_SESSION, *session);
                    resume.set(RESUME_RECEIVED, self.received);
                    resume.change(RESUME_SECRET, |_| Value::Bytes(secret.clone()));
                });
            });
        }
        message.within(OPEN, |open| open.set(OPEN_PORT, self.port));
        self.map_channels(&mut message);
        message
    }

    /// Returns this run's id of a recorded channel.
    fn channel(&self, recorded: u64) -> u64 {
        self.channels.get(&recorded).copied().unwrap_or(recorded)
    }

    /// Puts this run's ids of channels into a recorded message.
    fn map_channels(&self, message: &mut Fields) {
        let map = |body: &mut Fields| {
            let recorded = body.number(CHANNEL);
            body.set(CHANNEL, self.channel(recorded));
        };
        for body in [OPEN, ACCEPT, DATA, FINISH, RESET] {
            message.within(body, map);
        }
        message.within(CREDIT, |credit| credit.within(GRANTS, map));
    }
}

/// Returns whether a message says something for good.
fn is_said(message: &Fields) -> bool {
    let skipped = [CREDIT, PING, PONG];
    message.0.iter().any(|(number, _)| (HELLO..=CLOSE).contains(number) && !skipped.contains(number))
}

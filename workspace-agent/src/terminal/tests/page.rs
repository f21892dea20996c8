//! A page in as far as these tests need one, and requests on channels.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::{HOST, OWNER, soon};
use crate::terminal::{Terminals, message};

/// Asks on a channel of its own; returns status and body.
pub(super) async fn ask(terminals: &Terminals, start: &str, fields: &str, body: &str) -> (u16, String) {
    let mut channel = terminals.open().expect("a channel");
    let length = body.len();
    let request = format!(
        "{start} HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\ncontent-length: {length}\r\n{fields}\r\n{body}"
    );
    channel.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = Vec::new();
    soon(channel.read_to_end(&mut answer)).await.expect("an answer");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

pub(super) async fn made(terminals: &Terminals) -> String {
    let (status, body) = ask(terminals, "POST /terminals", OWNER, r#"{"columns":80,"rows":24}"#).await;
    assert_eq!(status, 201, "{body}");
    let made: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    made["id"].as_str().expect("an id").to_owned()
}

/// A page, as its script is.
pub(super) struct Page {
    pub(super) socket: WebSocketStream<DuplexStream>,
    /// Everything that it has shown.
    pub(super) screen: Vec<u8>,
    pub(super) at: u64,
    /// Whether it was told to begin anew, since it connected.
    pub(super) fresh: bool,
    /// Whether it was told that it missed something.
    pub(super) skipped: bool,
    pub(super) size: (u16, u16, bool),
    pub(super) viewers: u16,
    pub(super) taken: u64,
    pub(super) ended: Option<i32>,
    pub(super) job: Option<Bytes>,
}

impl Page {
    pub(super) async fn join(terminals: &Terminals, id: &str, query: &str, access: &str) -> Self {
        let channel = terminals.open().expect("a channel");
        let uri = format!("ws://{HOST}/terminals/{id}/stream?{query}");
        let mut request = uri.into_client_request().expect("a request");
        let fields = [("gateway-access", access), ("sec-websocket-protocol", message::SUBPROTOCOL)];
        for (name, value) in fields {
            request.headers_mut().insert(name, value.parse().expect("a value"));
        }
        let (socket, _) = soon(client_async(request, channel)).await.expect("a terminal");
        let mut page = Self {
            socket,
            screen: Vec::new(),
            at: 0,
            fresh: false,
            skipped: false,
            size: (0, 0, false),
            viewers: 0,
            taken: 0,
            ended: None,
            job: None,
        };
        soon(page.hear()).await.expect("a welcome");
        page
    }

    pub(super) async fn owner(terminals: &Terminals, id: &str, number: u8) -> Self {
        Self::join(terminals, id, &format!("page={number:032x}"), "owner").await
    }

    /// Takes one message; the close frame's code at the end. A terminal that is up sends one every now and then, so whoever waits
    /// for something is who bounds the time.
    pub(super) async fn hear(&mut self) -> Result<(), Option<u16>> {
        let mut message = match self.socket.next().await {
            Some(Ok(Message::Binary(bytes))) => bytes,
            Some(Ok(Message::Close(frame))) => return Err(frame.map(|frame| frame.code.into())),
            Some(Ok(_)) => return Ok(()),
            Some(Err(_)) | None => return Err(None),
        };
        match message.get_u8() {
            0 => {
                self.fresh = message.get_u8() & 2 != 0;
                self.at = message.get_u64();
                let _news_from = message.get_u64();
                self.taken = message.get_u64();
            }
            1 => {
                self.at += message.len() as u64;
                self.screen.extend_from_slice(&message);
                self.say(2, &self.at.to_be_bytes()).await;
            }
            2 => (self.at, self.skipped) = (message.get_u64(), true),
            3 => self.size = (message.get_u16(), message.get_u16(), message.get_u8() == 1),
            4 => self.viewers = message.get_u16(),
            5 => self.taken = message.get_u64(),
            6 => self.ended = (message.get_u8() == 1).then(|| message.get_i32()),
            7 => self.job = Some(message),
            // A sign of life, as often as it comes.
            8 => {}
            other => panic!("a message of kind {other}"),
        }
        Ok(())
    }

    pub(super) async fn say(&mut self, kind: u8, rest: &[u8]) {
        let mut bytes = BytesMut::new();
        bytes.put_u8(kind);
        bytes.put_slice(rest);
        // The other end may be gone, which is heard next.
        self.socket.send(Message::Binary(bytes.freeze())).await.ok();
    }

    pub(super) async fn type_at(&mut self, offset: u64, text: &str) {
        self.say(0, &[&offset.to_be_bytes(), text.as_bytes()].concat()).await;
    }

    pub(super) async fn run(&mut self, text: &str) {
        let offset = self.taken;
        self.type_at(offset, text).await;
        self.until(|page| page.taken >= offset + text.len() as u64).await;
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen).into_owned()
    }

    /// Waits until something stands on the screen.
    pub(super) async fn shows(&mut self, wanted: &str) {
        let shown = async {
            while !self.text().contains(wanted) {
                if let Err(code) = self.hear().await {
                    panic!("closed with {code:?} before {wanted:?}: {:?}", self.text());
                }
            }
        };
        soon(shown).await;
    }

    pub(super) async fn until(&mut self, holds: impl Fn(&Self) -> bool) {
        let hearing = async {
            while !holds(self) {
                self.hear().await.expect("more");
            }
        };
        soon(hearing).await;
    }

    pub(super) async fn code(&mut self) -> Option<u16> {
        let ending = async {
            loop {
                if let Err(code) = self.hear().await {
                    return code;
                }
            }
        };
        soon(ending).await
    }

    pub(super) async fn code_after_leaving(mut self) -> Option<u16> {
        self.socket.close(None).await.ok();
        self.code().await
    }
}

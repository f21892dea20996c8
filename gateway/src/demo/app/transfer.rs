//! `/upload` and `/download`: bodies of any size in constant memory.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use aws_lc_rs::digest;
use axum::Json;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use http_body::{Frame, SizeHint};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::open::{OpenCount, OpenKind};
use super::{DemoApp, hex, problem};

/// Bytes that `/download` hands over at a time: large enough to be cheap, small enough to be nothing.
const CHUNK_BYTES: u64 = 64 * 1024;

/// Bytes that `/download` sends without a `bytes` parameter.
const DOWNLOAD_BYTES: u64 = 1024 * 1024;

#[derive(Serialize)]
struct UploadReceipt {
    bytes: u64,
    sha256: String,
    seconds: f64,
}

/// Reads the body to its end and answers with its length, SHA-256 and the time that it took.
pub(super) async fn upload(State(app): State<DemoApp>, body: Body) -> Response {
    let _held = OpenCount::new(&app, OpenKind::Upload);
    let began = Instant::now();
    let mut bytes = 0_u64;
    let mut hash = digest::Context::new(&digest::SHA256);
    let mut data = body.into_data_stream();
    while let Some(part) = data.next().await {
        let Ok(part) = part else {
            return problem(StatusCode::BAD_REQUEST, "the upload broke off");
        };
        bytes = bytes.saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX));
        hash.update(&part);
    }
    let received = UploadReceipt { bytes, sha256: hex(hash.finish().as_ref()), seconds: began.elapsed().as_secs_f64() };
    Json(received).into_response()
}

/// Query of `/download`.
#[derive(Deserialize)]
pub(super) struct DownloadQuery {
    bytes: Option<u64>,
}

/// Sends as many bytes as wanted, always the same ones.
pub(super) async fn download(State(app): State<DemoApp>, Query(wanted): Query<DownloadQuery>) -> Response {
    let bytes = wanted.bytes.unwrap_or(DOWNLOAD_BYTES);
    let headers = [
        (CONTENT_LENGTH, HeaderValue::from(bytes)),
        (CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    let body = Body::new(Pattern { sent: 0, bytes, _held: OpenCount::new(&app, OpenKind::Download) });
    (headers, body).into_response()
}

/// A body whose bytes depend only on their position, so that a lost, repeated or swapped piece shows.
struct Pattern {
    /// Always a multiple of [`CHUNK_BYTES`] until the last chunk.
    sent: u64,
    bytes: u64,
    _held: OpenCount,
}

impl http_body::Body for Pattern {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let length = self.bytes.saturating_sub(self.sent).min(CHUNK_BYTES);
        if length == 0 {
            return Poll::Ready(None);
        }
        let chunk = chunk(self.sent / 8, length);
        self.sent += length;
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.sent >= self.bytes
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.saturating_sub(self.sent))
    }
}

/// `length` bytes that begin with the eight of `first_word`.
fn chunk(first_word: u64, length: u64) -> Bytes {
    let words = length.div_ceil(8);
    let room = usize::try_from(words.saturating_mul(8)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(room);
    // A plain loop: as an iterator chain it takes twice as long, and downloads are what tests wait for.
    for index in 0..words {
        bytes.extend_from_slice(&scramble(first_word.wrapping_add(index)).to_le_bytes());
    }
    bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
    Bytes::from(bytes)
}

/// Spreads a counter over all 64 bits (the output function of SplitMix64), so that the bytes do not compress.
fn scramble(counter: u64) -> u64 {
    let mut word = counter.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use futures_util::stream;
    use http_body_util::BodyExt;

    use super::super::tests::{RunningApp, answer, json_of, read_past};
    use super::*;

    #[tokio::test]
    async fn an_upload_is_answered_with_its_length_and_checksum() {
        for (parts, bytes, sha256) in [
            (vec!["a", "b", "c"], 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (vec![], 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ] {
            let parts = stream::iter(parts.into_iter().map(Ok::<_, Infallible>));
            let request = Request::post("/upload").body(Body::from_stream(parts)).unwrap();
            let response = answer(request).await;
            assert_eq!(response.status(), StatusCode::OK);
            let json = json_of(response).await;
            assert_eq!(json["bytes"], bytes);
            assert_eq!(json["sha256"], sha256);
            assert!(json["seconds"].as_f64().unwrap() >= 0.0);
        }
    }

    #[tokio::test]
    async fn an_upload_has_no_size_limit() {
        // Twenty times what axum's own limit for buffered bodies allows.
        let piece = Bytes::from(vec![0; 1024 * 1024]);
        let parts = stream::iter(std::iter::repeat_n(piece, 40).map(Ok::<_, Infallible>));
        let request = Request::post("/upload").body(Body::from_stream(parts)).unwrap();
        assert_eq!(json_of(answer(request).await).await["bytes"], 40 * 1024 * 1024);
    }

    #[tokio::test]
    async fn an_upload_that_breaks_off_is_not_answered_as_complete() {
        let parts = stream::iter([Ok("first"), Err(std::io::Error::other("gone"))]);
        let request = Request::post("/upload").body(Body::from_stream(parts)).unwrap();
        assert_eq!(answer(request).await.status(), StatusCode::BAD_REQUEST);
    }

    #[tokio::test]
    async fn a_download_has_the_wanted_length_and_says_so() {
        for bytes in [0, 1, 7, 8, 9, CHUNK_BYTES - 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 5] {
            let (announced, body) = fetch(&format!("/download?bytes={bytes}")).await;
            assert_eq!(announced, bytes.to_string());
            assert_eq!(u64::try_from(body.len()).unwrap(), bytes);
        }
    }

    #[tokio::test]
    async fn a_shorter_download_is_the_beginning_of_a_longer_one() {
        let (_, long) = fetch(&format!("/download?bytes={}", 2 * CHUNK_BYTES + 100)).await;
        let (_, short) = fetch(&format!("/download?bytes={}", CHUNK_BYTES + 13)).await;
        assert_eq!(short[..], long[..short.len()]);
        // Written down, so that a download can be checked by another program and by the next version.
        assert_eq!(hex(&long[..16]), "afcd1d7b39a820e2f465b9a16a9e786e".to_owned());
    }

    #[tokio::test]
    async fn the_bytes_of_a_download_depend_on_their_position() {
        let (_, body) = fetch(&format!("/download?bytes={}", 8 * CHUNK_BYTES)).await;
        let pieces: std::collections::BTreeSet<&[u8]> = body.chunks(8).collect();
        assert_eq!(pieces.len(), body.len() / 8);
    }

    #[tokio::test]
    async fn a_download_without_a_number_is_refused() {
        let request = Request::get("/download?bytes=-1").body(Body::empty()).unwrap();
        assert_eq!(answer(request).await.status(), StatusCode::BAD_REQUEST);
    }

    #[tokio::test]
    async fn a_download_on_the_wire_has_a_length_and_no_chunks() {
        let app = RunningApp::start().await;
        let mut socket = app.send(b"GET /download?bytes=5 HTTP/1.1\r\nhost: app\r\n\r\n").await;
        let head = read_past(&mut socket, b"\r\n\r\n").await;
        let head = String::from_utf8_lossy(&head).into_owned();
        assert_eq!(head.matches("content-length: 5\r\n").count(), 1, "{head}");
        assert!(!head.contains("transfer-encoding"), "{head}");
    }

    async fn fetch(target: &str) -> (String, Bytes) {
        let request = Request::get(target).body(Body::empty()).unwrap();
        let response = answer(request).await;
        let announced = response.headers()[CONTENT_LENGTH].to_str().unwrap().to_owned();
        (announced, response.into_body().collect().await.unwrap().to_bytes())
    }
}
